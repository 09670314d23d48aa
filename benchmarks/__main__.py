"""`make bench`: measure, write `results.json` and `docs/performance.md`."""

import argparse
import json
import os
import time
from pathlib import Path

from benchmarks import (
    chains,
    constructions,
    early_stopping,
    fresh_verdicts,
    images,
    passes,
    posterior,
    quality,
    speed,
    unit_weights,
    verdicts,
    waiting,
)
from benchmarks.report import write_report
from coresetvi.fitting.artefact import provenance

FOLDER = Path(__file__).parent
PARTS = {
    "speed": speed.run,
    "mean_field": quality.mean_field,
    "exact": quality.exact,
    "halfmoon": quality.halfmoon,
    "constructions": constructions.run,
    "early_stopping": early_stopping.run,
    "additions": constructions.paper_settings,
    "continual": constructions.continual,
    "pruning": constructions.pruning,
    "nuts": posterior.nuts,
    "million": posterior.million,
    "network_nuts": posterior.halfmoon,
    "verdicts": verdicts.run,
    "fresh_verdicts": fresh_verdicts.run,
    "images": images.run,
    "unit_weights": unit_weights.run,
    "waiting": waiting.run,
    "passes": passes.run,
    "chains": chains.run,
}


def main() -> None:
    """Run all parts, or those named; parts not run keep their last result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; all when none is named")
    wanted = parser.parse_args().parts or list(PARTS)
    if unknown := sorted(set(wanted) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    path = FOLDER / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in wanted:
        before, began = os.getloadavg()[0], time.perf_counter()
        print(f"{name} …", flush=True)
        results[name] = {
            "result": PARTS[name](),
            "load_before": before,
            "load_after": os.getloadavg()[0],
            "minutes": (time.perf_counter() - began) / 60.0,
            "made_with": {**provenance(), "cores": os.cpu_count()},
        }
        path.write_text(json.dumps(results, indent=2) + "\n")
        print(f"{name}: {results[name]['minutes']:.1f} min", flush=True)
    write_report(results, FOLDER.parent / "docs" / "performance.md")


if __name__ == "__main__":
    main()
