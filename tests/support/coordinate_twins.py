"""Plain twins of the coordinate descent kernels, and points to start them from."""

import math

import numpy as np

from arbora.kernels.linear.logistic import NEWTON_STEPS, NEWTON_STOP
from support.linear_problems import Problem

TOLERANCE = {np.float32: 1e-4, np.float64: 1e-10}


def newton(a, m, c, q):
    """Twin of the logistic step: the root t of t - m - q (c sigmoid(-t) - a), on its side of zero."""
    side = 1.0 if m + q * (c / 2 - a) > 0 else -1.0
    t = side * max(side * m, 0.0)
    for _ in range(NEWTON_STEPS):
        s = 1 / (1 + math.exp(t))
        f = t - m - q * (c * s - a)
        slope = 1 + q * c * s * (1 - s)
        t = side * max(side * (t - f / slope), 0.0)
        if f * f / slope < NEWTON_STOP:
            break
    return c / (1 + math.exp(t))


def best(loss, a, m, c, q):
    """Minimiser of the dual along one coordinate."""
    if c == 0:
        return 0.0
    if loss == "hinge":
        return min(max(a + (1 - m) / q, 0.0), c)
    if loss == "squared_hinge":
        return max((a * q + 1 - m) / (q + 1 / (2 * c)), 0.0)
    return newton(a, m, c, q)


def shuffle(rows, state):
    """Twin of the Fisher-Yates shuffle; returns the next state of the generator."""
    for s in range(len(rows) - 1, 0, -1):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        r = ((state >> 33) * (s + 1)) >> 31
        rows[s], rows[r] = rows[r], rows[s]
    return state


def start(problem: Problem, loss, dtype, seed=5):
    """Feasible multipliers, some at their bounds, and weights that do not come from them: an offset is allowed."""
    rng = np.random.default_rng(seed)
    c = np.abs(problem.cost)
    share = rng.choice([0.02, 0.3, 0.98] if loss == "logistic" else [0.0, 0.3, 1.0], c.shape)
    W = 0.5 * rng.standard_normal((problem.X.shape[1] + 1, c.shape[1]))
    return W.astype(dtype), (share * c).astype(dtype)
