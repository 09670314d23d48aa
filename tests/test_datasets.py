"""Named data sets: the generators' distributions, the files, and what is said without them."""

import gzip
import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from data_files import folder_with

from coresetvi import datasets
from coresetvi.datasets import classification as tables
from coresetvi.errors import InputError


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


UCI = "boston, concrete, energy, kin8nm, naval, power-plant, protein, wine-quality-red, yacht".split(", ")


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
    assert np.bincount(np.asarray(train.y)).tolist() == [1000 // classes] * classes
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
    listed = "halfmoon, four_class, synthetic_lr, phishing, adult, nslkdd, webspam, mnist"
    listed += "".join(f", uci_{name}" for name in UCI)
    assert ", ".join(datasets.names()) == listed
    sentence = f"there is no data set 'webspan'; choose one of {listed}"
    assert refused(lambda: datasets.load("webspan")) == sentence


# The real files


def test_phishing():
    raw = np.load(folder_with("phishing_large.npz") / "phishing_large.npz")
    train, test = datasets.phishing()
    assert (train.x.shape, test.x.shape, train.columns[-1]) == ((9950, 11), (1105, 11), "ones")
    np.testing.assert_array_equal(train.x, raw["X"].astype(np.float32))
    np.testing.assert_array_equal(2 * np.asarray(train.y) - 1, raw["y"])
    np.testing.assert_array_equal(2 * np.asarray(test.y) - 1, raw["yt"])


def test_adult_from_the_raw_files_is_the_prepared_one():
    raw = np.load(folder_with("adult.data.gz", "adult.test.gz", "adult.npz") / "adult.npz")
    train, test = datasets.adult()
    np.testing.assert_allclose(train.x, raw["X"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(test.x, raw["Xt"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(train.y, raw["y"])
    np.testing.assert_array_equal(test.y, raw["yt"])
    assert (train.y.dtype, train.columns[-1], train.target) == ("int32", "ones", "over_50k")


def test_nslkdd_and_its_shifted_test_set():
    raw = np.load(folder_with("nslkdd.npz") / "nslkdd.npz")
    train, test = datasets.nslkdd()
    same, shifted = datasets.nslkdd(shifted=True)
    assert (train.x.shape, test.x.shape, shifted.x.shape[0]) == ((100779, 123), (25194, 123), 22544)
    assert train.columns == tuple(raw["feature_names"].tolist())
    np.testing.assert_array_equal(train.y, raw["y"])
    np.testing.assert_array_equal(same.y, raw["y"])
    np.testing.assert_array_equal(test.x, raw["Xt"])
    np.testing.assert_array_equal(shifted.x, raw["Xo"])
    np.testing.assert_array_equal(shifted.y, raw["yo"])
    assert "NOT webspam" in (datasets.nslkdd.__doc__ or "")


def test_mnist():
    folder = folder_with(*(f"{part}-idx{axes}-ubyte.gz" for part, axes in MNIST))
    train, test = datasets.mnist()
    assert (train.x.shape, test.x.shape) == ((60_000, 28, 28, 1), (10_000, 28, 28, 1))
    assert (train.x.dtype, train.y.dtype) == ("float32", "int32")
    assert np.bincount(np.asarray(test.y)).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # The published mean and deviation of the training pixels, to the digits that are known.
    background, ink = float(train.x.min()), float(train.x.max())
    deviation = 1.0 / (ink - background)
    assert (round(-background * deviation, 4), round(deviation, 4)) == (0.1307, 0.3081)
    raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    pixel = 16 + 9_999 * 784 + 14 * 28 + 15  # row 14, column 15 of the last image
    expected = (raw[pixel] / 255 - 0.13066) / 0.30811
    assert float(test.x[9_999, 14, 15, 0]) == pytest.approx(expected, abs=1e-4)
    few, same = datasets.load("mnist", num_train=7)
    np.testing.assert_array_equal(few.x, train.x[:7])
    np.testing.assert_array_equal(few.y, train.y[:7])
    np.testing.assert_array_equal(same.x[:7], test.x[:7])
    assert len(same) == 10_000


@pytest.mark.parametrize("name", UCI)
def test_uci(name):
    raw = np.load(folder_with(f"uci_{name}.npz") / f"uci_{name}.npz")
    (train, test), (other, _) = datasets.uci(name), datasets.load(f"uci_{name}", split=3)
    rows = np.delete(np.arange(len(raw["y"])), raw["test_idx_0"])
    np.testing.assert_array_equal(train.x, raw["X"][rows].astype(np.float32))
    np.testing.assert_array_equal(train.y, raw["y"][rows].astype(np.float32))
    np.testing.assert_array_equal(test.y, raw["y"][np.sort(raw["test_idx_0"])].astype(np.float32))
    assert len(other) == len(raw["y"]) - len(raw["test_idx_3"])
    assert not np.array_equal(other.x, train.x)


@pytest.mark.parametrize("name", ["adult.data", "adult.test"])
def test_checksums_are_those_of_the_unpacked_files(name):
    content = gzip.decompress((folder_with(f"{name}.gz") / f"{name}.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == datasets.SOURCES[name].sha256


# Missing and damaged files


@pytest.mark.parametrize(
    ("loader", "name", "more"),
    [
        (datasets.phishing, "phishing_large.npz", ""),
        (datasets.nslkdd, "nslkdd.npz", ""),
        (datasets.adult, "adult.data", ", or install pooch to download it"),
        (datasets.webspam, "webspam_wc_normalized_unigram.svm", ""),
        (datasets.mnist, "train-images-idx3-ubyte", ""),
        (lambda: datasets.uci("yacht"), "uci_yacht.npz", ""),
    ],
    ids=["phishing", "nslkdd", "adult", "webspam", "mnist", "uci"],
)
def test_a_missing_file_says_where_it_was_looked_for(folder, loader, name, more):
    assert refused(loader) == (
        f"{name} was not found in {folder} or {folder.parent / 'cache' / 'coresetvi'}; "
        f"put {name} into the folder that $CORESETVI_DATA names{more}"
    )


WEBSPAM = "webspam_wc_normalized_unigram.svm"


def write_webspam(folder, monkeypatch, *lines):
    """Eight rows of 130 features, the first three of which hardly vary; then `lines`."""
    monkeypatch.setattr(tables, "_WEBSPAM_ROWS", (6, 2))
    rng = np.random.default_rng(0)
    rows = []
    for number in range(8):
        values = rng.normal(size=130) * np.r_[np.full(3, 1e-3), np.ones(127)]
        pairs = " ".join(f"{place + 1}:{value:.6f}" for place, value in enumerate(values))
        rows.append(f"{'+1' if number % 2 else '-1'} {pairs}")
    (folder / WEBSPAM).write_text("\n".join([*rows, *lines]) + "\n")


def test_webspam_keeps_the_features_that_vary(folder, monkeypatch):
    write_webspam(folder, monkeypatch)
    train, test = datasets.webspam()
    assert (train.x.shape, test.x.shape) == ((6, 128), (2, 128))
    assert train.columns[0] == "unigram_4" and train.columns[-2:] == ("unigram_130", "ones")
    np.testing.assert_allclose(np.asarray(train.x[:, :-1]).mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(np.asarray(train.x[:, :-1]).std(axis=0), 1.0, rtol=1e-4)
    assert sorted(np.r_[train.y, test.y].tolist()) == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("line", "reason"),
    [("2 1:0.5", "a label other than"), ("1 0.5", "not enough values"), ("1 1:inf", "not finite")],
)
def test_a_damaged_webspam_file_is_named(folder, monkeypatch, line, reason):
    write_webspam(folder, monkeypatch, line)
    found = refused(datasets.webspam)
    assert found.startswith(f"{folder / WEBSPAM} is damaged") and reason in found


def save_phishing(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {"X": rng.normal(size=(50, 11)), "y": rng.choice([-1.0, 1.0], 50)}
    arrays |= {"Xt": arrays["X"][:5], "yt": arrays["y"][:5]}
    arrays |= changes
    kept: dict[str, Any] = {key: value for key, value in arrays.items() if value is not None}
    np.savez(path, **kept)


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


MNIST = (("train-images", 3), ("train-labels", 1), ("t10k-images", 3), ("t10k-labels", 1))


def idx(array, kind=8):
    """An array of bytes in the IDX format, written from its definition."""
    header = bytes([0, 0, kind, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def save_mnist(folder, **changes):
    """Five training images, gzipped, and three test images; changes go by "t10k_labels" and the like."""
    rng = np.random.default_rng(0)
    contents = {}
    for part, count in (("train", 5), ("t10k", 3)):
        contents[f"{part}-images"] = idx(rng.integers(0, 256, (count, 28, 28)))
        contents[f"{part}-labels"] = idx(rng.integers(0, 10, count))
    for part, axes in MNIST:
        content = changes.get(part.replace("-", "_"), contents[part])
        packed = part.startswith("train")
        name = f"{part}-idx{axes}-ubyte" + ".gz" * packed
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return contents


def test_mnist_has_one_mean_and_deviation_gzipped_or_not(folder):
    contents = save_mnist(folder)
    pixels = np.frombuffer(contents["train-images"][16:], np.uint8).reshape(5, 28, 28, 1) / 255
    test_pixels = np.frombuffer(contents["t10k-images"][16:], np.uint8).reshape(3, 28, 28, 1) / 255
    train, test = datasets.mnist()
    np.testing.assert_allclose(train.x, (pixels - pixels.mean()) / pixels.std(), atol=2e-6)
    np.testing.assert_allclose(test.x, (test_pixels - pixels.mean()) / pixels.std(), atol=2e-6)
    assert train.y.tolist() == list(contents["train-labels"][8:])
    for num_train in (0, 6):
        sentence = refused(lambda: datasets.mnist(num_train=num_train))  # noqa: B023
        assert sentence == f"num_train is {num_train}; it must be from 1 to 5, as many as there are"


IMAGES, LABELS = np.zeros((3, 28, 28), int), np.arange(3)


@pytest.mark.parametrize(
    ("part", "content", "reason"),
    [
        ("t10k_images", b"", "it does not begin like t10k-images-idx3-ubyte"),
        ("t10k_images", idx(IMAGES)[:10], "it does not begin like t10k-images-idx3-ubyte"),
        ("t10k_images", idx(IMAGES, kind=13), "it does not begin like t10k-images-idx3-ubyte"),
        ("t10k_images", idx(LABELS), "it does not begin like t10k-images-idx3-ubyte"),
        ("t10k_images", idx(IMAGES)[:-1], "2351 bytes of entries instead of 2352"),
        ("t10k_images", idx(IMAGES) + b"0", "2353 bytes of entries instead of 2352"),
        ("t10k_images", idx(IMAGES[:, :, :27]), "3 entries of shape (28, 27) instead of (28, 28)"),
        ("t10k_images", idx(IMAGES[:0]), "0 entries of shape (28, 28) instead of (28, 28)"),
        ("t10k_labels", idx(LABELS[:2]), "2 labels for 3 images"),
        ("t10k_labels", idx(LABELS + 8), "a label is 10, not a digit"),
    ],
    ids=["empty", "short", "floats", "labels", "cut", "longer", "narrow", "none", "few labels", "label 10"],
)
def test_broken_mnist_files_are_damage(folder, part, content, reason):
    save_mnist(folder, **{part: content})
    name = "t10k-images-idx3-ubyte" if part == "t10k_images" else "t10k-labels-idx1-ubyte"
    expected = f"{folder / name} is damaged ({reason}); replace it with an intact copy"
    assert refused(datasets.mnist) == expected


def test_broken_packing_of_mnist_is_damage(folder):
    save_mnist(folder)
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(datasets.mnist).startswith(f"{path} is damaged (Compressed file ended before")


def save_uci(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {"X": rng.normal(size=(10, 3)), "y": rng.normal(size=10)}
    arrays |= {f"test_idx_{split}": np.array([split, 9]) for split in range(3)}
    arrays |= changes
    kept: dict[str, Any] = {key: value for key, value in arrays.items() if value is not None}
    np.savez(path, **kept)


def test_uci_names_and_splits_that_do_not_exist_are_told(folder):
    save_uci(folder / "uci_yacht.npz")
    assert [len(part) for part in datasets.uci("yacht", 2)] == [8, 2]
    sentence = "yacht has no split 3; those in uci_yacht.npz are 0, 1, 2"
    assert refused(lambda: datasets.uci("yacht", 3)) == sentence
    sentence = f"there is no regression '../yacht'; choose one of {', '.join(UCI)}"
    assert refused(lambda: datasets.uci("../yacht")) == sentence


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"X": None}, "X is missing"),
        ({"y": None}, "y is missing"),
        ({"X": np.ones(10)}, "X is not a table of finite numbers"),
        ({"y": np.ones(9)}, "y needs one finite number per row"),
        ({"y": np.full(10, np.inf)}, "y needs one finite number per row"),
        ({"y": np.full(10, "a")}, "y needs one finite number per row"),
        *[
            ({"test_idx_0": np.array(rows)}, "test_idx_0 is no list of different rows")
            for rows in ([10], [-1], [1, 1], [0.0, 1.0], [[1]], np.zeros(0, int), np.arange(10))
        ],
    ],
    ids=lambda value: value if isinstance(value, str) else "".join(value),
)
def test_broken_uci_files_are_damage(folder, changes, reason):
    save_uci(folder / "uci_yacht.npz", **changes)
    expected = f"{folder / 'uci_yacht.npz'} is damaged ({reason}); replace it with an intact copy"
    assert refused(lambda: datasets.uci("yacht")) == expected


# Download


def test_adult_is_downloaded_into_the_cache(tmp_path, monkeypatch):
    shared = folder_with("adult.data.gz", "adult.test.gz")
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
