"""Write paper/reproduction.md: `python -m coresetvi_paper [--unpack] [RESULTS]`.

RESULTS is what `coresetvi reproduce all --out RESULTS` has made, with our settings and with the paper's; its
records are packed into paper/records first. Without it, the page is made of what is packed there already.
With --unpack, the records go the other way, and `coresetvi reproduce` goes on from them.
"""

import argparse
import sys
from pathlib import Path

from coresetvi.errors import CoresetviError

from .packed_records import PACKS, pack, unpack
from .page import write_page

# The folder of the page in a checkout; a wheel has no records.
HOME = Path(__file__).parents[2]


def main() -> int:
    """Pack, write, and say where."""
    parser = argparse.ArgumentParser(prog="python -m coresetvi_paper", description=main.__doc__)
    parser.add_argument("results", nargs="?", type=Path, help="a folder of `coresetvi reproduce all --out`")
    parser.add_argument("--unpack", action="store_true", help="put the packed records into it instead")
    asked = parser.parse_args()
    if asked.unpack and asked.results is None:
        parser.error("--unpack needs a folder; name one")
    if not (HOME / PACKS).is_dir():
        parser.error(f"{HOME} has no records; install the paper's folder of a checkout with pip install -e")
    try:
        if asked.unpack:
            unpack(HOME, asked.results)
            return 0
        if asked.results is not None:
            pack(asked.results, HOME)
        print(write_page(HOME))
    except CoresetviError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
