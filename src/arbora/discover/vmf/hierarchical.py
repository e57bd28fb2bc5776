r"""Hierarchical mixtures of von Mises-Fisher distributions: rows in the leaves of a given tree.

.. math:: \pi &\sim \mathrm{Dirichlet}(\alpha), \quad
          \mu_n \sim \mathrm{vMF}(\mu_{pa(n)}, \kappa_{pa(n)}), \quad
          \kappa_n \sim \mathrm{logNormal}(m, \sigma^2) \quad \text{for all nodes } n, \\
          z_i &\sim \mathrm{Categorical}(\pi) \text{ over the leaves}, \quad
          x_i \sim \mathrm{vMF}(\mu_{z_i}, \kappa_{z_i}),

with :math:`\mu_{root} \sim \mathrm{vMF}(\mu_0, C_0)`. The means of siblings are distributed around that of their
parent, so leaves with few rows borrow strength from their siblings, and nodes that are close in the tree are similar.
The updates are in `hierarchical_posterior`, the start in `hierarchical_start`. A root with a known mean and only
leaves below it is the Bayesian mixture.

References
----------
S. Gopal and Y. Yang (2014). Von Mises-Fisher clustering models. ICML.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, section 5.4.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.estimator import draw_generator
from arbora.discover.mixture.base import Search, Start
from arbora.discover.mixture.describe import UNKNOWN, Features, check_count, largest_features
from arbora.discover.mixture.rows import unit_rows
from arbora.discover.mixture.starts import MAX_PRUNINGS, without_clones
from arbora.discover.vmf.bayesian import PRIOR_CONSTRAINTS, BayesianComponents, posterior_log_joint
from arbora.discover.vmf.concentration import KappaPosterior, point_posterior
from arbora.discover.vmf.hierarchical_posterior import (
    Nodes,
    Tree,
    TreePosterior,
    as_tree,
    leaf_posterior,
    one_root,
    pruned_tree,
    regular_tree,
    start_tree,
    tree_extra,
    unit_vectors,
    update_tree,
    with_leaves,
)
from arbora.discover.vmf.hierarchical_start import (
    Seeds,
    arrange,
    find_seeds,
    random_leaves,
    scattered_leaves,
    split_leaves,
)
from arbora.discover.vmf.mixture import VMFParams, annealed_components, broad_concentration
from arbora.discover.vmf.posterior import (
    CERTAIN,
    VMFPosterior,
    VMFPrior,
    left_out_mixture_log_density,
    mixture_log_density,
    posterior_extra,
    posterior_scores,
    sample_predictive,
    update_posterior,
)
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, run
from arbora.infer.mixture.statistics import Stats, WeightedRows, log_weights
from arbora.structure import Hierarchy


def node_probabilities(tree: Hierarchy, leaf_ids: Ints, leaf_proba: Array) -> Array:
    """Add the probabilities of leaves (n_samples, n_leaves) up the tree, to (n_samples, n_nodes)."""
    closure = tree.ancestor_matrix[leaf_ids].astype(np.float64)
    return np.asarray(np.minimum(leaf_proba @ closure, 1.0))


_FLAT_ITERATIONS = 15  # iterations of the start, which fits the leaves without the tree
_SAME = 1e-6  # relative difference below which the bounds of two starts count as equal
_LEAVES = {"bottom-up": scattered_leaves, "top-down": split_leaves, "random": random_leaves}


class TreePriorOptions(NamedTuple):
    """Options of the parameter `prior`; None: learned from the data."""

    alpha: float | None = None
    direction: Any = None
    concentration: float = 0.0
    log_mean: float | None = None
    log_variance: float | None = None
    node_concentration: float | None = None
    seed_weight: float = 1.0


_TREE_CONSTRAINTS = {
    **PRIOR_CONSTRAINTS,
    "concentration": [Interval(Real, 0, np.inf, closed="both")],
    "node_concentration": [Interval(Real, 0, None, closed="neither"), None],
    "seed_weight": [Interval(Real, 0, None, closed="left")],
}


class HierarchicalVMFMixture(BayesianComponents):
    """Mixture of von Mises-Fisher distributions in a tree.

    Parameters
    ----------
    structure : Hierarchy or sequence of int
        Any tree; rows belong to its leaves. Several roots get a new common root. Or the number of children of the
        nodes at each depth: (4, 4, 4) has 64 leaves, three levels below the root.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    concentration : {"shared", "own"}
        "shared": rows have the same concentration around all leaves. "own": each leaf has its own; the broadest leaf
        then collects rows of texts that are rare in all others. Inner nodes always have their own.
    prior : dict, optional
        Parts of the prior; all others are learned from the data. ``alpha``: parameter of the Dirichlet prior of the
        weights of the leaves. ``direction`` and ``concentration``: direction around which the mean of the root is
        distributed, and its concentration around it. 0, the default, is a uniform prior; with `numpy.inf` the mean is
        the direction or, if none is given, the direction with the highest bound, as in `BayesianVMFMixture`.
        ``log_mean`` and ``log_variance``: mean and variance of the logarithms of the concentrations of all nodes.
        ``node_concentration``: concentration of means around the mean of their parent, for all nodes; by default each
        node has its own. ``seed_weight`` (default 1): number of rows that a seed counts as, at its node, during the
        whole fit; with 0 seeds only determine the start.
    seeds : mapping or array-like, optional
        Content of some nodes. A mapping gives for a node words (see `feature_names`), row numbers of X (integers are
        always row numbers), or vectors of n_features. An array-like gives the name of an inner node or a leaf for
        each row; None for rows without one.
    feature_names : sequence of str, optional
        Words of the columns, for seeds; by default the column names of the data frame of the fit.
    init : {"auto", "top-down", "bottom-up", "random"}
        The start. "top-down": the rows of each node are split among its children by spherical k-means. "bottom-up":
        clusters for all leaves are found first, and then distributed over the tree by similarity. "auto": the one of
        the two whose leaves have the higher bound. "random": random labels.
    keep_empty : bool
        Keep leaves that no row is assigned to, and leaves with the same mean. By default they are dropped and merged
        at the end of `fit`, and a node with one child becomes a leaf: nodes have as many children as the data
        support, at most as many as `structure` says. A given tree is never changed, nor one with `seeds`.
    n_init, calibration, tol, max_iter, batch_size, n_jobs, random_state, verbose : see `VMFMixture`

    Attributes
    ----------
    hierarchy_ : Hierarchy
        The tree with one root.
    nodes_ : ndarray of shape (n_nodes,)
        Names of its nodes, in the order of all arrays by node.
    leaf_ids_ : ndarray of shape (n_leaves,)
        Positions of the leaves in `nodes_`.
    means_ : ndarray of shape (n_nodes, n_features)
        Directions of the posterior means.
    mean_concentrations_ : ndarray of shape (n_nodes,)
        Concentrations of the posteriors of the means: how certain the means are.
    concentrations_ : ndarray of shape (n_nodes,)
        Posterior means of the concentrations, of rows around a leaf and of children around an inner node.
    kappa_posterior_ : ndarray of shape (5, n_nodes)
        See `BayesianVMFMixture`.
    dirichlet_ : ndarray of shape (n_leaves,)
        Parameters of the posterior of the weights of the leaves.
    weights_ : ndarray of shape (n_nodes,)
        Posterior means of the weights; the weight of an inner node is the sum of those of its children.
    prior_ : dict
        `alpha`, `direction`, `concentration`, `log_mean` and `log_variance`, as given or learned.
    seed_nodes_, seed_means_ : ndarray
        Ids of the nodes with seeds, and their directions.
    lower_bounds_ : ndarray
        Evidence lower bound in each iteration, with all constants.
    trace_ : Trace
    n_components_ : int
        Number of leaves found; see `keep_empty`.
    density_quantiles_, calibration_temperature_, n_zero_rows_, n_iter_, converged_ : see `VMFMixture`
    n_features_in_ : int

    Notes
    -----
    The concentration of the prior of the root is not learned: it is the prior of a single mean, and the most probable
    prior would be a point. In many dimensions a few children determine the mean of their parent poorly. Then their
    learned concentration around it is low, and the leaves become independent of each other; the option
    ``node_concentration`` ties them. With a known root the opposite may happen: inner nodes become equal to the root.

    The start fits the leaves without the tree for a few iterations. Densities are those of the posterior predictive
    distribution, as in `BayesianVMFMixture`.

    Examples
    --------
    >>> from arbora.datasets import make_hierarchical_vmf
    >>> from arbora.discover import HierarchicalVMFMixture
    >>> data = make_hierarchical_vmf(400, 10, (2, 3), node_kappa=[10.0, 60.0], kappa=400.0, random_state=0)
    >>> model = HierarchicalVMFMixture((2, 3), random_state=0).fit(data.X_train)
    >>> [len(path) for path in model.predict_path(data.X_train[:2])]
    [3, 3]
    >>> proba = model.predict_node_proba(data.X_train)
    >>> bool(abs(proba[:, model.nodes_ == "root"] - 1).max() < 1e-9)
    True
    """

    _options: ClassVar[dict[str, Any]] = {"prior": (TreePriorOptions, _TREE_CONSTRAINTS)}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BayesianComponents._parameter_constraints,
        "structure": [Hierarchy, "array-like"],
        "seeds": [dict, "array-like", None],
        "feature_names": ["array-like", None],
        "init": [StrOptions({"auto", *_LEAVES})],
    }

    def __init__(
        self,
        structure: Any = (4, 4, 4),
        *,
        concentration: str = "own",
        concentration_posterior: str = "grid",
        prior: dict[str, Any] | None = None,
        seeds: Any = None,
        feature_names: Any = None,
        init: str = "auto",
        n_init: int = 1,
        calibration: str | None = "auto",
        keep_empty: bool = False,
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.concentration = concentration
        self.concentration_posterior = concentration_posterior
        self.prior = prior
        self.seeds = seeds
        self.feature_names = feature_names
        self.init = init
        self.n_init = n_init
        self.calibration = calibration
        self.keep_empty = keep_empty
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def n_components(self) -> int:
        """Number of leaves."""
        return len(self.hierarchy_.leaf_ids)

    def _check_X(self, X: sp.csr_array) -> sp.csr_array:
        return unit_rows(X)

    def _place_rows(self, X: sp.csr_array, y: Any, weight: Matrix) -> sp.csr_array:
        """Make the tree and read the seeds; the rows stay as they are."""
        self._set_tree(self._make_tree())
        names = getattr(self, "feature_names_in_", None) if self.feature_names is None else self.feature_names
        self.seed_nodes_, self.seed_means_ = find_seeds(self.seeds, self.hierarchy_, X, names)
        return X

    def _set_tree(self, tree: Hierarchy) -> None:
        self.hierarchy_, self.nodes_, self.leaf_ids_ = tree, tree.names.copy(), tree.leaf_ids.copy()

    def _repair(
        self, rows: WeightedRows, fit: MixtureFit, n_components: int, search: Search, engine: Engine
    ) -> tuple[MixtureFit, int]:
        """Drop empty leaves and merge leaves with the same mean, unless the tree or nodes of it were given."""
        if self.keep_empty or isinstance(self.structure, Hierarchy) or self.seeds is not None:
            return fit, n_components
        search = search.without_annealing()
        for _ in range(MAX_PRUNINGS):
            leaf_of = self._assigned(fit.params, rows, engine)
            groups = without_clones(rows, leaf_of, n_components)
            n_groups = int(groups.max()) + 1
            if n_groups == n_components:
                break
            sizes = np.zeros((n_groups, n_components))
            np.add.at(sizes, (groups, leaf_of), rows.weight)
            largest = sizes.argmax(axis=1)  # the leaf of each group of clones
            tree, leaves = pruned_tree(self.hierarchy_, largest.tolist())
            labels = np.argsort(leaves)[np.searchsorted(np.sort(leaves), largest[groups])]
            self._set_tree(tree)
            n_components = n_groups
            fit = self._solve(rows, labels, n_components, search, engine)
        return fit, n_components

    def _make_tree(self) -> Hierarchy:
        if isinstance(self.structure, Hierarchy):
            return one_root(self.structure)
        widths = list(self.structure)
        if not widths or not all(isinstance(width, Integral) and int(width) >= 1 for width in widths):
            raise ValueError(
                f"structure must be a Hierarchy or numbers of children, 1 or more, got {self.structure!r}."
            )
        return regular_tree([int(width) for width in widths])

    def _seeds(self) -> Seeds:
        return Seeds(self.seed_nodes_, self.seed_means_)

    def _tree(self, dtype: Any) -> Tree:
        n_nodes = self.hierarchy_.n_nodes
        counts = np.zeros(n_nodes)
        seed_weight = self._read_options("prior").seed_weight
        counts[self.seed_nodes_] = seed_weight
        seeds = sp.lil_array((n_nodes, self.n_features_in_))
        if seed_weight:
            seeds[self.seed_nodes_] = seed_weight * self.seed_means_
        return as_tree(self.hierarchy_, sp.csr_array(seeds), counts, dtype)

    # --- the model ------------------------------------------------------------------------------------------------

    def _model(self, rows: WeightedRows) -> MixtureModel:
        fixed = () if self._read_options("prior").node_concentration is None else ("node_concentration",)
        tree, inference = self._tree(rows.X.dtype), self._inference(*fixed)
        return MixtureModel(
            posterior_scores, partial(update_tree, tree, inference), partial(tree_extra, tree, inference)
        )

    def _start(self, start: Start) -> TreePosterior:
        init, dtype = start.init, start.rows.X.dtype
        names = ("top-down", "bottom-up") if isinstance(init, str) and init == "auto" else (init,)
        starts = [self._fit_leaves(start._replace(init=name)) for name in names]
        bounds = [fit.bounds[-1] for fit in starts]
        best = int(bounds[-1] > bounds[0] + _SAME * abs(bounds[0]))  # not by rounding alone
        q = starts[best].params
        if isinstance(names[best], str) and names[best] == "bottom-up":
            order = arrange(self.hierarchy_, q.directions.T, self._seeds(), start.rng)
            kappa = KappaPosterior(*(part[order] for part in q.kappa))
            directions = np.ascontiguousarray(q.directions[:, order])
            q = VMFPosterior(directions, q.mean_concentrations[order], q.dirichlet[order], kappa, q.prior)
        # The prior that the leaves learned may be narrow; the inner nodes have still to learn theirs.
        prior = VMFPrior(**{**q.prior._asdict(), "log_variance": 1.0, **self._fixed_prior()})
        node_concentration = self._read_options("prior").node_concentration
        return start_tree(self._tree(dtype), q._replace(prior=prior), node_concentration)

    def _fit_leaves(self, start: Start) -> MixtureFit:
        """Fit the leaves without the tree, from a broad concentration, or from labels of the rows."""
        rows, init, n_components, _, rng, engine = start
        n_features, ones, leaves = rows.X.shape[1], np.ones(n_components), None
        if isinstance(init, str):
            directions = np.ascontiguousarray(_LEAVES[init](rows, self.hierarchy_, self._seeds(), rng).T)
            kappa = broad_concentration(rows, directions, rng)
            leaves = VMFParams(directions, ones, kappa * ones, ones / n_components)
        leaves = annealed_components(start, self._annealing(start), leaves)
        total = np.asarray(rows.X.T @ rows.weight, dtype=np.float64)
        direction = unit_vectors(total[None], np.eye(1, n_features))[0][0]
        prior = VMFPrior(1.0, direction, 0.0, float(np.log(leaves.concentrations).mean()), 1.0)
        kappa_posterior = point_posterior(leaves.concentrations, n_features)
        dirichlet = rows.total * leaves.weights + 1.0
        q = VMFPosterior(leaves.vectors, CERTAIN * ones, dirichlet, kappa_posterior, prior)
        inference = self._inference()._replace(fixed=frozenset())
        extra = partial(posterior_extra, shared=inference.shared)
        model = MixtureModel(posterior_scores, partial(update_posterior, inference), extra)
        schedule = self._schedule(0)._replace(max_iter=_FLAT_ITERATIONS)
        return run(model, rows, q, schedule, engine)

    def _set(self, params: TreePosterior) -> None:
        nodes = params.nodes
        means = nodes.directions.astype(np.float64)
        self.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
        self.mean_concentrations_ = nodes.mean_concentrations
        self.kappa_posterior_ = np.array(nodes.kappa)
        self.concentrations_ = nodes.kappa.mean
        self.dirichlet_ = params.dirichlet
        shares = params.dirichlet[None] / params.dirichlet.sum()
        self.weights_ = node_probabilities(self.hierarchy_, self.leaf_ids_, shares)[0]
        self.prior_ = params.prior._asdict()

    def _params(self) -> TreePosterior:
        nodes = Nodes(self.means_, self.mean_concentrations_, KappaPosterior(*self.kappa_posterior_))
        return with_leaves(self._tree(np.float64), nodes, self.dirichlet_, VMFPrior(**self.prior_))

    def _n_parameters(self) -> int:
        (n_nodes, n_features), n_leaves = self.means_.shape, len(self.leaf_ids_)
        options = self._read_options("prior")
        n_kappa = 1 if self.concentration == "shared" else n_leaves
        n_kappa += n_nodes - n_leaves if options.node_concentration is None else 0
        has_root = options.direction is not None and bool(np.isinf(options.concentration))
        return int((n_nodes - has_root) * (n_features - 1) + n_kappa + n_leaves - 1)

    def _log_joint(self, params: TreePosterior, X: sp.csr_array) -> Array:
        return posterior_log_joint(params, X)

    def _log_density(self, params: TreePosterior, X: sp.csr_array) -> Array:
        return mixture_log_density(leaf_posterior(params), X)

    def _left_out_log_density(
        self, params: TreePosterior, X: sp.csr_array, weight: Matrix, stats: Stats
    ) -> Array:
        return left_out_mixture_log_density(leaf_posterior(params), self._log_joint(params, X), X, weight)

    def _draw(self, labels: Ints, rng: np.random.Generator) -> Array:
        nodes = self.leaf_ids_[labels]
        kappa = KappaPosterior(*self.kappa_posterior_[:, nodes])
        return sample_predictive(self.means_[nodes], self.mean_concentrations_[nodes], kappa, rng)

    # --- prediction and description by nodes ------------------------------------------------------------------------

    def predict(self, X: Any) -> Matrix:
        """Return the most probable leaf of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of leaves; -1 for a zero row.
        """
        columns = self._labels(self._checked(X))
        names = self._names(self.leaf_ids_[columns])
        names[columns == UNKNOWN] = UNKNOWN
        return names

    def _names(self, ids: Ints) -> Matrix:
        """Return names of nodes, as an array of integers if all names are integers."""
        names = self.hierarchy_.decode(ids)
        return np.asarray(
            names.astype(np.int64) if all(isinstance(name, int) for name in self.hierarchy_) else names
        )

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each leaf given the row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_leaves)
            Columns in the order of ``nodes_[leaf_ids_]``.
        """
        return super().predict_proba(X)

    def predict_node_proba(self, X: Any) -> Array:
        """Return the probability of every node given the row. The probability of a parent is the sum of its children.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
            Columns in the order of `nodes_`.
        """
        proba = self.predict_proba(X)
        return node_probabilities(self.hierarchy_, self.leaf_ids_, proba)

    def predict_path(self, X: Any) -> list[list[Any]]:
        """Return the names from the root to the most probable leaf of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        list of lists of names
            Empty for a zero row.
        """
        columns = self._labels(self._checked(X)).tolist()
        names = self._names(self.leaf_ids_)
        paths = {k: self.hierarchy_.path(names[k]) if k >= 0 else [] for k in dict.fromkeys(columns)}
        return [paths[k].copy() for k in columns]

    def _log_prior(self, X: Any) -> Array:
        return np.tile(log_weights(self.weights_[self.leaf_ids_]), (X.shape[0], 1))

    def sample(self, n_samples: int = 1) -> tuple[Array, Matrix]:
        """Draw rows from the posterior predictive distribution.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        leaves : ndarray of shape (n_samples,)
            Name of the leaf of each row.
        """
        check_is_fitted(self)
        rng, shares = draw_generator(self.random_state), self.weights_[self.leaf_ids_]
        labels = rng.choice(len(shares), size=n_samples, p=shares)
        return self._draw(labels, rng), self._names(self.leaf_ids_[labels])

    def top_features(self, feature_names: Any = None, n: int = 10) -> Features:
        """List the largest features of the mean of each node.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the parameter `feature_names`, the column names of the data frame of the fit, or column
            numbers.
        n : int
            Number of features in each list.

        Returns
        -------
        list of lists of (name, weight)
            One list for each node, in the order of `nodes_`; largest weights first. Only positive weights are listed.
        """
        check_is_fitted(self)
        names = self.feature_names if feature_names is None else feature_names
        return largest_features(self, self.means_, names, n)

    def representatives(self, X: Any, n: int = 5) -> list[Ints]:
        """Find the most typical rows of each node: of the rows in leaves at or below it, those nearest to its mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        n : int
            Number of rows for each node; fewer if the node has fewer.

        Returns
        -------
        list of ndarray of int
            Row numbers for each node, in the order of `nodes_`; nearest rows first.
        """
        check_count(n)
        checked = self._checked(X)
        columns = self._labels(checked)
        leaves = np.where(columns == UNKNOWN, UNKNOWN, self.leaf_ids_[columns])
        above = self.hierarchy_.ancestor_matrix.tocsc()
        nearest = []
        for node in range(self.hierarchy_.n_nodes):
            below = above.indices[above.indptr[node] : above.indptr[node + 1]]
            members = np.flatnonzero(np.isin(leaves, below))
            cosine = checked[members] @ self.means_[node]
            nearest.append(members[np.argsort(-cosine, kind="stable")[:n]])
        return nearest
