"""Node names and their integer codes: checking, encoding, decoding, suggesting the nearest name."""

import difflib
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from arbora.structure.errors import StructureError, UnknownLabelError

Names = NDArray[np.object_]
Array = TypeVar("Array", bound=NDArray[Any])

_FEW = 20_000  # difflib compares about this many names in a quarter of a second


def as_list(values: Any) -> list[Any]:
    """Python objects of any array, series or iterable: ``np.str_`` becomes str, ``np.int64`` int."""
    if isinstance(values, str):
        raise TypeError(f"expected several labels, got the single string {values!r}: put it in a list")
    if hasattr(values, "__array__"):
        values = np.asarray(values)
        return list(values.tolist())
    items = list(values)
    if any(issubclass(kind, np.generic) for kind in set(map(type, items))):
        items = [item.item() if isinstance(item, np.generic) else item for item in items]
    return items


def check_names(names: Sequence[Any]) -> None:
    """Names are strings or integers, so that they survive JSON; anything else is named and refused."""
    kinds = set(map(type, names))
    if kinds <= {str, int}:
        return
    where, bad = next((i, name) for i, name in enumerate(names) if type(name) not in (str, int))
    raise StructureError(
        f"node names must be strings or integers; name {where} is {bad!r} ({type(bad).__name__}): convert it"
    )


def name_array(names: Iterable[Any]) -> Names:
    """Read-only object array of distinct names."""
    items = as_list(names)
    check_names(items)
    if len(set(items)) < len(items):
        seen: set[Hashable] = set()
        twice = next(name for name in items if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise StructureError(f"node name {twice!r} is given twice: names must be distinct (full paths are)")
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return freeze(array)


def freeze(array: Array) -> Array:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array


def nearest_name(label: object, names: Sequence[object]) -> object | None:
    """Find the name most like ``label``, or None when nothing is like it."""
    text = str(label)
    by_text = {str(name): name for name in names}
    if len(by_text) > _FEW:
        by_text = {key: by_text[key] for key in _plausible(text, by_text)}
    if text in by_text:
        return by_text[text]
    folded = {key.casefold(): key for key in by_text}
    close = difflib.get_close_matches(text.casefold(), folded, n=1)
    return by_text[folded[close[0]]] if close else None


def _plausible(text: str, keys: Iterable[str]) -> list[str]:
    head, tail = text[:3].casefold(), text[-3:].casefold()
    similar = (key for key in keys if abs(len(key) - len(text)) <= 1 + len(text) // 4)
    close = [key for key in similar if key[:3].casefold() == head or key[-3:].casefold() == tail]
    return close[:_FEW]


def unknown(label: object, names: Sequence[object], what: str, others: int = 0) -> UnknownLabelError:
    """Make the error for a label that is not among the names."""
    near = nearest_name(label, names)
    hint = f" (did you mean {near!r}?)" if near is not None else ""
    more = f"; {others} other labels are unknown too" if others else ""
    return UnknownLabelError(f"label {label!r} is not a node of the {what}{hint}{more}")
