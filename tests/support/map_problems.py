"""Small MAP problems over a tree of nine nodes."""

import numpy as np
import scipy.sparse as sp

from arbora.engine import ThreadEngine
from arbora.infer.tree.map import solve_map
from arbora.infer.tree.problem import MapProblem

#                0   1  2  3  4  5  6  7  8
PARENT = np.array([-1, 0, 0, 1, 1, 2, 2, 3, 0])


CLASS_NODE = np.array([5, 4, 3, 6, 7])  # 3 is an inner node; 8 is a leaf without a class


N_FEATURES = 4


def make(likelihood="softmax", by_weight=False, sparse=False, seed=0, spread=1.0, bias=1.3, **more):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, N_FEATURES)) * (rng.random((40, N_FEATURES)) < 0.7)
    Y = np.eye(5)[rng.integers(0, 4, 40)]  # no row has the last class
    n_weights = N_FEATURES + (bias != 0)
    precision = np.exp(spread * rng.normal(size=(len(PARENT), n_weights)))
    problem = MapProblem(
        sp.csr_array(X) if sparse else X, sp.csr_array(Y), rng.random(40) + 0.5, PARENT, CLASS_NODE,
        precision if by_weight else precision[:, 0], rng.normal(size=n_weights), likelihood, bias,
    )  # fmt: skip
    return problem._replace(**more)


def solve(problem, start=None, tol=1e-10, max_iter=60, n_jobs=1):
    return solve_map(problem, start, tol=tol, max_iter=max_iter, engine=ThreadEngine(n_jobs))
