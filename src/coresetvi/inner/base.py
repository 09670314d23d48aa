"""The inner problem: how psi* is found on the coreset, and how gradients pass through it (§3.4).

    psi*(phi) = argmin_psi  -mean_s [ core_s + log p(theta_s) - log r(theta_s; psi) ]      (Eq. 13)

The mean over draws matters: a sum would multiply the likelihood by S. `solve` returns psi* in a form whose
derivative with respect to the learned leaves is the part's own choice of adjoint: unrolled, truncated,
implicit, or none.
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..families.base import Family, Psi, draw_noise

if TYPE_CHECKING:
    from ..models.base import Model
    from ..models.log_joint import LogJoint

# What an optimiser moves, or leaves alone, by name: see `constructions/parametrisation.py`.
Leaves = dict[str, Array]


class InnerProblem(NamedTuple):
    """`loss(psi, learned, noise)`: the negative ELBO of r on the coreset, in nats.

    >>> from coresetvi.families import MeanField
    >>> problem = InnerProblem(lambda psi, learned, noise: psi["mean"] @ psi["mean"], MeanField(), dim=2)
    >>> problem.noise(jax.random.key(0), num_samples=8).shape
    (8, 2)
    """

    loss: Callable[[Psi, Leaves, Float[Array, "s k"]], Float[Array, ""]]
    family: Family
    dim: int
    # log_joint(learned, reference): the log-density of the coreset posterior, measured from the reference.
    log_joint: "Callable[[Leaves, Float[Array, ' d']], LogJoint] | None" = None

    def joint(self, learned: Leaves, reference: Float[Array, " d"]) -> "LogJoint":
        """The coreset posterior itself, for those that draw from it."""
        if self.log_joint is None:
            raise TypeError("this inner problem has no log-density to draw from")
        return self.log_joint(learned, reference)

    def noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, "s k"]:
        return draw_noise(key, num_samples, self.family.noise_dim(self.dim))


class InnerInfo(NamedTuple):
    """What a solve has to say: `accepted` is False when its hypergradient must not be used.

    `more` holds what only one part has to tell, by the names in its `records`.

    >>> InnerInfo._fields
    ('gradient_norm', 'steps', 'accepted', 'more')
    """

    gradient_norm: Float[Array, ""]
    steps: Array
    accepted: Array
    more: dict[str, Array] = {}  # noqa: RUF012 - a record is never changed


def solved(like: Float[Array, "..."], records: dict[str, type]) -> InnerInfo:
    """The report of a solve that had nothing to do, in the types of a real one."""
    zero = jnp.zeros((), like.dtype)
    return InnerInfo(zero, jnp.zeros((), int), jnp.asarray(True), dict.fromkeys(records, zero))


class Inner(eqx.Module):
    """A way to solve the inner problem and to differentiate the solution.

    >>> import coresetvi as cvi
    >>> all(issubclass(part, Inner) for part in (cvi.inner.Unrolled, cvi.inner.Implicit, cvi.inner.Laplace))
    True
    """

    passes_gradient: eqx.AbstractClassVar[bool]
    # Whether `draws` stand for draws of the coreset posterior itself, which need no importance weights.
    exact_draws: ClassVar[bool] = False
    # Whether every solve makes draws that owe nothing to the last ones: then there is nothing to wait for.
    draws_anew: ClassVar[bool] = False
    # Names and types of what its solves have to tell besides.
    records: ClassVar[dict[str, type]] = {}

    @property
    def num_kept(self) -> int:
        """How many draws psi itself holds (`families.Sampled`); 0 if none."""
        return 0

    @property
    def evaluations(self) -> int:
        """How often a fit takes the log-likelihood of the coreset and its slope at some theta, about."""
        return 0

    @property
    def keeps_draws(self) -> bool:
        """Whether psi holds draws, which are then the posterior of a fit."""
        return self.num_kept > 0

    @abc.abstractmethod
    def solve(
        self, problem: InnerProblem, learned: Leaves, psi: Psi, key: PRNGKeyArray
    ) -> tuple[Psi, InnerInfo]:
        """psi* from the warm start `psi`."""

    def prepare(self, family: Family, psi: Psi, model: "Model", key: PRNGKeyArray) -> Psi:
        """psi as the first solve wants it."""
        return psi

    def find(
        self, problem: InnerProblem, learned: Leaves, psi: Psi, key: PRNGKeyArray
    ) -> tuple[Psi, InnerInfo]:
        """psi* as a number: no derivative, and none of the work for one."""
        return jax.lax.stop_gradient(self.solve(problem, jax.lax.stop_gradient(learned), psi, key))

    def begin(self, psi: Psi, fresh: Callable[[PRNGKeyArray], Psi], index: Array, key: PRNGKeyArray) -> Psi:
        """Where the solve of outer step `index` starts: warm, from the last solution.

        `fresh(key)` is a new start drawn at random, for those that begin anew.
        """
        return psi

    def draws(
        self, problem: InnerProblem, learned: Leaves, psi: Psi, key: PRNGKeyArray, num_samples: int
    ) -> tuple[Float[Array, "s d"], Float[Array, " s"]]:
        """Draws for the outer objective, and their log-density under r."""
        return problem.family.draw(psi, key, num_samples, problem.dim)
