"""`Dataset`, the return type of loaders and generators, and helpers for labels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from arbora.structure import Hierarchy, LabelGraph


# --- Errors of the readers and the loader; each names the file and, if possible, the line -------------------


from arbora.arrays import Matrix


class DataFormatError(ValueError):
    """A data file violates its format. `DataFileError` is the same class, named like `arbora.io.ModelFileError`.

    Attributes
    ----------
    path : Path
        The file.
    line : int or None
        Line number, from 1; ``None`` for an error of the whole file.
    problem : str
        What is wrong, and what to do.
    reason : str
        The kind of problem, without names and numbers of this record; by default the problem.

    Examples
    --------
    >>> from arbora.datasets import DataFormatError
    >>> print(DataFormatError("train.svm", 3, "no feature index before ':'"))
    train.svm, line 3: no feature index before ':'
    """

    def __init__(self, path: str | Path, line: int | None, problem: str, reason: str | None = None) -> None:
        self.path = Path(path)
        self.line = line
        self.problem = problem
        self.reason = problem if reason is None else reason
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")

    def __reduce__(self) -> tuple[type[DataFormatError], tuple[Path, int | None, str, str]]:
        return DataFormatError, (self.path, self.line, self.problem, self.reason)


DataFileError = DataFormatError


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the most similar known name, or an empty string."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


# --- `Dataset`, the return type of loaders and generators, and helpers for labels ---------------------------


ROOT = "root"  # name of the root of the hierarchies built in this package
_MAX_LEVELS = 1000  # levels of a path; the names of all its nodes together grow with their square


class Split(NamedTuple):
    """A further split of a data set, such as its validation rows; fields that do not exist are ``None``."""

    X: Any
    y: Any
    texts: list[str] | None = None


@dataclass
class Dataset:
    """Rows, labels and label structure of one data set, in their official split.

    A set without an official split has all rows in ``X_train`` and ``None`` in ``X_test``.

    Attributes
    ----------
    name : str
        Name of the set.
    X_train, X_test : CSR matrix, ndarray or None
        Raw values (counts, measurements); integers become float32. Values are not weighted or standardised.
        For sets of sequences, an object array of (length, n_channels) arrays. ``None`` for sets of raw text.
    y_train, y_test : ndarray of object, list of list, or None
        Node names: one per row, or a list per row for multilabel sets.
    hierarchy : Hierarchy or None
        Label tree or DAG.
    graph : LabelGraph or None
        Undirected label graph.
    feature_names : ndarray of object or None
        Name of each column, if the source has names.
    texts_train, texts_test : list of str or None
        Raw texts, if the source has texts.
    splits : dict of str to Split
        Further official splits, such as ``"validation"``.
    extra : dict
        Other fields of the source (dates, speakers, names of nodes). Arrays have one entry per row, training rows
        first, then test rows.
    truth : object
        True parameters of a generated set.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.datasets import Dataset
    >>> data = Dataset("tiny", np.eye(3), np.array(["a", "b", "a"], dtype=object))
    >>> data
    Dataset 'tiny': 3 train, 0 test, 3 features, 2 labels
    >>> data.X.shape
    (3, 3)
    """

    name: str
    X_train: Any = None
    y_train: Any = None
    X_test: Any = None
    y_test: Any = None
    hierarchy: Hierarchy | None = None
    graph: LabelGraph | None = None
    feature_names: Matrix | None = None
    texts_train: list[str] | None = None
    texts_test: list[str] | None = None
    splits: dict[str, Split] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    truth: Any = None

    @property
    def X(self) -> Any:
        """All rows: training rows, then test rows."""
        if self.X_train is None or self.X_test is None:
            return self.X_train if self.X_test is None else self.X_test
        if isinstance(self.X_train, np.ndarray):
            return np.concatenate([self.X_train, self.X_test])
        from scipy import sparse

        return sparse.vstack([self.X_train, self.X_test], format="csr")

    @property
    def y(self) -> Any:
        """All labels: training labels, then test labels."""
        if self.y_train is None or self.y_test is None:
            return self.y_train if self.y_test is None else self.y_test
        if isinstance(self.y_train, list):
            return self.y_train + self.y_test
        return np.concatenate([self.y_train, self.y_test])

    @property
    def texts(self) -> list[str] | None:
        """All texts: training texts, then test texts."""
        parts = [part for part in (self.texts_train, self.texts_test) if part is not None]
        return [text for part in parts for text in part] if parts else None

    def __repr__(self) -> str:
        sizes = [_n_rows(self.X_train, self.texts_train), _n_rows(self.X_test, self.texts_test)]
        parts = [f"{sizes[0]} train", f"{sizes[1]} test"]
        parts += [f"{_n_rows(split.X, split.texts)} {name}" for name, split in self.splits.items()]
        if getattr(self.X_train, "ndim", 1) == 2:
            parts.append(f"{self.X_train.shape[1]} features")
        if self.y_train is not None:
            parts.append(f"{len(label_names(self.y_train))} labels")
        if self.hierarchy is not None:
            parts.append(f"{self.hierarchy.n_nodes} nodes")
        return f"Dataset {self.name!r}: " + ", ".join(parts)


def _n_rows(X: Any, texts: list[str] | None) -> int:
    if X is not None:
        return int(X.shape[0])
    return 0 if texts is None else len(texts)


def label_names(y: Any) -> list[str]:
    """Sorted distinct names of single labels or lists of labels; ``None`` (no label) is ignored."""
    names = {name for labels in y for name in labels} if isinstance(y, list) else set(y)
    return sorted(names - {None}, key=str)


def name_array(names: Iterable[Any]) -> Matrix:
    """Object array of the given names; names may be sequences themselves."""
    items = list(names)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def single_labels(labels: Sequence[Sequence[str]]) -> Matrix:
    """Object array of the only label of each row."""
    many = next((row for row, names in enumerate(labels) if len(names) != 1), None)
    if many is not None:
        raise ValueError(f"row {many} has {len(labels[many])} labels where exactly one is expected")
    return name_array(names[0] for names in labels)


def path_edges(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Distinct parent-child pairs of slash-separated paths below ``root``, in order of first appearance."""
    edges: dict[tuple[str, str], None] = {}
    for path in dict.fromkeys(paths):
        parts = path.split("/")
        if len(parts) > _MAX_LEVELS:
            raise ValueError(f"the path {path[:60]!r}... has {len(parts)} levels, more than {_MAX_LEVELS}")
        chain = [ROOT, *("/".join(parts[: i + 1]) for i in range(len(parts)))]
        edges.update(dict.fromkeys(pairwise(chain)))
    return list(edges)
