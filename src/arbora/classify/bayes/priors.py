"""Gamma priors of the precisions of a tree, computed from the data, so that none needs cross-validation.

The inverse Fisher information of a logistic regression is the asymptotic covariance of its weights. It estimates how
far the weights of a class may be from those of its parent. With p_n the share of class n (probabilities of single
rows would need a model), the information is p_n (1 - p_n) S with S = sum_x x x', and the prior of weight i is

    leaf   (a, b_i) = (1, [S^-1]_ii / (p_n (1 - p_n))),        parent   (a, b_i) = sums over its children

(S. Gopal et al. 2012, section 4): the expected variance b/a of the weights of children is the mean over the classes
below. M2 uses these values. M1 and M3 have one precision for all d weights; they use d times a, and d times the
geometric mean of b. The sum of b does as well on CLEF, but is dominated by the feature with the smallest scale: with
a noise feature a hundred times smaller than the others, the children of all families looked unrelated.

With a logistic likelihood all classes use the mean rate. Their scores are compared with each other, and a weaker
prior would inflate the scores of classes with few rows: on LSHTC-small (validation part, 1,139 classes, MAP with the
prior's precisions) separate rates gave a macro-F1 of 22.6, the mean rate 25.6.

Safeguards that the papers do not have:

- S is shrunk towards its diagonal by d / (N + d) for N rows (or their total weight) and d weights. It is then always
  invertible, collinear features do not get a huge prior variance, and nothing changes with many rows.
- Features that never occur get the mean rate of the others.
- Shares of classes are kept half a row away from 0 and from 1.
- Features whose squares overflow or underflow, and priors with such expected precisions, are refused.
- With more than `MAX_FULL` weights only the diagonal of S is used.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval

from arbora.arrays import Array, Ints
from arbora.classify.estimator import build_routes
from arbora.core.estimator import read_options
from arbora.infer.tree.gaussian import Gammas, Sharing, Tree, make_tree
from arbora.structure import Hierarchy

# --- The tree that a hierarchical Bayesian model fits, derived from the structure of the user ---------------


class ModelTree(NamedTuple):
    """The fitted tree: inner nodes first, then the classes in their order. All classes are leaves."""

    hierarchy: Hierarchy  # node ids are rows of the weights
    tree: Tree


def model_tree(hierarchy: Hierarchy, class_nodes: Ints) -> ModelTree:
    """Derive the tree of the model from the structure.

    A class on an inner node becomes a leaf below it, several roots get a common parent, and nodes without documents
    at or below them are left out.

    >>> made = model_tree(Hierarchy.from_paths(["a/b", "c"]), np.array([0, 1, 2]))
    >>> made.hierarchy.names
    array(['root', 'a', 'a/*', 'a/b', 'c'], dtype=object)
    >>> made.tree.parent
    array([-1,  0,  1,  1,  0])
    """
    if not hierarchy.is_tree:
        raise ValueError(
            "the structure is a DAG, in which a node has several parents, but the model needs a tree. Give each node "
            "one parent, or use RecursiveLogisticRegression, which accepts DAGs and graphs."
        )
    routes, leaves = build_routes(hierarchy, class_nodes)
    inner = np.setdiff1d(routes.order, leaves, assume_unique=True)
    inner = inner[np.argsort(routes.depth[inner], kind="stable")]
    order = np.concatenate([inner, leaves])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    above = routes.parent[order]
    parent = np.where(above >= 0, place[above], -1)
    named = Hierarchy(routes.names[order], np.column_stack([parent, np.arange(len(order))])[parent >= 0])
    return ModelTree(named, make_tree(parent, np.arange(len(inner), len(order))))


# --- Gamma priors of the precisions -----------------------------------------------------------------------------


MAX_FULL = 1000  # number of weights of a class above which the information is taken to be diagonal
MAX_PRECISION = 1e100  # products of two precisions, or of their inverses, stay finite
_MAX_VARIANCE = 1e60  # largest expected variance of a prior; its inverse is the smallest
_MAX_FEATURE = 1e30  # its inverse is the smallest


def inverse_information(X: Any, row_weight: Array, bias: float) -> Array:
    """Diagonal of S^-1, with the safeguards above; `bias` is the value of a constant last feature, 0 for none.

    >>> X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> inverse_information(X, np.ones(2), bias=0.0)  # the second feature never occurs
    array([0.5, 0.5])
    """
    sparse = sp.issparse(X)
    if bias:
        column = np.full((X.shape[0], 1), bias, X.dtype)
        X = sp.hstack([X, sp.csr_array(column)], format="csr") if sparse else np.hstack([X, column])
    squares = np.asarray((X * X).T @ row_weight, np.float64).ravel()
    seen = np.flatnonzero(squares > 0)
    inverse = 1 / squares[seen]
    if len(squares) <= MAX_FULL:
        shrink = len(seen) / max(row_weight.sum() + len(seen), 1.0)
        inverse = _shrunk_inverse(X[:, seen], row_weight, squares[seen], shrink)
    rates = np.full(len(squares), inverse.mean() if len(seen) else 1.0)
    rates[seen] = inverse
    return rates


def check_scale(X: Any) -> None:
    """Raise a ValueError for features whose squares overflow or underflow.

    >>> check_scale(np.array([[1.0, 0.0], [0.0, 1e-160]]))
    Traceback (most recent call last):
    ...
    ValueError: feature 1 is nowhere larger than 1e-160: scale the features with StandardScaler or MaxAbsScaler.
    """
    sparse = sp.issparse(X)
    high, low = (np.asarray(m.toarray() if sparse else m).ravel() for m in (X.max(axis=0), X.min(axis=0)))
    size = np.maximum(high, -low)
    wrong = np.flatnonzero((size > _MAX_FEATURE) | ((size > 0) & (size < 1 / _MAX_FEATURE)))
    if wrong.size:
        value = size[wrong[0]]
        problem = "is as large as" if value > 1 else "is nowhere larger than"
        raise ValueError(
            f"feature {wrong[0]} {problem} {value:.3g}: scale the features with StandardScaler or MaxAbsScaler."
        )


def _shrunk_inverse(X: Any, row_weight: Array, squares: Array, shrink: float) -> Array:
    """Diagonal of the inverse of X'X with shrunk off-diagonal entries; scaled to correlations for accuracy."""
    scale, sparse = np.sqrt(squares), sp.issparse(X)
    weighted = X.T.multiply(row_weight) if sparse else X.T * row_weight
    gram = weighted @ X
    gram = (gram.toarray() if sparse else gram) / np.outer(scale, scale)
    correlation = (1 - shrink) * gram.astype(np.float64)
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(np.diagonal(np.linalg.inv(correlation)) / squares)


def fisher_prior(
    X: Any,
    Y: sp.csr_array,
    row_weight: Array,
    bias: float,
    tree: Tree,
    sharing: Sharing,
    same_rate: bool = False,
) -> Gammas:
    """Gamma priors from the approximate Fisher information; with `same_rate` all classes have the mean rate."""
    weights = inverse_information(X, row_weight, bias)
    total = max(float(row_weight.sum()), 1.0)
    half_a_row = 0.5 / total
    share = np.clip(np.asarray(Y.T @ row_weight) / total, half_a_row, 1 - half_a_row)
    # A rate is a factor of the class times a factor of the weight, and so are sums over classes.
    n_below, of_node = np.zeros((2, tree.n_nodes))
    of_class = 1 / (share * (1 - share))
    n_below[tree.leaves], of_node[tree.leaves] = 1.0, of_class.mean() if same_rate else of_class
    for level in reversed(tree.levels[1:]):
        np.add.at(n_below, tree.parent[level], n_below[level])
        np.add.at(of_node, tree.parent[level], of_node[level])
    shape, rate = n_below[sharing.owner, None], of_node[sharing.owner, None]
    if sharing.by_weight:
        return Gammas(np.broadcast_to(shape, (len(shape), len(weights))), rate * weights)
    pooled = np.exp(np.log(weights).mean())
    return Gammas(shape * len(weights), rate * pooled * len(weights))


class GammaPrior(NamedTuple):
    """Gamma distribution of a precision; rate / shape is the expected variance."""

    shape: float = 1.0
    rate: float = 1.0


def constant_prior(prior: GammaPrior, sharing: Sharing, n_weights: int) -> Gammas:
    """Return the same prior for all precisions."""
    size = len(sharing.owner), n_weights if sharing.by_weight else 1
    return Gammas(np.full(size, float(prior.shape)), np.full(size, float(prior.rate)))


def read_gamma(prior: Any) -> GammaPrior:
    """Read the parameter `prior`, a dict; refuse values that are not positive, or an extreme variance."""
    positive = [Interval(Real, 0, np.inf, closed="neither")]
    gamma = read_options("prior", prior, GammaPrior, {"shape": positive, "rate": positive})
    if abs(np.log10(gamma.rate) - np.log10(gamma.shape)) > np.log10(_MAX_VARIANCE):
        raise ValueError(
            f"prior={prior!r}: the expected variance, rate / shape, must lie between {1 / _MAX_VARIANCE:g} and "
            f"{_MAX_VARIANCE:g}."
        )
    return gamma
