"""Which constructions take rows that are not in memory."""

from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from .base import Construction


def check_rows_are_taken(construction: Construction, rows: Rows) -> None:
    """Refuse rows that are not in memory for a construction that looks at single rows again and again.

    >>> from coresetvi.constructions.hilbert import GIGA
    >>> check_rows_are_taken(GIGA(10), Dataset([[1.0]], [0]))
    """
    if isinstance(rows, Dataset) or construction.takes_rows:
        return
    raise InputError(
        f"{type(construction).__name__} needs all rows in memory; use BBPSVI, RandomSubset, SubsetLaplace, "
        "FullLaplace or FullVI, or pass the rows as a Dataset."
    )
