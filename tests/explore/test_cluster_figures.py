"""Figures and page of discriminative clusters: they show what the model says."""

import json

import numpy as np
import pytest

pytest.importorskip("plotly")

from arbora.app.contents.fitted_model import model_content
from arbora.expand import DiscriminativeClustering
from arbora.explore import figures as cluster_figures
from arbora.explore.page import model_data


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) * [1.0, 10.0] + [0.0, 50.0]
    y = np.where(X[:, 0] > 0, "<b>stays</b>", "leaves")
    return DiscriminativeClustering(2, random_state=0).fit(X, y), X, y


def test_heat_map_columns_add_up(fitted):
    model, X, y = fitted
    table = model.contingency_table(X, y)
    np.testing.assert_allclose(cluster_figures.label_heat_map(table).data[0].z.sum(axis=0), 1.0)
    np.testing.assert_allclose(
        cluster_figures.label_heat_map(table, of="clusters").data[0].z.sum(axis=1), 1.0
    )
    figure = cluster_figures.label_heat_map(table, of="residuals")
    assert figure.data[0].zmax == -figure.data[0].zmin
    assert set(figure.data[0].x) == {"leaves", "&lt;b&gt;stays&lt;/b&gt;"}
    with pytest.raises(ValueError, match="residuals"):
        cluster_figures.label_heat_map(table, of="counts")


def test_cells_are_those_of_the_model(fitted):
    model, X, y = fitted
    figure = cluster_figures.cells_of_two_features(model, X, y)
    cells = figure.data[0]
    points = np.column_stack([part.ravel() for part in np.meshgrid(cells.x, cells.y)])
    np.testing.assert_array_equal(cells.z.ravel(), model.predict(points))
    assert sum(len(trace.x) for trace in figure.data[1:3]) == len(X)


def test_cost_plane_has_a_path_and_points():
    figure = cluster_figures.cost_plane(
        {"VQ": (1.0, 3.0), "DC": (2.0, 1.0)}, path=[(0.1, 2.0, 1.2), (1.0, 1.5, 2.0)]
    )
    assert list(figure.data[0].text) == ["0.1", "1"]
    assert [trace.name for trace in figure.data[1:]] == ["VQ", "DC"]


def test_page_has_labels_and_profiles(fitted):
    model, X, y = fitted
    content = model_content(model, X, y, words=["visits", "age"])
    assert content.kind == "clusters"
    for k, node in enumerate(content.nodes[1:]):
        inside = model.labels_ == k
        assert node["size"] == inside.sum()
        assert sum(share for _, share, _ in node["labels"]) == pytest.approx(1.0, abs=1e-3)
        name, mean, deviation, overall, difference = node["profile"][0]
        assert name == "visits"
        np.testing.assert_allclose([mean, deviation], [X[inside, 0].mean(), X[inside, 0].std()], rtol=1e-4)
        assert overall == pytest.approx(X[:, 0].mean(), rel=1e-4)
        assert (difference > 0) == (mean > overall)
    data = model_data(content)
    json.dumps(data)
    assert data["nodes"]["labels"][0] is None
    assert "visits" in content.report
    page = model.explore(X, y, words=["visits", "age"])
    assert "<b>stays" not in page.html
    several = DiscriminativeClustering(2, random_state=0).fit(X, np.column_stack([y, y]))
    assert model_content(several, X, np.column_stack([y, y])).documents[0]["label"].count("/") >= 1
    assert model_content(model).nodes[1]["labels"]


def test_cells_with_rows_without_labels(fitted):
    model, X, y = fitted
    partial = y.astype(object)
    partial[:10] = None
    names = [trace.name for trace in cluster_figures.cells_of_two_features(model, X, partial).data]
    assert "no label" in names
