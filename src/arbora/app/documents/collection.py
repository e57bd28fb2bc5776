"""`Documents`: a collection of texts or rows of numbers, with ids, labels and further fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.datasets.base import label_names
from arbora.datasets.readers.skipped import SkippedRecords
from arbora.datasets.readers.texts.collect import describe_texts
from arbora.datasets.readers.texts.records import join_labels
from arbora.structure import Hierarchy


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
    feature_names: NDArray[Any] | None = None
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

        Returns
        -------
        Documents

        Examples
        --------
        >>> Documents.from_texts(["fish swim", "trees grow"], ["sea", "land"]).ids
        ['1', '2']
        """
        kept = [str(number) for number in range(1, len(texts) + 1)] if ids is None else list(ids)
        for what, values in (("ids", kept), ("y", y), *(fields or {}).items()):
            if values is not None and len(values) != len(texts):
                raise ValueError(
                    f"{what} has {len(values)} entries for {len(texts)} texts: give one per text"
                )
        labels = None if y is None else join_labels(list(y))
        places: list[tuple[Path, int | None]] = [(Path(name), None)] * len(kept)
        more = {key: list(values) for key, values in (fields or {}).items()}
        return cls(name, kept, labels, places, texts=[str(text) for text in texts], fields=more)

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
    """Append one collection to another of the same kind.

    Examples
    --------
    >>> join_documents(Documents.from_texts(["a"]), Documents.from_texts(["b"])).texts
    ['a', 'b']
    """
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
