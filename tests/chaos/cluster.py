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
from pathlib import Path

import numpy as np

from chaos.files import problem_of_folder
from chaos.trial import Outcome, Scenario
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


def kill_server(rng: random.Random, folder: Path) -> Outcome:
    import httpx

    path = trained_folder(folder / "model")
    before = {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    command = [sys.executable, "-m", "arbora", "explore", str(path), "--serve", "--port", "0", "--json"]
    killed = False
    for turn in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split('"')[3]
            if turn == 0:
                timer = threading.Timer(rng.uniform(0.0, 0.5), process.kill)
                timer.start()
                try:
                    while True:
                        httpx.post(f"{address}api/file", json={"text": "cargo port"}, timeout=5)
                except httpx.HTTPError:
                    killed = True
            elif httpx.post(f"{address}api/file", json={"text": "cargo port"}, timeout=30).status_code != 200:
                return Outcome(killed, "the next server does not answer")
        finally:
            process.kill()
            process.wait()
    after = {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return Outcome(killed, problem_of_folder(path) or ("" if after == before else "the folder has changed"))


SCENARIOS = [
    Scenario("server", "kill -9 while it answers, then started again", kill_server, slow=True),
    Scenario("ray worker", "kill -9 of a worker of a Ray fit", kill_in_ray("worker"), slow=True),
    Scenario("ray driver", "kill -9 of the driver, then resumed", kill_in_ray("driver"), slow=True),
    Scenario("ray raylet", "kill -9 of the raylet, then resumed", kill_in_ray("raylet"), slow=True),
]
