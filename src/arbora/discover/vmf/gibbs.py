r"""Collapsed Gibbs sampling of the Bayesian von Mises-Fisher mixture.

Weights and mean directions are integrated out; only assignments and concentrations are sampled (supplement of the
paper, equations 7 and 9). With :math:`n_k, s_k` the number and the sum of the rows of component k,

.. math:: p(z_i = k \mid \cdot) &\propto (\alpha + n_k)\, C_D(\kappa_k)\,
          \frac{C_D(\|\kappa_k s_k + C_0 \mu_0\|)}{C_D(\|\kappa_k (s_k + x_i) + C_0 \mu_0\|)}, \\
          p(\kappa_k \mid \cdot) &\propto \frac{C_D(\kappa_k)^{n_k}\, C_D(C_0)}{C_D(\|\kappa_k s_k + C_0 \mu_0\|)}\,
          \mathrm{logNormal}(\kappa_k \mid m, \sigma^2),

with row i left out of the first. Norms are computed from :math:`\|s_k\|^2`, :math:`s_k^\top \mu_0` and
:math:`s_k^\top x_i`; only the last needs a pass over the row. Concentrations take Metropolis steps in :math:`\log
\kappa`, whose size is tuned during warm-up. The density of a shared concentration is the product of the factors of
all components.

Different sweeps and chains number the components differently. Their numbers are aligned with a reference by the
assignment under which most rows agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numba as nb
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.trace import Trace
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.posterior import VMFPosterior, VMFPrior
from arbora.infer.mcmc.chains import ChainSchedule, mean_trace, sample_chains, start_from
from arbora.infer.mcmc.diagnostics import rhat
from arbora.special import kernels, sample_vmf, vmf_log_normalizer

_METROPOLIS = 5  # Metropolis steps of the concentrations in a sweep
_ACCEPTANCE = 0.44  # optimal acceptance rate in one dimension
_RHAT_LIMIT = 1.05
_LOG_NORMALIZER = kernels.log_normalizer_of_one


class GibbsState(NamedTuple):
    """Component of each row, and logarithms of the concentrations (equal if the concentration is shared)."""

    labels: Ints
    log_kappa: Array


@nb.njit(nogil=True, cache=True, error_model="numpy")
def sweep_labels(  # type: ignore[no-untyped-def]
    indptr, indices, data, order, noise, labels, counts, sums, square, along, direction, kappa, alpha, c0
):
    """Draw a component for each row given all others; labels, counts, sums and norms are updated in place."""
    n_components, order_v = len(counts), len(direction) / 2 - 1
    dot, score = np.empty(n_components), np.empty(n_components)
    log_c = np.empty(n_components)
    for k in range(n_components):
        log_c[k] = _LOG_NORMALIZER(order_v, kappa[k])
    for position in range(len(order)):
        i = order[position]
        dot[:] = 0.0
        length, across = 0.0, 0.0
        for q in range(indptr[i], indptr[i + 1]):
            j, v = indices[q], data[q]
            length += v * v
            across += v * direction[j]
            for k in range(n_components):
                dot[k] += v * sums[j, k]
        old = labels[i]
        counts[old] -= 1
        square[old] += length - 2 * dot[old]
        along[old] -= across
        dot[old] -= length
        top = -np.inf
        for k in range(n_components):
            a = kappa[k]
            before = a * a * square[k] + 2 * a * c0 * along[k] + c0 * c0
            after = before + a * a * (2 * dot[k] + length) + 2 * a * c0 * across
            score[k] = np.log(alpha + counts[k]) + log_c[k]
            score[k] += _LOG_NORMALIZER(order_v, np.sqrt(max(before, 0.0)))
            score[k] -= _LOG_NORMALIZER(order_v, np.sqrt(max(after, 0.0)))
            top = max(top, score[k])
        total = 0.0
        for k in range(n_components):
            score[k] = np.exp(score[k] - top)
            total += score[k]
        left, new = noise[position] * total, 0
        while new < n_components - 1 and left >= score[new]:
            left -= score[new]
            new += 1
        labels[i] = new
        counts[new] += 1
        square[new] += length + 2 * dot[new]
        along[new] += across
        if new != old:
            for q in range(indptr[i], indptr[i + 1]):
                sums[indices[q], old] -= data[q]
                sums[indices[q], new] += data[q]


class CollapsedVMF(NamedTuple):
    """The mixture as a `SamplerModel` (see `arbora.infer.mcmc.chains`). The data are rows of unit length."""

    prior: VMFPrior
    n_components: int
    n_rows: int
    shared: bool = False
    step: float = 0.3

    def sample_prior(self, rng: np.random.Generator) -> GibbsState:
        """Draw assignments and concentrations from the prior."""
        weights = rng.dirichlet(np.full(self.n_components, self.prior.alpha))
        labels = rng.choice(self.n_components, size=self.n_rows, p=weights)
        size = 1 if self.shared else self.n_components
        u = self.prior.log_mean + np.sqrt(self.prior.log_variance) * rng.standard_normal(size)
        return GibbsState(labels, np.broadcast_to(u, self.n_components).copy())

    def sample_data(self, state: GibbsState, rng: np.random.Generator) -> sp.csr_array:
        """Draw mean directions, and rows around them."""
        means = sample_vmf(
            self.prior.direction, self.prior.concentration, size=self.n_components, random_state=rng
        )
        kappa = np.exp(state.log_kappa)
        return sp.csr_array(sample_vmf(means[state.labels], kappa[state.labels], random_state=rng))

    def statistics(self, state: GibbsState, X: sp.csr_array) -> tuple[Array, Array]:
        """Return the number of rows of each component, and their sums, (n_features, n_components)."""
        counts = np.bincount(state.labels, minlength=self.n_components).astype(np.float64)
        sums = np.zeros((X.shape[1], self.n_components))
        np.add.at(sums, (X.indices, np.repeat(state.labels, np.diff(X.indptr))), X.data)
        return counts, sums

    def norms(self, sums: Array) -> tuple[Array, Array]:
        """Return squared lengths of the sums, and their products with the prior direction."""
        return np.einsum("jk,jk->k", sums, sums), self.prior.direction @ sums

    def kappa_terms(self, u: Array, counts: Array, square: Array, along: Array) -> Array:
        """Return the log-density of the rows of each component given log(kappa), with the mean integrated out."""
        c0, n_features, kappa = self.prior.concentration, len(self.prior.direction), np.exp(u)
        length = np.sqrt(np.maximum(kappa**2 * square + 2 * kappa * c0 * along + c0**2, 0.0))
        fit = counts * vmf_log_normalizer(kappa, n_features) - vmf_log_normalizer(length, n_features)
        return fit + vmf_log_normalizer(c0, n_features)

    def log_prior(self, u: Array) -> Array:
        """Return the log-density of log(kappa)."""
        m, variance = self.prior.log_mean, self.prior.log_variance
        return np.asarray(-0.5 * (np.log(2 * np.pi * variance) + (u - m) ** 2 / variance))

    def log_joint(self, state: GibbsState, X: sp.csr_array) -> float:
        """Return the log-density of assignments, concentrations and rows."""
        counts, sums = self.statistics(state, X)
        alpha, n_components, u = self.prior.alpha, self.n_components, state.log_kappa
        urn = gammaln(n_components * alpha) - gammaln(n_components * alpha + counts.sum())
        urn += np.sum(gammaln(alpha + counts) - gammaln(alpha))
        rows = self.kappa_terms(u, counts, *self.norms(sums)).sum()
        return float(urn + rows + (self.log_prior(u[:1]) if self.shared else self.log_prior(u)).sum())

    def sweep(
        self, state: GibbsState, X: sp.csr_array, rng: np.random.Generator
    ) -> tuple[GibbsState, Mapping[str, float]]:
        """Draw all assignments in random order, then move the concentrations."""
        counts, sums = self.statistics(state, X)
        square, along = self.norms(sums)
        labels, n = state.labels.copy(), X.shape[0]
        sweep_labels(
            *(X.indptr, X.indices, X.data, rng.permutation(n), rng.random(n), labels, counts, sums),
            *(square, along, self.prior.direction, np.exp(state.log_kappa)),
            *(float(self.prior.alpha), float(self.prior.concentration)),
        )
        square, along = self.norms(sums)  # recomputed, because rounding errors accumulate over the rows
        u, accepted = state.log_kappa, 0.0
        size = 1 if self.shared else self.n_components

        def value(u: Array) -> Array:
            fit = self.kappa_terms(u, counts, square, along)
            return (fit.sum(keepdims=True) if self.shared else fit) + self.log_prior(u[:size])

        current = value(u)
        for _ in range(_METROPOLIS):
            moved = u + np.broadcast_to(self.step * rng.standard_normal(size), u.shape)
            proposed = value(moved)
            accept = np.log(rng.random(size)) < proposed - current
            current = np.where(accept, proposed, current)
            u = np.where(np.broadcast_to(accept, u.shape), moved, u)
            accepted += float(accept.mean()) / _METROPOLIS
        return GibbsState(labels, u), {"acceptance": accepted}

    def adapt(
        self, state: GibbsState, info: Mapping[str, float], X: sp.csr_array, step: int, n_warmup: int
    ) -> CollapsedVMF:
        """Tune the size of the Metropolis steps."""
        return self._replace(step=self.step * np.exp((info["acceptance"] - _ACCEPTANCE) / np.sqrt(step + 1)))


def align(labels: Ints, reference: Ints, n_components: int) -> Ints:
    """Return new numbers of the components, under which most rows have the label of the reference."""
    table = np.zeros((n_components, n_components))
    np.add.at(table, (labels, reference), 1.0)
    names: Ints = linear_sum_assignment(-table)[1]
    return names


class Aligned(NamedTuple):
    """Draws in which the components have the same numbers."""

    resp: Array  # (n_samples, n_components): share of the draws in which a row is in a component
    log_kappa: Array  # (n_chains, n_draws, n_components)
    counts: Array  # (n_chains, n_draws, n_components)


def aligned_draws(labels: Matrix, log_kappa: Array, reference: Ints) -> Aligned:
    """Give the components of all draws the numbers of a reference (n_samples,).

    `labels` has shape (n_chains, n_draws, n_samples), `log_kappa` (n_chains, n_draws, n_components).
    """
    n_components, n_rows = log_kappa.shape[-1], len(reference)
    resp, rows = np.zeros((n_rows, n_components)), np.arange(n_rows)
    u, counts = np.empty_like(log_kappa), np.empty_like(log_kappa)
    for place in np.ndindex(labels.shape[:2]):
        names = align(labels[place], reference, n_components)
        named = names[labels[place]]
        resp[rows, named] += 1.0
        u[place][names] = log_kappa[place]
        counts[place] = np.bincount(named, minlength=n_components)
    return Aligned(resp / (labels.shape[0] * labels.shape[1]), u, counts)


def project(resp: Array, u: Array, X: sp.csr_array, prior: VMFPrior) -> VMFPosterior:
    """Return the factors of a posterior with the moments of the draws.

    `resp` is the share of the draws in which a row is in a component; u (n_draws, n_components) are
    log-concentrations.
    """
    kappa = np.exp(u)
    entropy = 0.5 * np.log(2 * np.pi * np.e * np.maximum(u.var(axis=0), 1e-32))
    log_normalizer = vmf_log_normalizer(kappa, X.shape[1]).mean(axis=0)
    law = KappaPosterior(kappa.mean(axis=0), log_normalizer, u.mean(axis=0), (u**2).mean(axis=0), entropy)
    mixed = (X.T @ resp) * law.mean + (prior.concentration * prior.direction)[:, None]
    mean_concentrations = np.linalg.norm(mixed, axis=0)
    directions = mixed / np.where(mean_concentrations > 0, mean_concentrations, 1.0)
    return VMFPosterior(directions, mean_concentrations, prior.alpha + resp.sum(axis=0), law, prior)


class Sampled(NamedTuple):
    """Results of all chains: attributes of `BayesianVMFMixture`, and factors with the moments of the draws."""

    trace: Trace
    resp: Array
    draws: dict[str, Array]
    rhat: dict[str, Array]
    projection: VMFPosterior


def sample_posterior(
    sampler: CollapsedVMF,
    X: sp.csr_array,
    states: Sequence[GibbsState],
    sweeps: ChainSchedule,
    seed: int,
    engine: Engine | None = None,
) -> Sampled:
    """Run a chain from each state, and number the components of all draws as in the first state."""
    sweeps = sweeps._replace(n_chains=len(states))
    chains = sample_chains(sampler, X, sweeps, seed, start=start_from(states), engine=engine)
    aligned = aligned_draws(chains.draws["labels"], chains.draws["log_kappa"], states[0].labels)
    draws = {"log_concentrations": aligned.log_kappa, "counts": aligned.counts, "log_joint": chains.log_joint}
    u = aligned.log_kappa.reshape(-1, sampler.n_components)
    return Sampled(
        mean_trace(chains.traces),
        aligned.resp,
        draws,
        {name: rhat(values) for name, values in draws.items()},
        project(aligned.resp, u, X, sampler.prior),
    )


def warn_unless_mixed(rhats: Mapping[str, Array]) -> None:
    """Warn if an R-hat shows that the chains found different clusters."""
    worst = max(rhats, key=lambda name: np.max(rhats[name]))
    if np.max(rhats[worst]) > _RHAT_LIMIT:
        warn_caller(
            f"the chains do not agree: R-hat of {worst} is up to {np.max(rhats[worst]):.3g} (limit: {_RHAT_LIMIT}). "
            "They may have found different clusters. Increase n_warmup and n_samples in sampling.",
            ConvergenceWarning,
        )
