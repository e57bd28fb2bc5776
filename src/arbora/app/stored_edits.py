"""Edits of topics as data: lists that the page exports, applied to a model or to a model folder.

A file of edits is JSON, ``{"format": "arbora-edits", "version": 1, "edits": [...]}``. An edit is one of

- ``{"edit": "rename", "topic": 3, "title": "Banks"}``,
- ``{"edit": "merge", "topics": [3, 5]}``,
- ``{"edit": "split", "topic": 2, "n_topics": 2}``,

with the numbers that topics have when the edit is applied, after the edits before it.

An edited folder is described again from its own content: documents move with their topics, and sizes and words are
those of the edited model. The documents of the training are not read again; a split uses the texts that the folder
keeps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.app.contents.nodes import N_REPRESENTATIVES, N_WORDS, topic_titles
from arbora.app.contents.positions import mean_positions
from arbora.app.contents.topics import describe_time, topics_of, topics_text
from arbora.app.folder import Content, Folder, FolderError, open_folder, write_folder
from arbora.app.text_rows import feature_names
from arbora.app.topic_edits import Merge, columns_after
from arbora.app.topic_model import TopicModel
from arbora.arrays import Ints, Matrix

FORMAT, VERSION = "arbora-edits", 1
MOST_EDITS = 1_000
MOST_PARTS = 50  # of a split
_LONGEST_TITLE = 200
_FIELDS = {"rename": {"topic", "title"}, "merge": {"topics"}, "split": {"topic", "n_topics"}}
_ABOUT = ("name", "settings", "n_documents", "has_text", "multilabel", "notices")


def check_edits(given: Any) -> list[dict[str, Any]]:
    """Check that a value is a list of edits, or the content of a file of edits; return the list.

    Examples
    --------
    >>> check_edits([{"edit": "merge", "topics": [0, 1]}])
    [{'edit': 'merge', 'topics': [0, 1]}]
    >>> check_edits([{"edit": "burn", "topic": 1}])
    Traceback (most recent call last):
        ...
    ValueError: edit 1 must be one of rename, merge, split, got 'burn'
    """
    if isinstance(given, dict):
        if given.get("format") != FORMAT or given.get("version") != VERSION:
            raise ValueError(f"a file of edits has the format {FORMAT!r} and the version {VERSION}")
        given = given.get("edits")
    if not isinstance(given, list) or len(given) > MOST_EDITS:
        raise ValueError(f"edits are a list of at most {MOST_EDITS:,} objects")
    for number, edit in enumerate(given, start=1):
        kind = edit.get("edit") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or kind not in _FIELDS:
            raise ValueError(f"edit {number} must be one of {', '.join(_FIELDS)}, got {kind!r}")
        if set(edit) != {"edit", *_FIELDS[kind]}:
            raise ValueError(
                f"edit {number}, {kind}, needs {' and '.join(sorted(_FIELDS[kind]))}, nothing else"
            )
        if not isinstance(edit.get("topics", []), list):
            raise ValueError(f"edit {number}, {kind}: topics are a list of numbers")
        numbers = [*edit.get("topics", []), *(edit[key] for key in ("topic", "n_topics") if key in edit)]
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in numbers):
            raise ValueError(f"edit {number}: topics are whole numbers")
        if kind == "rename" and not (isinstance(edit["title"], str) and len(edit["title"]) <= _LONGEST_TITLE):
            raise ValueError(f"edit {number}: a title is a text of at most {_LONGEST_TITLE} characters")
        if kind == "split" and not 2 <= edit["n_topics"] <= MOST_PARTS:
            raise ValueError(f"edit {number}: a topic is split into 2 to {MOST_PARTS} topics")
    return given


def read_edits(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read a file of edits.

    Parameters
    ----------
    path : path

    Returns
    -------
    list of dict
    """
    try:
        return check_edits(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of edits: {error}") from error


def apply_edits(model: TopicModel, edits: Sequence[dict[str, Any]], texts: Any = None) -> TopicModel:
    """Apply edits to a fitted model, in place.

    Parameters
    ----------
    model : fitted TopicModel
    edits : list of dict
        See `check_edits`.
    texts : sequence of str, optional
        Texts for splits.

    Returns
    -------
    TopicModel

    Examples
    --------
    >>> texts = ["fish swim in the sea", "fish in the deep sea", "old trees grow", "trees grow old"] * 5
    >>> model = TopicModel(2, random_state=0).fit(texts)
    >>> apply_edits(model, [{"edit": "rename", "topic": 0, "title": "first"}]).titles()[0]
    'first'
    """
    for number, edit in enumerate(check_edits(list(edits)), start=1):
        try:
            if edit["edit"] == "rename":
                model.rename(edit["topic"], edit["title"])
            elif edit["edit"] == "merge":
                model.merge(edit["topics"])
            elif texts is None:
                raise ValueError("a split needs texts of the topic")
            else:
                model.split(edit["topic"], texts, edit["n_topics"])
        except ValueError as error:
            raise ValueError(f"edit {number}, {edit['edit']}: {error}") from error
    return model


def edit_folder(path: str | os.PathLike[str], edits: Sequence[dict[str, Any]]) -> Folder:
    """Apply edits to the topic model of a folder and write the folder again, completely or not at all.

    Parameters
    ----------
    path : path
    edits : list of dict

    Returns
    -------
    Folder
        The new content.
    """
    write_folder(path, edited_content(open_folder(path), edits))
    return open_folder(path)


def edited_content(
    folder: Folder, edits: Sequence[dict[str, Any]], kept: dict[str, Any] | None = None
) -> Content:
    """Describe the topic model of a folder after some edits. The folder is not changed.

    Parameters
    ----------
    folder : Folder
    edits : list of dict
    kept : dict, optional
        ``folder.load_model()``, if it is loaded already; not changed.

    Returns
    -------
    Content
    """
    kept = folder.load_model() if kept is None else kept
    before = kept.get("topic_model")
    if not isinstance(before, TopicModel) or any("topic" not in node for node in _leaves(folder.nodes)):
        raise FolderError(f"{folder.path} holds no topic model whose topics can be edited")
    texts = [document["text"] for document in folder.documents]
    model = apply_edits(deepcopy(before), edits, texts)
    node_of = np.array([node.get("topic", -1) for node in folder.nodes])
    topics = node_of[[document["node"] for document in folder.documents]]
    sizes = np.zeros(before.n_topics_)
    for node in folder.nodes:
        if "topic" in node:
            sizes[node["topic"]] = node["size"]
    topics, sizes = _moved(model, len(before.edits_), topics, sizes, texts)
    return _content(folder, kept, model, topics, sizes)


def _leaves(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    inner = {node["parent"] for node in nodes}
    return [node for node in nodes if node["id"] not in inner]


def _moved(
    model: TopicModel, done: int, topics: Ints, sizes: Matrix, texts: Sequence[str]
) -> tuple[Ints, Matrix]:
    """Move documents and sizes by the edits after the first `done`; a split divides as it does the documents."""
    for edit in model.edits_[done:]:
        groups = columns_after(edit, len(sizes))
        if isinstance(edit, Merge):
            place = {old: new for new, group in enumerate(groups) for old in group}
            topics = np.array([place[topic] for topic in topics.tolist()], np.int64)
            sizes = np.array([sizes[group].sum() for group in groups])
            continue
        n_parts, own = len(edit.mixture.weights_), np.flatnonzero(topics == edit.topic)
        parts = np.zeros(len(own), np.int64)
        if len(own):
            parts = np.maximum(edit.mixture.predict(model._rows([texts[row] for row in own.tolist()])), 0)
        share = np.bincount(parts, minlength=n_parts) / max(1, len(own))
        new = np.rint(sizes[edit.topic] * share)
        new[0] += sizes[edit.topic] - new.sum()
        topics = topics + np.where(topics > edit.topic, n_parts - 1, 0)
        topics[own] = edit.topic + parts
        sizes = np.concatenate([sizes[: edit.topic], new, sizes[edit.topic + 1 :]])
    return topics, sizes


def _content(folder: Folder, kept: dict[str, Any], model: TopicModel, topics: Ints, sizes: Matrix) -> Content:
    estimator = model.topics_
    words, terms, leaves = model._node_words(estimator)
    found = topics_of(estimator, sp.csr_array((0, estimator.n_features_in_)))
    tree, titles = found.tree, topic_titles(found.tree, words)
    for topic, title in model.names_.items():
        titles[leaves[topic]] = title
    own = np.zeros(tree.n_nodes)
    own[leaves] = sizes
    below: Any = tree.ancestor_matrix.astype(np.float64)
    size = np.asarray(below.T @ own).ravel()
    node_of = np.asarray(leaves)[topics]
    members: Any = sp.csr_array(below[node_of])
    # Documents that represented topics before come first.
    listed = [line for node in _leaves(folder.nodes) for line in node["documents"]]
    order = [*listed, *range(len(topics))]
    first = np.full(len(topics), len(order))
    np.minimum.at(first, order, np.arange(len(order)))
    columns = sp.csc_array(members)
    nodes = []
    for node, name in enumerate(tree.names.tolist()):
        parents = tree.parent_indices[tree.parent_indptr[node] : tree.parent_indptr[node + 1]].tolist()
        lines = columns.indices[columns.indptr[node] : columns.indptr[node + 1]]
        lines = lines[np.argsort(first[lines], kind="stable")][:N_REPRESENTATIVES]
        nodes.append(
            {
                "id": node,
                "name": str(name),
                "title": titles[node],
                "parent": parents[0] if parents else None,
                "depth": int(tree.depth[node]),
                "size": int(size[node]),
                "own": int(own[node]),
                "share": float(size[node] / max(1, folder.about["n_documents"])),
                "words": [[word, round(weight, 6)] for word, weight in words[node][:N_WORDS]],
                "documents": lines.tolist(),
                "terms": terms[node],
            }
        )
    for topic, node in enumerate(leaves):
        nodes[node]["topic"] = topic
    documents = [
        {**document, "node": int(node)} for document, node in zip(folder.documents, node_of, strict=True)
    ]
    about = {key: folder.about[key] for key in _ABOUT if key in folder.about}
    return Content(
        folder.kind,
        about,
        {**kept, "estimator": estimator, "topic_model": model},
        nodes,
        documents,
        folder.positions,
        mean_positions(members, folder.positions),
        report=topics_text(nodes),
        time=_time(folder, model, estimator, leaves),
    )


def _time(folder: Folder, model: TopicModel, estimator: Any, leaves: list[int]) -> dict[str, Any] | None:
    if folder.time is None:
        return None
    names = model.feature_names_ or feature_names(None, model.vectorizer_, estimator.n_features_in_)
    found = describe_time(estimator, folder.time["field"], None, np.asarray(leaves), names)
    return {**found, "bins": folder.time["bins"]}
