"""Starts of mixtures, and the search for the number of components."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.discover.mixture.selection import search_components
from arbora.discover.mixture.starts import plus_plus
from arbora.infer.mixture.statistics import WeightedRows


def test_plus_plus_never_draws_the_same_direction_twice():
    X = sp.csr_array(np.repeat(np.eye(6), [50, 1, 1, 1, 1, 1], axis=0))
    for seed in range(5):
        seeds = plus_plus(WeightedRows(X, np.ones(55)), 6, np.random.default_rng(seed))
        assert len(np.unique(X[seeds].toarray().argmax(axis=1))) == 6


@pytest.mark.parametrize("best", [1, 2, 5, 7, 23])
def test_the_search_finds_the_maximum(best):
    assert search_components(lambda k: np.full(2, -abs(np.log(k / best))), 100).best == best
    assert search_components(lambda k: np.full(2, k), 10).candidates.max() <= 10


def test_the_search_selects_the_smallest_number_that_is_not_clearly_worse():
    noise = np.random.default_rng(0).standard_normal(100)
    assert search_components(lambda k: min(k, 3) + 0.001 * k * noise + 1e-5 * k, 100).best == 3
