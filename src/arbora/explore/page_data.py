"""The data of a page: the content of a model folder in columns, with no more documents than a browser can draw.

Text is not escaped here: `page` escapes the JSON, and the JavaScript of the page inserts text as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.contents.nodes import draw_sample

MOST_DOCUMENTS = 50_000
POSITION_SCALE = 1e-4  # unit of positions, which are written as integers: five characters instead of ten

_ABOUT = (
    "kind",
    "name",
    "arbora",
    "created",
    "settings",
    "estimator",
    "n_documents",
    "n_nodes",
    "n_features",
    "has_text",
    "multilabel",
)
_NODE_COLUMNS = ("name", "title", "parent", "size", "own", "words")
_OPTIONAL_NODE_COLUMNS = (
    "more_parents",
    "topic",
    "typical",
    "terms",
    "concentration",
    "new",
    "confidence",
    "states",
    "labels",
    "profile",
)
_DOCUMENT_COLUMNS = ("id", "text", "label", "node", "probability")
_OPTIONAL_DOCUMENT_COLUMNS = ("words", "time", "state")


def model_data(folder: Any, most_documents: int = MOST_DOCUMENTS, seed: int = 0) -> dict[str, Any]:
    """Make the data of one model.

    Parameters
    ----------
    folder : Folder or Content
        See `arbora.app.folder.open_folder`.
    most_documents : int
        If there are more documents, a random sample is kept, with a notice. Documents that nodes and confusions refer
        to are always kept.
    seed : int
        Random seed of the sample.

    Returns
    -------
    dict
        Values for JSON.
    """
    kept = kept_documents(folder, most_documents, seed)
    place = {int(old): new for new, old in enumerate(kept)}
    documents = [folder.documents[line] for line in kept.tolist()]
    about = {key: folder.about.get(key) for key in _ABOUT}
    about["notices"] = list(folder.about.get("notices") or ())
    if len(kept) < len(folder.documents):
        about["notices"].append(
            f"This page shows a random sample of {len(kept):,} of the {len(folder.documents):,} documents."
        )
    nodes = columns(folder.nodes, _NODE_COLUMNS, _OPTIONAL_NODE_COLUMNS)
    for name in ("documents", "borderline"):
        if name == "documents" or any(name in node for node in folder.nodes):
            nodes[name] = [_moved(node.get(name, ()), place) for node in folder.nodes]
    return {
        "about": about,
        "nodes": nodes,
        "documents": columns(documents, _DOCUMENT_COLUMNS, _OPTIONAL_DOCUMENT_COLUMNS),
        "positions": whole_positions(folder.positions[kept]),
        "nodePositions": whole_positions(folder.node_positions),
        "evaluation": _moved_evaluation(folder.evaluation, place),
        "time": folder.time,
        "expansion": _moved_expansion(folder.expansion, place),
    }


def kept_documents(folder: Any, most: int, seed: int) -> NDArray[np.int64]:
    """Choose the documents of a page: all that are referred to, and a random sample; ascending."""
    n_documents = len(folder.documents)
    if n_documents <= most:
        return np.arange(n_documents)
    needed = {
        line for node in folder.nodes for name in ("documents", "borderline") for line in node.get(name, ())
    }
    if folder.evaluation:
        needed |= {line for row in folder.evaluation["confusions"] for line in row["documents"]}
    if folder.expansion:
        proposals = (*folder.expansion["splits"], *folder.expansion["merges"])
        needed |= {line for one in proposals for side in one["documents"] for line in side}
    return draw_sample(n_documents, most, np.array(sorted(needed), np.int64), np.random.default_rng(seed))


def columns(rows: Sequence[dict[str, Any]], names: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    """Convert rows to columns; an optional column is included if any row has a value.

    Examples
    --------
    >>> columns([{"id": "a", "time": 3}, {"id": "b"}], ["id"], ["time", "words"])
    {'id': ['a', 'b'], 'time': [3, None]}
    """
    found = {name: [row.get(name) for row in rows] for name in (*names, *optional)}
    return {
        name: values
        for name, values in found.items()
        if name in names or any(value is not None for value in values)
    }


def whole_positions(positions: NDArray[Any]) -> list[int | None]:
    """Flatten positions to integers; None for NaN.

    Examples
    --------
    >>> whole_positions(np.array([[0.5, -0.25, np.nan]]))
    [5000, -2500, None]
    """
    flat = np.asarray(positions, np.float64).ravel() / POSITION_SCALE
    known = np.isfinite(flat)
    whole = np.rint(np.where(known, flat, 0.0)).astype(np.int64).tolist()
    return [value if there else None for value, there in zip(whole, known.tolist(), strict=True)]


def _moved(lines: Sequence[int], place: dict[int, int]) -> list[int]:
    return [place[line] for line in lines if line in place]


def _moved_evaluation(evaluation: dict[str, Any] | None, place: dict[int, int]) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    confusions = [{**row, "documents": _moved(row["documents"], place)} for row in evaluation["confusions"]]
    return {**evaluation, "confusions": confusions}


def _moved_expansion(expansion: dict[str, Any] | None, place: dict[int, int]) -> dict[str, Any] | None:
    if expansion is None:
        return None
    proposals = {
        key: [
            {**one, "documents": [_moved(side, place) for side in one["documents"]]} for one in expansion[key]
        ]
        for key in ("splits", "merges")
    }
    return {**expansion, **proposals}
