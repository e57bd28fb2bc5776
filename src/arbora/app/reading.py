"""What verbs that read documents share: from arguments to documents, and from documents to rows of numbers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.app.documents import STDIN, Documents, Source, guess_format, read_documents
from arbora.core.progress import Progress
from arbora.datasets.errors import DataFormatError
from arbora.datasets.readers.texts import Fields
from arbora.text import LtcVectorizer

_ENOUGH = 200  # documents from which on a word must occur in two of them
_PLAIN = ("jsonl", "csv", "tsv")


class Reading(NamedTuple):
    """Arguments that say how to read documents."""

    format: str = "auto"
    text: list[str] | None = None
    label: str | None = "label"
    label_separator: str | None = None
    pattern: str = "*"
    encoding: str = "utf-8"

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> Reading:
        """Pick what belongs here from all arguments."""
        return cls(**{name: given[name] for name in cls._fields if name in given})


class Words(NamedTuple):
    """Arguments that say what becomes of a text."""

    language: str = "english"
    min_df: int | None = None
    ngrams: int = 1

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> Words:
        """Pick what belongs here from all arguments."""
        return cls(**{name: given[name] for name in cls._fields if name in given})


def source_of(
    path: str,
    how: Reading,
    *,
    labels: str = "required",
    extra: tuple[str, ...] = (),
    n_features: int | None = None,
) -> Source:
    """Say where documents are and how to read them.

    Parameters
    ----------
    path : str
    how : Reading
    labels : {"required", "optional", "ignored"}
    extra : tuple of str
        Further fields that every document must have.
    n_features : int, optional

    Examples
    --------
    >>> source_of("news.csv", Reading(text=["title", "body"]), labels="ignored").fields
    Fields(text=('title', 'body'), label=None, extra=(), optional=())
    """
    label = None if labels == "ignored" else how.label
    optional = (label,) if labels == "optional" and label is not None else ()
    fields = Fields(tuple(how.text or ("text",)), label, extra, optional)
    return Source(path, how.format, fields, how.label_separator, how.pattern, how.encoding, n_features)


def read(source: Source) -> Documents:
    """Read all documents, with a bar on a terminal."""
    total = _how_many(source) if sys.stderr is not None and sys.stderr.isatty() else None
    with Progress(total, f"reading {Path(source.path).name}", verbose=1) as progress:
        return read_documents(source, progress.update)


def _how_many(source: Source) -> int | None:
    """Count documents ahead of reading them, for the time left; None where that would be as long as reading."""
    if source.path == STDIN or not Path(source.path).exists():
        return None
    if Path(source.path).is_dir():
        return sum(len(files) for _, _, files in os.walk(source.path))
    if (guess_format(source.path) if source.format == "auto" else source.format) not in _PLAIN:
        return None
    with open(source.path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def labelled(documents: Documents, source: Source) -> Documents:
    """Leave out documents without a label, and say so; an error if none has one."""
    if documents.y is None:
        raise DataFormatError(source.path, None, _no_labels(source))
    has = [bool(label) if isinstance(label, list) else label is not None for label in documents.y]
    if isinstance(documents.y, list) or all(has):
        return documents  # of several labels, none is an answer too
    warnings.warn(
        f"{len(has) - sum(has):,} of {len(has):,} documents have no label and are left out", stacklevel=2
    )
    return documents.take(np.flatnonzero(has))


def _no_labels(source: Source) -> str:
    if Path(source.path).is_dir():
        return "has no sub-folders, so there are no labels: put the files of each label into a folder of that name"
    return "no document has a label: name the field of the labels by --label"


def make_vectorizer(words: Words, n_documents: int) -> LtcVectorizer:
    """Make the vectorizer that the arguments ask for.

    Examples
    --------
    >>> make_vectorizer(Words("none"), 1000).get_params()["min_df"]
    2
    """
    min_df = (2 if n_documents >= _ENOUGH else 1) if words.min_df is None else words.min_df
    return LtcVectorizer(
        stop_words="english" if words.language == "english" else None,
        stem=None if words.language == "none" else words.language,
        ngram_range=(1, max(1, words.ngrams)),
        min_df=max(1, min_df),
    )


def _watched(texts: Iterable[str], label: str) -> Iterator[str]:
    total = len(texts) if hasattr(texts, "__len__") else None
    with Progress(total, label, verbose=1) as progress:
        for text in texts:
            yield text
            progress.update()


def learn_rows(documents: Documents, vectorizer: LtcVectorizer | None) -> Any:
    """Rows of documents, by a vectorizer that learns its words from them."""
    if vectorizer is None:
        return sp.csr_matrix(documents.X)
    assert documents.texts is not None
    return vectorizer.fit_transform(_watched(documents.texts, "words"))


def rows_of(documents: Documents, vectorizer: LtcVectorizer | None, n_features: int) -> Any:
    """Rows of documents for a fitted model; documents of the wrong kind are refused.

    Parameters
    ----------
    documents : Documents
    vectorizer : fitted LtcVectorizer or None
        None: the model was trained on rows of numbers.
    n_features : int
        Number of columns of the model.
    """
    if vectorizer is not None:
        if documents.texts is None:
            raise ValueError(f"{documents.name} holds rows of numbers, but the model was trained on texts")
        return vectorizer.transform(_watched(documents.texts, "words"))
    if documents.X is None:
        raise ValueError(f"{documents.name} holds texts, but the model was trained on rows of numbers")
    if documents.X.shape[1] != n_features:
        raise ValueError(
            f"{documents.name} has {documents.X.shape[1]} columns, but the model was trained on {n_features}"
        )
    return sp.csr_matrix(documents.X)


def feature_names(
    documents: Documents | None, vectorizer: LtcVectorizer | None, n_features: int
) -> list[str]:
    """Readable names of the columns."""
    if vectorizer is not None:
        return [str(name) for name in vectorizer.feature_names_]
    if documents is not None and documents.feature_names is not None:
        return [str(name) for name in documents.feature_names]
    return [str(column) for column in range(n_features)]
