"""Figures of a posterior over partitions."""

import numpy as np
import pytest

pytest.importorskip("plotly")

from arbora.discover import DirichletProcessGaussianMixture
from arbora.explore import figures as partition_figures


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).normal(np.repeat([[-9.0], [0.0], [9.0]], 20, axis=0), 1.0)
    with np.errstate(all="ignore"):
        return DirichletProcessGaussianMixture(
            sampling={"n_warmup": 20, "n_samples": 20}, random_state=0
        ).fit(X)


@pytest.mark.filterwarnings("ignore:the chains do not agree")
def test_the_matrix_is_the_similarity_of_rows_by_cluster(fitted):
    figure = partition_figures.similarity_matrix(fitted)
    names = [text.split(",")[0].removeprefix("row ") for text in figure.data[0].customdata[:, 0]]
    rows = np.array(names, np.int64)
    assert sorted(rows.tolist()) == list(range(60))
    np.testing.assert_allclose(figure.data[0].z, fitted.similarity_matrix(rows, rows))
    changes = np.flatnonzero(np.diff(fitted.labels_[rows]))
    assert len(changes) == fitted.n_clusters_ - 1  # every cluster is one block
    assert len(figure.layout.shapes) == 2 * len(changes)
    assert partition_figures.similarity_matrix(fitted, max_rows=10).data[0].z.shape == (10, 10)


def test_the_tree_has_all_merges(fitted):
    figure = partition_figures.merge_tree(fitted, [f"<b>{k}</b>" for k in range(fitted.n_clusters_)])
    heights = sorted(max(line.x) for line in figure.data)
    np.testing.assert_allclose(heights, sorted(fitted.merge_tree()[:, 2]))
    assert all("&lt;b&gt;" in name for name in figure.layout.yaxis.ticktext)
    with pytest.raises(ValueError, match="give one for each"):
        partition_figures.merge_tree(fitted, ["one"])


def test_one_cluster_has_no_merges():
    X = np.random.default_rng(0).standard_normal((30, 1))
    model = DirichletProcessGaussianMixture(1, sampling={"n_warmup": 5, "n_samples": 5}, random_state=0).fit(
        X
    )
    assert len(partition_figures.merge_tree(model).data) == 0
    assert partition_figures.similarity_matrix(model).data[0].z.min() == 1.0
