"""Sampler of the correlated multinomial logit: prior, likelihood, and a sweep that leaves the posterior invariant.

Every node n below the root has a part phi_n. The weights of a class are the sum of the parts on its path (Shahbaba
and Neal 2007), so classes with common ancestors have correlated weights a priori:

    phi_n ~ N(0, I / tau_g(n)),   tau_g ~ Gamma(shape, rate),   w_k = sum_{n on the path of k} phi_n,
    p(y = k | x) = exp(w_k.x) / sum_l exp(w_l.x).

As in their model, the children of a node share a precision (precision="family"; this is M1 of Gopal et al. 2012 in
other variables). With precision="node" every node has its own (M3). The bias is the weight of a constant feature, and
has the same prior as the other weights; in the paper biases have their own variance.

A sweep has three steps that leave the posterior invariant. Let W = A phi, where A marks the paths, and let S =
A diag(1/tau) A' be the prior covariance of the classes in every feature.

1. W given tau, with phi integrated out: W has independent columns N(0, S). It is updated by Hamiltonian Monte Carlo
   in variables Z in which the posterior is nearly a standard normal distribution. The information about W is
   approximated by a product of F over classes and C over features, with p from a draw of the warm-up and v_i = 1 -
   sum_k p_ik^2,

       F = sum_i (diag p_i - p_i p_i') / sum_i v_i,   C = sum_i v_i x_i x_i'.

   With S = L L', L' F L = Q diag(omega) Q' and C = V diag(lambda) V',

       W = U Y V',   U = L Q,   Y_kj = Z_kj / sqrt(1 + omega_k lambda_j)

   makes the prior energy ||Y||^2 / 2, and the sum of prior precision and information the identity.
2. phi given W and tau, which is Gaussian: a draw phi' from the prior, corrected to
   diag(1/tau) A' S^-1 (W - A phi') + phi'. Then tau_g given phi, Gamma(shape + D n_g / 2, rate + 1/2 sum_{n in g}
   ||phi_n||^2) for n_g nodes with D features. Neither depends on the data, so the pair is repeated several times,
   which is cheap and speeds up the mixing of tau.
3. The scale of one group of parts: tau_g given all other precisions and sqrt(tau_g) phi_n, by slice sampling. If the
   data determine the scale poorly (few parts, or separable classes), steps 1 and 2 alone would mix slowly, because
   each conditions on what the other updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, softmax

from arbora.arrays import TINY, Array, Ints
from arbora.infer.mcmc.hmc import StepSize, hamiltonian_step, slice_step, start_step_size, update_step_size

_LENGTH = np.pi / 2  # length of a trajectory: a quarter of the period of a standard normal
_MAX_STEPS = 100  # steps of a trajectory, a limit while the step size is not tuned yet
_PRECISION_ROUNDS = 5  # draws of parts and precisions in a sweep
_SLICE_WIDTH = 1.0  # initial width for the logarithm of a precision


class LogitState(NamedTuple):
    """Parameters: parts of all nodes below the root, and the precision of each group of them."""

    parts: Array  # (n_parts, n_features)
    precision: Array  # (n_groups,)


class Tuning(NamedTuple):
    """Approximate shape of the posterior. The sampler is exact for any values."""

    information: Array  # F, (n_classes, n_classes)
    strength: Array  # lambda, (n_features,)
    basis: Array  # V, (n_features, n_features)
    rotated: Array  # X V, (n_samples, n_features)
    step: StepSize


class Frame(NamedTuple):
    """Variables for given precisions: W = U (Z * scale) V'."""

    factor: Array  # L
    rotation: Array  # Q
    mix: Array  # U = L Q
    scale: Array  # 1 / sqrt(1 + omega lambda'), (n_classes, n_features)


def log_likelihood(scores: Array, y: Ints) -> float:
    """Log-probability of labels under the softmax of their scores."""
    top = scores.max(axis=1)
    total = np.exp(scores - top[:, None]).sum(axis=1)
    return float(np.sum(scores[np.arange(len(y)), y] - top - np.log(total)))


def softmax_loss(scores: Array, y: Ints) -> tuple[float, Array]:
    """Negative log-likelihood of labels and its gradient with respect to the scores, which are overwritten."""
    rows = np.arange(len(y))
    chosen, top = scores[rows, y], scores.max(axis=1)
    scores -= top[:, None]
    np.exp(scores, out=scores)
    total = scores.sum(axis=1)
    value = float(np.sum(np.log(total) + top - chosen))
    scores /= total[:, None]
    scores[rows, y] -= 1
    return value, scores


def tune(X: Array, proba: Array, step: StepSize) -> Tuning:
    """Approximate the information about the weights by a product of a class factor and a feature factor.

    `proba` (n_samples, n_classes) are the probabilities at which the information is computed.
    """
    variance = 1 - np.sum(proba**2, axis=1)
    total = max(variance.sum(), TINY)
    information = (np.diag(proba.sum(axis=0)) - proba.T @ proba) / total
    strength, basis = np.linalg.eigh((X * variance[:, None]).T @ X)
    return Tuning(information, np.maximum(strength, 0), basis, X @ basis, step)


def make_frame(tuning: Tuning, paths: Array, precision: Array) -> Frame:
    """Find variables in which the sum of prior precision and approximate information is the identity.

    `paths` marks the parts of each class (n_classes, n_parts); `precision` is that of each part.
    """
    factor = np.linalg.cholesky((paths / precision) @ paths.T).astype(np.float64, copy=False)
    omega, rotation = np.linalg.eigh(factor.T @ tuning.information @ factor)
    scale = 1 / np.sqrt(1 + np.maximum(omega, 0)[:, None] * tuning.strength)
    return Frame(factor, rotation, factor @ rotation, scale)


def make_potential(frame: Frame, rotated: Array, y: Ints) -> Callable[[Array], tuple[float, Array]]:
    """Return a function that computes the negative log-posterior of Z, up to a constant, and its gradient."""

    def potential(Z: Array) -> tuple[float, Array]:
        Y = Z * frame.scale
        loss, residual = softmax_loss(rotated @ (frame.mix @ Y).T, y)
        gradient = (frame.mix.T @ (residual.T @ rotated) + Y) * frame.scale
        return loss + 0.5 * float(np.vdot(Y, Y)), gradient

    return potential


@dataclass(frozen=True)
class CorrelatedLogit:
    """The model, with the four functions that `arbora.infer.mcmc.chains` and Geweke's test need.

    The data of `sweep` and `log_joint` are the classes of the rows of X; X itself is fixed.
    """

    X: Array
    paths: Array  # (n_classes, n_parts): marks the parts of each class
    group: Ints  # precision group of each part
    shape: float
    rate: float
    tuning: Tuning

    def sample_prior(self, rng: np.random.Generator) -> LogitState:
        """Draw precisions and parts from the prior."""
        precision = rng.gamma(self.shape, size=self.group.max() + 1) / self.rate
        return LogitState(self._prior_parts(precision, rng), precision)

    def sample_data(self, state: LogitState, rng: np.random.Generator) -> Ints:
        """Draw a class for every row of X."""
        scores = self.X @ (self.paths @ state.parts).T
        return np.asarray(np.argmax(scores + rng.gumbel(size=scores.shape), axis=1))

    def log_joint(self, state: LogitState, y: Ints) -> float:
        """Log-density of labels, parts and precisions, including all constants."""
        parts, precision = state
        scores = self.X @ (self.paths @ parts).T
        tau = precision[self.group]
        normal = 0.5 * np.sum(parts.shape[1] * np.log(tau / (2 * np.pi)) - tau * np.sum(parts**2, axis=1))
        gamma = (self.shape - 1) * np.log(precision) - self.rate * precision
        constant = self.shape * np.log(self.rate) - gammaln(self.shape)
        return float(log_likelihood(scores, y) + normal + gamma.sum() + len(precision) * constant)

    def sweep(
        self, state: LogitState, y: Ints, rng: np.random.Generator
    ) -> tuple[LogitState, Mapping[str, float]]:
        """Update the weights, then parts and precisions given the weights, then the scale of one group."""
        tuning = self.tuning
        frame = make_frame(tuning, self.paths, state.precision[self.group])
        inner = np.linalg.solve(frame.factor, self.paths @ state.parts)
        Z = (frame.rotation.T @ inner @ tuning.basis) / frame.scale
        size = tuning.step.size * rng.uniform(0.9, 1.1)  # varied to avoid periodic trajectories
        n_steps = min(_MAX_STEPS, max(1, round(_LENGTH * rng.uniform(0.8, 1.2) / size)))
        move = hamiltonian_step(make_potential(frame, tuning.rotated, y), Z, size, n_steps, rng)
        if move.accepted:
            coef = frame.mix @ (move.position * frame.scale) @ tuning.basis.T
        else:
            coef = self.paths @ state.parts
        for _ in range(_PRECISION_ROUNDS):
            parts = self._draw_parts(coef, state.precision, rng)
            state = LogitState(parts, self._draw_precision(parts, rng))
        state = self._rescale(state, y, int(rng.integers(len(state.precision))), rng)
        info = {"acceptance": move.acceptance, "step_size": tuning.step.size, "n_steps": n_steps}
        return state, info

    def adapt(
        self, state: LogitState, info: Mapping[str, float], y: Any, step: int, n_warmup: int
    ) -> CorrelatedLogit:
        """Tune the step size in the warm-up, and the shape of the posterior after a quarter and a half of it."""
        size = update_step_size(self.tuning.step, info["acceptance"])
        if step == n_warmup - 1:
            size = size._replace(size=size.averaged)
        elif step in (n_warmup // 4, n_warmup // 2):
            proba = softmax(self.X @ (self.paths @ state.parts).T, axis=1)
            return replace(self, tuning=tune(self.X, proba, start_step_size(size.averaged)))
        return replace(self, tuning=self.tuning._replace(step=size))

    def _prior_parts(self, precision: Array, rng: np.random.Generator) -> Array:
        std = 1 / np.sqrt(precision[self.group])
        return std[:, None] * rng.standard_normal((len(self.group), self.X.shape[1]))

    def _draw_parts(self, coef: Array, precision: Array, rng: np.random.Generator) -> Array:
        """Draw parts that add up to the weights of the classes."""
        parts = self._prior_parts(precision, rng)
        scaled = self.paths / precision[self.group]
        return np.asarray(
            parts + scaled.T @ np.linalg.solve(scaled @ self.paths.T, coef - self.paths @ parts)
        )

    def _draw_precision(self, parts: Array, rng: np.random.Generator) -> Array:
        square = np.bincount(self.group, weights=np.sum(parts**2, axis=1))
        shape = self.shape + 0.5 * parts.shape[1] * np.bincount(self.group)
        return np.asarray(rng.gamma(shape) / (self.rate + 0.5 * square))

    def _rescale(self, state: LogitState, y: Ints, group: int, rng: np.random.Generator) -> LogitState:
        """Update a precision and scale the parts of its group so that their prior density is unchanged."""
        members, precision = self.group == group, state.precision.copy()
        of_group = self.X @ (self.paths[:, members] @ state.parts[members]).T
        others = self.X @ (self.paths[:, ~members] @ state.parts[~members]).T
        rate = self.rate * precision[group]

        def log_density(change: float) -> float:  # of the logarithm of the precision
            prior = self.shape * change - rate * np.exp(change)
            return float(log_likelihood(others + np.exp(-0.5 * change) * of_group, y) + prior)

        change = slice_step(log_density, 0.0, _SLICE_WIDTH, rng)
        precision[group] *= np.exp(change)
        return LogitState(np.where(members[:, None], np.exp(-0.5 * change), 1.0) * state.parts, precision)


def make_model(X: Array, y: Ints, paths: Array, group: Ints, shape: float, rate: float) -> CorrelatedLogit:
    """Set up the model, tuned with the shares of the classes alone: `y` is not used otherwise.

    `paths` (n_classes, n_parts) marks the parts of each class, of which one belongs to no other class. `group` is the
    precision group of each part; `shape` and `rate` are those of the gamma prior of the precisions.
    """
    share = np.bincount(y, minlength=len(paths)) / len(y)
    proba = np.broadcast_to(share, (len(y), len(share)))
    step = start_step_size((len(paths) * X.shape[1]) ** -0.25)
    return CorrelatedLogit(X, paths, group, shape, rate, tune(X, proba, step))
