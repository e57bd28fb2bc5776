"""Cells of a large table: each is measured in a process of its own, within a time, and kept when it is finished.

A benchmark names its cells and says how one is measured; `Cells.run` measures a cell in a fresh process (so that one
that takes too much time or memory loses nothing but itself, and its peak of memory is its own) and keeps what it
found as a JSON file. A run that was interrupted goes on where it stopped: finished cells are not measured again,
those that failed are, and those that were over their time are if there is more of it now. A cell remembers the code
it was measured with; it is kept when the code has changed since, but the run says so (`--fresh` measures it again).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import arbora

DONE, OVER, FAILED, NOT_APPLICABLE = "done", "over", "failed", "not applicable"
_MOST_WORDS = 160  # of an error in a table


def parse(description: str, names: list[str], methods: list[str] | None = None) -> argparse.Namespace:
    """Options that the benchmarks made of cells share; of methods too, where a cell is a set and a method."""
    parser = argparse.ArgumentParser(description=description)
    default = Path(tempfile.gettempdir()) / "arbora-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder of finished cells (%(default)s)")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds a cell may take (%(default)g)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    if methods is not None:
        parser.add_argument(
            "--methods",
            nargs="+",
            choices=methods,
            metavar="METHOD",
            default=methods,
            help=f"of {', '.join(methods)}",
        )
    parser.add_argument("--quick", action="store_true", help="try everything on small parts, publish nothing")
    parser.add_argument("--table", action="store_true", help="measure nothing, publish what is there")
    parser.add_argument("--fresh", action="store_true", help="forget the finished cells that are asked for")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = options.only or names
    if options.quick:
        options.cache = options.cache / "quick"
    return options


def peak_gib() -> float:
    """Most memory this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says on Linux may be the peak of the process that started this one
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if peak:
            return int(peak[1]) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


@cache
def code() -> str:
    """Fingerprint of the package and the benchmarks as they are now."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*here.glob("*.py"), *Path(arbora.__file__).parent.rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def forget_peak() -> None:
    """Begin a new peak at what is held now, where the system lets a process do so; elsewhere the old one stays."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def one_thread() -> None:
    """Keep libraries that were not imported yet from starting threads of their own."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


class Cells:
    """Finished cells of one benchmark module.

    Parameters
    ----------
    module : str
        Module that is run as ``python -m module --cell KEY``, and calls `measure` then.
    options : Namespace of `parse`
    """

    def __init__(self, module: str, options: argparse.Namespace) -> None:
        self.module, self.options = module, options
        self.folder = options.cache / module.rpartition(".")[2]
        self.folder.mkdir(parents=True, exist_ok=True)
        # A process that is told to end takes the cell it waits for with it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def _path(self, key: str) -> Path:
        return self.folder / f"{re.sub('[^a-zA-Z0-9_.-]+', '_', key)}.json"

    def kept(self, key: str) -> dict[str, Any] | None:
        """Return what is known of a cell; None if it was never measured."""
        path = self._path(key)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def keep(self, key: str, found: dict[str, Any]) -> None:
        """Write a cell; one that is half written is never seen."""
        path = self._path(key)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({**found, "code": code()}), encoding="utf-8")
        partial.replace(path)

    def run(self, key: str) -> dict[str, Any]:
        """Return a cell, measured now unless it is there."""
        known, budget = self.kept(key), self.options.budget
        if known is not None and not self.options.fresh:
            done = known["status"] in (DONE, NOT_APPLICABLE)
            if done or (known["status"] == OVER and budget <= known["budget"]):
                if known["code"] != code():
                    print(f"{self.module} {key}: kept, measured with other code", file=sys.stderr, flush=True)
                return known
        cache = self.options.cache.parent if self.options.quick else self.options.cache
        command = [sys.executable, "-m", self.module, "--cell", key, "--cache", str(cache)]
        command += ["--quick"] if self.options.quick else []
        print(f"{self.module} {key} ...", file=sys.stderr, flush=True)
        try:
            ended = subprocess.run(command, timeout=budget, stderr=subprocess.PIPE, text=True, check=False)
        except subprocess.TimeoutExpired:
            self.keep(key, {"status": OVER, "budget": budget})
        else:
            if ended.returncode:
                lines = ended.stderr.strip().splitlines() or [f"ended with code {ended.returncode}"]
                self.keep(key, {"status": FAILED, "why": lines[-1][:_MOST_WORDS]})
        found = self.kept(key)
        assert found is not None, f"{key}: measured, but nothing was kept"
        print(f"    {summary(found)}", file=sys.stderr, flush=True)
        return found

    def measure(self, work: Callable[[], dict[str, Any]]) -> None:
        """Measure, in the process of the cell, what its name says, and keep it."""
        warnings.filterwarnings("ignore")  # of solvers that stop early: the tables say where that matters
        found = work()
        self.keep(self.options.cell, {"status": DONE, "peak_gib": peak_gib(), **found})


def summary(found: dict[str, Any] | None) -> str:
    """Why a cell holds no numbers, in the words of the table; the numbers themselves for the screen."""
    if found is None:
        return "not run yet"
    if found["status"] == OVER:
        return f"not run: over {found['budget']:g} s"
    if found["status"] in (FAILED, NOT_APPLICABLE):
        return f"{found['status']}: {found['why']}"
    numbers = {name: value for name, value in found.items() if isinstance(value, float)}
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
