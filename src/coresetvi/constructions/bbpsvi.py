"""BB PSVI: coresets learned by gradients of a variational bound. One class for every row of the tables.

Which leaves move (`learn`), how weights are made (`weights`), what is minimised (`objective`), how the inner
problem is solved and differentiated (`inner`) and how steps are taken (`optimizer`) are parts; leaving one
out lets the construction choose it from the sizes of model and data alone (`defaults.py`).
"""

import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

from .._checks import instance, whole_number
from .._registry import register
from ..data.rows import Rows
from ..errors import InputError
from ..families.base import Family
from ..inner.base import Inner
from ..inner.chains import Chains
from ..inner.smc import SMC
from ..models.base import Model
from ..objectives import ImportanceElbo, Objective
from ..outer.adam import Adam
from ..outer.base import Optimizer
from ..weights import Simplex, WeightMap
from .chain_plan import ChainPlan
from .coreset_plan import CoresetPlan
from .defaults import choose_engine, is_affordable, keeps_expansion, row_cost
from .group_start import too_few_points
from .learned_plan import GradientConstruction, LearnedPlan
from .moving_columns import columns_that_stay, leaves_to_learn, numbers_per_point
from .parametrisation import parametrise
from .pass_plan import PassPlan
from .starts import check_leaves, names_of


@register
class BBPSVI(GradientConstruction):
    """Black-box pseudocoreset variational inference (§3 of the paper).

    `size` points; everything else has a default that suits the problem. `learn` is any subset of
    {"x", "y", "weights", "total"}; `init` is "subset" (random rows, every class represented), "spread" (rows
    near the centres of clusters), "noise" (around the data mean, labels split evenly) or, with `Matching`,
    "informative" (rows that say most about the posterior) or "best" ("spread" or that, by what a sample of
    the rows says of both).

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
    init: str | None
    batch_size: int | None
    corrects: ClassVar[bool] = True
    takes_initial: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True

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
        init: str | None = None,
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

    def settle(self, model: Model, data: Rows) -> LearnedPlan:
        plan = self._settle(model, data, by_passes=True)
        if sentence := too_few_points(data, plan.parametrisation.still, self.size):
            warnings.warn(sentence, UserWarning, stacklevel=2)
        return plan

    def _settle(self, model: Model, data: Rows, *, by_passes: bool) -> LearnedPlan:
        """The plan, whose steps may be passes over the rows if `by_passes`."""
        still = columns_that_stay(model, data)
        usual = frozenset({"x", "weights", "total"} if self.weights.learnable else {"x"})
        learn = leaves_to_learn(self.learn, usual, still, model, data, draws=True)
        if "y" in learn and data.labels() is None:
            raise InputError('learn has "y", but the data have no labels.')
        cost = row_cost(model, data)
        engine = choose_engine(
            model,
            data,
            self.objective,
            self.size,
            cost,
            leaves=self.size * numbers_per_point(learn, still, model, data),
            family=self.family,
            inner=self.inner,
            optimizer=self.optimizer,
            batch_size=self.batch_size,
            by_passes=by_passes,
        )
        if not engine.inner.keeps_draws:
            learn = leaves_to_learn(self.learn, usual, still, model, data)
        if engine.optimizer.by_passes and not by_passes:
            name = type(engine.optimizer).__name__
            raise InputError(f"{name}() goes by passes over all rows; use NaturalGradient() or Adam() here.")
        init = self.init or "subset"
        if self.init is None and engine.optimizer.needs_view and self.weights.learnable:
            init = "best"
        settled = dataclasses.replace(
            self,
            init=init,
            family=engine.family,
            learn=learn,
            objective=engine.objective,
            inner=engine.inner,
            optimizer=engine.optimizer,
            batch_size=engine.batch_size,
        )
        # Regressions on draws of r that nobody asked for rest on a premise that the first draws may refute.
        doubtful = self.optimizer is None and engine.optimizer.needs_exact_data
        doubtful &= not engine.inner.keeps_draws
        kind: Any = CoresetPlan
        if engine.optimizer.by_passes:
            kind = PassPlan if engine.optimizer.needs_view else ChainPlan
        return kind(
            construction=settled,
            model=model,
            data=data,
            family=engine.family,
            parametrisation=parametrise(data, self.weights, learn, model.num_classes, still),
            size=self.size,
            init=init,
            learn=learn,
            objective=engine.objective,
            num_samples=engine.num_samples,
            inner=engine.inner,
            optimizer=engine.optimizer,
            batch_size=engine.batch_size,
            expands=keeps_expansion(model, data, engine.optimizer, engine.batch_size),
            # Everything but the optimiser is then as open as it was.
            instead=self._without_r(cost + model.dim, by_passes) if doubtful else None,
            among_modes=self._with_draws(SMC(), cost + model.dim) if doubtful and by_passes else None,
        )

    def _without_r(self, numbers: int, by_passes: bool) -> "BBPSVI":
        """What to do where no normal covers the coreset posterior: chains, or nested gradients if dear."""
        chains = self._with_draws(Chains(), numbers) if by_passes else None
        return chains or dataclasses.replace(self, optimizer=Adam())

    def _with_draws(self, inner: Inner, numbers: int) -> "BBPSVI | None":
        """The same by draws of the coreset posterior; None if too dear, or if something else was asked."""
        # Whoever names a family wants r to be of that family.
        open_to_it = self.inner is None and self.family is None
        return (
            dataclasses.replace(self, inner=inner)
            if open_to_it and is_affordable(inner, numbers, self.size)
            else None
        )
