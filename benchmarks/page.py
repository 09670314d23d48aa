"""Write docs/reproduction.md: `python -m benchmarks.page [--unpack] [RESULTS]`.

RESULTS is what `coresetvi reproduce all --out RESULTS` has made, with our settings and with the paper's; its
records are packed into docs/records first. Without it, the page is made of what is packed there already. With
--unpack, the records go the other way, and `coresetvi reproduce` goes on from them.
"""

import sys
from pathlib import Path

from coresetvi.errors import CoresetviError
from coresetvi.reproduction.page import pack, unpack, write_page

DOCS = Path(__file__).parents[1] / "docs"


def main(arguments: list[str]) -> int:
    """Pack, write, and say where."""
    try:
        if arguments[:1] == ["--unpack"]:
            for results in arguments[1:]:
                unpack(DOCS, Path(results))
            return 0
        for results in arguments:
            pack(Path(results), DOCS)
        print(write_page(DOCS))
    except CoresetviError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
