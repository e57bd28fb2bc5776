"""Debug mode of the compiled kernels: with ``ARBORA_CHECK=1`` in the environment, an index out of range is an error.

The kernels check nothing, and an index out of range reads or writes foreign memory. In this mode numba compiles all
functions of the process with bounds checks, and a wrong index raises an `IndexError`. The variable is read when
`arbora` is imported. Kernels are 2 to 4 times slower.

numba's cache does not distinguish the two modes, so that checked functions have a cache of their own: the folder
``checked`` in ``$NUMBA_CACHE_DIR``, or in ``~/.cache/arbora``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "ARBORA_CHECK"
_CACHE = "checked"


def is_checked() -> bool:
    """Whether the debug mode is asked for."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def check_kernels() -> None:
    """Turn on bounds checks for all functions that numba compiles from now on, here and in child processes."""
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "arbora")
    if cache.name != _CACHE:  # a child process inherits the folder
        cache /= _CACHE
    os.environ["NUMBA_BOUNDSCHECK"] = "1"
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    if "numba" in sys.modules:  # it has read the environment already
        config = sys.modules["numba"].config
        config.BOUNDSCHECK, config.CACHE_DIR = 1, str(cache)
