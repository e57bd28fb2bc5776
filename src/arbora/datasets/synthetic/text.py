r"""Hierarchical Zipf text of any size, with the true word distributions.

The background has Zipf-Mandelbrot frequencies with shift q, :math:`p_{root}(w) \propto (w + 1 + q)^{-s}`. Every other
node mixes the distribution of its parent with its own distribution over a few topic words:

.. math:: p_n = (1 - \epsilon)\, p_{parent(n)} + \epsilon\, t_n ,
          \qquad t_n(w_{nj}) \propto (j + 1)^{-s}, \quad j = 0 .. k - 1 .

A word of a document therefore comes from the topic of the node :math:`g` levels above its class with probability
:math:`P(g) = \epsilon (1 - \epsilon)^g`, and from the background if g reaches the root or beyond. Words are drawn
this way, all at once; no distribution over the vocabulary is formed for any node. Class sizes follow a power law and
document lengths a log-normal distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arbora.arrays import Matrix
from arbora.datasets.base import ROOT, Dataset, name_array

if TYPE_CHECKING:
    from scipy import sparse

    from arbora.structure import Hierarchy

_WORDS_AT_A_TIME = 4_000_000  # words drawn before they are counted; bounds the memory


class TextTruth(NamedTuple):
    """True parameters of a hierarchical Zipf text.

    Attributes
    ----------
    background : ndarray of shape (n_features,)
        Word distribution of the root.
    topic_words : ndarray of shape (n_nodes, n_topic_words)
        Topic words of each node, by node id; the rows of roots are not used.
    topic_weights : ndarray of shape (n_topic_words,)
        Distribution over the topic words, the same for all nodes.
    topic_strength : float
        Weight of its topic in the distribution of a node.
    classes : ndarray of shape (n_classes,)
        Node ids of the leaves.
    class_prior : ndarray of shape (n_classes,)
        Probability of each class.
    """

    background: Matrix
    topic_words: Matrix
    topic_weights: Matrix
    topic_strength: float
    classes: Matrix
    class_prior: Matrix

    def word_distribution(self, path: Sequence[int]) -> Matrix:
        """Word distribution of a node, given the ids of the nodes on its path, the root first."""
        distribution = self.background.copy()
        for node in path[1:]:
            distribution *= 1.0 - self.topic_strength
            distribution[self.topic_words[node]] += self.topic_strength * self.topic_weights
        return distribution


def zipf(n: int, exponent: float, shift: float = 0.0) -> Matrix:
    """Zipf-Mandelbrot probabilities of ranks 0 to n - 1."""
    weights = (np.arange(1, n + 1) + shift) ** -exponent
    return np.asarray(weights / weights.sum())


def _draw_ranks(probabilities: Matrix, size: int, rng: np.random.Generator) -> Matrix:
    """Draw indices with the given probabilities, by inversion."""
    cumulative = np.cumsum(probabilities)
    # The last cumulative sum is 1 up to rounding; scaling by it keeps every index in range.
    return np.asarray(np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right"))


def _level_sizes(n_leaves: int, depth: int) -> list[int]:
    """Nodes at each depth, growing geometrically from one root to ``n_leaves`` leaves."""
    return [max(1, round(n_leaves ** (level / depth))) for level in range(depth + 1)]


def random_tree_edges(n_leaves: int, depth: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Edges of a tree with all leaves at one depth and skewed numbers of children, at least one per node."""
    names, edges = [ROOT], []
    sizes = _level_sizes(n_leaves, depth)
    for above, here in pairwise(sizes):
        favour = zipf(above, 1.0)[rng.permutation(above)]
        parent = np.sort(np.concatenate([np.arange(above), _draw_ranks(favour, here - above, rng)]))
        sibling = np.arange(here) - np.searchsorted(parent, parent)
        prefix = ["" if name == ROOT else name + "/" for name in names]
        children = [f"{prefix[p]}{s}" for p, s in zip(parent.tolist(), sibling.tolist(), strict=True)]
        edges += [(names[p], child) for p, child in zip(parent.tolist(), children, strict=True)]
        names = children
    return edges


def regular_tree_edges(branching: Sequence[int]) -> list[tuple[str, str]]:
    """Edges of the tree in which every node at depth d has ``branching[d]`` children."""
    names, edges = [ROOT], []
    for width in branching:
        level = [(name, str(i) if name == ROOT else f"{name}/{i}") for name in names for i in range(width)]
        edges += level
        names = [child for _, child in level]
    return edges


def _distinct_words(n_nodes: int, k: int, n_features: int, rng: np.random.Generator) -> Matrix:
    """``k`` distinct words for each node; duplicates in a row are redrawn until there are none."""
    words = rng.integers(n_features, size=(n_nodes, k))
    rows = np.arange(n_nodes)
    while rows.size:
        order = np.argsort(words[rows], axis=1, kind="stable")
        ordered = np.take_along_axis(words[rows], order, axis=1)
        again = np.zeros(ordered.shape, dtype=bool)
        np.put_along_axis(again, order[:, 1:], np.diff(ordered, axis=1) == 0, axis=1)
        row, column = np.nonzero(again)
        words[rows[row], column] = rng.integers(n_features, size=row.size)
        rows = rows[np.unique(row)]
    return words


def _ancestor_table(parent: Matrix, depth: Matrix, leaves: Matrix) -> Matrix:
    """Node g levels above each leaf, for g = 0 .. height - 1; -1 for the root and above it (background)."""
    table = np.full((leaves.size, int(depth[leaves].max())), -1, dtype=np.int64)
    node = leaves.copy()
    for level in range(table.shape[1]):
        below_root = depth[node] > 0
        table[:, level] = np.where(below_root, node, -1)
        node = np.where(below_root, parent[node], node)
    return table


def _class_counts(n_samples: int, prior: Matrix, minimum: int, rng: np.random.Generator) -> Matrix:
    """Documents per class: ``minimum`` each, the others drawn from the prior."""
    return minimum + rng.multinomial(n_samples - minimum * prior.size, prior)


def _document_lengths(n_samples: int, mean: float, spread: float, rng: np.random.Generator) -> Matrix:
    """Log-normal lengths with the given mean, rounded, at least 1."""
    lengths = rng.lognormal(np.log(mean) - spread**2 / 2.0, spread, n_samples)
    return np.maximum(1, np.rint(lengths)).astype(np.int64)


def _batches(lengths: Matrix) -> Iterator[slice]:
    """Yield runs of documents of about ``_WORDS_AT_A_TIME`` words."""
    group = np.cumsum(lengths) // _WORDS_AT_A_TIME
    bounds = np.flatnonzero(np.diff(group, prepend=-1))
    for start, stop in pairwise([*bounds.tolist(), lengths.size]):
        yield slice(start, stop)


def _draw_words(
    document_class: Matrix, ancestors: Matrix, truth: TextTruth, rng: np.random.Generator
) -> Matrix:
    """One word for each entry of ``document_class`` (a position among the classes)."""
    height = ancestors.shape[1]
    climb = rng.geometric(truth.topic_strength, document_class.size) - 1
    source = np.where(climb < height, ancestors[document_class, np.minimum(climb, height - 1)], -1)
    words = np.empty(document_class.size, dtype=np.int64)
    from_topic = source >= 0
    ranks = _draw_ranks(truth.topic_weights, int(np.count_nonzero(from_topic)), rng)
    words[from_topic] = truth.topic_words[source[from_topic], ranks]
    words[~from_topic] = _draw_ranks(truth.background, int(np.count_nonzero(~from_topic)), rng)
    return words


def _draw_documents(
    classes: Matrix,
    lengths: Matrix,
    ancestors: Matrix,
    truth: TextTruth,
    rng: np.random.Generator,
) -> sparse.csr_matrix:
    """Word counts of documents of the given classes (positions) and lengths."""
    from scipy import sparse

    n_features = truth.background.size
    parts = []
    for batch in _batches(lengths):
        words = _draw_words(np.repeat(classes[batch], lengths[batch]), ancestors, truth, rng)
        row = np.repeat(np.arange(batch.stop - batch.start), lengths[batch])
        cell, count = np.unique(row * n_features + words, return_counts=True)
        n_rows = batch.stop - batch.start
        indptr = np.searchsorted(cell, np.arange(n_rows + 1) * n_features)
        columns = (cell % n_features).astype(np.int32)
        parts.append(sparse.csr_matrix((count.astype(np.float32), columns, indptr), (n_rows, n_features)))
    parts.append(sparse.csr_matrix(np.empty((0, n_features), dtype=np.float32)))  # for zero documents
    return sparse.csr_matrix(sparse.vstack(parts, format="csr"))


def _make_hierarchy(
    hierarchy: Hierarchy | None,
    branching: int | Sequence[int] | None,
    n_leaves: int | None,
    depth: int,
    rng: np.random.Generator,
) -> Hierarchy:
    from arbora.structure import Hierarchy

    if sum(option is not None for option in (hierarchy, branching, n_leaves)) > 1:
        raise ValueError("give one of hierarchy, branching and n_leaves")
    if hierarchy is not None:
        if not hierarchy.is_tree:
            raise ValueError(
                "hierarchy must be a tree: the distribution of a node with several parents is not defined"
            )
        return hierarchy
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    if n_leaves is not None:
        if n_leaves < 1:
            raise ValueError(f"n_leaves must be at least 1, got {n_leaves}")
        return Hierarchy.from_edges(random_tree_edges(n_leaves, depth, rng))
    widths = (
        [3 if branching is None else branching] * depth if not isinstance(branching, Sequence) else branching
    )
    if min(widths) < 1:
        raise ValueError(f"branching must be at least 1, got {branching}")
    return Hierarchy.from_edges(regular_tree_edges(list(widths)))


def make_hierarchical_text(
    n_samples: int = 1000,
    n_features: int = 2000,
    *,
    branching: int | Sequence[int] | None = None,
    n_leaves: int | None = None,
    depth: int = 2,
    hierarchy: Hierarchy | None = None,
    n_test: int | None = None,
    mean_length: float = 100.0,
    length_spread: float = 0.6,
    n_topic_words: int = 30,
    topic_strength: float = 0.15,
    word_exponent: float = 1.0,
    word_shift: float = 2.0,
    class_exponent: float = 0.8,
    random_state: Any = None,
) -> Dataset:
    """Generate hierarchical Zipf text: word counts of documents whose classes are the leaves of a tree.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of training documents; every leaf has at least one.
    n_features : int, default=2000
        Number of words. Word 0 is the most frequent in the background.
    branching : int or sequence of int, optional
        Number of children of each node, for all depths or per depth; 3 by default.
    n_leaves : int, optional
        Instead of ``branching``: a random tree with this number of leaves at ``depth``, with skewed numbers of
        children.
    depth : int, default=2
        Depth of the leaves below the root.
    hierarchy : Hierarchy, optional
        Instead of both: your own tree; its leaves may have different depths.
    n_test : int, optional
        Number of test documents; ``n_samples // 4`` by default. Their classes are drawn from the true prior.
    mean_length, length_spread : float, default=100 and 0.6
        Mean length of a document in words, and standard deviation of the logarithm of the length.
    n_topic_words : int, default=30
        Number of topic words per node.
    topic_strength : float, default=0.15
        Weight of its topic in the distribution of a node, in (0, 1).
    word_exponent, word_shift : float, default=1 and 2
        Exponent and shift of the Zipf-Mandelbrot frequencies.
    class_exponent : float, default=0.8
        Exponent of the power law of class sizes; 0 makes classes equally likely.
    random_state : int, numpy Generator or None
        Seed or generator.

    Returns
    -------
    Dataset
        Counts (CSR float32), leaf names as labels, the hierarchy, and the :class:`TextTruth` as ``truth``.

    Examples
    --------
    >>> from arbora.datasets import make_hierarchical_text
    >>> make_hierarchical_text(200, 500, branching=(2, 3), random_state=0)
    Dataset 'hierarchical text': 200 train, 50 test, 500 features, 6 labels, 9 nodes
    """
    if not 0.0 < topic_strength < 1.0:
        raise ValueError(f"topic_strength must lie between 0 and 1, got {topic_strength}")
    if not 1 <= n_topic_words <= n_features // 2:
        raise ValueError(f"n_topic_words must be between 1 and half of n_features, got {n_topic_words}")
    rng = np.random.default_rng(random_state)
    tree = _make_hierarchy(hierarchy, branching, n_leaves, depth, rng)
    leaves = np.asarray(tree.leaf_ids, dtype=np.int64)
    if n_samples < leaves.size:
        raise ValueError(f"n_samples is {n_samples}, but each of the {leaves.size} leaves needs a document")
    truth = TextTruth(
        background=zipf(n_features, word_exponent, word_shift),
        topic_words=_distinct_words(tree.n_nodes, n_topic_words, n_features, rng),
        topic_weights=zipf(n_topic_words, word_exponent),
        topic_strength=topic_strength,
        classes=leaves,
        class_prior=zipf(leaves.size, class_exponent)[rng.permutation(leaves.size)],
    )
    ancestors = _ancestor_table(np.asarray(tree.parent), np.asarray(tree.depth), leaves)
    drawn = []
    for size, minimum in ((n_samples, 1), (n_samples // 4 if n_test is None else n_test, 0)):
        counts = _class_counts(size, truth.class_prior, minimum, rng)
        classes = rng.permutation(np.repeat(np.arange(leaves.size), counts))
        lengths = _document_lengths(size, mean_length, length_spread, rng)
        X = _draw_documents(classes, lengths, ancestors, truth, rng)
        drawn.append((X, tree.names[leaves[classes]]))
    (X_train, y_train), (X_test, y_test) = drawn
    words = name_array(f"w{i}" for i in range(n_features))
    return Dataset(
        "hierarchical text",
        X_train,
        y_train,
        X_test,
        y_test,
        hierarchy=tree,
        feature_names=words,
        truth=truth,
    )
