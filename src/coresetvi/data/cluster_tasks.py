"""What the workers of a cluster do with their rows. Every function is pure: Dask repeats one whose result is
lost with its worker."""

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import short
from ..errors import InputError
from . import frames
from .accumulate import add_up
from .column_use import ColumnUse, piece_of
from .label_codes import LabelCodes
from .pieces import Piece, blocks_of, join
from .row_files import FilePart, RowFiles
from .streaming import sum_of_blocks
from .survey import RunningSurvey


class PackedSum(NamedTuple):
    """A function for `Rows.total` and its arguments as bytes: what is compiled, and the arrays put into it.

    Apart, because a worker that gets the same function again must see that it is the same, lest it compile
    it again.
    """

    function: bytes
    arrays: bytes


def in_precision(double: bool, function: Callable[..., object], *arguments: object) -> object:
    """`function(*arguments)` with the caller's float type, which a worker does not know."""
    with jax.enable_x64(double):
        return function(*arguments)


def read_frame(frame: object, use: ColumnUse, name: str) -> Piece:
    """A partition of a Dask data frame."""
    table = frames.columns_of(frame, name)
    if table is None:
        raise InputError(f"{name} is {short(frame)}, not a data frame; pass a Dask data frame")
    if not len(next(iter(table.values()))):
        return no_rows(use)
    return piece_of(table, use, name, 0)


def read_file(files: RowFiles, part: FilePart, length: int) -> Piece:
    """A file, or some of its row groups."""
    return join(list(files.read_part(part, length)) or [no_rows(files.use)])


def no_rows(use: ColumnUse) -> Piece:
    """An empty piece of these columns."""
    dtype = np.dtype(jnp.result_type(float))
    y = None if use.target is None else np.zeros(0, dtype)
    return Piece(np.zeros((0, len(use.columns)), dtype), y, np.zeros(0, dtype))


def survey_part(piece: Piece, name: str, target: str | None, start: int) -> RunningSurvey:
    """The survey of one partition, whose first row has the number `start`."""
    running = RunningSurvey(name, target, start)
    running.add(piece)
    return running


def merge_surveys(surveys: Sequence[RunningSurvey]) -> RunningSurvey:
    """The survey of partitions that follow one another."""
    first = surveys[0]
    # A new one: what is merged into it must not change what another task may read again.
    merged = RunningSurvey(first.name, first.target, first.start)
    for one in surveys:
        merged.merge(one)
    return merged


def encode(piece: Piece, codes: LabelCodes) -> Piece:
    """The partition with labels as numbers."""
    return codes.encode_piece(piece)


def pick(piece: Piece, rows: np.ndarray) -> Piece:
    """Some rows of a partition."""
    return piece.part(rows)


def sum_part(
    piece: Piece, packed: PackedSum, length: int, names: tuple[tuple[str, ...] | None, str | None]
) -> PyTree:
    """The sum over one partition, in float64; None if it has no rows."""
    if not len(piece):
        return None
    of_rows, arguments = unpack_sum(packed)
    return sum_of_blocks(blocks_of([piece], length), length, names, of_rows, arguments).wide()


def add_sums(sums: Sequence[PyTree]) -> PyTree:
    """The total of sums over several partitions; None if none of them has rows."""
    found = [one for one in sums if one is not None]
    return add_up(found) if found else None


def pack_sum(of_rows: Callable[..., PyTree], arguments: tuple) -> PackedSum:
    """A function and its arguments, ready to be sent.

    >>> of_rows, arguments = unpack_sum(pack_sum(lambda rows, factor: factor * rows, (jnp.array(2.0),)))
    >>> float(of_rows(3.0, *arguments))
    6.0
    """
    import cloudpickle

    arrays, function = eqx.partition((of_rows, arguments), eqx.is_array)
    try:
        return PackedSum(cloudpickle.dumps(function), cloudpickle.dumps(arrays))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{short(of_rows)} cannot be sent to the workers of a cluster ({reason}); "
            "keep open files, locks and generators out of the model and the function"
        ) from error


def unpack_sum(packed: PackedSum) -> tuple[Callable[..., PyTree], tuple]:
    """The function and its arguments, the same objects as long as the same bytes come."""
    return _combined(packed)


@functools.lru_cache(maxsize=2)
def _combined(packed: PackedSum) -> Any:
    return eqx.combine(pickle.loads(packed.arrays), _loaded(packed.function))


@functools.lru_cache(maxsize=64)
def _loaded(function: bytes) -> PyTree:
    try:
        return pickle.loads(function)
    except ImportError as error:
        raise InputError(
            f"the workers of the cluster cannot load the model or the function ({error}); "
            "install that module there, or send it with client.upload_file"
        ) from error
