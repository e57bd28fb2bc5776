"""Spherical k-means: its objective, empty clusters, and the limit of a mixture."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from arbora.datasets import make_vmf_mixture
from arbora.discover import SphericalKMeans, VMFMixture

EXACT = {"tol": 1e-9, "max_iter": 2000, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_vmf_mixture(240, 4, 3, kappa=[10.0, 20.0, 40.0], weights=[0.5, 0.3, 0.2], random_state=1)


def test_hard_assignments_of_one_high_concentration_are_spherical_k_means():
    data = make_vmf_mixture(200, 5, 4, kappa=1e4, random_state=3)
    start = data.X_train[np.unique(data.truth.components, return_index=True)[1]]
    hard = VMFMixture(4, assignments="hard", init=start, **EXACT).fit(data.X_train)
    means = SphericalKMeans(4, init=start, **EXACT).fit(data.X_train)
    np.testing.assert_array_equal(hard.predict(data.X_train), means.labels_)
    np.testing.assert_allclose(hard.means_, means.cluster_centers_, atol=1e-8)


def test_k_means_reports_its_objective_and_never_falls(data):
    model = SphericalKMeans(5, **EXACT).fit(data.X_train)
    X = data.X_train
    assert model.trace_.is_monotone(increasing=True, tolerance=1e-14)
    assert model.inertia_ == pytest.approx(np.sum(1 - (X @ model.cluster_centers_.T).max(axis=1)))
    assert model.score(X) == pytest.approx(-model.inertia_)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    for k, centre in enumerate(model.cluster_centers_):
        total = X[model.labels_ == k].sum(axis=0)
        np.testing.assert_allclose(centre, total / np.linalg.norm(total), atol=1e-9)


def test_k_means_puts_empty_clusters_on_far_rows():
    X = np.vstack([np.eye(3), np.eye(3) + 0.01])
    start = [[1, 0, 0], [1, 0.001, 0], [-1, -1, -1]]  # the last is nearest to nothing
    model = SphericalKMeans(3, init=start).fit(X)
    assert len(set(model.labels_[:3])) == 3
    with pytest.warns(ConvergenceWarning, match="only 3 of n_clusters=5"):
        SphericalKMeans(5, random_state=0).fit(np.repeat(np.eye(3), 4, axis=0))
