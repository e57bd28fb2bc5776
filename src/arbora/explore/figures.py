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
from numpy.typing import ArrayLike, NDArray

from arbora.app.contents.fitted_model import model_content
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


def _layout(figure: Any, *, x: str = "", y: str = "", **more: Any) -> Any:
    figure.update_layout(
        template="plotly_white",
        font={"family": _FONT, "size": 13},
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"borderwidth": 0},
        **more,
    )
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure


def plain(text: Any, length: int = _TITLE) -> str:
    """Escape and shorten a text of the user.

    Examples
    --------
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
    share = (distance - distance.min()) / max(float(np.ptp(distance)), np.finfo(float).tiny)
    figure = go.Figure()
    for at, grey in zip(positions, (250 - 150 * share).astype(int).tolist(), strict=True):
        path = "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in at + cell) + "Z"
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
    positions: NDArray[Any], radius: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any], k: int
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


def topics_over_time(what: Any, *, words: Sequence[str] | None = None, most: int = 12) -> Any:
    """Draw the shares of topics over time, stacked.

    Parameters
    ----------
    what : Folder or fitted TemporalVMFMixture
        A model folder of topics over time, or the model itself.
    words : sequence of n_features names, optional
        Names of the columns, for the titles of the topics of a model; a folder has its own.
    most : int
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
    drawn = [(titles[k], shares[k]) for k in order[:most].tolist()]
    if len(order) > most:
        drawn.append((f"{len(order) - most} others", shares[order[most:]].sum(axis=0)))
    figure = go.Figure()
    names = [one["name"] for one in time["bins"]]
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


def remainders(parents: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the figure of each node without the shares of its children.

    Children divide the share of their parent in proportion to their counts. If their counts add up to more than that
    of the parent, as with documents of several labels, they are scaled.

    Examples
    --------
    >>> remainders(np.array([-1, 0, 0]), np.array([4.0, 2.0, 1.0]))
    array([0.25, 0.5 , 0.25])
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
    at, waiting = above, inner.copy()
    while waiting.any():  # once per level
        value[waiting] *= part[at[waiting]]
        waiting &= parents[at] >= 0
        at = np.where(waiting, parents[at], at)
    return np.maximum(0.0, value - np.bincount(parents[inner], value[inner], len(parents)))


def _branch_colours(parents: NDArray[np.int64]) -> list[str]:
    """Colour of the branch of each node; the branches are the children of the only root, or the roots."""
    roots = np.flatnonzero(parents < 0)
    tops = np.flatnonzero(parents == roots[0]) if len(roots) == 1 else roots
    colour = np.full(len(parents), "#eef0f3", dtype=object)
    branch = np.full(len(parents), -1)
    branch[tops] = np.arange(len(tops))
    at = np.arange(len(parents))
    while True:  # once per level
        open_ = (branch[at] < 0) & (parents[at] >= 0)
        if not open_.any():
            break
        at = np.where(open_, parents[at], at)
    found = branch[at]
    colour[found >= 0] = np.array(COLOURS, object)[found[found >= 0] % len(COLOURS)]
    return list(colour)


def _first_parents(hierarchy: Hierarchy) -> NDArray[np.int64]:
    """Find the deepest parent of each node; -1 for roots."""
    parents = np.full(hierarchy.n_nodes, -1, np.int64)
    child = np.repeat(np.arange(hierarchy.n_nodes), np.diff(hierarchy.parent_indptr))
    order = np.lexsort((-hierarchy.depth[hierarchy.parent_indices], child))
    child, first = np.unique(child[order], return_index=True)
    parents[child] = hierarchy.parent_indices[order][first]
    return parents


def _sizes_of(hierarchy: Hierarchy, sizes: ArrayLike | None) -> NDArray[np.float64]:
    if sizes is None:
        # The number of leaves at or below each node.
        leaves = hierarchy.ancestor_matrix[hierarchy.leaf_ids]
        return np.asarray(leaves.sum(axis=0), np.float64).ravel()
    counts = np.asarray(sizes, np.float64)
    if counts.shape != (hierarchy.n_nodes,):
        raise ValueError(f"sizes has shape {counts.shape}, but the hierarchy has {hierarchy.n_nodes} nodes")
    return counts
