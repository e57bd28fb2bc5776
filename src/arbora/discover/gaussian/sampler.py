r"""Collapsed Gibbs sampling of partitions: Dirichlet-process and finite mixtures of Gaussians, also with margins.

Components and weights are integrated out. A state has the labels of the rows, the concentration :math:`\alpha` of the
process (or :math:`\alpha / K` of each of K weights), the parameters of the prior of the components, and with margins
the projections :math:`\eta_k` of the clusters. Its density is

.. math:: p(y \mid \alpha) \prod_k m(X_k \mid r, \nu, S) \; p(\alpha, r, \nu, S)
          \prod_k N(\eta_k; 0, v I) \prod_i e^{-2 c h_i},

with :math:`\alpha \sim \mathrm{Gamma}(1, 1)`, m the marginal density of the rows of a cluster, and h the losses of
`arbora.infer.mcmc.max_margin` among the clusters that have rows (among all K, if K is fixed). A sweep proposes merges
and splits, draws the label of every row, the projections, alpha (Escobar and West 1995), and r, nu, S given
components that are drawn for this purpose and forgotten. All steps leave the density above invariant.

The most violated competitor of a row (s_i of the paper) is no variable of the chain; with it the stationary
distribution would be another one, since a sum over s_i rewards the easiest competitor. The paper's rule for c and the
margin (`target`) changes both in the warm-up, after which they stay.

References
----------
R. Neal (2000). Markov chain sampling methods for Dirichlet process mixture models. JCGS 9(2).
M. Escobar and M. West (1995). Bayesian density estimation and inference using mixtures. JASA 90(430).
C. Chen, J. Zhu and X. Zhang (2014). Robust Bayesian max-margin clustering. NIPS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from arbora.arrays import Array, Ints, Matrix
from arbora.discover.gaussian.normal_wishart import (
    Hyperparameters,
    HyperPrior,
    draw_components,
    draw_posterior_components,
    log_marginals,
    prior_of,
    tabulate,
)
from arbora.infer.mcmc.hmc import slice_step
from arbora.infer.mcmc.max_margin import Margin, draw_projections, hinge_losses
from arbora.kernels.gibbs.normal_wishart import N_SCRATCH, Clusters, Prior, clear_cluster, student_matrix
from arbora.kernels.gibbs.partitions import (
    MarginSlots,
    draw_projection,
    merge_split,
    sweep_labels,
    sweep_labels_margin,
)

# --- The sampler: a state, the model, and the arrays of a sweep ----------------------------------------------


_SPARE_SLOTS = 8  # for new clusters in a sweep, before the arrays have to grow
_MIN_STRENGTH = 1e-4  # smallest c and margin of the heuristic
_START_STEPS = 3  # of the projections, before the first labels are drawn


class PartitionState(NamedTuple):
    """One draw: a partition and all parameters. Labels count from 0, in the order of their first rows."""

    labels: Ints
    alpha: float
    r: float
    nu: float
    scale: Array
    projections: Array  # (n_clusters, n_margin_features); without rows if there are no margins
    c: float
    width: float
    sweep: int

    @property
    def hyper(self) -> Hyperparameters:
        """Parameters of the prior of the components."""
        return Hyperparameters(float(self.r), float(self.nu), self.scale)


class PartitionModel(NamedTuple):
    """The model and its sampler."""

    hyper_prior: HyperPrior
    n_components: int | None = None  # None: a Dirichlet process
    fixed_alpha: bool = False
    n_moves: int = 10  # merge-split proposals in a sweep
    variance: float | None = None  # v of the projections; None without margins
    margin_basis: Array | None = None  # margins are on X @ margin_basis (n_features, n_margin_features)
    n_pool: int = 3  # projections for new clusters that are kept ready
    target: int | None = None  # clusters that the paper's rule aims at in the first `n_adapt` sweeps
    n_adapt: int = 0

    # --- densities ------------------------------------------------------------------------------------------------

    def margin_rows(self, X: Array) -> Array:
        """Return the rows that the projections act on."""
        return X if self.margin_basis is None else np.ascontiguousarray(X @ self.margin_basis)

    def has_margin(self, state: PartitionState) -> bool:
        """Return whether the margin changes the density."""
        return self.variance is not None and state.c > 0

    def losses(self, state: PartitionState, X: Array) -> Array:
        """Return the loss of each row."""
        return hinge_losses(self.margin_rows(X) @ state.projections.T, state.labels, float(state.width))

    def log_urn(self, counts: Ints, alpha: float) -> float:
        """Return the log-probability of a partition with clusters of these sizes."""
        n, counts = counts.sum(), counts[counts > 0]
        value = gammaln(alpha) - gammaln(alpha + n)
        if self.n_components is None:
            return float(value + len(counts) * np.log(alpha) + gammaln(counts).sum())
        K, each = self.n_components, alpha / self.n_components
        value += gammaln(K + 1) - gammaln(K + 1 - len(counts))  # numberings of the clusters
        return float(value + np.sum(gammaln(each + counts) - gammaln(each)))

    def log_joint(self, state: PartitionState, X: Array) -> float:
        """Return the log-density of a state and the rows, up to a constant."""
        n_slots = int(state.labels.max()) + 1
        prior = prior_of(state.hyper, self.hyper_prior.mean, self.hyper_prior.covariance, len(X))
        clusters = tabulate(X, state.labels, n_slots, prior, state.scale)
        value = self.log_urn(clusters.counts[:-N_SCRATCH], float(state.alpha))
        value += float(log_marginals(clusters, prior).sum()) + self.hyper_prior.log_density(state.hyper)
        value -= 0.0 if self.fixed_alpha else float(state.alpha)
        if self.has_margin(state):
            v = self.variance
            assert v is not None
            value -= 2 * float(state.c) * float(self.losses(state, X).sum())
            value -= 0.5 * float(np.sum(state.projections**2 / v + np.log(2 * np.pi * v)))
        return value

    # --- simulation -----------------------------------------------------------------------------------------------

    def sample_prior_of(self, n_rows: int, start: PartitionState, rng: np.random.Generator) -> PartitionState:
        """Draw a state from the prior without the factor of the margin; what is fixed is taken from `start`."""
        alpha = start.alpha if self.fixed_alpha else float(rng.exponential())
        labels = draw_partition(n_rows, alpha, self.n_components, rng)
        labels, names = canonical(labels)
        K = self.n_components or len(names)
        hyper = self.hyper_prior.sample(start.hyper, rng)
        projections = np.zeros((0, 0))
        if self.variance is not None:
            d = len(self.hyper_prior.mean) if self.margin_basis is None else self.margin_basis.shape[1]
            projections = np.sqrt(self.variance) * rng.standard_normal((K, d))
        return PartitionState(labels, alpha, *hyper, projections, start.c, start.width, 0)

    def propose_data(self, state: PartitionState, rng: np.random.Generator) -> Array:
        """Draw components and rows given a state, without the factor of the margin."""
        hp, K = self.hyper_prior, int(state.labels.max()) + 1
        means = np.tile(hp.mean, (K, 1))
        scales = np.tile(state.scale, (K, 1, 1))
        drawn = draw_components(means, scales, np.full(K, state.r), np.full(K, state.nu), hp.covariance, rng)
        noise = rng.standard_normal((len(state.labels), len(hp.mean)))
        if hp.covariance == "full":
            covariance_roots = np.linalg.inv(drawn.roots)
            noise = np.einsum("ij,ijk->ik", noise, covariance_roots[state.labels])
        else:
            noise = noise / drawn.roots[state.labels, 0]
        return np.asarray(drawn.means[state.labels] + noise)

    def sample_data(self, state: PartitionState, rng: np.random.Generator) -> Array:
        """Draw rows given a state; with margins by rejection."""
        while True:
            X = self.propose_data(state, rng)
            if not self.has_margin(state):
                return X
            if np.log(rng.random()) < -2 * state.c * self.losses(state, X).sum():
                return X

    # --- the sweep ------------------------------------------------------------------------------------------------

    def sweep(
        self, state: PartitionState, X: Array, rng: np.random.Generator
    ) -> tuple[PartitionState, Mapping[str, float]]:
        """Draw all variables once."""
        hp, has_margin = self.hyper_prior, self.has_margin(state)
        prior = prior_of(state.hyper, hp.mean, hp.covariance, len(X))
        table = _Table(self, state, X, prior, rng)
        accepted = table.merge_split(rng)
        table.sweep(rng)
        labels, names = canonical(table.labels)
        projections = state.projections
        if self.variance is not None:
            projections = self._projections(table, labels, names, state, has_margin, rng)
        n_clusters = len(names)
        alpha = self._draw_alpha(float(state.alpha), np.bincount(labels), rng)
        hyper = state.hyper
        if not hp.fixed >= {"r", "nu", "S"}:
            components = draw_posterior_components(table.clusters, prior, hyper.nu, hp.covariance, rng)
            hyper = hp.draw(hyper, components, rng)
        c, width = self._adapted(state, n_clusters, rng)
        moved = PartitionState(labels, alpha, *hyper, projections, c, width, state.sweep + 1)
        info = {"n_clusters": float(n_clusters), "accepted": accepted / max(self.n_moves, 1)}
        return moved, info | ({} if self.target is None else {"c": c, "margin": width})

    def _projections(
        self,
        table: _Table,
        labels: Ints,
        names: Ints,
        state: PartitionState,
        has_margin: bool,
        rng: np.random.Generator,
    ) -> Array:
        """Draw the projections of the clusters, in the new order of these; empty ones of a fixed number come last."""
        assert self.variance is not None
        if self.n_components is not None:
            names = np.concatenate([names, np.setdiff1d(np.arange(self.n_components), names)])
        if not has_margin:
            shape = (len(names), table.margin_features)
            return np.asarray(np.sqrt(self.variance) * rng.standard_normal(shape))
        assert table.margin is not None
        margin = Margin(float(state.c), float(state.width), self.variance)
        return draw_projections(table.margin.projections[names], table.margin.rows, labels, margin, rng)

    def _draw_alpha(self, alpha: float, counts: Ints, rng: np.random.Generator) -> float:
        if self.fixed_alpha:
            return alpha
        n, K = int(counts.sum()), len(counts)
        if self.n_components is None:
            rate = 1.0 - np.log(rng.beta(alpha + 1, n))
            odds = K / (n * rate)
            return float(rng.gamma(K + (rng.random() * (1 + odds) < odds)) / rate)

        def log_density(u: float) -> float:
            return float(u - np.exp(u)) + self.log_urn(counts, float(np.exp(u)))

        return float(np.exp(slice_step(log_density, float(np.log(alpha)), 1.0, rng)))

    def _adapted(
        self, state: PartitionState, n_clusters: int, rng: np.random.Generator
    ) -> tuple[float, float]:
        """Move c or the margin by u / n towards the target number of clusters (section 6.1 of the paper)."""
        c, width = float(state.c), float(state.width)
        if self.target is None or state.sweep >= self.n_adapt:
            return c, width
        step = np.sign(n_clusters - self.target) * rng.random() / (state.sweep + 1)
        if rng.random() < 0.5:
            return max(c + step, _MIN_STRENGTH), width
        return c, max(width + step, _MIN_STRENGTH)


def start_state(
    model: PartitionModel, start: PartitionState, X: Array, labels: Ints, rng: np.random.Generator
) -> PartitionState:
    """Return the state that a chain starts from: parameters of `start`, these labels, projections that suit them."""
    state = start._replace(labels=canonical(labels)[0])
    if model.variance is None:
        return state
    rows = model.margin_rows(X)
    projections = np.zeros((model.n_components or int(state.labels.max()) + 1, rows.shape[1]))
    margin = Margin(float(state.c), float(state.width), model.variance)
    for _ in range(_START_STEPS):
        projections = draw_projections(projections, rows, state.labels, margin, rng)
    return state._replace(projections=projections)


class _Table:
    """The arrays that the kernels change in a sweep; they grow when clusters need more slots."""

    def __init__(
        self, model: PartitionModel, state: PartitionState, X: Array, prior: Prior, rng: np.random.Generator
    ) -> None:
        self.model, self.X, self.prior = model, X, prior
        self.labels, self.fixed = np.array(state.labels, np.int64), model.n_components is not None
        self.alpha = float(state.alpha)
        n_pool = model.n_pool if model.has_margin(state) else 0
        spare = model.n_moves + n_pool + _SPARE_SLOTS
        n_slots = model.n_components or int(self.labels.max()) + 1 + spare
        self.clusters = tabulate(X, self.labels, n_slots, prior, state.scale)
        self.offset = self.alpha / n_slots if self.fixed else 0.0
        sizes = np.arange(len(X) + 1) + self.offset
        self.log_sizes = np.log(sizes, where=sizes > 0, out=np.full(len(sizes), -1e300))
        self.empty = np.zeros(len(X))
        if not self.fixed:
            self.empty = _prior_densities(X, prior)
        rows = model.margin_rows(X) if model.variance is not None else np.zeros((len(X), 0))
        self.margin_features = rows.shape[1]
        self.margin = self._start_margin(rows, state, n_slots) if model.has_margin(state) else None

    def _start_margin(self, rows: Array, state: PartitionState, n_slots: int) -> MarginSlots:
        projections = np.zeros((n_slots, rows.shape[1]))
        projections[: len(state.projections)] = state.projections
        scores = np.zeros((len(rows), n_slots))
        scores[:, : len(state.projections)] = rows @ state.projections.T
        pool = np.zeros(0 if self.fixed else self.model.n_pool, np.int64)
        assert self.model.variance is not None
        deviation = float(np.sqrt(self.model.variance))
        return MarginSlots(rows, projections, scores, pool, float(state.c), float(state.width), deviation)

    def merge_split(self, rng: np.random.Generator) -> int:
        """Propose merges and splits; return how many were accepted."""
        n_moves = self.model.n_moves
        if n_moves == 0 or len(self.X) < 2:
            return 0
        sums = np.concatenate([[0.0], np.cumsum(self.prior.table)])
        log_alpha = -float(gammaln(self.offset)) if self.fixed else float(np.log(self.alpha))
        margin = self.margin if self.margin is not None else _NO_MARGIN
        accepted: int = merge_split(
            self.X, self.labels, self.clusters, self.prior, sums, self.log_sizes, log_alpha, self.offset,
            self.fixed, n_moves, self.margin is not None, margin, rng,
        )  # fmt: skip
        return accepted

    def sweep(self, rng: np.random.Generator) -> None:
        """Draw the labels of all rows in random order."""
        order, position = rng.permutation(len(self.X)), 0
        if self.margin is not None and not self.fixed:
            free = np.flatnonzero(self.clusters.counts[:-N_SCRATCH] == 0)
            self.margin.pool[:] = free[: self.model.n_pool]
            for k in self.margin.pool:
                draw_projection(k, self.margin, rng)
        while position < len(order):
            position = self._sweep_from(position, order, rng)
            if position < len(order):
                self._grow()

    def _sweep_from(self, position: int, order: Ints, rng: np.random.Generator) -> int:
        """Draw labels from this position of the order on, until all are drawn or a slot is missing."""
        log_alpha = float(np.log(self.alpha))
        same = self.X, order, position, self.labels, self.clusters, self.prior, self.log_sizes
        if self.margin is None:
            return int(sweep_labels(*same, log_alpha, self.empty, self.fixed, rng))
        log_new = log_alpha - np.log(self.model.n_pool)
        return int(sweep_labels_margin(*same, log_new, self.empty, self.fixed, self.margin, rng))

    def _grow(self) -> None:
        n_slots = len(self.clusters.counts) - N_SCRATCH
        self.clusters = Clusters(*(_longer(array, 2 * n_slots + N_SCRATCH) for array in self.clusters))
        if self.margin is not None:
            scores = np.ascontiguousarray(_longer(self.margin.scores.T, 2 * n_slots).T)
            projections = _longer(self.margin.projections, 2 * n_slots)
            self.margin = self.margin._replace(scores=scores, projections=projections)
        for k in range(n_slots, len(self.clusters.counts)):  # scratch slots have become slots
            clear_cluster(self.clusters, k, self.prior)


_NO_MARGIN = MarginSlots(
    np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0, np.int64), 0.0, 0.0, 0.0
)


def _longer(array: Matrix, size: int) -> Matrix:
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _prior_densities(X: Array, prior: Prior) -> Array:
    """Return the log-density of each row in a cluster of its own."""
    single = Clusters(
        np.zeros(1, np.int64),
        prior.mean[None].copy(),
        prior.factor[None].copy(),
        prior.inverse[None].copy(),
        np.array([prior.logdet]),
    )
    out = np.empty((len(X), 1))
    student_matrix(X, single, prior, out)
    return out[:, 0]


def canonical(labels: Ints) -> tuple[Ints, Ints]:
    """Renumber labels in the order of their first rows; return them and the old numbers in the new order."""
    names, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes], names[order]


def draw_partition(n_rows: int, alpha: float, n_components: int | None, rng: np.random.Generator) -> Ints:
    """Draw labels from the Chinese restaurant process, or given weights from a symmetric Dirichlet distribution."""
    counts = np.zeros(n_components or n_rows)
    labels = np.empty(n_rows, np.int64)
    for i in range(n_rows):
        if n_components is None:
            weights = counts.copy()
            weights[np.flatnonzero(counts == 0)[:1]] = alpha
        else:
            weights = counts + alpha / n_components
        labels[i] = rng.choice(len(counts), p=weights / weights.sum())
        counts[labels[i]] += 1
    return labels
