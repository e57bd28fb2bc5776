"""What a model folder tells of each node and of a sample of the documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.app.documents import Documents
from arbora.app.positions import project, unit_rows
from arbora.kernels.centres import centre_products
from arbora.structure import Hierarchy

SAMPLE = 50_000  # documents that are kept, at most
N_WORDS = 12
N_REPRESENTATIVES = 5
SNIPPET = 300  # characters
_TITLE_WORDS = 3


class Filed(NamedTuple):
    """Documents in a tree: rows, and which nodes each of them sits at (n_samples, n_nodes)."""

    hierarchy: Hierarchy
    X: Any
    at: sp.csr_array


class Shown(NamedTuple):
    """What is shown of a collection: nodes, numbers of the sampled documents, positions of both, notices."""

    nodes: list[dict[str, Any]]
    sampled: NDArray[np.int64]
    positions: NDArray[np.float32]
    node_positions: NDArray[np.float32]
    notices: list[str]


def show(
    filed: Filed,
    words: Sequence[Sequence[tuple[str, float]]],
    titles: Sequence[str],
    *,
    sample: int = SAMPLE,
    always: Iterable[int] = (),
    centres: NDArray[Any] | None = None,
    random_state: int = 0,
) -> Shown:
    """Describe the nodes, draw a sample of the documents, and place both on the map.

    Parameters
    ----------
    filed : Filed
    words : sequence of lists of (word, weight)
        Of each node.
    titles : sequence of str
        Of each node.
    sample : int
        Most documents in the sample, but for those that something refers to.
    always : iterable of int
        Documents that must be in it.
    centres : ndarray of shape (n_nodes, n_features), optional
        Means that representative documents are near to; by default those of the documents.
    random_state : int

    Returns
    -------
    Shown
        In ``nodes``, "documents" are places in ``sampled``.
    """
    n_documents, n_nodes = filed.at.shape
    members = sp.csr_array(filed.hierarchy.close(filed.at), dtype=np.float64)
    rng = np.random.default_rng(random_state)
    # Trees of many thousands of nodes have fewer representatives each: they all are in the sample.
    n_each = int(np.clip(sample // (2 * n_nodes), 1, N_REPRESENTATIVES))
    found = representatives(filed.X, members, n_each, centres)
    needed = np.unique(np.concatenate([*found, np.fromiter(always, np.int64)]).astype(np.int64))
    sampled = draw_sample(n_documents, sample, needed, rng)
    leaves = filed.at[:, np.flatnonzero(np.diff(sp.csc_array(filed.at).indptr))]
    positions, node_positions = project(filed.X, leaves, members, random_state)
    place = [np.searchsorted(sampled, rows).tolist() for rows in found]
    nodes = _describe(filed, members, words, titles, place)
    notices = []
    if len(sampled) < n_documents:
        notices.append(f"A sample of {len(sampled):,} of {n_documents:,} documents is shown.")
    return Shown(nodes, sampled, positions[sampled], node_positions, notices)


def representatives(
    X: Any, members: Any, n: int, centres: NDArray[Any] | None = None
) -> list[NDArray[np.int64]]:
    """Find the n documents of each node that are nearest to its centre, by the cosine.

    Parameters
    ----------
    X : sparse matrix of shape (n_samples, n_features)
    members : sparse indicator of shape (n_samples, n_nodes)
    n : int
    centres : ndarray of shape (n_nodes, n_features), optional
        By default the means of the documents of the nodes.

    Returns
    -------
    list of ndarray of int

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> representatives(X, sp.csr_array([[1], [1], [1]]), 1)
    [array([1])]
    """
    X, columns = unit_rows(X), sp.csc_array(members)
    rows, node = columns.indices, np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
    if centres is None:
        near = centre_products(X.indptr, X.indices, X.data, columns.indptr, rows, X.shape[1])
    else:
        inside = np.split(rows, columns.indptr[1:-1])
        near = np.concatenate([X[part] @ centre for part, centre in zip(inside, centres, strict=True)])
    order = np.lexsort((rows, -near, node))
    rank = np.arange(len(order)) - columns.indptr[node]
    kept = order[rank < n]  # within a node, the nearest are first
    ends = np.cumsum(np.bincount(node[kept], minlength=columns.shape[1]))
    return np.split(rows[kept].astype(np.int64), ends[:-1])


def draw_sample(
    n_documents: int, most: int, needed: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw documents at random, those that are needed among them; their numbers ascend.

    Examples
    --------
    >>> draw_sample(100, 4, np.array([7, 50]), np.random.default_rng(0)).tolist()
    [7, 50, 64, 84]
    """
    if n_documents <= most:
        return np.arange(n_documents)
    others = np.setdiff1d(np.arange(n_documents), needed)
    drawn = rng.choice(others, max(0, most - len(needed)), replace=False)
    return np.sort(np.concatenate([needed, drawn]))


def _describe(
    filed: Filed,
    members: sp.csr_array,
    words: Sequence[Sequence[tuple[str, float]]],
    titles: Sequence[str],
    documents: Sequence[list[int]],
) -> list[dict[str, Any]]:
    tree = filed.hierarchy
    n_documents = filed.at.shape[0]
    size = np.asarray(members.sum(axis=0), dtype=np.int64).ravel().tolist()
    own = np.asarray(sp.csr_array(filed.at, dtype=np.int64).sum(axis=0)).ravel().tolist()
    nodes = []
    for node, name in enumerate(tree.names.tolist()):
        parents = tree.parent_indices[tree.parent_indptr[node] : tree.parent_indptr[node + 1]]
        parents = parents[np.argsort(-tree.depth[parents], kind="stable")].tolist()
        one = {
            "id": node,
            "name": str(name),
            "title": titles[node],
            "parent": parents[0] if parents else None,
            "depth": int(tree.depth[node]),
            "size": size[node],
            "own": own[node],
            "share": size[node] / max(1, n_documents),
            "words": [[word, round(weight, 6)] for word, weight in words[node][:N_WORDS]],
            "documents": documents[node],
        }
        nodes.append(one | ({"more_parents": parents[1:]} if len(parents) > 1 else {}))
    return nodes


def path_titles(hierarchy: Hierarchy, separator: str = "/") -> list[str]:
    """Last part of the names of nodes that are paths; other names as they are.

    Examples
    --------
    >>> path_titles(Hierarchy.from_edges([("root", "sea"), ("sea", "sea/fish")]))
    ['root', 'sea', 'fish']
    """
    titles = []
    for name in map(str, hierarchy.names.tolist()):
        above, cut, last = name.rpartition(separator)
        titles.append(last if cut and above in hierarchy and last else name)
    return titles


def topic_titles(hierarchy: Hierarchy, words: Sequence[Sequence[tuple[str, float]]]) -> list[str]:
    """First words of topics, without those that the titles of the nodes above have already.

    Examples
    --------
    >>> tree = Hierarchy.from_edges([("root", "0"), ("0", "0/0")])
    >>> topic_titles(tree, [[("the", 1.0)], [("sea", 1.0)], [("sea", 1.0), ("fish", 0.5)]])
    ['all documents', 'sea', 'fish']
    """
    titles = [""] * hierarchy.n_nodes
    for node in hierarchy.order.tolist():
        above = hierarchy.ancestor_ids(node)
        if not len(above):
            titles[node] = "all documents"
            continue
        taken = {word for other in above.tolist() for word in titles[other].split(", ")}
        fresh = [word for word, _ in words[node] if word not in taken]
        titles[node] = ", ".join((fresh or [word for word, _ in words[node]])[:_TITLE_WORDS])
    return [title or str(name) for title, name in zip(titles, hierarchy.names, strict=True)]


def snippet(text: str, length: int = SNIPPET) -> str:
    r"""Beginning of a text in one line, cut between words.

    Examples
    --------
    >>> snippet("a long\n  story of trees", 12)
    'a long story...'
    """
    line = " ".join(text[: 8 * length].split())
    if len(line) <= length:
        return line
    head, _, _ = line[: length + 1].rpartition(" ")
    return (head if len(head) > length // 2 else line[:length]) + "..."


def largest_entries(x: Any, names: Any, n: int = N_WORDS) -> list[list[Any]]:
    """Names and values of the largest columns of a row of numbers, which has no text to show.

    Examples
    --------
    >>> largest_entries(sp.csr_array([[0.5, 0.0, 2.0]]), None)
    [['2', 2.0], ['0', 0.5]]
    """
    order = np.argsort(-x.data, kind="stable")[:n]
    label = str if names is None else (lambda j: str(names[j]))
    return [[label(int(x.indices[i])), round(float(x.data[i]), 6)] for i in order]


def describe_documents(
    documents: Documents, sampled: NDArray[np.int64], answers: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Make the lines of ``documents.jsonl``.

    Parameters
    ----------
    documents : Documents
        All documents.
    sampled : ndarray of int
        Which of them are shown.
    answers : mapping of str to sequence
        Further entries of the sampled documents: "node", "probability", ...

    Returns
    -------
    list of dict

    Examples
    --------
    >>> from pathlib import Path
    >>> two = Documents("two", ["a", "b"], None, [(Path("x"), 1)] * 2, texts=["The sea", "The land"])
    >>> describe_documents(two, np.array([1]), {"node": [3]})
    [{'id': 'b', 'text': 'The land', 'label': None, 'node': 3}]
    """
    lines = []
    for place, row in enumerate(sampled.tolist()):
        label = None if documents.y is None else documents.y[row]
        line = {"id": documents.ids[row], "text": "", "label": label}
        if documents.texts is not None:
            line["text"] = snippet(documents.texts[row])
        else:
            line["words"] = largest_entries(sp.csr_array(documents.X[[row]]), documents.feature_names)
        lines.append(line | {name: values[place] for name, values in answers.items()})
    return lines
