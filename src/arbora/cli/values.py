"""Values of arguments: from the words of the command line to numbers, with complaints that say what to give."""

from __future__ import annotations

import argparse
import re


def count(text: str) -> int:
    """Argument that counts something: a whole number, not negative."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return number


def positive(text: str) -> float:
    """Argument that is a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def share(text: str) -> float:
    """Argument that is a part of one: above 0, below 1."""
    number = positive(text)
    if number >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return number


def coupling(text: str) -> float:
    """Argument that is a number from 0 up."""
    return 0.0 if text.strip() in ("0", "0.0") else positive(text)


def numbers(text: str) -> list[float]:
    """Argument that lists numbers, separated by commas."""
    return [coupling(part) for part in text.split(",")]


def jobs(text: str) -> int:
    """Argument of the number of threads: from 1 up, or below 0, counted from all cores."""
    number = int(text) if re.fullmatch(r"-?\d{1,6}", text) else 0
    if number == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of threads: give 1 or more, or -1 for all cores"
        )
    return number


def topics(text: str) -> int | str:
    """Argument of the number of topics: a whole number from 1 up, or auto."""
    if text == "auto":
        return text
    number = count(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of topics: give 20, for example, or auto")
    return number


def bins(text: str) -> int | str:
    """Argument of points of time: a number of them, or a unit of the calendar."""
    if text in ("year", "month", "week", "day"):
        return text
    number = count(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bins, nor year, month, week or day")
    return number


def branching(text: str) -> tuple[int, ...]:
    """Argument of the shape of a tree: 4x4x4 has three levels, four children each."""
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the shape of a tree: give the children at each level, as in 4x4x4"
        )
    return tuple(int(width) for width in text.split("x"))
