"""Describe the nodes of a tree: sizes, words, titles, and representative documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.app.contents.positions import LAYOUTS, place_documents, unit_rows
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.arrays import Ints, Matrix
from arbora.kernels.products import centre_products
from arbora.structure import Hierarchy

# --- `Subject`: a fitted model with its rows and documents; and the parts of a content that all models share ---


SAMPLE = 50_000  # largest number of documents to keep


class Subject(NamedTuple):
    """A fitted model, rows, their documents, and names of the columns."""

    estimator: Any
    X: Any
    documents: Documents
    names: Sequence[str]
    vectorizer: Any = None


class About(NamedTuple):
    """How a model was made, messages for the user, and the largest number of documents to keep."""

    settings: Mapping[str, Any] = MappingProxyType({})
    notices: Sequence[str] = ()
    sample: int = SAMPLE


def base_content(
    kind: str, subject: Subject, described: Description, answers: Mapping[str, Any], about: About
) -> Content:
    """Make the content of any kind of model; the caller adds the report and the parts of its kind."""
    documents = subject.documents
    skipped = documents.skipped
    entries = {
        "name": documents.name,
        "settings": {**about.settings, **({"skipped": len(skipped)} if skipped else {})},
        "skipped": skipped.to_dict(),
        "n_documents": len(documents),
        "multilabel": False,
        "notices": [*about.notices, *described.notices],
    }
    model = {
        "vectorizer": subject.vectorizer,
        "estimator": subject.estimator,
        "feature_names": None if documents.feature_names is None else list(subject.names),
    }
    return Content(
        kind,
        entries,
        model,
        described.nodes,
        describe_documents(documents, described.sampled, answers),
        described.positions,
        described.node_positions,
        report="",
    )


# --- The documents of a content: a random sample, with a snippet of each text -------------------------------


SNIPPET = 300  # characters
N_ENTRIES = 12


def draw_sample(n_documents: int, size: int, needed: Ints, rng: np.random.Generator) -> Ints:
    """Draw documents at random, in ascending order; the needed ones are always drawn."""
    if n_documents <= size:
        return np.arange(n_documents)
    others = np.setdiff1d(np.arange(n_documents), needed)
    drawn = rng.choice(others, max(0, size - len(needed)), replace=False)
    return np.sort(np.concatenate([needed, drawn]))


def snippet(text: str, length: int = SNIPPET) -> str:
    r"""Return the beginning of a text on one line, cut between words.

    >>> snippet("a long\n  story of trees", 12)
    'a long story...'
    """
    line = " ".join(text[: 8 * length].split())
    if len(line) <= length:
        return line
    head, _, _ = line[: length + 1].rpartition(" ")
    return (head if len(head) > length // 2 else line[:length]) + "..."


def largest_entries(x: Any, names: Any, n: int = N_ENTRIES) -> list[list[Any]]:
    """Return names and values of the largest entries of a row of numbers, which has no text.

    >>> largest_entries(sp.csr_array([[0.5, 0.0, 2.0]]), None)
    [['2', 2.0], ['0', 0.5]]
    """
    order = np.argsort(-x.data, kind="stable")[:n]
    label = str if names is None else (lambda j: str(names[j]))
    return [[label(int(x.indices[i])), round(float(x.data[i]), 6)] for i in order]


def describe_documents(
    documents: Documents, sampled: Ints, answers: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Make the lines of ``documents.jsonl``, of the sampled row numbers.

    `answers` has further entries of the sampled documents: "node", "probability", ...

    >>> two = Documents.from_texts(["The sea", "The land"])
    >>> describe_documents(two, np.array([1]), {"node": [3]})
    [{'id': '2', 'text': 'The land', 'label': None, 'node': 3}]
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


# --- Describe the nodes of a tree: sizes, words, titles, and representative documents -----------------------


N_WORDS = 12
N_REPRESENTATIVES = 5
_TITLE_WORDS = 3


class DocumentTree(NamedTuple):
    """Documents in a tree: rows, and the nodes that each row belongs to, (n_samples, n_nodes)."""

    hierarchy: Hierarchy
    X: Any
    members: sp.csr_array


class Description(NamedTuple):
    """Description of a collection: nodes, row numbers of the sampled documents, positions of both, notices."""

    nodes: list[dict[str, Any]]
    sampled: Ints
    positions: NDArray[np.float32]
    node_positions: NDArray[np.float32]
    notices: list[str]


def describe_tree(
    filed: DocumentTree,
    words: Sequence[Sequence[tuple[str, float]]],
    titles: Sequence[str],
    about: About,
    *,
    always: Iterable[int] = (),
    centres: Matrix | None = None,
) -> Description:
    """Describe the nodes, draw a sample of the documents, and compute the positions of both on the map.

    `words` and `titles` are those of each node. Documents in `always`, and those that a node refers to, are in the
    sample; "documents" of the nodes are indices into ``sampled``. The representative documents of a node are those
    nearest to its row of `centres`, by default the mean of its documents. The settings "seed" and "layout" are those
    of `place_documents`.
    """
    (n_documents, n_nodes), sample = filed.members.shape, about.sample
    random_state, layout = about.settings.get("seed", 0), about.settings.get("layout", LAYOUTS[0])
    members = sp.csr_array(filed.hierarchy.close(filed.members)).astype(np.float64)
    rng = np.random.default_rng(random_state)
    # All representatives are in the sample, so that a tree of many thousands of nodes has fewer per node.
    n_each = int(np.clip(sample // (2 * n_nodes), 1, N_REPRESENTATIVES))
    nearest = representatives(filed.X, members, n_each, centres)
    needed = np.unique(np.concatenate([*nearest, np.fromiter(always, np.int64)]).astype(np.int64))
    sampled = draw_sample(n_documents, sample, needed, rng)
    leaves = filed.members[:, np.flatnonzero(np.diff(sp.csc_array(filed.members).indptr))]
    positions, node_positions, notices = place_documents(
        filed.X, leaves, members, sampled, layout=layout, random_state=random_state
    )
    lines = [np.searchsorted(sampled, rows).tolist() for rows in nearest]
    size, own = (np.asarray(nodes.astype(np.int64).sum(axis=0)).ravel() for nodes in (members, filed.members))
    nodes = describe_nodes(filed.hierarchy, words, titles, NodeCounts(size, own, n_documents), lines)
    if len(sampled) < n_documents:
        notices = [f"A sample of {len(sampled):,} of {n_documents:,} documents is shown.", *notices]
    return Description(nodes, sampled, positions, node_positions, notices)


def representatives(X: Any, members: Any, n: int, centres: Matrix | None = None) -> list[Ints]:
    """Find the n documents of each node with the largest cosine to its centre.

    `members` is a sparse indicator of shape (n_samples, n_nodes); `centres` are by default the means of the
    documents.
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
    order = order[rank < n]  # within a node, the nearest are first
    ends = np.cumsum(np.bincount(node[order], minlength=columns.shape[1]))
    return np.split(rows[order].astype(np.int64), ends[:-1])


class NodeCounts(NamedTuple):
    """Documents of each node, those that belong to the node itself and not below it, and all documents."""

    size: Ints
    own: Ints
    n_documents: int


def describe_nodes(
    tree: Hierarchy,
    words: Sequence[Sequence[tuple[str, float]]],
    titles: Sequence[str],
    counts: NodeCounts,
    documents: Sequence[list[int]],
) -> list[dict[str, Any]]:
    """Make the entries of ``nodes.json``; `documents` are the lines of the representative documents of each node."""
    nodes = []
    for node, name in enumerate(tree.names.tolist()):
        parents = tree.parent_indices[tree.parent_indptr[node] : tree.parent_indptr[node + 1]]
        parents = parents[np.argsort(-tree.depth[parents], kind="stable")].tolist()
        entry = {
            "id": node,
            "name": str(name),
            "title": titles[node],
            "parent": parents[0] if parents else None,
            "depth": int(tree.depth[node]),
            "size": int(counts.size[node]),
            "own": int(counts.own[node]),
            "share": int(counts.size[node]) / max(1, counts.n_documents),
            "words": [[word, round(weight, 6)] for word, weight in words[node][:N_WORDS]],
            "documents": documents[node],
        }
        nodes.append(entry | ({"more_parents": parents[1:]} if len(parents) > 1 else {}))
    return nodes


def path_titles(hierarchy: Hierarchy, separator: str = "/") -> list[str]:
    """Return the last component of node names that are paths; other names are unchanged.

    >>> path_titles(Hierarchy.from_edges([("root", "sea"), ("sea", "sea/fish")]))
    ['root', 'sea', 'fish']
    """
    titles = []
    for name in map(str, hierarchy.names.tolist()):
        above, cut, last = name.rpartition(separator)
        titles.append(last if cut and above in hierarchy and last else name)
    return titles


def topic_titles(hierarchy: Hierarchy, words: Sequence[Sequence[tuple[str, float]]]) -> list[str]:
    """Return the first words of each topic, without words in the titles of its ancestors."""
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
