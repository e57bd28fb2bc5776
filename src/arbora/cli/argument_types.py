"""Types of command-line arguments: each converts a string, or raises an error that says what to give."""

from __future__ import annotations

import argparse
import re


def count(text: str) -> int:
    """Read a whole number from 0 up."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return number


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def share(text: str) -> float:
    """Read a number above 0 and below 1."""
    number = positive(text)
    if number >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return number


def size(text: str) -> int | None:
    """Read a number of bytes, with K, M, G or T for powers of 1024; none: no limit.

    Examples
    --------
    >>> size("20G") == 20 * 2**30, size("none")
    (True, None)
    """
    if text.lower() == "none":
        return None
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)", text.upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: give bytes, such as 500M or 20G, or none")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def separator(text: str) -> str:
    r"""Read a separator of cells: one character, or tab, comma, semicolon, bar.

    Examples
    --------
    >>> separator("tab"), separator(";")
    ('\t', ';')
    """
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "auto": "auto"}
    found = named.get(text, text)
    if len(found) != 1 and found != "auto":
        raise argparse.ArgumentTypeError(f"{text!r} is not a separator: give one character, or tab")
    return found


def coupling(text: str) -> float:
    """Read a number from 0 up."""
    return 0.0 if text.strip() in ("0", "0.0") else positive(text)


def numbers(text: str) -> list[float]:
    """Read numbers from 0 up, separated by commas."""
    return [coupling(part) for part in text.split(",")]


def jobs(text: str) -> int:
    """Read a number of threads: 1 or more, or a negative number, counted from all cores."""
    number = int(text) if re.fullmatch(r"-?\d{1,6}", text) else 0
    if number == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of threads: give 1 or more, or -1 for all cores"
        )
    return number


def topics(text: str) -> int | str:
    """Read a number of topics from 1 up, or auto."""
    if text == "auto":
        return text
    number = count(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of topics: give 20, for example, or auto")
    return number


def new_groups(text: str) -> int | str:
    """Read a number of new groups from 0 up, or auto."""
    if text == "auto":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of groups: give 3, for example, or auto")
    return count(text)


def bins(text: str) -> int | str:
    """Read a number of time bins, or a calendar unit."""
    if text in ("year", "month", "week", "day"):
        return text
    number = count(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of bins nor year, month, week or day")
    return number


def branching(text: str) -> tuple[int, ...]:
    """Read the shape of a tree: 4x4x4 has three levels with four children per node."""
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the shape of a tree: give the number of children at each level, such as 4x4x4"
        )
    return tuple(int(width) for width in text.split("x"))
