"""Choosing without labels of the new groups: hide some known groups, cluster their rows, compare with the labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from arbora.expand._common.transform import Labelled
from arbora.metrics import normalized_mutual_information

Value = TypeVar("Value")
Matrix = NDArray[Any]
N_FOLDS = 5
_N_STARTS = 5
_TINY = float(np.finfo(np.float64).tiny)
_FEWEST_GROUPS = 3  # one to learn from, two to tell apart


def hidden_size(n_groups: int) -> int:
    """Return how many groups are hidden at a time: half of them, at least two, but not all.

    Examples
    --------
    >>> hidden_size(3), hidden_size(10)
    (2, 5)
    """
    return min(max(2, n_groups // 2), n_groups - 1)


def hidden_groups(n_groups: int, n_folds: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Draw sets of groups to hide: half of all, at least two, each group in turn.

    Examples
    --------
    >>> [len(hidden) for hidden in hidden_groups(8, 3, np.random.default_rng(0))]
    [4, 4, 4]
    """
    if n_groups < _FEWEST_GROUPS:
        raise ValueError(
            f"y has {n_groups} labelled groups: choosing by hidden groups needs at least {_FEWEST_GROUPS}. Give the "
            "parameter a number instead of 'cv', or label more groups."
        )
    size = hidden_size(n_groups)
    folds: list[NDArray[np.int64]] = []
    while len(folds) < n_folds:
        order = rng.permutation(n_groups)
        folds += [np.sort(order[first : first + size]) for first in range(0, n_groups - size + 1, size)]
    return folds[:n_folds]


def take_groups(labelled: Labelled, groups: NDArray[np.int64]) -> Labelled:
    """Rows of some groups, with new codes."""
    code = np.full(labelled.n_groups, -1, np.int64)
    code[groups] = np.arange(len(groups))
    kept = code[labelled.codes] >= 0
    return Labelled(
        labelled.Z[kept], code[labelled.codes[kept]], len(groups), labelled.row_weight[kept], labelled.seed
    )


def strength_of(
    estimator: Any,
    name: str,
    candidates: Sequence[float],
    labelled: Labelled,
    learn: Callable[[Labelled, float], Matrix],
    *,
    unit_rows: bool = False,
) -> float:
    """Return a parameter of a transformer; "cv" chooses it among candidates by hiding groups.

    Sets the attribute with the name of the parameter and an underscore, and `cv_results_` after "cv". The other
    arguments are those of `choose_by_hiding`.
    """
    estimator.__dict__.pop("cv_results_", None)  # of an earlier fit
    value = getattr(estimator, name)
    if isinstance(value, str):
        numbers = [float(candidate) for candidate in candidates]
        value, estimator.cv_results_ = choose_by_hiding(learn, labelled, numbers, name, unit_rows=unit_rows)
    setattr(estimator, f"{name}_", value)
    return float(value)


def choose_by_hiding(
    learn: Callable[[Labelled, Value], Matrix],
    labelled: Labelled,
    candidates: Sequence[Value],
    name: str,
    *,
    n_folds: int = N_FOLDS,
    unit_rows: bool = False,
) -> tuple[Value, dict[str, Any]]:
    """Choose a parameter by how well hidden groups are found again.

    Parameters
    ----------
    learn : callable
        Gives the map L for labelled rows and a candidate.
    labelled : Labelled
    candidates : sequence
    name : str
        Of the parameter, for the table.
    n_folds : int
    unit_rows : bool
        Whether mapped rows are divided by their lengths before they are clustered.

    Returns
    -------
    best : object
        The candidate with the highest mean NMI; of equal ones the first.
    results : dict
        `name`, "mean_score" and "scores" (candidates x folds).
    """
    rng = np.random.default_rng(labelled.seed)
    everything = np.arange(labelled.n_groups)
    scores = np.empty((len(candidates), n_folds))
    for fold, hidden in enumerate(hidden_groups(labelled.n_groups, n_folds, rng)):
        shown = take_groups(labelled, np.setdiff1d(everything, hidden))
        pool = take_groups(labelled, hidden)
        for k, candidate in enumerate(candidates):
            means = KMeans(len(hidden), n_init=_N_STARTS, random_state=labelled.seed)
            mapped = pool.Z @ learn(shown, candidate).T
            if unit_rows:
                mapped = mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), _TINY)
            found = means.fit_predict(mapped, sample_weight=pool.row_weight)
            scores[k, fold] = normalized_mutual_information(pool.codes, found)
    mean = scores.mean(axis=1)
    best = int(np.argmax(mean))
    return candidates[best], {name: list(candidates), "mean_score": mean, "scores": scores}
