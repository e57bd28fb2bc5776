"""Run the targets in child processes, within limits of time and number; print and keep the counts."""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fuzz.child import STATE
from fuzz.target import Target
from fuzz.targets import TARGETS

HANG = 10.0  # seconds for one input
START = 120.0  # seconds for the preparation of a target, and for an input that compiles kernels
KEPT = Path(__file__).parents[2] / "build" / "robustness.json"


class Watched:
    """A child process and what it has written down."""

    def __init__(self, target: Target, seeds: range, folder: Path, patience: float = HANG) -> None:
        self.seeds, self.state, self.patience = seeds, folder / "state", patience
        self.state.write_bytes(STATE.pack(-1, 0, 0, 0, 0))
        environment = {**os.environ, "ARBORA_CHECK": "1" if target.checked else "0"}
        command = [
            sys.executable,
            "-m",
            "fuzz.child",
            target.name,
            str(seeds.start),
            str(seeds.stop),
            str(folder),
        ]
        self.errors = open(folder / "stderr", "w+")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            command, env=environment, stderr=self.errors, stdout=subprocess.DEVNULL
        )

    def read(self) -> tuple[int, ...]:
        with open(self.state, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as state:
            return STATE.unpack(state[:])

    def wait(self, until: float) -> str:
        """Wait for the end; return "done", "stopped" (out of time), "crashed" or "hung"."""
        seed, since = -1, time.monotonic()
        while self.process.poll() is None:
            time.sleep(0.25)
            now, found = time.monotonic(), self.read()[0]
            if found != seed:
                seed, since = found, now
            elif now - since > (self.patience if seed >= 0 else START):
                self.end()
                return "hung"
            if now > until:
                self.end()
                return "stopped"
        return "done" if self.process.returncode == 0 else "crashed"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def hangs_again(target: Target, seed: int) -> bool:
    """Repeat an input that took too long: once with patience, since kernels may be compiled, and once without."""
    for patience in (START, HANG):
        with tempfile.TemporaryDirectory(prefix="arbora-fuzz-") as name:
            child = Watched(target, range(seed, seed + 1), Path(name), patience)
            if child.wait(time.monotonic() + 2 * START) != "done":
                return True
    return False


def run_target(target: Target, seeds: range, until: float, findings: Path) -> dict[str, Any]:
    """Give the inputs of some seeds to a target; a child that dies or hangs is a finding, and is replaced."""
    counts: dict[str, Any] = dict.fromkeys(("inputs", "accepted", "refused", "unclean", "crashed", "hung"), 0)
    counts |= {"peak": 0, "seconds": 0.0}
    started = time.monotonic()
    while len(seeds) and time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="arbora-fuzz-") as name:
            folder = Path(name)
            child = Watched(target, seeds, folder)
            end = child.wait(until)
            seed, accepted, refused, unclean, peak = child.read()
            counts["inputs"] += accepted + refused + unclean + (end in ("crashed", "hung"))
            if end == "hung" and seed >= 0 and not hangs_again(target, seed):
                counts["accepted"] += 1
                end = "slow"
            counts["accepted"] += accepted
            counts["refused"] += refused
            counts["unclean"] += unclean
            counts["peak"] = max(counts["peak"], peak // 1024)
            if (folder / "findings.jsonl").exists():
                with open(findings, "a") as file:
                    file.write((folder / "findings.jsonl").read_text())
            if end in ("crashed", "hung"):
                counts[end] += 1
                child.errors.seek(0)
                about = {"target": target.name, "seed": seed, "what": end, "code": child.process.returncode}
                with open(findings, "a") as file:
                    file.write(json.dumps(about | {"stderr": child.errors.read()[-3000:]}) + "\n")
                print(f"{target.name}: {end} at seed {seed}", file=sys.stderr, flush=True)
            if end == "stopped" or seed < 0:
                break
            seeds = range(seed + 1 if end != "done" else seeds.stop, seeds.stop)
    counts["seconds"] = round(time.monotonic() - started, 1)
    return counts


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
        until = time.monotonic() + left / (
            len(chosen) - number
        )  # what others do not need is left for the rest
        counts = run_target(target, range(first, first + count), until, options.findings)
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
