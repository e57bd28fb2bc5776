"""Mutations of bytes, of JSON values and of arrays."""

# ruff: noqa: E501 - tables of odd values
from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

TOKENS = [
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\n\n\n", b" ", b"\t", b",", b":", b"/", b"@", b"'", b'"',
    b"{", b"}", b"[", b"]", b"#", b"%", b"-", b"+", b".", b"e", b"nan", b"inf", b"-inf", b"1e400", b"-1e400", b"1e39",
    b"1e-400", b"0", b"-0", b"-1", b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"1" * 25, b"9" * 400, b"0." + b"3" * 300, b"null", b"true", b"NaN",
    b"Infinity", b"@data", b"@attribute x numeric", b"@attribute class hierarchical a,a/b", b"root", b"None",
    b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\\u0000", b"\\ud800",
]  # fmt: skip
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, -(2**31) - 1, 2**63, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan"), "",
    "a", "\0", "$", "x" * 1000, "../../x", "</script>", "\ud800", [], [[]], [0], [-1], ["a", 1], {}, {"$": "array"},
    {"$": "nothing"}, {"$": "tuple"},
]  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Change bytes in one to five places."""
    for _ in range(1 + int(rng.random() ** 2 * 5)):
        data = _once(rng, data)
    return data


def _once(rng: random.Random, data: bytes) -> bytes:
    size = len(data)
    at = rng.randrange(size + 1)
    to = min(size, at + rng.choice((1, 2, 4, 16, 64, 1024)))
    kind = rng.randrange(10)
    if kind == 0 and size:
        at = min(at, size - 1)
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[to:]
    if kind == 2:
        return data[:at] + data[to:]
    if kind == 3:
        return data[:at] + rng.choice(TOKENS) + data[at:]
    if kind == 4:
        return data[:at] + rng.choice(TOKENS) + data[to:]
    if kind == 5:
        return data[:at]
    if kind == 6:
        return data[:to] + data[at:to] * rng.choice((1, 2, 10, 200)) + data[to:]
    if kind == 7:
        other = rng.randrange(size + 1)
        return data[:at] + data[other : other + to - at] + data[to:]
    numbers = list(NUMBER.finditer(data)) if size < 1 << 16 else []
    if kind == 8 and numbers:
        found = rng.choice(numbers)
        return data[: found.start()] + rng.choice(TOKENS) + data[found.end() :]
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def mutate_json(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Change one place of a JSON value."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.8):
        key = rng.choice(list(value))
        kind = rng.randrange(8)
        if kind == 0 and depth:
            return {name: member for name, member in value.items() if name != key}
        if kind == 1 and depth:
            return {
                (rng.choice(("", "$", "x", key + "_")) if name == key else name): m
                for name, m in value.items()
            }
        return {name: mutate_json(rng, m, depth + 1) if name == key else m for name, m in value.items()}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return [*value, value[at]]
        return [*value[:at], mutate_json(rng, value[at], depth + 1), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 10, -(10**6), 10**6, 2**32))
    return rng.choice(VALUES)


def mutate_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Change values, length, shape or type of an array."""
    array = np.array(array)
    kind = rng.randrange(9)
    if kind <= 3 and array.size:
        flat = array.reshape(-1)
        for _ in range(rng.choice((1, 1, 1, 5))):
            flat[rng.randrange(flat.size)] = _odd_value(rng, array.dtype)
        return flat.reshape(array.shape)
    if kind == 4 and array.ndim:
        return array[: rng.randrange(len(array) + 1)]
    if kind == 5 and array.ndim:
        return np.concatenate([array, array[: rng.randrange(len(array) + 1)]])
    if kind == 6:
        return array[::-1].copy() if array.ndim else array
    if kind == 7:
        name = rng.choice(
            ("f4", "f8", "i4", "i8", "i2", "u1", "?", "c16", "f2", ">i4", ">f8", "U3", "S2", "M8[s]")
        )
        try:
            return array.astype(name)
        except (ValueError, TypeError):
            return array
    return array.reshape(rng.choice(((-1,), (1, -1), (-1, 1))))


def _odd_value(rng: random.Random, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":
        limit = np.iinfo(dtype)
        return rng.choice(
            (0, 1, limit.max, limit.min, limit.max // 2, min(100, limit.max), max(-1, limit.min))
        )
    if dtype.kind == "f":
        return rng.choice(
            (0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, np.finfo(dtype).max, np.finfo(dtype).tiny)
        )
    if dtype.kind == "b":
        return rng.random() < 0.5
    if dtype.kind in "US":
        return rng.choice(("", "x", "odd name"))
    return 0
