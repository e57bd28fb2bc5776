"""The cost of `C="auto"`: in the units of the rows, and chosen on held-out rows.

The solution of a linear classifier depends on C only through C ||x||^2: rows twice as long need a quarter of the
cost. In units of 1 / (mean squared norm of the rows), the hinge and the squared hinge fit texts with C = 1 whatever
their number of rows and classes. The logistic loss, whose slope is never above 1, needs C = 10, or C = 30 if y is
one-dimensional, with one label per row: such labels have less noise. In benchmarks/RESULTS.md, "Study of the
defaults of classifiers", flat logistic, 30 is better on all five sets with one label, 10 on all five with several.

How much noise the labels have cannot be read from the rows: standardised measurements need between a third and a
hundred of these units. The cost therefore moves from there by factors of about three, as long as a step adds 1% to
the information of the scores about held-out labels: the entropy of the labels minus their log loss. A share of the
loss itself would not do, since it says nothing about labels that are mostly noise. The search has a limited size (32
classes or up to 128 small ones, 4,000 rows and up to 30 of each of these classes in addition, coarse training), so
that its share falls as the fit grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.special import entr, log_expit

from arbora.arrays import Ints, Matrix
from arbora.classify.decisions import fit_sigmoid
from arbora.classify.linear import linear_scores, train_one_vs_rest
from arbora.classify.training import Training
from arbora.core.engine import Engine
from arbora.core.folds import random_splits

UNITS = {"hinge": 1.0, "squared_hinge": 1.0, "logistic": 10.0}  # where the search starts
ONE_LABEL = {"logistic": 3.0}  # factor on the unit if y is one-dimensional
# Factors: the search goes where the first step is better.
_UPWARDS, _DOWNWARDS = (3.0, 10.0, 30.0, 100.0), (1 / 3, 0.1)
# Beyond it texts are separated, and hardly anything changes.
_MAX_FACTOR = {"hinge": 30.0, "squared_hinge": 30.0}
_MIN_GAIN = 0.01  # share of what the scores tell about the labels that a further factor must add
_MIN_INFORMATION = 0.01  # ... which is at least this share of the entropy of the labels
_MAX_ROWS = 4_000
_FEW_POSITIVES = 30  # of a class, if it has them
_FEW_CLASSES, _MAX_CLASSES = 32, 128  # limits of the number of sampled classes
_ENOUGH_POSITIVES = _FEW_CLASSES * _FEW_POSITIVES  # of the sampled classes together
_MIN_POSITIVES = 10  # of held-out rows: fewer say nothing
_MIN_ROWS = 50  # too few to choose anything on a fifth of them
_FEW_ROWS, _N_FOLDS = 1_000, 5  # so few rows are all held out once, in folds
_COARSE_TOL = 0.05


def mean_squared_norm(X: sp.csr_array, weight: Matrix) -> float:
    """Weighted mean squared norm of the rows; 1 if all of them are zero.

    >>> mean_squared_norm(sp.csr_array([[3.0, 4.0], [0.0, 1.0]]), np.ones(2))
    13.0
    """
    squares = sp.csr_array((np.square(X.data, dtype=np.float64), X.indices, X.indptr), shape=X.shape)
    total = float(weight @ squares.sum(axis=1))
    return total / float(weight.sum()) if total > 0 else 1.0


def unit_cost(training: Training) -> float:
    """Cost that fits the length of the rows, where a search begins; `training` has the costs of C = 1."""
    loss = training.options.loss
    # By the kind of the labels: were it by the labels themselves, a single row would change the cost by this factor.
    units = UNITS[loss] * (1.0 if training.multilabel else ONE_LABEL.get(loss, 1.0))
    return units / mean_squared_norm(training.X, training.row_cost)


def choose_cost(training: Training, engine: Engine) -> float:
    """Choose the cost of one-vs-rest classifiers on a sample of rows and classes; `training` has those of C = 1."""
    start = unit_cost(training)
    if training.X.shape[0] < _MIN_ROWS or not training.positives.nnz:
        return start
    sample = _sampled(training)
    if not sample.positives.nnz:  # labels so rare that no sampled row has one
        return start
    n_rows = sample.X.shape[0]
    splits = list(random_splits(n_rows, _N_FOLDS if n_rows <= _FEW_ROWS else 1, sample.options.seed))
    if sum(sample.positives[unseen].nnz for _, unseen in splits) < _MIN_POSITIVES:
        return start
    entropy = held_out_entropy(sample, splits)
    upwards = [f for f in _UPWARDS if f <= _MAX_FACTOR.get(training.options.loss, np.inf)]

    def losses(factors: Sequence[float]) -> list[float]:
        return engine.map(lambda factor: held_out_loss(sample, factor * start, splits, engine), factors)

    def gains(loss: float, least: float) -> bool:
        return least - loss > _MIN_GAIN * max(entropy - least, _MIN_INFORMATION * entropy)

    least, above, below = losses([1.0, upwards[0], _DOWNWARDS[0]])
    if not gains(min(above, below), least):
        return start
    path = upwards if above < below else list(_DOWNWARDS)
    best, least, path = path[0], min(above, below), path[1:]
    while path:  # as many at a time as there are threads, which may compute some of them in vain
        ahead, path = path[: engine.n_workers], path[engine.n_workers :]
        for factor, loss in zip(ahead, losses(ahead), strict=True):
            if not gains(loss, least):
                return best * start
            best, least = factor, loss
    return best * start


def _sampled_classes(training: Training, rows: Ints, rng: np.random.Generator) -> Ints:
    """Classes of random labels of the given rows: some tens, and more if they have few positives.

    A fifth of the positives of 32 classes with a few documents each is too little to tell costs apart.
    """
    labels, n_classes = training.positives[rows].indices, training.positives.shape[1]
    classes, first = np.unique(rng.permutation(labels), return_index=True)
    classes = classes[np.argsort(first)[:_MAX_CLASSES]].astype(np.int64)
    n_positive = np.bincount(training.positives.indices, minlength=n_classes)[classes]
    n_sampled = np.bincount(labels, minlength=n_classes)[classes]
    total = np.cumsum(np.maximum(n_sampled, np.minimum(n_positive, _FEW_POSITIVES)))
    n_needed = int(np.searchsorted(total, _ENOUGH_POSITIVES)) + 1
    return np.sort(classes[: max(_FEW_CLASSES, n_needed)])


def _sampled(training: Training) -> Training:
    """Random rows, the classes of random documents among them, and up to _FEW_POSITIVES rows of each of these.

    In a sample of rows alone, small classes would be smaller than they are, and the cost would be arbitrary.
    """
    rng = np.random.default_rng(training.options.seed)
    rows = np.sort(rng.permutation(training.X.shape[0])[:_MAX_ROWS])
    chosen = _sampled_classes(training, rows, rng)
    if len(rows) < training.X.shape[0]:
        by_class = training.with_columns(chosen).positives.tocoo()
        ranked = np.lexsort((rng.random(by_class.nnz), ~np.isin(by_class.row, rows), by_class.col))
        row, column = by_class.row[ranked], by_class.col[ranked]
        place = np.arange(len(row)) - np.searchsorted(column, column)  # rows of the sample come first
        rows = np.union1d(rows, row[place < _FEW_POSITIVES])
    sample = training.with_rows(rows)
    sample.X.eliminate_zeros()  # coarse fits of dense and sparse rows would differ, and with them the choice
    options = sample.options._replace(tol=max(sample.options.tol, _COARSE_TOL))
    return sample.with_columns(chosen)._replace(options=options, pair_weight=None)


def held_out_entropy(sample: Training, splits: list[tuple[Matrix, Matrix]]) -> float:
    """Mean log loss of held-out labels if all of them get the share of the positives as their probability."""
    rows = np.concatenate([unseen for _, unseen in splits])
    weight = sample.row_cost[rows]
    n_positive = np.diff(sample.positives[rows].indptr)
    share = float(weight @ n_positive) / (float(weight.sum()) * sample.positives.shape[1])
    return float(entr(share) + entr(1 - share))


def held_out_loss(
    sample: Training, cost: float, splits: list[tuple[Matrix, Matrix]], engine: Engine
) -> float:
    """Mean log loss of held-out labels, after the scores of all classes were calibrated together."""
    scores, truth, weight = [], [], []
    for seen, unseen in splits:
        part = sample.with_rows(seen)
        part = part._replace(row_cost=part.row_cost * cost)
        scores.append(linear_scores(sample.X[unseen], train_one_vs_rest(part, engine).model, engine))
        truth.append(sample.positives[unseen].toarray() > 0)
        weight.append(np.repeat(sample.row_cost[unseen], sample.positives.shape[1]))
    s, t = np.vstack(scores).astype(np.float64).ravel(), np.vstack(truth).ravel()
    w = np.concatenate(weight)
    fitted = fit_sigmoid(s, t, w)
    z = fitted.scale * s + fitted.shift
    return float(-(w @ np.where(t, log_expit(z), log_expit(-z))) / w.sum())
