"""How the demonstration prints: headings, paragraphs of a fixed width, and seconds."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

WIDTH = 88


def heading(text: str) -> None:
    """Print the heading of a section."""
    print(f"\n{text}\n{'=' * len(text)}", flush=True)


def say(text: str) -> None:
    """Print a paragraph."""
    print(textwrap.fill(text, WIDTH), flush=True)


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note how many seconds a block takes.

    Examples
    --------
    >>> seconds = {}
    >>> with timed(seconds, "nothing"):
    ...     pass
    >>> seconds["nothing"] < 1
    True
    """
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
