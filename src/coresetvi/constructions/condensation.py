"""Dataset condensation: points whose gradients look like the data's (Zhao, Mopuri & Bilen, 2021).

A step moves the points down the gradient of the distance in `gradient_matching.py`, at the network at hand,
and then trains that network on the points for a while. Every so often a new network is drawn, for the points
have to suit any of them.
"""

from collections.abc import Iterable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from .._checks import instance, positive, whole_number
from .._info import Info
from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from ..families.base import Family, Psi
from ..families.gaussian import Point
from ..families.initial import start_family
from ..inner.base import Inner, InnerInfo, InnerProblem, Leaves
from ..inner.implicit import Joint
from ..inner.unrolled import Unrolled
from ..models.base import Model, weighted_log_likelihood
from ..weights import Fixed
from .base import Construction, Plan
from .gradient_matching import ClassRows, class_rows, class_slots, matching_distance, real_gradients
from .moving_columns import columns_that_stay, leaves_to_learn
from .parametrisation import Parametrisation, parametrise
from .starts import check_leaves, names_of, starting_leaves

# How often the inner problem is solved, one solution after another, for the network that a fit hands back.
FINAL_SOLVES = 30


class CondensationState(eqx.Module):
    """What the next step needs; `slots[c]` are the numbers of the points of class c, then `NO_POINT`."""

    learned: Leaves
    frozen: Leaves
    psi: Psi
    optimizer: optax.OptState
    slots: Array


@register
class Condensation(Construction):
    """Points of every class that pull a network the way the data of that class do. For models with classes.

    `learn` is {"x"} or {"x", "y"}, which makes labels soft; all points weigh the same. `inner` trains the
    network, a single one (`families.Point`), and says when to draw another; `rows_per_class` is how many rows
    of each class a step looks at. The loss is the distance, between 0 and 2 for each group of each class.

    >>> Condensation(100, learn={"x", "y"}).inner.restart_every
    10
    """

    size: int
    learn: frozenset[str]
    inner: Inner
    rows_per_class: int
    learning_rate: float
    init: str
    corrects: ClassVar[bool] = False
    takes_initial: ClassVar[bool] = True

    def __init__(
        self,
        size: int,
        *,
        learn: Iterable[str] = frozenset({"x"}),
        inner: Inner | None = None,
        rows_per_class: int = 128,
        learning_rate: float = 0.03,
        init: str = "subset",
    ):
        self.size = whole_number("size", size)
        self.learn = names_of(learn)
        trains = Unrolled(num_steps=10, learning_rate=0.1, num_samples=1, restart_every=10)
        self.inner = trains if inner is None else inner
        self.rows_per_class = whole_number("rows_per_class", rows_per_class)
        self.learning_rate = learning_rate
        self.init = init

    def __check_init__(self):
        positive(self, "learning_rate")
        instance("inner", self.inner, Inner, "an inner problem such as inner.Unrolled()")
        if isinstance(self.inner, Joint):
            raise InputError("Joint() trains no network, which Condensation needs; use inner=Unrolled().")
        check_leaves(frozenset(), Fixed(), self.init)
        if not self.learn or self.learn - {"x", "y"}:
            listed = ", ".join(sorted(self.learn)) or "nothing"
            raise InputError(
                f"Condensation learns x, y or both, not {listed}; its points all weigh the same."
            )

    def settle(self, model: Model, data: Dataset) -> "CondensationPlan":
        if model.num_classes is None or data.y is None:
            raise InputError(
                f"Condensation compares gradients class by class, but {type(model).__name__} has no classes; "
                "use a classifier, or BBPSVI."
            )
        still = columns_that_stay(model, data)
        learn = leaves_to_learn(self.learn, self.learn, still, model, data)
        parametrisation = parametrise(data, Fixed(), learn, model.num_classes, still)
        labels = np.where(np.asarray(data.weights) > 0, np.asarray(data.y), -1)
        classes = tuple(int(label) for label in np.unique(labels) if label >= 0)
        rows = class_rows(labels, classes, self.rows_per_class)
        return CondensationPlan(self, model, data, Point(), parametrisation, classes, rows)


class CondensationPlan(Plan):
    """Steps on the points, and between them steps of the network; `classes` are those that the data have."""

    construction: Condensation
    model: Model
    data: Dataset
    family: Family
    parametrisation: Parametrisation
    classes: tuple[int, ...]
    rows: ClassRows

    @property
    def default_steps(self):
        return 2000

    def start(self, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        asked, parametrisation = self.construction, self.parametrisation
        learned, frozen, _ = starting_leaves(
            parametrisation, self.model, self.data, asked.size, asked.init, asked.learn, points_key, initial
        )
        leaves = {**frozen, **learned}
        # A point stays with the class it starts in, also when its label becomes a soft one.
        labels = np.asarray(leaves["y"])
        labels = labels.argmax(-1) if labels.ndim == 2 else labels
        return CondensationState(
            learned=learned,
            frozen=frozen,
            psi=start_family(self.family, self.model, parametrisation.build(leaves), theta_key),
            optimizer=adam().init(learned),
            slots=class_slots(labels, self.classes),
        )

    def step(self, state: CondensationState, index, scale, key):
        rows_key, train_key, start_key = jax.random.split(key, 3)
        inner, parametrisation, model = self.construction.inner, self.parametrisation, self.model

        def fresh(key):
            return start_family(
                self.family, model, parametrisation.build({**state.frozen, **state.learned}), key
            )

        psi = inner.begin(state.psi, fresh, index, start_key)
        theta = psi["mean"]
        real = real_gradients(model, theta, self.data, self.rows, rows_key)

        def loss_of(learned):
            points = parametrisation.build({**state.frozen, **learned})
            return matching_distance(model, theta, real, points, state.slots)

        loss, gradient = jax.value_and_grad(loss_of)(state.learned)
        updates, optimizer = adam().update(gradient, state.optimizer)
        learned = jax.tree.map(
            lambda leaf, update: leaf - self.construction.learning_rate * scale * update,
            state.learned,
            updates,
        )
        points = parametrisation.build({**state.frozen, **learned})
        psi, trained = train(inner, self, points, psi, train_key)
        state = CondensationState(learned, state.frozen, psi, optimizer, state.slots)
        # One network has no posterior that could differ from the data's: the KL is unknown.
        number = jnp.ones_like(loss)
        return state, Info(
            loss=loss,
            kl=jnp.nan * number,
            ess=number,
            inner_gradient_norm=trained.gradient_norm,
            inner_steps=trained.steps,
            accepted=trained.accepted,
        )

    def extract(self, state: CondensationState):
        points = self.parametrisation.build({**state.frozen, **state.learned})
        return points, train_long(self.construction.inner, self, points, state.psi)


def adam() -> optax.GradientTransformation:
    """How the points move, in standardised units."""
    return optax.scale_by_adam(b1=0.9, b2=0.99)


def train(
    inner: Inner, plan: CondensationPlan, points: Dataset, psi: Psi, key: PRNGKeyArray
) -> tuple[Psi, InnerInfo]:
    """The network `psi` after one solve of the inner problem on the points."""
    model = plan.model

    def loss(psi, learned, noise):
        return -(weighted_log_likelihood(model, psi["mean"], points) + model.log_prior(psi["mean"]))

    return inner.find(InnerProblem(loss, plan.family, model.dim), {}, psi, key)


@eqx.filter_jit
def train_long(inner: Inner, plan: CondensationPlan, points: Dataset, psi: Psi) -> Psi:
    """A network as it comes out of a long training on the points; the last step's may just have begun."""

    def again(psi, key):
        return train(inner, plan, points, psi, key)[0], None

    # A point has no noise to draw, so this is not random.
    return jax.lax.scan(again, psi, jax.random.split(jax.random.key(0), FINAL_SOLVES))[0]
