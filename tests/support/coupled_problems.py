"""Problems of classes that share weights over a structure."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from arbora.classify.recursive.coupling import couple
from arbora.engine import ThreadEngine
from arbora.infer.linear.coupled import CoupledSolver
from arbora.infer.linear.rows import prepare_rows
from arbora.structure import Hierarchy, LabelGraph
from support.linear_problems import conjugate, loss_value, random_problem


class JointProblem:
    """Rows, signed costs, the factor of a covariance; objectives in plain NumPy."""

    def __init__(self, structure, classes, loss, coupling=0.5, n_samples=40, n_features=5, seed=0, **options):
        self.loss, self.bias, self.offset = loss, options.get("bias", 1.0), None
        rng = np.random.default_rng(seed)
        problem = random_problem(
            seed, n_samples, n_features, len(classes), bias=self.bias, density=options.get("density", 0.5)
        )
        self.X, self.cost, self.design = problem.X, problem.cost, problem.design
        self.factor = couple(structure, structure.encode(classes), coupling).factor
        self.K = (self.factor.T @ self.factor).toarray()
        if options.get("offset"):
            self.offset = rng.standard_normal((n_features + 1, len(classes)))

    def joint(self, dtype=np.float64, n_jobs=1, C=1.0):
        offset = None if self.offset is None else lambda block: self.offset[:, block.start : block.stop]
        return CoupledSolver(
            prepare_rows(self.X, dtype, self.bias),
            lambda block, ids: C * self.cost[ids, block.start : block.stop],
            self.factor, self.loss, ThreadEngine(n_jobs), offset,
        )  # fmt: skip

    @property
    def base(self):
        return np.zeros((self.design.shape[1], len(self.K))) if self.offset is None else self.offset

    def primal(self, W, C=1.0):
        D = W - self.base
        margin = np.sign(self.cost) * (self.design @ W)
        loss = (C * np.abs(self.cost) * loss_value(self.loss, margin)).sum()
        return np.trace(D @ np.linalg.solve(self.K, D.T)) / 2 + loss

    def dual(self, A, C=1.0):
        U = self.design.T @ (A * np.sign(self.cost))
        c = C * np.abs(self.cost)
        assert (A >= 0).all()
        assert self.loss == "squared_hinge" or (c * (1 + 1e-6) + 1e-12 >= A).all()
        return -conjugate(self.loss, A, c).sum() - np.trace(U @ self.K @ U.T) / 2 - (self.base * U).sum()

    def multipliers(self, joint, blocks):
        """Multipliers of all classes; the signs that travel with them must be those of the pairs."""
        A = np.zeros(self.cost.shape)
        for block, m in zip(joint.layout.blocks, blocks, strict=True):
            columns = block.start + m.columns.astype(int)
            assert (np.sign(m.values) == np.sign(self.cost[m.rows, columns])).all()
            A[m.rows, columns] = np.abs(m.values)
        return A

    def weights(self, A):
        return self.base + self.design.T @ (A * np.sign(self.cost)) @ self.K

    def generic(self, C=1.0):
        """Weights from a solver that knows of no duals: L-BFGS, or the hinge in epigraph form as a QP."""
        if self.loss == "hinge":
            return self._quadratic_program(C)
        inverse, c, y = np.linalg.inv(self.K), C * np.abs(self.cost), np.sign(self.cost)
        shape = self.base.shape

        def value(w):
            W = w.reshape(shape)
            D, m = W - self.base, y * (self.design @ W)
            slope = -expit(-m) if self.loss == "logistic" else -2 * np.maximum(1 - m, 0)
            gradient = D @ inverse + self.design.T @ (c * y * slope)
            return self.primal(W, C), gradient.ravel()

        options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9}
        return minimize(value, self.base.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(
            shape
        )

    def _quadratic_program(self, C):
        y, shape, n_weights = np.sign(self.cost), self.base.shape, self.base.size
        pairs = np.argwhere(y != 0)
        inverse, c = np.linalg.inv(self.K), C * np.abs(self.cost)[y != 0]
        rows = np.zeros((len(pairs), n_weights + len(pairs)))  # y w.x + slack >= 1
        for r, (i, b) in enumerate(pairs):
            rows[r, :n_weights].reshape(shape)[:, b] = y[i, b] * self.design[i]
            rows[r, n_weights + r] = 1.0

        def value(z):
            D = z[:n_weights].reshape(shape) - self.base
            gradient = np.concatenate([(D @ inverse).ravel(), c])
            return np.trace(D @ inverse @ D.T) / 2 + c @ z[n_weights:], gradient

        result = minimize(
            value, np.concatenate([self.base.ravel(), np.full(len(pairs), 10.0)]), jac=True, method="SLSQP",
            bounds=[(None, None)] * n_weights + [(0, None)] * len(pairs),
            constraints={"type": "ineq", "fun": lambda z: rows @ z - 1, "jac": lambda z: rows},
            options={"maxiter": 300, "ftol": 1e-13},
        )  # fmt: skip
        return result.x[:n_weights].reshape(shape)


# Three blocks of classes; in the tree, the nodes right below the root are shared by two of them.
WIDE_TREE = Hierarchy.from_edges(
    [("r", f"g{i}") for i in range(4)] + [(f"g{i % 4}", i) for i in range(70)] + [("g0", "h"), ("h", 70)]
)


WIDE_DAG = Hierarchy.from_edges(
    [("r", f"g{i}") for i in range(5)]
    + [(f"g{i % 5}", i) for i in range(70)]
    + [(f"g{(i + 2) % 5}", i) for i in range(0, 70, 3)]
)


WIDE_GRAPH = LabelGraph.from_edges([(i, i + 1) for i in range(69)] + [(i, i + 20) for i in range(0, 50, 7)])


WIDE = {
    "tree": (WIDE_TREE, list(range(70))),
    "dag": (WIDE_DAG, list(range(70))),
    "graph": (WIDE_GRAPH, list(range(70))),
}
