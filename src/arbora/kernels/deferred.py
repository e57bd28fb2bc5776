"""Kernels that import numba at their first call, not when their module is imported.

A process that loads a model and predicts a few rows calls no kernel, and need not import numba. Kernel modules write
``from arbora.kernels import deferred as nb`` instead of ``import numba as nb``, and decorate as usual.

numba resolves the global names of a function when it compiles it, and knows its own functions only. The first call
of a kernel therefore replaces, in its module and in the modules that it uses, all kernels by the functions that
``numba.njit`` makes of them. A kernel that was imported by name elsewhere remains, and passes its calls on. It takes
positional arguments only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from threading import Lock
from typing import Any

_LINKING = Lock()


class Kernel:
    """A function to be compiled with the given options of ``numba.njit``.

    Attributes
    ----------
    function : callable
        The Python function.
    options : dict
    compiled : numba function or None
        None before the first call.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.function, self.options = function, options
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        if self.compiled is None:
            with _LINKING:
                if self.compiled is None:  # otherwise another thread has linked it meanwhile
                    _link(self)
        return self.compiled(*arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _find, (self.function.__module__, self.function.__qualname__)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make kernels of functions, with options of ``numba.njit``."""
    return lambda function: Kernel(function, options)


def _link(kernel: Kernel) -> None:
    """Make numba's functions of a kernel and of all kernels that it can reach, and let them refer to each other."""
    import numba

    made: dict[Kernel, Any] = {}
    queue = [kernel]
    while queue:
        kernel = queue.pop()
        if kernel not in made:
            made[kernel] = kernel.compiled or numba.njit(**kernel.options)(kernel.function)
            queue.extend(_kernels(kernel).values())
    for kernel in made:
        kernel.function.__globals__.update({name: made[other] for name, other in _kernels(kernel).items()})
    for kernel, compiled in made.items():  # last, since other threads may call them from now on
        kernel.compiled = compiled


def _kernels(kernel: Kernel) -> dict[str, Kernel]:
    """Kernels among the global names of a kernel."""
    names = kernel.function.__globals__.copy()  # other threads may import
    return {name: value for name, value in names.items() if isinstance(value, Kernel)}


def _find(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
