r"""Joint update of the means of nodes and their concentrations.

The mean of a node has N children or rows with the sum S, distributed around it with its concentration :math:`\kappa`,
and a term P from its parent. Then :math:`\gamma \psi = E[\kappa] S + P`. Given S and P, the mean and its
concentration depend on each other only through :math:`\|S\|^2, S^\top P` and :math:`\|P\|^2`, and are iterated
together at no cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.discover.vmf.concentration import KappaLikelihood, KappaPosterior
from arbora.discover.vmf.posterior import Inference, Products, settle

Array = NDArray[np.float64]


class Links(NamedTuple):
    """Sums S of children or rows, and terms P of parents: both (n_means, n_features)."""

    around: NDArray[Any]
    above: NDArray[Any]


class UpdatedMeans(NamedTuple):
    """Directions and concentrations of means, and posteriors of the concentrations around them."""

    directions: NDArray[Any]
    mean_concentrations: Array
    kappa: KappaPosterior


def row_products(left: NDArray[Any], right: NDArray[Any]) -> Array:
    """Return scalar products of the rows of two matrices, in double precision.

    Examples
    --------
    >>> row_products(np.eye(2), np.array([[2.0, 1.0], [0.0, 3.0]]))
    array([2., 3.])
    """
    return np.asarray(np.einsum("nd,nd->n", left, right, dtype=np.float64))


def unit_vectors(vectors: NDArray[Any], before: NDArray[Any]) -> tuple[NDArray[Any], Array]:
    """Divide rows by their lengths and return both; a row of zeros becomes that of `before`.

    Examples
    --------
    >>> unit_vectors(np.array([[0.0, 4.0], [0.0, 0.0]]), np.eye(2))
    (array([[0., 1.],
           [0., 1.]]), array([4., 0.]))
    """
    lengths = np.sqrt(row_products(vectors, vectors))
    empty = lengths == 0
    directions = vectors / np.where(empty, 1.0, lengths).astype(vectors.dtype)[:, None]
    directions[empty] = before[empty]
    return directions, lengths


def joint_update(
    how: Inference,
    likelihood: KappaLikelihood,
    links: Links,
    kappa: KappaPosterior,
    free: NDArray[np.bool_],
    before: NDArray[Any],
) -> UpdatedMeans:
    """Update means and their concentrations, given all others.

    Parameters
    ----------
    how : Inference
        If it is shared, these means have one concentration.
    likelihood : KappaLikelihood
        Numbers N of children or rows of each mean, and the prior of the concentrations; its `pulls` are computed
        here.
    links : Links
    kappa : KappaPosterior
        Current posterior of the concentrations.
    free : ndarray of bool, shape (n_means,)
        Which concentrations are updated; the others are given.
    before : ndarray of shape (n_means, n_features)
        Directions of means without children, rows or a parent's term.

    Returns
    -------
    UpdatedMeans
    """
    around, above = links
    square, along = row_products(around, around), row_products(around, above)
    products = Products(square, along, row_products(above, above))

    def posterior(likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
        found = how.posterior(likelihood, before) if how.shared else how.kappa_posterior(likelihood, before)
        return KappaPosterior(*(np.where(free, new, old) for new, old in zip(found, before, strict=True)))

    used, kappa = settle(posterior, likelihood, products, kappa)
    directions, mean_concentrations = unit_vectors(
        around * used.astype(around.dtype)[:, None] + above, before
    )
    return UpdatedMeans(directions, mean_concentrations, kappa)
