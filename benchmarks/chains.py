"""Default fits where no normal is the posterior, against long chains on all rows.

`python -m benchmarks.chains NAME [KEY ...]` runs one problem. Every fit has a process of its own, without
kept programs, so that its seconds hold all that a user waits for.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable

from benchmarks import chain_calibration
from benchmarks.chain_problems import PROBLEMS, SPLITS, UCI, Problem, problem
from benchmarks.chain_scores import Record, groups, network, regression_network

KEYS = (0, 1, 2)
TIMES = ("fit_seconds", "share_of_time")
TARGETS = {
    "halfmoon": {"entropy": 0.006, "kl": 0.6, "least_ess": 0.40, "fit_seconds": 60.0},
    "fourclass": {"entropy": 0.006, "kl": 0.6, "least_ess": 0.40, "fit_seconds": 60.0},
    "uci": {"nll_gap": 0.15},
    "multilevel": {"mean": 0.2, "deviation": 0.15, "share_of_time": 0.1},
    "varying": {"mean": 0.15, "deviation": 0.10},
}


def scorer(name: str) -> Callable[[Problem, int, int], Record]:
    """What a problem is scored by."""
    if name.startswith("uci"):
        return regression_network
    return network if name in ("halfmoon", "fourclass") else groups


def judged(record: Record) -> Record:
    """With the targets that it misses; where none is set, none is missed."""
    name = str(record["problem"]).split("_")[0]
    misses = []
    for target, bound in TARGETS.get(name, {}).items():
        least = target.startswith("least_")
        value = float(str(record[target.removeprefix("least_")]))
        if not (value >= bound if least else value <= bound):
            misses.append(f"{target.removeprefix('least_')} {value:.3g}, wanted {bound}")
    # A fit that is off must not end as if nothing had happened.
    off = [miss for miss in misses if not miss.startswith(TIMES)]
    honest = not off or record["result"] != "finished" or bool(record["warnings"])
    return record | {"misses": misses, "honest": honest}


def alone(name: str, key: int, size: int | None = None) -> list[Record]:
    """One problem and key in a process of its own, without programs that earlier ones have compiled."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.chains",
        "one",
        name,
        str(key),
        *([str(size)] if size else []),
    ]
    environment = {**os.environ, "CORESETVI_CACHE": "off"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def one(name: str, key: int, size: int | None = None) -> None:
    """Score the problem at its sizes, or at one."""
    known = problem(name)
    for points in known.sizes if size is None else (size,):
        print(json.dumps(judged(scorer(name)(known, points, key))), flush=True)


def names(wanted: str) -> list[str]:
    """The problems that a word stands for: `uci` is all of them."""
    if wanted == "uci":
        return [f"uci_{name}_{split}" for name in UCI for split in SPLITS]
    return [wanted]


def problem_records(wanted: str, keys: tuple[int, ...]) -> list[Record]:
    """Score problems, and print a line for each fit."""
    records = []
    for name in names(wanted):
        for key in keys:
            for size in problem(name).sizes:
                for record in alone(name, key, size):
                    print(json.dumps(record), flush=True)
                    records.append(record)
    return records


def run() -> dict[str, list[Record]]:
    """All problems with three keys; the regressions of UCI have three splits and one key each."""
    found = {}
    for wanted in (
        "halfmoon",
        "fourclass",
        "uci",
        "multilevel",
        "varying",
        "varying_centred",
        "varying_large",
    ):
        found[wanted] = problem_records(wanted, KEYS[:1] if wanted in ("uci", "varying_large") else KEYS)
    found["sbc"] = chain_calibration.run()
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], *map(int, sys.argv[3:]))
        sys.exit()
    if len(sys.argv) < 2 or not {sys.argv[1]} & {"sbc", "uci", *PROBLEMS}:
        sys.exit(
            f"python -m benchmarks.chains NAME [KEY ...]; NAME is one of sbc, uci, {', '.join(PROBLEMS)}."
        )
    if sys.argv[1] == "sbc":
        chain_calibration.run()
    else:
        problem_records(sys.argv[1], tuple(map(int, sys.argv[2:])) or KEYS)
