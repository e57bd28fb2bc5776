"""Encode objects as JSON values and arrays; :mod:`arbora.io.decode` is the inverse.

None, booleans, integers, finite floats, strings, lists and dicts with string keys are JSON values. Everything else is
a JSON object whose key ``"$"`` names its kind. An object with two references (a hierarchy that is a parameter and an
attribute) is written once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from arbora.io.registry import full_name, kind_of, name_of

SCALAR_KINDS = "biufcMm"
ARRAY_KINDS = "biufcMmUS"
SPARSE_PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr")}

_DEEPEST = 100
_PLAIN = frozenset({type(None), bool, int, str})
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]]{0,99}")


def is_fitted_name(name: str) -> bool:
    """Return whether an attribute of an estimator is learned (or is its output format)."""
    return (name.endswith("_") and not name.startswith("_")) or name == "_sklearn_output_config"


def _all_plain(values: Iterable[Any]) -> bool:
    return _PLAIN.issuperset(map(type, values))


class Encoder:
    """Encoder of one model; the arrays of the model are collected in ``arrays``."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        # Keys are identities; the objects are kept, so that no identity is reused during the encoding.
        self._array_names: dict[int, tuple[object, str]] = {}
        self._object_numbers: dict[int, tuple[object, int]] = {}
        self._open: set[int] = set()
        self._depth = 0

    def encode(self, value: Any, where: str) -> Any:
        """Encode a value; error messages call it ``where``."""
        if self._depth > _DEEPEST:
            raise TypeError(f"cannot save {where[:60]}...: it is nested too deeply, or contains itself")
        self._depth += 1
        try:
            return self._encode(value, where)
        finally:
            self._depth -= 1

    def _encode(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
        if kind is list:
            return self._members(value, where)
        if kind in (tuple, set, frozenset):
            return {"$": kind.__name__, "values": self._members(_in_order(value), where)}
        if kind is dict:
            return self._dict(value, where)
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if kind in (np.ndarray, np.memmap):
            return self._array(value, where)
        if sparse.issparse(value):
            return self._sparse(value, where)
        if isinstance(value, np.dtype):
            return {"$": "dtype", "value": self._dtype(value, where)}
        if isinstance(value, type) and issubclass(value, np.generic):
            return {"$": "numpy type", "value": np.dtype(value).str}
        return self._object(value, where)

    def _members(self, values: Any, where: str) -> list[Any]:
        if _all_plain(values):  # fast path for hundreds of thousands of names
            return list(values)
        return [self.encode(member, f"{where}[{index}]") for index, member in enumerate(values)]

    def _dict(self, value: dict[Any, Any], where: str) -> dict[str, Any]:
        if set(map(type, value)) <= {str} and "$" not in value:
            if _all_plain(value.values()):
                return value
            return {key: self.encode(member, f"{where}[{key!r}]") for key, member in value.items()}
        return {
            "$": "dict",
            "keys": self._members(list(value), f"the keys of {where}"),
            "values": self._members(list(value.values()), where),
        }

    def _dtype(self, dtype: np.dtype[Any], where: str) -> str:
        if dtype.kind not in ARRAY_KINDS + "O":
            raise TypeError(f"cannot save {where}: its dtype is {dtype}; use numbers, booleans or strings")
        return dtype.str

    def _scalar(self, value: np.generic, where: str) -> dict[str, str]:
        if isinstance(value, np.str_):
            return {"$": "numpy str", "value": str(value)}
        if value.dtype.kind not in SCALAR_KINDS:
            raise TypeError(f"cannot save {where}: it is a numpy scalar of dtype {value.dtype}")
        return {"$": "scalar", "dtype": value.dtype.str, "hex": value.tobytes().hex()}

    def _array(self, value: NDArray[Any], where: str) -> dict[str, Any]:
        if value.dtype.kind == "O":
            members = self._members(value.ravel().tolist(), where)
            return {"$": "object array", "shape": list(value.shape), "values": members}
        self._dtype(value.dtype, where)
        if id(value) not in self._array_names:
            name = where.removeprefix("model.")
            if name in self.arrays or not _PLAIN_NAME.fullmatch(name):
                name = f"array-{len(self.arrays)}"
            self.arrays[name] = value
            self._array_names[id(value)] = (value, name)
        return {"$": "array", "name": self._array_names[id(value)][1]}

    def _sparse(self, value: Any, where: str) -> dict[str, Any]:
        if value.dtype.kind == "O":  # older versions of scipy allow it
            raise TypeError(f"cannot save {where}: a sparse matrix of objects")
        if value.format == "coo":
            parts = {"data": value.data} | {f"coords{axis}": part for axis, part in enumerate(value.coords)}
        elif value.format in SPARSE_PARTS:
            parts = {name: getattr(value, name) for name in SPARSE_PARTS[value.format]}
        else:
            raise TypeError(f"cannot save {where}: sparse format {value.format}; convert it with .tocsr()")
        return {
            "$": "sparse",
            "format": value.format,
            "container": "array" if isinstance(value, sparse.sparray) else "matrix",
            "shape": [int(length) for length in value.shape],
            "parts": {name: self._array(part, f"{where}.{name}") for name, part in parts.items()},
        }

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        name = name_of(type(value))
        if name is None:
            raise TypeError(f"cannot save {where}: {_why_not(value)}")
        if id(value) in self._open:
            raise TypeError(f"cannot save {where}: it contains itself")
        if id(value) in self._object_numbers:
            return {"$": "same", "number": self._object_numbers[id(value)][1]}
        self._open.add(id(value))
        try:
            content = self._content(value, where)
        finally:
            self._open.discard(id(value))
        number = len(self._object_numbers)
        self._object_numbers[id(value)] = (value, number)
        return {"$": kind_of(type(value)), "class": name, "number": number, **content}

    def _content(self, value: Any, where: str) -> dict[str, Any]:
        kind = kind_of(type(value))
        if kind == "state":
            return {"state": self.encode(value.to_state(), where)}
        if kind == "tuple":
            fields = zip(value._fields, value, strict=True)
            return {"values": [self.encode(member, f"{where}.{name}") for name, member in fields]}
        # An estimator can replace parameters that cannot be saved by values that can.
        params = getattr(value, "__arbora_params__", lambda: value.get_params(deep=False))()
        fitted = {name: member for name, member in vars(value).items() if is_fitted_name(name)}
        return {
            part: {name: self.encode(member, f"{where}.{name}") for name, member in members.items()}
            for part, members in (("params", params), ("fitted", fitted))
        }


def _in_order(values: Any) -> list[Any]:
    """List a tuple in its order, and a set in an order that is the same in every process."""
    if isinstance(values, tuple):
        return list(values)
    return sorted(values, key=lambda member: (str(type(member)), repr(member)))


def _why_not(value: Any) -> str:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return "a random generator is not a seed; make the estimator with random_state=None or an integer"
    name = full_name(type(value))
    if callable(value) and hasattr(value, "__qualname__"):
        return f"it is {value.__qualname__!r}, and model files never contain code"
    if kind_of(type(value)) is not None:
        return f"its class {name} is not registered; call arbora.io.register({type(value).__name__}) first"
    return (
        f"it is a {name}; model files can contain None, numbers, strings, lists, tuples, sets, dicts, arrays, CSR, "
        "CSC and COO matrices, and objects of registered classes"
    )
