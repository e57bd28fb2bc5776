"""`Documents`: a collection of texts or rows of numbers, with ids, labels and further fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Matrix
from arbora.core.estimator import warn_caller
from arbora.core.labels import is_missing
from arbora.datasets.base import DataFormatError, label_names
from arbora.datasets.readers.records import join_labels
from arbora.datasets.readers.skipped import SkippedRecords
from arbora.datasets.readers.texts import describe_texts
from arbora.structure import Hierarchy

# --- `Documents`: a collection of texts or rows of numbers, with ids, labels and further fields -------------


@dataclass(frozen=True, repr=False)
class Documents:
    """A collection of documents.

    Attributes
    ----------
    name : str
        Name of the file or folder.
    ids : list of str
        Path inside the folder, value of the field ``id``, or line number (of a matrix: row number, from 1).
    y : ndarray of object, list of list, or None
        One name (or None) per document; lists of names if a document can have several labels; None without labels.
    texts : list of str or None
        None for rows of numbers.
    X : CSR matrix or None
        None for texts.
    hierarchy : Hierarchy or None
        The tree of the sub-folders.
    fields : dict of str to list
        Further fields, one value per document.
    feature_names : ndarray of object or None
        Names of the columns of X.
    places : list of (Path, int or None)
        File and line of each document, for error messages.
    skipped : SkippedRecords
        Records that could not be read, and documents that were left out.
    """

    name: str
    ids: list[str]
    y: Any
    places: list[tuple[Path, int | None]]
    texts: list[str] | None = None
    X: Any = None
    hierarchy: Hierarchy | None = None
    fields: dict[str, list[Any]] = field(default_factory=dict)
    feature_names: Matrix | None = None
    skipped: SkippedRecords = field(default_factory=SkippedRecords)

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        y: Any = None,
        *,
        name: str = "documents",
        ids: Sequence[str] | None = None,
        fields: Mapping[str, Sequence[Any]] | None = None,
    ) -> Documents:
        """Make a collection from texts in memory.

        Parameters
        ----------
        texts : sequence of str
        y : array-like of names, list of lists of names, or None
        name : str
            Name of the collection.
        ids : sequence of str, optional
            By default the numbers of the documents, from 1.
        fields : mapping of str to sequence, optional
            Further fields, one value per document.

        Examples
        --------
        >>> Documents.from_texts(["fish swim", "trees grow"], ["sea", "land"]).ids
        ['1', '2']
        """
        names = [str(number) for number in range(1, len(texts) + 1)] if ids is None else list(ids)
        for what, values in (("ids", names), ("y", y), *(fields or {}).items()):
            if values is not None and len(values) != len(texts):
                raise ValueError(
                    f"{what} has {len(values)} entries for {len(texts)} texts: give one per text"
                )
        labels = None if y is None else join_labels(list(y))
        places: list[tuple[Path, int | None]] = [(Path(name), None)] * len(names)
        columns = {key: list(values) for key, values in (fields or {}).items()}
        return cls(name, names, labels, places, texts=[str(text) for text in texts], fields=columns)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        if self.texts is not None:
            parts = [describe_texts(self.texts, self.y)]
        else:
            labels = "" if self.y is None else f", {len(label_names(self.y)):,} labels"
            parts = [f"{len(self):,} rows of {0 if self.X is None else self.X.shape[1]:,} numbers{labels}"]
        parts += [f"fields {', '.join(map(repr, self.fields))}"] if self.fields else []
        parts += [f"{len(self.skipped):,} records skipped"] if self.skipped else []
        return f"Documents {self.name!r}: {'; '.join(parts)}"

    @property
    def multilabel(self) -> bool:
        """Whether a document can have several labels."""
        return isinstance(self.y, list)

    def take(self, rows: Any) -> Documents:
        """Return the documents with these row numbers, in this order.

        Examples
        --------
        >>> Documents.from_texts(["A", "B", "C", "D"]).take([3, 0]).texts
        ['D', 'A']
        """
        rows = np.asarray(rows, dtype=np.int64).tolist()

        def pick(values: Any) -> Any:
            return None if values is None else [values[row] for row in rows]

        y = self.y[rows] if isinstance(self.y, np.ndarray) else pick(self.y)
        return Documents(
            self.name,
            [self.ids[row] for row in rows],
            y,
            [self.places[row] for row in rows],
            pick(self.texts),
            None if self.X is None else self.X[rows],
            self.hierarchy,
            {name: [values[row] for row in rows] for name, values in self.fields.items()},
            self.feature_names,
            self.skipped,
        )


def join_documents(first: Documents, second: Documents) -> Documents:
    """Append one collection to another of the same kind."""
    y = None
    if first.y is not None and second.y is not None:
        y = join_labels([*first.y, *second.y])
    X = None
    if first.X is not None and second.X is not None:
        X = sp.vstack([first.X, second.X], format="csr")
    texts = None if first.texts is None or second.texts is None else first.texts + second.texts
    if texts is None and X is None:
        raise ValueError(
            f"cannot join {first.name} and {second.name}: one has texts, the other rows of numbers"
        )
    fields = {
        name: values + second.fields[name] for name, values in first.fields.items() if name in second.fields
    }
    skipped = SkippedRecords()
    skipped.update(first.skipped)
    skipped.update(second.skipped)
    return Documents(
        first.name,
        first.ids + second.ids,
        y,
        first.places + second.places,
        texts,
        X,
        first.hierarchy,
        fields,
        first.feature_names,
        skipped,
    )


# --- Texts and times that users give to `TopicModel` and `TextClassifier` -----------------------------------


def as_documents(texts: Any, y: Any = None, name: str = "texts") -> Documents:
    """Return texts as a collection; a missing text (None, NaN) is an empty one.

    >>> as_documents(["old trees", None, float("nan")]).texts
    ['old trees', '', '']
    """
    if isinstance(texts, Documents):
        return texts
    if isinstance(texts, str):
        raise ValueError("texts must be a sequence of texts, not a single text: give [text]")
    values = ["" if is_missing(text) else text for text in texts]
    unread = next((row for row, text in enumerate(values) if isinstance(text, bytes)), None)
    if unread is not None:
        raise ValueError(f"text {unread} is bytes: decode it, for instance with text.decode('utf-8')")
    return Documents.from_texts([str(text) for text in values], y, name=name)


def as_times(times: Any) -> Matrix:
    """Return times as an array of float64 or datetime64[s]."""
    values = np.asarray(times)
    return values.astype(np.float64 if values.dtype.kind in "biuf" else "datetime64[s]")


# --- Documents with the same text: find them, leave them out ------------------------------------------------
#
# Two texts are the same if they have the same words in the same order: case and white space do not count.


DUPLICATE = "the text is that of an earlier document"
OTHER_LABEL = "the text is that of an earlier document with another label"


def text_key(text: str) -> bytes:
    """Return a key that is the same for texts that differ in case and white space only."""
    plain = " ".join(text.casefold().split())
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def drop_duplicates(documents: Documents) -> Documents:
    """Keep the first document of each text; the others are counted in ``documents.skipped``."""
    if documents.texts is None:
        return documents
    first: dict[bytes, int] = {}
    keep = np.ones(len(documents), dtype=bool)
    for row, text in enumerate(documents.texts):
        before = first.setdefault(text_key(text), row)
        if before != row:
            keep[row] = False
            same = documents.y is None or documents.y[before] == documents.y[row]
            problem = f"the text is that of {documents.ids[before]!r}"
            error = DataFormatError(*documents.places[row], problem, DUPLICATE if same else OTHER_LABEL)
            documents.skipped.add(error)
    return documents if keep.all() else documents.take(np.flatnonzero(keep))


# --- Warnings about a test: too few documents, or texts that were trained on --------------------------------


FEW = 50  # test documents that make a score vague


def warn_split(train: Documents, test: Documents) -> None:
    """Warn if a test has few documents, classes without any, or documents that are in the training set too."""
    for message in (*_duplicates(train, test), *_few(train, test)):
        warn_caller(message)


def _duplicates(train: Documents, test: Documents) -> list[str]:
    if train.texts is None or test.texts is None:
        return []
    keys = {text_key(text) for text in train.texts if text.strip()}
    twice = [name for name, text in zip(test.ids, test.texts, strict=True) if text_key(text) in keys]
    if not twice:
        return []
    verb = "is" if len(twice) == 1 else "are"
    return [
        f"{len(twice):,} of {len(test):,} test documents {verb} also in the training documents: the scores are too "
        f"high (first: {twice[0]}); --dedupe (dedupe=True) leaves out duplicates"
    ]


def _few(train: Documents, test: Documents) -> list[str]:
    trained, tested = (set(label_names(documents.y)) for documents in (train, test))
    n_without = len(trained - tested)
    vague = len(test) < FEW
    if not vague and not n_without:
        return []
    parts = []
    if vague:
        # Two standard deviations of a share of 1/2.
        points = min(100, math.ceil(100 * math.sqrt(1 / max(1, len(test)))))
        plural = "" if len(test) == 1 else "s"
        parts.append(f"only {len(test)} test document{plural}: scores can be off by {points} points")
    if n_without:
        parts.append(f"{n_without:,} of {len(trained):,} classes have no test document")
    return ["; ".join(parts)]
