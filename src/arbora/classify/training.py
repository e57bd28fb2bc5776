"""Checked input of a fit: rows, labels, costs and solver options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from arbora.arrays import Array, Ints, Matrix
from arbora.core.estimator import draw_seed, require_y
from arbora.core.labels import is_missing
from arbora.core.validation import check_features, check_squares, check_structure, precision_for
from arbora.structure import Hierarchy, LabelGraph

# --- Labels as columns: encoding of the labels of a user, and decoding of predictions -----------------------
#
# A user gives one label per row, a set of labels per row, or an indicator matrix; with a label structure the labels
# are names of its nodes, leaves or not. `encode_targets` encodes all of them as one indicator over the classes that
# have data, together with what is needed to return predictions in the same form.


SINGLE, SETS, INDICATOR = "single", "sets", "indicator"
_MISSING_NAMES = ("None", "nan", "<NA>")
_NO_LABEL = "no row of y carries a label: a classifier needs at least one class with data."


def is_multilabel(kind: str) -> bool:
    """Whether a row may carry any number of labels."""
    return kind != SINGLE


class Targets(NamedTuple):
    """Encoded labels.

    `hierarchy` is the user's structure, or a forest of as many roots as classes when there is none; `nodes` are
    the names of its nodes, `class_nodes` the node ids of the columns of `indicator`, and `sparse` says whether y was
    a sparse matrix.
    """

    classes: Matrix
    class_nodes: Ints
    hierarchy: Hierarchy
    nodes: Matrix
    indicator: sp.csr_array
    kind: str
    sparse: bool = False

    @property
    def multilabel(self) -> bool:
        """Whether a row may carry any number of labels."""
        return is_multilabel(self.kind)


def encode_targets(y: Any, structure: Hierarchy | LabelGraph | None) -> Targets:
    """Encode labels of any accepted form."""
    if isinstance(structure, LabelGraph):
        # A graph has no ancestors: for predictions its nodes are roots.
        roots = Hierarchy.from_edges([], nodes=structure.names.tolist())
        structure = roots if structure.labels is None else roots.for_labels(structure.labels)
    if structure is not None and not isinstance(structure, Hierarchy):
        raise TypeError(
            f"structure must be an arbora.structure.Hierarchy, a LabelGraph or None, got {type(structure).__name__}: "
            "build one with Hierarchy.from_edges, from_paths or read, or LabelGraph.from_edges."
        )
    check_structure(y, "y")
    if not isinstance(y, Sequence) and not sp.issparse(y):
        y = np.asarray(y)
    if not sp.issparse(y) and are_sets(y):
        targets = _from_sets(y, structure)
    elif sp.issparse(y) or (np.ndim(y) == 2 and np.shape(y)[1] > 1):
        targets = _from_indicator(y, structure)
    else:
        targets = _from_single(y, structure)
    if len(targets.classes) < 2 and not targets.multilabel:
        raise ValueError(
            f"y holds only one class ({targets.classes.tolist()[0]!r}): a classifier needs at least 2 classes."
        )
    if not len(targets.classes):
        raise ValueError(_NO_LABEL)
    return targets._replace(sparse=sp.issparse(y))


def are_sets(y: Any) -> bool:
    """Whether y is a sequence of label sets and not a nested list that spells out an indicator."""
    if isinstance(y, np.ndarray) and (y.dtype != object or y.ndim != 1):
        return False
    if not isinstance(y, Sequence | np.ndarray) or not len(y):
        return False
    several = [isinstance(labels, list | tuple | set | frozenset | np.ndarray) for labels in y]
    if not any(several):
        return False
    if not all(several):
        row = several.index(False)
        raise ValueError(
            f"row {row} of y is {y[row]!r}, but other rows are lists of labels: give every row a list, "
            "empty for no label."
        )
    if any(isinstance(labels, set | frozenset) for labels in y):
        return True  # a set has no order: it cannot be the row of an indicator
    same_length = len({len(labels) for labels in y}) == 1 and len(y[0]) > 0
    return not (same_length and all(value in (0, 1) for labels in y for value in labels))


def _are_names(y: Matrix) -> bool:
    """Whether all labels are strings: classes beyond doubt, even if each has one row."""
    return y.dtype.kind == "U" or (y.dtype == object and all(isinstance(label, str) for label in y.tolist()))


def _forest(classes: Matrix, indicator: sp.csr_array, kind: str) -> Targets:
    """Targets without a structure: every class is a node of its own."""
    nodes = np.arange(len(classes))
    hierarchy = Hierarchy.from_edges([], nodes=nodes.tolist())
    return Targets(classes, nodes, hierarchy, classes, indicator.astype(np.float32), kind)


def _from_single(y: Any, structure: Hierarchy | None) -> Targets:
    if structure is not None and isinstance(y, Sequence) and np.ndim(y[0]) == 0:
        y = np.array([*y, None], dtype=object)[:-1]  # numpy would convert integers among strings to strings
    raw, y = y, column_or_1d(y, warn=True)
    if y.dtype.kind == "U" and isinstance(raw, Sequence) and np.isin(y, _MISSING_NAMES).any():
        y = np.array([*raw, None], dtype=object)[:-1]  # numpy converts missing labels among strings to names
    if y.dtype == object:
        missing = [row for row, label in enumerate(y.tolist()) if is_missing(label)]
        if missing:
            raise ValueError(
                f"row {missing[0]} of y has no label ({y[missing[0]]!r}): remove such rows before fit."
            )
    if structure is None:
        if not _are_names(y):  # strings are classes, even if each has one row
            check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return _forest(classes, _one_per_row(codes, len(classes)), SINGLE)
    positions = _positions(y, structure)
    if positions is not None:
        classes, codes = np.unique(y.astype(np.int64), return_inverse=True)
        nodes = structure.encode(positions[classes])
    else:
        nodes, codes = np.unique(structure.encode(y), return_inverse=True)
        classes = structure.decode(nodes)
        order = _sorted_order(classes)
        classes, nodes, codes = classes[order], nodes[order], np.argsort(order)[codes]
    return Targets(classes, nodes, structure, structure.names, _one_per_row(codes, len(classes)), SINGLE)


def _one_per_row(codes: Matrix, n_classes: int) -> sp.csr_array:
    n_rows = len(codes)
    entries = np.ones(n_rows, np.float32), codes, np.arange(n_rows + 1)
    return sp.csr_array(entries, shape=(n_rows, n_classes))


def _sorted_order(names: Matrix) -> Ints:
    """Order that sorts names, as `np.unique` does; names that have no order keep theirs."""
    try:
        return np.array(sorted(range(len(names)), key=names.tolist().__getitem__), dtype=np.int64)
    except TypeError:
        return np.arange(len(names))


def _positions(y: Matrix, structure: Hierarchy) -> Matrix | None:
    """Names that integer labels are positions of, or None if the labels are names themselves.

    Parts of scikit-learn replace labels by their positions in ``np.unique(y)``. They are read as positions in the
    labels that the structure remembers, or else in the sorted names of its leaves, if every leaf occurs.
    """
    if not _are_integers(y):
        return None
    values = np.unique(y.astype(np.int64))
    names_are_integers = any(isinstance(name, int) for name in structure.names.tolist())
    if structure.labels is not None:
        labels = structure.labels
        are_names = names_are_integers and set(values.tolist()) <= set(labels.tolist())
        are_positions = bool(values[0] >= 0 and values[-1] < len(labels))
        if are_names and are_positions and labels[values].tolist() != values.tolist():
            raise ValueError(
                "the labels are integers that may be names of nodes or positions in the labels that the structure "
                "remembers: rename the nodes to strings."
            )
        if are_names:
            return None
        if not are_positions:
            raise ValueError(
                f"the label {values[-1] if values[0] >= 0 else values[0]} is neither a node nor a position in the "
                f"{len(labels)} labels that the structure remembers: call structure.for_labels(y) with all labels."
            )
        return labels
    if names_are_integers:
        return None
    leaves = structure.names[structure.is_leaf]
    if np.array_equal(values, np.arange(len(leaves))):
        return leaves[_sorted_order(leaves)]
    raise ValueError(
        f"the labels are integers, the nodes of the structure have other names, and the {len(values)} labels "
        f"are not the positions 0 to {len(leaves) - 1} of all leaves. If they are positions in np.unique(y), as in "
        "cross_val_predict, give structure=tree.for_labels(y) to the estimator; if they are node ids, give "
        "tree.decode(y) as labels."
    )


def _are_integers(y: Matrix) -> bool:
    if y.dtype == object:
        return len(y) > 0 and all(type(label) is int or isinstance(label, np.integer) for label in y.tolist())
    return y.dtype.kind in "iu"


def _from_sets(y: Sequence[Any], structure: Hierarchy | None) -> Targets:
    if structure is not None:
        return _with_data(structure.indicator(y), structure, SETS)
    names = {label for labels in y for label in labels}
    if not names:
        raise ValueError(_NO_LABEL)
    try:
        ordered = sorted(names)
    except TypeError:
        kinds = ", ".join(sorted({type(name).__name__ for name in names}))
        raise ValueError(
            f"the label sets of y mix labels of several kinds ({kinds}): make all of them strings, or all integers."
        ) from None
    classes = Hierarchy.from_edges([], nodes=ordered)
    return _forest(classes.names, classes.indicator(y), SETS)


def _from_indicator(y: Any, structure: Hierarchy | None) -> Targets:
    if not sp.issparse(y) and (y := np.asarray(y)).dtype.kind not in "biuf":
        raise ValueError(
            f"y has shape {y.shape} and holds {y.dtype.name} values: a matrix of labels must be an indicator of "
            "zeros and ones. Give label sets as a list of lists of names."
        )
    Y = sp.csr_array(y, copy=True)  # what follows works in place, and y is the user's
    Y.sum_duplicates()
    if not np.isin(Y.data, (0, 1)).all():
        raise ValueError("an indicator matrix of labels holds zeros and ones only; y holds other values.")
    Y.eliminate_zeros()
    if not Y.shape[1]:
        raise ValueError(_NO_LABEL)
    if structure is None:
        return _forest(np.arange(Y.shape[1]), Y, INDICATOR)
    if Y.shape[1] != structure.n_nodes:
        raise ValueError(
            f"the indicator of labels has {Y.shape[1]} columns but the structure has {structure.n_nodes} "
            "nodes: column j must stand for node j."
        )
    return _with_data(Y, structure, INDICATOR)


def _with_data(Y: sp.csr_array, structure: Hierarchy, kind: str) -> Targets:
    """Keep the columns of the classes that occur."""
    nodes = np.unique(Y.indices).astype(np.int64)
    indicator = Y.astype(np.float32)[:, nodes]
    return Targets(structure.decode(nodes), nodes, structure, structure.names, indicator, kind)


def decode_sets(Y: sp.csr_array, classes: Matrix) -> list[list[Any]]:
    """Names of the classes set in each row of an indicator."""
    names = classes[Y.indices]
    return [names[start:stop].tolist() for start, stop in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]


# --- Checked input of a fit: rows, labels, costs and solver options -----------------------------------------


_DENSE_TOL, _SPARSE_TOL = 1e-3, 1e-2  # of rows with few and with many zeros


class Options(NamedTuple):
    """Options of the solver."""

    loss: str
    tol: float
    max_iter: int
    bias: float
    dtype: Any
    seed: int


class Training(NamedTuple):
    """Rows, their classes, and the cost of a unit of loss."""

    X: sp.csr_array
    positives: sp.csr_array  # n_samples x n_classes
    row_cost: Matrix  # C times the weight of the row
    positive_weight: Matrix  # factor on the cost of the positives of each class
    options: Options
    # Factors on the costs of the pairs of a block, n_samples x n_block, from the positives of *all* classes (so it
    # must not be combined with `with_columns`) and the columns of the block.
    pair_weight: Callable[[sp.csr_array, slice], Matrix] | None = None
    ids: Ints | None = None  # numbers of the rows in the training that `with_rows` took them from
    multilabel: bool = False  # whether y is of a kind in which a row may have any number of labels

    def with_columns(self, columns: slice | Ints) -> Training:
        """Keep some of the classes."""
        positives: Any = self.positives
        return self._replace(positives=positives[:, columns], positive_weight=self.positive_weight[columns])

    def with_cost(self, C: float) -> Training:
        """Multiply the costs."""
        return self._replace(row_cost=self.row_cost * C)

    def with_rows(self, rows: Matrix) -> Training:
        """Keep some of the rows."""
        return self._replace(
            X=self.X[rows], positives=self.positives[rows], row_cost=self.row_cost[rows], ids=rows
        )


def check_training(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    loss: str,
    resumable: bool = False,
) -> tuple[Training, Targets]:
    """Check the parameters and the input of `fit`; return the rows, with the costs of C = 1, and the targets.

    Rows of weight 0 are still there (see `drop_weightless_rows`). A `resumable` fit, with a checkpoint, must visit
    the rows in the same order when it is resumed, so that `random_state=None` then means 0. The estimator has the
    parameters `structure`, `tol`, `max_iter`, `fit_intercept` and `random_state`.
    """
    X, targets = check_labelled_rows(estimator, X, y)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    rows = as_csr(X)
    options = solver_options(estimator, loss, draw_seed(estimator.random_state, resumable=resumable), rows)
    check_squares(rows, options.dtype)
    factors = np.ones(targets.indicator.shape[1])
    training = Training(rows, targets.indicator, weight, factors, options, multilabel=targets.multilabel)
    return training, targets


def check_labelled_rows(estimator: Any, X: Any, y: Any) -> tuple[Any, Targets]:
    """Check the parameters, the features and the labels of `fit`; return the features and the targets."""
    estimator._validate_params()
    require_y(estimator, y, "it learns from labels")
    X = check_features(estimator, X, reset=True)
    check_consistent_length(X, y)
    return X, encode_targets(y, estimator.structure)


def solver_options(estimator: Any, loss: str, seed: int, rows: sp.csr_array) -> Options:
    """Collect the parameters of an estimator that the solver needs.

    `tol=None` is finer for rows with few zeros: their classes overlap, and the predictions of a coarse solution vary
    with the order of the rows. Those of texts do not.
    """
    tol = estimator.tol
    if tol is None:
        tol = _DENSE_TOL if rows.nnz >= rows.shape[0] * rows.shape[1] / 2 else _SPARSE_TOL
    bias = 1.0 if estimator.fit_intercept else 0.0
    return Options(loss, tol, estimator.max_iter, bias, precision_for(tol), seed)


def as_csr(X: Any) -> sp.csr_array:
    """Return X as CSR without duplicates. A mostly dense array keeps its zeros, so that all rows have one length."""
    if hasattr(X, "indptr"):
        rows: sp.csr_array = sp.csr_array(X)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return rows
    n_samples, n_features = X.shape
    if np.count_nonzero(X) < X.size / 2:
        return sp.csr_array(X)
    indices = np.tile(np.arange(n_features, dtype=np.int32), n_samples)
    indptr = np.arange(n_samples + 1, dtype=np.int64) * n_features
    return sp.csr_array((np.ascontiguousarray(X).ravel(), indices, indptr), shape=X.shape)


def drop_weightless_rows(training: Training) -> Training:
    """Drop the rows of weight 0, so that no fold and no held-out part contains them."""
    counts = training.row_cost > 0
    return training if counts.all() else training.with_rows(np.flatnonzero(counts))


def n_effective(weight: Matrix) -> float:
    """Effective number of rows: the square of the sum of the weights over the sum of their squares.

    >>> n_effective(np.array([2.0, 2.0, 0.0])), n_effective(np.array([1.0, 3.0])), n_effective(np.zeros(2))
    (2.0, 1.6, 0.0)
    """
    total = float(weight.sum())
    return total**2 / float((weight**2).sum()) if total > 0 else 0.0


def refuse_label_sets(name: str, targets: Targets) -> None:
    """Refuse several labels per row, for an estimator (`name`) that predicts exactly one class."""
    if targets.multilabel:
        raise ValueError(
            f"{name} predicts one class per row, but y holds sets of labels or an indicator: give one label per row, "
            "or use a multilabel classifier (OneVsRestSVC, TopDownSVC)."
        )


def positive_weights(class_weight: Any, training: Training, targets: Targets) -> Array:
    """Weights of the positives of each class, as LIBLINEAR applies `class_weight` in one-vs-rest.

    Rows of weight 0 do not count. A dict may contain the names of all nodes of the targets.
    """
    if isinstance(class_weight, dict):
        _check_class_weight(class_weight, set(targets.nodes.tolist()))
        names = targets.nodes[targets.class_nodes].tolist()
        return np.array([class_weight.get(name, 1.0) for name in names])
    if class_weight is None:
        return training.positive_weight
    used = drop_weightless_rows(training).positives
    counts = np.asarray(used.sum(axis=0)).ravel()
    return np.asarray(used.shape[0] / (len(counts) * np.maximum(counts, 1)))


def _check_class_weight(class_weight: dict[Any, Any], names: set[Any]) -> None:
    """Refuse unknown names, and weights that are negative or not finite."""
    for name, weight in class_weight.items():
        if name not in names:
            near = get_close_matches(str(name), map(str, names), n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"class_weight names {name!r}, which is neither a class nor a node{hint}.")
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise ValueError(
                f"class_weight gives {name!r} the weight {weight!r}: weights are finite numbers, 0 or more."
            )
