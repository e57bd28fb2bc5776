"""Node names: validation, conversion, and suggestions for unknown labels."""

import difflib
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from arbora.arrays import Matrix, Names
from arbora.structure.errors import StructureError, UnknownLabelError

AnyArray = TypeVar("AnyArray", bound=Matrix)

_MAX_CANDIDATES = 2_000  # that difflib, which is slow, compares


def as_list(values: Any) -> list[Any]:
    """Python objects of an array, series or iterable: ``np.str_`` becomes str, ``np.int64`` becomes int."""
    if isinstance(values, str):
        raise TypeError(f"expected several labels, got the single string {values!r}: put it in a list")
    if hasattr(values, "__array__"):
        values = np.asarray(values)
        return list(values.tolist())
    if not isinstance(values, Iterable):
        raise TypeError(f"expected a list or an array, got {values!r}")
    items = list(values)
    if any(issubclass(kind, np.generic) for kind in set(map(type, items))):
        items = [item.item() if isinstance(item, np.generic) else item for item in items]
    return items


def check_names(names: Sequence[Any]) -> None:
    """Raise StructureError unless all names are strings or integers, which JSON preserves."""
    kinds = set(map(type, names))
    if kinds <= {str, int}:
        return
    where, bad = next((i, name) for i, name in enumerate(names) if type(name) not in (str, int))
    raise StructureError(
        f"node names must be strings or integers; name {where} is {bad!r} ({type(bad).__name__}): convert it"
    )


def refuse_repeated(names: Sequence[Any]) -> None:
    """Raise StructureError if a name occurs twice."""
    if len(set(names)) < len(names):
        twice = min(repeated(names), key=names.index)
        raise StructureError(f"node name {twice!r} is given twice: names must be distinct (full paths are)")


def name_array(names: Iterable[Any]) -> Names:
    """Read-only object array of distinct names."""
    items = as_list(names)
    check_names(items)
    refuse_repeated(items)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return freeze(array)


def counted(number: int, singular: str, plural: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "leaf", "leaves"), counted(2, "leaf", "leaves")
    ('1 leaf', '2 leaves')
    """
    return f"{number} {singular if number == 1 else plural}"


def freeze(array: AnyArray) -> AnyArray:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array


def repeated(names: Iterable[Any]) -> set[Any]:
    """Names that occur more than once.

    >>> repeated(["a", "b", "a"])
    {'a'}
    """
    return {name for name, times in Counter(names).items() if times > 1}


def nearest_name(label: object, names: Sequence[object]) -> object | None:
    """Name most similar to ``label``, or None if no name is similar.

    >>> nearest_name("Grafics", ["comp", "graphics"])
    'graphics'
    """
    text = str(label).casefold()
    by_text = {str(name).casefold(): name for name in names}
    if text in by_text:
        return by_text[text]
    likely = list(by_text)
    if len(likely) > _MAX_CANDIDATES:
        likely = heapq.nlargest(_MAX_CANDIDATES, likely, key=lambda key: _shared_ends(key, text))
    close = difflib.get_close_matches(text, likely, n=1)
    return by_text[close[0]] if close else None


def _shared_ends(a: str, b: str) -> int:
    """Length of the common prefix plus that of the common suffix: a cheap similarity for one typing error."""
    return _shared_start(a, b) + _shared_start(a[::-1], b[::-1])


def _shared_start(a: str, b: str) -> int:
    differ = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))


def unknown(label: object, names: Sequence[object], what: str, others: int = 0) -> UnknownLabelError:
    """Error for a label that is not among the names."""
    near = nearest_name(label, names)
    hint = f" (did you mean {near!r}?)" if near is not None else ""
    tail = f"; {counted(others, 'other label is', 'other labels are')} unknown too" if others else ""
    return UnknownLabelError(f"label {label!r} is not a node of the {what}{hint}{tail}")
