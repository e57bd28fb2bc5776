"""One trial: an action in a forked process, and what is done to it."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Scenario(NamedTuple):
    """A scenario: its name, and a function of a random generator and an empty folder that returns an `Outcome`."""

    name: str
    about: str
    run: Callable[[random.Random, Path], Outcome]
    slow: bool = False  # a trial takes seconds


class Outcome(NamedTuple):
    """Whether the action was interrupted in the middle, and what was lost or left ("" for nothing)."""

    interrupted: bool
    lost: str = ""


def start(action: Callable[[], Any]) -> int:
    """Run an action in a forked process without output; its exit code is 0, or 1 after an exception."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        if not os.environ.get("ARBORA_CHAOS_DEBUG"):
            os.dup2(1, 2)
        code = int(action() or 0)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(process: int) -> int:
    """Wait for the end of a process; negative: the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def finish(action: Callable[[], Any]) -> int:
    """Run an action to its end."""
    return wait(start(action))


def kill_at(action: Callable[[], Any], moment: float) -> bool:
    """Run an action and kill it after some seconds; return whether it was still at work."""
    process = start(action)
    time.sleep(moment)
    os.kill(process, signal.SIGKILL)
    return wait(process) == -signal.SIGKILL


def duration(action: Callable[[], Any]) -> float:
    """Seconds that an action takes when nothing happens to it."""
    begun = time.monotonic()
    code = finish(action)
    if code != 0:
        raise RuntimeError(f"the action fails by itself with code {code}")
    return time.monotonic() - begun


def say(text: str) -> None:
    """Report progress on the error stream."""
    print(text, file=sys.stderr, flush=True)
