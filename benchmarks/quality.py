"""How close coreset posteriors come to the full-data posterior, defaults untouched."""

import numpy as np

import coresetvi as cvi
from benchmarks.reference import gaussian_kl, laplace

KEYS = (0, 1, 2)


def mean_field() -> list[dict[str, object]]:
    """MeanField, M = 20 and 40: test NLL and KL(coreset r || full-data r) against full-data VI."""
    rows = []
    for name in ("phishing", "adult"):
        train, test = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.x.shape[1])
        family = cvi.families.MeanField()
        full = cvi.fit(cvi.FullVI(family), model, train, key=0)
        full_nll = full.evaluate(test)["nll"]
        ceiling = gaussian_kl(*family.moments(full.psi), *laplace(train.x, train.y, train.weights))
        for size in (20, 40):
            for key in KEYS:
                fitted = cvi.fit(cvi.BBPSVI(size, family=family), model, train, key=key)
                nll = fitted.evaluate(test)["nll"]
                rows.append(
                    {
                        "data": name,
                        "size": size,
                        "key": key,
                        "nll": nll,
                        "full_nll": full_nll,
                        "full_r_kl": ceiling,
                        "nll_gap_percent": 100.0 * (nll / full_nll - 1.0),
                        "kl_to_full_r": gaussian_kl(*family.moments(fitted.psi), *family.moments(full.psi)),
                        "seconds": fitted.seconds["run"],
                        "compile_seconds": fitted.seconds["compile"],
                        "steps": len(fitted.history["loss"]),
                        "ess": fitted.reliability()["ess"],
                    }
                )
    return rows


def exact() -> list[dict[str, object]]:
    """Everything default: Gaussian KL of the Laplace posterior on the coreset to that on all the data."""
    rows = []
    for name in ("phishing", "adult"):
        train, test = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.x.shape[1])
        target = laplace(train.x, train.y, train.weights)
        for size in (20, 40, 100):
            for key in KEYS:
                fitted = cvi.fit(cvi.BBPSVI(size), model, train, key=key)
                posterior = laplace(fitted.coreset.x, fitted.coreset.y, fitted.coreset.weights)
                rows.append(
                    {
                        "data": name,
                        "size": size,
                        "key": key,
                        "kl": gaussian_kl(*posterior, *target),
                        "estimated_kl": float(np.mean(fitted.history["kl"][-20:])),
                        "nll": fitted.evaluate(test)["nll"],
                        "seconds": fitted.seconds["run"],
                        "compile_seconds": fitted.seconds["compile"],
                        "steps": len(fitted.history["loss"]),
                        **{k: fitted.reliability()[k] for k in ("ess", "khat")},
                    }
                )
    return rows


def halfmoon() -> list[dict[str, object]]:
    """Half-moon BNN, M = 20, both starts, against full-data VI: test accuracy and NLL over three keys."""
    train, test = cvi.datasets.halfmoon()
    model = cvi.models.BayesianMLP(2, hidden=(20,), num_classes=2)
    constructions = {
        "full-data VI": cvi.FullVI(cvi.families.MeanField()),
        "random subset": cvi.RandomSubset(20, cvi.families.MeanField()),
        "BB PSVI, subset start": cvi.BBPSVI(20),
        "BB PSVI, noise start": cvi.BBPSVI(20, init="noise"),
    }
    rows = []
    for name, construction in constructions.items():
        for key in KEYS:
            fitted = cvi.fit(construction, model, train, key=key)
            scores = fitted.evaluate(test)
            rows.append({"method": name, "key": key, "seconds": fitted.seconds["run"], **scores})
    return rows
