"""The process of one target: prepares it once, then gives inputs to forked workers, which it watches and replaces.

Imports, preparation and compiled kernels are paid once: a worker that dies or hangs costs a fork. The number of the
input is in shared memory before the input is tried, so that the seed of a crash is known.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import mmap
import os
import random
import resource
import signal
import struct
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.target import ACCEPTED, Target, function
from fuzz.targets import BROKEN, TARGETS

STATE = struct.Struct("<5q")  # seed, accepted, refused, unclean, peak memory in kB
LIMIT_OF_MEMORY = 12 << 30  # addresses, which include what is only reserved
BATCH = 20_000  # inputs of one worker
COMPILING = 12.0  # times the patience, for an input that compiles kernels
PR_SET_PDEATHSIG = 1
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("inputs", "accepted", "refused", "unclean", "crashed", "hung")


class Attack(NamedTuple):
    """A prepared target, and where its findings go."""

    target: Target
    prepared: Any
    findings: Path
    patience: float  # processor seconds for one input, and a sixth of the seconds that it may wait


def give(attack: Attack, seeds: range, state: mmap.mmap) -> None:
    """Give the inputs of some seeds, one after the other; this runs in the worker."""
    call = function(attack.target.attack)
    counts = [0, 0, 0]
    for seed in seeds:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        state[:] = STATE.pack(seed, *counts, peak)
        try:
            counts[call(attack.prepared, random.Random(seed)) != ACCEPTED] += 1
        except Exception as error:
            counts[2] += 1
            frames = traceback.extract_tb(error.__traceback__)
            where = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "arbora" in f.filename][-2:]
            about = {"what": type(error).__name__, "where": where, "message": str(error)[:300]}
            note(attack, seed, {**about, "traceback": traceback.format_exc()[-3000:]})
    state[:] = STATE.pack(seeds.stop, *counts, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def note(attack: Attack, seed: int, about: dict[str, Any]) -> None:
    """Write a finding down."""
    with open(attack.findings, "a") as file:
        file.write(json.dumps({"target": attack.target.name, "seed": seed, **about}) + "\n")


def start(attack: Attack, seeds: range, state: mmap.mmap) -> int:
    """Fork a worker; return its id."""
    state[:] = STATE.pack(seeds.start, 0, 0, 0, 0)
    worker = os.fork()
    if worker:
        return worker
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker does not outlive this process
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_OF_MEMORY, LIMIT_OF_MEMORY))
        give(attack, seeds, state)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def processor_seconds(process: int) -> float:
    """Time that a process has computed so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def hangs(seconds: float, computed: float, patience: float) -> bool:
    """Whether an input takes too long: it computes, or waits; a busy machine gives a process little time."""
    return (
        computed > patience
        or (seconds > 6 * patience and computed < 0.01 * seconds)
        or seconds > 60 * patience
    )


def watch(worker: int, state: mmap.mmap, patience: float, until: float) -> tuple[str, int]:
    """Wait for a worker; return "done", "stopped" (out of time), "crashed" or "hung", and the exit code."""
    seed, since, computed = -1, time.monotonic(), 0.0
    while True:
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            return ("crashed" if status else "done"), os.waitstatus_to_exitcode(status)
        now, found = time.monotonic(), STATE.unpack(state[:])[0]
        if found != seed:
            seed, since, computed = found, now, processor_seconds(worker)
        elif now - since > patience and hangs(now - since, processor_seconds(worker) - computed, patience):
            return "hung", end(worker)
        if now > until:
            return "stopped", end(worker)
        time.sleep(0.05)


def end(worker: int) -> int:
    """Kill a worker; return its exit code."""
    os.kill(worker, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def fails_again(attack: Attack, seed: int) -> bool:
    """Repeat an input alone: once with patience, since kernels may be compiled, and once without."""
    with mmap.mmap(-1, STATE.size) as state:
        for patience in (COMPILING * attack.patience, attack.patience):
            alone = attack._replace(findings=Path(os.devnull))
            worker = start(alone, range(seed, seed + 1), state)
            if watch(worker, state, patience, time.monotonic() + 60 * patience)[0] != "done":
                return True
    return False


def run(attack: Attack, seeds: range, until: float) -> dict[str, Any]:
    """Give the inputs of all seeds; a worker that dies or hangs is a finding, and is replaced."""
    counts: dict[str, Any] = dict.fromkeys(KINDS, 0) | {"peak": 0}
    with mmap.mmap(-1, STATE.size) as state:
        while len(seeds) and time.monotonic() < until:
            some = seeds[:BATCH]
            how, code = watch(start(attack, some, state), state, attack.patience, until)
            seed, accepted, refused, unclean, peak = STATE.unpack(state[:])
            counts["inputs"] += accepted + refused + unclean + (how in ("crashed", "hung"))
            again = how in ("crashed", "hung") and fails_again(attack, seed)
            if how == "hung" and not again:
                accepted += 1  # slow once, when kernels were compiled
            elif how in ("crashed", "hung"):
                counts[how] += 1
                note(attack, seed, {"what": how, "code": code, "again": again})
            counts["accepted"] += accepted
            counts["refused"] += refused
            counts["unclean"] += unclean
            counts["peak"] = max(counts["peak"], peak // 1024)
            if how == "stopped":
                break
            seeds = range(seeds.start + len(some) if how == "done" else seed + 1, seeds.stop)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("findings", type=Path)
    parser.add_argument("--patience", type=float, default=10.0)
    given = parser.parse_args()
    faulthandler.enable()
    target = next(one for one in (*TARGETS, BROKEN) if one.name == given.target)
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where, prefix="arbora-fuzz-") as folder:
        prepared = function(target.prepare)(Path(folder))
        attack = Attack(target, prepared, given.findings, given.patience)
        seeds = range(given.first, given.first + given.count)
        print(json.dumps(run(attack, seeds, time.monotonic() + given.seconds)))


if __name__ == "__main__":
    main()
