"""Scenarios of several processes: a Ray fit whose worker, raylet or driver is killed, and the server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import httpx
import numpy as np

from arbora.cli import main
from chaos.files import problem_of_folder
from chaos.trial import Outcome, Scenario, start, wait
from support.serving import trained_folder

FIT = """
import sys, numpy as np, warnings
warnings.simplefilter("ignore")
from arbora.classify import MultinomialLogistic
from arbora.engine import RayEngine
folder, out = sys.argv[1:3]
rng = np.random.default_rng(0)
y = np.arange(2000) % 40
X = rng.normal(size=(40, 60))[y] + rng.normal(size=(2000, 60))
engine = RayEngine(n_shards=2, folder=folder, checkpoint_every=1, resume=True, timeout=60) if folder != "-" else None
print("fitting", flush=True)
model = MultinomialLogistic(C=1.0, solver="lc", max_iter=60, tol=1e-9, engine=engine).fit(X, y)
np.save(out, model.coef_)
"""


def processes_below(root: int) -> dict[int, str]:
    """Process ids below a process, with their command lines."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                names[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
                parents[int(entry.name)] = int(fields[1])
            except OSError:
                continue
    below: dict[int, str] = {}
    for process in parents:
        at = process
        while at > 1 and at != root:
            at = parents.get(at, 0)
        if at == root and process != root:
            below[process] = names[process]
    return below


def end_all(process: subprocess.Popen[str], known: dict[int, str]) -> None:
    """End the driver and everything that it started, by their ids."""
    known |= processes_below(process.pid)
    process.kill()
    process.wait()
    for one in known:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue


def run_fit(folder: Path, out: Path, kill: Callable[[int], bool] | None = None) -> tuple[int, bool]:
    """Fit on a cluster of its own; `kill` is called while it runs, with the id of the driver."""
    process = subprocess.Popen(
        [sys.executable, "-c", FIT, str(folder), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    known: dict[int, str] = {}
    killed = False
    try:
        assert process.stdout is not None
        process.stdout.readline()
        if kill is not None:
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline and not killed:
                known |= processes_below(process.pid)
                killed = kill(process.pid)
                time.sleep(0.1)
        return process.wait(180), killed
    except subprocess.TimeoutExpired:
        return 99, killed
    finally:
        end_all(process, known)


def victim(kind: str, rng: random.Random) -> Callable[[int], bool]:
    after = time.monotonic() + rng.uniform(0.2, 3.0)

    def kill(driver: int) -> bool:
        below = processes_below(driver)
        workers = [one for one, name in below.items() if "ray::" in name and "IDLE" not in name]
        raylets = [one for one, name in below.items() if "/raylet/raylet" in name]
        found = {"worker": workers, "raylet": raylets, "driver": [driver] if workers else []}[kind]
        if not found or not workers or time.monotonic() < after:
            return False
        os.kill(rng.choice(found), signal.SIGKILL)
        return True

    return kill


_whole: dict[str, np.ndarray] = {}


def kill_in_ray(kind: str) -> Callable[[random.Random, Path], Outcome]:
    def run(rng: random.Random, folder: Path) -> Outcome:
        if "coef" not in _whole:
            run_fit(Path("-"), folder / "whole.npy")
            _whole["coef"] = np.load(folder / "whole.npy")
        out, states = folder / "coef.npy", folder / "states"
        code, killed = run_fit(states, out, victim(kind, rng))
        if code != 0:  # the driver, or the cluster below it, is gone: the next run resumes
            code, _ = run_fit(states, out)
        if code != 0:
            return Outcome(killed, f"the resumed fit failed with code {code}")
        close = np.allclose(np.load(out), _whole["coef"], rtol=1e-5, atol=1e-7)
        return Outcome(killed, "" if close else "the resumed fit has other weights")

    return run


@cache
def served_folder(there: Path) -> Path:
    return trained_folder(there)


def serve(path: Path) -> tuple[int, str]:
    """Start the server in a forked process; return its id and its address."""
    reading, writing = os.pipe()

    def action() -> int:
        sys.stdout = os.fdopen(writing, "w", buffering=1)
        return main(["explore", str(path), "--serve", "--port", "0", "--json"])

    process = start(action)
    os.close(writing)
    with os.fdopen(reading) as lines:
        line = lines.readline()
    return process, line.split('"')[3] if line else ""


def kill_server(rng: random.Random, folder: Path) -> Outcome:
    """Kill the server while it answers; the next one must answer, and the folder must not have changed."""
    path = served_folder(folder.parent / "served")
    before = {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    killed = False
    for turn in range(2):
        process, address = serve(path)
        if not address:
            return Outcome(killed, "the server does not start")
        timer = threading.Timer(rng.uniform(0.0, 0.3), os.kill, (process, signal.SIGKILL))
        with httpx.Client(timeout=30) as client:
            try:
                if turn == 0:
                    timer.start()
                while client.post(f"{address}api/file", json={"text": "cargo port"}).status_code == 200:
                    if turn == 1:
                        break
                else:
                    return Outcome(killed, "the server does not answer")
            except httpx.HTTPError:
                if turn == 1:
                    return Outcome(killed, "the next server does not answer")
                killed = True
        if turn == 1:
            os.kill(process, signal.SIGKILL)
        wait(process)
    after = {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return Outcome(killed, problem_of_folder(path) or ("" if after == before else "the folder has changed"))


SCENARIOS = [
    Scenario("server", "kill -9 while it answers, then started again", kill_server, slow=True),
    Scenario("ray worker", "kill -9 of a worker of a Ray fit", kill_in_ray("worker"), slow=True),
    Scenario("ray driver", "kill -9 of the driver, then resumed", kill_in_ray("driver"), slow=True),
    Scenario("ray raylet", "kill -9 of the raylet, then resumed", kill_in_ray("raylet"), slow=True),
]
