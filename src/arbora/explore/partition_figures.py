"""Plotly figures of a posterior over partitions: which rows belong together, and which clusters could be one.

========================  =============================================================================
`similarity_matrix`       shares of draws in which two rows are in one cluster, rows sorted by cluster
`merge_tree`              the tree of merges of the clusters, by their mean similarity
========================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import dendrogram, leaves_list, linkage
from scipy.spatial.distance import squareform

from arbora.explore.figures import COLOURS, _graph_objects, _layout, plain

_SCALE = ((0.0, "#ffffff"), (0.25, "#d5e1f5"), (0.5, "#8fb0e3"), (1.0, "#1d3f8f"))


def similarity_matrix(model: Any, *, most: int = 400) -> Any:
    """Draw the similarity matrix of a fitted mixture: dark where two rows are in one cluster in most draws.

    Lines separate the clusters of `labels_`, which are in the order of the tree of merges. Within a cluster, rows
    that are together in more draws are nearer, so that groups inside a cluster show as blocks.

    Parameters
    ----------
    model : fitted DirichletProcessGaussianMixture or MaxMarginGaussianMixture
    most : int
        Rows to draw, spread evenly over the clusters.

    Returns
    -------
    plotly.graph_objects.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.discover import DirichletProcessGaussianMixture
    >>> X = np.random.default_rng(0).normal([[-5.0], [5.0]] * 20, 1.0)
    >>> model = DirichletProcessGaussianMixture(n_warmup=20, n_samples=20, random_state=0).fit(X)
    >>> similarity_matrix(model).data[0].z.shape
    (40, 40)
    """
    go = _graph_objects()
    rank = np.empty(model.n_clusters_, np.int64)
    rank[_leaf_order(model)] = np.arange(model.n_clusters_)
    order = np.lexsort((np.arange(len(model.labels_)), rank[model.labels_]))
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).astype(np.int64))]
    labels, together = model.labels_[shown], model.similarity_matrix(shown, shown)
    inner = _block_order(labels, together)
    shown, together = shown[inner], together[np.ix_(inner, inner)]
    names = [f"row {row}, cluster {label}" for row, label in zip(shown, labels, strict=True)]
    figure = go.Figure(
        go.Heatmap(
            z=together,
            zmin=0,
            zmax=1,
            colorscale=_SCALE,
            colorbar={"title": "share of draws", "thickness": 14},
            customdata=np.array(names)[:, None].repeat(len(names), axis=1),
            text=[names] * len(names),
            hovertemplate="%{customdata}<br>%{text}<br>%{z:.2f}<extra></extra>",
        )
    )
    starts = np.flatnonzero(np.diff(labels)) + 0.5
    line = {"color": COLOURS[2], "width": 1}
    for at in starts.tolist():
        figure.add_shape(type="line", x0=at, x1=at, y0=-0.5, y1=len(labels) - 0.5, line=line)
        figure.add_shape(type="line", y0=at, y1=at, x0=-0.5, x1=len(labels) - 0.5, line=line)
    edges = np.concatenate([[-0.5], starts, [len(labels) - 0.5]])
    places, ticks = (edges[1:] + edges[:-1]) / 2, labels[np.ceil(edges[:-1]).astype(np.int64)]
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(tickvals=places, ticktext=[str(tick) for tick in ticks], showgrid=False, zeroline=False)
    figure.update_yaxes(autorange="reversed", scaleanchor="x", constrain="domain")
    figure.update_xaxes(constrain="domain")
    return _layout(figure, x="rows, by cluster", y="rows, by cluster")


def merge_tree(model: Any, names: Sequence[Any] | None = None) -> Any:
    """Draw the tree of merges of the clusters of a fitted mixture.

    The height of a merge is 1 minus the mean similarity of its sides: low merges join clusters that many draws do
    not separate.

    Parameters
    ----------
    model : fitted DirichletProcessGaussianMixture or MaxMarginGaussianMixture
    names : sequence of n_clusters_ names, optional
        By default the number and the size of each cluster.

    Returns
    -------
    plotly.graph_objects.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.discover import DirichletProcessGaussianMixture
    >>> X = np.random.default_rng(0).normal([[-9.0], [0.0], [9.0]] * 20, 1.0)
    >>> model = DirichletProcessGaussianMixture(n_warmup=20, n_samples=20, random_state=0).fit(X)
    >>> len(merge_tree(model).data) == model.n_clusters_ - 1
    True
    """
    go, K = _graph_objects(), model.n_clusters_
    titles = [f"{k} ({count:,} rows)" for k, count in enumerate(model.counts_)] if names is None else names
    if len(titles) != K:
        raise ValueError(f"names has {len(titles)} names for {K} clusters: give one for each.")
    figure, order = go.Figure(), _leaf_order(model)
    if K > 1:
        drawn = dendrogram(model.merge_tree(), no_plot=True)
        for across, heights in zip(drawn["icoord"], drawn["dcoord"], strict=True):
            text = f"similarity {1 - heights[1]:.2f}"
            figure.add_scatter(
                x=heights,
                y=(np.array(across) - 5) / 10,
                mode="lines",
                line={"color": COLOURS[0], "width": 2},
                hovertemplate=f"{text}<extra></extra>",
                showlegend=False,
            )
    figure.update_yaxes(
        tickvals=np.arange(K), ticktext=[plain(titles[k]) for k in order], showgrid=False, zeroline=False
    )
    figure.update_xaxes(range=[-0.02, 1.02], zeroline=False)
    return _layout(figure, x="1 - mean similarity", y="cluster")


def _block_order(labels: Any, together: Any) -> Any:
    """Return an order of rows, already sorted by label, that has similar rows of a label side by side."""
    order = []
    for part in np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1):
        if len(part) > 2:
            distances = np.clip(1.0 - together[np.ix_(part, part)], 0.0, 1.0)
            np.fill_diagonal(distances, 0.0)
            part = part[leaves_list(linkage(squareform(distances, checks=False), method="average"))]
        order.append(part)
    return np.concatenate(order)


def _leaf_order(model: Any) -> Any:
    """Return the clusters in the order of the tree of merges."""
    if model.n_clusters_ < 2:
        return np.arange(model.n_clusters_)
    return np.array(dendrogram(model.merge_tree(), no_plot=True)["leaves"])
