"""Columns that learned points leave alone: found by measurement, said by the caller, kept to the last bit."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.constructions.parametrisation import given_leaves, parametrise
from coresetvi.data import Dataset, concatenate
from coresetvi.errors import InputError
from coresetvi.models.still_columns import still_columns
from coresetvi.weights import Simplex

GROUPS, ROWS = 5, 400
NAMES = ["group", "z"]


def grouped_rows(seed: int = 0) -> Dataset:
    """Rows of groups of unequal size, with group numbers that are no multiples of anything in float32."""
    generator = np.random.default_rng(seed)
    group = generator.choice(GROUPS, ROWS, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    z = generator.normal(size=ROWS)
    y = np.linspace(-1, 1, GROUPS)[group] + 0.7 * z + 0.3 * generator.normal(size=ROWS)
    return Dataset(np.column_stack([group, z]), y, columns=NAMES)


def hierarchy(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("groups", GROUPS):
        level = numpyro.sample("level", dist.Normal(0, 1))
    mean = jnp.asarray(level)[x[:, 0].astype(int)] + slope * x[:, 1]
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 0.3), obs=y)


DATA = grouped_rows()
HIERARCHY = cvi.models.FromNumPyro(hierarchy, DATA)


def model_of(function):
    """A model of five parameters from a function of them and of x that gives the mean of y."""
    return cvi.models.FromCallables(
        lambda p: -0.5 * jnp.sum(p**2), lambda p, x, y: -0.5 * (y - function(p, x)) ** 2, jnp.zeros(5)
    )


def indicator_product(p, x):
    return p[0] * x[:, 0] * x[:, 1]


MEASURED = {
    "a group number": (lambda p, x: p[x[:, 0].astype(int)] + p[0] * x[:, 1], (0,)),
    "a column that is not used": (lambda p, x: p[0] * x[:, 0], (1,)),
    "a threshold": (lambda p, x: jnp.where(x[:, 1] > 0, p[0], p[1]) * x[:, 0], (1,)),
    "a comparison with every level": (
        lambda p, x: (x[:, :1] == jnp.arange(5)) @ p + p[0] * x[:, 1],
        (0,),
    ),
    "both move": (lambda p, x: x @ p[:2], ()),
    "nothing moves": (lambda p, x: p[x[:, 0].astype(int)] * (x[:, 1] > 0), (0, 1)),
    "no value anywhere": (lambda p, x: jnp.log(-jnp.exp(x @ p[:2])), ()),
    "no value, but group numbers": (lambda p, x: jnp.log(-jnp.exp(p[x[:, 0].astype(int)] * x[:, 1])), (0,)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_columns_without_a_gradient_are_found(name):
    function, expected = MEASURED[name]
    assert still_columns(model_of(function), DATA) == expected


def test_a_product_with_a_column_of_zeros_is_not_taken_for_still():
    """The gradient of a product is zero wherever the other factor is, but not identically so."""
    x = np.column_stack([DATA.x[:, 1], np.zeros(ROWS)])
    x[-1, 1] = 1.0  # the only row that shows it; a sample need not have it
    assert still_columns(model_of(indicator_product), Dataset(x, DATA.y)) == ()


def test_columns_of_a_numpyro_model_and_of_regressions():
    assert still_columns(HIERARCHY, DATA) == (0,)
    classes = Dataset(DATA.x, np.asarray(DATA.y) > 0)
    assert still_columns(cvi.models.LogisticRegression(2, intercept=True), classes) == ()
    assert still_columns(cvi.models.SoftmaxRegression(2, 2), classes) == ()
    images = Dataset(np.zeros((4, 3, 3)), [0, 1, 0, 1])
    assert still_columns(cvi.models.LogisticRegression(2), images) == ()  # not even asked


def test_gradients_say_the_same_as_differences():
    """What is called still is still by finite differences too, and what is not is not."""
    theta = HIERARCHY.start(jax.random.key(1)) + 0.5
    value = HIERARCHY.log_likelihood(theta, DATA.x, DATA.y)
    for column, still in ((0, True), (1, False)):
        moved = HIERARCHY.log_likelihood(theta, DATA.x.at[:, column].add(1e-2), DATA.y)
        assert bool(jnp.all(moved == value)) == still


OPTIMISERS = {
    "passes": {},
    "noise": {"optimizer": cvi.outer.Adam(0.05), "init": "noise"},
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_group_numbers_stay_what_they_are(name):
    fit = cvi.fit(cvi.BBPSVI(20, **OPTIMISERS[name]), HIERARCHY, DATA, key=0, num_steps=4)
    x = np.asarray(fit.coreset.x)
    assert set(x[:, 0]) <= set(np.unique(DATA.x[:, 0]))  # to the last bit
    assert not np.isin(x[:, 1], np.asarray(DATA.x[:, 1])).any()  # and the others did move
    assert fit.coreset.fixed == (0,) and fit.coreset.columns == tuple(NAMES)


def coded_rows():
    """Numbers that units would round, in a column in the middle."""
    generator = np.random.default_rng(1)
    codes = np.array([1 / 3, 1e7 + 1, 3e-9, 0.1], np.float32)
    x = np.column_stack(
        [generator.normal(size=(200, 1)), codes[generator.integers(0, 4, 200)], generator.normal(size=200)]
    )
    data = Dataset(x, generator.integers(0, 2, 200), columns=["a", "code", "b"], fixed=["code"])
    return data, codes


def test_units_leave_fixed_columns_alone():
    data, _ = coded_rows()
    units = parametrise(data, Simplex(), frozenset({"x"}), 2, data.fixed)
    leaves, _ = given_leaves(units, data)
    assert leaves["x"].shape == (200, 2) and leaves["fixed"].shape == (200, 1)
    np.testing.assert_array_equal(leaves["fixed"], data.x[:, 1:2])
    built = units.build(leaves)
    np.testing.assert_array_equal(built.x[:, 1], data.x[:, 1])
    np.testing.assert_allclose(built.x, data.x, atol=1e-6)
    # One row at a time, in a compiled program, as growing coresets write them.
    one = jax.jit(lambda x: units.raw_locations(x))(data.x[7])
    np.testing.assert_array_equal(one["fixed"], data.x[7, 1:2])
    np.testing.assert_allclose(one["x"], leaves["x"][7], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("construction", [cvi.BBSparseVI(12), cvi.GreedyBBSparseVI(4, weight_steps=2)])
def test_real_points_have_the_codes_of_rows(construction):
    data, codes = coded_rows()
    fit = cvi.fit(construction, cvi.models.LogisticRegression(3), data, key=0, num_steps=2)
    assert set(np.asarray(fit.coreset.x[:, 1])) <= set(codes)


def test_fixed_columns_have_the_bits_of_rows():
    data, _ = coded_rows()
    assert data.fixed == (1,)
    model = cvi.models.LogisticRegression(3)
    initial = data.take(np.arange(12))
    fit = cvi.fit(cvi.BBPSVI(12), model, data, key=0, initial=initial, num_steps=2)
    np.testing.assert_array_equal(fit.coreset.x[:, 1], initial.x[:, 1])
    assert not np.isin(fit.coreset.x[:, 0], initial.x[:, 0]).any()


def only_groups(x, y=None):
    with numpyro.plate("groups", GROUPS):
        level = numpyro.sample("level", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.asarray(level)[x[:, 0].astype(int)]), obs=y)


def test_where_no_column_moves_points_carry_fractions():
    """Two classes in five groups: five points with the groups' counts and fractions are the data."""
    data = Dataset(DATA.x[:, :1], (np.asarray(DATA.y) > 0).astype(int), columns=["group"])
    model = cvi.models.FromNumPyro(only_groups, data)
    fit = cvi.fit(cvi.BBPSVI(10), model, data, key=0)
    assert isinstance(fit.construction, cvi.BBPSVI) and fit.construction.learn == {"y", "weights", "total"}
    assert float(np.nanmin(fit.history["kl"])) < 1e-3
    group, weights = np.asarray(fit.coreset.x[:, 0]).astype(int), np.asarray(fit.coreset.weights)
    successes = np.bincount(group, weights * np.asarray(fit.coreset.y[:, 1]), GROUPS)
    exact = np.bincount(np.asarray(data.x[:, 0]).astype(int), np.asarray(data.y), GROUPS)
    np.testing.assert_allclose(successes, exact, atol=0.05 * exact.max())
    with pytest.raises(InputError, match="learn has 'x', but every column is fixed"):
        cvi.fit(cvi.BBPSVI(10, learn={"x"}), model, data, key=0)


def test_fixed_survives_what_is_done_with_rows(tmp_path):
    data = Dataset(DATA.x, DATA.y, columns=NAMES, fixed=["group"], bounds={"z": (-9, None)})
    kept = ((0,), ((1, -9.0, np.inf),))
    found = {
        "take": data.take([1, 2]),
        "batch": data.batch(jax.random.key(0), 7),
        "concatenate": concatenate(DATA, data),
        "sample": data.sample(jax.random.key(0), 3),
        "shard": cvi.data.shard(data).sample(jax.random.key(0), 3),
        "scan": cvi.scan(lambda: iter([DATA]), fixed=["group"], bounds={"z": (-9, None)}),
        "merge": cvi.merge([data, data]),
    }
    found["sample of a scan"] = found["scan"].sample(jax.random.key(0), 3)
    fit = cvi.fit(cvi.RandomSubset(6), HIERARCHY, data, key=0, num_steps=1)
    fit.save(tmp_path / "fit")
    found["fit"] = fit.coreset
    found["load"] = cvi.load(tmp_path / "fit", model=HIERARCHY).coreset
    for name, rows in found.items():
        assert (rows.fixed, rows.bounds) == kept, name
    assert data.fingerprint() != DATA.fingerprint()


REFUSED = {
    "a name that is none": ({"fixed": ["groop"]}, "'groop', which is no column of x; it has 'group', 'z'"),
    "a number beyond": ({"fixed": [2]}, "fixed has column 2, but x has columns 0 to 1"),
    "a word": ({"fixed": "group"}, "fixed must be a list of columns"),
    "an empty range": ({"bounds": {"z": (1, 1)}}, "bounds of column 'z' must be a lowest and a highest"),
    "rows outside": ({"bounds": {"z": (0, None)}}, r"column 'z', which is outside its bounds \(0, inf\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_in_a_sentence(name):
    given, sentence = REFUSED[name]
    with pytest.raises(InputError, match=sentence):
        Dataset(DATA.x, DATA.y, columns=NAMES, **given)


def test_names_need_names():
    with pytest.raises(InputError, match="the columns have no names"):
        Dataset(DATA.x, fixed=["group"])
    with pytest.raises(InputError, match="fixed is for tables"):
        Dataset(np.zeros((3, 2, 2)), fixed=[0])


def test_the_command_line_takes_names(tmp_path, monkeypatch):
    """Rows in memory and rows that are read again and again both get what --fixed says."""
    seen = []

    def stop(construction, model, data, **_):
        seen.append(data)
        raise InputError("seen")

    monkeypatch.setattr(cli.fit, "fit_coreset", stop)
    table = tmp_path / "rows.csv"
    lines = [f"{z},{int(group)},{y}" for (group, z), y in zip(DATA.x.tolist(), DATA.y.tolist(), strict=True)]
    table.write_text("\n".join(["z,group,y", *lines]))
    command = ["fit", str(table), "--target", "y", "--fixed", "group", "--model", "linear"]
    for more in ([], ["--memory", "1KB"]):
        answer = CliRunner().invoke(cli.build_app(), [*command, "--out", str(tmp_path / "out"), *more])
        assert "seen" in answer.output
    assert [data.fixed for data in seen] == [(1,), (1,)]
    assert isinstance(seen[0], Dataset) and not isinstance(seen[1], Dataset)
