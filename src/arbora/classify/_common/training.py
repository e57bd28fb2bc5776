"""Checked input of a fit: rows, labels, costs and solver options."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from arbora.classify._common.labels import Targets, encode_targets
from arbora.classify._linear.linear_model import as_csr
from arbora.core.checkpoint import Checkpoint, fingerprint
from arbora.core.validation import check_features, check_squares

_NO_EFFECT_ON_THE_MODEL = ("n_jobs", "engine", "verbose", "checkpoint")


_DENSE_TOL, _SPARSE_TOL = 1e-3, 1e-2  # of rows with few and with many zeros


class Options(NamedTuple):
    """Options of the solver."""

    loss: str
    tol: float
    max_iter: int
    bias: float
    dtype: Any
    seed: int
    near: bool = False  # whether classes are trained on near negatives alone


class Training(NamedTuple):
    """Rows, their classes, and the cost of a unit of loss."""

    X: sp.csr_array
    positives: sp.csr_array  # n_samples x n_classes
    row_cost: NDArray[Any]  # C times the weight of the row
    positive_weight: NDArray[Any]  # factor on the cost of the positives of each class
    options: Options
    # Factors on the costs of the pairs of a block, n_samples x n_block, from the positives of *all* classes (so it
    # must not be combined with `with_columns`) and the columns of the block.
    pair_weight: Callable[[sp.csr_array, slice], NDArray[Any]] | None = None
    ids: NDArray[np.int64] | None = (
        None  # numbers of the rows in the training that `with_rows` took them from
    )
    multilabel: bool = False  # whether y is of a kind in which a row may have any number of labels

    def with_columns(self, columns: slice | NDArray[np.int64]) -> Training:
        """Keep some of the classes."""
        positives: Any = self.positives
        return self._replace(positives=positives[:, columns], positive_weight=self.positive_weight[columns])

    def with_rows(self, rows: NDArray[Any]) -> Training:
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
    C: float,
    resumable: bool = False,
) -> Training:
    """Check the parameters and the input of `fit`; set the attributes of the labels.

    Parameters
    ----------
    estimator : estimator
        With the parameters `structure`, `tol`, `max_iter`, `fit_intercept`, `intercept_scaling`, `dtype` and
        `random_state`. Its `classes_`, `nodes_`, `hierarchy_` and the like are set here.
    X, y, sample_weight
        Arguments of `fit`.
    loss : str
    C : float
        Cost of a unit of loss.
    resumable : bool
        Whether the fit has a checkpoint. A resumed fit must visit the rows in the same order, so that
        `random_state=None` then means 0.

    Returns
    -------
    Training
        Rows of weight 0 are still there (see `drop_weightless_rows`).
    """
    X, targets = check_labelled_rows(estimator, X, y)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    rows = as_csr(X)
    options = solver_options(estimator, loss, seed_of(estimator.random_state, resumable), rows)
    check_squares(rows, options.dtype)
    factors = np.ones(targets.indicator.shape[1])
    return Training(rows, targets.indicator, C * weight, factors, options, multilabel=targets.multilabel)


def check_labelled_rows(estimator: Any, X: Any, y: Any) -> tuple[Any, Targets]:
    """Check the parameters, the features and the labels of `fit`; set the attributes of the labels.

    Parameters
    ----------
    estimator : estimator
        With the parameter `structure`.
    X, y
        Arguments of `fit`.

    Returns
    -------
    X : ndarray or CSR array of shape (n_samples, n_features)
    targets : Targets
    """
    estimator._validate_params()
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: it learns from labels."
        )
    X = check_features(estimator, X, reset=True)
    check_consistent_length(X, y)
    targets = encode_targets(y, estimator.structure)
    estimator._remember_targets(targets)
    estimator.sparse_labels_ = sp.issparse(y)
    return X, targets


def solver_options(estimator: Any, loss: str, seed: int, rows: sp.csr_array) -> Options:
    """Collect the parameters of an estimator that the solver needs.

    `tol=None` is finer for rows with few zeros: their classes overlap, and the predictions of a coarse solution vary
    with the order of the rows. Those of texts do not.
    """
    tol = estimator.tol
    if tol is None:
        tol = _DENSE_TOL if rows.nnz >= rows.shape[0] * rows.shape[1] / 2 else _SPARSE_TOL
    bias = estimator.intercept_scaling if estimator.fit_intercept else 0.0
    near = getattr(estimator, "negatives", "all") == "near"
    return Options(loss, tol, estimator.max_iter, bias, np.dtype(estimator.dtype), seed, near)


def seed_of(random_state: Any, resumable: bool) -> int:
    """Draw the seed of a fit; without a `random_state`, a resumable fit has the seed 0."""
    if random_state is None and resumable:
        return 0
    return int(check_random_state(random_state).randint(2**31 - 1))


def drop_weightless_rows(training: Training) -> Training:
    """Drop the rows of weight 0, so that no fold and no held-out part contains them."""
    counts = training.row_cost > 0
    return training if counts.all() else training.with_rows(np.flatnonzero(counts))


def positive_sample_weight(sample_weight: Any, X: Any) -> NDArray[np.float64]:
    """Sample weights of the rows that `drop_weightless_rows` keeps."""
    weight: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64)
    return weight[weight > 0]


def refuse_label_sets(estimator: Any) -> None:
    """Refuse several labels per row, for an estimator that predicts exactly one class."""
    if estimator._multilabel:
        raise ValueError(
            f"{type(estimator).__name__} predicts one class per row, but y holds sets of labels or an indicator: "
            "give one label per row, or use a multilabel classifier (OneVsRestSVC, TopDownSVC)."
        )


def positive_weights(
    class_weight: Any, training: Training, class_names: NDArray[Any], node_names: NDArray[Any]
) -> NDArray[np.float64]:
    """Weights of the positives of each class, as LIBLINEAR applies `class_weight` in one-vs-rest.

    Parameters
    ----------
    class_weight : dict of names to weights, "balanced" or None
    training : Training
    class_names : ndarray of shape (n_classes,)
        Name of the node of each class.
    node_names : ndarray
        All names that the dict may contain.
    """
    if isinstance(class_weight, dict):
        _check_class_weight(class_weight, set(node_names.tolist()))
        return np.array([class_weight.get(name, 1.0) for name in class_names.tolist()])
    if class_weight is None:
        return training.positive_weight
    counts = np.asarray(training.positives.sum(axis=0)).ravel()
    return np.asarray(training.positives.shape[0] / (len(counts) * np.maximum(counts, 1)))


def _check_class_weight(class_weight: dict[Any, Any], known: set[Any]) -> None:
    """Refuse unknown names, and weights that are negative or not finite."""
    for name, weight in class_weight.items():
        if name not in known:
            near = get_close_matches(str(name), map(str, known), n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"class_weight names {name!r}, which is neither a class nor a node{hint}.")
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise ValueError(
                f"class_weight gives {name!r} the weight {weight!r}: weights are finite numbers, 0 or more."
            )


def open_checkpoint(estimator: Any, training: Training, **instead: Any) -> Checkpoint | None:
    """Open the checkpoint of an estimator, if it has one.

    Parameters
    ----------
    estimator : estimator
        With the parameter `checkpoint`. Its other parameters and the data identify the fit.
    training : Training
    **instead
        Values that identify the fit better than the parameters of the same names.
    """
    if estimator.checkpoint is None:
        return None
    params = {
        name: value for name, value in estimator.get_params().items() if name not in _NO_EFFECT_ON_THE_MODEL
    }
    params |= {"random_state": training.options.seed, **instead}
    return Checkpoint(
        estimator.checkpoint,
        fingerprint(type(estimator).__name__, params, training.X, training.positives, training.row_cost),
    )
