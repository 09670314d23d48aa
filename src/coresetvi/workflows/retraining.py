"""`retrain`: a fresh posterior on the points of a fit."""

from jaxtyping import PRNGKeyArray

from .._checks import instance
from ..constructions.reference import PointsVI
from ..fitting.loop import fit
from ..fitting.result import Fit
from ..models.base import Model
from ..models.row_checks import with_hard_labels


def retrain(
    fitted: Fit,
    *,
    key: int | PRNGKeyArray,
    model: Model | None = None,
    num_steps: int | None = None,
    time_limit: float | int | None = None,
    progress: bool | None = None,
) -> Fit:
    """A fresh posterior on the points of a fit, from a start of its own: the honest trial of a coreset.

    The r that a fit ends with has followed its coreset all along; this one sees the final points only. With
    another `model` it tells whether the points serve that one too.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> made = cvi.fit(cvi.BBPSVI(8), cvi.models.LogisticRegression(2), train, key=0, num_steps=5)
    >>> fresh = retrain(made, key=1, num_steps=5)
    >>> bool((fresh.coreset.x == made.coreset.x).all()), type(fresh.construction).__name__
    (True, 'PointsVI')
    """
    instance("The first argument", fitted, Fit, "what coresetvi.fit returned")
    construction = PointsVI()
    if model is None:
        model, made_by = fitted.model, fitted.construction
        construction = (made_by and made_by.on_points()) or PointsVI(family=fitted.family.for_many_steps())
    points = fitted.coreset
    return fit(
        construction,
        model,
        with_hard_labels(model, points),  # what is fitted are the soft ones
        key=key,
        initial=points,
        num_steps=num_steps,
        time_limit=time_limit,
        progress=progress,
    )
