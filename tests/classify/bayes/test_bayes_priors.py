"""Priors of the hierarchical Bayesian classifier: formulas, user priors, and extreme values."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from scipy.stats import gmean, spearmanr
from sklearn.exceptions import ConvergenceWarning

from arbora.classify import HierarchicalBayesClassifier
from arbora.classify.bayes.map import AndersonMixing, node_scalars
from arbora.classify.bayes.priors import GammaPrior, constant_prior, fisher_prior, inverse_information
from arbora.infer.tree.gaussian import make_tree, share_precisions
from support.registry import TREE, labelled_clouds
from support.tree_models import LEAVES, PARENT, problem

DATA = labelled_clouds()
inferences = pytest.mark.parametrize("inference", ["map", "variational"])


def test_precisions_follow_the_truth():
    """Data drawn from the model, a hundred classes: those far from the parent get a low precision."""
    rng = np.random.default_rng(0)
    n_classes, d = 100, 8
    scale = np.where(np.arange(n_classes) % 2, 0.1, 2.0)
    W = rng.normal(size=(n_classes, d)) * scale[:, None]
    X = rng.normal(size=(800, d))
    Y = rng.random((800, n_classes)) < expit(X @ W.T)
    model = HierarchicalBayesClassifier(
        likelihood="logistic", prior={"shape": 1.0, "rate": 1.0}, fit_intercept=False
    )
    model.fit(X, Y.astype(int))
    assert spearmanr(model.precisions_[1:], scale).statistic < -0.8
    inside = np.abs(model.coef_ - W) < 1.645 * model.coef_std_
    assert 0.8 < inside.mean() < 0.95  # Laplace with a diagonal, given the precisions: a little too sure


def test_priors_follow_their_formulas():
    rng = np.random.default_rng(8)
    tree = make_tree(PARENT, LEAVES)
    n, d = 5000, 3
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    k = rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])
    Y, weight = sp.csr_array(np.eye(4)[k]), rng.uniform(0.5, 1.5, n)
    S = (X * weight[:, None]).T @ X
    shrink = d / (weight.sum() + d)
    S = (1 - shrink) * S + shrink * np.diag(np.diag(S))
    share = Y.T @ weight / weight.sum()
    leaf = np.diag(np.linalg.inv(S)) / (share * (1 - share))[:, None]
    for model in ("M1", "M2", "M3"):
        sharing = share_precisions(tree, model)
        for rows in (X, sp.csr_array(X)):
            prior = fisher_prior(rows, Y, weight, 0.0, tree, sharing)
            by_owner = dict(zip(sharing.owner.tolist(), zip(*prior, strict=True), strict=True))
            shape, rate = by_owner[1]
            if model == "M2":
                np.testing.assert_allclose(rate, leaf[:2].sum(axis=0))
                np.testing.assert_allclose(shape, 2)
            else:
                np.testing.assert_allclose((shape[0], rate[0]), (2 * d, d * gmean(leaf[:2].sum(axis=0))))
    prior = fisher_prior(X, Y, weight, 0.0, tree, share_precisions(tree, "M3"))
    np.testing.assert_allclose(prior.rate[2:, 0], d * gmean(leaf, axis=1))
    alike = fisher_prior(X, Y, weight, 0.0, tree, share_precisions(tree, "M3"), same_rate=True)
    np.testing.assert_allclose(alike.rate[2:, 0], d * gmean(leaf, axis=1).mean())
    np.testing.assert_allclose(alike.mean / alike.mean[0], 1)


def test_inverse_information_is_always_finite():
    X = np.zeros((4, 3))
    X[:, 0] = X[:, 1] = [1, -1, 2, 0]  # collinear, and a feature never seen
    found = inverse_information(X, np.ones(4), 1.0)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert found[2] == np.mean(found[[0, 1, 3]])
    np.testing.assert_allclose(found, inverse_information(sp.csr_array(X), np.ones(4), 1.0))
    wide = np.tile([1.0, 0.0], (5, 600))
    np.testing.assert_allclose(inverse_information(wide, np.ones(5), 0.0), 1 / 5)
    assert (inverse_information(np.zeros((2, 2)), np.ones(2), 0.0) == 1).all()


def test_user_prior():
    p = problem("M2")
    prior = constant_prior(GammaPrior(2.0, 3.0), p.sharing, 3)
    assert prior.shape.shape == (len(p.sharing.owner), 3)
    assert node_scalars(p, prior).shape == (7, 3)
    loose = HierarchicalBayesClassifier(TREE, prior={"shape": 1e6, "rate": 1e9}).fit(DATA.X, DATA.y)
    tight = HierarchicalBayesClassifier(TREE, prior={"shape": 1e9, "rate": 1e6}).fit(DATA.X, DATA.y)
    assert np.abs(tight.coef_).max() < 0.2 < np.abs(loose.coef_).max()
    np.testing.assert_allclose(tight.precisions_[1:], 1e3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("covariance", ["M1", "M2", "M3"])
@pytest.mark.parametrize("rate", [1e-12, 1e12])
def test_extreme_priors(covariance, rate):
    model = HierarchicalBayesClassifier(
        TREE, covariance=covariance, prior={"shape": 1e-3, "rate": rate}, max_iter=20
    )
    model.fit(DATA.X, DATA.y)
    assert ((model.precisions_ > 0) & np.isfinite(model.precisions_)).all()
    assert model.score(DATA.X_new, DATA.y_new) > 0.4  # one in five by chance


def test_anderson_mixing_stays_near_the_plain_round():
    mixture = AndersonMixing()
    mixture.next(np.zeros(2), np.array([1.0, -1.0]))
    image = np.array([1.999999, -1.999999])  # as long a step as before: the end seems a million away
    found = mixture.next(np.array([1.0, -1.0]), image)
    np.testing.assert_allclose(np.abs(found - image), 3.0)


@inferences
@pytest.mark.parametrize(("scale", "told"), [(1e-160, "nowhere larger than"), (1e160, "as large as")])
def test_features_beyond_floating_point_are_refused(inference, scale, told):
    X = DATA.X.copy()
    X[:, 3] *= scale
    for rows in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match=f"feature 3 is {told} .*scale the features"):
            HierarchicalBayesClassifier(TREE, inference=inference).fit(rows, DATA.y)


@inferences
def test_features_of_very_different_scale(inference):
    scale = np.logspace(-12, 12, 12)
    model = HierarchicalBayesClassifier(TREE, inference=inference, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(DATA.X * scale, DATA.y)
    assert np.isfinite(model.predict_proba(DATA.X_new * scale)).all()
    assert (model.node_coef_std_ > 0).all()
