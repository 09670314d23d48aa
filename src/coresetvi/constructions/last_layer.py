"""Coresets for networks whose last layer has its posterior in closed form: no inner loop to unroll.

r is a point for the features times the exact Gaussian of the last layer given the coreset, so the bound on
the data's evidence is an explicit function of the coreset (`docs/last_layer.md`). Features come from a pool
of networks of different ages, each trained on the coreset alone for a while and then begun anew from a fresh
draw: the points must serve any network at any time, not the one that they were learned with.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import instance, positive, whole_number
from .._info import Info
from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from ..families.base import draw_noise
from ..families.gaussian_last_layer import (
    GaussianLastLayer,
    last_layer_posterior,
    last_layer_psi,
    shared_scale,
)
from ..inner.base import Leaves
from ..models.base import Model
from ..models.layers import LastLayerModel, with_ones
from ..models.sums import weighted_log_likelihood
from ..weights import Simplex, WeightMap
from .base import Construction, Problem
from .bbpsvi import CoresetProblem, check_leaves, names_of, starting_leaves
from .parametrisation import make_frame
from .plain import PlainInference, PlainState
from .schedule import fixed_schedule

# Weights are left alike: those that suit the last layer would starve the features of most points.
LEARNED = frozenset({"x", "y", "total"})


@register
class NetworkTraining(eqx.Module):
    """How a network learns its features from weighted points: Adam on its log-posterior, from a fresh draw.

    The points count as at least as many rows as the network has parameters. The prior of more parameters than
    that would have its mode at a network that has shrunk to nothing. At every step the points are moved by
    normal noise, `jitter` of their standard deviation in each column: a network that knows a few points by
    heart knows little else, and one that was trained on points while they were learned saw them move as well.
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

    def step(self, model: Model, points: Dataset, theta, opt_state, key: PRNGKeyArray, scale: Any = 1.0):
        """One step uphill, and the norm of the gradient."""
        factor = jnp.maximum(1.0, model.dim / points.total_weight)
        noise = jax.random.normal(key, points.x.shape, points.x.dtype)
        moved = points.x + self.jitter * jnp.std(points.x, axis=0) * noise
        points = eqx.tree_at(lambda data: data.x, points, moved)

        def loss(theta):
            return -factor * weighted_log_likelihood(model, theta, points) - model.log_prior(theta)

        gradient = jax.grad(loss)(theta)
        update, opt_state = optax.scale_by_adam().update(gradient, opt_state)
        return theta - self.learning_rate * scale * update, opt_state, jnp.linalg.norm(gradient)


class Pool(eqx.Module):
    """Networks, the state of their optimisers, and the steps that each has behind it."""

    thetas: Float[Array, "p d"]
    optimizers: Any
    ages: Array


class PoolState(eqx.Module):
    """What the next step needs."""

    learned: Leaves
    frozen: Leaves
    optimizer: Any
    pool: Pool


@register
class LastLayerPSVI(Construction):
    """Learned points by the closed form of a network's last layer.

    For models that show their last layer (`BayesianMLP`, `BayesianLeNet`). `learn` is any subset of
    {"x", "y", "weights", "total"}, `num_networks` the size of the pool, `training` how each network is
    trained and for how long, `training_steps` how many steps one of them takes between two steps of the
    coreset. A prior scale of "fan-in" suits it: a last layer with a wide prior needs as many points as it has
    inputs to be pinned down.

    >>> sorted(LastLayerPSVI(20).learn)
    ['total', 'x', 'y']
    """

    size: int
    learn: frozenset[str]
    weights: WeightMap
    init: str
    learning_rate: float
    batch_size: int
    num_samples: int
    num_networks: int
    training: NetworkTraining
    training_steps: int
    corrects: ClassVar[bool] = False
    takes_initial: ClassVar[bool] = True

    def __init__(
        self,
        size: int,
        *,
        learn: Iterable[str] | None = None,
        weights: WeightMap | None = None,
        init: str = "subset",
        learning_rate: float = 0.005,
        batch_size: int = 256,
        num_samples: int = 4,
        num_networks: int = 10,
        training: NetworkTraining | None = None,
        training_steps: int = 1,
    ):
        self.size = whole_number("size", size)
        self.learn = LEARNED if learn is None else names_of(learn)
        self.weights = Simplex() if weights is None else weights
        self.init = init
        self.learning_rate = learning_rate
        self.batch_size = whole_number("batch_size", batch_size)
        self.num_samples = whole_number("num_samples", num_samples)
        self.num_networks = whole_number("num_networks", num_networks)
        self.training = NetworkTraining() if training is None else training
        self.training_steps = whole_number("training_steps", training_steps)

    def __check_init__(self):
        positive(self, "learning_rate")
        instance("weights", self.weights, WeightMap, "a weight map such as weights.Simplex()")
        instance("training", self.training, NetworkTraining, "a NetworkTraining(num_steps=...)")
        check_leaves(self.learn, self.weights, self.init)

    @property
    def default_steps(self):
        return 20_000

    def on_points(self):
        return LastLayerVI(self.training)

    def setup(self, model, data):
        family = last_layer_family(model, data)
        frame = make_frame(data, self.weights, self.learn, model.num_classes)
        return self, CoresetProblem(model, data, family, frame)

    def start(self, problem: CoresetProblem, key, initial=None):
        points_key, pool_key = jax.random.split(key)
        learned, frozen, _ = starting_leaves(problem, self.size, self.init, self.learn, points_key, initial)
        thetas = jax.vmap(problem.model.start)(jax.random.split(pool_key, self.num_networks))
        # As if they had begun one after the other, so that they are renewed one after the other.
        ages = jnp.arange(self.num_networks) * self.training.num_steps // self.num_networks
        pool = Pool(thetas, jax.vmap(self.training.init)(thetas), ages)
        return PoolState(learned, frozen, optax.scale_by_adam().init(learned), pool)

    def step(self, problem: CoresetProblem, state, index, scale, key):
        frame = problem.frame
        batch_key, noise_key, fresh_key = jax.random.split(key, 3)
        number = index % self.num_networks
        theta = state.pool.thetas[number]
        batch = problem.data.batch(batch_key, min(self.batch_size, len(problem.data)))

        def loss_of(learned):
            coreset = frame.build({**state.frozen, **learned})
            return self.loss(problem, theta, coreset, batch, noise_key)

        loss, gradient = jax.value_and_grad(loss_of)(state.learned)
        updates: Any
        updates, optimizer = optax.scale_by_adam().update(gradient, state.optimizer)
        rate = self.learning_rate * scale
        learned = {name: leaf - rate * updates[name] for name, leaf in state.learned.items()}
        learned = frame.project(learned)
        coreset = frame.build({**state.frozen, **learned})
        pool, norm = self._train(problem.model, coreset, state.pool, number, fresh_key)
        info = record(loss, norm, self.training_steps)
        return PoolState(learned, state.frozen, optimizer, pool), info

    def loss(self, problem, theta, coreset: Dataset, batch: Dataset, key) -> Float[Array, ""]:
        """Negative bound on the data's evidence at the features of theta: -E_r[data] + KL(r || prior).

        Outputs of a row are normal under r, with moments in closed form, so their noise is drawn instead of
        the last layer's: unbiased for a sum over rows, and with a small fraction of the variance.
        """
        model: LastLayerModel = problem.model
        posterior = last_layer_posterior(model, theta, coreset)
        mean, deviation = posterior.outputs(with_ones(model.features(theta, batch.x)))
        noise = draw_noise(key, self.num_samples, mean.size).reshape(self.num_samples, *mean.shape)

        def fitted(noise):
            outputs = mean + deviation[:, None] * noise
            return batch.weights @ model.likelihood.log_prob(outputs, batch.y)

        data = len(problem.data) / len(batch) * jnp.mean(jax.vmap(fitted)(noise))
        return posterior.kl(shared_scale(model)) - data

    def _train(self, model, coreset, pool: Pool, number, key) -> tuple[Pool, Array]:
        """The pool after one of its networks has learned from the coreset, begun anew if it was old."""
        network = jax.tree.map(lambda leaf: leaf[number], (pool.thetas, pool.optimizers))
        old = pool.ages[number] >= self.training.num_steps

        start_key, train_key = jax.random.split(key)

        def begin():
            theta = model.start(start_key)
            return theta, self.training.init(theta)

        def one_step(network, step_key):
            theta, opt_state, norm = self.training.step(model, coreset, *network, key=step_key)
            return (theta, opt_state), norm

        network = jax.lax.cond(old, begin, lambda: network)
        network, norms = jax.lax.scan(one_step, network, jax.random.split(train_key, self.training_steps))
        put = lambda whole, one: whole.at[number].set(one)  # noqa: E731
        thetas, optimizers = jax.tree.map(put, (pool.thetas, pool.optimizers), network)
        age = jnp.where(old, 0, pool.ages[number]) + self.training_steps
        return Pool(thetas, optimizers, pool.ages.at[number].set(age)), norms[-1]

    def extract(self, problem: Any, state):
        coreset = problem.frame.build({**state.frozen, **state.learned})
        theta = state.pool.thetas[jnp.argmax(state.pool.ages)]
        return coreset, last_layer_psi(problem.model, theta, coreset)


@register
class LastLayerVI(PlainInference):
    """Inference on given points (`fit(..., initial=points)`), or on all data: features, then the last layer.

    A network is trained on the points from a fresh draw; its last layer gets its exact Gaussian posterior.
    """

    training: NetworkTraining = NetworkTraining()
    takes_initial: ClassVar[bool] = True

    @property
    def default_steps(self):
        return self.training.num_steps

    def schedule(self, num_steps):
        return fixed_schedule(num_steps or self.default_steps)

    def setup(self, model, data):
        return self, Problem(model, data, last_layer_family(model, data))

    def choose(self, problem, key):
        return None

    def start(self, problem, key, initial=None):
        theta = problem.model.start(key)
        return PlainState(initial, theta, self.training.init(theta))

    def step(self, problem, state, index, scale, key):
        model, points = problem.model, self.points(problem, state)
        theta, optimizer, norm = self.training.step(model, points, state.psi, state.optimizer, key, scale)
        loss = -weighted_log_likelihood(model, theta, points)
        return PlainState(state.points, theta, optimizer), record(loss, norm, 1)

    def extract(self, problem, state):
        points = self.points(problem, state)
        return points, last_layer_psi(problem.model, state.psi, points)


def record(loss, norm, steps: int) -> Info:
    """A step's record. Draws of an exact last layer weigh alike; how far the data are is unknown."""
    unknown = jnp.full_like(loss, jnp.nan)
    return Info(loss, unknown, jnp.ones_like(loss), norm, jnp.asarray(steps), jnp.asarray(True))


def last_layer_family(model: Model, data: Dataset) -> GaussianLastLayer:
    """The family of r, or a sentence about why the model's last layer has no closed form."""
    if not isinstance(model, LastLayerModel):
        raise InputError(
            f"{type(model).__name__} does not show its last layer; use BayesianMLP, BayesianLeNet or another "
            "LastLayerModel, or the construction BBPSVI."
        )
    if data.y is None:
        raise InputError("A last layer is learned from labels, but the data have none; pass Dataset(x, y).")
    model.likelihood.outputs_of(data.y[:1])
    inputs, outputs = model.last_shape
    return GaussianLastLayer(inputs + 1, outputs)
