"""Print headings and paragraphs of the demo; measure seconds."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

WIDTH = 88


def heading(text: str) -> None:
    """Print the heading of a section."""
    print(f"\n{text}\n{'=' * len(text)}", flush=True)


def print_paragraph(text: str) -> None:
    """Print a paragraph."""
    print(textwrap.fill(text, WIDTH), flush=True)


def shorten_list(listed: str, width: int = WIDTH) -> str:
    """Drop the last words of a comma-separated list that is longer than a line.

    >>> shorten_list("sea, land, sky", 12)
    'sea, land'
    """
    return listed if len(listed) <= width else listed[:width].rpartition(",")[0] or listed[:width]


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record the seconds that a block takes."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
