"""Scenarios of files: train, save, discover and expand are killed, disks are full or read-only, clocks go back."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app import expansion
from arbora.app.folder import open_folder
from arbora.classify import OneVsRestSVC
from arbora.cli import main
from arbora.core.files import TEMPORARY_PREFIX, clean_up
from arbora.expand import ExpandClusters
from arbora.io import load, save
from chaos.trial import Outcome, Scenario, duration, finish, kill_at, start, wait
from support.explore_folders import SUBJECTS

MODEL = "model"


def documents(folder: Path, seed: int = 0) -> Path:
    """A small JSONL file with labels, and one without."""
    rng = np.random.default_rng(seed)
    rows, pile = [], []
    for label, words in SUBJECTS.items():
        for number in range(8):
            text = " ".join(rng.choice(words.split(), 12))
            (rows if number < 6 else pile).append({"text": text, "label": label})
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "pile.jsonl").write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in pile))
    return path


def commands(folder: Path, out: Path, seed: int) -> dict[str, Callable[[], int]]:
    data = str(documents(folder, seed))
    train = ["classify", "train", data, "--model", "flat", "--min-df", "1", "--out", str(out)]
    topics = ["discover", data, "--topics", "4", "--min-df", "1", "--out", str(out)]
    groups = ["expand", data, "--unsorted", str(folder / "pile.jsonl"), "--new", "2", "--min-df", "1"]
    groups += ["--out", str(out)]
    return {"train": lambda: main(train), "discover": lambda: main(topics), "expand": lambda: main(groups)}


def problem_of_folder(path: Path) -> str:
    """What is wrong with a model folder; "" if it is complete."""
    try:
        folder = open_folder(path)
        for part in ("nodes", "documents", "positions", "node_positions", "evaluation", "report"):
            getattr(folder, part)
        folder.load_model()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def left_over(folder: Path) -> str:
    """Temporary names that are left in a folder."""
    left = [path.name for path in folder.rglob(".arbora-*")]
    return f"left: {left}" if left else ""


@cache
def usual_time(name: str, there: Path) -> float:
    there.mkdir(exist_ok=True)
    return duration(commands(there, there / "usual", 0)[name])


def kill_command(name: str) -> Callable[[random.Random, Path], Outcome]:
    def run(rng: random.Random, folder: Path) -> Outcome:
        out, had_old = folder / "out" / MODEL, rng.random() < 0.7
        seconds = usual_time(name, folder.parent / f"usual-{name}")
        action = commands(folder, out, 0)[name]
        if had_old and finish(action) != 0:
            return Outcome(False, "the first run failed")
        # Half of the moments are near the end, where files are written.
        share = rng.random() if rng.random() < 0.5 else rng.uniform(0.8, 1.05)
        killed = kill_at(action, share * seconds)
        if out.exists() or had_old:
            problem = problem_of_folder(out)
            if problem:
                return Outcome(killed, problem)
        if finish(action) != 0:
            return Outcome(killed, "the next run failed")
        return Outcome(killed, problem_of_folder(out) or left_over(out.parent))

    return run


def versions(folder: Path, n: int) -> None:
    for number in range(1, n + 1):
        save({"x": np.full(20_000, number), "number": number}, folder)


def problem_of_version(folder: Path, oldest: int) -> str:
    try:
        found = load(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    whole = bool((found["x"] == found["number"]).all()) and len(found["x"]) == 20_000
    return "" if whole and found["number"] >= oldest else "a mixture of two models"


def kill_save(rng: random.Random, folder: Path) -> Outcome:
    there = folder / MODEL
    save({"x": np.full(20_000, 0), "number": 0}, there)
    killed = kill_at(lambda: versions(there, 200), rng.uniform(0.0, 0.1))
    problem = problem_of_version(there, 0)
    if problem:
        return Outcome(killed, problem)
    save({"x": np.full(20_000, 9), "number": 9}, there)
    left = len(list(there.iterdir())) - 2
    return Outcome(killed, f"{left} files left" if left else "")


def fit_with_checkpoint(folder: Path, out: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(408) % 136
    X = rng.normal(size=(136, 40))[y] + rng.normal(size=(408, 40))
    model = OneVsRestSVC(calibration=None, random_state=0, tol=0.01, checkpoint=str(folder)).fit(X, y)
    np.save(out, model.coef_)


@cache
def usual_fit(there: Path) -> tuple[float, np.ndarray]:
    """Processor seconds and weights of a fit that nothing interrupts."""
    there.mkdir(exist_ok=True)
    seconds = duration(lambda: fit_with_checkpoint(there / "whole", there / "whole.npy"))
    return seconds, np.load(there / "whole.npy")


def kill_checkpoint(rng: random.Random, folder: Path) -> Outcome:
    seconds, whole = usual_fit(folder.parent / "usual-fit")
    action = lambda: fit_with_checkpoint(folder / "c", folder / "c.npy")  # noqa: E731
    killed = kill_at(action, rng.random() * seconds)
    if finish(action) != 0:
        return Outcome(killed, "the fit cannot be resumed")
    same = np.array_equal(whole, np.load(folder / "c.npy"))
    return Outcome(killed, "" if same else "the resumed fit has other bits")


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[bool]:
    """Mount something at a folder, if this user may."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", str(folder)], capture_output=True, check=True)


def _expect_old(folder: Path, action: Callable[[], Any], n_old: int) -> Outcome:
    """Run an action that should fail, and look whether the old model is there."""
    code = finish(action)
    problem = problem_of_version(folder, n_old)
    left = [path.name for path in folder.iterdir() if path.name.startswith(TEMPORARY_PREFIX)]
    return Outcome(code != 0, problem or (f"left: {left}" if left else ""))


def small_files(rng: random.Random, folder: Path) -> Outcome:
    """`ulimit -f`: no file may be larger than some bytes."""
    there = folder / MODEL
    save({"x": np.full(20_000, 0), "number": 0}, there)

    def limited() -> None:
        limit = int(rng.uniform(0, 200_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        versions(there, 1)

    return _expect_old(there, limited, 0)


def full_disk(rng: random.Random, folder: Path) -> Outcome:
    """A file system of 400 kB, with one model of 160 kB and more or less room for another."""
    with mounted(folder / "small", "-t", "tmpfs", "-o", "size=400k", "tmpfs") as done:
        if not done:
            return Outcome(False, "skipped: cannot mount")
        there = folder / "small" / MODEL
        save({"x": np.full(20_000, 0), "number": 0}, there)
        (folder / "small" / "ballast").write_bytes(b"x" * int(rng.uniform(0, 230_000)))
        outcome = _expect_old(there, lambda: versions(there, 1), 0)
        out = folder / "small" / "train"
        code = finish(commands(folder, out, 0)["train"])
        if code == 0 and problem_of_folder(out):
            return Outcome(True, "a command ended with success and no model")
        return (
            outcome
            if outcome.lost
            else Outcome(outcome.interrupted or code != 0, left_over(folder / "small"))
        )


def read_only(rng: random.Random, folder: Path) -> Outcome:
    """A read-only file system (permissions do not stop root)."""
    (folder / "disk").mkdir()
    there = folder / "disk" / MODEL
    save({"x": np.full(20_000, 0), "number": 0}, there)
    with mounted(folder / "disk", "--bind", str(folder / "disk")) as done:
        if not done or subprocess.run(["mount", "-o", "remount,bind,ro", str(folder / "disk")]).returncode:
            return Outcome(False, "skipped: cannot mount")
        outcome = _expect_old(there, lambda: versions(there, 1), 0)
        code = finish(commands(folder, folder / "disk" / "new", 0)["train"])
    return Outcome(outcome.interrupted and code != 0, outcome.lost)


def clock(rng: random.Random, folder: Path) -> Outcome:
    """The clock goes back by up to ten years, at every look at it; the files come from the future."""
    out = folder / "out" / MODEL
    action = commands(folder, out, 0)["train"]
    real, back = time.time, rng.uniform(0, 3e8)

    def shifted() -> int:
        looks = iter(range(10**9))
        time.time = lambda: real() - back * (1 + next(looks) / 1e3)
        return action()

    if finish(action) != 0:
        return Outcome(False, "the first run failed")
    for path in out.rglob("*"):
        os.utime(path, (real() + 1e8, real() + 1e8))
    if finish(shifted) != 0:
        return Outcome(True, "the run failed")
    return Outcome(True, problem_of_folder(out) or left_over(out.parent))


def two_writers(rng: random.Random, folder: Path) -> Outcome:
    """Two processes train into one folder and save to one folder, at the same time."""
    out, there = folder / "out" / MODEL, folder / "saved"
    action = commands(folder, out, 0)["train"]

    def both() -> int:
        versions(there, 20)
        return action()

    processes = [start(both), start(both)]
    codes = [wait(process) for process in processes]
    if codes != [0, 0]:
        return Outcome(True, f"exit codes {codes}")
    clean_up(out.parent)
    return Outcome(True, problem_of_folder(out) or problem_of_version(there, 20) or left_over(folder))


SCENARIOS = [
    Scenario("save", "kill -9 during io.save", kill_save),
    Scenario("fit with checkpoint", "kill -9, then resumed: the same bits", kill_checkpoint),
    Scenario("train", "kill -9 during arbora classify train", kill_command("train")),
    Scenario("discover", "kill -9 during arbora discover", kill_command("discover")),
    Scenario("expand", "kill -9 during arbora expand", kill_command("expand")),
    Scenario("file limit", "ulimit -f during io.save", small_files),
    Scenario("full disk", "tmpfs of 400 kB, save and train", full_disk),
    Scenario("read-only folder", "read-only bind mount, save and train", read_only),
    Scenario("clock goes back", "as the process sees it; files from the future", clock),
    Scenario("two writers", "two processes train and save into one folder", two_writers),
]


def expand_quickly(metric: str, clusterer: str, **how: Any) -> ExpandClusters:
    """Skip the search for a transformation: it takes nine tenths of the time of `expand`, and writes nothing."""
    return ExpandClusters("within", "kmeans", **how)


def warm_up(folder: Path) -> None:
    """Import and compile everything before the first fork."""
    expansion.ExpandClusters = expand_quickly
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        for action in commands(folder, folder / "warm", 0).values():
            action()
        fit_with_checkpoint(folder / "c", folder / "c.npy")
