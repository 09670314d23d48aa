"""Coresets for networks whose last layer has its posterior in closed form: no inner loop to unroll.

r is a point for the features times the exact Gaussian of the last layer given the coreset, so the bound on
the data's evidence is an explicit function of the coreset (`docs/last_layer.md`). Features come from a pool
of networks of different ages, each trained on the coreset alone (`network_training.py`).
"""

from collections.abc import Iterable
from typing import ClassVar

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
from ..models.base import Model, weighted_log_likelihood
from ..models.layers import LastLayerModel, with_ones
from ..weights import Simplex, WeightMap
from .base import Construction, Plan
from .moving_columns import columns_that_stay, leaves_to_learn
from .network_training import NetworkTraining, Pool
from .parametrisation import Parametrisation, parametrise
from .plain import PlainInference, PlainPlan, PlainState
from .schedule import fixed_schedule
from .starts import check_leaves, names_of, starting_leaves

# Weights are left alike: those that suit the last layer would starve the features of most points.
LEARNED = frozenset({"x", "y", "total"})


class PoolState(eqx.Module):
    """What the next step needs."""

    learned: Leaves
    frozen: Leaves
    optimizer: optax.OptState
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

    def on_points(self):
        return LastLayerVI(self.training)

    def settle(self, model: Model, data: Dataset) -> "LastLayerPlan":
        network, family = last_layer_of(model, data)
        still = columns_that_stay(model, data)
        learn = leaves_to_learn(self.learn, self.learn, still, model, data)
        parametrisation = parametrise(data, self.weights, learn, model.num_classes, still)
        return LastLayerPlan(self, network, data, family, parametrisation)


class LastLayerPlan(Plan):
    """Steps on the points by the bound in closed form, and between them steps of one network of the pool."""

    construction: LastLayerPSVI
    model: LastLayerModel
    data: Dataset
    family: GaussianLastLayer
    parametrisation: Parametrisation

    @property
    def default_steps(self):
        return 20_000

    def start(self, key, initial=None):
        asked = self.construction
        points_key, pool_key = jax.random.split(key)
        learned, frozen, _ = starting_leaves(
            self.parametrisation,
            self.model,
            self.data,
            asked.size,
            asked.init,
            asked.learn,
            points_key,
            initial,
        )
        pool = Pool.begin(self.model, asked.training, asked.num_networks, pool_key)
        return PoolState(learned, frozen, optax.scale_by_adam().init(learned), pool)

    def step(self, state: PoolState, index, scale, key):
        asked, parametrisation = self.construction, self.parametrisation
        batch_key, noise_key, fresh_key = jax.random.split(key, 3)
        number = index % asked.num_networks
        theta = state.pool.thetas[number]
        batch = self.data.batch(batch_key, min(asked.batch_size, len(self.data)))

        def loss_of(learned):
            coreset = parametrisation.build({**state.frozen, **learned})
            return self.loss(theta, coreset, batch, noise_key)

        loss, gradient = jax.value_and_grad(loss_of)(state.learned)
        updates, optimizer = optax.scale_by_adam().update(gradient, state.optimizer)
        rate = asked.learning_rate * scale
        learned = jax.tree.map(lambda leaf, update: leaf - rate * update, state.learned, updates)
        learned = parametrisation.project(learned)
        coreset = parametrisation.build({**state.frozen, **learned})
        steps = asked.training_steps
        pool, norm = state.pool.train(self.model, asked.training, coreset, number, steps, fresh_key)
        return PoolState(learned, state.frozen, optimizer, pool), last_layer_info(loss, norm, steps)

    def loss(
        self, theta: Float[Array, " d"], coreset: Dataset, batch: Dataset, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Negative bound on the data's evidence at the features of theta: -E_r[data] + KL(r || prior).

        Outputs of a row are normal under r, with moments in closed form, so their noise is drawn instead of
        the last layer's: unbiased for a sum over rows, and with a small fraction of the variance.
        """
        model, draws = self.model, self.construction.num_samples
        posterior = last_layer_posterior(model, theta, coreset)
        mean, deviation = posterior.outputs(with_ones(model.features(theta, batch.x)))
        noise = draw_noise(key, draws, mean.size).reshape(draws, *mean.shape)

        def fitted(noise):
            outputs = mean + deviation[:, None] * noise
            return batch.weights @ model.likelihood.log_prob(outputs, batch.y)

        data = len(self.data) / len(batch) * jnp.mean(jax.vmap(fitted)(noise))
        return posterior.kl(shared_scale(model)) - data

    def extract(self, state: PoolState):
        coreset = self.parametrisation.build({**state.frozen, **state.learned})
        theta = state.pool.thetas[jnp.argmax(state.pool.ages)]
        return coreset, last_layer_psi(self.model, theta, coreset)


@register
class LastLayerVI(PlainInference):
    """Inference on given points (`fit(..., initial=points)`), or on all data: features, then the last layer.

    A network is trained on the points from a fresh draw; its last layer gets its exact Gaussian posterior.

    >>> LastLayerVI(NetworkTraining(num_steps=500)).training.num_steps
    500
    """

    training: NetworkTraining = NetworkTraining()
    takes_initial: ClassVar[bool] = True

    def settle(self, model: Model, data: Dataset) -> "TrainedNetworkPlan":
        network, family = last_layer_of(model, data)
        return TrainedNetworkPlan(self, network, data, family)

    def choose(self, plan, key):
        return None


class TrainedNetworkPlan(PlainPlan):
    """Steps of one network on the points."""

    construction: LastLayerVI
    model: LastLayerModel
    data: Dataset
    family: GaussianLastLayer

    @property
    def default_steps(self):
        return self.construction.training.num_steps

    def schedule(self, num_steps):
        return fixed_schedule(num_steps or self.default_steps)

    def start(self, key, initial=None):
        theta = self.model.start(key)
        return PlainState(initial, {"theta": theta}, self.construction.training.init(theta))

    def step(self, state: PlainState, index, scale, key):
        points, training = self.points(state), self.construction.training
        theta = state.psi["theta"]
        theta, optimizer, norm = training.step(self.model, points, theta, state.optimizer, key, scale)
        loss = -weighted_log_likelihood(self.model, theta, points)
        return PlainState(state.points, {"theta": theta}, optimizer), last_layer_info(loss, norm, 1)

    def extract(self, state: PlainState):
        points = self.points(state)
        return points, last_layer_psi(self.model, state.psi["theta"], points)


def last_layer_info(loss, norm, steps: int) -> Info:
    """A step's record. Draws of an exact last layer weigh alike; how far the data are is unknown."""
    unknown = jnp.full_like(loss, jnp.nan)
    return Info(loss, unknown, jnp.ones_like(loss), norm, jnp.asarray(steps), jnp.asarray(True))


def last_layer_of(model: Model, data: Dataset) -> tuple[LastLayerModel, GaussianLastLayer]:
    """The network and the family of r, or a sentence about why its last layer has no closed form."""
    if not isinstance(model, LastLayerModel):
        raise InputError(
            f"{type(model).__name__} does not show its last layer; use BayesianMLP, BayesianLeNet or another "
            "LastLayerModel, or the construction BBPSVI."
        )
    if data.y is None:
        raise InputError("A last layer is learned from labels, but the data have none; pass Dataset(x, y).")
    model.likelihood.outputs_of(data.y[:1])
    inputs, outputs = model.last_shape
    return model, GaussianLastLayer(inputs + 1, outputs)
