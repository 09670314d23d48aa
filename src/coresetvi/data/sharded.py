"""Rows spread over several devices of one machine: each adds up its own, and only totals meet."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PRNGKeyArray, PyTree

from .._checks import short
from ..errors import InputError
from .column_limits import column_facts
from .dataset import Dataset, unchecked
from .drawing import draw_rows
from .rows import LabelSummary, Rows

AXIS = "rows"


def shard(data: Rows, devices: Sequence[object] | None = None) -> "ShardedRows":
    """The same rows, spread evenly over `devices`: all that JAX has, unless some are given.

    Every device holds its share and adds it up; rows never travel. Where there is one device, all are on it.

    >>> rows = shard(Dataset([[1.0], [2.0], [4.0]], [0, 1, 1]))
    >>> rows.num_rows, float(rows.total(lambda rows: rows.weights @ rows.x[:, 0]))
    (3, 7.0)
    """
    if not isinstance(data, Dataset):
        raise InputError(f"data is {short(data)}; only a Dataset in memory can be spread over devices")
    chosen = list(jax.devices() if devices is None else devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise InputError(f"devices is {short(devices)}; give some of jax.devices(), or leave it out for all")
    return ShardedRows(data, Mesh(np.array(chosen), (AXIS,)))


class ShardedRows(Rows):
    """Rows in the memory of several devices; `shard` makes them."""

    def __init__(self, data: Dataset, mesh: Mesh):
        self._mesh, self._num_rows = mesh, len(data)
        self.columns, self.target = data.columns, data.target
        self.fixed, self.bounds = data.fixed, data.bounds
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        missing = -len(data) % mesh.size

        def place(leaf: jax.Array, fill: bool = True) -> jax.Array:
            values = np.asarray(leaf)
            # Copies of the last row, which is valid; rows that fill up weigh nothing.
            more = np.repeat(values[-1:], missing, axis=0) if fill else np.zeros(missing, values.dtype)
            return jax.device_put(np.concatenate([values, more]), sharding)

        self._data = unchecked(
            place(data.x),
            None if data.y is None else place(data.y),
            place(data.weights, fill=False),
            indices=None if data.indices is None else place(data.indices),
            **column_facts(data),
        )

    @property
    def devices(self) -> list[object]:
        """Where the rows are."""
        return self._mesh.devices.tolist()

    @property
    def num_rows(self) -> int:
        """How many rows there are, whatever their weights."""
        return self._num_rows

    @property
    def total_weight(self) -> jax.Array:
        """Sum of the weights: the N of the paper."""
        return _together(self._data.total_weight)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row of x."""
        return self._data.row_shape

    @property
    def dim(self) -> int:
        """How many numbers one row of x holds."""
        return self._data.dim

    def scale(self) -> tuple[jax.Array, jax.Array]:
        """Weighted mean and standard deviation of x; see `Dataset.scale`."""
        return _together(self._data.scale())

    def sample(self, key: PRNGKeyArray, count: int) -> Dataset:
        """`count` different rows, those that the data set itself would draw; see `Dataset.sample`."""
        return _together(self._data.take(draw_rows(key, self.num_rows, count)))

    def batches(self) -> Iterator[Dataset]:
        """All rows once, brought to the first device."""
        yield self._here()

    def total(self, of_rows: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """The sum over all rows of `of_rows(rows, *arguments)`, each device its own; see `Rows.total`."""
        # What the caller has put on one device has to be on all of them.
        arrays, rest = eqx.partition((of_rows, arguments), eqx.is_array)
        everywhere = jax.device_put(arrays, NamedSharding(self._mesh, PartitionSpec()))
        function, others = eqx.combine(everywhere, rest)
        return _together(sharded_sum(function, others, self._data, self._mesh))

    def labels(self) -> LabelSummary | None:
        """Type, range and frequencies of the labels; None if there are none."""
        return self._here().labels()

    def one_of_each(self) -> Dataset | None:
        """The first row with weight of every class; see `Rows.one_of_each`."""
        return self._here().one_of_each()

    def fingerprint(self) -> str:
        """That of the data set itself."""
        return self._here().fingerprint()

    def _here(self) -> Dataset:
        """The rows without those that fill up, on the first device."""
        return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[: self._num_rows]), self._data)


def _together(values: PyTree) -> PyTree:
    """Arrays that are on several devices, on the first, where what else the caller has is as well."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), values)


@eqx.filter_jit
def sharded_sum(of_rows: Callable[..., PyTree], arguments: tuple, data: Dataset, mesh: Mesh) -> PyTree:
    """The sum of `of_rows(rows, *arguments)` over rows that are spread over the devices of a mesh.

    Left to itself, the compiler would fetch all rows to one place wherever they are cut into blocks. So each
    device runs `of_rows` on its own rows as if there were no others.
    """
    arrays, rest = eqx.partition((of_rows, arguments), eqx.is_array)

    def of_one_device(arrays: PyTree, data: Dataset) -> PyTree:
        function, others = eqx.combine(arrays, rest)
        return jax.tree.map(partial(jax.lax.psum, axis_name=AXIS), function(data, *others))

    # A loop over blocks starts from plain zeros, which the check would take for equal on all devices.
    spread = jax.shard_map(
        of_one_device,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    return spread(arrays, data)
