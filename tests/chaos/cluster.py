"""Scenarios of several processes: a Ray fit whose worker, raylet or driver is killed, and the server."""

from __future__ import annotations

import atexit
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from arbora.cli import main
from chaos.files import problem_of_folder
from chaos.trial import Outcome, Scenario, start, wait
from support.serving import trained_folder

DRIVER = """
import sys, numpy as np, warnings
warnings.simplefilter("ignore")
from arbora import running
from arbora.classify import MultinomialLogistic
from arbora.engine import RayEngine
rng = np.random.default_rng(0)
y = np.arange(600) % 20
X = rng.normal(size=(20, 30))[y] + rng.normal(size=(600, 30))
for line in sys.stdin:
    folder, out = line.split()
    how = dict(n_shards=2, checkpoint_every=1, resume=True, timeout=300)
    engine = RayEngine(folder=folder, **how) if folder != "-" else None
    print("fitting", flush=True)
    with running(engine=engine):
        model = MultinomialLogistic(C=1.0, solver="lc", max_iter=60, tol=1e-9).fit(X, y)
    np.save(out, model.coef_)
    print("done", flush=True)
"""
LONGEST = 600.0  # seconds for one fit


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


class Driver:
    """A process that fits on a cluster of its own, one fit after the other."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # `select` must see what has not been read
        )

    def fit(
        self, folder: Path | str, out: Path, kill: Callable[[Driver], bool] | None = None
    ) -> tuple[bool, bool]:
        """Fit; `kill` is called while it runs. Return whether the fit has ended well, and whether `kill` did it."""
        answers, stdin = self.process.stdout, self.process.stdin
        assert answers is not None
        assert stdin is not None
        watch = threading.Timer(LONGEST, self.process.kill)
        watch.start()
        killed = False
        try:
            stdin.write(f"{folder} {out}\n".encode())
            answers.readline()
            while kill is not None and not killed and not select.select([answers], [], [], 0.02)[0]:
                killed = kill(self)
            return answers.readline() == b"done\n", killed
        except BrokenPipeError:
            return False, killed
        finally:
            watch.cancel()
            self.known |= processes_below(self.process.pid)

    def end(self) -> None:
        """End the driver and everything that it started, by their ids."""
        self.known |= processes_below(self.process.pid)
        self.process.kill()
        self.process.wait()
        for one, name in self.known.items():
            if name_of(one) == name:  # the id may belong to another process now
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


def name_of(process: int) -> str:
    """Command line of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def victim(kind: str, rng: random.Random, seconds: float) -> Callable[[Driver], bool]:
    """Kill a worker, the raylet or the driver at a random moment of a fit that takes so many seconds."""
    after = time.monotonic() + rng.uniform(0.0, seconds)

    def kill(driver: Driver) -> bool:
        below = processes_below(driver.process.pid)
        driver.known |= below
        # Not the agents of Ray
        workers = [one for one, name in below.items() if name.startswith("ray::Worker")]
        raylets = [one for one, name in below.items() if "/raylet/raylet" in name]
        found = {"worker": workers, "raylet": raylets, "driver": [driver.process.pid]}[kind]
        if not found or not workers or time.monotonic() < after:
            return False
        os.kill(rng.choice(found), signal.SIGKILL)
        return True

    return kill


class Whole(NamedTuple):
    """The weights of a fit that nothing interrupts, and its seconds on a cluster that is ready."""

    coef: np.ndarray
    seconds: float


@cache
def kept_driver(there: Path) -> tuple[list[Driver], Whole]:
    """A driver whose cluster lives on from trial to trial, and what it fits."""
    there.mkdir(exist_ok=True)
    driver = Driver()
    kept = [driver]
    atexit.register(lambda: kept[0].end())
    driver.fit("-", there / "whole.npy")
    driver.fit(there / "first", there / "first.npy")
    begun = time.monotonic()
    driver.fit(there / "second", there / "second.npy")
    return kept, Whole(np.load(there / "whole.npy"), time.monotonic() - begun)


def kill_in_ray(kind: str) -> Callable[[random.Random, Path], Outcome]:
    """A worker is killed in a cluster that lives on; the raylet or the driver take the cluster with them."""

    def run(rng: random.Random, folder: Path) -> Outcome:
        kept, whole = kept_driver(folder.parent / "kept")
        out, states = folder / "coef.npy", folder / "states"
        done, killed = kept[0].fit(states, out, victim(kind, rng, whole.seconds))
        if kind != "worker" or not done:  # the driver, or the cluster below it, is gone: the next one resumes
            kept[0].end()
            kept[0] = Driver()
        if not done and not kept[0].fit(states, out)[0]:
            return Outcome(killed, "the resumed fit failed")
        close = np.allclose(np.load(out), whole.coef, rtol=1e-5, atol=1e-7)
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
        url = httpx.URL(address)
        headers = {"Authorization": f"Bearer {url.params['token']}"}
        with httpx.Client(timeout=30, headers=headers) as client:
            try:
                if turn == 0:
                    timer.start()
                while client.post(url.join("/api/file"), json={"text": "cargo port"}).status_code == 200:
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
