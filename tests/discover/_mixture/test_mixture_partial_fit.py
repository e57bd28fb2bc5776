"""`partial_fit` of mixtures: the update of a fit, step sizes, the result of all rows at once."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from arbora import io
from arbora.datasets import make_vmf_mixture
from arbora.discover import BayesianVMFMixture, HierarchicalVMFMixture, TemporalVMFMixture, VMFMixture
from arbora.infer.mixture.loop import blend
from arbora.infer.mixture.statistics import Stats

EARLY = "ignore::sklearn.exceptions.ConvergenceWarning"


@pytest.fixture(scope="module")
def data():
    return make_vmf_mixture(600, 8, 4, random_state=0)


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture])
def test_the_first_step_with_all_rows_is_the_update_of_a_fit(data, kind):
    model = kind(4, init=data.truth.means, tol=0.0, max_iter=2)  # one update and its bound
    fitted, streamed = clone(model).fit(data.X_train), clone(model).partial_fit(data.X_train)
    for name in ("means_", "concentrations_", "weights_", "density_quantiles_"):
        np.testing.assert_allclose(getattr(streamed, name), getattr(fitted, name), rtol=1e-9, atol=1e-12)
    assert streamed.lower_bounds_[0] == pytest.approx(fitted.lower_bounds_[0], rel=1e-12)


def test_step_sizes_satisfy_the_robbins_monro_conditions(data):
    """By hand: the statistics of two batches, and the update that belongs to them."""
    parts = data.X_train[:200], data.X_train[200:500]
    model = VMFMixture(4, init=data.truth.means, tol=1e-9).partial_fit(parts[0])
    resp = model.predict_proba(parts[1])
    rate = 2.0**-0.7
    counts = (1 - rate) * model.stream_counts_ + rate * resp.sum(axis=0) / 300
    sums = (1 - rate) * model.stream_sums_ + rate * parts[1].T @ resp / 300
    model.partial_fit(parts[1])
    np.testing.assert_allclose(model.weights_, counts, rtol=1e-9)
    np.testing.assert_allclose(model.means_, (sums / np.linalg.norm(sums, axis=0)).T, rtol=1e-9)
    assert model.seen_weight_ == 500
    unit = Stats(np.ones(1), np.ones((1, 1)))
    rates = np.array(
        [blend(Stats(np.zeros(1), np.zeros((1, 1))), unit, 1.0, t).counts[0] for t in range(10**4)]
    )
    assert rates[0] == 1
    assert rates.sum() > 30  # grows without end
    assert np.sum(rates**2) < 4  # does not


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture])
def test_batches_find_what_all_rows_at_once_find(kind):
    data = make_vmf_mixture(3000, 20, 4, random_state=1)
    X, truth = data.X_train, data.truth.components
    whole = kind(4, random_state=0).fit(X)
    streamed = kind(4, random_state=0)
    for _ in range(3):
        for first in range(0, 3000, 300):
            streamed.partial_fit(X[first : first + 300], total_samples=3000)
    batches = kind(4, batch_size=300, max_iter=3, random_state=0).fit(X)
    for model in (streamed, batches):
        gap = adjusted_rand_score(truth, whole.predict(X)) - adjusted_rand_score(truth, model.predict(X))
        assert gap < 0.02
        assert model.score(X) == pytest.approx(whole.score(X), abs=0.05)
    assert abs(np.mean(streamed.is_novel(X)) - 0.05) < 0.05


def test_partial_fit_resumes_after_loading_and_ends_with_a_fit(data, tmp_path):
    model = BayesianVMFMixture(4, random_state=0)
    model.partial_fit(data.X_train[:300])
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model")
    for each in (model, loaded):
        each.partial_fit(data.X_train[300:])
    np.testing.assert_array_equal(loaded.means_, model.means_)
    assert len(model.trace_) == len(model.lower_bounds_) == model.n_iter_ == 2
    model.fit(data.X_train)
    assert not hasattr(model, "stream_sums_")


def test_partial_fit_is_refused_where_it_is_not_supported(data):
    for kind in (TemporalVMFMixture, HierarchicalVMFMixture):
        assert not hasattr(kind(), "partial_fit")
    with pytest.raises(ValueError, match="'auto' holds rows out"):
        VMFMixture("auto").partial_fit(data.X_train)
    with pytest.raises(ValueError, match="total_samples must be"):
        VMFMixture(2).partial_fit(data.X_train, total_samples=0)
    with pytest.raises(ValueError, match="n_samples=3 rows cannot fill n_components=4"):
        VMFMixture(4).partial_fit(data.X_train[:3])
