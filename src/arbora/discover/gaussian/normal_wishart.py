r"""The prior of Gaussian components: densities, draws, and the conditionals of its parameters.

With p features, a component of the full form has

.. math:: \Sigma_k \sim \mathrm{InverseWishart}(S, \nu), \qquad \mu_k \sim N(m, \Sigma_k / r).

The diagonal form has these, for one feature each, in every feature; the spherical form has :math:`\Sigma_k = s_k I`
with :math:`s_k \sim \mathrm{InverseGamma}(\nu / 2, S / 2)`. The parameters have the priors

.. math:: r \sim \mathrm{Gamma}(1, 1), \qquad S - \epsilon S_0 \sim \mathrm{Wishart}(\rho, S_0 / \rho), \qquad
          \nu \sim \mathrm{Poisson}(d + 2) \text{ on } \{d, d + 1, ...\},

with :math:`\rho = d + 2` and :math:`\epsilon = 10^{-5}`, the floor of the scale; d is p for the full form, else 1.
Given the components, r has a gamma distribution. S is proposed from the Wishart distribution that it would have
without a floor, and accepted with the ratio of the determinants; :math:`\nu` takes Metropolis steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, multigammaln

from arbora.arrays import Array, Ints
from arbora.kernels.gibbs.normal_wishart import N_SCRATCH, Clusters, Prior, factorize, tabulate_clusters

FLOOR = 1e-5  # smallest scale, in units of S0
FORMS = "full", "diag", "spherical"
_NU_STEPS = 3  # Metropolis steps of nu in a sweep


class Hyperparameters(NamedTuple):
    """Parameters of the prior of the components."""

    r: float
    nu: float
    scale: Array  # S: (p, p), (1, p) or (1, 1)


class Components(NamedTuple):
    """Means and precisions of components; precisions by their upper or diagonal roots B, precision = B B'."""

    means: Array  # (n_components, n_features)
    roots: Array  # (n_components, p, p), (n_components, 1, p) or (n_components, 1, 1)
    log_precisions: Array  # (n_components,): log-determinants of the precisions


def n_dimensions(covariance: str, n_features: int) -> int:
    """Return d: the features that the inverse Wishart distribution of a form has."""
    return n_features if covariance == "full" else 1


def scale_shape(covariance: str, n_features: int) -> tuple[int, int]:
    """Return the shape of S."""
    return {"full": (n_features, n_features), "diag": (1, n_features), "spherical": (1, 1)}[covariance]


def prior_of(hyper: Hyperparameters, mean: Array, covariance: str, n_rows: int) -> Prior:
    """Return the prior with the tables of the densities of clusters of up to `n_rows` rows."""
    p, n = len(mean), np.arange(n_rows + 2, dtype=np.float64)
    r, nu, scale = hyper
    if covariance == "spherical":
        half = 0.5 * (nu + n * p)
        gammas = gammaln(half[1:]) - gammaln(half[:-1])
    else:
        half = 0.5 * (nu + n)
        gammas = gammaln(half[1:]) - gammaln(half[1:] - 0.5 * n_dimensions(covariance, p))
        gammas *= p / n_dimensions(covariance, p)
    rn = r + n[:-1]
    table = gammas - 0.5 * p * (np.log(np.pi) + np.log1p(1 / rn))
    factor, inverse = np.zeros_like(scale), np.empty(scale.shape[1])
    if len(scale) > 1:
        logdet = factorize(scale.copy(), factor, inverse)
    else:
        factor[:], inverse[:], logdet = scale, 1 / scale[0], float(np.log(scale).sum())
    return Prior(np.ascontiguousarray(mean), factor, inverse, float(logdet), float(r), table, half)


def empty_clusters(n_slots: int, shape: tuple[int, int], n_features: int) -> Clusters:
    """Return clusters without rows, with scratch slots; `tabulate_clusters` fills them."""
    n_slots += N_SCRATCH
    return Clusters(
        np.zeros(n_slots, np.int64),
        np.zeros((n_slots, n_features)),
        np.zeros((n_slots, *shape)),
        np.zeros((n_slots, shape[1])),
        np.zeros(n_slots),
    )


def tabulate(X: Array, labels: Ints, n_slots: int, prior: Prior, scale: Array) -> Clusters:
    """Return the statistics of the clusters of a partition."""
    clusters = empty_clusters(n_slots, prior.factor.shape, X.shape[1])
    tabulate_clusters(X, labels, prior, scale, clusters)
    return clusters


def log_marginals(clusters: Clusters, prior: Prior) -> Array:
    """Return the log-density of the rows of each cluster, the components integrated out."""
    counts = clusters.counts[:-N_SCRATCH]
    sums = np.concatenate([[0.0], np.cumsum(prior.table)])
    return np.asarray(
        sums[counts] + prior.half[0] * prior.logdet - prior.half[counts] * clusters.logdets[:-N_SCRATCH]
    )


# --- draws --------------------------------------------------------------------------------------------------------


def wishart_root(df: float, d: int, rng: np.random.Generator) -> Array:
    """Draw A, lower triangular, with A A' ~ Wishart(df, I) (Bartlett)."""
    A = np.tril(rng.standard_normal((d, d)), -1)
    A[np.diag_indices(d)] = np.sqrt(rng.chisquare(df - np.arange(d)))
    return A


def draw_components(
    means: Array, scales: Array, r: Array, df: Array, covariance: str, rng: np.random.Generator
) -> Components:
    """Draw components from normal-inverse-Wishart distributions with scales (n_components, ...) of their form."""
    K, p = means.shape
    if covariance != "full":
        shape = 0.5 * np.broadcast_to(df[:, None, None], scales.shape)
        roots = np.sqrt(rng.gamma(shape) / (0.5 * scales))
        log_precisions = 2 * np.log(roots).sum(axis=(1, 2))
        noise = rng.standard_normal((K, p)) / roots[:, 0]
        return Components(means + noise / np.sqrt(r)[:, None], roots, log_precisions)
    roots, drawn, log_precisions = np.empty((K, p, p)), np.empty((K, p)), np.empty(K)
    for k in range(K):
        U = np.linalg.cholesky(scales[k]).T  # scale = U' U, precision = U^-1 A A' U^-T
        A = wishart_root(df[k], p, rng)
        roots[k] = solve_triangular(U, A, lower=False, check_finite=False)
        log_precisions[k] = 2 * (np.log(np.diag(A)).sum() - np.log(np.diag(U)).sum())
        noise = np.linalg.solve(roots[k].T, rng.standard_normal(p))
        drawn[k] = means[k] + noise / np.sqrt(r[k])
    return Components(drawn, roots, log_precisions)


def scales_of(clusters: Clusters, slots: Ints) -> Array:
    """Return the scales S_n of some clusters from their factors."""
    factors = clusters.factors[slots]
    if factors.shape[1] == 1:
        return np.asarray(factors)
    D = np.einsum("kjj->kj", factors)
    R = np.triu(factors, 1) + np.eye(factors.shape[1])
    return np.asarray(np.einsum("kja,kj,kjb->kab", R, D, R))


def draw_posterior_components(
    clusters: Clusters, prior: Prior, nu: float, covariance: str, rng: np.random.Generator
) -> Components:
    """Draw the components of all clusters that have rows, given these."""
    slots = np.flatnonzero(clusters.counts[:-N_SCRATCH])
    counts, p = clusters.counts[slots], len(prior.mean)
    df = nu + counts * (p if covariance == "spherical" else 1.0)
    return draw_components(
        clusters.means[slots], scales_of(clusters, slots), prior.r + counts, df, covariance, rng
    )


# --- priors and conditionals of the hyperparameters ---------------------------------------------------------------


class HyperPrior(NamedTuple):
    """Priors of r, nu and S: S0 of the shape of S, and which of the three are fixed."""

    mean: Array
    scale0: Array
    covariance: str
    fixed: frozenset[str] = frozenset()

    @property
    def d(self) -> int:
        """Features of the inverse Wishart distribution."""
        return n_dimensions(self.covariance, len(self.mean))

    def draw_scale(self, rho: float, inverse: Array, rng: np.random.Generator) -> Array:
        """Draw from the Wishart distribution with rho degrees of freedom and the inverse scale `inverse`."""
        if self.covariance != "full":
            return np.asarray(rng.gamma(0.5 * rho, size=inverse.shape) / (0.5 * inverse))
        U = np.linalg.cholesky(inverse).T
        B = solve_triangular(U, wishart_root(rho, self.d, rng), lower=False, check_finite=False)
        return np.asarray(B @ B.T)

    def inverse0(self) -> Array:
        """Return the inverse of S0 / rho."""
        return np.asarray(
            (self.d + 2) * (np.linalg.inv(self.scale0) if self.covariance == "full" else 1 / self.scale0)
        )

    def logdet(self, scale: Array) -> float:
        """Return log|S|."""
        return float(np.linalg.slogdet(scale)[1] if self.covariance == "full" else np.log(scale).sum())

    def sample(self, hyper: Hyperparameters, rng: np.random.Generator) -> Hyperparameters:
        """Draw from the prior; fixed ones stay."""
        r, nu, scale = hyper
        if "r" not in self.fixed:
            r = rng.exponential()
        if "nu" not in self.fixed:
            nu = rng.poisson(self.d + 2)
            while nu < self.d:
                nu = rng.poisson(self.d + 2)
        if "S" not in self.fixed:
            scale = self.draw_scale(self.d + 2, self.inverse0(), rng) + FLOOR * self.scale0
        return Hyperparameters(float(r), float(nu), scale)

    def log_density(self, hyper: Hyperparameters) -> float:
        """Return the log-density of the hyperparameters that are not fixed, up to a constant."""
        value = 0.0 if "r" in self.fixed else -hyper.r
        if "nu" not in self.fixed:
            value += float(hyper.nu * np.log(self.d + 2) - gammaln(hyper.nu + 1))
        if "S" not in self.fixed:
            free, rho = hyper.scale - FLOOR * self.scale0, self.d + 2
            power = 0.5 * (rho - self.d - 1) * self.logdet(free)
            value += power - 0.5 * float(np.sum(self.inverse0() * free))
        return value

    def draw(
        self, hyper: Hyperparameters, components: Components, rng: np.random.Generator
    ) -> Hyperparameters:
        """Draw r, S and nu given the components."""
        r, nu, scale = hyper
        K, p = components.means.shape
        d = components.means - self.mean
        if "r" not in self.fixed:
            if self.covariance == "full":
                total = float(np.sum(np.einsum("kj,kja->ka", d, components.roots) ** 2))
            else:
                total = float(np.sum((d * components.roots[:, 0]) ** 2))
            r = rng.gamma(1 + 0.5 * K * p) / (1 + 0.5 * total)
        if "S" not in self.fixed:
            scale = self._draw_scale_given(scale, nu, components.roots, rng)
        if "nu" not in self.fixed:
            nu = self._move_nu(nu, scale, components.log_precisions, rng)
        return Hyperparameters(float(r), float(nu), scale)

    def _draw_scale_given(self, scale: Array, nu: float, roots: Array, rng: np.random.Generator) -> Array:
        K, floor = len(roots), FLOOR * self.scale0
        if self.covariance == "full":
            inverse = self.inverse0() + np.einsum("kia,kja->ij", roots, roots)
        else:
            inverse = self.inverse0() + (roots**2).sum(axis=0)
        proposed = self.draw_scale(self.d + 2 + K * nu, inverse, rng)
        if self.covariance == "full":
            gain = self.logdet(proposed + floor) - self.logdet(proposed)
            gain -= self.logdet(scale) - self.logdet(scale - floor)
            return proposed + floor if np.log(rng.random()) < 0.5 * K * nu * gain else scale
        gains = np.log1p(floor / proposed) + np.log1p(-floor / scale)
        accept = np.log(rng.random(gains.shape)) < 0.5 * K * nu * gains
        return np.where(accept, proposed + floor, scale)

    def _move_nu(self, nu: float, scale: Array, log_precisions: Array, rng: np.random.Generator) -> float:
        K, logdet, total = len(log_precisions), self.logdet(scale), float(log_precisions.sum())
        copies = len(self.mean) if self.covariance == "diag" else 1

        def value(nu: float) -> float:
            constant = 0.5 * nu * (logdet - copies * self.d * np.log(2.0))
            constant -= copies * float(multigammaln(0.5 * nu, self.d))
            return float(nu * np.log(self.d + 2) - gammaln(nu + 1) + K * constant + 0.5 * nu * total)

        for _ in range(_NU_STEPS):
            proposed = nu + rng.choice([-2.0, -1.0, 1.0, 2.0])
            if proposed >= self.d and np.log(rng.random()) < value(proposed) - value(nu):
                nu = proposed
        return nu
