"""Named data sets: the generators' distributions, the files, and what is said without them."""

import doctest
import gzip
import hashlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import coresetvi.datasets
from coresetvi import datasets
from coresetvi.errors import InputError


@pytest.fixture
def need():
    """Call with file names: the data folder, a skip if one is missing, a failure if this is CI."""

    def folder_with(*names):
        folder = Path(os.environ.get("CORESETVI_DATA") or "/nowhere")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            stop = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            stop(f"$CORESETVI_DATA ({folder}) lacks {', '.join(missing)}")
        return folder

    return folder_with


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, an empty cache, and no pooch."""
    for variable, name in (("CORESETVI_DATA", "data"), ("XDG_CACHE_HOME", "cache")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setitem(sys.modules, "pooch", None)
    return tmp_path / "data"


def refused(loader):
    with pytest.raises(InputError) as caught:
        loader()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_examples_in_the_docstrings_run():
    assert doctest.testmod(coresetvi.datasets).failed == 0


# Generators


@pytest.mark.parametrize("name", ["halfmoon", "four_class", "synthetic_lr"])
def test_generators_repeat_with_the_seed_and_only_then(name):
    one, two, other = (datasets.load(name, n=300, seed=seed) for seed in (3, 3, 4))
    for part in (0, 1):
        np.testing.assert_array_equal(one[part].x, two[part].x)
        np.testing.assert_array_equal(one[part].y, two[part].y)
        assert not np.array_equal(one[part].x, other[part].x)
    assert not set(map(tuple, one[0].x.tolist())) & set(map(tuple, one[1].x.tolist()))


@pytest.mark.parametrize(("name", "classes"), [("halfmoon", 2), ("four_class", 4)])
def test_classes_are_balanced_shuffled_and_the_test_set_stays(name, classes):
    train, test = datasets.load(name)
    assert (train.x.shape, test.x.shape, train.y.dtype) == ((1000, 2), (1000, 2), "int32")
    assert np.bincount(train.y).tolist() == [1000 // classes] * classes
    assert len(set(train.y[:20].tolist())) == classes
    np.testing.assert_array_equal(datasets.load(name, n=50)[1].x, test.x)


def moon_residual(data):
    x, lower = np.asarray(data.x, float), np.asarray(data.y) == 1
    centred = x - np.where(lower[:, None], [1.0, 0.5], 0.0)
    assert np.all(np.where(lower, -1, 1) * centred[:, 1] > -0.1)  # the right half of the circle
    return np.linalg.norm(centred, axis=1) - 1.0


def test_halfmoon_is_two_half_circles_plus_noise():
    assert np.abs(moon_residual(datasets.halfmoon(noise=0.0)[0])).max() < 1e-6
    residual = moon_residual(datasets.halfmoon(n=10_000, noise=0.01)[0])
    assert abs(residual.std() - 0.01) < 5 * 0.01 / np.sqrt(2 * 10_000)


def test_four_class_has_the_stated_clusters_and_accuracy():
    train, _ = datasets.four_class(n=40_000)
    x, y = np.asarray(train.x, float), np.asarray(train.y)
    means = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    for label, mean in enumerate(means):
        assert np.abs(x[y == label].mean(0) - mean).max() < 5 * 0.5 / np.sqrt(10_000)
        assert np.abs(x[y == label].std(0) - 0.5).max() < 5 * 0.5 / np.sqrt(20_000)
    nearest = ((x[:, None] - means) ** 2).sum(-1).argmin(1)
    assert abs((nearest == y).mean() - 0.955) < 5 * np.sqrt(0.955 * 0.045 / 40_000)


def test_synthetic_lr_follows_the_logistic_likelihood():
    train, test = datasets.synthetic_lr(n=50_000, dim=4)
    assert (train.x.shape, test.x.shape) == ((40_000, 4), (10_000, 4))
    x, y = np.asarray(train.x, float), np.asarray(train.y)
    assert np.abs(x.mean(0)).max() < 5 / 200 and np.abs(x.std(0) - 1).max() < 5 / 200
    score = 5.0 * x.sum(1)
    chance = 1 / (1 + np.exp(-score))
    # The score of each coefficient at theta = 5 * ones is zero up to its standard error.
    for feature in (np.ones(len(y)), score, *x.T):
        error = np.sqrt(np.sum(chance * (1 - chance) * feature**2))
        assert abs(np.sum((y - chance) * feature)) < 4 * error


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("halfmoon", {"n": 1}, "n is 1; it must be at least 2"),
        ("halfmoon", {"noise": -0.1}, "noise is -0.1; it must be zero or more"),
        ("four_class", {"n": 3}, "n is 3; it must be at least 4"),
        ("synthetic_lr", {"dim": 0}, "dim is 0; it must be at least 1"),
        ("synthetic_lr", {"seed": -1}, "seed is -1; it must be at least 0"),
        ("four_class", {"seed": -1}, "seed is -1; it must be at least 0"),
    ],
)
def test_impossible_sizes_are_refused(name, options, sentence):
    assert refused(lambda: datasets.load(name, **options)) == sentence


def test_names_and_load_agree():
    listed = "halfmoon, four_class, synthetic_lr, phishing, adult, nslkdd"
    assert ", ".join(datasets.names()) == listed
    sentence = f"there is no data set 'webspan'; choose one of {listed}"
    assert refused(lambda: datasets.load("webspan")) == sentence


# The real files


def test_phishing(need):
    raw = np.load(need("phishing_large.npz") / "phishing_large.npz")
    train, test = datasets.phishing()
    assert (train.x.shape, test.x.shape, train.columns[-1]) == ((9950, 11), (1105, 11), "ones")
    np.testing.assert_array_equal(train.x, raw["X"].astype(np.float32))
    np.testing.assert_array_equal(2 * train.y - 1, raw["y"])
    np.testing.assert_array_equal(2 * test.y - 1, raw["yt"])


def test_adult_from_the_raw_files_is_the_prepared_one(need):
    raw = np.load(need("adult.data.gz", "adult.test.gz", "adult.npz") / "adult.npz")
    train, test = datasets.adult()
    np.testing.assert_allclose(train.x, raw["X"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(test.x, raw["Xt"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(train.y, raw["y"])
    np.testing.assert_array_equal(test.y, raw["yt"])
    assert (train.y.dtype, train.columns[-1], train.target) == ("int32", "ones", "over_50k")


def test_nslkdd_and_its_shifted_test_set(need):
    raw = np.load(need("nslkdd.npz") / "nslkdd.npz")
    train, test = datasets.nslkdd()
    same, shifted = datasets.nslkdd(shifted=True)
    assert (train.x.shape, test.x.shape, shifted.x.shape[0]) == ((100779, 123), (25194, 123), 22544)
    assert train.columns == tuple(raw["feature_names"].tolist())
    np.testing.assert_array_equal(train.y, raw["y"])
    np.testing.assert_array_equal(same.y, raw["y"])
    np.testing.assert_array_equal(test.x, raw["Xt"])
    np.testing.assert_array_equal(shifted.x, raw["Xo"])
    np.testing.assert_array_equal(shifted.y, raw["yo"])
    assert "NOT webspam" in datasets.nslkdd.__doc__


@pytest.mark.parametrize("name", ["adult.data", "adult.test"])
def test_checksums_are_those_of_the_unpacked_files(need, name):
    content = gzip.decompress((need(f"{name}.gz") / f"{name}.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == datasets.SOURCES[name].sha256


# Missing and damaged files


@pytest.mark.parametrize(
    ("loader", "name", "more"),
    [
        (datasets.phishing, "phishing_large.npz", ""),
        (datasets.nslkdd, "nslkdd.npz", ""),
        (datasets.adult, "adult.data", ", or install pooch to download it"),
    ],
)
def test_a_missing_file_says_where_it_was_looked_for(folder, loader, name, more):
    assert refused(loader) == (
        f"{name} was not found in {folder} or {folder.parent / 'cache' / 'coresetvi'}; "
        f"put {name} into the folder that $CORESETVI_DATA names{more}"
    )


def save_phishing(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {"X": rng.normal(size=(50, 11)), "y": rng.choice([-1.0, 1.0], 50)}
    arrays |= {"Xt": arrays["X"][:5], "yt": arrays["y"][:5]}
    arrays |= changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})


def test_the_cache_is_searched_too(folder, monkeypatch):
    cache = folder.parent / "cache" / "coresetvi"
    cache.mkdir()
    save_phishing(cache / "phishing_large.npz")
    assert datasets.phishing()[0].x.shape == (50, 11)
    monkeypatch.delenv("CORESETVI_DATA")
    assert datasets.phishing()[1].x.shape == (5, 11)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(folder))
    assert f"was not found in {folder}/.cache/coresetvi; put" in refused(datasets.phishing)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"yt": None}, "yt is not a file in the archive"),
        ({"y": np.full(50, 2.0)}, r"X needs one label of \(-1, 1\) per row"),
        ({"y": np.ones(49)}, r"X needs one label of \(-1, 1\) per row"),
        ({"Xt": np.full((5, 11), np.nan)}, "Xt is not a table of finite numbers"),
        ({"X": np.array([["a"]])}, "X is not a table of finite numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_damage(folder, changes, reason):
    path = folder / "phishing_large.npz"
    save_phishing(path, **changes)
    with pytest.raises(InputError, match=rf"{path} is damaged \(.*{reason}.*\); replace it"):
        datasets.phishing()


@pytest.mark.parametrize("damage", ["empty", "half", "flipped", "text"])
def test_broken_archives_are_damage(folder, damage):
    path = folder / "phishing_large.npz"
    save_phishing(path)
    content = bytearray(path.read_bytes())
    content[1000] ^= 0xFF
    half = content[: len(content) // 2]
    broken = {"empty": b"", "half": half, "flipped": content, "text": b"<html>not found</html>"}
    path.write_bytes(broken[damage])
    assert refused(datasets.phishing).startswith(f"{path} is damaged (")


ROW = b"39, State-gov, 7, Bachelors, 13, Never, Clerk, No, White, Male, 1, 0, 40, Cuba, <=50K\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("adult.data", ROW, "1 data rows instead of 32561"),
        ("adult.data", b"", "0 data rows instead of 32561"),
        ("adult.data", ROW * 32_560 + ROW.replace(b"<=", b"=="), "an income other than"),
        ("adult.data", ROW * 32_560 + ROW.replace(b"39", b"old"), "could not convert string to"),
        ("adult.data", ROW.replace(b"Cuba", b"\xff"), "'ascii' codec can't decode"),
        ("adult.data.gz", ROW, "Not a gzipped file"),
        ("adult.data.gz", gzip.compress(ROW, mtime=0)[:-9], "Compressed file ended before"),
    ],
)
def test_broken_adult_files_are_damage(folder, name, content, reason):
    (folder / name).write_bytes(content)
    sentence = refused(datasets.adult)
    assert sentence.startswith(f"{folder / name} is damaged ({reason}")
    assert sentence.endswith("); replace it with an intact copy")


# Download


def test_adult_is_downloaded_into_the_cache(need, tmp_path, monkeypatch):
    shared = need("adult.data.gz", "adult.test.gz")
    asked = []

    def retrieve(url, known_hash, fname, path):  # as pooch does, but from the shared folder
        content = gzip.decompress((shared / f"{fname}.gz").read_bytes())
        assert known_hash == "sha256:" + hashlib.sha256(content).hexdigest()
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(content)
        asked.append(url)
        return str(path / fname)

    monkeypatch.setitem(sys.modules, "pooch", SimpleNamespace(retrieve=retrieve))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CORESETVI_DATA")
    downloaded, cached = datasets.adult(), datasets.adult()
    assert [len(part) for part in downloaded] == [30_162, 15_060]
    for one, two in zip(downloaded, cached, strict=True):
        np.testing.assert_array_equal(one.x, two.x)
    base = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
    assert asked == [base + "adult.data", base + "adult.test"]


def test_a_failed_download_is_one_sentence(folder, monkeypatch):
    def retrieve(url, known_hash, fname, path):
        raise OSError("no route\nto host")

    monkeypatch.setitem(sys.modules, "pooch", SimpleNamespace(retrieve=retrieve))
    sentence = refused(datasets.adult)
    assert "adult.data gave an error (no route to host); put adult.data into" in sentence
