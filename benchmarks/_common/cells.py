"""Cells of a large table: each is measured in its own process, within a time budget, and stored.

A benchmark names its cells and defines how to measure one. `Cells.run` measures a cell in a new process, so that a
cell that runs out of time or memory does not affect the others and peak memory is that of the cell alone. The result
is stored as a JSON file. An interrupted run resumes: finished cells are not measured again, failed cells are, and
cells that ran out of time are if the budget is larger now. A cell stores a fingerprint of the code. Cells measured
with other code are kept, and the run reports this (`--fresh` measures them again). A benchmark may keep its finished
cells in an archive beside its source, so that a run on another machine, or in a new folder, resumes too.
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
_MOST_CHARACTERS = 160  # of an error message in a table


def parse(
    description: str, names: list[str], methods: list[str] | None = None, splits: int | None = None
) -> argparse.Namespace:
    """Parse the options that benchmarks with cells share.

    `methods` if a cell is a data set and a method; `splits` if a cell is a mean over splits, which is their number.
    """
    parser = argparse.ArgumentParser(description=description)
    default = Path(tempfile.gettempdir()) / "arbora-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder of finished cells (%(default)s)")
    parser.add_argument(
        "--budget", type=float, default=3600.0, help="maximum seconds of a cell (%(default)g)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"one or more of {', '.join(names)}"
    )
    if methods is not None:
        parser.add_argument(
            "--methods",
            nargs="+",
            choices=methods,
            metavar="METHOD",
            default=methods,
            help=f"one or more of {', '.join(methods)}",
        )
    if splits is not None:
        parser.add_argument("--splits", type=int, default=splits, help="splits of the classes (%(default)d)")
    parser.add_argument(
        "--quick", action="store_true", help="run on small parts of the data; do not write RESULTS.md"
    )
    parser.add_argument(
        "--table", action="store_true", help="do not measure; write finished cells to RESULTS.md"
    )
    parser.add_argument("--fresh", action="store_true", help="measure finished cells again")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = options.only or names
    if options.quick:
        options.cache = options.cache / "quick"
    return options


def peak_gib() -> float:
    """Peak memory of this process so far, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage may report the peak of the parent process
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if peak:
            return int(peak[1]) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


@cache
def code() -> str:
    """Fingerprint of the source code of the package and the benchmarks."""
    here = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*here.rglob("*.py"), *Path(arbora.__file__).parent.rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def forget_peak() -> None:
    """Reset the peak memory of this process, if the system supports it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def one_thread() -> None:
    """Limit libraries that are not imported yet to one thread."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


class Cells:
    """Finished cells of one benchmark module.

    Parameters
    ----------
    module : str
        Module to run as ``python -m module --cell KEY``, which calls `measure`.
    options : Namespace of `parse`
    archive : Path, optional
        JSON file of finished cells, read where the cache has none. Not used with `--quick`.
    """

    def __init__(self, module: str, options: argparse.Namespace, archive: Path | None = None) -> None:
        self.module, self.options = module, options
        self.archive = None if options.quick else archive
        known = self.archive is not None and self.archive.exists()
        self.archived: dict[str, dict[str, Any]] = json.loads(self.archive.read_text()) if known else {}
        self.folder = options.cache / module.rpartition(".")[2]
        self.folder.mkdir(parents=True, exist_ok=True)
        # On SIGTERM, end the process of the current cell too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def _path(self, key: str) -> Path:
        return self.folder / f"{re.sub('[^a-zA-Z0-9_.-]+', '_', key)}.json"

    def kept(self, key: str) -> dict[str, Any] | None:
        """Return the stored result of a cell; None if it was never measured."""
        path = self._path(key)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else self.archived.get(key)

    def write_archive(self, keys: list[str]) -> None:
        """Add finished cells to the archive, with numbers of five digits."""
        if self.archive is None:
            return
        for key in keys:
            found = self.kept(key)
            if found is not None and found["status"] == DONE:
                self.archived[key] = rounded(found)
        lines = (f"{json.dumps(key)}: {json.dumps(self.archived[key])}" for key in sorted(self.archived))
        self.archive.parent.mkdir(exist_ok=True)
        self.archive.write_text("{" + ",\n".join(lines) + "}\n")

    def keep(self, key: str, found: dict[str, Any]) -> None:
        """Store the result of a cell atomically."""
        path = self._path(key)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({**found, "code": code()}), encoding="utf-8")
        partial.replace(path)

    def run(self, key: str) -> dict[str, Any]:
        """Return the result of a cell; measure it first unless it is stored."""
        known, budget = self.kept(key), self.options.budget
        if known is not None and not self.options.fresh:
            done = known["status"] in (DONE, NOT_APPLICABLE)
            if done or (known["status"] == OVER and budget <= known["budget"]):
                if known["code"] != code():
                    print(
                        f"{self.module} {key}: stored, measured with other code", file=sys.stderr, flush=True
                    )
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
                self.keep(key, {"status": FAILED, "why": lines[-1][:_MOST_CHARACTERS]})
        found = self.kept(key)
        assert found is not None, f"{key}: the cell was measured, but no result was stored"
        print(f"    {summary(found)}", file=sys.stderr, flush=True)
        return found

    def measure(self, work: Callable[[], dict[str, Any]]) -> None:
        """Run `work` in the process of the cell and store its result."""
        warnings.filterwarnings("ignore")  # convergence warnings: the tables report them where they matter
        found = work()
        self.keep(self.options.cell, {"status": DONE, "peak_gib": peak_gib(), **found})


def rounded(found: Any) -> Any:
    """Round the numbers of nested lists and dictionaries to five digits."""
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.5g}") if isinstance(found, float) else found


def summary(found: dict[str, Any] | None) -> str:
    """Describe a cell: its numbers, or why it has none."""
    if found is None:
        return "not measured"
    if found["status"] == OVER:
        return f"stopped after {found['budget']:g} s"
    if found["status"] in (FAILED, NOT_APPLICABLE):
        return f"{found['status']}: {found['why']}"
    numbers = {name: value for name, value in found.items() if isinstance(value, float)}
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
