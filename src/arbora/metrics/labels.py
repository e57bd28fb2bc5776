"""Convert labels of any accepted form to sparse indicators. Every measure reads ``y`` here.

A label argument is one of

* a 1-d array or list of names or ids (one label per row),
* a list of label lists, tuples or sets (any number of labels per row, possibly none),
* a 2-d NumPy array or sparse matrix of zeros and ones (row by class), with one column or more. A list of lists
  is never read as a matrix: ``[[0, 1]]`` is one row with the labels 0 and 1.

All forms become boolean CSR indicators with the same columns, so counting is a sparse product and single-label,
multilabel and node labels share one implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from arbora.arrays import Matrix
from arbora.core.validation import check_structure
from arbora.structure.names import nearest_name

if TYPE_CHECKING:
    from arbora.structure import Hierarchy

_SETS = (list, tuple, set, frozenset, np.ndarray)
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


class LabelRows(NamedTuple):
    """Labels of all rows, concatenated; row ``i`` has ``lengths[i]`` of them."""

    values: Any  # numeric array, or list of hashable names
    lengths: Matrix
    single: bool
    n_columns: int | None  # of an indicator matrix; None for other forms


class Indicators(NamedTuple):
    """Boolean CSR matrices (one per argument) over the same columns, and the classes of the columns."""

    matrices: tuple[sparse.csr_array, ...]
    classes: Matrix
    single: bool  # every argument has one label per row
    named: bool  # the labels are names or ids, not an indicator matrix


def read_labels(y: Any, name: str) -> LabelRows:
    """Flatten one label argument; error messages call it ``name``."""
    if isinstance(y, str) or not (sparse.issparse(y) or hasattr(y, "__len__")):
        raise ValueError(f"{name} must hold the labels of many rows, got {y!r}; wrap a single row in a list")
    if not (sparse.issparse(y) or isinstance(y, np.ndarray | list | tuple)):
        y = np.asarray(y)  # a pandas Series or DataFrame, for instance
    if sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2):
        return _read_matrix(y, name)
    if isinstance(y, np.ndarray) and y.ndim != 1:
        raise ValueError(f"{name} must be an array of one or two dimensions or a list, got shape {y.shape}")
    if len(y) == 0:
        raise ValueError(f"{name} is empty: a measure needs at least one row")
    if isinstance(y, np.ndarray) and y.dtype.kind in "biuf":
        return LabelRows(_finite(y, name), np.ones(len(y), dtype=np.int64), True, None)
    rows = y.tolist() if isinstance(y, np.ndarray) else list(y)
    is_set = [isinstance(row, _SETS) for row in rows]
    if not any(is_set):
        return LabelRows(_same_type(rows, name), np.ones(len(rows), dtype=np.int64), True, None)
    if not all(is_set):
        bare = is_set.index(False)
        raise ValueError(
            f"{name} mixes label lists with bare labels: row {bare} is {rows[bare]!r}; "
            f"write [{rows[bare]!r}] to give that row one label"
        )
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return LabelRows(_same_type(list(chain.from_iterable(rows)), name), lengths, False, None)


def _read_matrix(y: Any, name: str) -> LabelRows:
    if not sparse.issparse(y) and y.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} is a 2-d array of {y.dtype}; a 2-d array must be a 0/1 indicator matrix. "
            "Pass label sets as a list of lists, one label per row as a 1-d array"
        )
    if 0 in y.shape:
        raise ValueError(f"{name} is empty: its shape is {y.shape}")
    check_structure(y, name)
    matrix = sparse.csr_array(y, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(matrix.data != 1)
    if len(wrong):
        row = np.searchsorted(matrix.indptr, wrong[0], side="right") - 1
        raise ValueError(
            f"{name} is a 2-d array, so it must be a 0/1 indicator matrix, but row {row} holds "
            f"{matrix.data[wrong[0]]}; threshold scores before you compare them with labels"
        )
    return LabelRows(matrix.indices.astype(np.int64), np.diff(matrix.indptr), False, matrix.shape[1])


def _finite(values: Matrix, name: str) -> Matrix:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        first = np.flatnonzero(~np.isfinite(values))[0]
        raise ValueError(f"{name} has a missing label ({values[first]}) at position {first}")
    return values


def _same_type(values: list[Any], name: str) -> Any:
    """Return numeric labels as an array and others as a list; refuse mixtures, which never compare equal."""
    kinds = set(map(type, values))
    if all(issubclass(kind, _NUMBERS) for kind in kinds):
        return _finite(np.asarray(values, dtype=np.int64 if not values else None), name)
    odd = {kind for kind in kinds if issubclass(kind, (*_NUMBERS, type(None)))}
    if odd:
        first = next(i for i, value in enumerate(values) if type(value) in odd)
        raise ValueError(
            f"{name} mixes labels of type {', '.join(sorted(kind.__name__ for kind in kinds))}: "
            f"{values[first]!r} at position {first}; use names or ids throughout"
        )
    return values


def factorize(parts: Sequence[LabelRows], names: Sequence[str]) -> tuple[Matrix, list[Matrix]]:
    """Find the sorted distinct labels of all arguments, and encode each argument as positions among them."""
    filled = [part.values for part in parts if len(part.values)]
    numeric = [isinstance(values, np.ndarray) for values in filled]
    ends = np.cumsum([len(part.values) for part in parts])[:-1]
    if all(numeric):
        flat = np.concatenate(filled) if filled else np.empty(0, dtype=np.int64)
        classes, codes = np.unique(flat, return_inverse=True)
        return classes, np.split(codes, ends)
    if any(numeric):
        held = ", ".join(
            f"{name} holds {'numbers' if isinstance(part.values, np.ndarray) else 'names'}"
            for name, part in zip(names, parts, strict=True)
            if len(part.values)
        )
        raise ValueError(f"labels cannot be compared: {held}; use names or ids throughout")
    values = list(chain.from_iterable(filled))
    # Hashing all labels and sorting the distinct ones is several times faster than sorting all strings.
    index = {label: code for code, label in enumerate(sorted(set(values)))}
    codes = np.fromiter(map(index.__getitem__, values), dtype=np.int64, count=len(values))
    return object_array(index), np.split(codes, ends)


def object_array(values: Iterable[Any]) -> Matrix:
    """Make a 1-d object array; ``np.array`` would turn tuples into a second dimension."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def build_indicator(codes: Matrix, lengths: Matrix, n_columns: int) -> sparse.csr_array:
    """Make a boolean CSR matrix from concatenated column codes; negative codes are left out, repeats merged."""
    is_column = codes >= 0
    before = np.concatenate(([0], np.cumsum(is_column)))  # columns before each position
    indptr = before[np.concatenate(([0], np.cumsum(lengths)))]
    matrix = sparse.csr_array(
        (np.ones(indptr[-1], dtype=bool), codes[is_column], indptr), shape=(len(lengths), n_columns)
    )
    matrix.sum_duplicates()
    return matrix


def _check_rows(parts: Sequence[LabelRows], names: Sequence[str]) -> None:
    n_rows = len(parts[0].lengths)
    for part, name in zip(parts[1:], names[1:], strict=True):
        if len(part.lengths) != n_rows:
            raise ValueError(
                f"{names[0]} has {n_rows} rows but {name} has {len(part.lengths)}; "
                "both must describe the same rows in the same order"
            )


def _check_columns(parts: Sequence[LabelRows], names: Sequence[str]) -> None:
    for part, name in zip(parts[1:], names[1:], strict=True):
        first, other = parts[0].n_columns, part.n_columns
        if (first is None) != (other is None):
            matrix, labels = (names[0], name) if other is None else (name, names[0])
            raise ValueError(
                f"{matrix} is an indicator matrix but {labels} holds labels, so columns cannot be matched to labels; "
                "pass both in the same form"
            )
        if first != other:
            raise ValueError(f"{names[0]} has {first} columns but {name} has {other}")


def to_indicators(arguments: Mapping[str, Any], labels: Iterable[Any] | None = None) -> Indicators:
    """Read several label arguments into indicators over the same classes.

    The classes are ``labels`` when given (other labels are left out of the counts), else the columns of the
    indicator matrices, else every label that occurs in any argument, sorted: scikit-learn's rule.
    """
    names = list(arguments)
    parts = [read_labels(y, name) for name, y in arguments.items()]
    _check_rows(parts, names)
    _check_columns(parts, names)
    n_columns = parts[0].n_columns
    if n_columns is None:
        classes, codes = factorize(parts, names)
    else:
        classes, codes = np.arange(n_columns), [part.values for part in parts]
    if labels is not None:
        classes, position = _fixed_classes(labels, classes)
        codes = [position[code] for code in codes]
    matrices = tuple(
        build_indicator(code, part.lengths, len(classes)) for code, part in zip(codes, parts, strict=True)
    )
    return Indicators(matrices, classes, all(part.single for part in parts), n_columns is None)


def _fixed_classes(labels: Iterable[Any], seen: Matrix) -> tuple[Matrix, Matrix]:
    """Return the fixed classes and the position of every seen class among them (-1 if it is not there)."""
    wanted = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    position = {label: i for i, label in enumerate(wanted)}
    if not wanted or len(position) < len(wanted):
        raise ValueError("labels must be distinct and not empty")
    place = np.fromiter((position.get(label, -1) for label in seen.tolist()), np.int64, len(seen))
    if len(seen) and (place < 0).all():
        raise ValueError(
            f"none of the {len(wanted)} labels occurs in the data; labels start with {wanted[0]!r}, "
            f"the data holds {seen[0]!r}"
        )
    return object_array(wanted), place


def to_node_indicators(arguments: Mapping[str, Any], hierarchy: Hierarchy) -> tuple[sparse.csr_array, ...]:
    """Read label arguments into indicators over the nodes of a hierarchy, closed under ancestors."""
    names = list(arguments)
    parts = [read_labels(y, name) for name, y in arguments.items()]
    _check_rows(parts, names)
    open_sets = (
        build_indicator(_node_ids(part, name, hierarchy), part.lengths, hierarchy.n_nodes)
        for part, name in zip(parts, names, strict=True)
    )
    return tuple(sparse.csr_array(hierarchy.close(nodes)) for nodes in open_sets)


def _node_ids(part: LabelRows, name: str, hierarchy: Hierarchy) -> Matrix:
    if part.n_columns is not None:
        if part.n_columns != hierarchy.n_nodes:
            raise ValueError(
                f"{name} has {part.n_columns} columns but the hierarchy has {hierarchy.n_nodes} nodes; "
                "an indicator matrix needs one column per node, in the order of hierarchy.names"
            )
        return np.asarray(part.values)
    classes, (codes,) = factorize([part], [name])
    if classes.dtype.kind in "iu" and not any(isinstance(label, int) for label in hierarchy.names):
        # No node name is a number, so the numbers are node ids.
        outside = (classes < 0) | (classes >= hierarchy.n_nodes)
        if outside.any():
            raise ValueError(
                f"{name} holds node id {classes[outside][0]}, but the ids of the hierarchy run from 0 to "
                f"{hierarchy.n_nodes - 1}"
            )
        ids = classes.astype(np.int64)
    else:
        ids = np.asarray(hierarchy.encode(classes), dtype=np.int64)
    return np.take(ids, codes)


def suggest(name: Any, names: Iterable[Any]) -> str:
    """Return ``" (did you mean 'x'?)"``, or nothing if no name is similar."""
    near = nearest_name(name, list(names))
    return "" if near is None else f" (did you mean {near!r}?)"
