"""Edit the topic model of a model folder, with the edits that the page exports (`arbora.app.topic_edits`).

An edited folder is described again from its own content: documents move with their topics, and sizes and words are
those of the edited model. The documents of the training are not read again; a split uses the texts that the folder
keeps.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.app.contents.nodes import N_REPRESENTATIVES, NodeCounts, describe_nodes, topic_titles
from arbora.app.contents.positions import mean_positions
from arbora.app.contents.topics import describe_time, topic_words, topics_of, topics_text
from arbora.app.folder import Content, Folder, FolderError, open_folder, write_folder
from arbora.app.text_rows import feature_names
from arbora.app.topic_edits import Merge, columns_after
from arbora.app.topic_model import TopicModel
from arbora.arrays import Ints, Matrix

_ABOUT = ("name", "settings", "n_documents", "has_text", "multilabel", "notices")


def edit_folder(path: str | os.PathLike[str], edits: Sequence[dict[str, Any]]) -> Folder:
    """Apply edits to the topic model of a folder and write the folder again, completely or not at all."""
    write_folder(path, edited_content(open_folder(path), edits))
    return open_folder(path)


def edited_content(
    folder: Folder, edits: Sequence[dict[str, Any]], saved: dict[str, Any] | None = None
) -> Content:
    """Describe the topic model of a folder after some edits. The folder is not changed.

    `saved` is ``folder.load_model()``, if it is loaded already; it is not changed.
    """
    saved = folder.load_model() if saved is None else saved
    before = saved.get("topic_model")
    if not isinstance(before, TopicModel) or any("topic" not in node for node in _leaves(folder.nodes)):
        raise FolderError(f"{folder.path} holds no topic model whose topics can be edited")
    texts = [document["text"] for document in folder.documents]
    model = deepcopy(before).apply_edits(list(edits), texts)
    node_of = np.array([node.get("topic", -1) for node in folder.nodes])
    topics = node_of[[document["node"] for document in folder.documents]]
    sizes = np.zeros(before.n_topics_)
    for node in folder.nodes:
        if "topic" in node:
            sizes[node["topic"]] = node["size"]
    topics, sizes = _moved(model, len(before.edits_), topics, sizes, texts)
    return _content(folder, saved, model, topics, sizes)


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
        n_parts, members = len(edit.mixture.weights_), np.flatnonzero(topics == edit.topic)
        parts = np.zeros(len(members), np.int64)
        if len(members):
            parts = np.maximum(edit.mixture.predict(model.rows([texts[row] for row in members.tolist()])), 0)
        share = np.bincount(parts, minlength=n_parts) / max(1, len(members))
        new = np.rint(sizes[edit.topic] * share)
        new[0] += sizes[edit.topic] - new.sum()
        topics = topics + np.where(topics > edit.topic, n_parts - 1, 0)
        topics[members] = edit.topic + parts
        sizes = np.concatenate([sizes[: edit.topic], new, sizes[edit.topic + 1 :]])
    return topics, sizes


def _content(
    folder: Folder, saved: dict[str, Any], model: TopicModel, topics: Ints, sizes: Matrix
) -> Content:
    estimator = model.topics_
    words = topic_words(estimator, model.topic_forms())
    tree = topics_of(estimator, sp.csr_array((0, estimator.n_features_in_))).tree
    titles = topic_titles(tree, words.words)
    for topic, title in model.names_.items():
        titles[words.leaves[topic]] = title
    own = np.zeros(tree.n_nodes)
    own[words.leaves] = sizes
    below: Any = tree.ancestor_matrix.astype(np.float64)
    size = np.asarray(below.T @ own).ravel()
    node_of = words.leaves[topics]
    members: Any = sp.csr_array(below[node_of])
    # Documents that represented topics before come first.
    listed = [line for node in _leaves(folder.nodes) for line in node["documents"]]
    order = [*listed, *range(len(topics))]
    first = np.full(len(topics), len(order))
    np.minimum.at(first, order, np.arange(len(order)))
    representatives = []
    for lines in np.split(members.tocsc().indices, members.tocsc().indptr[1:-1]):
        representatives.append(lines[np.argsort(first[lines], kind="stable")][:N_REPRESENTATIVES].tolist())
    counts = NodeCounts(size.astype(np.int64), own.astype(np.int64), folder.about["n_documents"])
    nodes = describe_nodes(tree, words.words, titles, counts, representatives)
    for node, terms in zip(nodes, words.terms or (), strict=True):
        node["terms"] = terms
    for topic, leaf in enumerate(words.leaves.tolist()):
        nodes[leaf]["topic"] = topic
    documents = [
        {**document, "node": int(node)} for document, node in zip(folder.documents, node_of, strict=True)
    ]
    over_time = None
    if folder.time is not None:
        names = model.feature_names_ or feature_names(None, model.vectorizer_, estimator.n_features_in_)
        described = describe_time(estimator, folder.time["field"], None, words.leaves, names)
        over_time = {**described, "bins": folder.time["bins"]}
    return Content(
        folder.kind,
        {key: folder.about[key] for key in _ABOUT if key in folder.about},
        {**saved, "estimator": estimator, "topic_model": model},
        nodes,
        documents,
        folder.positions,
        mean_positions(members, folder.positions),
        report=topics_text(nodes),
        time=over_time,
    )
