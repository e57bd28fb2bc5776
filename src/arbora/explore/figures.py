"""Plotly figures: one call, one figure.

========================  =============================================================================
`convergence`             a column of the traces of one or more fits (one fit: ``trace.plot()``)
`learning_curve`          scores by number of training documents
`reliability_diagram`     accuracy of predictions by confidence
`self_organizing_map`     units of a map: classes of their rows, distances from their neighbours
`topics_over_time`        shares of topics, stacked
`tree`                    a hierarchy or the tree of a model folder, with zoom
========================  =============================================================================

Dashes, symbols or patterns repeat what colours show. Text is escaped, because Plotly interprets a few HTML tags.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import dendrogram, leaves_list, linkage
from scipy.spatial.distance import squareform

from arbora.app.contents.fitted_model import model_content
from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.trace import LOG_COLUMNS
from arbora.structure import Hierarchy

COLOURS = ("#4269d0", "#e69f00", "#e2604b", "#2f9e8f", "#a463f2", "#8a6d3b", "#e377b4", "#5aa0dc")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
PATTERNS = ("", "/", ".", "-", "x", "\\", "+", "|")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_TITLE = 40  # characters of a name in a legend


def _graph_objects() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ImportError("figures need plotly: pip install arbora[explore]") from error
    return go


def _layout(figure: Any, *, x: str = "", y: str = "", **options: Any) -> Any:
    figure.update_layout(
        template="plotly_white",
        font={"family": _FONT, "size": 13},
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"borderwidth": 0},
        **options,
    )
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure


def plain(text: Any, length: int = _TITLE) -> str:
    """Escape and shorten a text of the user.

    >>> plain("a <b> & c")
    'a &lt;b&gt; &amp; c'
    """
    text = str(text)
    return html.escape(text if len(text) <= length else text[: length - 1] + "…", quote=False)


def _named(values: Any) -> dict[str, Any]:
    return dict(values) if isinstance(values, Mapping) else {"": values}


def _styles(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, name in enumerate(names):
        yield (
            name,
            {
                "name": plain(name),
                "showlegend": bool(name),
                "line": {"color": COLOURS[i % len(COLOURS)], "dash": DASHES[i % len(DASHES)], "width": 2},
                "marker": {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
            },
        )


def convergence(traces: Any, *, x: str = "seconds", y: str = "objective") -> Any:
    """Draw a column of the traces of one or more fits.

    Parameters
    ----------
    traces : Trace or mapping of str to Trace
        Such as ``model.trace_``.
    x : str
        Column of the horizontal axis, or "iteration".
    y : str
        Column of the vertical axis; positive gaps, gains and changes are drawn on a logarithmic axis.

    Returns
    -------
    plotly.graph_objects.Figure

    Examples
    --------
    >>> from arbora.core.trace import Trace
    >>> trace = Trace()
    >>> for gap in (1.0, 0.1, 0.01):
    ...     trace.append(gap=gap)
    >>> len(convergence({"flat": trace}, x="iteration", y="gap").data)
    1
    """
    go, lines = _graph_objects(), _named(traces)
    figure = go.Figure()
    smallest = np.inf
    for name, style in _styles(list(lines)):
        trace = lines[name]
        values = trace[y]
        horizontal = np.arange(len(trace)) if x == "iteration" else trace[x]
        smallest = min(smallest, float(np.nanmin(values, initial=np.inf)))
        figure.add_scatter(x=horizontal, y=values, mode="lines", **style)
    figure.update_yaxes(type="log" if y in LOG_COLUMNS and smallest > 0 else "linear")
    return _layout(figure, x=x, y=y)


def learning_curve(
    sizes: ArrayLike, scores: Any, *, x: str = "training documents", y: str = "macro-F1"
) -> Any:
    """Draw scores by number of training documents.

    Parameters
    ----------
    sizes : array-like of shape (n_sizes,)
    scores : array-like of shape (n_sizes,) or (n_sizes, n_repeats), or a mapping of names to such
        Repeats are drawn as their mean with error bars of one standard error.
    x, y : str
        Names of the axes.

    Returns
    -------
    plotly.graph_objects.Figure
        Sizes are on a logarithmic axis.

    Examples
    --------
    >>> figure = learning_curve([10, 100], {"flat": [0.4, 0.6], "recursive": [[0.5, 0.52], [0.61, 0.63]]})
    >>> figure.data[1].y
    array([0.51, 0.62])
    """
    go, curves = _graph_objects(), _named(scores)
    sizes = np.asarray(sizes)
    figure = go.Figure()
    for name, style in _styles(list(curves)):
        values = np.asarray(curves[name], np.float64)
        if len(values) != len(sizes):
            raise ValueError(
                f"{len(values)} scores of {name!r} for {len(sizes)} sizes: give one row per size"
            )
        errors = None
        if values.ndim == 2:
            n_repeats = values.shape[1]
            spread = values.std(axis=1, ddof=1) if n_repeats > 1 else np.zeros(len(values))
            errors = {"array": spread / np.sqrt(n_repeats), "thickness": 1.2}
            values = values.mean(axis=1)
        figure.add_scatter(x=sizes, y=values, error_y=errors, mode="lines+markers", **style)
    figure.update_xaxes(type="log", tickvals=sizes)
    return _layout(figure, x=x, y=y)


def reliability_diagram(curves: Any) -> Any:
    """Draw the accuracy of predictions by their confidence.

    Parameters
    ----------
    curves : ReliabilityCurve, the "reliability" of an evaluation, a model folder, or a mapping of names to curves
        See `arbora.metrics.reliability_curve`.

    Returns
    -------
    plotly.graph_objects.Figure
        On the dotted line, predictions with a confidence of 80% are right 80% of the time. Larger dots have more
        documents.

    Examples
    --------
    >>> from arbora.metrics import reliability_curve
    >>> figure = reliability_diagram(reliability_curve([1, 0, 1, 1], [0.9, 0.2, 0.8, 0.3], n_bins=2))
    >>> figure.data[1].y
    array([0.5, 1. ])
    """
    go = _graph_objects()
    if hasattr(curves, "evaluation"):
        curves = (curves.evaluation or {}).get("reliability")
        if curves is None:
            raise ValueError("this model folder has no reliability curve: its model gives no probabilities")
    named = {"": curves} if hasattr(curves, "confidence") or "confidence" in curves else dict(curves)
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", line={"dash": "dot", "color": "#8a919e", "width": 1}, showlegend=False
    )  # fmt: skip
    for name, style in _styles(list(named)):
        curve = named[name]
        as_given = curve if isinstance(curve, Mapping) else curve._asdict()
        counts = np.asarray(as_given.get("n_rows", as_given.get("n_documents")), np.float64)
        style["marker"]["size"] = 6 + 22 * np.sqrt(counts / max(1.0, counts.sum()))
        style["customdata"] = counts
        figure.add_scatter(
            x=np.asarray(as_given["confidence"]),
            y=np.asarray(as_given["accuracy"]),
            mode="lines+markers",
            hovertemplate="confidence %{x:.1%}<br>accuracy %{y:.1%}<br>%{customdata:,} documents",
            **style,
        )
    figure.update_xaxes(range=[0, 1.03], tickformat=".0%")
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    return _layout(figure, x="confidence", y="accuracy")


def self_organizing_map(model: Any) -> Any:
    """Draw a self-organising map: a cell for each unit, with the shares of the classes of its rows.

    Parameters
    ----------
    model : fitted SelfOrganizingMap
        With `y`, each unit has a pie of the classes of its rows, larger with more rows.

    Returns
    -------
    plotly.graph_objects.Figure
        The darker a cell, the farther its model vector is from those of its neighbours (U-matrix): dark ridges
        separate groups of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import SelfOrganizingMap
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = SelfOrganizingMap((3, 4)).fit(X, np.where(X[:, 0] > 0, "right", "left"))
    >>> [trace.name for trace in self_organizing_map(model).data[1:]]
    ['left', 'right']
    """
    go, positions = _graph_objects(), np.asarray(model.positions_)
    n_corners = 6 if model.grid == "hexagonal" else 4
    corners = 2 * np.pi * (np.arange(n_corners) + 0.5) / n_corners
    cell = np.column_stack([np.cos(corners), np.sin(corners)]) / (2 * np.cos(np.pi / n_corners))
    distance = np.asarray(model.unit_distances_)
    share = (distance - distance.min()) / max(float(np.ptp(distance)), TINY)
    figure = go.Figure()
    for position, grey in zip(positions, (250 - 150 * share).astype(int).tolist(), strict=True):
        path = "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in position + cell) + "Z"
        colour = f"rgb({grey},{grey},{grey})"
        figure.add_shape(
            type="path", path=path, fillcolor=colour, line={"color": "white", "width": 1}, layer="below"
        )
    figure.add_scatter(
        x=positions[:, 0], y=positions[:, 1], mode="markers", marker={"size": 18, "opacity": 0},
        text=[_unit_text(model, unit) for unit in range(len(positions))], hoverinfo="text", showlegend=False,
    )  # fmt: skip
    shares = getattr(model, "class_shares_", None)
    if shares is not None:
        counts = np.asarray(model.unit_counts_, np.float64)
        radius = np.where(np.isnan(shares[:, 0]), 0.0, 0.45 * (counts / max(1.0, counts.max())) ** 0.5)
        ends = np.cumsum(np.nan_to_num(shares), axis=1)
        for k, name in enumerate(model.classes_.tolist()):
            x, y = _wedges(positions, np.maximum(radius, 0.12 * (radius > 0)), ends - shares, ends, k)
            colour = COLOURS[k % len(COLOURS)]
            figure.add_scatter(
                x=x, y=y, name=plain(name), mode="lines", fill="toself", hoverinfo="skip",
                line={"color": colour, "width": 0.5}, fillcolor=colour,
                fillpattern={"shape": PATTERNS[k % len(PATTERNS)], "size": 5, "solidity": 0.25},
            )  # fmt: skip
    figure.update_xaxes(visible=False, constrain="domain")
    figure.update_yaxes(visible=False, scaleanchor="x")
    return _layout(figure)


def _wedges(
    positions: Matrix, radius: Matrix, starts: Matrix, ends: Matrix, k: int
) -> tuple[list[Any], list[Any]]:
    """Outlines of the wedges of class k in the pies of all units, separated by None."""
    x: list[Any] = []
    y: list[Any] = []
    for unit in np.flatnonzero((radius > 0) & (ends[:, k] > starts[:, k])).tolist():
        angle = np.pi / 2 - 2 * np.pi * np.linspace(starts[unit, k], ends[unit, k], 24)
        centre, size = positions[unit], radius[unit]
        middle = [] if ends[unit, k] - starts[unit, k] > 1 - 1e-9 else [centre]
        points = [*middle, *(centre + size * np.column_stack([np.cos(angle), np.sin(angle)])), *middle]
        x += [float(point[0]) for point in points] + [None]
        y += [float(point[1]) for point in points] + [None]
    return x, y


def _unit_text(model: Any, unit: int) -> str:
    """Describe a unit: rows, largest classes, distance from its neighbours."""
    lines = [f"unit {unit}: {int(model.unit_counts_[unit]):,} rows"]
    shares = getattr(model, "class_shares_", None)
    if shares is not None and not np.isnan(shares[unit, 0]):
        order = [k for k in np.argsort(-shares[unit], kind="stable")[:4].tolist() if shares[unit, k] > 0]
        lines += [f"{plain(model.classes_[k])}: {shares[unit, k]:.0%}" for k in order]
    return "<br>".join([*lines, f"distance from neighbours: {model.unit_distances_[unit]:.3g}"])


def topics_over_time(what: Any, *, words: Sequence[str] | None = None, max_topics: int = 12) -> Any:
    """Draw the shares of topics over time, stacked.

    Parameters
    ----------
    what : Folder or fitted TemporalVMFMixture
        A model folder of topics over time, or the model itself.
    words : sequence of n_features names, optional
        Names of the columns, for the titles of the topics of a model; a folder has its own.
    max_topics : int
        Number of topics to draw, the largest first; the others are one band.

    Returns
    -------
    plotly.graph_objects.Figure

    Examples
    --------
    >>> from arbora.discover import TemporalVMFMixture
    >>> X = [[1.0, 0.1], [0.1, 1.0], [0.9, 0.2], [0.8, 0.1]]
    >>> model = TemporalVMFMixture(2, random_state=0).fit(X, [1999, 1999, 2000, 2000])
    >>> figure = topics_over_time(model, words=["fish", "tree"])
    >>> sorted(band.name for band in figure.data), list(figure.data[0].x)
    (['fish, tree', 'tree, fish'], ['1999', '2000'])
    """
    go = _graph_objects()
    folder = what if hasattr(what, "time") else model_content(what, words=words)
    time = folder.time
    if time is None:
        raise ValueError("there are no topics over time: make them with arbora discover --over-time")
    shares = np.array(time["shares"], np.float64)  # None becomes NaN
    titles = [folder.nodes[node]["title"] for node in time["nodes"]]
    order = np.argsort(-np.nansum(shares, axis=1), kind="stable")
    drawn = [(titles[k], shares[k]) for k in order[:max_topics].tolist()]
    if len(order) > max_topics:
        drawn.append((f"{len(order) - max_topics} others", shares[order[max_topics:]].sum(axis=0)))
    figure = go.Figure()
    names = [entry["name"] for entry in time["bins"]]
    for i, (title, values) in enumerate(drawn):
        figure.add_scatter(
            x=names,
            y=values,
            name=plain(title),
            stackgroup="shares",
            mode="lines",
            line={"color": COLOURS[i % len(COLOURS)], "width": 1},
            fillpattern={"shape": PATTERNS[i % len(PATTERNS)], "size": 7, "solidity": 0.25},
            hovertemplate="%{x}: %{y:.1%}",
        )
    figure.update_xaxes(type="category")
    figure.update_yaxes(tickformat=".0%")
    return _layout(figure, x=time["field"], y="share of the documents", legend_traceorder="reversed")


def tree(what: Any, sizes: ArrayLike | None = None, *, levels: int = 3) -> Any:
    """Draw a hierarchy as an icicle; a click zooms in.

    Parameters
    ----------
    what : Hierarchy or Folder
    sizes : array-like of shape (n_nodes,), optional
        Documents at or below each node of a hierarchy; by default its number of leaves. A folder has its own.
    levels : int
        Levels to draw below the current node.

    Returns
    -------
    plotly.graph_objects.Figure
        A node with several parents is drawn below the deepest one.

    Examples
    --------
    >>> figure = tree(Hierarchy.from_paths(["a/b", "a/c"]), sizes=[3, 2, 1])
    >>> list(figure.data[0].labels)
    ['a', 'a/b', 'a/c']
    """
    go = _graph_objects()
    if isinstance(what, Hierarchy):
        titles, parents, counts = what.names.tolist(), _first_parents(what), _sizes_of(what, sizes)
    else:
        titles = [node["title"] for node in what.nodes]
        parents = np.array(
            [-1 if node["parent"] is None else node["parent"] for node in what.nodes], np.int64
        )
        counts = np.array([node["size"] for node in what.nodes], np.float64)
    figure = go.Figure(
        go.Icicle(
            ids=[str(node) for node in range(len(titles))],
            parents=["" if parent < 0 else str(parent) for parent in parents.tolist()],
            labels=[plain(title) for title in titles],
            values=remainders(parents, counts),
            branchvalues="remainder",
            customdata=counts,
            maxdepth=levels + 1,
            texttemplate="%{label}  %{customdata:,}",
            hovertemplate="%{label}<br>%{customdata:,}<extra></extra>",
            tiling={"orientation": "h", "pad": 1.5},
            marker={"colors": _branch_colours(parents), "line": {"width": 1, "color": "white"}},
        )
    )
    return _layout(figure, uniformtext={"minsize": 10, "mode": "hide"}).update_layout(
        margin={"l": 8, "r": 8, "t": 30, "b": 8}
    )


def remainders(parents: Ints, counts: Array) -> Array:
    """Return the share of the figure of each node without the shares of its children.

    Children divide the share of their parent in proportion to their counts. If their counts add up to more than that
    of the parent, as with documents of several labels, they are scaled.
    """
    inner = parents >= 0
    below = np.bincount(parents[inner], counts[inner], len(parents))
    whole = np.maximum(counts, below)
    n_children = np.bincount(parents[inner], minlength=len(parents))
    above = np.where(inner, parents, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(whole[above] > 0, counts / whole[above], 1 / n_children[above])
    roots = counts[~inner].sum()
    part[~inner] = counts[~inner] / roots if roots > 0 else 1 / max(1, (~inner).sum())
    value = part.copy()
    nodes, waiting = above, inner.copy()
    while waiting.any():  # once per level
        value[waiting] *= part[nodes[waiting]]
        waiting &= parents[nodes] >= 0
        nodes = np.where(waiting, parents[nodes], nodes)
    return np.maximum(0.0, value - np.bincount(parents[inner], value[inner], len(parents)))


def _branch_colours(parents: Ints) -> list[str]:
    """Colour of the branch of each node; the branches are the children of the only root, or the roots."""
    roots = np.flatnonzero(parents < 0)
    tops = np.flatnonzero(parents == roots[0]) if len(roots) == 1 else roots
    colour = np.full(len(parents), "#eef0f3", dtype=object)
    branch = np.full(len(parents), -1)
    branch[tops] = np.arange(len(tops))
    nodes = np.arange(len(parents))
    while True:  # once per level
        open_ = (branch[nodes] < 0) & (parents[nodes] >= 0)
        if not open_.any():
            break
        nodes = np.where(open_, parents[nodes], nodes)
    branches = branch[nodes]
    colour[branches >= 0] = np.array(COLOURS, object)[branches[branches >= 0] % len(COLOURS)]
    return list(colour)


def _first_parents(hierarchy: Hierarchy) -> Ints:
    """Find the deepest parent of each node; -1 for roots."""
    parents = np.full(hierarchy.n_nodes, -1, np.int64)
    child = np.repeat(np.arange(hierarchy.n_nodes), np.diff(hierarchy.parent_indptr))
    order = np.lexsort((-hierarchy.depth[hierarchy.parent_indices], child))
    child, first = np.unique(child[order], return_index=True)
    parents[child] = hierarchy.parent_indices[order][first]
    return parents


def _sizes_of(hierarchy: Hierarchy, sizes: ArrayLike | None) -> Array:
    if sizes is None:
        # The number of leaves at or below each node.
        leaves = hierarchy.ancestor_matrix[hierarchy.leaf_ids]
        return np.asarray(leaves.sum(axis=0), np.float64).ravel()
    counts = np.asarray(sizes, np.float64)
    if counts.shape != (hierarchy.n_nodes,):
        raise ValueError(f"sizes has shape {counts.shape}, but the hierarchy has {hierarchy.n_nodes} nodes")
    return counts


# --- Figures of discriminative clusters: heat map of labels, cost against distortion, cells of two features ---
#
# ========================  =============================================================================
# `label_heat_map`          share of each label in each cluster (Figure 6.5 of Klami's thesis)
# `cost_plane`              cost of the labels against squared distances (Figure 6.3)
# `cells_of_two_features`   cells, rows and prototypes (Figure 6.1)
# ========================  =============================================================================


_MAX_DRAWN = 2000  # rows in a picture of cells
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
    chosen = np.random.default_rng(0).permutation(len(X))[:_MAX_DRAWN]
    labels = np.zeros(len(X), int) if y is None else np.asarray(y)
    if labels.dtype == object:  # None and NaN cannot be sorted among strings
        labels = np.array(
            ["no label" if label is None or label != label else str(label) for label in labels.tolist()]
        )
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


# --- Plotly figures of a posterior over partitions: which rows belong together, and which clusters could be one ---
#
# ========================  =============================================================================
# `similarity_matrix`       shares of draws in which two rows are in one cluster, rows sorted by cluster
# `merge_tree`              the tree of merges of the clusters, by their mean similarity
# ========================  =============================================================================


_SCALE = ((0.0, "#ffffff"), (0.25, "#d5e1f5"), (0.5, "#8fb0e3"), (1.0, "#1d3f8f"))


def similarity_matrix(model: Any, *, max_rows: int = 400) -> Any:
    """Draw the similarity matrix of a fitted mixture: dark where two rows are in one cluster in most draws.

    Lines separate the clusters of `labels_`, which are in the order of the tree of merges. Within a cluster, rows
    that are together in more draws are nearer, so that groups inside a cluster show as blocks.

    Parameters
    ----------
    model : fitted DirichletProcessGaussianMixture or MaxMarginGaussianMixture
    max_rows : int
        Rows to draw, spread evenly over the clusters.

    Returns
    -------
    plotly.graph_objects.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.discover import DirichletProcessGaussianMixture
    >>> X = np.random.default_rng(0).normal([[-5.0], [5.0]] * 20, 1.0)
    >>> model = DirichletProcessGaussianMixture(sampling={"n_samples": 20}, random_state=0).fit(X)
    >>> similarity_matrix(model).data[0].z.shape
    (40, 40)
    """
    go = _graph_objects()
    rank = np.empty(model.n_clusters_, np.int64)
    rank[_leaf_order(model)] = np.arange(model.n_clusters_)
    order = np.lexsort((np.arange(len(model.labels_)), rank[model.labels_]))
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(max_rows, len(order))).astype(np.int64))]
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
    for start in starts.tolist():
        figure.add_shape(type="line", x0=start, x1=start, y0=-0.5, y1=len(labels) - 0.5, line=line)
        figure.add_shape(type="line", y0=start, y1=start, x0=-0.5, x1=len(labels) - 0.5, line=line)
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
    >>> model = DirichletProcessGaussianMixture(sampling={"n_samples": 20}, random_state=0).fit(X)
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
