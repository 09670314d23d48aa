"""Write docs/reproduction.md: `python -m benchmarks.page [--unpack] [RESULTS]`.

RESULTS is what `coresetvi reproduce all --out RESULTS` has made, with our settings and with the paper's; its
records are packed into docs/records first. Without it, the page is made of what is packed there already. With
--unpack, the records go the other way, and `coresetvi reproduce` goes on from them.
"""

import argparse
import sys
from pathlib import Path

from coresetvi.errors import CoresetviError
from coresetvi.reproduction.page import pack, unpack, write_page

DOCS = Path(__file__).parents[1] / "docs"


def main() -> int:
    """Pack, write, and say where."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=main.__doc__)
    parser.add_argument("results", nargs="?", type=Path, help="a folder of `coresetvi reproduce all --out`")
    parser.add_argument("--unpack", action="store_true", help="put the packed records into it instead")
    asked = parser.parse_args()
    if asked.unpack and asked.results is None:
        parser.error("--unpack needs a folder; name one")
    try:
        if asked.unpack:
            unpack(DOCS, asked.results)
            return 0
        if asked.results is not None:
            pack(asked.results, DOCS)
        print(write_page(DOCS))
    except CoresetviError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
