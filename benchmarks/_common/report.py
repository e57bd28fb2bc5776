"""Description of the machine, and writing of sections to `benchmarks/RESULTS.md`."""

from __future__ import annotations

import io
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import date
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "RESULTS.md"
_HEAD = "# Results\n\nWritten by the benchmarks: `make bench` for all, `python -m benchmarks.NAME` for one.\n"


class _Echo(io.StringIO):
    """A buffer that also prints to the screen."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return super().write(text)


def machine() -> str:
    """Describe the machine and the package versions in one line."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = re.findall(r"model name\s*:\s*(.*)", cpuinfo.read_text())
        model = names[0] if names else model
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "numba"))
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {packages}; {date.today().isoformat()}."
    )


@contextmanager
def published(name: str, write: bool = True) -> Iterator[None]:
    """Write the output of the block to RESULTS.md; it replaces a section of the same name.

    An error or Ctrl-C inside the block leaves the file unchanged. Without `write` the output is printed only.
    """
    if not write:
        yield
        return
    echo = _Echo()
    with redirect_stdout(echo):
        yield
    section = f"## {name}\n\n{echo.getvalue().strip()}\n\nMachine: {machine()}\n"
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else _HEAD
    old = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if old.search(text):
        text = old.sub(lambda _: section + "\n", text)
    else:
        text = text.rstrip() + "\n\n" + section
    RESULTS.write_text(text.rstrip() + "\n", encoding="utf-8")
