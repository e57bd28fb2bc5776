"""The kernels of Gaussian clusters and partitions, against plain NumPy."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

from arbora.discover.gaussian.normal_wishart import (
    Hyperparameters,
    log_marginals,
    prior_of,
    scales_of,
    tabulate,
)
from arbora.kernels.gibbs import normal_wishart as kernels
from arbora.kernels.gibbs import partitions as gibbs
from arbora.kernels.gibbs import partitions as losses
from arbora.kernels.gibbs import partitions as moves
from support.gaussian_problems import FORMS, log_marginal, log_student, loss, random_scale

forms = pytest.mark.parametrize("form", FORMS)


def problem(form, n=12, p=3, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X, labels = rng.standard_normal((n, p)), np.append(np.arange(K), rng.integers(K, size=n - K))
    mean, scale = rng.standard_normal(p), random_scale(form, p, rng)
    hyper = Hyperparameters(0.4, 4.5, scale)
    prior = prior_of(hyper, mean, form, n)
    return rng, X, labels.astype(np.int64), mean, hyper, prior


def assert_same_clusters(left, right, K):
    for one, other, name in zip(left, right, left._fields, strict=True):
        one, other = np.asarray(one)[:K], np.asarray(other)[:K]
        if name == "factors" and one.shape[1] > 1:
            one, other = np.triu(one), np.triu(other)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=name)


@forms
def test_densities_are_those_of_the_textbook(form):
    _, X, labels, mean, (r, nu, scale), prior = problem(form)
    clusters = tabulate(X, labels, 3, prior, scale)
    slow = [log_marginal(X[labels == k], mean, r, nu, scale, form) for k in range(3)]
    np.testing.assert_allclose(log_marginals(clusters, prior), slow)
    out = np.empty((len(X), 6))
    kernels.student_matrix(X, clusters, prior, out)
    for k in range(3):
        slow = [log_student(x, X[labels == k], mean, r, nu, scale, form) for x in X]
        np.testing.assert_allclose(out[:, k], slow)
        work = np.empty(3)
        fast = [kernels.log_weight(x, clusters, k, prior, 0.7, -1e300, work) for x in X]
        np.testing.assert_allclose(fast, np.array(slow) + 0.7)
        if form == "full":
            assert kernels.log_weight(X[0], clusters, k, prior, 0.7, slow[0] + 0.71, work) == -1e300
            assert kernels.log_weight(X[0], clusters, k, prior, 0.7, slow[0] + 0.69, work) > -1e300
    left_out = np.empty(len(X))
    kernels.left_out_student(X, labels, clusters, prior, left_out)
    for i, x in enumerate(X):
        others = X[(labels == labels[i]) & (np.arange(len(X)) != i)]
        assert left_out[i] == pytest.approx(log_student(x, others, mean, r, nu, scale, form))


def test_the_predictive_density_is_students():
    _, X, labels, _, (r, nu, scale), prior = problem("full")
    clusters = tabulate(X, labels, 3, prior, scale)
    S, n, p = scales_of(clusters, np.arange(3))[0], clusters.counts[0], 3
    df, rn = nu + n - p + 1, r + n
    known = multivariate_t(clusters.means[0], S * (rn + 1) / (rn * df), df).logpdf(X)
    out = np.empty((len(X), 6))
    kernels.student_matrix(X, clusters, prior, out)
    np.testing.assert_allclose(out[:, 0], known)


@forms
def test_rows_come_and_go(form):
    _, X, labels, _, (_, _, scale), prior = problem(form)
    clusters, work = tabulate(X, labels, 3, prior, scale), np.empty(3)
    moved = labels.copy()
    for i in (3, 5, 8, 9):
        kernels.remove_row(X, moved, i, clusters, moved[i], prior, work)
        moved[i] = (moved[i] + 1) % 3
        kernels.add_row(X[i], clusters, moved[i], prior, work)
    assert_same_clusters(clusters, tabulate(X, moved, 3, prior, scale), 3)


@forms
def test_a_downdate_that_loses_all_digits_starts_again(form):
    """A row a million standard deviations away leaves nothing of the small rows in the factor."""
    _, X, labels, _, (_, _, scale), prior = problem(form)
    X[5] = 1e9
    clusters, work, k = tabulate(X, labels, 3, prior, scale), np.empty(3), labels[5]
    kernels.remove_row(X, labels, 5, clusters, k, prior, work)
    rest = np.arange(len(X)) != 5
    known = tabulate(X[rest], labels[rest], 3, prior, scale)
    np.testing.assert_allclose(clusters.means[k], known.means[k], rtol=1e-6, atol=1e-5)
    assert clusters.logdets[k] == pytest.approx(known.logdets[k], rel=1e-6)


@forms
def test_joined_clusters(form):
    _, X, labels, _, (_, _, scale), prior = problem(form)
    clusters = tabulate(X, labels, 3, prior, scale)
    assert moves.join_clusters(0, 2, 1, clusters, prior, np.empty(3))
    known = tabulate(X, np.where(labels == 2, 0, labels), 3, prior, scale)
    for one, other, name in zip(clusters, known, clusters._fields, strict=True):
        one, other = np.asarray(one)[1], np.asarray(other)[0]
        if name == "factors" and form == "full":
            one, other = np.triu(one), np.triu(other)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=name)


def test_factorize_and_restore():
    rng = np.random.default_rng(0)
    S = random_scale("full", 4, rng)
    factor, inverse, back = np.zeros((4, 4)), np.empty(4), np.zeros((4, 4))
    assert kernels.factorize(S.copy(), factor, inverse) == pytest.approx(np.linalg.slogdet(S)[1])
    kernels.restore_scale(factor, back)
    np.testing.assert_allclose(np.triu(back), np.triu(S))
    np.testing.assert_allclose(inverse, 1 / np.diag(factor))
    assert np.isnan(kernels.factorize(-S, factor, inverse))


def draw(weights, rng):
    """The twin of `draw_index`: the same number for the same generator."""
    p = np.exp(weights - np.max(weights))
    return int(np.searchsorted(np.cumsum(p), rng.random() * p.sum(), side="right"))


@forms
@pytest.mark.parametrize("fixed", [False, True])
def test_a_sweep_draws_what_its_twin_draws(form, fixed):
    rng, X, labels, mean, (r, nu, scale), prior = problem(form)
    K, n, alpha = 3 if fixed else 9, len(X), 1.7
    order, offset = rng.permutation(n), alpha / 3 if fixed else 0.0
    sizes = np.arange(n + 1) + offset
    log_sizes = np.log(sizes, where=sizes > 0, out=np.full(n + 1, -1e300))
    empty = np.array([log_student(x, X[:0], mean, r, nu, scale, form) for x in X])
    fast, clusters = labels.copy(), tabulate(X, labels, K, prior, scale)
    end = gibbs.sweep_labels(
        X, order, 0, fast, clusters, prior, log_sizes, np.log(alpha), empty, fixed, np.random.default_rng(7)
    )
    assert end == n
    slow, twin_rng, active = labels.copy(), np.random.default_rng(7), [0, 1, 2]
    for i in order:
        old, slow[i] = slow[i], -1
        if not fixed and old not in slow:  # the last slot takes the place of the one that closed
            active[active.index(old)] = active[-1]
            active.pop()
        weights = [
            log_sizes[(slow == k).sum()] + log_student(X[i], X[slow == k], mean, r, nu, scale, form)
            for k in active
        ]
        q = draw(np.array(weights + ([] if fixed else [np.log(alpha) + empty[i]])), twin_rng)
        if q == len(active):
            active.append(old if old not in slow else min(k for k in range(K) if k not in slow))
        slow[i] = active[q]
    np.testing.assert_array_equal(fast, slow)
    assert_same_clusters(clusters, tabulate(X, fast, K, prior, scale), K)


def test_a_sweep_stops_where_no_slot_is_left():
    _, X, labels, _, (_, _, scale), prior = problem("full")
    clusters, log_sizes = tabulate(X, labels, 3, prior, scale), np.zeros(len(X) + 1)
    args = X, np.arange(len(X)), 4, labels, clusters, prior, log_sizes, 0.0, np.zeros(len(X)), False
    assert gibbs.sweep_labels(*args, np.random.default_rng(0)) == 4


@pytest.mark.parametrize("fixed", [False, True])
def test_a_sweep_with_margins_draws_what_its_twin_draws(fixed):
    """The twin computes the losses of all rows anew for every choice."""
    rng, X, labels, mean, (r, nu, scale), prior = problem("full")
    n, alpha, c, width, K = len(X), 1.7, 0.8, 0.6, 3 if fixed else 12
    eta = np.zeros((K, 3))
    eta[:5] = rng.standard_normal((min(5, K), 3))
    pool = np.zeros(0, np.int64) if fixed else np.array([3, 4])
    order, offset = rng.permutation(n), alpha / 3 if fixed else 0.0
    sizes = np.arange(n + 1) + offset
    log_sizes = np.log(sizes, where=sizes > 0, out=np.full(n + 1, -1e300))
    empty = np.array([log_student(x, X[:0], mean, r, nu, scale, "full") for x in X])
    fast, clusters = labels.copy(), tabulate(X, labels, K, prior, scale)
    margin = gibbs.MarginSlots(X, eta.copy(), X @ eta.T, pool.copy(), c, width, 0.7)
    log_new = np.log(alpha / max(len(pool), 1))
    gibbs.sweep_labels_margin(
        X, order, 0, fast, clusters, prior, log_sizes, log_new, empty, fixed, margin, np.random.default_rng(3)
    )
    slow, twin_rng, active, pool = labels.copy(), np.random.default_rng(3), [0, 1, 2], pool.tolist()

    def total(active, i, k):
        trial = slow.copy()
        trial[i] = k
        return loss((X @ eta.T)[:, active], [active.index(one) for one in trial], width)

    for i in order:
        old, slow[i] = slow[i], -1
        if not fixed and old not in slow:
            active[active.index(old)] = active[-1]
            active.pop()
            pool[twin_rng.integers(0, 2)] = old
        weights = [
            log_sizes[(slow == k).sum()] + log_student(X[i], X[slow == k], mean, r, nu, scale, "full")
            for k in active
        ]
        weights = [w - 2 * c * total(active, i, k) for w, k in zip(weights, active, strict=True)]
        weights += [log_new + empty[i] - 2 * c * total([*active, a], i, a) for a in pool]
        q = draw(np.array(weights), twin_rng)
        slow[i] = active[q] if q < len(active) else pool[q - len(active)]
        if q >= len(active):
            a = q - len(active)
            active.append(slow[i])
            free = min(k for k in range(K) if k not in slow and k not in pool)
            pool[a], eta[free] = free, 0.7 * np.array([twin_rng.standard_normal() for _ in range(3)])
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_allclose(margin.projections, eta)


@forms
def test_the_ratio_of_a_split_is_that_of_the_densities(form):
    """The allocation of a merge is the probability with which a split draws these sides."""
    _, X, labels, mean, (r, nu, scale), prior = problem(form)
    clusters, n = tabulate(X, labels, 3, prior, scale), len(X)
    i, j = (np.flatnonzero(labels == k)[0] for k in (0, 1))
    members = np.array([q for q in np.flatnonzero(labels < 2) if q not in (i, j)])
    log_sizes, side = np.log(np.maximum(np.arange(n + 1), 1e-300)), np.empty(n, np.int64)
    log_q = moves.allocate(
        X,
        i,
        j,
        members,
        len(members),
        labels,
        False,
        3,
        clusters,
        prior,
        log_sizes,
        side,
        np.random.default_rng(),
    )
    parts, slow = [[i], [j]], 0.0
    for q in members:
        w = [np.log(len(part)) + log_student(X[q], X[part], mean, r, nu, scale, form) for part in parts]
        slow += w[labels[q]] - np.logaddexp(*w)
        parts[labels[q]].append(q)
    assert log_q == pytest.approx(slow)
    np.testing.assert_array_equal(side[: len(members)], labels[members])
    moves.join_clusters(0, 1, 5, clusters, prior, np.empty(3))
    sums = np.concatenate([[0.0], np.cumsum(prior.table)])
    ratio = moves.log_split_ratio(clusters, 3, 5, prior, sums, np.log(1.7), 0.0)
    a, b, both = X[labels == 0], X[labels == 1], X[labels < 2]
    known = sum(log_marginal(one, mean, r, nu, scale, form) for one in (a, b))
    known -= log_marginal(both, mean, r, nu, scale, form)
    sizes = (
        sum(np.log(np.arange(1, len(one))).sum() for one in (a, b)) - np.log(np.arange(1, len(both))).sum()
    )
    assert ratio == pytest.approx(np.log(1.7) + sizes + known)


def test_shared_rows_and_distances():
    rng = np.random.default_rng(0)
    draws, labels = rng.integers(4, size=(6, 15)).astype(np.uint16), rng.integers(3, size=15)
    tables = losses.share_rows(draws, labels, 4, 3)
    slow = [[[np.sum((labels == k) & (one == l)) for l in range(4)] for k in range(3)] for one in draws]
    np.testing.assert_array_equal(tables, slow)
    out = np.empty((15, 15))
    losses.count_together(draws, np.arange(15), np.arange(15), out)
    together = (draws[:, :, None] == draws[:, None, :]).mean(axis=0)
    np.testing.assert_allclose(out, together)
    f = np.arange(16) ** 2 / 15.0**2
    mine = labels[:, None] == labels[None, :]
    known = np.mean([(mine != (one[:, None] == one[None, :])).mean() for one in draws])
    assert losses.expected_distance(draws, labels, 4, f) == pytest.approx(known)


def test_improvement_ends_where_no_single_row_helps():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 10)
    draws = np.array([np.where(rng.random(20) < 0.1, 2, truth) for _ in range(30)]).astype(np.uint16)
    f = np.arange(21) * np.log(np.maximum(np.arange(21), 1)) / 20
    labels = rng.integers(2, size=20)
    losses.improve_partition(draws, labels, 3, 4, f, rng.permutation(20), 50)
    best = losses.expected_distance(draws, labels, 3, f)
    for i in range(20):
        for k in range(4):
            trial = labels.copy()
            trial[i] = k
            assert losses.expected_distance(draws, trial, 3, f) >= best - 1e-9
