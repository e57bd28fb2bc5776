"""A target that is broken on purpose, for the test of the fuzzer itself."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from fuzz.target import ACCEPTED, REFUSED

CRASH, HANG, IDLE, UNCLEAN, KINDS = 3, 5, 7, 8, 10


def prepare(folder: Path) -> dict[int, int]:
    """Return the kind of input that each seed makes."""
    return {random.Random(seed).randrange(10**9): seed for seed in range(100)}


def attack(state: dict[int, int], rng: random.Random) -> str:
    kind = state[rng.randrange(10**9)] % KINDS
    if kind == CRASH:
        os.kill(os.getpid(), signal.SIGSEGV)
    while kind == HANG:
        pass
    while kind == IDLE:
        time.sleep(0.1)
    if kind == UNCLEAN:
        raise KeyError("not a documented exception")
    return ACCEPTED if kind % 2 else REFUSED
