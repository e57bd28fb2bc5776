"""Explain predictions: the contributions of words to a linear score.

The score of class c for a row x is a sum over features, b_c + sum_j w_cj x_j, so feature j contributes w_cj x_j. A
top-down classifier makes one decision at each node on the path; the contributions to a class are summed over the
decisions on its path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Ints, Matrix
from arbora.structure import Hierarchy

_NODES_PER_CHUNK = 64  # nodes whose dense weights are in memory at a time


class Word(NamedTuple):
    """A word of a document and its contribution to the score of a class."""

    word: str
    contribution: float


def deciding_words(x: Any, weights: Matrix, names: Any, n_words: int = 5) -> list[Word]:
    """Words of a document that contribute most to the score of a class, the largest contribution first.

    Parameters
    ----------
    x : CSR matrix of one row
    weights : ndarray of shape (n_features,)
        Weights of the class.
    names : sequence of n_features names
        Readable names of the features.
    n_words : int
        Maximum number of words. Words with a negative contribution are left out.

    Returns
    -------
    list of Word

    Examples
    --------
    >>> x, weights = sp.csr_array([[0.5, 0.0, 0.5, 0.5]]), np.array([1.0, 9.0, 3.0, -1.0])
    >>> deciding_words(x, weights, np.array(["tree", "sea", "leaf", "sky"]))
    [Word(word='leaf', contribution=1.5), Word(word='tree', contribution=0.5)]
    """
    contributions = x.data * weights[x.indices]
    order = np.argsort(-contributions, kind="stable")[:n_words]
    return [Word(str(names[x.indices[i]]), float(contributions[i])) for i in order if contributions[i] > 0]


def class_parts(model: Any) -> sp.csr_array:
    """Return which rows of `coef_` add up to the weights of each class.

    The CSR array (n_classes x rows of `coef_`) is the identity; the signs -1 and 1 if two classes share one
    classifier; the edges on the path of each class of a top-down model.
    """
    n_classes, n_rows = len(model.classes_), model.coef_.shape[0]
    if not hasattr(model, "_edge_scores"):  # the rows of coef_ are classes, not edges
        signs = np.array([[-1.0], [1.0]])
        return sp.csr_array(signs) if n_rows < n_classes else sp.eye_array(n_classes, format="csr")
    paths = [_edges_to(model.routes_, leaf) for leaf in model.class_leaves_.tolist()]
    indptr = np.cumsum([0, *map(len, paths)])
    return sp.csr_array((np.ones(indptr[-1]), np.concatenate(paths), indptr), shape=(n_classes, n_rows))


def _edges_to(routes: Hierarchy, node: int) -> Ints:
    """Numbers of the edges on the path from the root to a node, in the order of `routes.child_indices`."""
    path = np.asarray(routes.encode(routes.path(routes.names[node])))
    parent = np.repeat(np.arange(routes.n_nodes), np.diff(routes.child_indptr))
    keys = parent * routes.n_nodes + routes.child_indices  # ascending: edges are sorted by parent, then child
    return np.searchsorted(keys, path[:-1] * routes.n_nodes + path[1:])


def _weights(parts: sp.csr_array, coef: Any) -> Matrix:
    """Sum the rows of weights that `parts` selects; the result is dense."""
    rows = np.unique(parts.indices)  # read only these rows, since coef may be large
    total: Any = parts[:, rows] @ coef[rows]
    return np.asarray(total.toarray() if hasattr(total, "toarray") else total)


def explain(
    model: Any, X: Any, feature_names: Any, *, classes: Any = None, n_words: int = 5
) -> list[list[Word]]:
    """Words of each row that contribute most to the score of its class.

    Parameters
    ----------
    model : fitted classifier of this package
    X : CSR matrix of shape (n_samples, n_features)
    feature_names : sequence of n_features names
    classes : sequence of n_samples names, optional
        The class to explain for each row, one of `classes_`. By default the predicted class; required for
        multilabel models.
    n_words : int
        Maximum number of words for each row.

    Returns
    -------
    list of lists of Word
        Largest contribution first. Words with a negative contribution are left out.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> X = sp.csr_array([[1.0, 0.0], [1.0, 0.5], [0.0, 1.0], [0.2, 1.0]])
    >>> model = OneVsRestSVC(random_state=0).fit(X, ["sea", "sea", "land", "land"])
    >>> [word.word for word in explain(model, X, ["fish", "tree"])[3]]
    ['tree']
    """
    check_is_fitted(model)
    X = sp.csr_array(X)
    if len(feature_names) != model.n_features_in_:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but the model has {model.n_features_in_} features."
        )
    if classes is None:
        classes = model.predict(X)
        if model.label_kind_ != "single":
            raise ValueError("the model is multilabel: set classes= to the class to explain for each row.")
    if len(classes) != X.shape[0]:
        raise ValueError(
            f"classes has {len(classes)} entries, but X has {X.shape[0]} rows: give one per row."
        )
    names = [*model.nodes_[model.class_nodes_].tolist(), *model.classes_.tolist()]
    column_of = {name: column % len(model.classes_) for column, name in enumerate(names)}
    unknown = [name for name in classes if name not in column_of]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a class of the model: see classes_.")
    columns = np.array([column_of[name] for name in classes], np.int64)
    words_of_rows: list[list[Word]] = [[] for _ in range(len(columns))]
    parts, coef = class_parts(model), model.coef_
    for column in np.unique(columns).tolist():  # one class at a time to limit memory
        (weights,) = _weights(parts[[column]], coef)
        for row in np.flatnonzero(columns == column).tolist():
            words_of_rows[row] = deciding_words(X[[row]], weights, feature_names, n_words)
    return words_of_rows


def words_of_nodes(model: Any, feature_names: Any, n_words: int = 12) -> list[list[tuple[str, float]]]:
    """Words with the largest positive weights at each node of the structure of a classifier.

    The weights of an inner node are those of the model or, if it has none, the mean over the classes at and below it.

    Parameters
    ----------
    model : fitted classifier of this package
    feature_names : sequence of n_features names
    n_words : int

    Returns
    -------
    list of lists of (word, weight)
        In the order of `nodes_`; empty for nodes without a class at or below them.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("all", "sea"), ("all", "land"), ("all", "sky")])
    >>> model = OneVsRestSVC(structure=tree, random_state=0).fit([[1.0, 0.0], [0.0, 1.0]], ["sea", "land"])
    >>> words = words_of_nodes(model, ["fish", "tree"])
    >>> [[word for word, _ in words[model.nodes_.tolist().index(name)]] for name in ("sea", "land", "sky")]
    [['fish'], ['tree'], []]
    """
    check_is_fitted(model)
    below = sp.csr_array(model.hierarchy_.ancestor_matrix[model.class_nodes_], dtype=np.float64).T.tocsr()
    n_below = np.diff(below.indptr)
    with_class, parts, coef = np.flatnonzero(n_below), class_parts(model), model.coef_
    per_class = coef.shape[0] == len(model.classes_)
    has_node_weights = model.structure is not None and per_class and hasattr(model, "node_weights")
    words: list[list[tuple[str, float]]] = [[] for _ in n_below]
    for start in range(0, len(with_class), _NODES_PER_CHUNK):
        ids = with_class[start : start + _NODES_PER_CHUNK]
        if has_node_weights:
            weights = np.asarray(model.node_weights(model.nodes_[ids].tolist())[0])
        else:
            weights = _weights(sp.csr_array(below[ids] @ parts), coef) / n_below[ids, None]
        for node, row in zip(ids.tolist(), weights, strict=True):
            words[node] = _largest(row, feature_names, n_words)
    return words


def _largest(weights: Matrix, names: Any, n_words: int) -> list[tuple[str, float]]:
    count = min(n_words, len(weights))
    top = np.argpartition(-weights, count - 1)[:count]
    top = top[np.lexsort((top, -weights[top]))]
    return [(str(names[j]), float(weights[j])) for j in top.tolist() if weights[j] > 0]
