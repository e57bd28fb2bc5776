"""Choose the strength of the regulariser and the number of clusters on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine, SerialEngine
from arbora.core.folds import deal_folds
from arbora.expand._discriminative.evidence import log_evidence
from arbora.expand.discriminative.cost import Rows, cells_of
from arbora.expand.discriminative.fitting import Options, fit_cells
from arbora.expand.discriminative.labels import Labels

Matrix = NDArray[Any]
DEFAULTS = {"l2": 0.3, "entropy": 0.1, "vq": 0.1, "mog": 0.3, None: 0.0}
GRIDS = {
    "l2": (0.03, 0.3, 3.0, 30.0),
    "entropy": (0.01, 0.03, 0.1, 0.3, 1.0),
    "vq": (0.01, 0.03, 0.1, 0.3, 1.0),
    "mog": (0.03, 0.1, 0.3, 1.0, 3.0),
    None: (0.0,),
}
WIDE_GRID = (0.3, 3.0, 30.0)
FEW_FEATURES = 50  # up to which the default strength needs no search
N_FOLDS = 3
_SEARCH_STARTS = 2
_LEAST_GAIN = 1e-6  # of the evidence per row: further clusters may be empty
_SEARCH_ROWS = 20_000  # rows that a search uses
_PATIENCE = 3  # candidates without a higher evidence before the search for a number ends


class HeldOut:
    """Held-out log evidence per labelled row (see `evidence.log_evidence`) of fits to folds of the labelled rows.

    The estimates of p(c|x), by which fits start, are computed once for each fold.
    """

    def __init__(
        self, rows: Rows, labels: Labels, options: Options, engine: Engine, most_folds: int = N_FOLDS
    ) -> None:
        rng = np.random.default_rng(options.seed)
        labelled = np.flatnonzero(labels.labelled)
        if len(labelled) > _SEARCH_ROWS:
            labelled = np.sort(rng.choice(labelled, _SEARCH_ROWS, replace=False))
        n_folds = min(N_FOLDS, len(labelled))
        folds = deal_folds(labels.strata()[labelled] + 1, n_folds, rng)
        self.engine, self.labels = engine, labels
        self.options = options._replace(n_init=min(options.n_init, _SEARCH_STARTS), split_merge=False)
        parts = [
            (labelled[folds != fold], labelled[folds == fold]) for fold in range(min(n_folds, most_folds))
        ]
        self.folds: list[Any] = [
            ((rows.take(train), labels.take(train)), (rows.take(test), labels.take(test)), {})
            for train, test in parts
        ]

    def __call__(self, n_clusters: int, alpha: float) -> Matrix:
        """Evidence of each fold."""

        def measure(fold: Any) -> float:
            (known, known_labels), (rows, labels), shared = fold
            serial = SerialEngine()
            found = fit_cells(known, known_labels, n_clusters, alpha, self.options, serial, shared=shared)
            counts = cells_of(rows, found.W, found.b, labels)[1]
            return log_evidence(counts, labels, self.options.prior) / int(rows.n_rows)

        return np.array(self.engine.map(measure, self.folds))


def choose_alpha(held_out: HeldOut, n_clusters: int, grid: tuple[float, ...]) -> tuple[float, dict[str, Any]]:
    """Strength with the highest mean held-out evidence; of equal ones the strongest."""
    scores = np.array([held_out(n_clusters, alpha) for alpha in grid])
    mean = scores.mean(axis=1)
    best = len(mean) - 1 - int(np.argmax(mean[::-1]))
    return grid[best], {"alpha": list(grid), "mean_score": mean, "scores": scores}


def candidates(most: int) -> list[int]:
    """Numbers of clusters to try: all up to 6, then steps of about a fifth.

    Examples
    --------
    >>> candidates(12)
    [2, 3, 4, 5, 6, 7, 8, 10, 12]
    """
    found = [2]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * 1.2))))
    return found if most >= found[0] else []


def choose_n_clusters(held_out: HeldOut, most: int, alpha: float) -> tuple[int, dict[str, Any]]:
    """Return the number of clusters with the highest held-out evidence; 1 if none beats independence."""
    tried, scores = [1], [held_out(1, alpha)]
    best = 0
    for n_clusters in candidates(most):
        tried.append(n_clusters)
        scores.append(held_out(n_clusters, alpha))
        if scores[-1].mean() > scores[best].mean() + _LEAST_GAIN:
            best = len(tried) - 1
        elif len(tried) - 1 - best >= _PATIENCE:
            break
    return tried[best], {
        "n_clusters": tried,
        "mean_score": np.array([one.mean() for one in scores]),
        "scores": np.array(scores),
    }
