"""Scores of rows that were not trained on, to calibrate with: one held-out part, or folds in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit

from arbora.classify._linear import linear_scores
from arbora.classify._train import Training, train_one_vs_rest
from arbora.engine import ThreadEngine

_HELD_OUT = 0.2
_COARSE_TOL = 0.05  # the scale of the scores settles long before the weights do
_MOST_SCORES = 1 << 23  # plenty to fit one or two parameters


def held_out_scores(
    training: Training, how: Any, engine: ThreadEngine
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Train without some rows and score them.

    Parameters
    ----------
    training : Training
    how : "holdout", int or None
        A fifth of the rows with a coarsely trained model, that many folds with fully trained ones, or nothing.
    engine : ThreadEngine

    Returns
    -------
    scores : ndarray of shape (n_rows, n_classes)
    rows : ndarray of row numbers
        At most as many as keep the matrix of scores small; none if there are too few rows to split.
    """
    n_samples, n_classes = training.positives.shape
    seed = training.options.seed % 2**32
    most = max(1, _MOST_SCORES // n_classes)
    if how is None or n_samples < (5 if how == "holdout" else how):
        return np.empty((0, n_classes)), np.empty(0, np.int64)
    if how == "holdout":
        splits = ShuffleSplit(1, test_size=_HELD_OUT, random_state=seed)
        coarse = training.options._replace(tol=max(training.options.tol, _COARSE_TOL))
        training = training._replace(options=coarse)
    else:
        splits = KFold(how, shuffle=True, random_state=seed)
        most = -(-most // how)
    scores, rows = [], []
    for seen, unseen in splits.split(np.arange(n_samples)):
        unseen = unseen[:most]
        model = train_one_vs_rest(training.with_rows(seen), engine).model
        scores.append(linear_scores(training.X[unseen], model, engine))
        rows.append(unseen)
    return np.vstack(scores), np.concatenate(rows)
