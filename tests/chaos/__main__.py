"""Run the scenarios within limits of time and number; print and keep what was lost."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos import cluster, files
from chaos.trial import Scenario, say

SCENARIOS = [*files.SCENARIOS, *cluster.SCENARIOS]
KEPT = Path(__file__).parents[2] / "build" / "robustness.json"


def run(scenario: Scenario, trials: int, until: float, seed: int) -> dict[str, Any]:
    """Run the trials of a scenario until its time is over."""
    counts: dict[str, Any] = {"trials": 0, "interrupted": 0, "lost": 0, "skipped": 0, "what": []}
    with tempfile.TemporaryDirectory(prefix="arbora-chaos-") as top:
        for number in range(trials):
            if time.monotonic() > until and number:
                break
            folder = Path(top, str(number))
            folder.mkdir()
            outcome = scenario.run(random.Random(seed + number), folder)
            if outcome.lost.startswith("skipped"):
                counts["skipped"] += 1
                continue
            counts["trials"] += 1
            counts["interrupted"] += outcome.interrupted
            if outcome.lost:
                counts["lost"] += 1
                counts["what"].append(f"{seed + number}: {outcome.lost[:200]}")
                say(f"{scenario.name}, seed {seed + number}: {outcome.lost}")
    return counts


def keep(name: str, about: str, counts: dict[str, Any]) -> None:
    """Add the counts to those of earlier runs."""
    KEPT.parent.mkdir(exist_ok=True)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    old = kept.setdefault("chaos", {}).setdefault(name, {"about": about})
    for key, value in counts.items():
        old[key] = old.get(key, type(value)()) + value
    KEPT.write_text(json.dumps(kept, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="time for all scenarios together")
    parser.add_argument("--trials", type=int, default=10, help="trials of each scenario")
    parser.add_argument("--only", action="append", choices=[one.name for one in SCENARIOS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="add the counts to build/robustness.json")
    options = parser.parse_args()
    chosen = [one for one in SCENARIOS if not options.only or one.name in options.only]
    with tempfile.TemporaryDirectory(prefix="arbora-chaos-") as top:
        files.warm_up(Path(top))
    lost, left = 0, options.minutes * 60
    for number, scenario in enumerate(chosen):
        begun = time.monotonic()
        counts = run(scenario, options.trials, begun + left / (len(chosen) - number), options.seed)
        left -= time.monotonic() - begun
        lost += counts["lost"]
        print(f"{scenario.name}: {counts}", flush=True)
        if options.keep:
            keep(scenario.name, scenario.about, counts)
    print(f"{lost} losses")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
