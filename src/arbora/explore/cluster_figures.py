"""Figures of discriminative clusters: heat map of labels, cost against distortion, cells of two features.

========================  =============================================================================
`label_heat_map`          share of each label in each cluster (Figure 6.5 of Klami's thesis)
`cost_plane`              cost of the labels against squared distances (Figure 6.3)
`cells_of_two_features`   cells, rows and prototypes (Figure 6.1)
========================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arbora.explore.figures import COLOURS, SYMBOLS, _graph_objects, _layout, plain

_MOST_DRAWN = 2000  # rows in a picture of cells
_STEPS = 200  # of the grid of a picture of cells
_WHAT = {
    "labels": ("share of the label", "Blues"),
    "clusters": ("share of the cluster", "Blues"),
    "residuals": ("adjusted residual", "RdBu"),
}


def label_heat_map(table: Any, *, of: str = "labels") -> Any:
    """Draw how labels are distributed over clusters.

    Parameters
    ----------
    table : Contingency
        Of ``model.contingency_table(X, y)``.
    of : {"labels", "clusters", "residuals"}
        "labels": each column adds up to 1, as in the thesis; "clusters": each row does; "residuals": adjusted
        residuals, above 2 or below -2 where a label is more or less frequent in a cluster than by chance.

    Returns
    -------
    plotly.graph_objects.Figure
        Labels are ordered by their main cluster.

    Examples
    --------
    >>> from arbora.expand import DiscriminativeClustering
    >>> X, y = np.arange(40.0)[:, None], np.repeat(["no", "yes"], 20)
    >>> figure = label_heat_map(DiscriminativeClustering(2, random_state=0).fit(X, y).contingency_table(X, y))
    >>> sorted(figure.data[0].x)
    ['no', 'yes']
    """
    if of not in _WHAT:
        raise ValueError(f"of must be one of {', '.join(_WHAT)}, got {of!r}")
    go = _graph_objects()
    counts = table.counts.astype(np.float64)
    values = {
        "labels": counts / np.maximum(counts.sum(axis=0), 1),
        "clusters": table.shares,
        "residuals": table.residuals,
    }[of]
    order = np.lexsort((-values.max(axis=0), values.argmax(axis=0)))
    title, colours = _WHAT[of]
    limit = float(np.abs(values).max()) or 1.0
    figure = go.Figure(
        go.Heatmap(
            z=values[:, order],
            x=[plain(name) for name in table.classes[order].tolist()],
            y=[f"cluster {name}" for name in table.clusters.tolist()],
            customdata=counts[:, order],
            colorscale=colours,
            zmin=-limit if of == "residuals" else 0.0,
            zmax=limit,
            reversescale=of == "residuals",
            colorbar={"title": title, "title_side": "right"},
            texttemplate="%{z:.1f}" if of == "residuals" else "%{z:.0%}",
            hovertemplate="%{y}, %{x}<br>%{customdata:,.0f} rows<br>%{z:.3f}<extra></extra>",
            xgap=1,
            ygap=1,
        )
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(autorange="reversed")
    return _layout(figure, x="label")


def cost_plane(points: Mapping[str, Any], *, path: Any = None) -> Any:
    """Draw costs of the labels against squared distances within clusters, one point for each clustering.

    Parameters
    ----------
    points : mapping of str to (distortion, cost)
        Single clusterings by name.
    path : sequence of (alpha, distortion, cost), optional
        Clusterings of one regulariser by strength; joined by a line.

    Returns
    -------
    plotly.graph_objects.Figure
        Both costs are better when lower.

    Examples
    --------
    >>> figure = cost_plane({"k-means": (1.0, 2.0)}, path=[(0.1, 3.0, 1.0), (1.0, 2.0, 1.5)])
    >>> [trace.name for trace in figure.data]
    ['by strength', 'k-means']
    """
    go = _graph_objects()
    figure = go.Figure()
    if path is not None:
        alphas, x, y = (list(column) for column in zip(*path, strict=True))
        figure.add_scatter(
            x=x,
            y=y,
            name="by strength",
            mode="lines+markers+text",
            text=[f"{alpha:g}" for alpha in alphas],
            textposition="top center",
            line={"color": COLOURS[0]},
        )
    for number, (name, (distortion, cost)) in enumerate(points.items()):
        figure.add_scatter(
            x=[distortion],
            y=[cost],
            name=plain(name),
            mode="markers",
            marker={
                "size": 12,
                "color": COLOURS[(number + 1) % len(COLOURS)],
                "symbol": SYMBOLS[(number + 1) % len(SYMBOLS)],
            },
        )
    return _layout(figure, x="squared distance within clusters", y="cost of the labels per row")


def cells_of_two_features(model: Any, X: Any, y: Any = None, *, features: tuple[int, int] = (0, 1)) -> Any:
    """Draw the cells of a model, with rows and prototypes, over two of its features.

    Parameters
    ----------
    model : fitted DiscriminativeClustering
    X : ndarray of shape (n_samples, n_features)
        Rows to draw (at most 2,000 of them).
    y : array-like of shape (n_samples,), optional
        Labels of the rows, drawn as symbols. None and NaN mark rows without a label.
    features : pair of int
        Columns to draw. Others are held at their means, so that with more than two features the picture is a section.

    Returns
    -------
    plotly.graph_objects.Figure

    Examples
    --------
    >>> from arbora.expand import DiscriminativeClustering
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = X[:, 0] > 0
    >>> figure = cells_of_two_features(DiscriminativeClustering(2, random_state=0).fit(X, y), X, y)
    >>> figure.data[0].z.shape
    (200, 200)
    """
    go = _graph_objects()
    X = np.asarray(X, np.float64)
    a, b = features
    names = getattr(model, "feature_names_in_", [f"feature {j}" for j in range(X.shape[1])])
    axes = [np.linspace(X[:, j].min(), X[:, j].max(), _STEPS) for j in (a, b)]
    grid = np.repeat(model.mean_[None, :], _STEPS**2, axis=0)
    grid[:, a], grid[:, b] = (part.ravel() for part in np.meshgrid(*axes))
    cells = np.asarray(model.predict(grid)).reshape(_STEPS, _STEPS)
    n_clusters = len(model.coef_)
    shades = [[k / max(n_clusters - 1, 1), COLOURS[k % len(COLOURS)]] for k in range(n_clusters)]
    figure = go.Figure(
        go.Heatmap(
            z=cells, x=axes[0], y=axes[1], opacity=0.35, showscale=False, zmin=0, zmax=max(n_clusters - 1, 1),
            colorscale=shades if n_clusters > 1 else None, hovertemplate="cluster %{z}<extra></extra>",
        )
    )  # fmt: skip
    chosen = np.random.default_rng(0).permutation(len(X))[:_MOST_DRAWN]
    labels = np.zeros(len(X), int) if y is None else np.asarray(y)
    if labels.dtype == object:  # None and NaN cannot be sorted among strings
        labels = np.array(["no label" if one is None or one != one else str(one) for one in labels.tolist()])
    for number, label in enumerate(np.unique(labels[chosen])):
        rows = chosen[labels[chosen] == label]
        figure.add_scatter(
            x=X[rows, a], y=X[rows, b], mode="markers", name=plain(label), showlegend=y is not None,
            marker={"size": 4, "opacity": 0.6, "color": "#333" if number == 0 else "#fff",
                    "line": {"width": 1, "color": "#333"}, "symbol": SYMBOLS[number % len(SYMBOLS)]},
        )  # fmt: skip
    if model.prototypes_ is not None and X.shape[1] == 2:
        inside = np.all((model.prototypes_ >= X.min(axis=0)) & (model.prototypes_ <= X.max(axis=0)), axis=1)
        drawn = model.prototypes_[inside]
        figure.add_scatter(
            x=drawn[:, a], y=drawn[:, b], mode="markers", name="prototypes",
            marker={"size": 14, "symbol": "circle-open", "color": "#000", "line": {"width": 3}},
        )  # fmt: skip
    figure.update_xaxes(range=[axes[0][0], axes[0][-1]])
    figure.update_yaxes(range=[axes[1][0], axes[1][-1]])
    return _layout(figure, x=plain(names[a]), y=plain(names[b]))
