"""Run the targets in child processes, within limits of time and number; print and keep the counts."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fuzz.target import Target
from fuzz.targets import TARGETS

START = 600.0  # seconds for the preparation of a target
KEPT = Path(__file__).parents[2] / "build" / "robustness.json"


def run_target(target: Target, seeds: range, seconds: float, findings: Path) -> dict[str, Any]:
    """Give the inputs of some seeds to a target, in a process of its own."""
    environment = {**os.environ, "ARBORA_CHECK": "1" if target.checked else "0"}
    command = [sys.executable, "-m", "fuzz.child", target.name, str(seeds.start), str(len(seeds))]
    begun = time.monotonic()
    ended = subprocess.run(
        [*command, str(seconds), str(findings)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds + START,
    )
    counts: dict[str, Any] = json.loads(ended.stdout)
    return {**counts, "seconds": round(time.monotonic() - begun, 1)}


def keep(results: dict[str, dict[str, Any]], first: int) -> None:
    """Add the counts to those of earlier runs."""
    KEPT.parent.mkdir(exist_ok=True)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    fuzz = kept.setdefault("fuzz", {})
    for name, counts in results.items():
        old = fuzz.setdefault(name, dict.fromkeys(counts, 0))
        for key, value in counts.items():
            old[key] = max(old[key], value) if key == "peak" else round(old[key] + value, 1)
        old["about"] = next(target.about for target in TARGETS if target.name == name)
        old["next_seed"] = max(old.get("next_seed", 0), first + counts["inputs"])
    KEPT.write_text(json.dumps(kept, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="time for all targets together")
    parser.add_argument("--count", type=int, default=100_000, help="inputs of all targets together")
    parser.add_argument("--only", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--seed", type=int, help="first seed; default: after those of earlier runs")
    parser.add_argument("--keep", action="store_true", help="add the counts to build/robustness.json")
    parser.add_argument("--findings", type=Path, default=Path("build/findings.jsonl"))
    options = parser.parse_args()
    chosen = [target for target in TARGETS if not options.only or target.name in options.only]
    options.findings.parent.mkdir(exist_ok=True)
    total = sum(target.share for target in chosen)
    kept = json.loads(KEPT.read_text()).get("fuzz", {}) if KEPT.exists() else {}
    results, bad, left = {}, 0, options.minutes * 60
    for number, target in enumerate(chosen):
        first = kept.get(target.name, {}).get("next_seed", 0) if options.seed is None else options.seed
        count = max(1, round(options.count * target.share / total))
        seconds = left / (len(chosen) - number)  # what others do not need is left for the rest
        counts = run_target(target, range(first, first + count), max(1.0, seconds), options.findings)
        left -= counts["seconds"]
        results[target.name] = counts
        bad += counts["unclean"] + counts["crashed"] + counts["hung"]
        print(f"{target.name}: {counts}", flush=True)
        if options.keep:
            keep({target.name: counts}, first)
    inputs = sum(counts["inputs"] for counts in results.values())
    print(f"{inputs:,} inputs, {bad} findings" + (f": see {options.findings}" if bad else ""))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
