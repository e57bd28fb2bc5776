"""Small linear problems, and their objectives in plain NumPy: what the solver is held against."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy


class Problem(NamedTuple):
    """Rows, signed costs of each (row, class) pair, value of the bias feature."""

    X: sp.csr_array
    cost: np.ndarray
    bias: float

    @property
    def design(self) -> np.ndarray:
        """Rows in double precision, with the bias feature last."""
        return np.column_stack([self.X.toarray().astype(float), np.full(self.X.shape[0], self.bias)])


def random_problem(
    seed: int = 0,
    n_samples: int = 40,
    n_features: int = 7,
    n_block: int = 3,
    density: float = 0.4,
    bias: float = 1.0,
    dtype: Any = np.float64,
) -> Problem:
    """Noisy labels, costs that differ by pair, a few pairs and one whole class-row out of the problem."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    if density < 1:
        X *= rng.random(X.shape) < density
        X[:: max(2, n_samples // 4)] = 0.0  # empty rows
    scores = X @ rng.standard_normal((n_features, n_block)) + rng.standard_normal((n_samples, n_block))
    cost = np.where(scores > 0.3, 1.0, -1.0) * rng.uniform(0.2, 3.0, scores.shape)
    cost *= rng.random(cost.shape) > 0.1
    X = X.astype(dtype)
    return Problem(sp.csr_array(X), cost.astype(dtype), bias)


def loss_value(loss: str, margin: np.ndarray) -> np.ndarray:
    if loss == "logistic":
        return np.logaddexp(0.0, -margin)
    return np.maximum(1.0 - margin, 0.0) ** (1 if loss == "hinge" else 2)


def conjugate(loss: str, a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the convex conjugate of the margin -> c loss(margin), at -a; zero costs allow a = 0 only."""
    if loss == "hinge":
        return -a
    safe = np.where(c > 0, c, 1.0)
    if loss == "squared_hinge":
        return -a + a * a / (4 * safe)
    share = np.clip(a / safe, 0.0, 1.0)
    return c * (xlogy(share, share) + xlogy(1 - share, 1 - share))


def primal(problem: Problem, loss: str, W: np.ndarray) -> np.ndarray:
    """Primal objective of each class at the weights (bias row last)."""
    W = W.astype(float)
    margin = np.sign(problem.cost) * (problem.design @ W)
    return (W**2).sum(0) / 2 + (np.abs(problem.cost).astype(float) * loss_value(loss, margin)).sum(0)


def weights_of(problem: Problem, A: np.ndarray) -> np.ndarray:
    """Weights that belong to the multipliers: the sum over rows of a y x."""
    return problem.design.T @ (A.astype(float) * np.sign(problem.cost))


def dual(problem: Problem, loss: str, A: np.ndarray) -> np.ndarray:
    """Dual objective of each class (to be maximised)."""
    A, c = A.astype(float), np.abs(problem.cost).astype(float)
    return -conjugate(loss, A, c).sum(0) - (weights_of(problem, A) ** 2).sum(0) / 2
