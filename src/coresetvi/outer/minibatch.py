"""The data's log-likelihood at a step's draws: whole, by minibatch, or by minibatch with a control variate.

With L the log-likelihood of all n rows, Q its quadratic expansion around an anchor, and L_B, Q_B the same of
a minibatch of B rows,

    L(theta)  =  E[ Q(theta) + (n / B) (L_B(theta) - Q_B(theta)) ]

Near the anchor only third-order terms are left to the minibatch, so its noise almost vanishes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..models.base import Model
from ..models.sums import Quadratic, expand, log_likelihood_rises

# Steps between two expansions of the whole data's log-likelihood, after the early steps that all have one.
SURROGATE_STEPS = 5
EARLY_STEPS = 30

Vector = Float[Array, " s"]


class DataTerm(NamedTuple):
    """Log-likelihood of the data at `reference`, its rise from there to every draw, and what to remember."""

    value: Float[Array, ""]
    rises: Vector
    memory: Quadratic | None


def empty_surrogate(model: Model, data: Dataset) -> Quadratic:
    """Room for an expansion; the first step fills it."""
    zero = jnp.zeros(model.dim, dtype=data.x.dtype)
    return Quadratic(zero, zero[0], zero, jnp.zeros((zero.size, zero.size), dtype=zero.dtype))


def data_term(
    model: Model, data: Dataset, batch: Dataset, surrogate: Quadratic | None, index: Array
) -> Callable[[Float[Array, "s d"], Float[Array, " d"]], DataTerm]:
    """(thetas, reference) -> `DataTerm` of all the data, estimated from `batch` (which may be all of it)."""

    def plain(thetas, reference):
        value, rises = log_likelihood_rises(model, thetas, reference, batch)
        factor = len(data) / len(batch)
        return DataTerm(factor * value, factor * rises, None)

    if surrogate is None:
        return plain

    def controlled(thetas, reference):
        # Made anew, at one pass over the data, at every early step, when the posterior still travels, and
        # then every few. By the step's number alone: a choice that differed between vmapped trials would
        # make every trial pay for it at every step.
        due = (index < EARLY_STEPS) | (index % SURROGATE_STEPS == 0)
        whole = jax.lax.cond(due, lambda _: expand(model, reference, data), lambda old: old, surrogate)
        return DataTerm(*controlled_rises(model, thetas, reference, batch, len(data), whole), whole)

    return controlled


def controlled_rises(
    model: Model,
    thetas: Float[Array, "s d"],
    reference: Float[Array, " d"],
    batch: Dataset,
    num_rows: int,
    whole: Quadratic,
) -> tuple[Float[Array, ""], Float[Array, " s"]]:
    """Unbiased estimates of `log_likelihood_rises` on all `num_rows` rows, from a batch and `whole`."""
    part, factor = expand(model, whole.anchor, batch), num_rows / len(batch)
    value, rises = log_likelihood_rises(model, thetas, reference, batch)
    drift, whole_drift = (one.rise(reference[None])[0] for one in (part, whole))
    # Of the value, too: the anchor may be five steps behind, and a long way.
    value = whole.value + whole_drift + factor * (value - part.value - drift)
    return value, whole.rise(thetas) - whole_drift + factor * (rises - part.rise(thetas) + drift)
