"""Networks that learn their features from weighted points: how one is trained, and a pool of them.

The networks of a pool have different ages. Each is trained on the coreset alone for a while and then begun
anew from a fresh draw: the points must serve any network at any time, not the one they were learned with.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import positive
from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from ..models.base import Model, weighted_log_likelihood


@register
class NetworkTraining(eqx.Module):
    """How a network learns its features from weighted points: Adam on its log-posterior, from a fresh draw.

    The points count as at least as many rows as the network has parameters. The prior of more parameters than
    that would have its mode at a network that has shrunk to nothing. At every step the points are moved by
    normal noise, `jitter` of their standard deviation in each column: a network that knows a few points by
    heart knows little else, and one that was trained on points while they were learned saw them move as well.

    >>> NetworkTraining(num_steps=500).jitter
    0.3
    """

    num_steps: int = 1000
    learning_rate: float = 0.003
    jitter: float = 0.3

    def __check_init__(self):
        positive(self, "num_steps", "learning_rate")
        if not self.jitter >= 0:
            raise InputError(f"jitter must be zero or more, not {self.jitter}.")

    def init(self, theta: Float[Array, " d"]) -> optax.OptState:
        return optax.scale_by_adam().init(theta)

    def step(
        self, model: Model, points: Dataset, theta, opt_state, key: PRNGKeyArray, scale: float | Array = 1.0
    ):
        """One step uphill, and the norm of the gradient."""
        factor = jnp.maximum(1.0, model.dim / points.total_weight)
        noise = jax.random.normal(key, points.x.shape, points.x.dtype)
        moved = points.x + self.jitter * jnp.std(points.x, axis=0) * noise
        points = eqx.tree_at(lambda data: data.x, points, moved)

        def loss(theta):
            return -factor * weighted_log_likelihood(model, theta, points) - model.log_prior(theta)

        gradient = jax.grad(loss)(theta)
        update, opt_state = optax.scale_by_adam().update(gradient, opt_state)
        return theta - self.learning_rate * scale * jnp.asarray(update), opt_state, jnp.linalg.norm(gradient)


class Pool(eqx.Module):
    """Networks, the state of their optimisers, and the steps that each has behind it."""

    thetas: Float[Array, "p d"]
    optimizers: optax.OptState
    ages: Array

    @classmethod
    def begin(cls, model: Model, training: NetworkTraining, size: int, key: PRNGKeyArray) -> "Pool":
        """`size` fresh networks, as if they had begun one after the other, so that they are renewed so."""
        thetas = jax.vmap(model.start)(jax.random.split(key, size))
        ages = jnp.arange(size) * training.num_steps // size
        return cls(thetas, jax.vmap(training.init)(thetas), ages)

    def train(
        self,
        model: Model,
        training: NetworkTraining,
        points: Dataset,
        number: Array,
        num_steps: int,
        key: PRNGKeyArray,
    ) -> tuple["Pool", Array]:
        """The pool after one of its networks has learned from the points, begun anew if it was old."""
        network = jax.tree.map(lambda leaf: leaf[number], (self.thetas, self.optimizers))
        old = self.ages[number] >= training.num_steps
        start_key, train_key = jax.random.split(key)

        def begin():
            theta = model.start(start_key)
            return theta, training.init(theta)

        def one_step(network, step_key):
            theta, opt_state, norm = training.step(model, points, *network, key=step_key)
            return (theta, opt_state), norm

        network = jax.lax.cond(old, begin, lambda: network)
        network, norms = jax.lax.scan(one_step, network, jax.random.split(train_key, num_steps))
        put = lambda whole, one: whole.at[number].set(one)  # noqa: E731
        thetas, optimizers = jax.tree.map(put, (self.thetas, self.optimizers), network)
        age = jnp.where(old, 0, self.ages[number]) + num_steps
        return Pool(thetas, optimizers, self.ages.at[number].set(age)), norms[-1]
