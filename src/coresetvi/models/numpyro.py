"""`FromNumPyro`: a NumPyro model function as a model of independent rows.

Latent sites on their unconstrained scale are the parameters; observed sites give one log-likelihood per row.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._programs import keep_programs
from ..data.dataset import Dataset
from ..errors import InputError
from .base import Model, Theta, check_inputs
from .index_columns import Groups, check_codes, index_columns
from .likelihoods import check_labels
from .numpyro_sites import (
    FEW,
    MORE,
    Layout,
    by_row,
    is_factor,
    log_density,
    reads_data,
    run_at,
    run_user_code,
    split,
    survey,
    unmasked,
)
from .numpyro_values import central_values, no_validation

# How many rows are tried out when a model is made.
TRIED = 4


class FromNumPyro(Model):
    """A NumPyro model function, `model(x, y)` or `model(x)` for data without labels.

    `data` is an example: its shapes and types are kept, none of its rows. Parameters are the latent sites on
    their unconstrained scale, `params` gives them back by name. The rows are what changes when the data have
    more of them: usually a plate of that size, which `plate=` may name if there are several.

    >>> import numpyro
    >>> from numpyro import distributions as dist
    >>> def regression(x, y):
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    ...     slope = numpyro.sample("slope", dist.Normal(0.0, scale).expand([2]).to_event(1))
    ...     with numpyro.plate("rows", len(x)):
    ...         numpyro.sample("y", dist.Bernoulli(logits=x @ slope), obs=y)
    >>> model = FromNumPyro(regression, [[1.0, 2.0], [3.0, 4.0]], [0, 1])
    >>> model.dim, model.num_classes
    (3, 2)
    >>> {name: value.shape for name, value in model.params(jnp.zeros(3)).items()}
    {'scale': (), 'slope': (2,)}
    """

    function: Callable
    layout: Layout = eqx.field(static=True)
    row_shape: tuple[int, ...] = eqx.field(static=True)
    label: jax.ShapeDtypeStruct | None = eqx.field(static=True)
    groups: tuple[tuple[int, Groups], ...] = eqx.field(static=True)  # columns of x that are an index
    initial: Theta
    num_classes: int | None

    def __init__(self, model: Callable, data: object, y: object = None, *, plate: str | None = None):
        require_numpyro()
        keep_programs()
        if not callable(model):
            raise InputError(f"model must be a NumPyro model function, not a {type(model).__name__}.")
        data = data if isinstance(data, Dataset) and y is None else Dataset(data, y)
        labels = None if data.y is None else example_labels(np.asarray(data.y))
        self.function = model
        self.row_shape = data.x.shape[1:]
        self.label = None if labels is None else jax.ShapeDtypeStruct(labels.shape[1:], labels.dtype)
        few, more = (survey(model, *self._example(rows)) for rows in (FEW, MORE))
        latent = tuple((name, seen.unconstrained) for name, seen in few.items() if seen.kind == "latent")
        observed, extra = split(few, more, plate)
        responses = tuple(name for name, _ in observed if few[name].kind == "observed")
        flat = any(seen.flat for seen in few.values())
        self.layout = Layout(latent, observed, extra, (), responses, flat)
        derived = [name for name, seen in few.items() if seen == more[name] and seen.kind == "deterministic"]
        parameters = [name for name, _ in latent]
        program = self._program(derived)
        self.groups = tuple(run_user_code(lambda: index_columns(program)).items())
        for name, reads in zip([*parameters, *extra, *derived], reads_data(program.jaxpr), strict=True):
            if reads and name in parameters:
                raise InputError(
                    f"The prior of site {name!r} depends on the data; "
                    "compute what it needs outside of the model."
                )
            if reads and name in extra:
                raise InputError(
                    f"Site {name!r} adds up the rows of the data; give numpyro.factor one number a row."
                )
            if reads:
                derived.remove(name)
        self.layout = self.layout._replace(derived=tuple(derived))
        self.initial = central_values(model, parameters, *self._any_rows(FEW))
        is_label = self._try_out(data, labels)
        self.num_classes = few[responses[0]].classes if is_label else None

    @property
    def dim(self):
        return sum(math.prod(shape) for _, shape in self.layout.latent)

    @property
    def has_flat_prior(self):
        return self.layout.flat

    def log_prior(self, theta):
        sites, log_volumes = self._run_without_data(theta)
        names = [*log_volumes, *self.layout.extra]
        densities = [jnp.sum(log_density(sites[name])) for name in names]
        return sum([*log_volumes.values(), *densities], jnp.zeros((), theta.dtype))

    def log_likelihood(self, theta, x, y):
        sites, _ = self._run(theta, x, y)
        return self._by_row(sites, jnp.zeros(x.shape[0], theta.dtype))

    def moments(self, theta, x):
        name = self.layout.response
        if name is None:
            count = "several observed sites" if self.layout.responses else "no observed site"
            raise InputError(f"This NumPyro model has {count}, so there is no single prediction.")
        sites, _ = self._run(theta, x, self._any_rows(len(x))[1])
        distribution, axis = unmasked(sites[name]["fn"]), dict(self.layout.observed)[name]
        if self.num_classes is not None and self.num_classes > 2:
            classes = jnp.arange(self.num_classes)[:, None]
            every = jnp.broadcast_to(classes, (len(classes), len(x)))
            probability = jnp.exp(jnp.transpose(distribution.log_prob(every)))
            return probability, probability * (1.0 - probability)
        shape = jnp.shape(sites[name]["value"])
        axis -= len(distribution.event_shape)

        def rows_first(values):
            return jnp.moveaxis(jnp.broadcast_to(values, shape), axis, 0).astype(theta.dtype)

        try:
            return rows_first(distribution.mean), rows_first(distribution.variance)
        except NotImplementedError as error:
            raise InputError(f"The distribution of site {name!r} has no mean to predict.") from error

    def start(self, key):
        return self.initial

    def params(self, theta):
        sites, log_volumes = self._run_without_data(theta)
        return {name: jnp.asarray(sites[name]["value"]) for name in (*log_volumes, *self.layout.derived)}

    def check(self, data, *, fitting=True):
        check_inputs(data, self.row_shape)
        self.check_x(data.x, data.columns)
        if (data.y is None) != (self.label is None):
            raise InputError(
                "This model needs labels; pass Dataset(x, y)."
                if data.y is None
                else "This model was made for data without labels; pass Dataset(x)."
            )
        if self.num_classes is not None:
            return check_labels(data, self.num_classes, fitting)
        if data.y is not None and self.label is not None and data.y.shape[1:] != self.label.shape:
            raise InputError(
                f"y has rows of shape {data.y.shape[1:]}, but the model was made for {self.label.shape}."
            )
        return self._check_support(data)

    def check_x(self, x, columns):
        check_codes(self.log_likelihood, self._elsewhere(), x, columns, self.label, dict(self.groups))

    def _check_support(self, data: Dataset) -> Dataset:
        """Values that a site's distribution cannot take would give log-likelihoods without meaning."""

        def inside(x, y):
            sites, _ = self._run(self.initial, x, y)
            within = {}
            for name, axis in self.layout.observed:
                distribution = sites[name]["fn"]
                if not is_factor(sites[name]) and distribution is unmasked(distribution):
                    allowed = distribution.support(sites[name]["value"])
                    shape = log_density(sites[name]).shape
                    within[name] = by_row(jnp.broadcast_to(~allowed, shape), axis) == 0
            return within

        for name, rows in run_user_code(lambda: jax.jit(inside)(data.x, data.y)).items():
            if not np.all(rows):
                raise InputError(
                    f"Row {int(np.argmin(rows))} of the data has a value that site {name!r} cannot take; "
                    "correct it or choose a distribution that can."
                )
        return data

    def _run(self, theta, x, y):
        """The sites at `theta`, and the log-volume |d constrained / d unconstrained| of every parameter."""
        position, offset = {}, 0
        for name, shape in self.layout.latent:
            position[name] = theta[offset : offset + math.prod(shape)].reshape(shape)
            offset += math.prod(shape)
        return run_at(self.function, position, x, y)

    def _by_row(self, sites, total):
        for name, axis in self.layout.observed:
            total = total + by_row(log_density(sites[name]), axis)
        return total

    def _example(self, rows: int):
        x = jax.ShapeDtypeStruct((rows, *self.row_shape), jnp.result_type(float))
        label = self.label
        return x, None if label is None else jax.ShapeDtypeStruct((rows, *label.shape), label.dtype)

    def _any_rows(self, rows: int):
        # Numpy's: each of JAX's would be a program. Ones, as a column may be a scale or under a logarithm.
        return jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), self._example(rows))

    def _run_without_data(self, theta):
        with no_validation():
            return self._run(theta, *self._any_rows(FEW))

    def _elsewhere(self) -> np.ndarray:
        """Parameters off the starting point, which may be one where the data do not count."""
        return (np.asarray(self.initial) + 0.3 * np.sin(1.0 + np.arange(self.dim))).astype(self.initial.dtype)

    def _program(self, derived: list[str]):
        """The operations behind the densities of the prior, the derived values, and last the rows."""

        def outputs(theta, x, y):
            sites, log_volumes = self._run(theta, x, y)
            densities = [log_density(sites[name]) for name in (*log_volumes, *self.layout.extra)]
            values = [jnp.asarray(sites[name]["value"]) for name in derived]
            return [*densities, *values, self._by_row(sites, jnp.zeros(x.shape[0], theta.dtype))]

        theta = jax.ShapeDtypeStruct((self.dim,), jnp.result_type(float))
        return jax.make_jaxpr(outputs)(theta, *self._example(FEW))

    def _try_out(self, data: Dataset, labels: np.ndarray | None) -> bool:
        """Refuse rows that see each other; tell whether the response is y itself."""
        rows = np.linspace(0, len(data) - 1, TRIED).astype(int)
        theta = self._elsewhere()

        @jax.jit
        def outcome(theta, x, y):
            sites, _ = self._run(theta, x, y)
            response = self.layout.response
            value = None if response is None else sites[response]["value"]
            return self.log_likelihood(theta, x, y), value

        def of(rows, theta: np.ndarray | jax.Array = theta):
            return outcome(theta, np.asarray(data.x)[rows], None if labels is None else labels[rows])

        # The first and the last row keep their places among other neighbours.
        (one, _), (other, _) = of(rows), of(rows[[0, -1, 0, -1]])
        ends = np.array([0, -1])
        if not np.allclose(one[ends], other[ends], rtol=1e-3, atol=1e-3, equal_nan=True):
            raise InputError(
                "The log-likelihood of a row changes with the other rows; a coreset needs independent rows, "
                "so compute what joins them, such as means of columns, outside of the model."
            )
        if np.all(np.isnan(one)) and np.all(np.isnan(of(rows, self.initial)[0])):
            raise InputError(
                "The log-likelihood is NaN at the medians of the priors, where the search begins; "
                "give parameters priors that keep them where it is defined, such as dist.LogNormal."
            )
        if self.layout.response is None or labels is None or labels.ndim != 1:
            return False
        marks = np.arange(TRIED, dtype=labels.dtype)
        return bool(np.array_equal(outcome(theta, np.asarray(data.x)[rows], marks)[1], marks))


def require_numpyro() -> None:
    """NumPyro is wanted by this model only, so it is not installed with the rest."""
    try:
        import numpyro  # noqa: F401
    except ImportError as error:
        raise InputError('FromNumPyro needs NumPyro; pip install "coresetvi[numpyro]".') from error


def example_labels(labels: np.ndarray) -> np.ndarray:
    """Labels with the type they will have in a fit: classes become integers there."""
    whole = labels.ndim == 1 and np.all(labels == np.floor(labels))
    return labels.astype(np.int32) if whole else labels
