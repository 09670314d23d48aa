"""BB PSVI: coresets learned by gradients of a variational bound. One class for every row of the tables.

Which leaves move (`learn`), how weights are made (`weights`), what is minimised (`objective`), how the inner
problem is solved and differentiated (`inner`) and how steps are taken (`optimizer`) are parts; leaving one
out lets the construction choose it from the sizes of model and data alone.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._checks import instance, short, whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from ..families.base import Family, Psi
from ..families.gaussian import FullRank, MeanField
from ..families.initial import start_family
from ..inner import Alternating, Implicit, Inner, InnerProblem, Joint
from ..inner.base import Leaves
from ..models.base import Model
from ..models.sums import Quadratic, is_heavy, log_likelihood_rises, over_draws, weighted_log_likelihood
from ..objectives import ImportanceElbo, Objective
from ..outer.adam import Adam
from ..outer.base import Optimizer, OuterStep, mean_draw
from ..outer.minibatch import data_term, empty_surrogate
from ..outer.natural import NaturalGradient
from ..weights import Simplex, WeightMap
from .base import Construction, Problem
from .defaults import (
    HEAVY_DRAWS,
    HEAVY_INNER,
    HEAVY_PACE,
    HEAVY_RATE,
    HEAVY_WIDTH,
    LIGHT_INNER,
    MIN_EFFECTIVE_DRAWS,
    SMALL_MODEL,
    choose_batch,
)
from .parametrisation import LEARNABLE, Frame, given_leaves, make_frame
from .starts import STARTS, start_leaves


class CoresetProblem(Problem):
    """Constants of a gradient-based fit."""

    frame: Frame


class CoresetState(eqx.Module):
    """What the next step needs. `frozen` leaves never change but differ between trials."""

    learned: Leaves
    frozen: Leaves
    psi: Psi
    optimizer: object
    indices: Array | None
    surrogate: Quadratic | None


@register
class BBPSVI(Construction):
    """Black-box pseudocoreset variational inference (§3 of the paper).

    `size` points; everything else has a default that suits the problem. `learn` is any subset of
    {"x", "y", "weights", "total"}; `init` is "subset" (random rows, every class represented), "spread" (rows
    near the centres of clusters) or "noise" (around the data mean, labels split evenly).

    >>> BBPSVI(size=20, learn={"weights", "x"}).learn == {"x", "weights"}
    True
    """

    size: int
    family: Family | None
    learn: frozenset[str] | None
    weights: WeightMap
    objective: Objective
    inner: Inner | None
    optimizer: Optimizer | None
    init: str
    batch_size: int | None
    corrects: ClassVar[bool] = True
    takes_initial: ClassVar[bool] = True

    def __init__(
        self,
        size: int,
        *,
        family: Family | None = None,
        learn: Iterable[str] | None = None,
        weights: WeightMap | None = None,
        objective: Objective | None = None,
        inner: Inner | None = None,
        optimizer: Optimizer | None = None,
        init: str = "subset",
        batch_size: int | None = None,
    ):
        self.size = whole_number("size", size)
        self.family = family
        self.learn = None if learn is None else names_of(learn)
        self.weights = Simplex() if weights is None else weights
        self.objective = ImportanceElbo() if objective is None else objective
        self.inner = inner
        self.optimizer = optimizer
        self.init = init
        self.batch_size = None if batch_size is None else whole_number("batch_size", batch_size)

    def __check_init__(self):
        instance("weights", self.weights, WeightMap, "a weight map such as weights.Simplex()")
        instance("objective", self.objective, Objective, "an objective such as objectives.ImportanceElbo()")
        if self.family is not None:
            instance("family", self.family, Family, "a family such as families.MeanField()")
        if self.inner is not None:
            instance("inner", self.inner, Inner, "an inner problem such as inner.Unrolled()")
        if self.optimizer is not None:
            instance("optimizer", self.optimizer, Optimizer, "an optimiser such as outer.Adam()")
        check_leaves(self.learn or frozenset(), self.weights, self.init)

    @property
    def default_steps(self):
        return (self.optimizer or Adam()).default_steps

    def setup(self, model, data):
        learn = self.learn
        if learn is None:
            learn = frozenset({"x", "weights", "total"} if self.weights.learnable else {"x"})
        if "y" in learn and data.y is None:
            raise InputError('learn has "y", but the data have no labels.')
        frame = make_frame(data, self.weights, learn, model.num_classes)
        settled = self._settle(model, data, learn)
        assert settled.family is not None
        return settled, CoresetProblem(model, data, settled.family, frame)

    def _settle(self, model: Model, data: Dataset, learn: frozenset[str]) -> "BBPSVI":
        """Every open choice made, from sizes and from the parts that were given."""
        # A point mass has no draws to weigh: the coreset reaches it through the inner problem alone.
        point = self.family is not None and not self.family.has_density
        direct = self.objective.sees_core and not point
        inner, optimizer, heavy = self.inner, self.optimizer, is_heavy(model, data)
        if optimizer is None:
            small = direct and inner is None and model.dim <= SMALL_MODEL
            stands_still = inner is not None and not inner.passes_gradient
            by_steps = Adam(HEAVY_RATE) if heavy else Adam()
            optimizer = NaturalGradient() if small or stands_still else by_steps
        natural = isinstance(optimizer, NaturalGradient)
        if inner is None:
            inner = Alternating(Implicit()) if natural else HEAVY_INNER if heavy else LIGHT_INNER
        flows = inner.passes_gradient and optimizer.uses_inner_gradient
        if not direct and not flows:
            raise InputError(
                f"{type(self.family if point else self.objective).__name__} reaches the coreset only through "
                "the inner problem; use it with inner=Unrolled(), Truncated() or Implicit() and "
                "optimizer=Adam()."
            )
        if isinstance(inner, Joint) and not optimizer.uses_inner_gradient:
            raise InputError("Joint() needs optimizer=Adam(), which moves r together with the coreset.")
        # A full covariance learned from few noisy draws, as Adam's are, is worse than a diagonal one.
        small = model.dim <= SMALL_MODEL and natural
        diagonal = MeanField(HEAVY_PACE, HEAVY_WIDTH) if heavy else MeanField()
        objective = self.objective
        if objective.num_samples is None:
            draws = max(128, 4 * model.dim) if natural else HEAVY_DRAWS if heavy else 10
            objective = eqx.tree_at(
                lambda o: o.num_samples, objective, draws, is_leaf=lambda leaf: leaf is None
            )
        return BBPSVI(
            self.size,
            family=self.family or (FullRank() if small else diagonal),
            learn=learn,
            weights=self.weights,
            objective=objective,
            inner=inner,
            optimizer=optimizer,
            init=self.init,
            batch_size=choose_batch(self.batch_size, data, objective, optimizer, heavy),
        )

    def reconsider(self, settled: "BBPSVI", info):
        """Whether r covers the coreset posterior is the natural gradient's premise: measured, not guessed.

        The inner problem must have converged and the importance weights must leave more than a few draws
        alive. If not, the information can reach the coreset only through psi*, by nested gradients.
        """
        if self.optimizer is not None or not isinstance(settled.optimizer, NaturalGradient):
            return None
        draws = settled.objective.num_samples or 1
        if np.all(info.accepted) and np.all(info.ess * draws > MIN_EFFECTIVE_DRAWS):
            return None
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return BBPSVI(**{**fields, "optimizer": Adam()})

    def start(self, problem: CoresetProblem, key, initial=None):
        assert self.learn is not None and self.optimizer is not None
        points_key, theta_key = jax.random.split(key)
        model, data, frame = problem.model, problem.data, problem.frame
        learned, frozen, indices = starting_leaves(
            problem, self.size, self.init, self.learn, points_key, initial
        )
        psi = start_family(problem.family, model, frame.build({**frozen, **learned}), theta_key)
        return CoresetState(
            learned=learned,
            frozen=frozen,
            psi=psi,
            optimizer=self.optimizer.init(learned, problem.family, psi),
            indices=indices,
            surrogate=empty_surrogate(model, data) if self._wants_surrogate(model, data) else None,
        )

    def _wants_surrogate(self, model: Model, data: Dataset) -> bool:
        assert self.optimizer is not None and self.batch_size is not None
        minibatches = self.batch_size < len(data)
        return minibatches and self.optimizer.needs_exact_data and model.dim <= SMALL_MODEL

    def step(self, problem: CoresetProblem, state, index, scale, key):
        assert self.inner is not None and self.optimizer is not None
        *keys, start_key = jax.random.split(key, 4)
        outer = self._outer_step(problem, state, index, self.inner, keys)

        def fresh(key):
            coreset = problem.frame.build({**state.frozen, **state.learned})
            return start_family(problem.family, problem.model, coreset, key)

        psi = self.inner.begin(state.psi, fresh, index, start_key)
        learned, psi, opt_state, surrogate, info = self.optimizer.step(
            outer, state.learned, psi, state.optimizer, scale
        )
        if not problem.family.has_density:
            # How posteriors differ cannot be told from one point: the KL is not zero but unknown.
            info = info._replace(kl=jnp.full_like(info.kl, jnp.nan))
        moved = CoresetState(
            learned=learned,
            frozen=state.frozen,
            psi=psi,
            optimizer=opt_state,
            indices=state.indices,
            surrogate=surrogate,
        )
        return moved, info

    def _outer_step(self, problem, state, index, inner: Inner, keys) -> OuterStep:
        inner_key, noise_key, batch_key = keys
        model, data, family, frame = problem.model, problem.data, problem.family, problem.frame
        num_samples = self.objective.num_samples or 1
        batch = data.batch(batch_key, self.batch_size)

        def core(learned, thetas, reference):
            coreset = frame.build({**state.frozen, **learned})
            return log_likelihood_rises(model, thetas, reference, coreset)[1]

        def inner_loss(psi, learned, noise):
            coreset = frame.build({**state.frozen, **learned})
            thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
            return -jnp.mean(log_joint(model, thetas, coreset) - proposal)

        inner_problem = InnerProblem(inner_loss, family, model.dim)
        prior = jax.vmap(model.log_prior)

        def draw(learned, psi):
            thetas, proposal = inner.draws(inner_problem, learned, psi, noise_key, num_samples)
            if inner.exact_draws:
                # Draws of the coreset posterior are their own proposal, up to its evidence as r puts it: all
                # weights are alike, and the gradient of the bound becomes a covariance.
                target = core(learned, thetas, mean_draw(thetas)) + prior(thetas)
                proposal = jax.lax.stop_gradient(target - jnp.mean(target - proposal))
            return thetas, proposal

        return OuterStep(
            solve=lambda learned, psi: inner.solve(inner_problem, learned, psi, inner_key),
            draw=draw,
            data=data_term(model, data, batch, state.surrogate, index),
            core=core,
            prior=prior,
            project=frame.project,
            objective=self.objective,
            family=family,
        )

    def extract(self, problem: CoresetProblem, state):
        moved = "x" in state.learned or "y" in state.learned
        indices = None if moved else state.indices
        return problem.frame.build({**state.frozen, **state.learned}, indices), state.psi


def starting_leaves(
    problem: CoresetProblem,
    size: int,
    init: str,
    learn: frozenset[str],
    key: PRNGKeyArray,
    initial: Dataset | None,
) -> tuple[Leaves, Leaves, Array | None]:
    """Leaves that move, leaves that stay, and the rows they came from: chosen by `init`, or as given."""
    if initial is None:
        leaves, indices = start_leaves(problem.frame, problem.data, size, init, key)
    else:
        check_initial(initial, problem, size)
        leaves, indices = given_leaves(problem.frame, initial)
    learned = {name: leaf for name, leaf in leaves.items() if name in learn}
    frozen = {name: leaf for name, leaf in leaves.items() if name not in learn}
    return learned, frozen, indices


def check_initial(initial: Dataset, problem: CoresetProblem, size: int) -> None:
    """Points to start from must be as many as the coreset has, and of the data's kind."""
    data, num_classes = problem.data, problem.model.num_classes
    if len(initial) != size:
        raise InputError(f"initial has {len(initial)} points, but size is {size}; make them equal.")
    if initial.x.shape[1:] != data.x.shape[1:]:
        raise InputError(
            f"initial has points of shape {initial.x.shape[1:]}, but the data's rows have {data.x.shape[1:]}."
        )
    if initial.columns and data.columns and initial.columns != data.columns:
        raise InputError(f"initial has the columns {initial.columns}, but the data have {data.columns}.")
    if (initial.y is None) != (data.y is None):
        raise InputError("Only one of initial and the data has labels; give both or neither.")
    if initial.y is not None and initial.y.ndim == 2 and num_classes is not None:
        if initial.y.shape[1] != num_classes:
            raise InputError(
                f"initial has labels over {initial.y.shape[1]} classes, but the model has {num_classes}."
            )
    else:
        problem.model.check(initial, fitting=False)


def check_leaves(learn: frozenset[str], weights: WeightMap, init: str) -> None:
    """What is to be learned must exist and be free to move, and the start must have a name."""
    if init not in STARTS:
        raise InputError(f"init must be one of {', '.join(STARTS)}, not {init!r}.")
    if unknown := sorted(learn - set(LEARNABLE)):
        raise InputError(f"learn has the unknown name {unknown[0]!r}; choose from {', '.join(LEARNABLE)}.")
    if "weights" in learn and not weights.learnable:
        raise InputError(
            f"{type(weights).__name__} weights cannot be learned; "
            'leave "weights" out of learn or use Simplex() or Free().'
        )


def names_of(learn: Any) -> frozenset[str]:
    """`learn` as a set of names; a single word would fall apart into letters."""
    if isinstance(learn, str) or not isinstance(learn, Iterable):
        raise InputError(f"learn must be a set of names such as {{'x', 'weights'}}, not {short(learn)}.")
    return frozenset(learn)


def log_joint(model: Model, thetas: Array, coreset: Dataset) -> Array:
    """log p(theta) + sum_m v_m log p(z_m | u_m, theta) for every draw."""
    core = over_draws(model, coreset, lambda theta: weighted_log_likelihood(model, theta, coreset), thetas)
    return core + jax.vmap(model.log_prior)(thetas)
