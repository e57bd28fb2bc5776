"""The tree of a cluster topic model: clusters below a root, and below each cluster the topics it consists of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.structure import Hierarchy

_ROOT = "root"
_LEAST_SHARE = 0.05  # of a topic in a cluster that it is listed under


class ClusterTree(NamedTuple):
    """Root, clusters and topics in clusters, in this order; cluster and topic of each of the leaves."""

    hierarchy: Hierarchy
    leaves: NDArray[np.int64]
    cluster: NDArray[np.int64]
    topic: NDArray[np.int64]


def make_tree(cluster_topics: NDArray[Any], labels: NDArray[Any]) -> ClusterTree:
    """List the topics with a share of at least 5% under each cluster, and always the largest one.

    Examples
    --------
    >>> tree = make_tree(np.array([[0.9, 0.1], [0.01, 0.99]]), np.array(["sea", "land"]))
    >>> tree.hierarchy.names.tolist()
    ['root', 'sea', 'land', 'sea/0', 'sea/1', 'land/1']
    """
    listed = cluster_topics >= np.minimum(_LEAST_SHARE, cluster_topics.max(axis=1, keepdims=True))
    cluster, topic = np.nonzero(listed)
    names = [str(label) for label in labels.tolist()]
    if _ROOT in names or len(set(names)) < len(names):
        names = [f"{k}: {name}" for k, name in enumerate(names)]
    below = [f"{names[k]}/{t}" for k, t in zip(cluster.tolist(), topic.tolist(), strict=True)]
    edges = [(_ROOT, name) for name in names]
    edges += [(names[k], child) for k, child in zip(cluster.tolist(), below, strict=True)]
    tree = Hierarchy.from_edges(edges, nodes=[_ROOT, *names, *below])
    return ClusterTree(tree, np.arange(len(names) + 1, tree.n_nodes), cluster, topic)


def node_means(
    components: NDArray[Any], cluster_topics: NDArray[Any], shares: NDArray[Any], topic: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the probabilities of the words in all nodes of the tree."""
    clusters = cluster_topics @ components
    return np.vstack([shares @ clusters, clusters, components[topic]])


def node_probabilities(
    proba: NDArray[Any], topic_shares: NDArray[Any], tree: ClusterTree
) -> NDArray[np.float64]:
    """Return the probabilities of the nodes: of the clusters, shared among their topics by the topics of the row."""
    n_clusters = proba.shape[1]
    own = topic_shares[:, tree.topic] + 1e-12
    total = np.zeros_like(proba)
    for leaf, k in enumerate(tree.cluster.tolist()):
        total[:, k] += own[:, leaf]
    nodes = np.empty((len(proba), 1 + n_clusters + len(tree.topic)))
    nodes[:, 0] = proba.sum(axis=1)
    nodes[:, 1 : 1 + n_clusters] = proba
    nodes[:, 1 + n_clusters :] = own * (proba / total)[:, tree.cluster]
    return nodes
