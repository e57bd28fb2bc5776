"""Rows that are not trained on, to calibrate and to learn thresholds with: one held-out part, or folds in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit

from arbora.classify._common.linear_model import LinearModel, linear_scores
from arbora.classify._common.one_vs_rest import Training
from arbora.engine import ThreadEngine

_COARSE_TOL = 0.05  # the scale of the scores settles long before the weights do
_MOST_SCORES = 1 << 23  # plenty to fit one or two parameters
_MOST_FINE_SCORES = 1 << 26  # a threshold for each class needs all labels it can get: 256 MiB of float32
_FEW_ROWS = 1000  # a fifth of fewer is too little to learn from, and five folds of them are quick
_N_FOLDS = 5
_FEWEST_ROWS = 5  # fewer cannot spare a fifth


class HeldOut(NamedTuple):
    """Scores of rows by a model that was not trained on them, the labels the rows carry, and their weights."""

    scores: NDArray[Any]
    truth: sp.csr_array
    weight: NDArray[Any]


def held_out_splits(
    training: Training, how: Any, n_scores: int, fine: bool = False
) -> Iterator[tuple[Training, NDArray[np.int64]]]:
    """Yield what to train on and which rows to score then.

    Parameters
    ----------
    training : Training
    how : "holdout", int or None
        One split, with a fifth of the rows held out and coarse training on the others (five such splits, each
        row held out once, if there are few rows); that many folds with full training; or nothing. Nothing too if
        there are fewer than five rows, or than folds.
    n_scores : int
        Scores a row will have; the held-out rows are no more than keep the matrix of their scores small.
    fine : bool
        Whether the scores are to be those of the final model, not just of its scale: then "holdout" trains as
        finely as that one (thresholds learned on scores of coarse models were too strict or too lax), and more
        rows are held out.
    """
    n_samples = training.X.shape[0]
    if not held_out_share(training, how):
        return
    seed = training.options.seed
    if how == "holdout":
        if not fine:
            coarse = max(training.options.tol, _COARSE_TOL)
            training = training._replace(options=training.options._replace(tol=coarse))
        how = _N_FOLDS if n_samples <= _FEW_ROWS else 1
    if how == 1:
        splits = ShuffleSplit(1, test_size=1 / _N_FOLDS, random_state=seed)
    else:
        splits = KFold(how, shuffle=True, random_state=seed)
    most = _most_rows(n_scores, how, fine)
    for seen, unseen in splits.split(np.arange(n_samples)):
        # The rows of a fold come in order, and the first of them may all be of one class.
        unseen = np.random.default_rng(seed).permutation(unseen)[:most]
        yield training.with_rows(seen), unseen


def held_out_share(training: Training, how: Any) -> float:
    """Share of the rows that the models of the splits are trained on; 0 where nothing is held out."""
    if how is None or training.X.shape[0] < max(_FEWEST_ROWS, how if isinstance(how, int) else 0):
        return 0.0
    return 1 - 1 / (_N_FOLDS if how == "holdout" else how)


def most_scores(fine: bool) -> int:
    """Scores of held-out rows that are kept at most."""
    return _MOST_FINE_SCORES if fine else _MOST_SCORES


def _most_rows(n_scores: int, n_splits: int, fine: bool) -> int:
    return max(1, most_scores(fine) // (n_scores * n_splits))


def held_out_scores(
    training: Training,
    how: Any,
    train: Callable[[Training, str], LinearModel],
    engine: ThreadEngine,
    *,
    fine: bool = False,
    n_scores: int | None = None,
    weight: NDArray[Any] | None = None,
) -> list[HeldOut]:
    """Score the held-out rows of each split with weights that `train` makes of the others.

    `train` also gets a key of the split, under which a checkpoint may keep the work on it. A row has a score for
    each column of `positives`, unless `n_scores` says otherwise, and counts by its cost, unless there is a `weight`.
    """
    parts = []
    weight = training.row_cost if weight is None else weight
    n_scores = n_scores or training.positives.shape[1]
    for number, (seen, rows) in enumerate(held_out_splits(training, how, n_scores, fine)):
        scores = linear_scores(training.X[rows], train(seen, f"held-out-{number}-"), engine)
        parts.append(HeldOut(scores, training.positives[rows].astype(bool), weight[rows]))
    return parts


def stacked(parts: Sequence[HeldOut], fine: bool = False) -> HeldOut:
    """Put the splits together: all of their rows, or the first of each, which suffice to fit a scale."""
    most = _most_rows(parts[0].scores.shape[1], len(parts), fine)
    return HeldOut(
        np.vstack([part.scores[:most] for part in parts]),
        sp.vstack([part.truth[:most] for part in parts], format="csr"),
        np.concatenate([part.weight[:most] for part in parts]),
    )
