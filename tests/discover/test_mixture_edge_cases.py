"""Mixtures with unusual input: a correct result, or an error that says what to do."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from arbora.datasets import make_vmf_mixture
from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    MultinomialMixture,
    SphericalKMeans,
    TemporalVMFMixture,
    VMFMixture,
)
from arbora.discover.kmeans import split_rows
from arbora.infer.mixture.statistics import WeightedRows


@pytest.fixture(scope="module")
def X():
    return make_vmf_mixture(120, 5, 3, random_state=0).X_train


@pytest.mark.parametrize("posterior", ["grid", "bound"])
def test_a_fall_of_the_bound_by_rounding_is_not_convergence(posterior):
    """Equal rows make concentrations that single precision cannot resolve; double precision can."""
    X = np.tile([[1.0, 2.0, 3.0]], (20, 1))
    with pytest.warns(ConvergenceWarning, match=r"fell .* tol below 1e-6"):
        model = BayesianVMFMixture(1, concentration_posterior=posterior, max_iter=30, random_state=0).fit(X)
    assert not model.converged_
    assert model.trace_["objective"][-1] < model.lower_bounds_[-1] == model.lower_bounds_.max()
    assert model.score(X) > 0


def test_mini_batches_are_annealed_too(X):
    model = VMFMixture(3, assignments="annealed", temperature=5.0, batch_size=40, random_state=0).fit(X)
    temperatures = model.trace_["temperature"]
    np.testing.assert_allclose(temperatures[:21], np.geomspace(5.0, 1.0, 21))
    assert np.all(temperatures[21:] == 1)
    assert len(model.lower_bounds_) == len(temperatures) - 20


@pytest.mark.parametrize("weight", [1e-60, 1e60])
@pytest.mark.parametrize(
    "kind", [SphericalKMeans, VMFMixture, BayesianVMFMixture, TemporalVMFMixture, MultinomialMixture]
)
def test_extreme_weights_are_refused(X, kind, weight):
    """Single precision would make zeros or infinities of them."""
    with pytest.raises(ValueError, match="a weight is a number of rows"):
        kind(2).fit(np.abs(X), sample_weight=np.full(len(X), weight))


def test_counts_beyond_single_precision_are_refused_by_row(X):
    counts = np.abs(X)
    counts[7] *= 1e40
    with pytest.raises(ValueError, match=r"above 1e\+30, in row 7, .*Divide X"):
        MultinomialMixture(2).fit(counts)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture])
def test_labels_whose_rows_cancel_are_a_valid_start(kind):
    rows = np.repeat([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], 5, axis=0)
    model = kind(2, init=np.repeat([0, 1], 10)).fit(rows)
    assert model.score(rows) >= -np.log(2 * np.pi) - 1e-6  # uniform on the circle, or better


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_batches_of_little_weight_give_no_clusters_yet(X):
    model, weight = DirichletProcessVMFMixture(4, random_state=0), np.full(len(X), 1e-3)
    model.partial_fit(X, sample_weight=weight).partial_fit(X, sample_weight=weight)
    assert model.n_clusters_ == 0
    assert model.counts_.sum() == pytest.approx(0.24, rel=1e-4)
    assert model.partial_fit(X).n_clusters_ > 0


def test_gibbs_sampling_refuses_partial_fit(X):
    model = BayesianVMFMixture(2, inference="gibbs", random_state=0)
    with pytest.raises(ValueError, match="inference='variational'"):
        model.partial_fit(X)
    assert not hasattr(model, "means_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("again", ["fit", "partial_fit"])
def test_a_new_fit_removes_attributes_of_the_last(X, again):
    model = BayesianVMFMixture(
        "auto", inference="gibbs", sampling={"n_warmup": 2, "n_samples": 4}, random_state=0
    ).fit(X)
    learned = {name for name in vars(model) if name.endswith("_")}
    assert {"selection_", "responsibilities_", "draws_", "rhat_"} <= learned
    getattr(model.set_params(n_components=2, inference="variational", sampling=None), again)(X)
    assert not {"selection_", "responsibilities_", "draws_", "rhat_"} & set(vars(model))


def test_times_can_be_objects_that_are_numbers(X):
    years = np.array([1990 + i % 3 for i in range(len(X))], dtype=object)  # a column of a data frame, say
    model = TemporalVMFMixture(2, random_state=0).fit(X, years)
    np.testing.assert_array_equal(model.times_, [1990.0, 1991.0, 1992.0])
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 2"):
        model.dynamics(level=2)
    for ask in (
        model.top_features,
        lambda n: model.representatives(X, n=n),
        lambda n: model.vocabulary(0, n=n),
    ):
        for n in (-1, 2.5):
            with pytest.raises(ValueError, match="n must be an integer"):
                ask(n=n)


def test_split_rows_neither_warns_nor_filters_warnings():
    """Filters are those of the whole process: threads that change and restore them end with those of others."""
    rows, centres = np.repeat(np.eye(3)[:1], 6, axis=0), np.eye(3)[:2]
    with pytest.warns(ConvergenceWarning, match="only 1 of n_clusters=2"):
        model = SphericalKMeans(2, init=centres).fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = split_rows(WeightedRows(sp.csr_array(rows), np.ones(6)), centres, 5)
    np.testing.assert_array_equal(labels, model.labels_)
