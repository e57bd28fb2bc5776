r"""Points on the sphere from flat, hierarchical and temporal von Mises-Fisher mixtures with known truth.

Flat: :math:`z \sim \pi`, :math:`x \sim vMF(\mu_z, \kappa_z)`, means uniform on the sphere.
Hierarchical: :math:`\mu_n \sim vMF(\mu_{parent(n)}, c_{depth(n)})` down a tree, rows around the leaves.
Temporal: :math:`\mu_{t,k} \sim vMF(\mu_{t-1,k}, c)`, rows of time t around :math:`\mu_{t,z}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arbora.arrays import Matrix
from arbora.datasets.base import Dataset, name_array
from arbora.datasets.synthetic.text import regular_tree_edges


class VMFTruth(NamedTuple):
    """Parameters of a mixture and the component of each row.

    Attributes
    ----------
    means : ndarray
        (n_components, n_features); hierarchical: (n_nodes, n_features), by node id; temporal: (n_times,
        n_components, n_features).
    concentrations : ndarray of shape (n_components,)
        Concentration of the rows around their mean, of each component (hierarchical: of each leaf).
    weights : ndarray of shape (n_components,)
        Probability of each component.
    components : ndarray of shape (n_samples,)
        Component of each row; hierarchical: node id of its leaf.
    """

    means: Matrix
    concentrations: Matrix
    weights: Matrix
    components: Matrix


def _draw(mu: Matrix, kappa: npt.ArrayLike, rng: np.random.Generator, size: int | None = None) -> Matrix:
    from arbora.special import sample_vmf  # deferred: it imports numba

    return sample_vmf(mu, kappa, size, rng)


def _uniform_directions(n: int, n_features: int, rng: np.random.Generator) -> Matrix:
    pole = np.zeros(n_features)
    pole[0] = 1.0
    return _draw(pole, 0.0, rng, n)


def _weights(weights: npt.ArrayLike | None, n: int) -> Matrix:
    if weights is None:
        return np.full(n, 1.0 / n)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n,) or (values < 0).any() or not np.isclose(values.sum(), 1.0):
        raise ValueError(f"weights must be {n} numbers, not negative, that sum to 1")
    return np.asarray(values / values.sum())


def _check_counts(n_features: int, **counts: int) -> None:
    """Raise ValueError if a size is too small."""
    for name, least, number in [("n_features", 2, n_features), *((name, 1, n) for name, n in counts.items())]:
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")


def _concentrations(kappa: npt.ArrayLike | None, n: int, n_features: int) -> Matrix:
    """Concentration of each component; with the default, rows are near their mean in any dimension."""
    values = np.asarray(5.0 * n_features if kappa is None else kappa, dtype=np.float64)
    if values.ndim > 1 or (values.ndim == 1 and values.size != n):
        raise ValueError(f"kappa must be a number or {n} numbers, got shape {values.shape}")
    return np.broadcast_to(values, (n,)).copy()


def _component_names(components: Matrix) -> Matrix:
    return name_array(f"c{k}" for k in components.tolist())


def make_vmf_mixture(
    n_samples: int = 500,
    n_features: int = 10,
    n_components: int = 4,
    *,
    kappa: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> Dataset:
    """Generate a mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_samples, n_features, n_components : int
        Number of rows, dimension (2 or more) and number of components.
    kappa : float or array-like of shape (n_components,), optional
        Concentrations; ``5 * n_features`` by default.
    weights : array-like of shape (n_components,), optional
        Probabilities of the components; equal by default.
    random_state : int, numpy Generator or None
        Seed or generator.

    Returns
    -------
    Dataset
        Unit rows in ``X_train``, component names ``c0, c1, ...`` in ``y_train``, a :class:`VMFTruth` as
        ``truth``.

    Examples
    --------
    >>> from arbora.datasets import make_vmf_mixture
    >>> data = make_vmf_mixture(100, 5, 3, random_state=0)
    >>> data.X_train.shape, data.truth.means.shape
    ((100, 5), (3, 5))
    """
    _check_counts(n_features, n_samples=n_samples, n_components=n_components)
    rng = np.random.default_rng(random_state)
    pi = _weights(weights, n_components)
    concentrations = _concentrations(kappa, n_components, n_features)
    means = _uniform_directions(n_components, n_features, rng)
    z = rng.choice(n_components, size=n_samples, p=pi)
    X = _draw(means[z], concentrations[z], rng)
    return Dataset("vMF mixture", X, _component_names(z), truth=VMFTruth(means, concentrations, pi, z))


def make_hierarchical_vmf(
    n_samples: int = 1000,
    n_features: int = 20,
    branching: Sequence[int] = (3, 4),
    *,
    kappa: npt.ArrayLike | None = None,
    node_kappa: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> Dataset:
    """Generate rows around the leaves of a tree; the mean of a node is drawn around the mean of its parent.

    Parameters
    ----------
    n_samples, n_features : int
        Number of rows and dimension (2 or more).
    branching : sequence of int, default=(3, 4)
        Number of children of the nodes at each depth.
    kappa : float or array-like of shape (n_leaves,), optional
        Concentration of the rows around their leaf; ``5 * n_features`` by default.
    node_kappa : float or array-like of shape (len(branching),), optional
        Concentration of the nodes at depth 1, 2, ... around their parents; by default ``n_features *
        2**depth / 2``: deeper nodes are closer to their parents.
    weights : array-like of shape (n_leaves,), optional
        Probabilities of the leaves; equal by default.
    random_state : int, numpy Generator or None
        Seed or generator.

    Returns
    -------
    Dataset
        Unit rows, leaf names, the hierarchy, and a :class:`VMFTruth` whose ``means`` are by node id.

    Examples
    --------
    >>> from arbora.datasets import make_hierarchical_vmf
    >>> data = make_hierarchical_vmf(100, 5, (2, 3), random_state=0)
    >>> data.hierarchy.n_nodes, data.truth.means.shape
    (9, (9, 5))
    """
    from arbora.structure import Hierarchy

    _check_counts(n_features, n_samples=n_samples, branching=min(branching, default=0))
    rng = np.random.default_rng(random_state)
    tree = Hierarchy.from_edges(regular_tree_edges(branching))
    leaves = np.asarray(tree.leaf_ids)
    default = n_features * 2.0 ** np.arange(len(branching))
    level_kappa = np.broadcast_to(
        default if node_kappa is None else np.asarray(node_kappa, float), default.shape
    )
    means = np.empty((tree.n_nodes, n_features))
    means[tree.root_ids] = _uniform_directions(len(tree.root_ids), n_features, rng)
    for nodes, concentration in zip(tree.levels[1:], level_kappa, strict=True):
        means[nodes] = _draw(means[tree.parent[nodes]], concentration, rng)
    pi = _weights(weights, leaves.size)
    concentrations = _concentrations(kappa, leaves.size, n_features)
    z = rng.choice(leaves.size, size=n_samples, p=pi)
    X = _draw(means[leaves[z]], concentrations[z], rng)
    truth = VMFTruth(means, concentrations, pi, leaves[z])
    return Dataset("hierarchical vMF mixture", X, tree.names[leaves[z]], hierarchy=tree, truth=truth)


def make_temporal_vmf(
    n_samples: int = 1000,
    n_features: int = 10,
    n_components: int = 4,
    n_times: int = 10,
    *,
    kappa: npt.ArrayLike | None = None,
    drift_kappa: float | None = None,
    weights: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> Dataset:
    """Generate a mixture whose mean directions drift over time.

    Parameters
    ----------
    n_samples, n_features, n_components, n_times : int
        Number of rows (divided evenly among the times), dimension, number of components and number of times.
    kappa : float or array-like of shape (n_components,), optional
        Concentrations of the rows; ``5 * n_features`` by default.
    drift_kappa : float, optional
        Concentration of a mean around the mean one time before; ``50 * n_features`` by default.
    weights : array-like of shape (n_components,), optional
        Probabilities of the components, the same at all times; equal by default.
    random_state : int, numpy Generator or None
        Seed or generator.

    Returns
    -------
    Dataset
        Unit rows in order of time, component names, the time of each row in ``extra["time"]``, and a
        :class:`VMFTruth` whose ``means`` have shape (n_times, n_components, n_features).

    Examples
    --------
    >>> from arbora.datasets import make_temporal_vmf
    >>> data = make_temporal_vmf(100, 5, 2, 4, random_state=0)
    >>> data.truth.means.shape, data.extra["time"][[0, -1]].tolist()
    ((4, 2, 5), [0, 3])
    """
    _check_counts(n_features, n_samples=n_samples, n_components=n_components, n_times=n_times)
    rng = np.random.default_rng(random_state)
    pi = _weights(weights, n_components)
    concentrations = _concentrations(kappa, n_components, n_features)
    drift = 50.0 * n_features if drift_kappa is None else drift_kappa
    means = np.empty((n_times, n_components, n_features))
    means[0] = _uniform_directions(n_components, n_features, rng)
    for t in range(1, n_times):
        means[t] = _draw(means[t - 1], drift, rng)
    time = np.arange(n_samples) * n_times // n_samples
    z = rng.choice(n_components, size=n_samples, p=pi)
    X = _draw(means[time, z], concentrations[z], rng)
    truth = VMFTruth(means, concentrations, pi, z)
    return Dataset("temporal vMF mixture", X, _component_names(z), extra={"time": time}, truth=truth)
