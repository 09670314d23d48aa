"""Every construction on the same data, beside the paper's rows: how far each is from full-data VI."""

import csv
import math
import os
import time
from pathlib import Path

import numpy as np

import coresetvi as cvi
from coresetvi.inner import Unrolled
from coresetvi.posterior.distances import gaussian_kl, laplace_moments

KEYS = (0, 1, 2)
SIZES = (10, 40, 100)
WHOLE = ("Full MFVI", "all")
# Ours, and the name of its row in the paper's Tables 1 and 2 (None: not in the paper).
METHODS = {
    "BB PSVI": (cvi.BBPSVI, "v*,u,alpha"),
    "BB Sparse VI, batch": (cvi.BBSparseVI, "BB Sparse VI batch"),
    "BB Sparse VI, incremental": (cvi.GreedyBBSparseVI, "BB Sparse VI incremental"),
    "PSVI": (cvi.PSVI, "PSVI"),
    "Sparse VI": (cvi.SparseVI, "Sparse VI"),
    "quasi-Newton": (cvi.QuasiNewton, None),
    "GIGA": (cvi.GIGA, None),
    "Frank-Wolfe": (cvi.FrankWolfe, None),
    "importance sampling": (cvi.ImportanceSampling, None),
    "hard thresholding": (cvi.HardThresholding, None),
    "random subset": (cvi.RandomSubset, "Random coreset"),
    "subset Laplace": (cvi.SubsetLaplace, "Subset Laplace"),
}


def run() -> dict[str, object]:
    """phishing and adult at M = 10, 40, 100, three keys, defaults untouched."""
    rows, full = [], []
    for name in ("phishing", "adult"):
        train, test = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.x.shape[1])
        target = laplace_moments(model, train)
        yardsticks = [cvi.fit(cvi.FullVI(), model, train, key=key) for key in KEYS]
        for key, fitted in zip(KEYS, yardsticks, strict=True):
            r_kl = gaussian_kl(*fitted.family.moments(fitted.psi), *target)
            full.append({"data": name, "key": key, **facts(fitted, test), "r_kl": r_kl})
        full_nll = float(np.mean([row["nll"] for row in full if row["data"] == name]))
        full_accuracy = float(np.mean([row["accuracy"] for row in full if row["data"] == name]))
        for method, (make, _) in METHODS.items():
            for size in SIZES:
                for key in KEYS:
                    fitted = cvi.fit(make(size), model, train, key=key)
                    found = facts(fitted, test)
                    rows.append(
                        {
                            "data": name,
                            "method": method,
                            "size": size,
                            "key": key,
                            **found,
                            "kl": gaussian_kl(*laplace_moments(model, fitted.coreset), *target),
                            "nll_gap": found["nll"] - full_nll,
                            "accuracy_gap": full_accuracy - found["accuracy"],
                        }
                    )
    return {"rows": rows, "full": full, "paper": paper_gaps()}


def facts(fitted: cvi.Fit, test: cvi.Dataset) -> dict[str, float]:
    """Held-out scores, how well r covers the coreset posterior, and the time."""
    quality = fitted.reliability(1000)
    return {
        **fitted.evaluate(test),
        "ess": quality["ess"],
        "khat": quality["khat"] if math.isfinite(quality["khat"]) else 0.0,
        "points": len(fitted.coreset),
        "steps": len(fitted.history["loss"]),
        "seconds": fitted.seconds["run"],
        "compile_seconds": fitted.seconds["compile"],
    }


def paper_gaps() -> list[dict[str, object]]:
    """NLL and accuracy gaps to full-data VI in the paper's own tables, from the data folder's neighbour."""
    path = Path(os.environ.get("CORESETVI_DATA", ".")).parent / "paper" / "tables.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    value = {
        (line["metric"], line["dataset"], line["method"], line["M"]): float(line["mean"]) / 100.0
        for line in lines
        if line["table"] in ("table1", "table2")
    }
    rows = []
    for method, (_, row) in METHODS.items():
        for data in ("phishing", "adult") if row is not None else ():
            for size in SIZES:
                nll, full_nll = (value["nll_x100", data, *which] for which in ((row, str(size)), WHOLE))
                accuracy, full = (value["accuracy", data, *which] for which in ((row, str(size)), WHOLE))
                gaps = {"nll_gap": nll - full_nll, "accuracy_gap": full - accuracy}
                rows.append({"data": data, "method": method, "size": size, **gaps})
    return rows


def paper_settings() -> list[dict[str, object]]:
    """Greedy and Sparse VI with the paper's hyper-parameters, adult, 100 additions: seconds in all."""
    train, test = cvi.datasets.adult()
    model = cvi.models.LogisticRegression(train.x.shape[1])
    common = {
        "family": cvi.families.MeanField(),
        "objective": cvi.objectives.ImportanceElbo(32),
        "optimizer": cvi.outer.Adam(0.01),
        "weight_steps": 200,
        "batch_size": 256,
        "num_candidates": 256,
    }
    inner = Unrolled(num_steps=50, learning_rate=0.1, num_samples=32)
    constructions = {
        "BB Sparse VI, incremental, paper's settings": cvi.GreedyBBSparseVI(100, inner=inner, **common),
        "BB Sparse VI, incremental, defaults": cvi.GreedyBBSparseVI(100),
        "Sparse VI, paper's settings": cvi.SparseVI(100, **common),
        "Sparse VI, defaults": cvi.SparseVI(100),
    }
    rows = []
    for name, construction in constructions.items():
        began = time.perf_counter()
        fitted = cvi.fit(construction, model, train, key=0)
        rows.append({"method": name, "total_seconds": time.perf_counter() - began, **facts(fitted, test)})
    return rows


def continual() -> list[dict[str, object]]:
    """Four classes arriving as 2, 1, 1 with budgets 10, 15, 20, against a network that sees all rows."""
    train, test = cvi.datasets.four_class()
    tasks, budgets = ((0, 1), (2,), (3,)), (10, 15, 20)

    def of(data, classes):
        return data.take(np.isin(np.asarray(data.y), classes))

    def network(num_classes):
        return cvi.models.BayesianMLP(2, hidden=(20,), num_classes=num_classes)

    rows = []
    for key in KEYS:
        full = []
        for stage in range(len(tasks)):
            seen = range(tasks[stage][-1] + 1)
            fitted = cvi.fit(cvi.FullVI(), network(len(seen)), of(train, seen), key=key)
            full.append(fitted.evaluate(of(test, seen))["accuracy"])
        for replay in ("weighted", "samples"):
            learner = cvi.continual(cvi.BBPSVI(10), network(2), key=key, replay=replay)
            for stage, (task, budget) in enumerate(zip(tasks, budgets, strict=True)):
                fitted = learner.update(of(train, task), budget, test=of(test, task))
                seen = of(test, range(task[-1] + 1))
                rows.append(
                    {
                        "replay": replay,
                        "stage": stage + 1,
                        "key": key,
                        "full_accuracy": full[stage],
                        "accuracy": fitted.evaluate(seen)["accuracy"],
                        "uncorrected_accuracy": fitted.evaluate(seen, correct=False)["accuracy"],
                        "forgetting": max(learner.history[-1].forgetting),
                        "seconds": learner.history[-1].seconds,
                    }
                )
    return rows


def pruning() -> list[dict[str, object]]:
    """Half-moon, 250 to 100 to 20 points of the data, against full-data VI."""
    train, test = cvi.datasets.halfmoon()
    model = cvi.models.BayesianMLP(2, hidden=(20,), num_classes=2)
    rows = []
    for key in KEYS:
        full = cvi.fit(cvi.FullVI(), model, train, key=key).evaluate(test)["accuracy"]
        for init in ("spread", "subset"):
            construction = cvi.BBSparseVI(250, init=init)
            last = cvi.prune(construction, model, train, sizes=(250, 100, 20), key=key)
            for stage in (*last.earlier, last):
                rows.append(
                    {
                        "init": init,
                        "size": len(stage.coreset),
                        "key": key,
                        "full_accuracy": full,
                        "accuracy": stage.evaluate(test)["accuracy"],
                        "uncorrected_accuracy": stage.evaluate(test, correct=False)["accuracy"],
                        "seconds": stage.seconds["run"],
                    }
                )
    return rows
