"""Gamma priors of the precisions of a tree, from the data alone: no parameter is left to cross-validation.

The inverse Fisher information of a logistic regression is the asymptotic covariance of its weights, hence a guess at
how far the weights of a class may lie from its parent's. With p_n the share of class n (a probability for each row
would need a model), its information is p_n (1 - p_n) S, S = sum_x x x', and the prior of weight i is

    leaf   (a, b_i) = (1, [S^-1]_ii / (p_n (1 - p_n))),        parent   (a, b_i) = sums over its children

(S. Gopal et al. 2012, section 4): the expected variance b/a of a weight of a parent's child is the mean over the
classes below. M2 takes it as it is. M1 and M3, with one precision for all weights, take d times a and the geometric
mean of b times d, for d weights. The sum of b does as well on CLEF, but belongs to the one feature of the smallest
scale: a feature of pure noise a hundred times smaller than the others made all families look apart.

With one yes-or-no question a class (logistic likelihood) all classes take the mean rate. Their scores are compared
with each other, and a class with few rows, given a weaker prior, would speak louder: on LSHTC-small (validation part,
1,139 classes, MAP for the prior's precisions) rates of their own gave a macro-F1 of 22.6, the mean rate 25.6.

Guards, which the papers do not give. S is shrunk towards its diagonal by d / (N + d), for N rows (or their weight)
and d weights: it has an inverse whatever the data, collinear features do not get a prior of any variance, and with
many rows nothing changes. Features that never occur say nothing: they get the mean rate of the others. Shares of
classes stay half a row away from 0 and from 1. Features whose squares would leave the range of numbers, and priors
that expect such precisions, are refused. With more than `MOST_FULL` weights the diagonal of S is all that is
used.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.infer.tree.gaussian import Gammas, Sharing, Tree
from arbora.infer.tree.problem import TreeProblem

MOST_FULL = 1000  # weights of a class beyond which the information is taken to be diagonal
MOST_PRECISION = 1e100  # products of two precisions, or of their inverses, stay finite
_MOST_VARIANCE = 1e60  # that a prior may expect, and the inverse of the least
_LARGEST_FEATURE = 1e30  # and the inverse of the smallest

Array = NDArray[np.float64]


def inverse_information(X: Any, row_weight: Array, bias: float) -> Array:
    """Diagonal of the inverse of S, guarded.

    Parameters
    ----------
    X : CSR or dense matrix of shape (n_samples, n_features)
    row_weight : ndarray of shape (n_samples,)
    bias : float
        Value of a constant feature, the last one; 0 for none.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> inverse_information(X, np.ones(2), bias=0.0)  # the second feature gets what the first one has
    array([0.5, 0.5])
    """
    if bias:
        column = np.full((X.shape[0], 1), bias, X.dtype)
        X = sp.hstack([X, sp.csr_array(column)], format="csr") if sp.issparse(X) else np.hstack([X, column])
    squares = np.asarray((X * X).T @ row_weight, np.float64).ravel()
    seen = np.flatnonzero(squares > 0)
    inverse = 1 / squares[seen]
    if len(squares) <= MOST_FULL:
        shrink = len(seen) / max(row_weight.sum() + len(seen), 1.0)
        inverse = _shrunk_inverse(X[:, seen], row_weight, squares[seen], shrink)
    rates = np.full(len(squares), inverse.mean() if len(seen) else 1.0)
    rates[seen] = inverse
    return rates


def check_scale(X: Any) -> None:
    """Raise a ValueError for features so large or so small that their squares say nothing in floating point.

    Examples
    --------
    >>> check_scale(np.array([[1.0, 0.0], [0.0, 1e-160]]))
    Traceback (most recent call last):
    ...
    ValueError: feature 1 is nowhere larger than 1e-160: scale the features, with StandardScaler or MaxAbsScaler.
    """
    high, low = (
        np.asarray(m.toarray() if sp.issparse(m) else m).ravel() for m in (X.max(axis=0), X.min(axis=0))
    )
    size = np.maximum(high, -low)
    wrong = np.flatnonzero((size > _LARGEST_FEATURE) | ((size > 0) & (size < 1 / _LARGEST_FEATURE)))
    if wrong.size:
        value = size[wrong[0]]
        told = "is as large as" if value > 1 else "is nowhere larger than"
        raise ValueError(
            f"feature {wrong[0]} {told} {value:.3g}: scale the features, with StandardScaler or MaxAbsScaler."
        )


def _shrunk_inverse(X: Any, row_weight: Array, squares: Array, shrink: float) -> Array:
    """Diagonal of the inverse of X'X with its off-diagonal entries made smaller; scaled to correlations first."""
    scale = np.sqrt(squares)
    weighted = X.T.multiply(row_weight) if sp.issparse(X) else X.T * row_weight
    gram = weighted @ X
    gram = (gram.toarray() if sp.issparse(gram) else gram) / np.outer(scale, scale)
    correlation = (1 - shrink) * gram.astype(np.float64)
    np.fill_diagonal(correlation, 1.0)
    return np.diagonal(np.linalg.inv(correlation)) / squares


def fisher_prior(
    X: Any, Y: sp.csr_array, row_weight: Array, bias: float, tree: Tree, sharing: Sharing, alike: bool = False
) -> Gammas:
    """Gamma priors from the approximate Fisher information.

    Parameters
    ----------
    X, row_weight, bias
        As in `inverse_information`.
    Y : CSR array of shape (n_samples, n_classes)
    tree, sharing
        Of `infer.gaussian_tree`.
    alike : bool
        Whether all classes get the mean rate over the classes.
    """
    weights = inverse_information(X, row_weight, bias)
    total = max(float(row_weight.sum()), 1.0)
    half_a_row = 0.5 / total
    share = np.clip(np.asarray(Y.T @ row_weight) / total, half_a_row, 1 - half_a_row)
    # Rates are a number of the class times a number of the weight: so are their sums over classes.
    n_below, of_node = np.zeros((2, tree.n_nodes))
    of_class = 1 / (share * (1 - share))
    n_below[tree.leaves], of_node[tree.leaves] = 1.0, of_class.mean() if alike else of_class
    for level in reversed(tree.levels[1:]):
        np.add.at(n_below, tree.parent[level], n_below[level])
        np.add.at(of_node, tree.parent[level], of_node[level])
    shape, rate = n_below[sharing.owner, None], of_node[sharing.owner, None]
    if sharing.by_weight:
        return Gammas(np.broadcast_to(shape, (len(shape), len(weights))), rate * weights)
    pooled = np.exp(np.log(weights).mean())
    return Gammas(shape * len(weights), rate * pooled * len(weights))


def constant_prior(shape: float, rate: float, sharing: Sharing, n_weights: int) -> Gammas:
    """Give all precisions one prior."""
    size = len(sharing.owner), n_weights if sharing.by_weight else 1
    return Gammas(np.full(size, float(shape)), np.full(size, float(rate)))


def make_prior(prior: Any, problem: TreeProblem) -> Gammas:
    """Make the gamma priors that a user asks for: "fisher", or a shape and a rate."""
    if isinstance(prior, str):
        X, Y, weight, tree, sharing, *_ = problem
        alike = problem.likelihood == "logistic"
        return fisher_prior(X, Y, weight, problem.bias, tree, sharing, alike)
    values = np.asarray(prior, dtype=object)
    if values.shape != (2,) or not all(isinstance(v, Real) and 0 < v < np.inf for v in values):
        raise ValueError(
            f"prior={prior!r}: give 'fisher', or the shape and the rate of a gamma distribution, two "
            "positive numbers; rate / shape is the expected variance of a weight around its parent's."
        )
    shape, rate = map(float, values)
    if abs(np.log10(rate) - np.log10(shape)) > np.log10(_MOST_VARIANCE):
        raise ValueError(
            f"prior={prior!r}: the variance that it expects, rate / shape, must lie between {1 / _MOST_VARIANCE:g} "
            f"and {_MOST_VARIANCE:g}."
        )
    return constant_prior(shape, rate, problem.sharing, problem.n_weights)
