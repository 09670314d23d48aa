"""Learning task after task while old data are gone: the coreset stands in for them (Supp. D)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import instance, whole_number
from .._keys import host_generator, one_key
from ..constructions.base import Construction, with_size
from ..constructions.starts import allocate
from ..data.clusters import spread_rows
from ..data.dataset import Dataset, concatenate
from ..errors import InputError
from ..families.importance import usable
from ..fitting.loop import fit
from ..fitting.result import Fit
from ..models.base import Model
from ..outer.adam import Adam
from .merging import hard_labels, merge

REPLAYS = ("weighted", "samples")
# Learning rate of points that must not stray from where the data were, in standardised units.
SMALL_STEPS = 0.01


@dataclasses.dataclass(frozen=True)
class Stage:
    """What an update left behind: `accuracy` and `forgetting` have one number a task with held-out rows.

    Forgetting is the best accuracy a task ever had minus the one it has now.
    """

    num_classes: int
    size: int
    rows: int
    total_weight: float
    result: str
    seconds: float
    accuracy: tuple[float, ...]
    forgetting: tuple[float, ...]


class Continual:
    """A coreset that grows with every task. Made by `continual`; `update` is all there is to call.

    `fit` is the latest fit, `coreset` its points, `history` one `Stage` an update. Of the training data
    nothing is kept but the coreset; of held-out rows, if any are given, all.
    """

    def __init__(self, construction, make_model, key, replay, num_steps, progress, coreset):
        self._construction, self._make_model, self._key = construction, make_model, key
        self._replay, self._num_steps, self._progress = replay, num_steps, progress
        self.coreset: Dataset | None = coreset
        self.fit: Fit | None = None
        self.history: list[Stage] = []
        self._tests: list[Dataset] = []
        self._rows = 0.0 if coreset is None else float(coreset.total_weight)
        self.num_classes = 0 if coreset is None else count_classes(coreset)

    def update(self, task: Dataset, budget: int, *, test: Dataset | None = None) -> Fit:
        """Learn a task that brings new classes; afterwards the coreset has `budget` points in all.

        Labels go on counting where the last task stopped. `test` are held-out rows of this task, on which
        this stage and all later ones are scored.
        """
        instance("task", task, Dataset, "a Dataset(x, y)")
        num_classes = self._classes_with(task)
        size = self._size_with(budget, task)
        model = self._make_model(num_classes)
        stage_key = jax.random.fold_in(self._key, num_classes)
        fit_key, replay_key, points_key = jax.random.split(stage_key, 3)
        data = task
        if self.coreset is not None:
            if self.coreset.x.shape[1:] != task.x.shape[1:]:
                raise InputError(
                    f"The task has rows of shape {task.x.shape[1:]}, but the coreset's points have "
                    f"{self.coreset.x.shape[1:]}; give every task the same columns."
                )
            data = merge([self._stand_in(replay_key), task])
        before = 0 if self.coreset is None else len(self.coreset)
        initial = self._grown(task, size - before, num_classes, points_key)
        fitted = fit(
            with_size(self._construction, size),
            model,
            data,
            key=fit_key,
            initial=initial,
            num_steps=self._num_steps,
            progress=self._progress,
        )
        self._tests += [] if test is None else [test]
        self.fit, self.coreset, self.num_classes = fitted, fitted.coreset, num_classes
        self._rows += float(task.total_weight)
        self.history.append(self._stage(fitted, task))
        return fitted

    def _classes_with(self, task: Dataset) -> int:
        """How many classes there are with this task's; refuses labels that do not go on where others end."""
        if task.y is None:
            raise InputError("A task needs labels; pass Dataset(x, y).")
        labels = np.unique(np.asarray(task.y))
        new = labels[labels >= self.num_classes]
        if new.size == 0:
            raise InputError(
                f"The task has no new class: classes 0 to {self.num_classes - 1} have been seen; "
                "to learn more rows of known classes, fit merge([coreset, rows])."
            )
        expected = np.arange(self.num_classes, self.num_classes + new.size)
        if not np.array_equal(new, expected):
            first = int(np.argmax(new != expected))
            raise InputError(
                f"The task has the label {new[first]:g}, which the model does not know: the next new class "
                f"must be {expected[first]}; number classes in the order in which they arrive."
            )
        return self.num_classes + new.size

    def _size_with(self, budget: int, task: Dataset) -> int:
        size, before = whole_number("budget", budget), 0 if self.coreset is None else len(self.coreset)
        if size <= before:
            raise InputError(
                f"budget is {size}, but the coreset has {before} points already and must grow; "
                "budget counts all of its points after the update."
            )
        new = np.asarray(task.y) >= self.num_classes
        available = int(np.count_nonzero(new & (np.asarray(task.weights) > 0)))
        if size - before > available:
            raise InputError(
                f"budget asks for {size - before} new points, but the task has only {available} rows of new "
                "classes; choose a smaller budget."
            )
        return size

    def _stand_in(self, key: PRNGKeyArray) -> Dataset:
        """What takes the place of all earlier rows: the coreset, or as many draws from it as there were."""
        assert self.coreset is not None
        points = hard_labels(self.coreset)
        if self._replay == "weighted":
            return points
        generator = host_generator(key)
        weights = np.asarray(points.weights, np.float64)
        # A row drawn k times is a row of weight k.
        counts = generator.multinomial(round(self._rows), weights / weights.sum())
        return eqx.tree_at(lambda data: data.weights, points, jnp.asarray(counts, points.weights.dtype))

    def _grown(self, task: Dataset, number: int, num_classes: int, key: PRNGKeyArray) -> Dataset:
        """The coreset so far and `number` rows of the new classes, which weigh what the task weighs."""
        assert task.y is not None
        generator = host_generator(key)
        labels, weights = np.asarray(task.y), np.asarray(task.weights)
        members = [
            np.flatnonzero((labels == label) & (weights > 0))
            for label in range(self.num_classes, num_classes)
        ]
        counts = np.array([len(rows) for rows in members])
        shares = allocate(number, np.ones(len(members)), counts)
        rows = [
            generator.choice(each, share, replace=False) for each, share in zip(members, shares, strict=True)
        ]
        new = spread_rows(task, np.concatenate(rows))
        factor = float(task.total_weight) / float(new.total_weight)
        limits = {"fixed": task.fixed, "bounds": task.bounds}
        new = Dataset(new.x, new.y, new.weights * factor, **limits)
        if self.coreset is None:
            return new
        old = Dataset(self.coreset.x, self.coreset.y, self.coreset.weights)
        if old.y is not None and old.y.ndim == 2:
            padded = jnp.pad(old.y, ((0, 0), (0, num_classes - old.y.shape[1])))
            old = Dataset(old.x, padded, old.weights)
            new = Dataset(new.x, jax.nn.one_hot(new.y, num_classes), new.weights, **limits)
        return concatenate(old, new)

    def _stage(self, fitted: Fit, task: Dataset) -> Stage:
        # Importance weights that rest on a few draws do more harm than good.
        correct = usable(fitted.reliability())
        accuracy = tuple(fitted.evaluate(test, correct=correct)["accuracy"] for test in self._tests)
        past = [stage.accuracy for stage in self.history]
        best = [max([one[k] for one in past if k < len(one)] + [now]) for k, now in enumerate(accuracy)]
        return Stage(
            num_classes=self.num_classes,
            size=len(fitted.coreset),
            rows=len(task),
            total_weight=float(fitted.coreset.total_weight),
            result=fitted.result,
            seconds=sum(fitted.seconds.values()),
            accuracy=accuracy,
            forgetting=tuple(high - now for high, now in zip(best, accuracy, strict=True)),
        )


def continual(
    construction: Construction,
    model: Model | Callable[[int], Model],
    *,
    key: int | PRNGKeyArray,
    replay: str = "weighted",
    num_steps: int | None = None,
    progress: bool | None = None,
    coreset: Dataset | None = None,
) -> Continual:
    """A learner that is fed one task after another and keeps only a coreset of what it has seen.

    At every update the coreset takes the place of all earlier rows, as a weighted data set or, with
    `replay="samples"`, as draws from it as many as there were rows; it grows by points of the new classes; r
    starts afresh; and the model is made anew for the classes there are. What `construction` leaves open is
    chosen with care: points and weights are learned in small steps, their total stays what it stands for.
    `model` is one whose `num_classes` can be set, or a function from the number of classes to a model.
    `coreset` goes on from an earlier one.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.four_class(n=80)
    >>> learner = continual(cvi.BBPSVI(4), cvi.models.SoftmaxRegression(2, 2), key=0, num_steps=3)
    >>> for classes, budget in (((0, 1), 4), ((2,), 6)):
    ...     task = train.take(np.isin(np.asarray(train.y), classes))
    ...     fitted = learner.update(task, budget)
    >>> learner.num_classes, len(learner.coreset)
    (3, 6)
    """
    instance("construction", construction, Construction, "a construction such as BBPSVI(size=10)")
    if not construction.takes_initial:
        raise InputError(f"{type(construction).__name__} cannot start from given points; use BBPSVI.")
    if not hasattr(construction, "size"):
        name = type(construction).__name__
        raise InputError(f"{name} has no size, so its coreset cannot grow; use BBPSVI.")
    if replay not in REPLAYS:
        raise InputError(f"replay must be one of {', '.join(REPLAYS)}, not {replay!r}.")
    if coreset is not None:
        instance("coreset", coreset, Dataset, "a weighted Dataset such as fit.coreset")
    parts = (careful(construction), model_maker(model), one_key(key), replay, num_steps, progress, coreset)
    return Continual(*parts)


def careful(construction: Any) -> Any:
    """The construction with what it left open chosen so that points keep saying where the rows were.

    A later class needs that. Points that go far to mark today's boundary, or whose total weight is learned,
    tell today's posterior as well with less weight, but tomorrow's boundary lies elsewhere. A construction
    that leaves nothing open, such as `Condensation`, stays as it is.
    """
    chosen: dict[str, object] = {}
    if getattr(construction, "learn", frozenset()) is None:
        chosen["learn"] = frozenset({"x", "weights"} if construction.weights.learnable else {"x"})
    if hasattr(construction, "optimizer") and construction.optimizer is None:
        chosen["optimizer"] = Adam(learning_rate=SMALL_STEPS)
    return dataclasses.replace(construction, **chosen)


def model_maker(model: Any) -> Callable[[int], Any]:
    """A function from the number of classes to a model."""
    if not isinstance(model, Model):
        if not callable(model):
            raise InputError("model must be a model, or a function from the number of classes to one.")
        return model
    fields = {field.name: field.init for field in dataclasses.fields(model)}

    def make(num_classes: int) -> Model:
        if model.num_classes == num_classes:
            return model
        if not fields.get("num_classes"):
            raise InputError(
                f"There are {num_classes} classes now, but {type(model).__name__} has a fixed number; use "
                "SoftmaxRegression or BayesianMLP, or pass a function from the number of classes to a model."
            )
        return dataclasses.replace(model, num_classes=num_classes)

    return make


def count_classes(coreset: Dataset) -> int:
    """How many classes a coreset knows."""
    if coreset.y is None:
        raise InputError("A coreset to go on from needs labels.")
    return coreset.y.shape[1] if coreset.y.ndim == 2 else int(jnp.max(coreset.y)) + 1
