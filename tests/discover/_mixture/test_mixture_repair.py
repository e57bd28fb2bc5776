"""No empty and no cloned components; zero rows; trees with as many children as the data support."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline

from arbora.datasets import make_vmf_mixture
from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    HierarchicalVMFMixture,
    MultinomialMixture,
    SphericalKMeans,
    TemporalVMFMixture,
    VMFMixture,
)
from arbora.discover.mixture.starts import fill_up, without_clones
from arbora.discover.vmf.hierarchical_posterior import pruned_tree, regular_tree
from arbora.infer.mixture.statistics import WeightedRows
from arbora.special import sample_vmf, vmf_log_normalizer
from arbora.text import LtcVectorizer

FLAT = [VMFMixture, BayesianVMFMixture, TemporalVMFMixture, DirichletProcessVMFMixture, MultinomialMixture]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # equal rows
ALL = [*FLAT, HierarchicalVMFMixture, SphericalKMeans]


def make(kind, n, **options):
    if kind is HierarchicalVMFMixture:
        return kind((2, -(-n // 2)), random_state=0, **options)
    return kind(n, random_state=0, **options)


@pytest.fixture(scope="module")
def counts():
    """Documents of three subjects that share no word, each with words of its own."""
    rng = np.random.default_rng(0)
    blocks = [rng.poisson(0.8, (40, 10)) for _ in range(3)]
    return np.array(sp.block_diag(blocks).todense(), float)


@pytest.fixture(scope="module")
def repeated():
    """Three directions, each repeated: no data support more than three components."""
    return np.repeat(20 * np.eye(6)[:3] + 1, 20, axis=0)


@pytest.mark.parametrize("kind", ALL)
def test_zero_rows_take_no_part_and_are_unknown(counts, kind):
    X = counts.copy()
    X[[3, 17]] = 0.0
    model, without = (make(kind, 3).fit(rows) for rows in (X, np.delete(X, [3, 17], axis=0)))
    assert model.n_zero_rows_ == 2 + int((np.delete(counts, [3, 17], axis=0).sum(axis=1) == 0).sum())
    filled = np.delete(np.arange(len(X)), [3, 17])
    if hasattr(model, "means_"):
        np.testing.assert_allclose(model.means_, without.means_)
        np.testing.assert_allclose(model.predict_proba(X)[filled], without.predict_proba(X[filled]))
        assert np.all(model.is_novel(X)[[3, 17]])
        expected = 0.0 if kind is MultinomialMixture else float(vmf_log_normalizer(0.0, X.shape[1]))
        np.testing.assert_allclose(model.score_samples(X)[[3, 17]], expected)
        weights = model.weights_[model.leaf_ids_] if kind is HierarchicalVMFMixture else model.weights_
        np.testing.assert_allclose(model.predict_proba(X)[3], weights, rtol=1e-9)
    labels = model.predict(X)
    assert [labels[3], labels[17]] == [-1, -1]
    assert [str(label) for label in labels[filled]] == [str(label) for label in without.predict(X[filled])]
    with pytest.raises(ValueError, match="all rows of X are zero"):
        make(kind, 1 if kind is not HierarchicalVMFMixture else 2).fit(np.zeros((5, 4)))


def test_a_zero_row_has_the_weights_of_its_time(counts):
    times = np.arange(len(counts)) // 40
    model = TemporalVMFMixture(2, weights="evolving", random_state=0).fit(counts, times)
    proba = model.predict_proba(np.zeros((3, counts.shape[1])), [0, 1, 2])
    np.testing.assert_allclose(proba, model.time_weights_, rtol=1e-9)
    assert np.abs(np.diff(model.time_weights_, axis=0)).max() > 0.1


def test_the_path_of_a_zero_row_is_empty(counts):
    model = make(HierarchicalVMFMixture, 4).fit(counts)
    paths = model.predict_path(np.vstack([np.zeros(counts.shape[1]), counts[:1]]))
    assert paths[0] == []
    assert paths[1][0] == "root"


def test_a_pipeline_predicts_texts_without_known_words():
    texts = ["fish swim in the sea", "fish dive", "old trees grow", "trees in a garden grow"]
    model = make_pipeline(LtcVectorizer(), VMFMixture(2, random_state=0)).fit(texts)
    labels = model.predict([*texts, "xyzzy", ""])
    assert labels[4:].tolist() == [-1, -1]
    assert labels.max() == 1


@pytest.mark.parametrize("kind", [*FLAT, HierarchicalVMFMixture])
def test_components_that_no_data_support_are_dropped(repeated, kind):
    model, complete = (make(kind, 6, keep_empty=keep).fit(repeated) for keep in (False, True))
    labels = model.predict(repeated)
    assert model.n_components_ == len(np.unique(labels)) == 3
    assert complete.n_components_ == 6
    assert model.predict_proba(repeated).shape == (60, 3)
    means = model.means_[-1] if kind is TemporalVMFMixture else model.means_
    if kind is not HierarchicalVMFMixture:
        cosine = means @ means.T / np.outer(*(2 * [np.linalg.norm(means, axis=1)]))
        assert cosine[~np.eye(3, dtype=bool)].max() < 0.95


def test_the_number_that_is_asked_for_is_reached_if_the_data_support_it():
    """Annealing that holds components back empties some of them; the others fill up."""
    X = make_vmf_mixture(600, 20, 6, random_state=0).X_train
    start = np.repeat(X[:1], 12, axis=0) + 1e-9 * np.arange(12)[:, None]  # all components in one place
    model = VMFMixture(12, init=start, random_state=0).fit(X)
    assert model.n_components_ == 12
    assert len(np.unique(model.predict(X))) == 12


@pytest.mark.parametrize(("kappa", "n_clusters"), [(4.0, 1), (4000.0, 2)])
def test_clones_are_found_by_the_spread_of_their_rows(kappa, n_clusters):
    """Two means 0.1 apart are one for rows with a wide spread, and two for rows that are close to them."""
    rng, means = np.random.default_rng(0), np.array([[1.0, 0.0, 0.0], [np.cos(0.1), np.sin(0.1), 0.0]])
    X = sample_vmf(np.repeat(means, 2000, axis=0), np.full(4000, kappa), random_state=rng)
    rows, labels = WeightedRows(sp.csr_array(X), np.ones(4000)), np.repeat([0, 1], 2000)
    assert without_clones(rows, labels, 2).max() + 1 == n_clusters
    assert without_clones(rows, rng.permutation(labels), 2).max() == 0  # random halves of the same rows


def test_clones_are_found_by_the_means_of_the_model():
    """Components of one row each, whose means a prior draws to one direction, are one; two others are not."""
    rows = WeightedRows(sp.csr_array(np.eye(6)), np.ones(6))
    labels, prior = np.arange(6), np.full(6, 6**-0.5)
    fitted = prior + np.array([2.0, 2.0, 0.01, 0.01, 0.01, 0.01])[:, None] * np.eye(6)
    assert without_clones(rows, labels, 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert without_clones(rows, labels, 6, fitted.T).tolist() == [0, 1, 2, 2, 2, 2]


def test_filling_up_splits_what_is_widest_and_stops_at_single_directions(repeated):
    rows = WeightedRows(sp.csr_array(repeated / np.linalg.norm(repeated, axis=1, keepdims=True)), np.ones(60))
    labels = np.repeat([0, 0, 1], 20)  # the first cluster has two directions
    filled = fill_up(rows, labels, 3, np.random.default_rng(0))
    assert len(set(zip(filled.tolist(), np.repeat([0, 1, 2], 20).tolist(), strict=True))) == 3
    assert fill_up(rows, labels, 4, np.random.default_rng(0)) is None


@pytest.mark.parametrize(
    ("positions", "names"),
    [
        (range(8), ["0/0/0", "0/0/1", "0/1/0", "0/1/1", "1/0/0", "1/0/1", "1/1/0", "1/1/1"]),
        ([0, 1, 2, 4, 5], ["0/1", "0/0/0", "0/0/1", "1/0", "1/1"]),
        ([0, 7], ["0", "1"]),
        ([2, 3], ["0", "1"]),
        ([5], ["0"]),
    ],
)
def test_a_pruned_tree_has_no_node_with_a_single_child(positions, names):
    tree, leaves = pruned_tree(regular_tree((2, 2, 2)), positions)
    assert sorted(tree.leaves()) == sorted(names)
    assert sorted(leaves.tolist()) == list(positions)
    n_children = np.diff(tree.child_indptr)[~tree.is_leaf]
    assert len(positions) == 1 or n_children.min() >= 2


def test_a_given_tree_and_seeds_are_not_pruned(repeated):
    tree = regular_tree((2, 2))
    for options in ({"structure": tree}, {"structure": (2, 2), "seeds": {"0/0": [0]}}):
        model = HierarchicalVMFMixture(random_state=0, **options).fit(repeated)
        assert sorted(model.hierarchy_.leaves()) == sorted(tree.leaves())


def test_new_clusters_appear_in_batches_after_empty_ones_were_dropped():
    data = make_vmf_mixture(400, 12, 4, random_state=1)
    first = data.X_train[np.unique(data.y_train, return_inverse=True)[1] < 2]
    model = DirichletProcessVMFMixture(8, random_state=0).fit(first)
    before = model.n_clusters_
    assert model.n_components_ == before == len(model.weights_)
    for _ in range(3):
        model.partial_fit(data.X_train)
    assert model.n_clusters_ >= before
    assert len(model.weights_) == model.n_components_ == model.n_clusters_
    assert model.counts_.sum() == pytest.approx(len(first) + 3 * len(data.X_train), rel=0.01)
