"""What the benchmarks share: the description of the machine, and their tables in `benchmarks/RESULTS.md`."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEAD = "# Results\n\nWritten by the benchmarks themselves: `make bench`, or `python -m benchmarks.NAME` for one.\n"


def machine() -> str:
    """One line that says on what the numbers were measured."""
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


def publish(name: str, body: str) -> None:
    """Print a section and put it into RESULTS.md, in the place of the one of the same name if there is one."""
    section = f"## {name}\n\n{body.strip()}\n\nMachine: {machine()}\n"
    print(section)
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else _HEAD
    old = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if old.search(text):
        text = old.sub(lambda _: section + "\n", text)
    else:
        text = text.rstrip() + "\n\n" + section
    RESULTS.write_text(text.rstrip() + "\n", encoding="utf-8")
