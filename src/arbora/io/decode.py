"""Decode JSON values and arrays into objects; the inverse of :mod:`arbora.io.encode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from arbora.core.validation import structure_problem
from arbora.io.encode import ARRAY_KINDS, SCALAR_KINDS, SPARSE_PARTS, is_fitted_name
from arbora.io.errors import ModelFileError
from arbora.io.registry import class_of, kind_of
from arbora.io.renamed import ADDED, current_class, current_names

_CONTAINERS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_FLOATS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def _dtype(text: str, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in kinds:
        raise ModelFileError(f"dtype {text!r} is not expected here")
    return dtype


def _check_lengths(format: str, shape: tuple[int, ...], parts: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a shape that its index pointers do not have, before anything of that length is allocated."""
    if min(shape, default=0) < 0 or (format != "coo" and len(shape) != 2):
        raise ModelFileError(f"a sparse matrix has the shape {shape}")
    if format != "coo" and len(parts["indptr"]) != shape[0 if format == "csr" else 1] + 1:
        raise ModelFileError(
            f"a sparse matrix of shape {shape} has {len(parts['indptr'])} entries in its indptr"
        )


class Decoder:
    """Decoder of one model.

    Parameters
    ----------
    arrays : dict of str to ndarray
        The arrays of the model.
    format_version : int
        Format of the file; names of older formats are translated by `arbora.io.renamed`.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], format_version: int) -> None:
        self._arrays = arrays
        self._renames = format_version < 2
        self._objects: dict[int, Any] = {}
        self._decoders: dict[str, Callable[[Any], Any]] = {
            "float": lambda node: _FLOATS[node["value"]],
            "dict": self._dict,
            "numpy str": lambda node: np.str_(node["value"]),
            "scalar": self._scalar,
            "dtype": lambda node: _dtype(node["value"], ARRAY_KINDS + "O"),
            "numpy type": lambda node: _dtype(node["value"], ARRAY_KINDS + "O").type,
            "array": self._array,
            "object array": self._object_array,
            "sparse": self._sparse,
            "same": lambda node: self._objects[node["number"]],
            **dict.fromkeys(_CONTAINERS, self._container),
            **dict.fromkeys(("state", "estimator"), self._object),
        }

    def decode(self, node: Any) -> Any:
        """Decode a JSON value."""
        if isinstance(node, list):
            return [self.decode(member) if isinstance(member, list | dict) else member for member in node]
        if not isinstance(node, dict):
            return node
        if "$" not in node:
            return {key: self.decode(member) for key, member in node.items()}
        kind = node["$"]
        if kind == "tuple" and "class" in node:
            return self._object(node)
        if kind not in self._decoders:
            raise ModelFileError(f"unknown kind of value {kind!r}")
        return self._decoders[kind](node)

    def _container(self, node: dict[str, Any]) -> Any:
        return _CONTAINERS[node["$"]](self.decode(node["values"]))

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        return dict(zip(self.decode(node["keys"]), self.decode(node["values"]), strict=True))

    def _scalar(self, node: dict[str, Any]) -> Any:
        return np.frombuffer(bytes.fromhex(node["hex"]), _dtype(node["dtype"], SCALAR_KINDS))[0]

    def _array(self, node: dict[str, Any]) -> NDArray[Any]:
        if node["name"] not in self._arrays:
            raise ModelFileError(f"the array {node['name']!r} is missing")
        return self._arrays[node["name"]]

    def _object_array(self, node: dict[str, Any]) -> NDArray[Any]:
        values = self.decode(node["values"])
        array = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):  # one by one: assigned at once, lists would become rows
            array[index] = value
        return array.reshape([int(length) for length in node["shape"]])

    def _sparse(self, node: dict[str, Any]) -> Any:
        if node["format"] not in ("coo", *SPARSE_PARTS) or node["container"] not in ("array", "matrix"):
            raise ModelFileError(f"unknown sparse {node['container']} of format {node['format']!r}")
        parts = {name: self._array(part) for name, part in node["parts"].items()}
        shape = tuple(int(length) for length in node["shape"])
        _check_lengths(node["format"], shape, parts)
        # Set the arrays directly: the constructor would copy the indices to another integer type.
        matrix = getattr(sparse, f"{node['format']}_{node['container']}")(shape, dtype=parts["data"].dtype)
        matrix.data = parts["data"]
        if node["format"] == "coo":
            matrix.coords = tuple(parts[f"coords{axis}"] for axis in range(len(shape)))
            matrix.has_canonical_format = False
        else:
            matrix.indices, matrix.indptr = parts["indices"], parts["indptr"]
        problem = structure_problem(matrix)  # always: compiled code trusts the indices
        if problem is not None:
            raise ModelFileError(f"a sparse matrix is damaged: {problem}")
        return matrix

    def _object(self, node: dict[str, Any]) -> Any:
        name = current_class(node["class"]) if self._renames else node["class"]
        cls = class_of(name)
        if kind_of(cls) != node["$"]:
            raise ModelFileError(f"{node['class']} is not saved as {node['$']!r} in this version")
        if node["$"] == "state":
            value = cls.from_state(self.decode(node["state"]))  # type: ignore[attr-defined]
        elif node["$"] == "tuple":
            value = cls(*self.decode(node["values"]))
        else:
            value = self._estimator(cls, name, node)
        self._objects[node["number"]] = value
        return value

    def _estimator(self, cls: type, class_name: str, node: dict[str, Any]) -> Any:
        params = {name: self.decode(member) for name, member in node["params"].items()}
        fitted = {name: self.decode(member) for name, member in node["fitted"].items()}
        if self._renames:
            params, fitted = current_names(class_name, params, fitted)
        value = cls(**{**ADDED.get(class_name, {}), **params})
        for name, member in fitted.items():
            if not is_fitted_name(name):  # a file must not replace a method
                raise ModelFileError(f"{class_name} cannot have learned an attribute {name!r}")
            setattr(value, name, member)
        return value
