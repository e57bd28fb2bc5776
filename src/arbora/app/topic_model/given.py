"""Texts and times that users give to `TopicModel`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.documents.collection import Documents


def as_documents(texts: Any, y: Any = None, name: str = "texts") -> Documents:
    """Return texts as a collection; a missing text is an empty one.

    Examples
    --------
    >>> as_documents(["old trees", None]).texts
    ['old trees', '']
    """
    if isinstance(texts, Documents):
        return texts
    if isinstance(texts, str):
        raise ValueError("texts must be a sequence of texts, not a single text: give [text]")
    return Documents.from_texts(["" if text is None else str(text) for text in texts], y, name=name)


def as_stamps(times: Any, over_time: Any) -> NDArray[Any] | None:
    """Return times as numbers or dates."""
    if times is None:
        return None
    if over_time is None:
        raise ValueError("times are for topics over time: TopicModel(over_time=True)")
    given = np.asarray(times)
    return given.astype(np.float64 if given.dtype.kind in "biuf" else "datetime64[s]")
