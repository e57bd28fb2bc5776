"""Clustering measures against scikit-learn and closed forms."""

import numpy as np
import pytest
import sklearn.metrics as skm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from arbora import metrics

quick = settings(deadline=None, max_examples=40)  # no deadline: the machine may be busy

partitions = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from("abcde"), min_size=n, max_size=n),
        st.lists(st.integers(0, 6), min_size=n, max_size=n),
    )
)


@quick
@given(pair=partitions)
def test_equal_to_sklearn(pair):
    report = metrics.clustering_report(*pair)
    assert report.mi == pytest.approx(skm.mutual_info_score(*pair), abs=1e-12)
    assert report.nmi == pytest.approx(skm.normalized_mutual_info_score(*pair), abs=1e-12)
    assert report.rand_index == pytest.approx(skm.rand_score(*pair))
    assert report.adjusted_rand_index == pytest.approx(skm.adjusted_rand_score(*pair), abs=1e-12)


@quick
@given(pair=partitions)
def test_report_is_made_of_the_single_measures(pair):
    report = metrics.clustering_report(*pair)
    assert (report.purity, report.macro_f1) == (metrics.purity(*pair), metrics.clustering_macro_f1(*pair))
    assert (report.n_classes, report.n_clusters) == tuple(len(set(labels)) for labels in pair)


@quick
@given(pair=partitions)
def test_majority_measures_by_classification(pair):
    y_true, clusters = pair
    members = {k: [y for y, c in zip(*pair, strict=True) if c == k] for k in set(clusters)}
    majority = {k: max(sorted(set(ys)), key=ys.count) for k, ys in members.items()}
    predicted = [majority[k] for k in clusters]
    assert metrics.purity(*pair) == pytest.approx(skm.accuracy_score(y_true, predicted))
    assert metrics.clustering_macro_f1(*pair) == pytest.approx(
        skm.f1_score(y_true, predicted, average="macro", zero_division=0)
    )


@quick
@given(pair=partitions, seed=st.integers(0, 1000))
def test_invariant_under_row_order_and_cluster_names(pair, seed):
    y_true, clusters = map(np.array, pair)
    rng = np.random.default_rng(seed)
    order, names = rng.permutation(len(y_true)), rng.permutation(7)
    moved = metrics.clustering_report(y_true[order], names[clusters][order])
    assert moved == pytest.approx(metrics.clustering_report(y_true, clusters))
    assert metrics.discriminative_cost(y_true[order], names[clusters][order]) == pytest.approx(
        metrics.discriminative_cost(y_true, clusters)
    )


def test_degenerate_partitions():
    one = metrics.clustering_report(["a"] * 4, [0] * 4)
    assert (one.nmi, one.mi, one.rand_index, one.adjusted_rand_index, one.purity, one.macro_f1) == (
        1,
        0,
        1,
        1,
        1,
        1,
    )
    one_cluster = metrics.clustering_report(["a", "a", "b"], [0, 0, 0])
    assert (one_cluster.nmi, one_cluster.adjusted_rand_index) == (0, 0)
    assert one_cluster.macro_f1 == pytest.approx(0.4)
    own_cluster = metrics.clustering_report(["a", "a", "b"], [0, 1, 2])
    assert (own_cluster.purity, own_cluster.n_clusters) == (1, 3)
    assert metrics.clustering_report(["a"], [0]).rand_index == 1


def test_many_rows_do_not_overflow():
    y_true = np.repeat([0, 1], 200_000)  # products of pair counts exceed 2**63
    report = metrics.clustering_report(y_true, 1 - y_true)
    assert report.adjusted_rand_index == 1
    assert report.nmi == pytest.approx(1)


@quick
@given(pair=partitions, prior=st.floats(0.1, 5))
def test_discriminative_cost_by_its_definition(pair, prior):
    table = skm.cluster.contingency_matrix(*pair).T
    expected = gammaln(prior + table).sum() - gammaln(prior * table.shape[1] + table.sum(axis=1)).sum()
    assert metrics.discriminative_cost(*pair, prior=prior) == pytest.approx(expected)
    by_class = metrics.discriminative_cost(*pair, prior=np.full(table.shape[1], prior))
    assert by_class == pytest.approx(expected)


def test_discriminative_cost_of_empty_clusters_and_unequal_prior():
    y_true, clusters, prior = ["a", "b", "b"], [0, 0, 2], np.array([0.5, 2.0])
    table = np.array([[1, 1], [0, 1], [0, 0], [0, 0]])
    expected = gammaln(prior + table).sum() - gammaln(2.5 + table.sum(axis=1)).sum()
    assert metrics.discriminative_cost(y_true, clusters, prior=prior, n_clusters=4) == pytest.approx(expected)


def test_discriminative_cost_is_a_log_marginal_likelihood():
    """By the chain rule: each label's predictive probability in its cluster (Polya urn), uniform prior."""
    y_true, clusters = ["a", "b", "a", "a", "c", "b"], [0, 0, 1, 1, 1, 0]
    seen, chain = {}, 0.0
    for label, cluster in zip(y_true, clusters, strict=True):
        urn = seen.setdefault(cluster, dict.fromkeys("abc", 1.0))
        chain += np.log(urn[label] / sum(urn.values()))
        urn[label] += 1
    constant = 2 * (3 * gammaln(1.0) - gammaln(3.0))
    assert metrics.discriminative_cost(y_true, clusters) == pytest.approx(chain + constant)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.purity(["a", "b"], [0]), "y_true has 2 rows but clusters has 1"),
        (lambda: metrics.purity([], []), "empty"),
        (lambda: metrics.purity([["a"]], [0]), "one label per row"),
        (lambda: metrics.purity(["a"], [np.nan]), "missing label"),
        (lambda: metrics.discriminative_cost(["a"], [0], prior=0), "positive"),
        (lambda: metrics.discriminative_cost(["a", "b"], [0, 0], prior=[1, 1, 1]), "each of the 2 classes"),
        (lambda: metrics.discriminative_cost(["a", "b"], [0, 1], n_clusters=1), "2 clusters occur"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()
