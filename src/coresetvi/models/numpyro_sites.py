"""Reading the trace of a NumPyro model: which sites are parameters, which are data, and where the rows lie.

The function is traced for two numbers of rows. What changes with them belongs to the data, the rest to the
prior; a function for which the two cannot be told apart is refused, in a sentence that names the site.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

from ..errors import InputError
from .numpyro_values import call, zero_point

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

Site = dict[str, Any]  # what NumPyro's trace keeps of a site, by name
Result = TypeVar("Result")

# The two numbers of rows.
FEW, MORE = 3, 5
# NumPyro keeps its handlers in one list per process, and programs may be traced in several threads.
ONE_AT_A_TIME = threading.RLock()


class Seen(NamedTuple):
    """What a trace tells about one site; `shape` is that of the log-density where there are observations."""

    kind: str
    shape: tuple[int, ...] = ()
    dims: dict[str, int] | None = None  # the axis of every plate around it
    scale: float | None = None
    unconstrained: tuple[int, ...] = ()
    classes: int | None = None
    flat: bool = False


class Layout(NamedTuple):
    """Which site is what, as found when the model was made."""

    latent: tuple[tuple[str, tuple[int, ...]], ...]  # names and unconstrained shapes, in the order of theta
    observed: tuple[tuple[str, int], ...]  # names, and the axis of the log-density that counts the rows
    extra: tuple[str, ...]  # factors that do not count rows: part of the prior
    derived: tuple[str, ...]  # deterministic sites that depend on parameters only
    responses: tuple[str, ...]  # observed sites that are no factors
    flat: bool  # whether a parameter has a prior without an integral

    @property
    def response(self) -> str | None:
        """The observed site, if there is only one."""
        return self.responses[0] if len(self.responses) == 1 else None


def run_at(function: Callable, position: dict[str, Array], x, y):
    """The sites at unconstrained values, and the log-volume that each of them brings into the density."""
    from numpyro import handlers
    from numpyro.distributions import biject_to

    log_volumes = {}

    def constrain(site):
        name = site["name"]
        if site["type"] != "sample" or name not in position:
            return None
        # Asked of the site itself: a support may depend on other parameters.
        transform = biject_to(site["fn"].support)
        value = transform(position[name])
        log_volumes[name] = jnp.sum(transform.log_abs_det_jacobian(position[name], value))
        return value

    with ONE_AT_A_TIME, handlers.trace() as sites, handlers.substitute(substitute_fn=constrain):
        call(function, x, y)
    return sites, log_volumes


def log_density(site: Site):
    """log p of a site's value, under `handlers.scale` if there is one."""
    density = site["fn"].log_prob(site["value"])
    return density if site["scale"] is None else site["scale"] * density


def by_row(values, axis: int):
    """The sum over all axes but one."""
    others = tuple(other for other in range(-values.ndim, 0) if other != axis)
    return jnp.sum(values, axis=others)


def unmasked(distribution: "Distribution") -> "Distribution":
    """The distribution under `handlers.mask`."""
    from numpyro.distributions import MaskedDistribution

    while isinstance(distribution, MaskedDistribution):
        distribution = distribution.base_dist
    return distribution


def is_flat(distribution: "Distribution") -> bool:
    """Whether a prior has no integral."""
    from numpyro import distributions as dist

    while isinstance(distribution, (dist.MaskedDistribution, dist.ExpandedDistribution, dist.Independent)):
        distribution = distribution.base_dist
    return isinstance(distribution, dist.ImproperUniform)


def is_factor(site: Site) -> bool:
    """Whether a site is a `numpyro.factor`, whose value is empty."""
    return jnp.size(site["value"]) == 0


def classes_of(distribution: "Distribution") -> int | None:
    """2 for a Bernoulli, C for a categorical distribution, None for any other."""
    from numpyro import distributions as dist

    while isinstance(distribution, (dist.MaskedDistribution, dist.ExpandedDistribution)):
        distribution = distribution.base_dist
    if isinstance(distribution, (dist.BernoulliLogits, dist.BernoulliProbs)):
        return 2
    if isinstance(distribution, (dist.CategoricalLogits, dist.CategoricalProbs)):
        bounds: Any = distribution.support
        return bounds.upper_bound + 1
    return None


def survey(function: Callable, x, y) -> dict[str, Seen]:
    """Every site of the model for data of these shapes; nothing is computed."""
    from numpyro import handlers

    found: dict[str, Seen] = {}

    def trace(x, y):
        # What can be drawn is: discrete sites, which are refused by name. Nothing can be of a flat prior.
        anything = handlers.substitute(substitute_fn=zero_point)
        with handlers.trace() as sites, handlers.seed(rng_seed=0), anything:
            call(function, x, y)
        for name, site in sites.items():
            found[name] = look_at(name, site)

    run_user_code(lambda: jax.eval_shape(trace, x, y))
    return found


def look_at(name: str, site: Site) -> Seen:
    """One site of a trace, or a refusal of what no model of independent rows has."""
    from numpyro.distributions import biject_to

    kind = site["type"]
    if kind in ("param", "mutable"):
        raise InputError(
            f"Site {name!r} is a numpyro.{kind} without a prior; give it one with numpyro.sample, or fix it."
        )
    if kind == "plate":
        (size,) = site["value"].shape
        if size != site["args"][0]:
            raise InputError(f"Plate {name!r} takes a subsample; leave subsample_size out of the model.")
        return Seen("plate", (size,))
    if kind != "sample":
        return Seen(kind, jnp.shape(site["value"]))
    if site.get("_control_flow_done"):
        raise InputError(
            f"Site {name!r} is inside a scan, which joins rows; a coreset needs independent rows."
        )
    dims = {frame.name: frame.dim for frame in site["cond_indep_stack"]}
    if site["is_observed"]:
        shape = jax.eval_shape(site["fn"].log_prob, site["value"]).shape
        scale = site["scale"] if isinstance(site["scale"], (int, float)) else None
        return Seen(
            "factor" if is_factor(site) else "observed", shape, dims, scale, (), classes_of(site["fn"])
        )
    if site["fn"].support.is_discrete:
        raise InputError(
            f"Site {name!r} is a discrete unknown; sum it out, for instance with dist.MixtureSameFamily."
        )
    if site["scale"] is not None:
        raise InputError(f"Site {name!r} is a parameter under handlers.scale; scale observed sites only.")
    shape = jnp.shape(site["value"])
    unconstrained = biject_to(site["fn"].support).inverse_shape(shape)
    return Seen("latent", shape, dims, None, unconstrained, None, is_flat(site["fn"]))


def split(few: dict[str, Seen], more: dict[str, Seen], plate: str | None):
    """Observed sites with the axis that counts the rows, and the factors that have none."""
    if few.keys() != more.keys():
        name = min(few.keys() ^ more.keys())
        raise InputError(f"Site {name!r} is there for some numbers of rows only; leave it in or out.")
    if plate is not None and few.get(plate) == more.get(plate):
        plates = [name for name in few if few[name].kind == "plate" and few[name] != more[name]]
        known = ", ".join(map(repr, plates)) or "none"
        raise InputError(
            f"plate {plate!r} does not have one entry a row of the data; those that do: {known}."
        )
    observed, extra = [], []
    for name, seen in few.items():
        if seen.kind == "latent" and seen.shape != more[name].shape:
            raise InputError(
                f"Site {name!r} is a latent variable of every row, which a coreset of rows cannot keep; "
                "marginalise it out of the model."
            )
        if seen.kind not in ("observed", "factor"):
            continue
        axis = row_axis(name, seen, more[name], plate)
        if axis is not None:
            observed.append((name, axis))
        elif seen.kind == "factor":
            extra.append(name)
        else:
            raise InputError(
                f"The log-density of the observed site {name!r} is not one number a row; "
                "put it into a plate of len(x), and leave the rows out of to_event."
            )
    if not observed:
        raise InputError("The model observes nothing; give a numpyro.sample of it obs=y (or obs=x).")
    if all(seen.kind != "latent" for seen in few.values()):
        raise InputError("The model has no parameters; there must be a numpyro.sample without obs.")
    return tuple(observed), tuple(extra)


def row_axis(name: str, few: Seen, more: Seen, plate: str | None) -> int | None:
    """The axis of a site's log-density, counted from its end, along which the rows lie; None without one."""
    if few.scale != more.scale:
        raise InputError(
            f"Site {name!r} is scaled by a factor that changes with the number of rows; "
            "leave handlers.scale out, weights of the rows do its work."
        )
    axes = range(-len(few.shape), 0)
    changed = [
        axis for axis in axes if len(few.shape) == len(more.shape) and few.shape[axis] != more.shape[axis]
    ]
    if plate is not None and plate in (few.dims or {}):
        return (few.dims or {})[plate]
    if few.shape == more.shape:
        return None
    if plate is not None or len(changed) != 1 or few.shape[changed[0]] != FEW:
        remedy = "put it into that plate" if plate else "give its distribution and obs= the same shape"
        raise InputError(
            f"The log-density of site {name!r} has the shape {more.shape} for {MORE} rows, "
            f"from which the rows cannot be told; {remedy}."
        )
    return changed[0]


def reads_data(jaxpr: Jaxpr) -> list[bool]:
    """Whether each output but the last uses any of the inputs but the first."""
    count = len(jaxpr.outvars)
    kept = (dce_jaxpr(jaxpr, np.arange(count) == i)[1] for i in range(count - 1))
    return [any(used[1:]) for used in kept]


def run_user_code(thunk: Callable[[], Result]) -> Result:
    """What `thunk` returns; an error inside it is the model's, and reported in one line."""
    try:
        return thunk()
    except InputError:
        raise
    except jax.errors.ConcretizationTypeError as error:
        raise InputError(
            "The model asks for values of the data while it is traced; compute such numbers outside of it."
        ) from error
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"The model does not accept these data: {reason}") from error
