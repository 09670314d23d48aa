"""Constructions settle into plans: every choice is made once, and before anything large is compiled."""

import dataclasses

import jax
import numpy as np
import pytest
import registry

import coresetvi as cvi
from coresetvi.constructions.schedule import fixed_schedule, open_schedule
from coresetvi.fitting import steps
from coresetvi.fitting.outcome import EXPLANATIONS, Ending, decide_result, explain
from coresetvi.inner import SMC, Alternating, Chains, Implicit, Inner, Unrolled
from coresetvi.outer import Adam, NaturalGradient

pytestmark = pytest.mark.usefixtures("quick_compilation")

REGRESSION = registry.MODELS["logistic"]
# Enough rows for a posterior that no normal covers.
NETWORK = registry.ModelCase(cvi.models.BayesianMLP(2, (10,), 2), cvi.datasets.halfmoon(n=300)[0])
# Settings of the inner solvers whose None is a meaning of its own, not a choice left open.
MEANT = {"optimizer", "num_samples", "restart_every"}


def plan_of(construction, case=REGRESSION):
    return construction.settle(case.model, case.model.check(case.data))


@pytest.mark.parametrize("name", registry.CONSTRUCTIONS)
def test_nothing_is_open_in_a_settled_construction(name):
    construction = registry.CONSTRUCTIONS[name]
    model = registry.MODEL_OF.get(name, REGRESSION.model)
    settled = construction.settle(model, model.check(REGRESSION.data)).construction
    assert type(settled) is type(construction)

    def open_choices(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if value is None and not (isinstance(part, Inner) and field.name in MEANT):
                yield f"{field.name} of {type(part).__name__}"
            elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                yield from open_choices(value)

    # All rows, as far as the cost of one allows, is what full-data inference means by no batch size.
    assert set(open_choices(settled)) <= {"batch_size of FullVI"}


@pytest.mark.parametrize("name", registry.CONSTRUCTIONS)
def test_settling_twice_changes_nothing(name):
    model = registry.MODEL_OF.get(name, REGRESSION.model)
    data = model.check(REGRESSION.data)
    once = registry.CONSTRUCTIONS[name].settle(model, data).construction
    assert once.settle(model, data).construction == once


@pytest.mark.parametrize(
    ("construction", "case", "expected"),
    [
        (cvi.BBPSVI(5, batch_size=10), REGRESSION, NaturalGradient),
        (cvi.BBPSVI(5, batch_size=10), NETWORK, NaturalGradient),
        (cvi.BBPSVI(5, family=cvi.families.MeanField()), NETWORK, Adam),
        (cvi.GreedyBBSparseVI(3, weight_steps=1), NETWORK, Adam),
        # What the user has asked for is not reconsidered.
        (cvi.BBPSVI(5, optimizer=NaturalGradient()), NETWORK, NaturalGradient),
    ],
    ids=["regression", "network by chains", "network with r as asked", "greedy network", "as asked"],
)
def test_only_the_steps_that_are_taken_are_compiled(construction, case, expected, monkeypatch):
    seen, run_chunk = [], steps.run_chunk

    def watched(plan, *rest):
        seen.append(type(plan.construction.optimizer))
        return run_chunk(plan, *rest)

    monkeypatch.setattr(steps, "run_chunk", watched)
    cvi.fit(construction, case.model, case.data, key=0, num_steps=1, progress=False)
    assert seen == [expected, expected]  # to compile, and to run


def test_a_narrow_family_is_tried_even_on_a_concave_posterior():
    """Columns with much in common: the posterior is nearly a normal, but not one of independent parts."""
    generator = np.random.default_rng(0)
    common = generator.standard_normal((400, 1))
    x = common + 0.3 * generator.standard_normal((400, 30))
    y = (generator.random(400) < 1.0 / (1.0 + np.exp(-common[:, 0]))).astype(int)
    model, key = cvi.models.LogisticRegression(30, prior_scale=10.0), jax.random.key(0)
    for family, expected in ((None, None), (cvi.families.MeanField(), Adam)):
        plan = cvi.BBPSVI(100, family=family).settle(model, model.check(cvi.Dataset(x, y)))
        other = plan.reconsider([plan.start(key)], key[None])
        assert (None if other is None else type(other.optimizer)) is expected


def test_another_plan_leaves_everything_else_as_open_as_it_was():
    open_choices = {"learn": {"x"}, "init": "noise"}
    plan = plan_of(cvi.BBPSVI(5, **open_choices))
    key = jax.random.key(0)
    chains = plan_of(cvi.BBPSVI(5, **open_choices, inner=Chains()))
    assert plan.instead.settle(REGRESSION.model, plan.data).construction == chains.construction
    particles = plan_of(cvi.BBPSVI(5, **open_choices, inner=SMC()))
    assert plan.among_modes.settle(REGRESSION.model, plan.data).construction == particles.construction
    narrow = {**open_choices, "family": cvi.families.MeanField()}
    nested = plan_of(cvi.BBPSVI(5, **narrow, optimizer=Adam()))
    asked = plan_of(cvi.BBPSVI(5, **narrow))
    assert asked.instead.settle(REGRESSION.model, plan.data).construction == nested.construction
    assert asked.among_modes is None
    assert plan.inner == Alternating(Implicit()) and type(nested.inner) is Unrolled
    assert plan.reconsider([plan.start(key)], key[None]) is None


# How a fit ended

SHORT, LONG = fixed_schedule(10), fixed_schedule(20)


def records(losses=(3.0, 2.0), accepted=(1.0, 1.0)):
    return {"loss": np.array(losses), "accepted": np.array(accepted)}


@pytest.mark.parametrize(
    ("found", "ending", "expected"),
    [
        (records(), Ending(SHORT, SHORT), "finished"),
        (records(), Ending(open_schedule(10), open_schedule(10)), "step_limit"),
        (records(), Ending(SHORT, LONG), "time_limit"),
        (records(), Ending(SHORT, SHORT, interrupted=True), "interrupted"),
        (records(), Ending(SHORT, SHORT, running=True), "running"),
        (records(accepted=(0.0, 0.0)), Ending(SHORT, SHORT), "inner_not_converged"),
        (records(accepted=(0.0, 0.0)), Ending(SHORT, LONG), "inner_not_converged"),
        (records(accepted=(0.0, 0.0)), Ending(SHORT, SHORT, interrupted=True), "interrupted"),
        (records((3.0, np.nan)), Ending(SHORT, SHORT), "non_finite"),
        (records((3.0, np.nan)), Ending(SHORT, SHORT, interrupted=True), "non_finite"),
        (records((np.nan, 3.0)), Ending(SHORT, SHORT), "finished"),
        (records() | {"r_hat": np.array([1.0, 1.5])}, Ending(SHORT, SHORT), "unmixed"),
        (records() | {"r_hat": np.array([1.5, np.nan])}, Ending(SHORT, SHORT), "unmixed"),
        (records() | {"r_hat": np.array([1.5, 1.1])}, Ending(SHORT, SHORT), "finished"),
        (records((), ()), Ending(SHORT, SHORT, interrupted=True), "interrupted"),
    ],
)
def test_the_result_is_the_worst_there_is_to_know(found, ending, expected):
    assert decide_result(found, ending) == expected


def test_every_result_is_a_sentence():
    found = records((3.0, np.nan)) | {"inner_gradient_norm": np.array([1.0, 0.25])}
    sentences = {result: explain(result, found) for result in EXPLANATIONS}
    assert all(sentence.endswith(".") and "{" not in sentence for sentence in sentences.values())
    assert (
        "at step 1;" in sentences["non_finite"] and "gradient norm 0.25" in sentences["inner_not_converged"]
    )
    assert explain("interrupted", {}) == sentences["interrupted"]
    found = {"r_hat": np.array([1.0, 1.57]), "kl": np.array([9.0, 0.5, 0.4])}
    assert "(R-hat 1.57)" in explain("unmixed", found) and "about 0.4 nats" in explain("imprecise", found)
    # What a test found counts more than what led there.
    assert "about 0.7 nats" in explain("imprecise", found, 0.7)


def test_a_fit_whose_coreset_posterior_is_not_known_says_so():
    few = records() | {"kl": np.array([9.0, 3.0]), "ess": np.array([0.1, 0.12])}
    assert "is not known; diagnose it" in explain("finished", few)
    for known in (explain("finished", few, 0.01), explain("finished", few | {"ess": np.array([0.1, 0.9])})):
        assert known == "The fit finished."
    # Fits without a coreset have no KL, and nothing to be known.
    assert explain("finished", few | {"kl": np.full(2, np.nan)}) == "The fit finished."
