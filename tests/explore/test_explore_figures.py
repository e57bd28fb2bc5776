"""Figures: they show the given data, and text of the user is never interpreted as HTML."""

import sys

import numpy as np
import pytest

pytest.importorskip("plotly")

from arbora.app.folder import open_folder
from arbora.core.trace import Trace
from arbora.discover import SphericalKMeans, TemporalVMFMixture
from arbora.expand import SelfOrganizingMap
from arbora.explore import figures
from arbora.metrics import reliability_curve
from arbora.structure import Hierarchy
from support.explore_folders import classifier_folder, temporal_folder


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return open_folder(classifier_folder(tmp_path_factory.mktemp("figures") / "model"))


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    return open_folder(temporal_folder(tmp_path_factory.mktemp("figures") / "model"))


def trace(*gaps):
    made = Trace()
    for gap in gaps:
        made.append(objective=10 * gap, gap=gap)
    return made


def test_several_fits_are_distinct_without_colour():
    figure = figures.convergence(
        {"flat": trace(1.0, 0.1), "tree": trace(1.0, 0.5, 0.01)}, x="iteration", y="gap"
    )
    assert figure.layout.yaxis.type == "log"
    assert list(figure.data[1].y) == [1.0, 0.5, 0.01]
    assert len({trace.line.dash for trace in figure.data}) == 2
    assert figures.convergence(trace(1.0, 0.0), y="gap").layout.yaxis.type == "linear"


def test_learning_curve_draws_means_and_standard_errors():
    repeats = np.array([[0.1, 0.3], [0.5, 0.5]])
    figure = figures.learning_curve([1, 10], {"a": repeats})
    assert figure.data[0].y == pytest.approx([0.2, 0.5])
    assert figure.data[0].error_y.array == pytest.approx([repeats[0].std(ddof=1) / np.sqrt(2), 0.0])
    assert figure.layout.xaxis.type == "log"
    with pytest.raises(ValueError, match="3 scores of 'a' for 2 sizes"):
        figures.learning_curve([1, 10], {"a": [1, 2, 3]})


def test_reliability_from_metrics_from_a_folder_and_several(subjects):
    curve = reliability_curve([1, 0, 1, 1], [0.9, 0.2, 0.8, 0.3], n_bins=2)
    for curves in (curve, {"one": curve, "two": curve}):
        figure = figures.reliability_diagram(curves)
        assert figure.data[1].x == pytest.approx(curve.confidence)
    assert (
        list(figures.reliability_diagram(subjects).data[1].y)
        == subjects.evaluation["reliability"]["accuracy"]
    )


def test_small_topics_are_merged_and_shares_keep_their_sum(years):
    figure = figures.topics_over_time(years, max_topics=4)
    assert [trace.name for trace in figure.data][-1] == "5 others"
    total = np.sum([trace.y for trace in figure.data], axis=0)
    assert total == pytest.approx(np.sum(years.time["shares"], axis=0))
    sizes = [np.sum(trace.y) for trace in figure.data[:4]]
    assert sizes == sorted(sizes, reverse=True)


def test_topics_over_time_of_a_model_are_its_shares():
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.ones(5), 40) + 3 * np.eye(5)[rng.integers(2, size=40)]
    model = TemporalVMFMixture(2, max_iter=20, tol=1e-2, random_state=0).fit(X, np.arange(40) % 4)
    figure = figures.topics_over_time(model, words=list("abcde"))
    shares = model.counts_ / model.counts_.sum(axis=1, keepdims=True)
    for band, k in zip(figure.data, np.argsort(-shares.sum(axis=0)), strict=True):
        assert band.y == pytest.approx(shares[:, k], abs=1e-6)
        assert band.name[0] in "ab"  # the word that the rows of the topic have most of
    with pytest.raises(ValueError, match="no topics over time"):
        figures.topics_over_time(SphericalKMeans(2, random_state=0).fit(X))


def test_folders_without_the_data_of_a_figure_are_refused(subjects, years):
    with pytest.raises(ValueError, match="no topics over time"):
        figures.topics_over_time(subjects)
    with pytest.raises(ValueError, match="no reliability curve"):
        figures.reliability_diagram(years)


def test_tree_of_a_folder_escapes_titles(subjects):
    figure = figures.tree(subjects)
    (drawn,) = figure.data
    assert len(drawn.ids) == len(subjects.nodes)
    assert not any("<" in label for label in drawn.labels)
    assert any(label.startswith("&lt;img") for label in drawn.labels)


def parts_by_recursion(parents, counts, node, part):
    """Plain twin of `remainders`."""
    children = [i for i, parent in enumerate(parents) if parent == node]
    whole = max(counts[node], sum(counts[i] for i in children))
    parts = {i: part * (counts[i] / whole if whole else 1 / len(children)) for i in children}
    values = {node: max(0.0, part - sum(parts.values()))}
    for child, its_part in parts.items():
        values |= parts_by_recursion(parents, counts, child, its_part)
    return values


@pytest.mark.parametrize("seed", range(4))
def test_remainders_agree_with_a_plain_recursion(seed):
    rng = np.random.default_rng(seed)
    parents = np.array([-1, *(rng.integers(0, i) for i in range(1, 30))])
    counts = rng.integers(0, 6, 30).astype(float)  # children may have more than their parent, or nothing
    parts = figures.remainders(parents, counts)
    slow = parts_by_recursion(parents.tolist(), counts.tolist(), 0, 1.0)
    assert parts == pytest.approx([slow[i] for i in range(30)])
    assert parts.sum() == pytest.approx(1.0)


def test_tree_of_a_dag_and_of_leaves():
    dag = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c"), ("b", "c"), ("b", "d")])
    (drawn,) = figures.tree(dag).data
    sizes = dict(zip(drawn.labels, drawn.customdata, strict=True))
    assert sizes == {"r": 2, "a": 1, "b": 2, "c": 1, "d": 1}
    with pytest.raises(ValueError, match="5 nodes"):
        figures.tree(dag, sizes=[1, 2])


def test_without_plotly_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r"pip install arbora\[explore\]"):
        figures.learning_curve([1], [1.0])


@pytest.mark.parametrize("grid", ["hexagonal", "rectangular"])
def test_map_has_a_cell_for_each_unit_and_pies_of_its_classes(grid):
    """Areas of the wedges of a unit are in the proportions of its classes; text of the user is escaped."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.array(["<b>left", "right"])[(X[:, 0] + rng.normal(size=90) > 0).astype(int)]
    model = SelfOrganizingMap((2, 2), grid=grid, n_epochs=3).fit(X, y)
    figure = figures.self_organizing_map(model)
    assert len(figure.layout.shapes) == 4
    assert [trace.name for trace in figure.data[1:]] == ["&lt;b&gt;left", "right"]
    areas = np.zeros((4, 2))
    for k, trace in enumerate(figure.data[1:]):
        xs, ys = np.array(trace.x, float), np.array(trace.y, float)
        ends = np.flatnonzero(np.isnan(xs))
        for first, stop in zip([0, *(ends[:-1] + 1)], ends, strict=True):
            x, z = xs[first:stop], ys[first:stop]
            unit = np.argmin(np.sum((model.positions_ - [x.mean(), z.mean()]) ** 2, axis=1))
            areas[unit, k] = abs(np.sum(x * np.roll(z, -1) - z * np.roll(x, -1))) / 2
    np.testing.assert_allclose(areas / areas.sum(axis=1, keepdims=True), model.class_shares_, atol=0.03)
    assert f"unit 0: {model.unit_counts_[0]} rows" in figure.data[0].text[0]
    assert len(figures.self_organizing_map(SelfOrganizingMap((2, 2), grid=grid).fit(X)).data) == 1
