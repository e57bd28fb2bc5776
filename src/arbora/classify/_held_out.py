"""Rows that are not trained on, to calibrate with: one held-out part, or folds in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit

from arbora.classify._train import Training

_COARSE_TOL = 0.05  # the scale of the scores settles long before the weights do
_MOST_SCORES = 1 << 23  # plenty to fit one or two parameters
_FEW_ROWS = 1000  # a fifth of fewer is too little to learn from, and five folds of them are quick
_N_FOLDS = 5
_FEWEST_ROWS = 5  # fewer cannot spare a fifth


def held_out_splits(
    training: Training, how: Any, n_scores: int
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
    """
    n_samples = training.X.shape[0]
    if how is None or n_samples < max(_FEWEST_ROWS, how if isinstance(how, int) else 0):
        return
    seed = training.options.seed
    if how == "holdout":
        coarse = max(training.options.tol, _COARSE_TOL)
        training = training._replace(options=training.options._replace(tol=coarse))
        how = _N_FOLDS if n_samples <= _FEW_ROWS else 1
    if how == 1:
        splits = ShuffleSplit(1, test_size=1 / _N_FOLDS, random_state=seed)
    else:
        splits = KFold(how, shuffle=True, random_state=seed)
    most = max(1, _MOST_SCORES // (n_scores * how))
    for seen, unseen in splits.split(np.arange(n_samples)):
        yield training.with_rows(seen), unseen[:most]
