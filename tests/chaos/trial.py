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


def processor_seconds(process: int) -> float:
    """Time that all threads of a process have computed so far; infinite if it has ended."""
    try:
        tasks = [Path(path, "schedstat").read_text() for path in Path(f"/proc/{process}/task").iterdir()]
        ended = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return float("inf")
    return float("inf") if ended else sum(int(task.split()[0]) for task in tasks) / 1e9


def kill_at(action: Callable[[], Any], moment: float) -> bool:
    """Kill an action when it has computed for some seconds; return whether it was still at work.

    The moment counts processor time, so that it means the same on a busy machine. An action that only waits is killed
    after ten times as long.
    """
    process, deadline = start(action), time.monotonic() + 10 * moment + 5
    while processor_seconds(process) < moment and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    return wait(process) == -signal.SIGKILL


def duration(action: Callable[[], Any]) -> float:
    """Processor seconds of an action when nothing happens to it."""
    _, status, used = os.wait4(start(action), 0)
    if status:
        raise RuntimeError(f"the action fails by itself with code {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def say(text: str) -> None:
    """Report progress on the error stream."""
    print(text, file=sys.stderr, flush=True)
