"""The content of discriminative clusters: label shares and profiles of the clusters, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.app.contents.nodes import SAMPLE, DocumentTree, Subject, base_content, describe_tree
from arbora.app.contents.positions import LAYOUTS
from arbora.app.folder import Content
from arbora.datasets.base import ROOT
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

N_FEATURES = 8
_TITLE_FEATURES = 2
_TABLE_FEATURES = 3
_MOST_LABELS = 12
_MOST_ENTRIES = 20_000_000  # of rows that are standardised


def clusters_content(
    subject: Subject, *, sample: int = SAMPLE, settings: Mapping[str, Any], notices: Sequence[str] = ()
) -> Content:
    """Describe the clusters of a fitted `DiscriminativeClustering` and rows.

    Parameters
    ----------
    subject : Subject
        The labels of its documents are shown with them.
    sample : int
        Largest number of rows to keep.
    settings : mapping
        How the model was made.
    notices : sequence of str
        Messages for the user.

    Returns
    -------
    Content
    """
    model, X, _, names, _ = subject
    n_clusters, n_rows = len(model.coef_), X.shape[0]
    names_of = [f"cluster {k}" for k in range(n_clusters)]
    tree = Hierarchy.from_edges([(ROOT, name) for name in names_of], nodes=[ROOT, *names_of])
    if n_rows:
        cells, found = model.predict(X), model.profile(X, feature_names=list(names))
        apart, top = found.apart, found.top_features(N_FEATURES)
    else:
        cells, found, top = np.empty(0, np.int64), None, [[] for _ in range(n_clusters)]
        apart = model.coef_ - model.coef_.mean(axis=0)
    at = sp.csr_array(
        (np.ones(n_rows, bool), cells + 1, np.arange(n_rows + 1)), shape=(n_rows, n_clusters + 1)
    )
    shares = label_shares(model)
    described = describe_tree(
        DocumentTree(tree, _standardised(model, X), at),
        [[], *([(name, abs(value)) for name, value in one] for one in top)],
        ["all rows", *map(cluster_title, names_of, shares, top)],
        sample=sample,
        random_state=settings.get("seed", 0),
        layout=settings.get("layout", LAYOUTS[0]),
    )
    for k, node in enumerate(described.nodes[1:]):
        node["labels"] = shares[k]
        if found is not None and node["size"]:
            node["profile"] = _profile_rows(found, apart, k)
    proba = model.predict_proba(X)[np.arange(n_rows), cells] if n_rows else np.empty(0)
    answers = {
        "node": (cells[described.sampled] + 1).tolist(),
        "probability": proba[described.sampled].round(4).tolist(),
    }
    content = base_content("clusters", subject, described, answers, settings, notices)
    return content._replace(report=clusters_text(described.nodes))


def _standardised(model: Any, X: Any) -> sp.csr_array:
    """Rows as the model compares them, for positions on the map; large ones as they are."""
    if X.shape[0] * X.shape[1] > _MOST_ENTRIES:
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
    found = []
    for proba, deviation in zip(model.label_proba_, residual, strict=True):
        order = np.argsort(-proba, kind="stable")[:_MOST_LABELS].tolist()
        found.append([[names[c], round(float(proba[c]), 4), round(float(deviation[c]), 2)] for c in order])
    return found


def cluster_title(name: str, shares: Sequence[Sequence[Any]], top: Sequence[tuple[str, float]]) -> str:
    """Name a cluster by its most probable label and the features that set it apart.

    Examples
    --------
    >>> cluster_title("cluster 0", [["leaves", 0.8, 5.0]], [("age", -1.2), ("income", 0.7)])
    'cluster 0: 80% leaves; low age, high income'
    """
    parts = [f"{share:.0%} {label}" for label, share, _ in shares[:1]]
    features = ", ".join(f"{'high' if value > 0 else 'low'} {word}" for word, value in top[:_TITLE_FEATURES])
    return f"{name}: {'; '.join([*parts, features] if features else parts)}"


def _profile_rows(found: Any, apart: Any, k: int) -> list[list[Any]]:
    order = np.argsort(-np.abs(apart[k]), kind="stable")[:N_FEATURES].tolist()
    values = found.means[k], found.deviations[k], found.overall_mean, apart[k]
    return [[found.features[j], *(float(f"{one[j]:.6g}") for one in values)] for j in order]


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
