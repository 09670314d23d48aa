"""What a type checker makes of the public functions. Nothing here is run: pyright checks it (`make lint`)."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from pathlib import Path
from typing import assert_type

import coresetvi as cvi
from coresetvi.families.draws import Draws
from coresetvi.posterior.certificate import Certificate


def one_fit_or_several(construction: cvi.BBPSVI, model: cvi.models.Model, data: cvi.Dataset) -> None:
    assert_type(cvi.fit(construction, model, data, key=0), cvi.Fit)
    assert_type(cvi.fit(construction, model, data, key=0, num_trials=None), cvi.Fit)
    assert_type(cvi.fit(construction, model, data, key=0, num_trials=3), list[cvi.Fit])


def a_fit_comes_back(path: Path) -> None:
    assert_type(cvi.load(path), cvi.Fit)
    assert_type(cvi.load(str(path)), cvi.Fit)


def draws_of_a_fit_or_of_a_model_with_data(fit: cvi.Fit, model: cvi.models.Model, data: cvi.Dataset) -> None:
    assert_type(cvi.sample(fit), Draws)
    assert_type(cvi.sample(model, data), Draws)
    assert_type(cvi.sample((model, data), num_samples=10), Draws)
    # Refused when it runs, and before.
    cvi.sample(model)  # pyright: ignore[reportArgumentType]
    cvi.sample(fit, data)  # pyright: ignore[reportArgumentType]


def every_construction_takes_its_size_first() -> None:
    assert_type(cvi.BBPSVI(5), cvi.BBPSVI)
    assert_type(cvi.GIGA(5), cvi.GIGA)
    assert_type(cvi.FrankWolfe(5, num_projections=50), cvi.FrankWolfe)
    assert_type(cvi.RandomSubset(5), cvi.RandomSubset)


def what_a_fit_says(fit: cvi.Fit, data: cvi.Dataset) -> None:
    assert_type(fit.coreset, cvi.Dataset)
    assert_type(cvi.diagnose(fit, data), Certificate)
