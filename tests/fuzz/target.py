"""What a target of the fuzzer is."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

ACCEPTED, REFUSED = "accepted", "refused"


class Target(NamedTuple):
    """A target: what it needs, how it makes and gives one input, and its share of all inputs.

    `prepare` and `attack` are functions, "module:name" in this package. `prepare(folder)` is called once in each
    child process; `attack(state, rng)` gives one input, and returns ACCEPTED or REFUSED; an exception is a finding.
    """

    name: str
    about: str
    prepare: str
    attack: str
    share: float
    checked: bool = False  # run with ARBORA_CHECK=1, so that a silent read outside of an array is found too


def function(name: str) -> Callable[..., Any]:
    """Import a function, "module:name"."""
    module, _, wanted = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"fuzz.{module}"), wanted)
    return found


class Unclean(AssertionError):
    """The library did something that it should not do, other than to raise an error."""


def refused_memory(error: MemoryError) -> bool:
    """Whether an allocation was refused by an estimate, before it was tried."""
    return "needs about" in str(error)
