"""Self-organising maps: grids, the batch update by its definition, k-means as a limit, order, learned metrics."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from arbora.expand import FisherMetric, SelfOrganizingMap
from arbora.expand.self_organizing_map import (
    falling,
    grid_neighbours,
    grid_positions,
    nearest_units,
    neighbourhood,
    plane_start,
    update_weights,
)


@pytest.fixture(scope="module")
def data():
    """The label changes with the first feature; the second one varies most."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1.0, 5.0, 1.0]
    return X, np.where(X[:, 0] > 0, "right", "left")


@pytest.mark.parametrize(("grid", "most"), [("hexagonal", 6), ("rectangular", 4)])
def test_neighbours_on_the_grid(data, grid, most):
    model = SelfOrganizingMap((4, 5), grid=grid, n_epochs=2).fit(data[0])
    near = grid_neighbours(model.positions_)
    assert (near == near.T).all()
    assert near.sum(axis=1).max() == most
    assert model.positions_.shape == (20, 2)


def test_start_lies_on_the_plane_of_the_components(data):
    X, _ = data
    positions = grid_positions((3, 7), "rectangular")
    weights = plane_start(X, positions)
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(weights)), weights, atol=1e-8)
    # The longer side follows the first component.
    assert np.abs(np.corrcoef(pca.transform(weights)[:, 0], positions[:, 0])[0, 1]) > 0.999


def test_update_is_that_of_the_definition(data):
    X, _ = data
    positions = grid_positions((2, 3), "hexagonal")
    weights = plane_start(X, positions)
    units, distance = nearest_units(X, weights, lambda a, b: np.linalg.norm(a[:, None] - b, axis=2))
    np.testing.assert_allclose(distance, np.linalg.norm(X - weights[units[:, 0]], axis=1))
    H = neighbourhood(positions, 0.8)
    result = update_weights(X, units[:, 0], H, weights)
    for u in range(6):
        h = np.exp(-np.sum((positions[u] - positions[units[:, 0]]) ** 2, axis=1) / (2 * 0.8**2))
        np.testing.assert_allclose(result[u], h @ X / h.sum(), rtol=1e-10)


def test_without_neighbourhood_the_error_falls_as_in_k_means(data):
    X, _ = data
    model = SelfOrganizingMap((3, 3), radius=0.0, n_epochs=40).fit(X)
    nearest = np.linalg.norm(X[:, None] - model.weights_, axis=2).argmin(axis=1)
    means = np.array([X[nearest == u].mean(axis=0) for u in range(9)])
    np.testing.assert_allclose(model.weights_, means, atol=1e-8)  # a fixed point of k-means
    np.testing.assert_array_equal(nearest, model.labels_)


def test_map_is_ordered(data):
    """Rows that are near in space are near on the map; few rows have torn neighbourhoods."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    model = SelfOrganizingMap((6, 6)).fit(X)
    assert model.topographic_error_ < 0.15
    assert model.topographic_error(X) == model.topographic_error_
    shuffled = SelfOrganizingMap((6, 6), radius=0.0).fit(X)
    assert shuffled.quantization_error_ < model.quantization_error_  # order has a price
    d_map = np.linalg.norm(model.transform(X)[:, None] - model.transform(X), axis=2)
    d_space = np.linalg.norm(X[:, None] - X, axis=2)
    assert np.corrcoef(d_map.ravel(), d_space.ravel())[0, 1] > 0.8


def test_errors_by_definition(data):
    X, _ = data
    model = SelfOrganizingMap((3, 4), n_epochs=10).fit(X)
    D = np.linalg.norm(X[:, None] - model.weights_, axis=2)
    np.testing.assert_allclose(model.distances(X), D)
    assert model.quantization_error_ == pytest.approx(D.min(axis=1).mean())
    assert model.score(X) == -model.quantization_error(X)
    best = np.argsort(D, axis=1)[:, :2]
    separate = np.linalg.norm(model.positions_[best[:, 0]] - model.positions_[best[:, 1]], axis=1)
    assert model.topographic_error_ == pytest.approx(np.mean(separate > 1.01))
    near = np.linalg.norm(model.positions_[:, None] - model.positions_, axis=2).round(2) == 1
    between = np.linalg.norm(model.weights_[:, None] - model.weights_, axis=2)
    np.testing.assert_allclose(model.unit_distances_, (between * near).sum(axis=1) / near.sum(axis=1))


def test_learned_metric_orders_by_the_label(data):
    """The Euclidean map follows the wide feature, the learned one that of the label."""
    X, y = data
    plain = SelfOrganizingMap((2, 8)).fit(X, y)
    learned = SelfOrganizingMap((2, 8), metric=FisherMetric(C=0.1)).fit(X, y)
    purity = [np.nansum(np.nanmax(m.class_shares_, axis=1) * m.unit_counts_) / 300 for m in (plain, learned)]
    assert purity[1] > 0.95 > purity[0]
    assert learned.weights_.shape == (16, 3)  # in the original space
    np.testing.assert_array_equal(learned.labels_, learned.distances(X).argmin(axis=1))
    D = learned.metric_.pairwise_distances(X, learned.weights_)
    np.testing.assert_allclose(learned.distances(X), D)


def test_class_shares(data):
    X, y = data
    labels = np.where(np.arange(300) % 3 == 0, None, y)
    model = SelfOrganizingMap((2, 3), n_epochs=5).fit(X, labels)
    for unit in range(6):
        mine = labels[(model.labels_ == unit) & (labels != None)]  # noqa: E711
        known = [np.mean(mine == name) if len(mine) else np.nan for name in model.classes_]
        np.testing.assert_allclose(model.class_shares_[unit], known)
    again = model.fit(X)
    assert not hasattr(again, "class_shares_")


def test_transformer_as_metric(data):
    X, y = data
    steps = make_pipeline(StandardScaler(), PCA(2))
    model = SelfOrganizingMap((3, 3), metric=steps, n_epochs=5).fit(X, y)
    known = SelfOrganizingMap((3, 3), n_epochs=5).fit(steps.fit_transform(X))
    np.testing.assert_allclose(model.weights_, known.weights_)
    np.testing.assert_array_equal(model.predict(X), known.labels_)


def test_radii():
    assert falling(3.0, 0.5, 1) == [0.5]
    assert np.all(np.diff(falling(5.0, 0.0, 10)) < 0)


def test_small_and_hostile_maps(data):
    X, _ = data
    first = SelfOrganizingMap((1, 1)).fit(X)
    np.testing.assert_allclose(first.weights_[0], X.mean(axis=0))
    assert first.topographic_error_ == 0
    flat = SelfOrganizingMap((2, 5)).fit(X[:, :1])
    assert np.isfinite(flat.weights_).all()
    equal = SelfOrganizingMap((2, 2)).fit(np.ones((5, 2)))
    np.testing.assert_allclose(equal.weights_, 1.0)
    np.testing.assert_allclose(
        SelfOrganizingMap((2, 3)).fit(sp.csr_array(X)).weights_, SelfOrganizingMap((2, 3)).fit(X).weights_
    )


def test_wide_sparse_rows_need_a_transformer(monkeypatch):
    X = sp.random_array((30, 1000), density=0.02, rng=np.random.default_rng(0), format="csr")
    monkeypatch.setattr("arbora.core.chunks.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"dense copy of 30 rows of 1000 features.*TruncatedSVD"):
        SelfOrganizingMap((2, 2)).fit(X)
    reduced = SelfOrganizingMap((2, 2), metric=TruncatedSVD(3, random_state=0)).fit(X)
    assert reduced.weights_.shape == (4, 3)


def test_bad_input(data):
    X, y = data
    with pytest.raises(ValueError, match="shape must be two positive integers"):
        SelfOrganizingMap((0, 3)).fit(X)
    with pytest.raises(ValueError, match="metric"):
        SelfOrganizingMap(metric="manhattan").fit(X)
    with pytest.raises(ValueError, match="target y is None"):
        SelfOrganizingMap(metric=FisherMetric()).fit(X)
    with pytest.raises(ValueError, match="one label for each of the 300 rows"):
        SelfOrganizingMap().fit(X, y[:10])
