"""Which words decided: the parts of a linear score.

The score of class c for a row x is a sum over features, b_c + sum_j w_cj x_j, so that every feature has a part in it.
A classifier that goes down a tree makes a decision at each node; the parts of a class are then added up over the
decisions on the way to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

_NODES_AT_ONCE = 64  # whose weights are held in full


class Word(NamedTuple):
    """A word of a document and what it adds to the score of a class."""

    word: str
    contribution: float


def deciding_words(x: Any, weights: NDArray[Any], names: Any, n_words: int = 5) -> list[Word]:
    """Words of a document that add most to the score of a class, the largest first.

    Parameters
    ----------
    x : CSR matrix of one row
    weights : ndarray of shape (n_features,)
        Weights of the class.
    names : sequence of n_features names
        Readable names of the features.
    n_words : int
        Most words that are given; words that speak against the class are left out.

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
    """Say of each class which rows of `coef_` add up to its weights.

    Parameters
    ----------
    model : fitted classifier of this package

    Returns
    -------
    CSR array of shape (n_classes, n_rows of coef_)
        The identity; of two classes that share one classifier, its sign; of a top-down model, the edges on the way.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> class_parts(OneVsRestSVC(random_state=0).fit([[1.0], [0.0]], ["a", "b"])).toarray()
    array([[-1.],
           [ 1.]])
    """
    n_classes, n_rows = len(model.classes_), model.coef_.shape[0]
    if not hasattr(model, "_edge_scores"):  # its rows are classes, not decisions on the way to them
        return sp.csr_array([[-1.0], [1.0]]) if n_rows < n_classes else sp.eye_array(n_classes, format="csr")
    ways = [_edges_to(model.routes_, leaf) for leaf in model.class_leaves_.tolist()]
    indptr = np.cumsum([0, *map(len, ways)])
    return sp.csr_array((np.ones(indptr[-1]), np.concatenate(ways), indptr), shape=(n_classes, n_rows))


def _edges_to(routes: Any, node: int) -> NDArray[np.int64]:
    """Numbers of the edges on the way from the root to a node, in the order of `routes.child_indices`."""
    way = routes.encode(routes.path(routes.names[node]))
    parent = np.repeat(np.arange(routes.n_nodes), np.diff(routes.child_indptr))
    keys = parent * routes.n_nodes + routes.child_indices  # ascending: edges go by parent, then by child
    return np.searchsorted(keys, way[:-1] * routes.n_nodes + way[1:])


def _weights(parts: sp.csr_array, coef: Any) -> NDArray[Any]:
    """Add up rows of weights; dense."""
    rows = np.unique(parts.indices)  # only these are touched: all weights may be many
    total = parts[:, rows] @ coef[rows]
    return np.asarray(total.toarray() if sp.issparse(total) else total)


def explain(
    model: Any, X: Any, feature_names: Any, *, classes: Any = None, n_words: int = 5
) -> list[list[Word]]:
    """Words of each row that add most to the score of its class.

    Parameters
    ----------
    model : fitted classifier of this package
    X : CSR matrix of shape (n_samples, n_features)
    feature_names : sequence of n_features names
    classes : sequence of n_samples names, optional
        The class to explain for each row, one of `classes_`; by default the predicted one, which models of several
        labels have not.
    n_words : int
        Most words for each row.

    Returns
    -------
    list of lists of Word
        Largest contribution first; words that speak against the class are left out.

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
            f"{len(feature_names)} feature_names for a model of {model.n_features_in_} features."
        )
    if classes is None:
        classes = model.predict(X)
        if model.label_kind_ != "single":
            raise ValueError("a model of several labels needs classes=, one a row, to know what to explain.")
    if len(classes) != X.shape[0]:
        raise ValueError(f"{len(classes)} classes for {X.shape[0]} rows: give one a row.")
    column_of = {name: column for column, name in enumerate(model.classes_.tolist())}
    unknown = [name for name in classes if name not in column_of]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a class that the model was trained for.")
    columns = np.array([column_of[name] for name in classes], np.int64)
    found: list[list[Word]] = [[] for _ in range(len(columns))]
    parts, coef = class_parts(model), model.coef_
    for column in np.unique(columns).tolist():  # the weights of one class at a time
        (weights,) = _weights(parts[[column]], coef)
        for row in np.flatnonzero(columns == column).tolist():
            found[row] = deciding_words(X[[row]], weights, feature_names, n_words)
    return found


def words_of_nodes(model: Any, feature_names: Any, n_words: int = 12) -> list[list[tuple[str, float]]]:
    """Words with the largest positive weights at each node of the structure of a classifier.

    The weights of an inner node are those that the model has for it, or else the mean of the classes at and below it.

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
    structured = model.structure is not None and coef.shape[0] == len(model.classes_)
    own = structured and hasattr(model, "node_weights")
    found: list[list[tuple[str, float]]] = [[] for _ in n_below]
    for start in range(0, len(with_class), _NODES_AT_ONCE):
        ids = with_class[start : start + _NODES_AT_ONCE]
        if own:
            weights = np.asarray(model.node_weights(model.nodes_[ids].tolist())[0])
        else:
            weights = _weights(sp.csr_array(below[ids] @ parts), coef) / n_below[ids, None]
        for node, row in zip(ids.tolist(), weights, strict=True):
            found[node] = _largest(row, feature_names, n_words)
    return found


def _largest(weights: NDArray[Any], names: Any, n_words: int) -> list[tuple[str, float]]:
    count = min(n_words, len(weights))
    top = np.argpartition(-weights, count - 1)[:count]
    top = top[np.lexsort((top, -weights[top]))]
    return [(str(names[j]), float(weights[j])) for j in top.tolist() if weights[j] > 0]
