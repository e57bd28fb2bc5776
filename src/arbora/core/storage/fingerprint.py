"""The fingerprint of data and parameters: equal for equal content, different for different content.

Everything is hashed by SHA-256 with a tag for its kind and its length, so that ``["ab"]`` and ``["a", "b"]`` differ.
Large arrays are hashed in place, without a copy. Checkpoints and the journals of clusters use it. (A pickle would not
do: it also records which equal objects are identical, and which arrays are writable.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from os import PathLike
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
from scipy import sparse

from arbora.core.chunks import split
from arbora.core.files import Hasher

_CHUNK_BYTES = 1 << 24


def fingerprint(*things: Any) -> str:
    """Hash data and parameters into 64 hexadecimal digits.

    Parameters
    ----------
    *things : object
        Arrays, sparse matrices, numbers, strings, None, ranges, slices, paths, types, functions of a module,
        random generators; lists, tuples, sets and dicts of these; estimators (class and parameters), objects with a
        ``to_state`` method, and other objects by their attributes. The order of a dict or set does not matter, and
        NumPy scalars equal Python scalars. Arrays are compared with their dtype, byte for byte.

    Returns
    -------
    str
        The fingerprint.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.core.storage.fingerprint import fingerprint
    >>> X = np.eye(3)
    >>> fingerprint(X, {"C": 1.0, "tol": 0.1}) == fingerprint(X.copy(), {"tol": 0.1, "C": 1.0})
    True
    >>> fingerprint(X, {"C": 1.0}) == fingerprint(X, {"C": 2.0})
    False
    """
    return _digest(things).hex()


def _digest(thing: Any) -> bytes:
    hasher = hashlib.sha256()
    _feed(hasher, thing)
    return hasher.digest()


def _tag(hasher: Hasher, kind: str, content: bytes) -> None:
    hasher.update(f"{kind}:{len(content)}:".encode())
    hasher.update(content)


def _feed(hasher: Hasher, thing: Any) -> None:
    if isinstance(thing, np.generic) and not isinstance(thing, np.void):
        thing = thing.item()
    if thing is None or isinstance(thing, bool | int | float | complex | range | slice):
        _tag(hasher, type(thing).__name__, repr(thing).encode())
    elif isinstance(thing, str):
        _tag(hasher, "str", thing.encode("utf-8", "surrogatepass"))
    elif isinstance(thing, bytes):
        _tag(hasher, "bytes", thing)
    elif isinstance(thing, np.ndarray):
        _feed_array(hasher, thing)
    elif sparse.issparse(thing):
        _feed_sparse(hasher, thing)
    elif isinstance(thing, list | tuple):
        _feed_sequence(hasher, "list" if isinstance(thing, list) else "tuple", thing)
    elif isinstance(thing, set | frozenset):
        _feed_sequence(hasher, "set", sorted(_digest(member) for member in thing))
    elif isinstance(thing, Mapping):
        _feed_sequence(hasher, "dict", sorted(_digest((key, value)) for key, value in thing.items()))
    else:
        _feed_object(hasher, thing)


def _feed_sequence(hasher: Hasher, kind: str, members: Iterable[Any]) -> None:
    members = list(members)
    _tag(hasher, kind, str(len(members)).encode())
    if set(map(type, members)) == {str}:  # a corpus or a vocabulary: hash all texts at once
        _tag(hasher, "lengths", np.fromiter(map(len, members), dtype="<i8").tobytes())
        _feed(hasher, "".join(members))
        return
    for member in members:
        _feed(hasher, member)


def _feed_array(hasher: Hasher, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.hasobject:
        _tag(hasher, "object array", repr(array.shape).encode())
        _feed_sequence(hasher, "members", array.ravel().tolist())
        return
    _tag(hasher, "array", f"{array.dtype.descr}{array.shape}".encode())
    if array.size == 0:
        return
    if array.ndim == 0 or array.flags.c_contiguous:
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return
    # Copied into C order a chunk at a time, so that a transposed matrix needs no second matrix.
    size = max(1, _CHUNK_BYTES * len(array) // array.nbytes) if array.nbytes else len(array)
    for chunk in split(len(array), size=size):
        hasher.update(np.ascontiguousarray(array[chunk]).reshape(-1).view(np.uint8).data)


def _feed_sparse(hasher: Hasher, matrix: Any) -> None:
    if matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    _tag(hasher, matrix.format, repr(matrix.shape).encode())
    for part in (matrix.indptr, matrix.indices, matrix.data):
        _feed_array(hasher, part)


def _feed_object(hasher: Hasher, thing: Any) -> None:
    kind = thing if isinstance(thing, type) else type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(thing, type):
        _tag(hasher, "type", name.encode())
    elif isinstance(thing, FunctionType | BuiltinFunctionType | np.ufunc):
        _tag(hasher, "function", _function_name(thing).encode())
    elif isinstance(thing, PathLike):
        _tag(hasher, "path", str(thing).encode())
    elif isinstance(thing, np.dtype):
        _tag(hasher, "dtype", str(thing.descr).encode())
    elif isinstance(thing, np.random.Generator):
        _feed_sequence(hasher, name, [thing.bit_generator.state])
    elif isinstance(thing, np.random.RandomState):
        _feed_sequence(hasher, name, [thing.get_state(legacy=False)])
    elif hasattr(thing, "to_state"):
        _feed_sequence(hasher, name, [thing.to_state()])
    elif hasattr(thing, "get_params"):
        _feed_sequence(hasher, name, [thing.get_params(deep=False)])
    elif hasattr(thing, "__dict__"):
        _feed_sequence(hasher, name, [vars(thing)])
    else:
        raise TypeError(
            f"cannot take a fingerprint of {name}: give arrays, sparse matrices, numbers, strings, containers of "
            "these, estimators, or objects with a to_state method"
        )


def _function_name(function: Any) -> str:
    if isinstance(function, np.ufunc):
        return f"numpy.{function.__name__}"
    name = f"{function.__module__}.{function.__qualname__}"
    if (
        "<" in name or getattr(function, "__self__", None) is not None
    ):  # a lambda, a local or a bound function
        raise TypeError(
            f"cannot take a fingerprint of the function {name}: it has no name in a module; define it at the top of "
            "a module"
        )
    return name
