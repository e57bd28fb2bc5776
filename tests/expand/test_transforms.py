"""Transformations: optima against a generic solver, gradients against differences, reductions, invariances."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime
from scipy.special import digamma
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from arbora.expand import (
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
from arbora.expand.groups import group_covariances, group_moments
from arbora.expand.transforms.fisher import between_groups
from arbora.expand.transforms.gamma import GammaProblem, shapes
from arbora.expand.transforms.gaussian import REGULARIZERS, GaussianProblem, learn_gaussian, psd
from arbora.expand.transforms.large_margin import LargeMarginProblem, learn_large_margin, target_neighbours
from arbora.expand.transforms.margin import Cut, CutProblem
from arbora.expand.transforms.pairwise import pair_scatters
from arbora.expand.transforms.separability import SeparabilityProblem, learn_separability, separation_ratio
from arbora.expand.transforms.spherical import SphericalProblem
from support.expand_problems import labelled_groups, partly_labelled

REGULARIZED = pytest.mark.parametrize("regularizer", list(REGULARIZERS))


def gaussian_problem(regularizer="identity", gamma=0.05, **options):
    labelled = labelled_groups(**options)
    means = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight).mean
    return GaussianProblem(labelled.Z, labelled.codes, means, labelled.row_weight, gamma, regularizer)


def random_metric(n_dims, seed=1):
    B = np.random.default_rng(seed).normal(size=(n_dims, n_dims))
    return B @ B.T / n_dims


# --- TCS-GM --------------------------------------------------------------------------------------------------------


def test_gaussian_loss_is_that_of_the_mixture():
    """The softmax in A without x'Ax is the posterior of the labels under unit Gaussians around L m_k."""
    problem = gaussian_problem()
    A = random_metric(5)
    difference = problem.X[:, None, :] - problem.means[None]
    distance = np.einsum("nkp,pq,nkq->nk", difference, A, difference)
    at_label = distance[np.arange(len(distance)), problem.codes]
    loss = problem.share @ (at_label / 2 + np.log(np.exp(-distance / 2).sum(axis=1)))
    assert problem.value(A) == pytest.approx(loss, rel=1e-12)


def test_gaussian_gradient_by_differences():
    problem = gaussian_problem()
    A = random_metric(5)
    direction = random_metric(5, seed=2)
    step = 1e-6
    difference = (problem.value(A + step * direction) - problem.value(A - step * direction)) / (2 * step)
    assert float(np.vdot(problem.value_and_gradient(A)[1], direction)) == pytest.approx(difference, rel=1e-7)


@REGULARIZED
def test_prox_is_the_minimiser_on_the_cone(regularizer):
    """No feasible direction improves the prox: its objective is below that of random neighbours on the cone."""
    rng = np.random.default_rng(0)
    B = rng.normal(size=(4, 4))
    B, t = (B + B.T) / 2, 0.3
    part = REGULARIZERS[regularizer]

    def value(A):
        return part.value(A) * t + np.sum((A - B) ** 2) / 2

    A = part.prox(B, t)
    assert np.linalg.eigvalsh(A)[0] >= -1e-10
    for scale in (1e-1, 1e-2, 1e-3):
        for _ in range(50):
            E = rng.normal(size=(4, 4))
            assert value(A) <= value(psd(A + scale * (E + E.T))) + 1e-9


@REGULARIZED
def test_gap_bounds_the_distance_from_the_optimum_everywhere(regularizer):
    problem = gaussian_problem(regularizer)
    best = learn_gaussian(labelled_groups(), 0.05, regularizer, tol=1e-9, max_iter=5000)
    optimum = problem.value(best.L.T @ best.L) + problem.penalty(best.L.T @ best.L)
    for seed in range(3):
        A = problem.prox(random_metric(5, seed), 0.1)
        assert problem.value(A) + problem.penalty(A) - optimum <= problem.gap(A) + 1e-9


@REGULARIZED
def test_gaussian_optimum_against_cvxpy(regularizer):
    cp = pytest.importorskip("cvxpy")
    problem = gaussian_problem(regularizer, n_rows=24, n_dims=3, n_groups=3)
    A = cp.Variable((3, 3), PSD=True)
    scores = []
    for mean in problem.means:
        scores.append(problem.X @ (A @ mean) - cp.sum(cp.multiply(A, np.outer(mean, mean))) / 2)
    S = cp.vstack(scores).T
    at_label = cp.sum(cp.multiply(S, np.eye(3)[problem.codes]), axis=1)
    loss = problem.share @ (cp.log_sum_exp(S, axis=1) - at_label)
    penalty = {
        "identity": cp.sum_squares(A - np.eye(3)),
        "ridge": cp.sum_squares(A),
        "nuclear": cp.trace(A),
        "logdet": cp.trace(A) - cp.log_det(A),
        "l1": cp.sum(cp.abs(A - np.eye(3))),
    }[regularizer]
    known = cp.Problem(cp.Minimize(loss + problem.gamma * penalty)).solve(
        solver="SCS", eps=1e-8, max_iters=20_000
    )
    labelled = labelled_groups(n_rows=24, n_dims=3, n_groups=3)
    result = learn_gaussian(labelled, 0.05, regularizer, tol=1e-8, max_iter=5000)
    ours = problem.value(result.L.T @ result.L) + problem.penalty(result.L.T @ result.L)
    assert ours == pytest.approx(known, rel=1e-5)


@pytest.mark.parametrize("regularizer", ["identity", "ridge", "nuclear", "logdet"])
def test_gaussian_fit_reports_a_certified_gap(regularizer):
    X, y, _ = partly_labelled()
    model = GaussianTransform(1e-2, regularizer=regularizer).fit(X, y)
    assert 0 <= model.duality_gap_ <= 1e-6
    assert model.trace_.last["gap"] <= 1e-6
    np.testing.assert_allclose(model.components_.T @ model.components_, model.A_)


def test_spherical_groups_need_no_transformation():
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 5
    X = 4 * rng.normal(size=(5, 4))[y] + rng.normal(size=(3000, 4))
    A = WithinClassTransform().fit(X, y).A_
    np.testing.assert_allclose(A / A[0, 0], np.eye(4), atol=0.1)


def test_a_strong_regulariser_gives_the_identity():
    X, y, _ = partly_labelled()
    strong = GaussianTransform(1e6).fit(X, y).A_
    np.testing.assert_allclose(strong, np.eye(len(strong)), atol=1e-4)
    none = SeparabilityTransform(0.0).fit(X, y).A_
    np.testing.assert_allclose(none, np.eye(len(none)), atol=1e-4)
    neighbours = LargeMarginTransform(gamma=1e6).fit(X, y).A_
    np.testing.assert_allclose(neighbours, np.eye(len(neighbours)), atol=1e-3)
    margin = MaxMarginTransform(1e6, random_state=0).fit(X, y).A_
    np.testing.assert_allclose(margin, np.eye(len(margin)), atol=1e-3)
    whitened = WithinClassTransform(1.0).fit(X, y).A_
    np.testing.assert_allclose(whitened / whitened[0, 0], np.eye(len(whitened)), atol=1e-10)


# --- TCS-CS --------------------------------------------------------------------------------------------------------


def separability_problem(gamma=2.0, cap=0.5):
    labelled = labelled_groups()
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    covariance = group_covariances(labelled.Z, labelled.codes, moments, labelled.row_weight)
    return SeparabilityProblem(moments.mean, covariance, gamma, cap)


def test_sums_over_pairs_by_their_definition():
    problem = separability_problem()
    rng = np.random.default_rng(0)
    l, A = rng.random(6), random_metric(5)
    total = np.zeros((5, 5))
    margins = []
    for weight, i, j in zip(l, *problem.pairs, strict=True):
        difference = problem.mean[i] - problem.mean[j]
        M = np.outer(difference, difference) - problem.g * (problem.covariance[i] + problem.covariance[j])
        total += weight * M
        margins.append(np.vdot(A, M))
    np.testing.assert_allclose(problem.combine(l), total, atol=1e-10)
    np.testing.assert_allclose(problem.margins(A), margins, atol=1e-10)


def test_separability_dual_gradient_by_differences():
    problem = separability_problem()
    l = np.random.default_rng(0).random(6) * 0.1
    difference = approx_fprime(l, lambda l: problem.negative_dual(l)[0], 1e-7)
    np.testing.assert_allclose(problem.negative_dual(l)[1], difference, rtol=1e-4, atol=1e-4)


def test_separability_optimum_against_cvxpy():
    cp = pytest.importorskip("cvxpy")
    labelled = labelled_groups()
    result = learn_separability(labelled, 1.5, 0.05, tol=1e-9, max_iter=5000)
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    covariance = group_covariances(labelled.Z, labelled.codes, moments, labelled.row_weight)
    problem = SeparabilityProblem(
        moments.mean, covariance, 1.5 * separation_ratio(moments.mean, covariance), 0.05
    )
    A = cp.Variable((5, 5), PSD=True)
    slack = []
    for i, j in zip(*problem.pairs, strict=True):
        difference = problem.mean[i] - problem.mean[j]
        M = np.outer(difference, difference) - problem.g * (covariance[i] + covariance[j])
        slack.append(cp.pos(-cp.sum(cp.multiply(A, M))))
    known = cp.Problem(
        cp.Minimize(cp.sum_squares(A - np.eye(5)) / 2 + 0.05 * cp.sum(cp.hstack(slack)))
    ).solve(solver="SCS", eps=1e-9, max_iters=50_000)
    assert not result.attributes["collapsed_"]
    assert problem.primal(result.L.T @ result.L) == pytest.approx(known, rel=1e-4)


def test_separability_collapse_is_reported():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 20
    X = rng.normal(size=(200, 3))
    with pytest.warns(UserWarning, match="collapsed"):
        model = SeparabilityTransform(5.0, cap=1e6, max_iter=2000, tol=0.5).fit(X, y)
    assert model.collapsed_


# --- the others ----------------------------------------------------------------------------------------------------


def test_spherical_gradient_by_differences():
    problem = SphericalProblem(labelled_groups(), 0.1, 3.0)
    rng = np.random.default_rng(0)
    L = rng.normal(size=25)
    mu = problem.directions(L.reshape(5, 5))
    difference = approx_fprime(L, lambda L: problem.negative(L, mu)[0], 1e-7)
    np.testing.assert_allclose(problem.negative(L, mu)[1], difference, atol=1e-5)


def test_gamma_gradient_by_differences():
    problem = GammaProblem(labelled_groups(positive=True), 0.1)
    L = np.abs(np.random.default_rng(0).normal(size=25)) + 0.1
    a = problem.best_shapes(L.reshape(5, 5))
    difference = approx_fprime(L, lambda L: problem.negative(L, a)[0], 1e-7)
    np.testing.assert_allclose(problem.negative(L, a)[1], difference, rtol=1e-4, atol=1e-4)


def test_gamma_shapes_solve_their_equation():
    a = np.geomspace(1e-2, 1e3, 30)
    np.testing.assert_allclose(shapes(np.log(a) - digamma(a)), a, rtol=1e-6)


def large_margin_problem(mu=0.5, **options):
    labelled = labelled_groups(**options)
    return LargeMarginProblem(labelled, target_neighbours(labelled, 3), mu, 1e-6)


def large_margin_objective(labelled, A, k=3, mu=0.5):
    """The objective by its definition, one triplet at a time."""
    Z, share, total = labelled.Z, labelled.row_weight / labelled.row_weight.sum(), 0.0
    for i, j in target_neighbours(labelled, k):
        near = (Z[i] - Z[j]) @ A @ (Z[i] - Z[j])
        difference = Z[i] - Z[labelled.codes != labelled.codes[i]]
        hinge = np.maximum(0, 1 + near - np.einsum("np,pq,nq->n", difference, A, difference))
        total += share[i] * ((1 - mu) * near + mu * hinge.sum())
    return total


def test_large_margin_loss_is_that_of_its_definition():
    problem, A = large_margin_problem(), random_metric(5)
    problem.search(A)
    assert problem.losses(A).exact == pytest.approx(large_margin_objective(labelled_groups(), A), rel=1e-10)


def test_large_margin_gradient_by_differences():
    problem, A = large_margin_problem(), random_metric(5) + np.eye(5)
    problem.search(A)
    direction, step = random_metric(5, 3), 1e-6
    difference = (problem.value(A + step * direction) - problem.value(A - step * direction)) / (2 * step)
    gradient = problem.value_and_gradient(A)[1]
    assert float(np.vdot(gradient, direction)) == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_large_margin_optimum_against_cvxpy(gamma):
    cp = pytest.importorskip("cvxpy")
    labelled = labelled_groups(n_rows=24, n_dims=3, n_groups=3)
    result = learn_large_margin(labelled, 3, 0.5, gamma, tol=1e-4, max_iter=5000)
    Z, share = labelled.Z, labelled.row_weight / labelled.row_weight.sum()
    pull, push, weight = np.zeros((3, 3)), [], []
    for i, j in target_neighbours(labelled, 3):
        near = np.outer(Z[i] - Z[j], Z[i] - Z[j])
        pull += 0.5 * share[i] * near
        for other in np.flatnonzero(labelled.codes != labelled.codes[i]):
            push.append((near - np.outer(Z[i] - Z[other], Z[i] - Z[other])).ravel())
            weight.append(0.5 * share[i])
    A = cp.Variable((3, 3), PSD=True)
    hinge = cp.pos(1 + np.array(push) @ cp.vec(A, order="C"))
    loss = cp.sum(cp.multiply(pull, A)) + np.array(weight) @ hinge
    known = cp.Problem(cp.Minimize(loss + gamma * cp.sum_squares(A - np.eye(3)))).solve(
        solver="SCS", eps=1e-7, max_iters=50_000
    )
    ours = large_margin_objective(labelled, result.L.T @ result.L)
    ours += gamma * np.sum((result.L.T @ result.L - np.eye(3)) ** 2)
    assert result.converged
    assert ours == pytest.approx(known, rel=2e-4)
    assert ours * (1 - result.gap) <= known * (1 + 1e-6)  # the gap is a certificate


def test_large_margin_gap_bounds_the_distance_from_the_optimum_everywhere():
    labelled = labelled_groups()
    best = learn_large_margin(labelled, 3, 0.5, tol=1e-5, max_iter=5000)
    optimum = large_margin_objective(labelled, best.L.T @ best.L)
    for seed in range(4):
        problem, A = large_margin_problem(), random_metric(5, seed) / (1 + seed)
        problem.search(A)
        assert problem.losses(A).exact - optimum <= problem.gap(A) + 1e-9


def test_large_margin_with_too_many_impostors_has_no_certificate(monkeypatch):
    X, y, _ = partly_labelled(n_known=5, n_each=60)
    X = 0.2 * X + np.random.default_rng(0).normal(size=X.shape)  # groups overlap
    whole = LargeMarginTransform(3).fit(X, y)
    monkeypatch.setattr("arbora.expand.transforms.large_margin._MAX_PAIRS", 0)
    monkeypatch.setattr("arbora.expand.transforms.large_margin._MIN_IMPOSTORS", 5)
    nearest_only = LargeMarginTransform(3, tol=1e-2).fit(X, y)
    assert whole.duality_gap_ <= 1e-3
    assert not hasattr(nearest_only, "duality_gap_")
    assert np.isfinite(nearest_only.A_).all()


def test_target_neighbours_are_the_nearest_of_the_group():
    labelled = labelled_groups()
    pairs = target_neighbours(labelled, 2)
    for i in range(len(labelled.Z)):
        same = np.flatnonzero((labelled.codes == labelled.codes[i]) & (np.arange(len(labelled.Z)) != i))
        distance = np.linalg.norm(labelled.Z[same] - labelled.Z[i], axis=1)
        assert set(pairs[pairs[:, 0] == i, 1]) == set(same[np.argsort(distance)[:2]])


def test_cut_problem_dual_equals_its_primal():
    rng = np.random.default_rng(0)
    cuts = []
    for _ in range(4):
        B = rng.normal(size=(3, 3))
        cuts.append(Cut((B + B.T) / 2, float(rng.random())))
    problem = CutProblem(cuts, 0.3)
    l, A = problem.solve(np.zeros(4))
    assert problem.primal(A) == pytest.approx(-problem.negative_dual(l)[0], abs=1e-4)
    difference = approx_fprime(l + 0.05, lambda l: problem.negative_dual(l)[0], 1e-7)
    np.testing.assert_allclose(problem.negative_dual(l + 0.05)[1], difference, atol=1e-5)


def test_pair_scatters_by_their_definition():
    labelled = labelled_groups(n_rows=12)._replace(row_weight=np.ones(12))
    moments = group_moments(labelled.Z, labelled.codes, 4, labelled.row_weight)
    covariance = group_covariances(labelled.Z, labelled.codes, moments, labelled.row_weight)
    same, other = np.zeros((2, 5, 5))
    n_same = n_other = 0
    for i in range(12):
        for j in range(12):
            difference = np.outer(labelled.Z[i] - labelled.Z[j], labelled.Z[i] - labelled.Z[j])
            if labelled.codes[i] == labelled.codes[j]:
                same, n_same = same + difference, n_same + 1
            else:
                other, n_other = other + difference, n_other + 1
    must, cannot = pair_scatters(moments, covariance)
    np.testing.assert_allclose(must, same / n_same, atol=1e-10)
    np.testing.assert_allclose(cannot, other / n_other, atol=1e-10)


def test_given_pairs_change_the_metric_in_their_direction():
    X, y, _ = partly_labelled()
    plain = PairwiseConstraintTransform().fit(X, y)
    pairs = np.array([(0, 1), (2, 3), (4, 5)])
    linked = PairwiseConstraintTransform().fit(X, y, must_link=pairs)
    difference = (X[pairs[:, 0]] - X[pairs[:, 1]]) / plain.space_.scale
    distance = [np.einsum("np,pq,nq->n", difference, model.A_, difference).sum() for model in (plain, linked)]
    assert distance[1] < distance[0]
    with pytest.raises(ValueError, match="names row 999"):
        PairwiseConstraintTransform().fit(X, y, cannot_link=[(0, 999)])


def test_fisher_directions_solve_the_eigenproblem():
    labelled = labelled_groups(n_groups=6, n_rows=120)
    moments = group_moments(labelled.Z, labelled.codes, 6, labelled.row_weight)
    L = FisherTransform(0.1)._learn(labelled, 0.1).L
    within = moments.within + 0.1 * np.trace(moments.within) / 5 * np.eye(5)
    np.testing.assert_allclose(L @ within @ L.T, np.eye(len(L)), atol=1e-8)
    ratio = np.diag(L @ between_groups(moments) @ L.T)
    np.testing.assert_allclose(between_groups(moments) @ L.T, within @ L.T * ratio, atol=1e-8)


def test_pairwise_fisher_equals_fisher_up_to_rotation():
    """With equal groups and all directions, both maps give the same distances."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 6
    X = 4 * rng.normal(size=(6, 8))[y] + rng.normal(size=(120, 8))
    first, other = FisherTransform().fit(X, y).A_, PairwiseFisherTransform().fit(X, y).A_
    np.testing.assert_allclose(first, other, rtol=1e-6, atol=1e-9)


TRANSFORMS = {
    "within": WithinClassTransform(),
    "gaussian": GaussianTransform(1e-2),
    "separability": SeparabilityTransform(),
    "fisher": FisherTransform(),
    "pairs": PairwiseConstraintTransform(),
    "large margin": LargeMarginTransform(3, max_iter=1000),
}
METRICS = pytest.mark.parametrize("model", TRANSFORMS.values(), ids=TRANSFORMS)


def distances(Z):
    return np.sum((Z[:, None] - Z[None]) ** 2, axis=2)


@METRICS
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rotation_and_translation_do_not_matter(model):
    X, y, _ = partly_labelled(n_known=5)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    first, other = model.fit_transform(X, y), model.fit_transform(X @ Q + 7, y)
    np.testing.assert_allclose(
        distances(first), distances(other), rtol=1e-2, atol=1e-2 * distances(first).max()
    )


@METRICS
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_order_of_the_rows_does_not_matter(model):
    X, y, _ = partly_labelled(n_known=5)
    order = np.random.default_rng(0).permutation(len(X))
    first, other = model.fit(X, y).A_, model.fit(X[order], y[order]).A_
    np.testing.assert_allclose(first, other, rtol=1e-3, atol=1e-3 * np.abs(first).max())


@pytest.mark.parametrize("name", ["within", "gaussian", "separability", "fisher", "pairs"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_are_repetitions(name):
    model = TRANSFORMS[name]
    X, y, _ = partly_labelled(n_known=5)
    times = np.random.default_rng(0).integers(0, 3, len(X))
    first = model.fit(X, y, sample_weight=times).A_
    other = model.fit(np.repeat(X, times, axis=0), np.repeat(y, times)).A_
    np.testing.assert_allclose(first, other, rtol=1e-3, atol=1e-4 * np.abs(first).max())


@pytest.mark.parametrize(
    "model",
    [
        *TRANSFORMS.values(),
        SphericalTransform(),
        MaxMarginTransform(random_state=0),
        PairwiseFisherTransform(),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_new_groups_are_easier_to_find(model):
    """A nuisance feature hides the groups; what known groups teach uncovers the new ones."""
    X, y, truth = partly_labelled(n_known=5, n_new=4, n_each=60, seed=3)
    new = truth >= 5

    def agreement(Z):
        result = KMeans(4, n_init=10, random_state=0).fit_predict(Z[new])
        return normalized_mutual_info_score(truth[new], result)

    assert agreement(model.fit_transform(X, y)) > agreement(X) + 0.1


def test_figure_6_1_bimodal_groups_are_found_from_half_of_them():
    """Six bimodal groups; with labels of three, the other three are found (thesis, Figure 6.1)."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(6), 100)
    centre = np.column_stack([6 * np.arange(6), np.zeros(6)])[truth]
    side = np.where(rng.random(600) < 0.5, -10, 10)
    X = centre + np.column_stack([np.zeros(600), side]) + rng.normal(size=(600, 2))
    y = np.where(truth < 3, truth, -1)
    new = truth >= 3

    def agreement(Z):
        result = KMeans(3, n_init=20, random_state=0).fit_predict(Z[new])
        return normalized_mutual_info_score(truth[new], result)

    assert agreement(X) < 0.6
    for model in (GaussianTransform(), WithinClassTransform(), SeparabilityTransform(20.0, cap=100.0)):
        assert agreement(model.fit_transform(X, y)) > 0.95


# A transformer, the name of its strength, and two values: the second one keeps the nuisance feature.
STRENGTHS = [
    (WithinClassTransform, "shrinkage", (0.1, 1.0)),
    (GaussianTransform, "gamma", (1e-3, 1e6)),
    (SeparabilityTransform, "gamma", (2.0, 0.0)),
    (MaxMarginTransform, "gamma", (1e-3, 1e6)),
    (FisherTransform, "ridge", (0.1, 1e6)),
    (PairwiseFisherTransform, "ridge", (0.1, 1e6)),
    (PairwiseConstraintTransform, "cannot_weight", (0.1, 1e3)),
    (LargeMarginTransform, "gamma", (1e-2, 1e6)),
    (SphericalTransform, "gamma", (1e-3, 1e6)),
]


@pytest.mark.parametrize(
    ("make", "name", "values"), STRENGTHS, ids=lambda one: getattr(one, "__name__", None)
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_cv_chooses_by_hidden_groups(make, name, values):
    X, y, _ = partly_labelled(n_known=6)
    X[:, 1] += X[:, 0]  # no feature is free of the nuisance
    model = make(**{name: values[::-1], "random_state": 0}).fit(X, y)
    assert model.cv_results_["scores"].shape == (2, 5)
    assert model.cv_results_[name] == list(values[::-1])
    scores = model.cv_results_["mean_score"]
    assert getattr(model, f"{name}_") == values[::-1][int(np.argmax(scores))]
    fixed = make(**{name: getattr(model, f"{name}_"), "random_state": 0}).fit(X, y)
    np.testing.assert_allclose(model.A_, fixed.A_)
    assert not hasattr(fixed, "cv_results_")
    if make is not SphericalTransform:
        assert scores[1] > scores[0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_cv_of_the_gamma_transform():
    X, y, _ = partly_labelled(n_known=6)
    model = GammaTransform((1e-2, 1.0), max_iter=3, random_state=0).fit(np.abs(X), y)
    assert model.gamma_ == (1e-2, 1.0)[int(np.argmax(model.cv_results_["mean_score"]))]


EVERY = [
    (WithinClassTransform(), True),
    (GaussianTransform(1e-2), True),
    (SeparabilityTransform(), True),
    (FisherTransform(), True),
    (PairwiseFisherTransform(), True),
    (PairwiseConstraintTransform(), True),
    (LargeMarginTransform(3), True),
    (MaxMarginTransform(), False),  # the constraints are found by k-means: no certificate
    (SphericalTransform(), False),  # not convex
    (GammaTransform(), False),
]


@pytest.mark.parametrize(("model", "convex"), EVERY, ids=lambda one: type(one).__name__)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_transformer_reports_how_it_was_found(model, convex):
    """A metric, a trace, a certificate where the problem is convex; sparse rows; -1 and None mean no label."""
    X, y, _ = partly_labelled(n_known=6)
    X = np.abs(X)
    model.set_params(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.A_, model.components_.T @ model.components_)
    assert len(model.trace_) == model.n_iter_
    assert hasattr(model, "duality_gap_") == convex
    assert not convex or 0 <= model.duality_gap_ <= getattr(model, "tol", 0)
    names = np.array([None if label < 0 else f"group {label}" for label in y], dtype=object)
    np.testing.assert_allclose(model.A_, model.fit(X, names).A_)
    assert np.isfinite(model.fit(sp.csr_array(X), names).transform(sp.csr_array(X))).all()


def test_pairs_alone_recover_the_metric_of_the_groups():
    X, _, truth = partly_labelled(n_each=80)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(X), (2000, 2))
    same = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    alone = PairwiseConstraintTransform(0.0).fit(X, must_link=pairs[same])
    whole = WithinClassTransform().fit(X, truth)
    first, other = alone.A_ / np.trace(alone.A_), whole.A_ / np.trace(whole.A_)
    np.testing.assert_allclose(first, other, atol=0.05)
    separate = PairwiseConstraintTransform().fit(X, must_link=pairs[same], cannot_link=pairs[~same])
    assert separate.A_[0, 0] < 0.1 * separate.A_[1, 1]
    with pytest.raises(ValueError, match="requires y"):
        PairwiseConstraintTransform().fit(X, cannot_link=pairs[~same])


def test_sparse_rows_go_through_an_svd_to_unit_length():
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 500), density=0.05, rng=rng, format="csr")
    y = np.arange(200) % 5
    model = WithinClassTransform(n_dims=20, random_state=0).fit(X, y)
    assert model.transform(X).shape == (200, 20)
    assert model.space_.unit


BAD = {
    "one group": ([0] * 10, FisherTransform(), "at least 2 labelled groups"),
    "no labels": ([-1] * 10, WithinClassTransform(), "arbora.discover"),
    "mixed types": ([0, "a"] * 5, WithinClassTransform(), "several types"),
    "numbers": (np.linspace(0, 1, 10), WithinClassTransform(), "groups are integers or strings"),
    "wrong length": ([0, 1], WithinClassTransform(), "one label for each"),
}


@pytest.mark.parametrize(("y", "model", "message"), BAD.values(), ids=BAD)
def test_bad_labels_are_refused(y, model, message):
    X = np.random.default_rng(0).normal(size=(10, 3))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_degenerate_groups_give_a_finite_map():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(12, 50))
    wide[:, 3] = 1.0  # constant
    for X, y in (
        (wide, np.arange(12)),  # groups of one row
        (np.repeat(wide[:3], 4, axis=0), np.repeat([0, 1, 2], 4)),  # equal rows
        (np.ones((6, 3)), [0, 0, 1, 1, 2, 2]),  # nothing varies
    ):
        for make in (
            WithinClassTransform,
            GaussianTransform,
            FisherTransform,
            SeparabilityTransform,
            LargeMarginTransform,
            PairwiseConstraintTransform,
        ):
            assert np.isfinite(make().fit_transform(X, y)).all()


def test_non_negative_data_only():
    with pytest.raises(ValueError, match="Negative values"):
        GammaTransform().fit(-np.ones((4, 2)), [0, 0, 1, 1])
