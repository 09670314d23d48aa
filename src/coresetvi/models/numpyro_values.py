"""Values of a NumPyro model's parameters to begin with: any that they can take, and those in the middle.

Nothing is drawn. Flat priors (`dist.ImproperUniform`) cannot be, and to compile a sampler takes longer than
all the rest.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from numpyro.distributions import Distribution


def call(function: Callable, x, y) -> None:
    """Run the user's function as it wants to be called."""
    function(x) if y is None else function(x, y)


def no_validation():
    """A context in which distributions may have any parameters, as those of rows that stand for any do."""
    from numpyro.distributions.distribution import validation_enabled

    return validation_enabled(False)


def zero_point(site: dict):
    """Some value that a continuous parameter can take: 0 on its unconstrained scale."""
    from numpyro.distributions import biject_to

    if site["type"] != "sample" or site["is_observed"] or site["fn"].support.is_discrete:
        return None
    transform = biject_to(site["fn"].support)
    return transform(jnp.zeros(transform.inverse_shape(site_shape(site))))


def site_shape(site: dict) -> tuple[int, ...]:
    """The shape of a parameter's value."""
    return (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())


def central_values(function: Callable, names: list[str], x, y):
    """Medians of the prior on the unconstrained scale, one by one; means or zeros where there are none."""
    from numpyro import handlers
    from numpyro.distributions import biject_to

    unconstrained = {}

    def center(site):
        if site["type"] != "sample" or site["name"] not in names:
            return None
        transform = biject_to(site["fn"].support)
        shape = site_shape(site)
        zero = jnp.zeros(transform.inverse_shape(shape))
        try:
            point = transform.inv(jnp.broadcast_to(middle(site["fn"]), shape))
        except (NotImplementedError, ImportError):
            point = zero
        # Equal components of a mixture would stay equal for ever; a hundredth tells them apart.
        nudge = 0.01 * jnp.sin(1.0 + jnp.arange(zero.size)).reshape(zero.shape)
        unconstrained[site["name"]] = jnp.where(jnp.isfinite(point), point, zero) + nudge
        return transform(unconstrained[site["name"]])

    @jax.jit
    def find():
        with no_validation(), handlers.substitute(substitute_fn=center):
            call(function, x, y)
        return jnp.concatenate([jnp.ravel(unconstrained[name]) for name in names])

    return find()


def middle(distribution: "Distribution"):
    """The median of a distribution, or its mean if the median has no formula."""
    from numpyro import distributions as dist

    if isinstance(distribution, (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)):
        return jnp.broadcast_to(middle(distribution.base_dist), distribution.shape())
    if isinstance(distribution, dist.TransformedDistribution):
        value = middle(distribution.base_dist)
        for transform in distribution.transforms:
            value = transform(value)
        return value
    try:
        return distribution.icdf(0.5)
    except (NotImplementedError, ImportError):
        return distribution.mean
