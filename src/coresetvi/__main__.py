"""`python -m coresetvi`: the same as the command `coresetvi`."""

from .cli import main

if __name__ == "__main__":
    main()
