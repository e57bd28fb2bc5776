"""A generated set of dense, correlated, badly scaled measurements with many classes in a tree."""

from __future__ import annotations

import numpy as np

from arbora.structure import Hierarchy
from benchmarks._common.tasks import Task

SEED = 24
N_TRAIN, N_TEST, N_FEATURES, N_CLASSES, N_GROUPS, RANK = 2065, 1054, 371, 306, 24, 40
SCALE_SPREAD = 2.5  # standard deviation of the logarithms of the scales of columns


def badly_scaled(n_train: int = N_TRAIN, n_classes: int = N_CLASSES, seed: int = SEED) -> Task:
    """Return measurements of RANK correlated factors whose columns have scales of e^(2.5 z), z normal.

    The means of classes scatter around those of their groups; class sizes fall as 1 / sqrt(rank). Every class has a
    training row.
    """
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(N_GROUPS, size=n_classes))
    means = rng.normal(size=(N_GROUPS, RANK))[group] + 0.7 * rng.normal(size=(n_classes, RANK))
    share = 1 / np.sqrt(np.arange(1, n_classes + 1))
    more = rng.choice(n_classes, size=n_train + N_TEST - n_classes, p=share / share.sum())
    classes = np.concatenate([rng.permutation(n_classes), more])
    factors = means[classes] + 0.6 * rng.normal(size=(len(classes), RANK))
    X = factors @ rng.normal(size=(RANK, N_FEATURES)) / np.sqrt(RANK) + 0.3 * rng.normal(
        size=(len(classes), N_FEATURES)
    )
    X = (X + rng.normal(size=N_FEATURES)) * np.exp(SCALE_SPREAD * rng.normal(size=N_FEATURES))
    names = np.array([f"g{g}.c{c}" for c, g in enumerate(group)], dtype=object)
    edges = [("root", f"g{g}") for g in np.unique(group)]
    edges += [(f"g{g}", name) for g, name in zip(group.tolist(), names, strict=True)]
    y = names[classes]
    return Task(X[:n_train], y[:n_train], X[n_train:], y[n_train:], Hierarchy.from_edges(edges))
