"""Training classes together over a label structure: costs by block, weights from parts, memory before time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.classify._common.coupling import Coupling
from arbora.classify._common.linear_model import LinearModel, PartsModel, signed_costs
from arbora.classify._common.one_vs_rest import Training
from arbora.core.checkpoint import Checkpoint
from arbora.core.memory import require_memory
from arbora.core.progress import Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.coupled import CoupledSolution, CoupledSolver
from arbora.infer.linear.coupled_newton import CoupledNewton, NewtonSolution, suits_newton
from arbora.infer.linear.coupled_shards import ShardedCoupledSolver
from arbora.infer.linear.coupled_state import Multipliers
from arbora.infer.linear.flat import LinearRows, prepare_rows
from arbora.infer.linear.layout import Layout
from arbora.infer.prune import pruned
from arbora.kernels import put_columns

Start = list[Multipliers] | NDArray[Any]  # of the coordinate descent, or of Newton's method


class Size(NamedTuple):
    """What memory depends on, of rows that are there or are still to be taken."""

    n_samples: int
    n_features: int
    n_bytes: int  # of the rows, in the working precision
    dense: bool
    dtype: np.dtype[Any]


class Fitted(NamedTuple):
    """A joint problem, its solution, and the order in which its classes are laid out."""

    joint: CoupledSolver | CoupledNewton
    solution: CoupledSolution | NewtonSolution
    coupling: Coupling

    @property
    def converged(self) -> bool:
        """Whether the gap was closed, or the rounds ran out before."""
        return self.solution.converged

    @property
    def relative_gap(self) -> float:
        """Certified duality gap over the primal objective."""
        certificate = self.solution.certificate
        return certificate.gap / max(certificate.objective, np.finfo(np.float64).tiny)

    def shared_part(self, p: int) -> NDArray[Any]:
        """Shared part p as a row (1, n_features + 1), bias last."""
        if isinstance(self.joint, ShardedCoupledSolver):
            return self.joint.shared_part(p)
        return self.solution.shared[p : p + 1]

    def close(self) -> None:
        """Let go of shards that live elsewhere."""
        if isinstance(self.joint, ShardedCoupledSolver):
            self.joint.close()


@dataclass(frozen=True)
class BlockCosts:
    """Gives signs times costs of a block of classes, on some rows."""

    by_class: sp.csc_array
    row_cost: NDArray[Any]
    weight: NDArray[Any]
    dtype: Any

    def __call__(self, block: range, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Signs times costs, len(ids) x len(block)."""
        columns = slice(block.start, block.stop)
        return signed_costs(self.by_class[:, columns], self.row_cost, self.weight[columns], self.dtype, ids)


def block_costs(training: Training, order: NDArray[np.int64]) -> BlockCosts:
    """Return the costs of the classes of a training, in some order of them."""
    by_class = sp.csc_array(training.positives)[:, order]
    return BlockCosts(by_class, training.row_cost, training.positive_weight[order], training.options.dtype)


def size_of(X: sp.csr_array, dtype: Any, n_samples: int | None = None) -> Size:
    """Size of rows, or of as many rows like them."""
    dtype, n_all = np.dtype(dtype), max(1, X.shape[0])
    n_samples = n_all if n_samples is None else n_samples
    n_bytes = X.indptr.nbytes + X.indices.nbytes + X.nnz * dtype.itemsize
    dense = X.nnz == X.shape[0] * X.shape[1] and bool(X.has_sorted_indices)
    return Size(n_samples, X.shape[1], n_bytes * n_samples // n_all, dense, dtype)


def multiplier_memory(size: Size, n_classes: int, loss: str) -> int:
    """Bytes of the multipliers that a fit leaves; of a hinge, whose are mostly zero, none are counted."""
    if suits_newton(size, n_classes, loss):
        return 8 * (size.n_features + 1) * n_classes
    triple = size.dtype.itemsize + 5  # of a multiplier with its row and column
    return n_classes * size.n_samples * triple if loss == "logistic" else 0


def weight_memory(size: Size, n_classes: int, dense: bool) -> int:
    """Bytes of the weights that a fit leaves; those of a pruned model are known when they are there."""
    return n_classes * (size.n_features + 1) * size.dtype.itemsize if dense else 0


def joint_memory(rows: Size, layout: Layout, loss: str, dense: bool, n_jobs: int, beside: int = 0) -> int:
    """Bytes that a fit takes at most beside its rows: shared parts, blocks under way, weights, and making them.

    The parts of a pruned model are sparse and are not counted: how sparse is known when they are there. `beside` are
    bytes that something else will hold at the same time.
    """
    n_classes, n_block = layout.blocks[-1].stop, max(map(len, layout.blocks))
    size, width = rows.dtype.itemsize, rows.n_features + 1
    pairs, weights = n_block * rows.n_samples, n_block * width * size
    # A visit: costs, multipliers, lists of those that can move, and those it leaves; the rows that it looks at.
    visit = pairs * (2 * size + 4 + size + 5) + weights
    visit += 0 if rows.dense else rows.n_bytes
    need = beside + len(layout.shared) * width * size + multiplier_memory(rows, n_classes, loss)
    if suits_newton(rows, n_classes, loss):  # dense rows, and about six numbers for every pair
        need += 8 * rows.n_samples * (width + 6 * n_classes)
    if dense:
        need += weight_memory(rows, n_classes, dense)
        making = pairs * 2 * size + 2 * weights  # the weights of a block, and scaled
    else:  # parts from sums over rows; then parts, their sizes, and which are kept
        parts = max(map(len, layout.owned)) * width
        making = max(pairs * 2 * size + weights + parts * size, parts * (2 * size + 1))
    # Blocks of one wave are visited side by side; weights of all of them are made so.
    side_by_side = min(n_jobs, max(map(len, layout.waves)))
    return need + max(side_by_side * visit, n_jobs * making)


def check_joint_memory(
    rows: Size, layout: Layout, loss: str, dense: bool, n_jobs: int, beside: int = 0, why: str = ""
) -> None:
    """Refuse a fit whose shared parts, blocks under way and weights cannot fit, beside what `why` names."""
    advice = "Use dtype='float32', fewer threads, or fewer features (for text: a larger min_df)"
    if dense:
        advice += ", or prune_below=0.0, which keeps the weights as sparse differences"
    require_memory(
        joint_memory(rows, layout, loss, dense, n_jobs, beside),
        f"Training {layout.blocks[-1].stop} classes together on {rows.n_samples} rows with {rows.n_features} "
        f"features ({rows.dtype.name}, {len(layout.shared)} shared parts, {n_jobs} threads){why}",
        advice + ".",
    )


def _train_elsewhere(
    training: Training, coupling: Coupling, engine: ThreadEngine, rows: LinearRows, dense: bool, **more: Any
) -> Fitted:
    """Train all classes together in the shards of an engine, by coordinate descent; all losses suit it."""
    options, n_classes = training.options, len(coupling.order)
    if dense and not engine.keeps_weights_in_files:
        require_memory(
            weight_memory(size_of(training.X, options.dtype), n_classes, dense),
            f"Gathering the weights of {n_classes} classes and {rows.n_features} features ({rows.dtype.name})",
            "Use prune_below=0.0, which keeps them as sparse differences, or RayEngine(weights=folder), which keeps "
            "them in a file.",
        )
    costs = block_costs(training, coupling.order)
    joint = ShardedCoupledSolver(rows, costs, coupling.factor, options.loss, engine)
    try:
        solution = joint.solve(tol=options.tol, max_iter=options.max_iter, seed=options.seed, **more)
    except BaseException:
        joint.close()
        raise
    return Fitted(joint, solution, coupling)


def train_joint(
    training: Training,
    coupling: Coupling,
    engine: ThreadEngine,
    *,
    rows: LinearRows | None = None,
    dense: bool = True,
    offset: Callable[[NDArray[np.int64]], NDArray[Any]] | None = None,
    start: Start | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    key: str = "",
) -> Fitted:
    """Train all classes of `training` together, by Newton's method where it pays, else by coordinate descent.

    Parameters
    ----------
    training : Training
    coupling : Coupling
    engine : ThreadEngine
        One with shards elsewhere trains by coordinate descent there, always from the beginning and without an offset;
        shards keep their own states.
    rows : LinearRows, optional
        The rows of `training`, if they are prepared already.
    dense : bool
        Whether the weights will be wanted as a dense matrix, which takes memory.
    offset : callable, optional
        Gives, for some classes, the weights (n_features + 1, n) from which deviations are counted; it is asked for a
        block at a time, so that those of all classes are never there together.
    start : Start, optional
        `solution.multipliers` of another fit; what does not suit this one is left aside.
    checkpoint, progress, key
        As in `CoupledSolver.solve`.
    """
    options = training.options
    if rows is None:
        rows = prepare_rows(training.X, options.dtype, options.bias)
    if not engine.shares_memory:
        return _train_elsewhere(training, coupling, engine, rows, dense, progress=progress)
    from_weights = None
    if offset is not None:

        def from_weights(block: range) -> NDArray[Any]:
            return offset(coupling.order[block.start : block.stop])

    costs = block_costs(training, coupling.order)
    with engine:
        joint: CoupledSolver | CoupledNewton
        if suits_newton(rows, len(coupling.order), options.loss):
            joint = CoupledNewton(rows, costs, coupling.factor, engine, from_weights)
            shape = (rows.n_features + 1, len(coupling.order))
            start = start if isinstance(start, np.ndarray) and start.shape == shape else None
        else:
            joint = CoupledSolver(rows, costs, coupling.factor, options.loss, engine, from_weights)
            start = start if isinstance(start, list) else None
        size = size_of(training.X, options.dtype)
        block = max(map(len, joint.layout.blocks)) * (size.n_features + 1) * size.dtype.itemsize
        beside = (
            0 if offset is None else 3 * engine.n_workers * block
        )  # where it comes from, it, and some features
        check_joint_memory(size, joint.layout, options.loss, dense, engine.n_workers, beside)
        solution = joint.solve(
            tol=options.tol, max_iter=options.max_iter, seed=options.seed,
            multipliers=start, checkpoint=checkpoint, progress=progress, key=key,
        )  # fmt: skip
    return Fitted(joint, solution, coupling)


def pack(multipliers: Start | None) -> dict[str, NDArray[Any]]:
    """Multipliers of all blocks as arrays, for a checkpoint."""
    if isinstance(multipliers, np.ndarray):
        return {"summed": multipliers}
    if not multipliers:
        return {"sizes": np.empty(0, np.int64)}
    joined = {name: np.concatenate([getattr(m, name) for m in multipliers]) for name in Multipliers._fields}
    return {"sizes": np.array([len(m.rows) for m in multipliers]), **joined}


def unpack(arrays: dict[str, NDArray[Any]]) -> Start | None:
    """Multipliers of all blocks, as they were given to `pack`."""
    if "summed" in arrays:
        return arrays["summed"]
    if not arrays["sizes"].size:
        return None
    ends = np.cumsum(arrays["sizes"])[:-1]
    columns = (np.split(arrays[name], ends) for name in Multipliers._fields)
    return [Multipliers(*block) for block in zip(*columns, strict=True)]


def dense_model(fitted: Fitted, keep: bool = True) -> LinearModel:
    """Weights of all classes as one matrix, its features contiguous; no file stays unless they are to be kept."""
    joint, order = fitted.joint, fitted.coupling.order
    weights = joint.engine.zeros((joint.rows.n_features + 1, len(order)), joint.rows.dtype)
    if not keep:
        joint.engine.discard(weights)

    def fill(k: int) -> None:
        block = joint.layout.blocks[k]
        put_columns(joint.weights(k, fitted.solution), order[block.start : block.stop], weights)

    joint.engine.map(fill, range(len(joint.layout.blocks)))
    return LinearModel(weights[:-1].T, weights[-1] * joint.rows.bias)


def parts_model(fitted: Fitted, prune_below: float) -> PartsModel:
    """Parts as sparse rows, without their small entries, and the shares of the classes in them.

    Parts are scaled so that the largest share is 1. In a tree all shares of a part are equal: its parts are then the
    differences of nodes from their parents.
    """
    joint, layout, solution = fitted.joint, fitted.joint.layout, fitted.solution
    factor = sp.csr_array(fitted.coupling.factor)
    largest = abs(factor).max(axis=1).toarray().ravel()
    size = (largest * solution.certificate.scale).astype(joint.rows.dtype)

    def local_parts(k: int) -> tuple[sp.csr_array, NDArray[Any]]:
        V = joint.parts(k, solution) * size[layout.owned[k]][:, None]
        return pruned(V[:, :-1], prune_below), V[:, -1].copy()  # a view would keep all of V

    def shared_part(p: int) -> tuple[sp.csr_array, NDArray[Any]]:
        v = fitted.shared_part(p) * size[layout.shared[p]]
        return pruned(v[:, :-1], prune_below), v[:, -1].copy()

    pieces = joint.engine.map(shared_part, range(len(layout.shared)))
    pieces += joint.engine.map(local_parts, range(len(layout.blocks)))
    rows = np.concatenate([layout.shared, *layout.owned])
    parts = sp.csc_array(sp.vstack([V for V, _ in pieces], format="csr"))
    bias = np.concatenate([b for _, b in pieces]) * joint.rows.bias
    sharing = sp.diags_array(1 / largest[rows]) @ factor[rows]
    sharing = sp.csc_array(sharing.astype(parts.dtype))[:, np.argsort(fitted.coupling.order)]
    return PartsModel(parts, sharing.T @ bias, sp.csc_array(sharing))


def build_model(fitted: Fitted, prune_below: float | None, keep: bool = True) -> LinearModel | PartsModel:
    """Weights as one dense matrix, or, where entries are to be pruned, as sparse parts; then let shards go."""
    try:
        return dense_model(fitted, keep) if prune_below is None else parts_model(fitted, prune_below)
    finally:
        fitted.close()


def warn_unless_closed(fitted: Fitted, tol: float, max_iter: int) -> None:
    """Warn with the gap that was reached and what to do."""
    if not fitted.converged:
        warnings.warn(
            f"training stopped at max_iter={max_iter} rounds before the relative duality gap reached tol={tol:g}; it "
            f"is {fitted.relative_gap:.2g}. Increase max_iter, or lower C or coupling, or scale the features.",
            ConvergenceWarning,
            stacklevel=5,
        )
