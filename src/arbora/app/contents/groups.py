"""The content of an extended collection: known and new groups, their words and documents, what was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.app.contents.nodes import (
    N_WORDS,
    About,
    DocumentTree,
    Subject,
    base_content,
    describe_tree,
    path_titles,
    snippet,
)
from arbora.app.contents.topics import top_words
from arbora.app.folder import Content
from arbora.app.labels import rooted_tree, tree_of_labels
from arbora.arrays import Array, Ints, Matrix
from arbora.datasets.base import ROOT
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

SURE = 0.8  # probability from which on documents are filed, unless another is given
_TABLE_WORDS = 6
_TITLE_WORDS = 3
_EXAMPLES = 3  # documents of a new group in the report
_SNIPPET = 70
_MAX_PROPOSALS = 5


class Membership(NamedTuple):
    """Group of each document, its probability, and the probability from which on documents are filed."""

    group: Matrix
    probability: Array
    sure: float

    def states(self, y: Matrix) -> list[str]:
        """Return for each document whether it is "labelled", "filed" or "proposed"."""
        return [
            "labelled" if label is not None else "filed" if p >= self.sure else "proposed"
            for label, p in zip(y.tolist(), self.probability.tolist(), strict=True)
        ]


def groups_content(subject: Subject, filed: Membership, about: About) -> Content:
    """Describe the known and new groups of a fitted `ExpandClusters` and their documents.

    The label of a document of the pile is None.
    """
    model, X, documents, names, _ = subject
    rows = sp.csr_array(X)
    tree = tree_of_groups(model)
    node = np.array([tree.id_of(str(group)) for group in filed.group.tolist()], np.int64)
    n_rows = rows.shape[0]
    members = sp.csr_array((np.ones(n_rows, bool), node, np.arange(n_rows + 1)), shape=(n_rows, tree.n_nodes))
    centres = group_centres(rows, sp.csr_array(tree.close(members)))
    words = [top_words(centre, names) for centre in _distinct(centres)]
    told = explain_groups(subject)
    new = {str(group.name): group for group in model.new_groups_}
    described = describe_tree(
        DocumentTree(tree, rows, members),
        words,
        group_titles(tree, new, words),
        about,
        always=[
            *_rows_of(told),
            *(row for group in new.values() for row in (*group.central, *group.borderline)),
        ],
    )
    states = np.array(filed.states(documents.y), object)
    line = _Lines(described.sampled)
    for entry in described.nodes:
        inside = states[node == entry["id"]].tolist()
        entry["states"] = {state: inside.count(state) for state in ("labelled", "filed", "proposed")}
        if entry["name"] in new:
            group = new[entry["name"]]
            entry |= {"new": True, "confidence": group.confidence, "borderline": line.of(group.borderline)}
            entry["documents"] = line.of(group.central)
    answers = {
        "node": node[described.sampled].tolist(),
        "probability": filed.probability[described.sampled].round(4).tolist(),
        "state": states[described.sampled].tolist(),
    }
    content = base_content("groups", subject, described, answers, about)
    parts = {**content.model, "centres": sp.csr_array(_of_classes(centres, tree, model.classes_))}
    expansion = _on_lines(told, line) | {
        "n_new": model.n_new_,
        "range": list(model.n_new_range_),
        "given": model.n_new != "auto",
        "sure": filed.sure,
        "choice": {key: str(value) for key, value in model.choice_.items()},
    }
    text = groups_text(described.nodes, expansion, content.documents)
    return content._replace(model=parts, report=text, expansion=expansion)


class _Lines(NamedTuple):
    """Line numbers of rows in the sample."""

    sampled: Ints

    def of(self, rows: Sequence[int]) -> list[int]:
        lines: list[int] = np.searchsorted(self.sampled, np.asarray(rows, np.int64)).tolist()
        return lines


def tree_of_groups(model: Any) -> Hierarchy:
    """Return the tree of known groups, with the new ones as children of the root.

    Labels that are paths, such as sea/fish, make a tree, unless a new group has the name of one of its nodes.
    """
    labelled, new = ([str(name) for name in part] for part in _parts(model))
    tree = tree_of_labels(np.array(labelled, object))
    if tree is None or set(new) & {str(name) for name in tree.names}:
        return rooted_tree(None, labelled + new)
    root = tree.names[tree.root_ids[0]]
    edges = [(str(tree.names[a]), str(tree.names[b])) for a, b in tree.edges.tolist()]
    return Hierarchy.from_edges([*edges, *((str(root), name) for name in new)])


def _parts(model: Any) -> tuple[list[Any], list[Any]]:
    n_known = len(model.known_classes_)
    return model.classes_[:n_known].tolist(), model.classes_[n_known:].tolist()


def group_centres(X: Any, members: Any) -> Array:
    """Return the mean rows of the nodes, zero for a node without rows.

    >>> group_centres(sp.csr_array([[2.0, 0.0], [0.0, 4.0]]), sp.csr_array([[1, 0], [1, 0]]))
    array([[1., 2.],
           [0., 0.]])
    """
    size = np.maximum(np.asarray(members.sum(axis=0)).ravel(), 1)
    sums = sp.csr_array(members.T.astype(np.float64) @ sp.csr_array(X)).toarray()
    return np.asarray(sums / size[:, None])


def _distinct(centres: Array) -> Array:
    """Weigh the words of a group by how much more frequent they are in it than in all groups."""
    positive = np.maximum(centres, 0.0)
    total = positive + positive.mean(axis=0)
    return np.asarray(positive * positive / np.where(total > 0, total, 1.0))


def _of_classes(centres: Array, tree: Hierarchy, classes: Matrix) -> Array:
    return centres[[tree.id_of(str(name)) for name in classes.tolist()]]


def group_titles(
    tree: Hierarchy, new: Mapping[str, Any], words: Sequence[Sequence[tuple[str, float]]]
) -> list[str]:
    """Return the names of known groups, and names with words for new ones.

    >>> tree = Hierarchy.from_edges([("root", "sea"), ("root", "new 1")])
    >>> group_titles(tree, {"new 1": None}, [[], [("fish", 1.0)], [("star", 1.0), ("moon", 0.5)]])
    ['all documents', 'sea', 'new 1: star, moon']
    """
    titles = path_titles(tree)
    for node, name in enumerate(map(str, tree.names.tolist())):
        if node in tree.root_ids:
            titles[node] = "all documents"
        elif name in new:
            titles[node] = ": ".join([name, ", ".join(word for word, _ in words[node][:_TITLE_WORDS])])
    return titles


def explain_groups(subject: Subject) -> dict[str, Any]:
    """Return what separates the known groups, and which of them might be split or merged, with row numbers."""
    explanation = subject.estimator.explain(subject.X, subject.documents.y, list(subject.names), N_WORDS)
    return {
        "features": [[str(name), round(weight, 6)] for name, weight in explanation.features if weight > 0],
        "splits": [
            {"group": str(proposal.group), "documents": [list(rows) for rows in proposal.rows]}
            for proposal in explanation.splits[:_MAX_PROPOSALS]
        ],
        "merges": [
            {
                "groups": [str(name) for name in proposal.groups],
                "documents": [list(rows) for rows in proposal.rows],
            }
            for proposal in explanation.merges[:_MAX_PROPOSALS]
        ],
    }


def _rows_of(told: Mapping[str, Any]) -> list[int]:
    return [
        row
        for proposal in (*told["splits"], *told["merges"])
        for side in proposal["documents"]
        for row in side
    ]


def _on_lines(told: Mapping[str, Any], line: _Lines) -> dict[str, Any]:
    moved = {
        key: [
            {**proposal, "documents": [line.of(side) for side in proposal["documents"]]}
            for proposal in told[key]
        ]
        for key in ("splits", "merges")
    }
    return {**told, **moved}


def groups_text(
    nodes: Sequence[Mapping[str, Any]], expansion: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]
) -> str:
    """Report the groups: a table, examples of the new ones, and what was learned from the known ones."""
    groups = [node for node in nodes if node["own"] or node.get("new")]
    groups.sort(
        key=lambda node: (bool(node.get("new")), node["name"] if not node.get("new") else "", -node["size"])
    )
    rows = [
        (node["name"], *node["states"].values(), ", ".join(word for word, _ in node["words"][:_TABLE_WORDS]))
        for node in groups
    ]
    columns = ("Group", "Labelled", "Filed", "Proposed", "Words")
    low, high = expansion["range"]
    about = "as given" if expansion["given"] else f"estimated; probably {low} to {high}"
    parts = [
        str(Table(columns, tuple(rows), ("", ",d", ",d", ",d", ""))),
        f"New groups: {expansion['n_new']} ({about}). Filed: probability at least {expansion['sure']:g}; the other "
        "documents are proposals.",
    ]
    for node in groups:
        if node.get("new"):
            lines = [
                f"{node['title']} ({node['own']:,} documents, mean probability {node['confidence']:.2f})"
            ]
            lines += [f"  {_example(documents[line])}" for line in node["documents"][:_EXAMPLES]]
            parts.append("\n".join(lines))
    separating = ", ".join(word for word, _ in expansion["features"])
    parts.append(f"What separates the known groups: {separating or 'no feature alone'}.")
    advice = [
        f"  split {proposal['group']}? For example {_pair(proposal, documents)}"
        for proposal in expansion["splits"]
    ] + [
        f"  merge {' and '.join(proposal['groups'])}? For example {_pair(proposal, documents)}"
        for proposal in expansion["merges"]
    ]
    if advice:
        parts.append("\n".join(["Known groups to look at:", *advice]))
    return "\n\n".join(parts)


def _example(document: Mapping[str, Any]) -> str:
    text = document["text"] or ", ".join(name for name, _ in document.get("words", ()))
    return f"{document['id']}: {snippet(text, _SNIPPET)}" if text else str(document["id"])


def _pair(proposal: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(str(documents[side[0]]["id"]) for side in proposal["documents"] if side)


# --- The content of discriminative clusters: label shares and profiles of the clusters, and their rows ------


N_FEATURES = 8
_TITLE_FEATURES = 2
_TABLE_FEATURES = 3
_MAX_LABELS = 12
_MAX_ENTRIES = 20_000_000  # of rows that are standardised


def clusters_content(subject: Subject, about: About) -> Content:
    """Describe the clusters of a fitted `DiscriminativeClustering` and rows, with the labels of its documents."""
    model, X, _, names, _ = subject
    n_clusters, n_rows = len(model.coef_), X.shape[0]
    names_of = [f"cluster {k}" for k in range(n_clusters)]
    tree = Hierarchy.from_edges([(ROOT, name) for name in names_of], nodes=[ROOT, *names_of])
    if n_rows:
        cells, profile = model.predict(X), model.profile(X, feature_names=list(names))
        contrast, top = profile.contrast, profile.top_features(N_FEATURES)
    else:
        cells, profile, top = np.empty(0, np.int64), None, [[] for _ in range(n_clusters)]
        contrast = model.coef_ - model.coef_.mean(axis=0)
    members = sp.csr_array(
        (np.ones(n_rows, bool), cells + 1, np.arange(n_rows + 1)), shape=(n_rows, n_clusters + 1)
    )
    shares = label_shares(model)
    described = describe_tree(
        DocumentTree(tree, _standardised(model, X), members),
        [[], *([(name, abs(value)) for name, value in features] for features in top)],
        ["all rows", *map(cluster_title, names_of, shares, top)],
        about,
    )
    for k, node in enumerate(described.nodes[1:]):
        node["labels"] = shares[k]
        if profile is not None and node["size"]:
            node["profile"] = _profile_rows(profile, contrast, k)
    proba = model.predict_proba(X)[np.arange(n_rows), cells] if n_rows else np.empty(0)
    answers = {
        "node": (cells[described.sampled] + 1).tolist(),
        "probability": proba[described.sampled].round(4).tolist(),
    }
    content = base_content("clusters", subject, described, answers, about)
    return content._replace(report=clusters_text(described.nodes))


def _standardised(model: Any, X: Any) -> sp.csr_array:
    """Rows as the model compares them, for positions on the map; large ones as they are."""
    if X.shape[0] * X.shape[1] > _MAX_ENTRIES:
        return sp.csr_array(X)
    dense: Any = sp.csr_array(X).toarray()
    return sp.csr_array((dense - model.mean_) / model.scale_)


def label_shares(model: Any) -> list[list[list[Any]]]:
    """For each cluster its labels with their probability and adjusted residual, the most probable first."""
    several = isinstance(model.classes_, list)
    names = [
        str(name) for column in (model.classes_ if several else [model.classes_]) for name in column.tolist()
    ]
    counts = model.label_counts_
    total, rows, columns = counts.sum(), counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)
    expected = rows * columns / max(total, 1)
    spread = expected * (1 - rows / max(total, 1)) * (1 - columns / max(total, 1))
    residual = np.where(spread > 0, (counts - expected) / np.sqrt(np.where(spread > 0, spread, 1.0)), 0.0)
    lists = []
    for proba, deviation in zip(model.label_proba_, residual, strict=True):
        order = np.argsort(-proba, kind="stable")[:_MAX_LABELS].tolist()
        lists.append([[names[c], round(float(proba[c]), 4), round(float(deviation[c]), 2)] for c in order])
    return lists


def cluster_title(name: str, shares: Sequence[Sequence[Any]], top: Sequence[tuple[str, float]]) -> str:
    """Name a cluster by its most probable label and the features that set it apart.

    >>> cluster_title("cluster 0", [["leaves", 0.8, 5.0]], [("age", -1.2), ("income", 0.7)])
    'cluster 0: 80% leaves; low age, high income'
    """
    parts = [f"{share:.0%} {label}" for label, share, _ in shares[:1]]
    features = ", ".join(f"{'high' if value > 0 else 'low'} {word}" for word, value in top[:_TITLE_FEATURES])
    return f"{name}: {'; '.join([*parts, features] if features else parts)}"


def _profile_rows(profile: Any, contrast: Any, k: int) -> list[list[Any]]:
    order = np.argsort(-np.abs(contrast[k]), kind="stable")[:N_FEATURES].tolist()
    values = profile.means[k], profile.deviations[k], profile.overall_mean, contrast[k]
    return [[profile.features[j], *(float(f"{value[j]:.6g}") for value in values)] for j in order]


def clusters_text(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Tabulate the clusters with sizes, labels and features."""
    rows = []
    for node in nodes[1:]:
        labels = ", ".join(f"{label} {share:.0%}" for label, share, _ in node["labels"][:_TABLE_FEATURES])
        features = ", ".join(word for word, _ in node["words"][:_TABLE_FEATURES])
        rows.append((node["name"], node["size"], node["share"], labels, features))
    return str(
        Table(("Cluster", "Rows", "%", "Labels", "Features"), tuple(rows), ("", ",d", "percent", "", ""))
    )
