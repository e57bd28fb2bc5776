"""Texts and times that users give to `TopicModel` and `TextClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.documents.collection import Documents
from arbora.core.labels import is_missing


def as_documents(texts: Any, y: Any = None, name: str = "texts") -> Documents:
    """Return texts as a collection; a missing text (None, NaN) is an empty one.

    Examples
    --------
    >>> as_documents(["old trees", None, float("nan")]).texts
    ['old trees', '', '']
    """
    if isinstance(texts, Documents):
        return texts
    if isinstance(texts, str):
        raise ValueError("texts must be a sequence of texts, not a single text: give [text]")
    values = ["" if is_missing(text) else text for text in texts]
    unread = next((at for at, text in enumerate(values) if isinstance(text, bytes)), None)
    if unread is not None:
        raise ValueError(f"text {unread} is bytes: decode it, for instance with text.decode('utf-8')")
    return Documents.from_texts([str(text) for text in values], y, name=name)


def as_stamps(times: Any, over_time: Any) -> NDArray[Any] | None:
    """Return times as numbers or dates."""
    if times is None:
        return None
    if over_time is None:
        raise ValueError("times are for topics over time: TopicModel(over_time=True)")
    given = np.asarray(times)
    return given.astype(np.float64 if given.dtype.kind in "biuf" else "datetime64[s]")
