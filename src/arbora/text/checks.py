"""Validation of documents and parameters."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

_MISSING = ("None", "nan", "NaT", "<NA>")  # str() of the missing values of Python, NumPy and pandas


def check_document(document: object, row: int) -> str:
    """Return `document` if it is text; otherwise raise an error that names its row."""
    if isinstance(document, str):
        return document
    if isinstance(document, bytes):
        hint = "decode it first, for example with document.decode('utf-8')"
    elif str(document) in _MISSING:
        hint = "a missing text can be given as ''"
    else:
        hint = "convert it with str(...) if it is meant as text"
    raise TypeError(f"document {row} is {document!r:.60} of type {type(document).__name__}, not str: {hint}")


def check_collection(documents: object) -> Iterable[object]:
    """Return `documents` if it is a collection of texts; a single text or a table raises an error."""
    if isinstance(documents, str | bytes):
        raise ValueError(
            f"an iterable of documents is expected, not a single {type(documents).__name__}; "
            "wrap one document in a list"
        )
    if isinstance(documents, Mapping):
        raise ValueError("an iterable of documents is expected, not a mapping; pass its values()")
    if getattr(documents, "ndim", 1) != 1:
        raise ValueError(
            "an iterable of documents is expected, not a table of shape "
            f"{getattr(documents, 'shape', None)}; pass its column of texts"
        )
    if not isinstance(documents, Iterable):
        raise TypeError(f"an iterable of documents is expected, not {type(documents).__name__}")
    return documents


def check_ngram_range(ngram_range: Sequence[int], words: Iterable[str] = ()) -> tuple[int, int]:
    """Return the shortest and longest n; words that contain a space are refused where n-grams are formed."""
    limits = tuple(ngram_range)
    integers = len(limits) == 2 and all(isinstance(n, Integral) for n in limits)
    if not integers or not 1 <= limits[0] <= limits[1]:
        raise ValueError(
            f"ngram_range must be two integers (min_n, max_n) with 1 <= min_n <= max_n, got {ngram_range!r}"
        )
    if limits[1] > 1:
        spaced = next((word for word in words if " " in word), None)
        if spaced is not None:
            raise ValueError(
                f"token_pattern matches a token with a space, {spaced!r}, which is indistinguishable from an "
                "n-gram; change token_pattern, or use ngram_range=(1, 1)"
            )
    return limits[0], limits[1]


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return `dtype` if it is float32 or float64."""
    checked = np.dtype(dtype)
    if checked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be numpy.float32 or numpy.float64, got {dtype!r}")
    return checked
