"""The map: documents that are alike are neighbours, groups start where the linear layout puts them."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.app.contents import positions as neighbour_layout
from arbora.app.contents.positions import NO_LIBRARY, lay_out, place_documents, unit_rows

N_GROUPS, N_EACH = 5, 30


@pytest.fixture(scope="module")
def collection():
    """Rows of five groups; words of one group do not occur in another."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(N_GROUPS), N_EACH)
    X = rng.uniform(0, 1, (len(y), 8 * N_GROUPS)) * (np.arange(8 * N_GROUPS) // 8 == y[:, None])
    X *= rng.random(X.shape) < 0.6
    X[:, 0] += 0.01
    return unit_rows(X), y, sp.csr_array(np.eye(N_GROUPS)[y])


def nearest_agree(positions, y):
    """Share of the rows whose nearest neighbour on the map is of their group."""
    distances = np.linalg.norm(positions[:, None] - positions, axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.mean(y[distances.argmin(axis=1)] == y)


def test_rows_of_a_group_are_neighbours(collection):
    pytest.importorskip("openTSNE")
    X, y, leaves = collection
    rows = np.arange(len(y))
    linear, _, _ = place_documents(X, leaves, leaves, rows, layout="linear")
    placed, nodes, notices = place_documents(X, leaves, leaves, rows)
    assert notices == []
    assert nearest_agree(placed, y) > max(0.95, nearest_agree(linear[:, :2], y))
    assert not placed[:, 2].any()
    assert np.linalg.norm(placed, axis=1).max() <= 1 + 1e-6
    np.testing.assert_allclose(nodes[2], placed[y == 2].mean(axis=0), atol=1e-6)
    again, _, _ = place_documents(X, leaves, leaves, rows)
    np.testing.assert_array_equal(placed, again)


def test_rows_outside_the_sample_are_placed_with_their_group(collection):
    pytest.importorskip("openTSNE")
    X, y, _ = collection
    start = np.random.default_rng(1).normal(size=(len(y), 2))
    placed = lay_out(X, start, fitted=80)
    sampled = np.isin(np.arange(len(y)), np.random.default_rng(0).permutation(len(y))[:80])
    distances = np.linalg.norm(placed[~sampled][:, None] - placed[sampled], axis=2)
    assert np.mean(y[sampled][distances.argmin(axis=1)] == y[~sampled]) > 0.95


def test_a_row_without_words_and_equal_rows_have_a_place():
    pytest.importorskip("openTSNE")
    X = unit_rows(np.vstack([np.zeros((2, 3)), np.repeat(np.eye(3), 20, axis=0)]))
    placed = lay_out(X, np.zeros((62, 2)))
    assert np.isfinite(placed).all()


def test_few_rows_have_the_linear_layout(collection):
    X, y, leaves = collection
    few = np.arange(0, len(y), 10)
    positions, _, _ = place_documents(X, leaves, leaves, few)
    np.testing.assert_array_equal(positions, place_documents(X, leaves, leaves, few, layout="linear")[0])


def test_without_the_library_the_layout_is_linear_and_says_so(collection, monkeypatch):
    X, y, leaves = collection
    rows = np.arange(len(y))
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    monkeypatch.setattr(neighbour_layout, "MODULE", "no_such_library")
    positions, _, notices = place_documents(X, leaves, leaves, rows)
    assert notices == [NO_LIBRARY]
    np.testing.assert_array_equal(positions, place_documents(X, leaves, leaves, rows, layout="linear")[0])


def test_an_unknown_layout_is_an_error(collection):
    X, _, leaves = collection
    with pytest.raises(ValueError, match="neighbours, linear"):
        place_documents(X, leaves, leaves, np.arange(3), layout="spiral")
