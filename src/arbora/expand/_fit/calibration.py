"""Honest probabilities: temperatures that are found by hiding labels.

The posterior of a clustering is that of its model: it ignores that clusters may be wrong. Some known groups are
hidden, and some rows of the others; the map is learned from the rest, the hidden rows are clustered, and the groups
are matched with clusters (Hungarian). The temperature T of p^(1/T) maximises the mean log-probability of the true
group of the hidden rows. Rows whose best group is known and rows whose best group is new have their own
temperatures: known groups are found far more reliably. A temperature does not change the most
probable group.

Votes of ten neighbours are coarse: a row in the middle of a group and one at its border may both have all ten. Where
rows are filed by neighbours, the distances to the means of the groups join the logarithms of the votes, with the
weight, of those in `MEAN_WEIGHTS`, that gives the hidden rows the highest probability at its best temperature.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize_scalar

from arbora.expand.clusters.clusterers import FAMILIES, filed, mean_scores, unit_rows
from arbora.expand.clusters.constrained import Pool, normalized
from arbora.expand.clusters.group_model import GroupModel
from arbora.expand.clusters.search import ALONE, CLUSTERERS, Candidate, learn_map, mapped
from arbora.expand.groups import group_moments
from arbora.expand.transforms.base import Labelled

Matrix = NDArray[Any]
_N_FOLDS = 4
_STARTS = 5
_MOST_ROWS = 3000
_LEAST, _MOST = 0.2, 200.0  # of the temperature
MEAN_WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


class HiddenRows(NamedTuple):
    """Log-probabilities of hidden rows, the columns of their true groups, and scores by the means of the groups."""

    log_proba: Matrix
    truth: NDArray[np.int64]
    n_known: int
    by_means: Matrix | None = None

    def with_means(self, weight: float) -> HiddenRows:
        """Hidden rows whose log-probabilities include the scores by the means, with a weight."""
        if not weight or self.by_means is None:
            return self
        return self._replace(log_proba=self.log_proba + weight * self.by_means)


class Calibrated(NamedTuple):
    """Temperatures, weight of the means, and the sum of the log-probabilities that they give to the hidden rows."""

    temperature: tuple[float, float]  # of rows whose best group is known, and new
    mean_weight: float
    value: float


def temperature_of(log_proba: list[Matrix], truth: list[NDArray[np.int64]]) -> tuple[float, float]:
    """Temperature that maximises the log-probability of the true groups of several folds, and that sum.

    Examples
    --------
    Probabilities 0.99 that are right in three of four cases:

    >>> import numpy as np
    >>> p = np.log(np.tile([0.99, 0.01], (4, 1)))
    >>> T, _ = temperature_of([p], [np.array([0, 0, 0, 1])])
    >>> np.exp(normalized(p / T))[0].round(3)
    array([0.75, 0.25])
    """
    if not sum(map(len, truth)):
        return 1.0, 0.0

    def loss(log_temperature: float) -> float:
        return -sum(
            float(
                np.take_along_axis(normalized(scores / np.exp(log_temperature)), own[:, None], axis=1).sum()
            )
            for scores, own in zip(log_proba, truth, strict=True)
            if len(own)
        )

    found: Any = minimize_scalar(loss, bounds=(np.log(_LEAST), np.log(_MOST)), method="bounded")
    return float(np.exp(found.x)), -float(found.fun)


def calibrate_folds(folds: list[HiddenRows], mean_weight: float = 0.0) -> Calibrated:
    """Temperatures of rows whose best group is known, and new, for one weight of the means."""
    folds = [fold.with_means(mean_weight) for fold in folds]
    parts = []
    for new in (False, True):
        rows = [(fold.log_proba.argmax(axis=1) >= fold.n_known) == new for fold in folds]
        parts.append(
            temperature_of(
                [fold.log_proba[kept] for fold, kept in zip(folds, rows, strict=True)],
                [fold.truth[kept] for fold, kept in zip(folds, rows, strict=True)],
            )
        )
    (known, of_known), (new_one, of_new) = parts
    return Calibrated((known, new_one), mean_weight, of_known + of_new)


def match_columns(
    truth: NDArray[np.int64], found: NDArray[np.int64], n_true: int, n_found: int
) -> NDArray[np.int64]:
    """Cluster of each true group by Hungarian matching; -1 for groups without one.

    Examples
    --------
    >>> match_columns(np.array([0, 0, 1]), np.array([1, 1, 0]), 2, 2)
    array([1, 0])
    """
    overlap = np.zeros((n_true, n_found))
    np.add.at(overlap, (truth, found), 1.0)
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    match = np.full(n_true, -1, np.int64)
    match[rows] = columns
    return match


def hide(
    labelled: Labelled, n_hidden: int, share: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw groups to hide, and rows to hide: theirs and a share of the others, but never all of a group."""
    hidden = np.sort(rng.permutation(labelled.n_groups)[:n_hidden])
    rows = np.isin(labelled.codes, hidden) | (rng.random(len(labelled.codes)) < share)
    order = rng.permutation(len(labelled.codes))
    first = order[np.unique(labelled.codes[order], return_index=True)[1]]
    rows[first[~np.isin(labelled.codes[first], hidden)]] = False
    return hidden, rows


def _folds(
    labelled: Labelled, candidate: Candidate, pool: str, n_new: int, filing: str, rng: np.random.Generator
) -> Iterator[HiddenRows]:
    n_groups = labelled.n_groups
    fewest = 1 if candidate.transform in ALONE else 2  # groups that must stay shown
    n_hidden = 0
    if n_new:
        share_new = n_new / (n_new + n_groups)
        n_hidden = int(np.clip(round(share_new * n_groups), 1, max(n_groups - fewest, 0)))
    if pool == "new" and not n_hidden:
        return
    for _ in range(_N_FOLDS):
        hidden, free = hide(labelled, n_hidden, 0.5 if pool == "mixed" else 0.0, rng)
        if free.sum() <= n_hidden:
            continue
        shown = np.setdiff1d(np.arange(n_groups), hidden)
        code = np.full(n_groups, -1, np.int64)
        code[shown] = np.arange(len(shown))
        own = code[labelled.codes]
        base = Labelled(labelled.Z[~free], own[~free], len(shown), labelled.row_weight[~free], labelled.seed)
        L = learn_map(candidate.transform, candidate.strength, base).astype(labelled.Z.dtype)
        Z = mapped(L, labelled.Z, candidate.transform)
        yield _clustered(
            Z, np.where(free, -1, own), labelled.codes, code, n_hidden, candidate, pool, filing, rng
        )


def _clustered(
    Z: Matrix,
    fixed: NDArray[np.int64],
    codes: NDArray[np.int64],
    code: NDArray[np.int64],
    n_hidden: int,
    candidate: Candidate,
    pool: str,
    filing: str,
    rng: np.random.Generator,
) -> HiddenRows:
    """Cluster hidden rows; `code` numbers the groups that are shown, and is -1 for those that are hidden."""
    free, n_shown = np.flatnonzero(fixed < 0), int(code.max()) + 1
    fit = CLUSTERERS[candidate.clusterer]
    covers_known = pool == "mixed" or not n_hidden
    found_codes = fixed.copy()
    if covers_known:
        rows = Pool(Z, fixed, n_shown, np.ones(len(Z)))
        found = fit(rows, n_hidden, rng, _STARTS)
        if filing == "neighbours":
            found = filed(rows, found, n_hidden, candidate.clusterer, 0)
        found_codes = found.labels
    else:
        found = fit(Pool(Z[free], np.full(len(free), -1), 0, np.ones(len(free))), n_hidden, rng, _STARTS)
        found_codes[free] = n_shown + found.labels
    family = FAMILIES.get(candidate.clusterer)
    unit = family is not None and family.unit
    Z = unit_rows(Z) if unit else Z
    moments = group_moments(Z, found_codes, n_shown + n_hidden, np.ones(len(Z)))
    variance = max(float(np.trace(moments.within)) / Z.shape[1], np.finfo(np.float64).tiny)
    model = GroupModel(found, covers_known, n_shown, moments.mean, variance, unit, candidate.clusterer)
    columns = code.copy()
    new = free[code[codes[free]] < 0]
    if len(new):
        hidden = np.flatnonzero(code < 0)
        there = found_codes[new] >= n_shown
        truth = np.searchsorted(hidden, codes[new])
        match = match_columns(truth[there], found_codes[new][there] - n_shown, len(hidden), n_hidden)
        columns[hidden] = np.where(match >= 0, n_shown + match, -1)
    target = columns[codes[free]]
    matched = target >= 0
    kept = Z[free[matched]]
    by_means = mean_scores(kept, model.means, variance) if covers_known and filing == "neighbours" else None
    return HiddenRows(np.asarray(model.scorer()(kept), np.float64), target[matched], n_shown, by_means)


def calibrate(labelled: Labelled, candidate: Candidate, pool: str, n_new: int, filing: str) -> Calibrated:
    """Temperatures and weight of the means for a choice; 1 and 0 where nothing can be hidden."""
    rng = np.random.default_rng(labelled.seed)
    if len(labelled.Z) > _MOST_ROWS:
        kept = np.sort(rng.permutation(len(labelled.Z))[:_MOST_ROWS])
        codes, own = np.unique(labelled.codes[kept], return_inverse=True)
        labelled = Labelled(labelled.Z[kept], own, len(codes), labelled.row_weight[kept], labelled.seed)
    if labelled.n_groups < 2:
        return Calibrated((1.0, 1.0), 0.0, 0.0)
    folds = list(_folds(labelled, candidate, pool, n_new, filing, rng))
    tried = MEAN_WEIGHTS if folds and folds[0].by_means is not None else (0.0,)
    return max((calibrate_folds(folds, weight) for weight in tried), key=lambda found: found.value)
