"""Rows that are not trained on, to calibrate with: one held-out part, or folds in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit

from arbora.classify._train import Training

_HELD_OUT = 0.2
_COARSE_TOL = 0.05  # the scale of the scores settles long before the weights do
_MOST_SCORES = 1 << 23  # plenty to fit one or two parameters
_FEWEST_ROWS = 5  # fewer cannot spare a fifth


def held_out_splits(
    training: Training, how: Any, n_scores: int
) -> Iterator[tuple[Training, NDArray[np.int64]]]:
    """Yield what to train on and which rows to score then.

    Parameters
    ----------
    training : Training
    how : "holdout", int or None
        One split, with a fifth of the rows held out and coarse training on the others; that many folds with
        full training; or nothing. Nothing too if there are too few rows.
    n_scores : int
        Scores a row will have; the held-out rows are no more than keep the matrix of their scores small.
    """
    n_samples = training.X.shape[0]
    n_splits = 0 if how is None else 1 if how == "holdout" else how
    if n_samples < max(_FEWEST_ROWS, n_splits) or not n_splits:
        return
    seed = training.options.seed
    if how == "holdout":
        splits = ShuffleSplit(1, test_size=_HELD_OUT, random_state=seed)
        coarse = max(training.options.tol, _COARSE_TOL)
        training = training._replace(options=training.options._replace(tol=coarse))
    else:
        splits = KFold(how, shuffle=True, random_state=seed)
    most = max(1, _MOST_SCORES // (n_scores * n_splits))
    for seen, unseen in splits.split(np.arange(n_samples)):
        yield training.with_rows(seen), unseen[:most]
