"""Training of all classes together over a label structure, and the weights that result from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Ints, Matrix
from arbora.classify.decisions import effective_calibration, held_out_share, max_scores
from arbora.classify.linear import (
    BlockScorer,
    LinearModel,
    PartsModel,
    linear_scores,
    signed_costs,
    single_precision,
)
from arbora.classify.recursive.coupling import Coupling
from arbora.classify.thresholds import Threshold
from arbora.classify.training import Training
from arbora.core.checkpoint import Checkpoint
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine, missing
from arbora.core.folds import Split
from arbora.core.monitor import Progress
from arbora.core.trace import Trace
from arbora.infer.linear.coupled import CoupledSolution, CoupledSolver, Multipliers, multipliers_of_rows
from arbora.infer.linear.layout import Layout, lay_out
from arbora.infer.linear.newton import CoupledNewton, NewtonSolution, suits_newton
from arbora.infer.linear.rows import LinearRows, prepare_rows, view_by_frequency
from arbora.infer.linear.shards import ShardedCoupledSolver
from arbora.infer.tree_sum import pruned
from arbora.kernels import put_block

# --- Memory that the recursive classifiers need, computed before anything is trained ------------------------


class Size(NamedTuple):
    """Size of the rows of a fit."""

    n_samples: int
    n_features: int
    n_bytes: int  # in the working precision
    dense: bool
    dtype: np.dtype[Any]


def size_of(X: sp.csr_array, dtype: Any, n_samples: int | None = None) -> Size:
    """Size of rows, or of `n_samples` similar rows."""
    dtype, n_all = np.dtype(dtype), max(1, X.shape[0])
    n_samples = n_all if n_samples is None else n_samples
    n_bytes = X.indptr.nbytes + X.indices.nbytes + X.nnz * dtype.itemsize
    dense = X.nnz == X.shape[0] * X.shape[1] and bool(X.has_sorted_indices)
    return Size(n_samples, X.shape[1], n_bytes * n_samples // n_all, dense, dtype)


def multiplier_memory(size: Size, n_classes: int, loss: str) -> int:
    """Bytes of the multipliers of a fit; those of a hinge loss are mostly zero and are not counted."""
    if suits_newton(size, n_classes, loss):  # type: ignore[arg-type]  # it has the fields that are read
        return 8 * (size.n_features + 1) * n_classes
    triple = size.dtype.itemsize + 5  # a multiplier with its row and column
    return n_classes * size.n_samples * triple if loss == "logistic" else 0


def weight_memory(size: Size, n_classes: int, dense: bool) -> int:
    """Bytes of the weights of a fit; the size of a pruned model is not known before the fit."""
    return n_classes * (size.n_features + 1) * size.dtype.itemsize if dense else 0


def joint_memory(rows: Size, layout: Layout, loss: str, dense: bool, n_jobs: int, beside: int = 0) -> int:
    """Largest number of bytes of a fit, in addition to its rows: shared parts, blocks in training, weights.

    The sparse parts of a pruned model are not counted. `beside` are bytes that are in use at the same time.
    """
    n_classes, n_block = layout.blocks[-1].stop, max(map(len, layout.blocks))
    size, width = rows.dtype.itemsize, rows.n_features + 1
    pairs, weights = n_block * rows.n_samples, n_block * width * size
    # A visit: costs, multipliers, lists of the pairs that can move, the result; and a copy of the rows.
    visit = pairs * (2 * size + 4 + size + 5) + weights
    visit += 0 if rows.dense else rows.n_bytes
    need = beside + len(layout.shared) * width * size + multiplier_memory(rows, n_classes, loss)
    if suits_newton(rows, n_classes, loss):  # type: ignore[arg-type]  # dense rows, and about six numbers per pair
        need += 8 * rows.n_samples * (width + 6 * n_classes)
    held = pairs * size * (3 if loss == "logistic" else 2)  # costs, multipliers; of all pairs also their sums
    if dense:
        need += weight_memory(rows, n_classes, dense)
        making = held + 2 * weights  # the weights of a block, and a scaled copy
    else:  # parts from sums over rows; then the parts, their sizes, and which are kept
        parts = max(map(len, layout.owned)) * width
        making = max(held + weights + parts * size, parts * (2 * size + 1))
    # Blocks of one wave are visited at the same time; the weights of all blocks are made at the same time.
    side_by_side = min(n_jobs, max(map(len, layout.waves)))
    return need + max(side_by_side * visit, n_jobs * making)


def check_joint_memory(
    rows: Size, layout: Layout, loss: str, dense: bool, n_jobs: int, beside: int = 0, why: str = ""
) -> None:
    """Refuse a fit that does not fit in memory, together with the bytes `beside` that `why` explains."""
    advice = f"Use {single_precision(rows.dtype)}fewer threads, or fewer features (for text: a larger min_df)"
    if dense:
        advice += ", or prune_below=0.0, which keeps the weights as sparse differences"
    require_memory(
        joint_memory(rows, layout, loss, dense, n_jobs, beside),
        f"Training {layout.blocks[-1].stop} classes together on {rows.n_samples} rows with {rows.n_features} "
        f"features ({rows.dtype.name}, {len(layout.shared)} shared parts, {n_jobs} threads){why}",
        advice + ".",
    )


def search_memory(
    training: Training, layout: Layout, splits: Sequence[Split], dense: bool, n_jobs: int
) -> int:
    """Largest number of bytes of a search: all folds with their multipliers, and one fit with its scores.

    The nonzero multipliers of hinge losses are not counted, as in a fit.
    """
    options, X, n_classes = training.options, training.X, training.positives.shape[1]
    per_row = (X.indptr.nbytes + X.indices.nbytes + X.data.nbytes) / max(1, X.shape[0])
    cast = 0 if X.dtype == options.dtype else X.nnz * options.dtype.itemsize / max(1, X.shape[0])
    seen = [size_of(X, options.dtype, len(inside)) for inside, _ in splits]
    n_outside = [len(outside) for _, outside in splits]
    starts = [multiplier_memory(size, n_classes, options.loss) for size in seen]
    copies = per_row * (sum(n_outside) + sum(size.n_samples for size in seen))
    copies += cast * sum(size.n_samples for size in seen)
    fit = max(joint_memory(size, layout, options.loss, dense, n_jobs) for size in seen)
    scores = 2 * max(n_outside) * n_classes * options.dtype.itemsize
    # A checkpoint holds the multipliers of one fold once more.
    return int(copies) + sum(starts) + max(fit, int(scores), max(starts))


def check_search_memory(
    training: Training, layouts: Sequence[Layout], splits: Sequence[Split], dense: bool, n_jobs: int
) -> None:
    """Refuse a search that does not fit in memory, before anything is trained."""
    need = max(search_memory(training, layout, splits, dense, n_jobs) for layout in layouts)
    require_memory(
        need,
        f"Cross-validation with {len(splits)} folds over {training.positives.shape[1]} classes, "
        f"{training.X.shape[0]} rows and {training.X.shape[1]} features ({training.options.loss} loss), each fold "
        "kept with its multipliers,",
        "Use fewer folds (one is cv=[(rows to train on, rows to judge on)], of few rows if need be), "
        f"{single_precision(training.options.dtype)}or fixed numbers as C and coupling.",
    )


def check_fit_memory(
    training: Training,
    couplings: Sequence[Coupling],
    splits: Sequence[Split],
    *,
    calibration: Any,
    threshold: Threshold | None,
    dense: bool,
    n_jobs: int,
    remote: bool,
) -> None:
    """Refuse a search, a fit, or a held-out fit beside it that do not fit in memory.

    `couplings` are all candidates; `splits` the folds of the search, empty without one. `threshold` is None for one
    label per row. `dense`: the weights of the model are dense. `remote`: the fit runs on remote workers, whose memory
    is not checked here.
    """
    if remote and not splits:
        return
    options, n_classes = training.options, training.positives.shape[1]
    layouts = [lay_out(coupling.factor) for coupling in couplings]
    if splits:
        check_search_memory(training, layouts, splits, dense, n_jobs)
    if remote:
        return
    whole = size_of(training.X, options.dtype)
    learns = threshold is not None and threshold.learns
    share = held_out_share(training, effective_calibration(calibration, threshold))
    n_seen = int(share * whole.n_samples)
    seen = size_of(training.X, options.dtype, n_seen)
    beside = weight_memory(whole, n_classes, dense) + (whole.n_bytes + seen.n_bytes)
    beside += min(max_scores(learns), whole.n_samples * n_classes) * options.dtype.itemsize
    # The held-out training starts from a part of them
    beside += multiplier_memory(whole, n_classes, options.loss)
    beside += multiplier_memory(seen, n_classes, options.loss)
    for layout in layouts:
        check_joint_memory(whole, layout, options.loss, dense, n_jobs)
        if n_seen:
            why = ", beside the weights of all rows, to calibrate (calibration=None needs no such fit),"
            check_joint_memory(seen, layout, options.loss, False, n_jobs, beside, why)  # scores only


# --- Training of all classes together over a label structure, and the weights that result from it -----------


_MOVED_ROWS = 256  # of the weights, that are reordered together

Start = list[Multipliers] | Matrix  # of the coordinate descent, or of Newton's method


class Fitted(NamedTuple):
    """A joint problem, its solution, the coupling with the order of the classes, and the features it is solved in."""

    joint: Any  # CoupledSolver, ShardedCoupledSolver or CoupledNewton
    solution: CoupledSolution | NewtonSolution  # of this solver
    coupling: Coupling
    # Number of each feature of the solver among those of X; the last one is the bias
    features: NDArray[np.int64]
    weights: Matrix | None = None  # of all classes in the order of the solver, without scale, if known

    @property
    def converged(self) -> bool:
        """Whether the gap reached the tolerance."""
        return self.solution.converged

    @property
    def relative_gap(self) -> float:
        """Certified duality gap over the primal objective."""
        certificate = self.solution.certificate
        return float(certificate.gap / max(certificate.objective, np.finfo(np.float64).tiny))

    def shared_part(self, p: int) -> Matrix:
        """Shared part p as a row (1, n_features + 1), bias last."""
        if isinstance(self.joint, ShardedCoupledSolver):
            return self.joint.shared_part(p)
        return self.solution.shared[p : p + 1]

    def close(self) -> None:
        """Free remote shards."""
        if isinstance(self.joint, ShardedCoupledSolver):
            self.joint.close()


@dataclass(frozen=True)
class BlockCosts:
    """Function that returns signs times costs of a block of classes, on some rows."""

    by_class: sp.csc_array
    row_cost: Matrix
    weight: Matrix
    dtype: Any

    def __call__(self, block: range, ids: Ints) -> Matrix:
        """Signs times costs, len(ids) x len(block)."""
        return signed_costs(self.by_class, block, self.row_cost, self.weight, self.dtype, ids)


def block_costs(training: Training, order: Ints) -> BlockCosts:
    """Costs of the classes, in the given order."""
    by_class = sp.csc_array(training.positives)[:, order]
    return BlockCosts(by_class, training.row_cost, training.positive_weight[order], training.options.dtype)


def _train_remote(
    training: Training, coupling: Coupling, engine: Engine, rows: LinearRows, dense: bool, **settings: Any
) -> Fitted:
    """Train all classes together in the shards of an engine, by coordinate descent."""
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
        solution = joint.solve(tol=options.tol, max_iter=options.max_iter, seed=options.seed, **settings)
    except BaseException:
        joint.close()
        raise
    return Fitted(joint, solution, coupling, np.arange(rows.n_features + 1))


def train_joint(
    training: Training,
    coupling: Coupling,
    engine: Engine,
    *,
    rows: LinearRows | None = None,
    dense: bool = True,
    offset: Callable[[Ints], Matrix] | None = None,
    start: Start | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    key: str = "",
    certify: bool = True,
) -> Fitted:
    """Train all classes of `training` together, by Newton's method where it is faster, else by coordinate descent.

    An engine with remote shards trains by coordinate descent, without `offset`, `start` and `checkpoint`. `rows` are
    the prepared rows of `training`, if they exist already. `dense`: a dense matrix of weights will be made, and its
    memory is checked. `offset` returns, for some classes, the weights (n_features + 1, n) from which deviations are
    regularised, block by block, so that those of all classes are never in memory together. `start` is
    `solution.multipliers` of another fit; it is ignored if it does not match this problem. Without `certify` the gap
    is estimated; Newton's method always certifies.
    """
    options = training.options
    if rows is None:
        rows = prepare_rows(training.X, options.dtype, options.bias)
    if missing(engine, CoupledSolver.needs):
        return _train_remote(training, coupling, engine, rows, dense, progress=progress, certify=certify)
    costs, n_classes = block_costs(training, coupling.order), len(coupling.order)

    def block_offset(block: range) -> Matrix:
        assert offset is not None
        return offset(coupling.order[block.start : block.stop])[features]

    from_weights = None if offset is None else block_offset
    joint: Any
    features, settings = np.arange(rows.n_features + 1), dict[str, Any]()
    if suits_newton(rows, n_classes, options.loss):
        joint = CoupledNewton(rows, costs, coupling.factor, engine, from_weights)
        matches = isinstance(start, np.ndarray) and start.shape == (rows.n_features + 1, n_classes)
    else:
        if offset is None:  # with one, features that do not occur keep its weights
            _, features, rows = view_by_frequency(rows)
        joint = CoupledSolver(rows, costs, coupling.factor, options.loss, engine, from_weights)
        matches, settings = isinstance(start, list), {"certify": certify}
    full = size_of(training.X, options.dtype)
    size = full._replace(n_features=rows.n_features)
    block = max(map(len, joint.layout.blocks)) * (size.n_features + 1) * size.dtype.itemsize
    # Weights, offset, and a copy of some features.
    beside = 0 if offset is None else 3 * engine.n_workers * block
    # Weights of the features that do not occur, and the rows with their features in another order.
    beside += weight_memory(full, n_classes, dense) - weight_memory(size, n_classes, dense)
    beside += size.n_bytes if rows.indices is not training.X.indices else 0
    check_joint_memory(size, joint.layout, options.loss, dense, engine.n_workers, beside)
    weights = None
    if dense and certify and isinstance(joint, CoupledSolver):
        weights = engine.zeros((full.n_features + 1, n_classes), rows.dtype)
        # The certificate computes the weights block by block: they are stored as it goes.
        settings["store"] = partial(put_weights, joint, features, weights)
    solution = joint.solve(
        tol=options.tol, max_iter=options.max_iter, seed=options.seed, multipliers=start if matches else None,
        checkpoint=checkpoint, progress=progress, key=key, **settings,
    )  # fmt: skip
    return Fitted(joint, solution, coupling, features, weights)


def put_weights(joint: Any, features: Ints, weights: Matrix, k: int, W: Matrix) -> None:
    """Write the weights of block k, on the features of the solver, into those of all classes."""
    block = joint.layout.blocks[k]
    put_block(W, features, np.arange(block.start, block.stop), weights)


def start_of_rows(multipliers: Start | None, training: Training) -> list[Multipliers] | None:
    """Multipliers of a fit to more rows, from which `training` was taken; None for another method than this one's."""
    if not isinstance(multipliers, list) or training.ids is None:
        return None
    ids = training.ids
    return [multipliers_of_rows(block, ids) for block in multipliers]


def pack(multipliers: Start | None) -> dict[str, Matrix]:
    """Multipliers of all blocks as arrays, for a checkpoint."""
    if isinstance(multipliers, np.ndarray):
        return {"summed": multipliers}
    if not multipliers:
        return {"sizes": np.empty(0, np.int64)}
    joined = {name: np.concatenate([getattr(m, name) for m in multipliers]) for name in Multipliers._fields}
    return {"sizes": np.array([len(m.rows) for m in multipliers]), **joined}


def unpack(arrays: dict[str, Matrix]) -> Start | None:
    """Inverse of `pack`."""
    if "summed" in arrays:
        return arrays["summed"]
    if not arrays["sizes"].size:
        return None
    ends = np.cumsum(arrays["sizes"])[:-1]
    columns = (np.split(arrays[name], ends) for name in Multipliers._fields)
    return [Multipliers(*block) for block in zip(*columns, strict=True)]


def dense_model(fitted: Fitted) -> LinearModel:
    """Weights of all classes as one matrix with contiguous features.

    Known weights of `fitted` are changed in place: call it once.
    """
    joint, order, features, weights = fitted.joint, fitted.coupling.order, fitted.features, fitted.weights
    source, scale = np.argsort(order), joint.rows.dtype.type(fitted.solution.certificate.scale)
    # The columns of a block are adjacent at first: it takes longer to write each of them to its final place.
    if weights is None:
        weights, scale = joint.engine.zeros((int(features[-1]) + 1, len(order)), joint.rows.dtype), 1
        joint.engine.map(
            lambda k: put_weights(joint, features, weights, k, joint.weights(k, fitted.solution)),
            range(len(joint.layout.blocks)),
        )

    def reorder(rows: slice) -> None:
        part = weights[rows].take(source, axis=1)
        weights[rows] = part if scale == 1 else part * scale

    joint.engine.map(reorder, split(len(weights), size=_MOVED_ROWS))
    return LinearModel(weights[:-1].T, weights[-1] * joint.rows.bias)


def parts_model(fitted: Fitted, prune_below: float) -> PartsModel:
    """Parts as sparse rows, without their small entries, and the shares of the classes in them.

    Parts are scaled so that the largest share is 1. In a tree all shares of a part are equal, and the parts are the
    differences of nodes from their parents.
    """
    joint, layout, solution = fitted.joint, fitted.joint.layout, fitted.solution
    factor = sp.csr_array(fitted.coupling.factor)
    largest = abs(factor).max(axis=1).toarray().ravel()
    features = fitted.features
    size = (largest * solution.certificate.scale).astype(joint.rows.dtype)

    def kept(V: Matrix) -> tuple[sp.csr_array, Matrix]:
        small = pruned(V[:, :-1], prune_below)
        entries = small.data, features[small.indices].astype(small.indices.dtype), small.indptr
        wide = sp.csr_array(entries, shape=(len(V), int(features[-1])))
        return wide, V[:, -1].copy()  # a view would keep V in memory

    def local_parts(k: int) -> tuple[sp.csr_array, Matrix]:
        return kept(joint.parts(k, solution) * size[layout.owned[k]][:, None])

    def shared_part(p: int) -> tuple[sp.csr_array, Matrix]:
        return kept(fitted.shared_part(p) * size[layout.shared[p]])

    pieces = joint.engine.map(shared_part, range(len(layout.shared)))
    pieces += joint.engine.map(local_parts, range(len(layout.blocks)))
    rows = np.concatenate([layout.shared, *layout.owned])
    parts = sp.csc_array(sp.vstack([V for V, _ in pieces], format="csr"))
    bias = np.concatenate([b for _, b in pieces]) * joint.rows.bias
    sharing = sp.diags_array(1 / largest[rows]) @ factor[rows]
    sharing = sp.csc_array(sharing.astype(parts.dtype))[:, np.argsort(fitted.coupling.order)]
    return PartsModel(parts, sharing.T @ bias, sp.csc_array(sharing))


def build_model(fitted: Fitted, prune_below: float | None) -> LinearModel | PartsModel:
    """Weights as one dense matrix, or, if pruned, as sparse parts. Remote shards are freed."""
    try:
        return dense_model(fitted) if prune_below is None else parts_model(fitted, prune_below)
    finally:
        fitted.close()


def score_rows(fitted: Fitted, X: sp.csr_array, prune_below: float | None) -> Matrix:
    """Scores of all classes for other rows; unless pruned, block by block, without the weights of all classes."""
    if prune_below is not None:
        return linear_scores(X, build_model(fitted, prune_below), fitted.joint.engine)
    joint, order = fitted.joint, fitted.coupling.order
    score = BlockScorer(X, fitted.features, joint.rows.bias)
    scores = np.empty((X.shape[0], len(order)), joint.rows.dtype)

    def fill(k: int) -> None:
        block = joint.layout.blocks[k]
        scores[:, order[block.start : block.stop]] = score(joint.weights(k, fitted.solution))

    try:
        joint.engine.map(fill, range(len(joint.layout.blocks)))
    finally:
        fitted.close()
    return scores


class JointFit(NamedTuple):
    """Weights of all classes, how they were reached, and the multipliers, from which held-out training starts."""

    model: LinearModel | PartsModel
    trace: Trace
    gap: float  # certified, relative
    converged: bool
    multipliers: Start


def fit_joint(
    training: Training,
    coupling: Coupling,
    engine: Engine,
    prune_below: float | None,
    checkpoint: Checkpoint | None = None,
    verbose: int = 0,
    offset: Callable[[Ints], Matrix] | None = None,
) -> JointFit:
    """Train all classes of `training` together, as `train_joint` does, and make their weights."""
    with Progress(None, "rounds", verbose) as progress:
        fitted = train_joint(
            training, coupling, engine,
            dense=prune_below is None, offset=offset, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
    model, solution = build_model(fitted, prune_below), fitted.solution
    return JointFit(model, solution.trace, fitted.relative_gap, fitted.converged, solution.multipliers)
