"""Methods of `benchmarks.expand_thesis` and the protocol that all of them go through (thesis, section 6.6).

The classes of a set are split at random into training, validation and test classes, a third each. A transformation is
learned from the rows of the training classes. Where it has a strength, each value of a grid is tried, and the one
under which k-means finds the validation classes best (NMI) is used. The rows of the test classes are then clustered
with their true number, from several k-means++ starts. The start with the best objective counts; the mean over all
starts, which the thesis reports, is stored beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from arbora.discover import VMFMixture
from arbora.expand import (
    ExpandClusters,
    FisherTransform,
    GammaTransform,
    GaussianTransform,
    LargeMarginTransform,
    MaxMarginTransform,
    PairwiseConstraintTransform,
    PairwiseFisherTransform,
    SeparabilityTransform,
    SphericalTransform,
    WithinClassTransform,
)
from benchmarks._common.expand_data import Rows

STARTS, VALIDATION_STARTS = 10, 3
AUTO, PRIOR, GAMMA = "ExpandClusters", "BP", "TCS-Gamma"
_FEWEST = 2  # classes of each part


class Method(NamedTuple):
    """How a transformation is made for a strength and a number of training classes, and the strengths to try."""

    make: Callable[[Any, int], Any]
    strengths: tuple[Any, ...] = (None,)
    spherical: bool = False  # whether rows are clustered by a von Mises-Fisher mixture


def share_of(share: float, n_classes: int) -> int:
    """Return the number of directions that TCS-FS keeps."""
    return max(1, round(share * (n_classes - 1)))


METHODS: dict[str, Method] = {
    "GM": Method(lambda s, k: None),
    "VM": Method(lambda s, k: None, spherical=True),
    "WithinClass": Method(lambda s, k: WithinClassTransform()),
    "WithinClass tuned": Method(lambda s, k: WithinClassTransform(s), (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)),
    "TCS-GM": Method(lambda s, k: GaussianTransform(s, tol=1e-4), (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
    "TCS-GM-L2": Method(
        lambda s, k: GaussianTransform(s, tol=1e-4, regularizer="ridge"), (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    ),
    "TCS-CS": Method(lambda s, k: SeparabilityTransform(s), (0.0, 0.5, 1.0, 2.0, 4.0)),
    "TCS-FS": Method(
        lambda s, k: PairwiseFisherTransform(n_components=share_of(s, k)), (0.25, 0.5, 0.75, 1.0)
    ),
    "FD": Method(lambda s, k: FisherTransform()),
    "PCC": Method(lambda s, k: PairwiseConstraintTransform()),
    "TCS-MM": Method(
        lambda s, k: MaxMarginTransform(s, max_iter=20, random_state=0), (1e-3, 1e-2, 1e-1, 1.0)
    ),
    "TCS-VM": Method(lambda s, k: SphericalTransform(s), (1e-3, 1e-2, 1e-1, 1.0), spherical=True),
    GAMMA: Method(lambda s, k: GammaTransform(s, max_iter=10), (1e-3, 1e-2, 1e-1, 1.0)),
    "LMNN": Method(
        lambda s, k: LargeMarginTransform(5, gamma=s, tol=1e-2, max_iter=200), (0.0, 1e-2, 1e-1, 1.0)
    ),
}
# Methods that are measured in one process, because each takes seconds; the others have a process each.
FAST = tuple(name for name in METHODS if name not in ("VM", "TCS-MM", "TCS-VM", "LMNN", GAMMA))
GROUPS: dict[str, tuple[str, ...]] = {
    "fast": FAST, "spherical": ("VM", "TCS-VM"), "TCS-MM": ("TCS-MM",), AUTO: (AUTO,), "LMNN": ("LMNN",),
    PRIOR: (PRIOR,), GAMMA: (GAMMA,),
}  # fmt: skip


class Split(NamedTuple):
    """Rows of the training, validation and test classes."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_classes(y: np.ndarray, seed: int) -> Split:
    """Split the classes at random, a third of them each, the remainder to the test classes."""
    n_classes = int(y.max()) + 1
    third = max(_FEWEST, n_classes // 3)
    order = np.random.default_rng(seed).permutation(n_classes)
    parts = np.split(order, [third, 2 * third])
    return Split(*(np.flatnonzero(np.isin(y, part)) for part in parts))


class Scores(NamedTuple):
    """NMI and ARI of the start with the best objective, and their means over all starts."""

    nmi: float
    ari: float
    mean_nmi: float
    mean_ari: float


def cluster(Z: np.ndarray, y: np.ndarray, starts: int, seed: int, spherical: bool = False) -> Scores:
    """Cluster rows into as many clusters as they have classes, from several starts."""
    n_clusters, result = len(np.unique(y)), []
    for start in range(starts):
        state = 1000 * seed + start
        if spherical:
            model = VMFMixture(n_clusters, random_state=state, n_jobs=1).fit(Z)
            labels, objective = model.predict(Z), float(model.lower_bounds_[-1])
        else:
            means = KMeans(n_clusters, n_init=1, random_state=state).fit(Z)
            labels, objective = means.labels_, -float(means.inertia_)
        result.append((objective, normalized_mutual_info_score(y, labels), adjusted_rand_score(y, labels)))
    best, mean = max(result), np.mean(result, axis=0)
    return Scores(best[1], best[2], float(mean[1]), float(mean[2]))


def fitted(method: Method, strength: Any, X: Any, y: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Learn a transformation; the identity where the method has none."""
    model = method.make(strength, len(np.unique(y)))
    if model is None:
        return lambda rows: rows
    # Sparse input keeps unit rows of text uncentred, as the model of the sphere needs them.
    wrap = sp.csr_matrix if method.spherical else np.asarray
    model.fit(wrap(X), y)
    return lambda rows: model.transform(wrap(rows))


def run_split(method: Method, rows: Rows, split: Split, seed: int, starts: int) -> dict[str, Any]:
    """Choose the strength on the validation classes, learn from the training classes, cluster the test classes."""
    X, y = rows.X, rows.y
    tried, maps, started = [], [], time.perf_counter()
    for strength in method.strengths:
        maps.append(fitted(method, strength, X[split.train], y[split.train]))
        if len(method.strengths) > 1:
            Z = maps[-1](X[split.validation])
            tried.append(cluster(Z, y[split.validation], VALIDATION_STARTS, seed, method.spherical).nmi)
    best = int(np.argmax(tried)) if tried else 0
    seconds = time.perf_counter() - started
    scores = cluster(maps[best](X[split.test]), y[split.test], starts, seed, method.spherical)
    return {**scores._asdict(), "strength": method.strengths[best], "tried": tried, "seconds": seconds}


def run_labels(labels: np.ndarray, y: np.ndarray, seconds: float, **more: Any) -> dict[str, Any]:
    nmi, ari = normalized_mutual_info_score(y, labels), adjusted_rand_score(y, labels)
    return {"nmi": nmi, "ari": ari, "mean_nmi": nmi, "mean_ari": ari, "seconds": seconds, **more}


def hidden(rows: Rows, split: Split) -> tuple[np.ndarray, int]:
    """Labels in which the test classes are unknown, and the number of test classes."""
    y = rows.y.copy()
    y[split.test] = -1
    return y, len(np.unique(rows.y[split.test]))


def run_auto(rows: Rows, split: Split, seed: int, unit: bool) -> dict[str, Any]:
    """Everything chosen by hiding groups; training and validation classes are both labelled."""
    (y, n_new), started = hidden(rows, split), time.perf_counter()
    model = ExpandClusters(n_new=n_new, pool="new", random_state=seed)
    model.fit(sp.csr_matrix(rows.X) if unit else rows.X, y)
    choice = model.choice_
    return run_labels(
        model.labels_[split.test].astype(str),
        rows.y[split.test],
        time.perf_counter() - started,
        strength=" ".join(str(choice[key]) for key in ("scale", "metric", "strength", "clusterer")),
        tried=[],
    )


def run_prior(rows: Rows, split: Split, seed: int) -> dict[str, Any]:
    """Mixture with a prior that the groups share; it clusters by itself and has no strength to choose."""
    from arbora.expand import BayesianPriorMixture

    ids = np.concatenate([split.train, split.test])
    (y, n_new), started = hidden(rows, split), time.perf_counter()
    model = BayesianPriorMixture(n_new=n_new, pool="new", random_state=seed).fit(rows.X[ids], y[ids])
    labels = model.labels_[len(split.train) :].astype(str)
    return run_labels(labels, rows.y[split.test], time.perf_counter() - started, strength=None, tried=[])


def measure_group(group: str, rows: Rows, unit: bool, splits: int, starts: int) -> dict[str, Any]:
    """All splits of all methods of a group: lists by split."""
    result: dict[str, Any] = {}
    for name in GROUPS[group]:
        lines = []
        for seed in range(splits):
            split = split_classes(rows.y, seed)
            if name == AUTO:
                lines.append(run_auto(rows, split, seed, unit))
            elif name == PRIOR:
                lines.append(run_prior(rows, split, seed))
            else:
                lines.append(run_split(METHODS[name], rows, split, seed, starts))
        result[name] = {key: [line[key] for line in lines] for key in lines[0]}
    return result
