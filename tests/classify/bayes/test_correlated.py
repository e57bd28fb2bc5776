"""Correlated multinomial logit: sampler (Geweke's test, grids, importance sampling) and estimator."""

import warnings
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime, minimize
from scipy.special import logsumexp, softmax
from scipy.stats import gamma, multivariate_normal, multivariate_t, norm
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from arbora import running
from arbora.classify import CorrelatedMultinomialLogit
from arbora.classify.bayes import correlated_sampler as sampler
from arbora.classify.bayes.correlated_sampler import (
    CorrelatedLogit,
    LogitState,
    make_frame,
    make_model,
    make_potential,
)
from arbora.core import chunks as memory
from arbora.infer.mcmc.diagnostics import geweke_test
from arbora.infer.mcmc.hmc import Move, start_step_size
from arbora.structure import Hierarchy, LabelGraph

TREE = Hierarchy.from_edges([("root", "a"), ("root", "b"), ("a", "a1"), ("a", "a2")])
# Parts a, b, a1, a2; classes a1, a2, b.
PATHS = np.array([[1.0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 0, 0]])
FAMILIES = np.array([0, 0, 1, 1])


@pytest.fixture(autouse=True)
def _one_thread():
    """BLAS threads slow down operations on matrices this small."""
    with threadpool_limits(1, "blas"):
        yield


def small_model(cls=CorrelatedLogit, size=1.1):
    """Six rows, three classes, two families; steps so large that about a quarter of the moves are rejected."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2)), np.array([0, 1, 2, 0, 1, 2])
    made = make_model(X, y, PATHS, FAMILIES, 3.0, 2.0)
    tuning = made.tuning._replace(step=start_step_size(size))
    return cls(made.X, made.paths, made.group, made.shape, made.rate, tuning)


def statistics(state, y, model):
    coef = model.paths @ state.parts
    counts = np.bincount(y, minlength=3)
    agreement = coef.ravel() * ((y[:, None] == np.arange(3)).T @ model.X).ravel()
    log_joint = model.log_joint(state, y)
    return np.concatenate([np.log(state.precision), coef.ravel(), agreement, counts, [log_joint]])


def geweke(model, n_sweeps, seed=1):
    """One round of parts and precisions per sweep: further rounds only repeat the same step."""
    with mock.patch.object(sampler, "_PRECISION_ROUNDS", 1):
        return geweke_test(
            model, lambda state, y: statistics(state, y, model), np.random.default_rng(seed), n_direct=1500,
            n_sweeps=n_sweeps,
        )  # fmt: skip


def test_geweke():
    result = geweke(small_model(), 500)
    assert result.p_value > 0.01
    assert result.effective_sample_size.min() > 300


class ForgetsACount(CorrelatedLogit):
    """The gamma update without the share of one feature."""

    def _draw_precision(self, parts, rng):
        square = np.bincount(self.group, weights=np.sum(parts**2, axis=1))
        shape = self.shape + 0.5 * (parts.shape[1] - 1) * np.bincount(self.group)
        return rng.gamma(shape) / (self.rate + 0.5 * square)


class ForgetsTheNoise(CorrelatedLogit):
    """Parts at their conditional mean instead of a draw."""

    def _prior_parts(self, precision, rng):
        return np.zeros((len(self.group), self.X.shape[1]))

    def sample_prior(self, rng):
        state = CorrelatedLogit.sample_prior(self, rng)
        return LogitState(CorrelatedLogit._prior_parts(self, state.precision, rng), state.precision)


class ForgetsTheScale(CorrelatedLogit):
    """A precision moved alone, although by the density that holds when its parts move along."""

    def _rescale(self, state, y, group, rng):
        return LogitState(state.parts, super()._rescale(state, y, group, rng).precision)


@pytest.mark.parametrize(
    ("wrong", "n_sweeps"), [(ForgetsACount, 250), (ForgetsTheNoise, 250), (ForgetsTheScale, 650)]
)
def test_geweke_detects_wrong_conditionals(wrong, n_sweeps):
    assert geweke(small_model(wrong), n_sweeps).p_value < 1e-4


def test_geweke_detects_steps_without_the_metropolis_correction(monkeypatch):
    right = sampler.hamiltonian_step

    class AcceptsAll:
        def __init__(self, rng):
            self.standard_normal, self.standard_exponential = rng.standard_normal, lambda: np.inf

    def uncorrected(potential, position, size, n_steps, rng) -> Move:
        return right(potential, position, size, n_steps, AcceptsAll(rng))

    monkeypatch.setattr(sampler, "hamiltonian_step", uncorrected)
    assert geweke(small_model(), 250).p_value < 1e-4


def test_log_joint_has_all_its_constants():
    model = small_model()
    rng = np.random.default_rng(2)
    state = model.sample_prior(rng)
    y = model.sample_data(state, rng)
    scores = model.X @ (PATHS @ state.parts).T
    expected = np.sum(np.log(softmax(scores, axis=1)[np.arange(6), y]))
    expected += norm.logpdf(state.parts, scale=state.precision[FAMILIES, None] ** -0.5).sum()
    expected += gamma.logpdf(state.precision, 3.0, scale=1 / 2.0).sum()
    assert model.log_joint(state, y) == pytest.approx(expected, rel=1e-12)


def test_data_are_drawn_from_the_softmax():
    model = small_model()
    rng = np.random.default_rng(3)
    state = model.sample_prior(rng)
    expected = softmax(model.X @ (PATHS @ state.parts).T, axis=1)
    found = np.mean([np.eye(3)[model.sample_data(state, rng)] for _ in range(4000)], axis=0)
    np.testing.assert_allclose(found, expected, atol=0.035)


def test_potential_is_the_posterior_of_the_weights_and_has_its_gradient():
    model, rng = small_model(), np.random.default_rng(4)
    precision = np.array([0.5, 3.0])[FAMILIES]
    frame = make_frame(model.tuning, PATHS, precision)
    y = np.array([0, 2, 1, 1, 0, 2])
    potential = make_potential(frame, model.tuning.rotated, y)
    covariance = PATHS @ np.diag(1 / precision) @ PATHS.T

    def reference(Z):
        coef = frame.mix @ (Z * frame.scale) @ model.tuning.basis.T
        scores = model.X @ coef.T
        likelihood = np.sum(scores[np.arange(6), y] - logsumexp(scores, axis=1))
        return -likelihood - multivariate_normal.logpdf(coef.T, cov=covariance).sum()

    first, second = rng.standard_normal((2, 3, 2))
    difference = potential(first)[0] - potential(second)[0]
    assert difference == pytest.approx(reference(first) - reference(second), rel=1e-10)
    numeric = approx_fprime(first.ravel(), lambda z: potential(z.reshape(3, 2))[0], 1e-7)
    np.testing.assert_allclose(potential(first)[1].ravel(), numeric, atol=1e-5)


def test_variables_make_prior_and_information_the_identity():
    """For probabilities that do not depend on the row the information is a product, and the frame is exact."""
    rng = np.random.default_rng(5)
    X, p = rng.standard_normal((50, 4)), np.array([0.2, 0.3, 0.5])
    tuning = sampler.tune(X, np.tile(p, (50, 1)), start_step_size(1.0))
    precision = np.array([0.5, 2.0, 1.0, 4.0])
    frame = make_frame(tuning, PATHS, precision)
    hessian = np.kron(np.diag(p) - np.outer(p, p), X.T @ X)
    hessian += np.kron(np.linalg.inv(PATHS @ np.diag(1 / precision) @ PATHS.T), np.eye(4))
    to_coef = np.kron(frame.mix, tuning.basis) * frame.scale.ravel()
    np.testing.assert_allclose(to_coef.T @ hessian @ to_coef, np.eye(12), atol=1e-10)


def test_parts_are_drawn_from_their_conditional_distribution():
    model, rng = small_model(), np.random.default_rng(6)
    precision = np.array([0.5, 3.0])
    variance = np.diag(1 / precision[FAMILIES])
    coef = rng.standard_normal((3, 2))
    draws = np.array([model._draw_parts(coef, precision, rng) for _ in range(4000)])
    np.testing.assert_allclose(PATHS @ draws, np.broadcast_to(coef, (4000, 3, 2)), atol=1e-10)
    gain = variance @ PATHS.T @ np.linalg.inv(PATHS @ variance @ PATHS.T)
    np.testing.assert_allclose(draws.mean(axis=0), gain @ coef, atol=0.06)
    np.testing.assert_allclose(np.cov(draws[:, :, 0].T), variance - gain @ PATHS @ variance, atol=0.06)


def assert_mean(draws, size, expected):
    """The mean of draws worth `size` independent ones is within four standard errors."""
    assert np.all(np.abs(draws.mean(axis=0) - expected) < 4 * draws.std(axis=0) / np.sqrt(size))


def test_posterior_of_a_tree_equals_a_grid():
    """One feature; with their precisions integrated out, the parts of a family have a t distribution."""
    X, y = np.array([[1.0], [-0.5], [2.0], [-1.5], [0.5]]), np.array(["a1", "a2", "b", "b", "a2"])
    model = CorrelatedMultinomialLogit(
        TREE, prior={"shape": 6.0, "rate": 4.0}, fit_intercept=False,
        sampling={"n_samples": 400, "n_warmup": 100}, random_state=0,
    ).fit(X, y)  # fmt: skip
    points = np.linspace(-5, 5, 25)
    prior = multivariate_t(shape=np.eye(2) * 4.0 / 6.0, df=12)
    pairs = np.stack(np.meshgrid(points, points, indexing="ij"), axis=-1).reshape(-1, 2)
    log_prior = prior.logpdf(pairs)
    upper, lower = pairs[:, None, :], pairs[None, :, :]  # (a, b) and (a1, a2)
    coef = np.stack(np.broadcast_arrays(upper[..., :1] + lower, upper[..., 1:] + 0 * lower), axis=-1)
    w = np.stack([coef[..., 0, 0], coef[..., 1, 0], coef[..., 0, 1]])  # a1, a2, b
    log_posterior = log_prior[:, None] + log_prior[None, :]
    for x, label in zip(X[:, 0], y, strict=True):
        log_posterior += x * w[["a1", "a2", "b"].index(label)] - logsumexp(x * w, axis=0)
    weight = np.exp(log_posterior - logsumexp(log_posterior))
    mean = np.array([np.sum(weight * one) for one in w])
    square = np.array([np.sum(weight * one**2) for one in w])
    order = [model.classes_.tolist().index(name) for name in ("a1", "a2", "b")]
    draws = model.draws_[:, order, 0].astype(float)
    size = model.effective_sample_size_["coef"][order, 0]
    assert_mean(draws, size, mean)
    assert_mean(draws**2, size, square)
    np.testing.assert_allclose(model.coef_std_[order, 0], np.sqrt(square - mean**2), rtol=0.1)
    proba = [np.sum(weight * one) for one in softmax(0.7 * w, axis=0)]
    columns = [model.nodes_.tolist().index(name) for name in ("a1", "a2", "b")]
    np.testing.assert_allclose(model.predict_node_proba([[0.7]])[0, columns], proba, atol=0.03)


def test_without_a_structure_it_is_bayesian_multinomial_logistic_regression():
    """Against importance sampling from a wide t distribution at the mode, with the precision all but known."""
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((30, 2)), rng.integers(3, size=30)
    X[:, 0] += y
    prior = {"shape": 2e8, "rate": 1e8}
    long, short = {"n_samples": 250, "n_warmup": 100}, {"n_samples": 20, "n_warmup": 20}
    model = CorrelatedMultinomialLogit(prior=prior, sampling=long, random_state=0).fit(X, y)
    Xc = np.column_stack([X, np.ones(30)])

    def energy(w):
        scores = Xc @ w.reshape(-1, 3, 3).transpose(0, 2, 1)
        loss = logsumexp(scores, axis=2).sum(axis=1) - scores[:, np.arange(30), y].sum(axis=1)
        return loss + np.sum(w.reshape(-1, 9) ** 2, axis=1)  # precision 2

    found = minimize(lambda w: energy(w)[0], np.zeros(9), method="BFGS")
    proposal = multivariate_t(found.x, 1.5 * (found.hess_inv + found.hess_inv.T) / 2, df=8, seed=1)
    w = proposal.rvs(20_000)
    log_weight = -energy(w) - proposal.logpdf(w)
    weight = np.exp(log_weight - logsumexp(log_weight))
    assert 1 / np.sum(weight**2) > 5_000
    draws = model.draws_.reshape(-1, 9).astype(float)
    size = np.column_stack([model.effective_sample_size_["coef"], model.effective_sample_size_["intercept"]])
    assert_mean(draws, size.ravel(), weight @ w)
    assert_mean(draws**2, size.ravel(), weight @ w**2)
    star = Hierarchy.from_edges([("top", name) for name in ("0", "1", "2")])
    same = CorrelatedMultinomialLogit(star, prior=prior, sampling=short, random_state=0)
    flat = CorrelatedMultinomialLogit(prior=prior, sampling=short, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        same.fit(X, y.astype(str).astype(object))
        flat.fit(X, y)
    np.testing.assert_allclose(same.draws_, flat.draws_, rtol=1e-3, atol=1e-4)


def quick(structure=TREE, *, precision="family", fit_intercept=True, **sampling):
    sampling = {"n_samples": 30, "n_warmup": 40, **sampling}
    return CorrelatedMultinomialLogit(
        structure, sampling=sampling, precision=precision, fit_intercept=fit_intercept, random_state=0
    )


def clouds(labels=("a1", "a2", "b"), n=60, seed=8):
    rng = np.random.default_rng(seed)
    y = np.array(labels, dtype=object)[rng.integers(len(labels), size=n)]
    centres = {name: 2 * rng.standard_normal(4) for name in labels}
    return np.array([centres[name] for name in y]) + rng.standard_normal((n, 4)), y


@pytest.fixture(scope="module")
def fitted():
    """A fitted model that several tests read and none changes."""
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return quick().fit(*clouds())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestEstimator:
    def test_probabilities_are_averages_and_coherent(self, fitted):
        (X, y), model = clouds(), fitted
        proba = dict(zip(model.nodes_.tolist(), model.predict_node_proba(X).T, strict=True))
        Xc = np.column_stack([X, np.ones(len(X))])
        expected = np.mean([softmax(Xc @ draw.T, axis=1) for draw in model.draws_.astype(float)], axis=0)
        for name, column in zip(model.classes_, expected.T, strict=True):
            np.testing.assert_allclose(proba[name], column, rtol=1e-9)
        np.testing.assert_allclose(proba["a"], proba["a1"] + proba["a2"])
        np.testing.assert_allclose(proba["root"], 1)
        np.testing.assert_array_equal(model.predict(X), model.classes_[expected.argmax(axis=1)])
        np.testing.assert_allclose(model.decision_function(X), np.log(expected), rtol=1e-9)
        np.testing.assert_allclose(model.coef_, model.draws_[:, :, :-1].mean(axis=0, dtype=float))
        assert model.score(X, y) > 0.9

    def test_precisions_by_family_and_by_node(self, fitted):
        X, y = clouds()
        family, node = fitted, quick(precision="node").fit(X, y)
        of = dict(zip(family.routes_.names.tolist(), family.precision_, strict=True))
        assert of["a1"] == of["a2"] != of["a"] == of["b"]
        assert np.isnan(of["root"])
        assert family.rhat_["precision"].shape == (2,)
        assert node.rhat_["precision"].shape == (4,)
        assert len(np.unique(node.precision_)) == 5

    def test_data_on_internal_nodes_and_leaves_without_data(self):
        tree = TREE.with_edges([("b", "b1"), ("b1", "deep"), ("root", "empty")])
        X, y = clouds(("a1", "a2", "a", "deep"))
        model = quick(tree).fit(X, y)
        assert sorted(model.classes_) == ["a", "a1", "a2", "deep"]
        assert "empty" not in model.routes_
        proba = dict(zip(model.nodes_.tolist(), model.predict_node_proba(X).T, strict=True))
        np.testing.assert_allclose(proba["root"], 1)
        np.testing.assert_allclose(proba["b"], proba["deep"])
        assert np.all(proba["empty"] == 0)
        assert model.score(X, y) > 0.8

    def test_intercept(self, fitted):
        X, y = clouds()
        without = quick(fit_intercept=False).fit(X, y)
        assert np.all(without.intercept_ == 0)
        assert np.all(fitted.intercept_std_ > 0)
        # Many rows of one class and no feature: its share is all that can be learned, and only by a bias.
        y = np.array(["a1"] * 90 + ["b"] * 10, dtype=object)
        model = quick(n_samples=100).fit(np.zeros((100, 1)), y)
        share = model.predict_node_proba([[0.0]])[0, model.nodes_.tolist().index("b")]
        assert share == pytest.approx(0.1, abs=0.04)
        odds = dict(zip(model.classes_, model.intercept_, strict=True))
        assert odds["a1"] - odds["b"] == pytest.approx(np.log(9), abs=0.6)

    def test_interrupted_fit_resumes(self, tmp_path, monkeypatch):
        X, y = clouds(n=20)
        expected = quick(n_chains=3).fit(X, y)
        sweep, calls = CorrelatedLogit.sweep, []

        def dies(self, state, data, rng):
            calls.append(1)
            if len(calls) == 100:
                raise KeyboardInterrupt
            return sweep(self, state, data, rng)

        monkeypatch.setattr(CorrelatedLogit, "sweep", dies)
        with running(checkpoint=tmp_path / "fit"):
            with pytest.raises(KeyboardInterrupt):
                quick(n_chains=3).fit(X, y)
            resumed = quick(n_chains=3).fit(X, y)
        assert len(calls) == 100 + 2 * 70
        np.testing.assert_array_equal(resumed.draws_, expected.draws_)
        assert not (tmp_path / "fit").exists()

    def test_a_failed_fit_keeps_the_previous_model(self, monkeypatch):
        X, y = clouds()
        model = quick(n_samples=4, n_warmup=4).fit(X, y)
        before = model.predict_proba(X)
        monkeypatch.setattr(CorrelatedLogit, "sweep", None)
        with pytest.raises(TypeError):
            model.fit(X[y != "b", :2], y[y != "b"])
        np.testing.assert_array_equal(model.predict_proba(X), before)

    def test_thinned_draws(self, fitted):
        X, y = clouds()
        every = fitted.draws_.reshape(2, 30, 3, 5)
        third = quick(n_samples=10, thin=3).fit(X, y)
        np.testing.assert_array_equal(third.draws_.reshape(2, 10, 3, 5), every[:, 2::3])
        assert len(third.trace_) == 70

    def test_few_rows_to_predict(self):
        X, y = clouds()
        model = quick(n_samples=4, n_warmup=4).fit(sp.csr_matrix(X), y)
        assert model.predict_node_proba(X[:1]).shape == (1, 5)
        with pytest.raises(ValueError, match="minimum of 1"):
            model.predict(X[:0])

    @pytest.mark.parametrize("scale", [1e-6, 1e6])
    def test_features_of_any_scale_are_finite(self, scale):
        X, y = clouds()
        model = quick(n_samples=10, n_warmup=10).fit(X * scale, y)
        assert np.all(np.isfinite(model.draws_))

    def test_more_features_than_rows(self):
        X, y = clouds(n=12)
        wide = np.hstack([X, np.random.default_rng(9).standard_normal((12, 60))])
        assert np.isfinite(quick(n_samples=10, n_warmup=10).fit(wide, y).coef_).all()


def test_chains_that_have_not_converged_warn():
    X, y = clouds()
    with pytest.warns(ConvergenceWarning, match=r"R-hat of .* is up to .*Increase n_warmup"):
        quick(n_samples=4, n_warmup=1).fit(X * 5, y)


def test_long_chains_converge_without_a_warning():
    X, y = clouds()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick(n_samples=400, n_warmup=150).fit(X, y)
    assert max(value.max() for value in model.rhat_.values()) < 1.05
    assert min(value.min() for value in model.effective_sample_size_.values()) > 50


def test_bad_input_is_refused_with_advice(monkeypatch):
    X, y = clouds()
    dag = TREE.with_edges([("b", "a1")])
    with pytest.raises(ValueError, match="needs a tree, but a node of the structure has several parents"):
        quick(dag).fit(X, y)
    graph = LabelGraph.from_edges([("a1", "a2"), ("a2", "b")])
    with pytest.raises(TypeError, match="needs a tree, but structure is a LabelGraph"):
        quick(graph).fit(X, y)
    with pytest.raises(ValueError, match="one class per row, but y holds label sets"):
        quick().fit(X, [["a1", "b"]] * len(X))
    with pytest.raises(ValueError, match=r"as large as 1e\+300.*scale the features"):
        quick().fit(X * 0 + 1e300, y)
    with pytest.raises(ValueError, match="n_samples"):
        quick(n_samples=3).fit(X, y)
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="This model is for small data"):
        quick().fit(X, y)
