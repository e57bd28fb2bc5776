"""Labelled groups for the tests of transformations."""

import numpy as np

from arbora.expand.groups import Groups
from arbora.expand.transforms.base import Labelled


def labelled_groups(n_groups=4, n_dims=5, n_rows=60, seed=0, spread=1.0, positive=False):
    """Groups whose means differ in all directions and whose rows vary most in the last one."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n_rows) % n_groups
    means = 2 * rng.normal(size=(n_groups, n_dims))
    noise = rng.normal(size=(n_rows, n_dims)) * np.linspace(0.5, 3 * spread, n_dims)
    Z = means[codes] + noise
    if positive:
        Z = np.abs(Z) + 0.1
    return Labelled(Z, codes, n_groups, rng.random(n_rows) + 0.5, 0)


def partly_labelled(n_known=3, n_new=3, n_each=40, n_dims=6, seed=0):
    """Rows of known and new groups; the first feature varies inside of the groups alone."""
    rng = np.random.default_rng(seed)
    n_groups = n_known + n_new
    truth = np.repeat(np.arange(n_groups), n_each)
    X = 6 * rng.normal(size=(n_groups, n_dims))[truth] + rng.normal(size=(len(truth), n_dims))
    X[:, 0] = 25 * rng.normal(size=len(truth))
    y = np.where(truth < n_known, truth, -1)
    order = rng.permutation(len(truth))
    return X[order], y[order], truth[order]


def as_groups(codes):
    """Groups of codes."""
    return Groups(np.asarray(codes), np.arange(max(codes) + 1))
