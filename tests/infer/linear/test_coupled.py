"""Joint training: kernels against plain twins, optima against generic solvers, certificates against definitions."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.infer.linear import coupled as joint_module
from arbora.infer.linear import coupled as update_module
from arbora.infer.linear import layout
from arbora.infer.linear.coupled import SCALES
from arbora.infer.linear.layout import group_classes
from arbora.infer.linear.rows import prepare_rows
from arbora.kernels import LOSSES
from arbora.kernels.linear.accumulate import (
    add_change,
    add_changes,
    add_gathered,
    add_parts,
    add_rows,
    gather_changes,
    gather_rows,
)
from arbora.kernels.linear.coordinate import SETTLED
from arbora.kernels.linear.coupled import certify_scaled, dot_rows, polish_coupled, sweep_coupled
from arbora.kernels.triples import from_triples, subtract_triples, take_rows, to_triples
from arbora.structure import Hierarchy, LabelGraph
from support.coordinate_twins import TOLERANCE, best, shuffle, start
from support.coupled_problems import WIDE, JointProblem
from support.linear_problems import conjugate, loss_value, random_problem

ALL_LOSSES = pytest.mark.parametrize("loss", list(LOSSES))
HINGES = pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
DENSITIES = pytest.mark.parametrize("density", [0.4, 1.0])
BIASES = pytest.mark.parametrize("bias", [0.0, 2.5])


def random_covariance(n, dtype=np.float64, seed=3):
    B = np.random.default_rng(seed).standard_normal((n + 2, n))
    return np.ascontiguousarray(B.T @ B / n + np.eye(n), dtype=dtype)


# --- kernels against their twins -----------------------------------------------------------------------------------


def twin_sweep(problem, norm2, loss, K, W, A, order):
    design, W, A, K = problem.design, W.astype(float), A.astype(float), K.astype(float)
    active = [[] for _ in range(A.shape[1])]
    sums = np.zeros(3)
    for i in order:
        y, c = np.copysign(1.0, problem.cost[i]), np.abs(problem.cost[i]).astype(float)
        m = y * (design[i] @ W)
        value = c * loss_value(loss, m)
        gaps = value + conjugate(loss, A[i], c) + A[i] * m
        sums += value.sum(), (A[i] * m).sum() / 2, gaps.sum()
        for b in range(A.shape[1]):  # each class sees the moves of those before it
            m = y[b] * (design[i] @ W[:, b])
            # The bound of the squared norm away from zero, as the kernel has it.
            new = best(loss, A[i, b], m, c[b], float(norm2[i]) * K[b, b])
            W += np.outer(design[i], (new - A[i, b]) * y[b] * K[b])
            A[i, b] = new
        m = y * (design[i] @ W)
        for b in range(A.shape[1]):
            ceiling = c[b] if loss == "hinge" else np.inf
            settled = (A[i, b] == 0 and m[b] >= 1) or (A[i, b] == ceiling and m[b] <= 1)
            if c[b] and not settled:
                active[b].append(i)
    return W, A, active, sums


@DTYPES
@HINGES
@BIASES
@DENSITIES
def test_sweep_equals_its_twin(dtype, loss, bias, density):
    problem = random_problem(1, density=density, bias=bias, dtype=dtype)
    rows, K = prepare_rows(problem.X, dtype, bias), random_covariance(3, dtype)
    W, A = start(problem, loss, dtype)
    order = np.random.default_rng(2).permutation(rows.n_samples)[:-3]  # the rows left out stay as they are
    want_W, want_A, want_active, want_sums = twin_sweep(problem, rows.norm2, loss, K, W, A, order)
    active = np.full((3, rows.n_samples), -1, np.int32)
    n_active = np.full(3, 7)
    sums = sweep_coupled(*rows[:4], problem.cost, LOSSES[loss], rows.bias, K, W, A, order, active, n_active)
    # Empty rows without a bias: their margins are 0 whatever is done, their norm a tiny number.
    np.testing.assert_allclose(A, want_A, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(W, want_W, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(sums, want_sums, atol=TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])
    if loss == "logistic":
        assert not n_active.any()
    elif dtype is np.float64:  # at the kink, single precision may list another row
        assert [active[b, : n_active[b]].tolist() for b in range(3)] == want_active


def twin_polish(problem, norm2, loss, K, W, A, active, n_sweeps, enough, state):
    design, W, A = problem.design, W.astype(float), A.astype(float)
    for b, listed in enumerate(active):
        listed = list(listed)
        for _ in range(n_sweeps if listed else 0):
            state = shuffle(listed, state)
            ids, gap = [], 0.0
            for i in listed:
                c, y, a = abs(float(problem.cost[i, b])), np.copysign(1.0, problem.cost[i, b]), A[i, b]
                m = y * (design[i] @ W[:, b])
                gap += c * loss_value(loss, m) + conjugate(loss, a, c) + a * m
                low, high = a == 0 and m > 1 + SETTLED, loss == "hinge" and a == c and m < 1 - SETTLED
                if not low and not high:
                    ids.append(i)
                    A[i, b] = best(loss, a, m, c, float(norm2[i]) * K[b, b])
                    W += np.outer(design[i], (A[i, b] - a) * y * K[b])
            listed = ids
            if gap < enough:
                break
    return W, A


@DTYPES
@HINGES
@BIASES
@pytest.mark.parametrize(("density", "n_features"), [(0.4, 7), (1.0, 7), (0.02, 300)])
def test_polish_equals_its_twin(dtype, loss, bias, density, n_features):
    """Dense rows; sparse rows, few of them listed (changed in place) and many (copied out)."""
    problem = random_problem(2, density=density, n_features=n_features, bias=bias, dtype=dtype)
    rows, K = prepare_rows(problem.X, dtype, bias), random_covariance(3, dtype)
    W, A = start(problem, loss, dtype)
    listed = [np.array([], int), np.array([1, 2, 5]), np.arange(40)]
    active, n_active = np.zeros((3, 40), np.int32), np.array([len(members) for members in listed])
    for b, members in enumerate(listed):
        active[b, : len(members)] = members
    want_W, want_A = twin_polish(problem, rows.norm2, loss, K.astype(float), W, A, listed, 3, 1e-3, 9)
    polish_coupled(
        *rows[:4], problem.cost, LOSSES[loss], rows.bias, rows.dense, K, W, A,
        active, n_active, 3, 1e-3, 9, np.empty(W.shape[0], dtype),
    )  # fmt: skip
    tolerance = TOLERANCE[dtype] * (10 if dtype == np.float32 else 1)  # three sweeps of rounding
    np.testing.assert_allclose(A, want_A, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(W, want_W, atol=tolerance, rtol=tolerance)


@DTYPES
@BIASES
@DENSITIES
@pytest.mark.parametrize("n_samples", [40, 42])
def test_add_rows_equals_numpy(dtype, bias, density, n_samples):
    problem = random_problem(3, n_samples=n_samples, density=density, bias=bias, dtype=dtype)
    rows, K = prepare_rows(problem.X, dtype, bias), random_covariance(3, dtype)
    W, A = start(problem, "hinge", dtype)
    want = W + problem.design.T @ (A * np.copysign(1, problem.cost)) @ K
    add_rows(*rows[:3], rows.bias, rows.dense, problem.cost, A, K, W)
    np.testing.assert_allclose(W, want, atol=TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("n_features", [1, 255, 256, 600])
def test_add_parts_equals_numpy(dtype, n_features):
    rng = np.random.default_rng(0)
    parts = (rng.standard_normal((5, 700)) * (rng.random((5, 700)) < 0.5)).astype(dtype)
    ids, features = np.array([4, 1, 2]), np.sort(rng.permutation(700)[:n_features])
    mix, W = rng.standard_normal((3, 4)).astype(dtype), rng.standard_normal((n_features, 6)).astype(dtype)
    group = np.array([0, 0, 1, 3, 2, 3])
    want = W + parts[np.ix_(ids, features)].T @ mix[:, group]
    add_parts(parts, ids, mix, group, features, W)
    np.testing.assert_allclose(W, want, atol=TOLERANCE[dtype])


@DTYPES
@BIASES
@DENSITIES
def test_add_change_equals_numpy(dtype, bias, density):
    problem = random_problem(4, density=density, bias=bias, dtype=dtype)
    rows, rng = prepare_rows(problem.X, dtype, bias), np.random.default_rng(1)
    change = (rng.standard_normal((40, 3)) * (rng.random((40, 3)) < 0.4)).astype(dtype)
    index, columns = np.nonzero(change)
    mix, part = rng.standard_normal(2).astype(dtype), rng.standard_normal(8).astype(dtype)
    group = np.array([1, 0, 1])
    want = part + problem.design.T @ (change @ mix[group])
    add_change(*rows[:3], rows.bias, index, columns, change[index, columns], mix, group, part)
    np.testing.assert_allclose(part, want, atol=TOLERANCE[dtype])


@DTYPES
@BIASES
@DENSITIES
def test_changes_of_several_parts_and_scores_equal_numpy(dtype, bias, density):
    problem = random_problem(4, density=density, bias=bias, dtype=dtype)
    rows, rng = prepare_rows(problem.X, dtype, bias), np.random.default_rng(1)
    change = (rng.standard_normal((40, 3)) * (rng.random((40, 3)) < 0.4)).astype(dtype)
    index, columns = np.nonzero(change)
    triples = index, columns, change[index, columns]
    mix, parts = rng.standard_normal((2, 2)).astype(dtype), rng.standard_normal((5, 8)).astype(dtype)
    group = np.array([0, 1, 1])
    want = parts.astype(float)
    want[[1, 4]] += mix[:, group] @ change.T @ problem.design
    add_changes(*rows[:3], rows.bias, *triples, mix, group, np.array([1, 4]), parts)
    np.testing.assert_allclose(parts, want, atol=TOLERANCE[dtype])
    U = np.zeros((2, 8), dtype)
    gather_changes(*rows[:3], rows.bias, *triples, group, U)
    summed = np.column_stack([change[:, 0], change[:, 1] + change[:, 2]])
    np.testing.assert_allclose(U, summed.T @ problem.design, atol=TOLERANCE[dtype])
    V = np.zeros((8, 2), dtype)
    gather_rows(*rows[:3], rows.bias, rows.dense, *triples, group, V)
    np.testing.assert_allclose(V.T, U, atol=TOLERANCE[dtype])
    add_gathered(U, mix, np.array([1, 4]), parts)
    want[[1, 4]] += mix @ summed.T @ problem.design
    np.testing.assert_allclose(parts, want, atol=2 * TOLERANCE[dtype])
    many, shares = rng.standard_normal((7, 300)).astype(dtype), rng.standard_normal((2, 7)).astype(dtype)
    shares[:, 4:6], wide = 0, rng.standard_normal((3, 300)).astype(dtype)
    want = wide.astype(float)
    want[[0, 2]] += shares @ many
    add_gathered(many, shares, np.array([0, 2]), wide)
    np.testing.assert_allclose(wide, want, atol=2 * TOLERANCE[dtype])
    V = rng.standard_normal((8, 3)).astype(dtype)
    total = dot_rows(*rows[:3], rows.bias, *triples, V)
    np.testing.assert_allclose(total, (change * (problem.design @ V)).sum(), rtol=10 * TOLERANCE[dtype])


@DTYPES
@HINGES
@BIASES
def test_scaled_certificate_equals_numpy(dtype, loss, bias):
    problem = random_problem(5, bias=bias, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, bias)
    W, A = start(problem, loss, dtype)
    scales, losses = np.array([1.0, 1.3, 0.5], dtype), np.full(3, np.nan)
    norm, gap = certify_scaled(*rows[:3], problem.cost, LOSSES[loss], rows.bias, W, A, scales, losses)
    c, m = np.abs(problem.cost).astype(float), np.sign(problem.cost) * (problem.design @ W.astype(float))
    for s, result in zip(scales, losses, strict=True):
        np.testing.assert_allclose(result, (c * loss_value(loss, s * m)).sum(), rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(norm, (A * m).sum() / 2, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    want = c * loss_value(loss, m) + conjugate(loss, A.astype(float), c) + A * m
    np.testing.assert_allclose(gap, want.sum(), rtol=TOLERANCE[dtype])


def sparse_matrix(seed, shape=(30, 5), density=0.2):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * (rng.random(shape) < density)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
def test_triples_there_and_back(density):
    signed = sparse_matrix(0, density=density)
    ids = np.arange(30) * 3 + 1
    rows, columns, values = to_triples(
        np.abs(signed), np.where(signed < 0, -2.0, 2.0), ids, np.arange(len(ids))
    )
    np.testing.assert_array_equal(rows, ids[np.nonzero(signed)[0]])
    np.testing.assert_array_equal(columns, np.nonzero(signed)[1])
    np.testing.assert_array_equal(values, signed[np.nonzero(signed)])
    A = np.zeros((91, 5))
    from_triples(rows, columns, values, np.arange(91), A)
    np.testing.assert_array_equal(A[ids], np.abs(signed))
    assert np.count_nonzero(A) == len(values)


@pytest.mark.parametrize("densities", [(0.0, 0.0), (0.0, 0.3), (0.3, 0.0), (0.4, 0.4), (1.0, 1.0)])
def test_difference_of_triples(densities):
    new, old = (sparse_matrix(seed, density=d) for seed, d in enumerate(densities))
    new[:5] = old[:5]  # what did not change is no change
    triples = [
        (
            *(index.astype(t) for index, t in zip(np.nonzero(M), (np.int32, np.int8), strict=True)),
            M[np.nonzero(M)],
        )
        for M in (new, old)
    ]
    rows, columns, values = subtract_triples(*triples[0], *triples[1])
    np.testing.assert_array_equal(values, (new - old)[np.nonzero(new - old)])
    np.testing.assert_array_equal((rows, columns), np.nonzero(new - old))


@pytest.mark.parametrize("ids", [[], [0], [3, 4, 11, 29], list(range(30))])
def test_rows_are_taken_with_their_features_counted_anew(ids):
    X = sp.csr_array(sparse_matrix(7, (30, 40), 0.05))
    scratch = np.full(40, -1, np.int32)
    ids = np.array(ids, np.int64)
    indptr, indices, data, features = take_rows(X.indptr, X.indices, X.data, ids, scratch)
    assert (scratch == -1).all()
    result = np.zeros((len(ids), 40))
    if len(features):
        result[:, features] = sp.csr_array((data, indices, indptr), shape=(len(ids), len(features))).toarray()
    np.testing.assert_array_equal(result, X.toarray()[ids])
    np.testing.assert_array_equal(features, np.flatnonzero(X.toarray()[ids].any(axis=0)))


# --- problems, and what they are by definition ---------------------------------------------------------------------


TREE = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1")])
DAG = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("a", "y"), ("b", "z")])
GRAPH = LabelGraph.from_edges([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
SMALL = {
    "tree": (TREE, ["a", "a1", "a2", "b1"]),
    "dag": (DAG, ["x", "y", "z"]),
    "graph": (GRAPH, ["a", "b", "d"]),
}
every_small = pytest.mark.parametrize(("structure", "classes"), SMALL.values(), ids=SMALL)
every_wide = pytest.mark.parametrize(("structure", "classes"), WIDE.values(), ids=WIDE)


@pytest.fixture(params=[False, True], ids=["one by one", "together"])
def together(request, monkeypatch):
    """Whether two blocks of a wave may move the same part."""
    if request.param:
        monkeypatch.setattr(layout, "_FEW_BLOCKS", 0)
    return request.param


def assert_optimal(problem, joint, solution, want, C=1.0, rtol=1e-6):
    A = problem.multipliers(joint, solution.multipliers)
    W = problem.weights(A)
    np.testing.assert_allclose(problem.primal(W, C), problem.primal(want, C), rtol=rtol)
    np.testing.assert_allclose(W, want, atol=30 * np.sqrt(rtol) * np.abs(want).max())


# --- optima --------------------------------------------------------------------------------------------------------


@ALL_LOSSES
@every_small
@pytest.mark.parametrize("offset", [False, True], ids=["from zero", "from an offset"])
def test_optimum_equals_that_of_a_generic_solver(loss, structure, classes, offset):
    problem = JointProblem(structure, classes, loss, n_samples=10, n_features=3, offset=offset)
    joint = problem.joint()
    solution = joint.solve(tol=1e-9, max_iter=20_000)
    assert solution.converged
    assert_optimal(problem, joint, solution, problem.generic())


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@every_wide
def test_optimum_of_several_blocks(loss, structure, classes, together):
    problem = JointProblem(structure, classes, loss, coupling=0.2, n_samples=20)
    joint = problem.joint()
    assert len(joint.layout.blocks) == 3
    assert len(joint.layout.shared)
    solution = joint.solve(tol=1e-6, max_iter=5000)
    assert_optimal(problem, joint, solution, problem.generic(), rtol=3e-6)


@ALL_LOSSES
@every_wide
@pytest.mark.parametrize("offset", [False, True], ids=["from zero", "from an offset"])
def test_certificate_is_primal_minus_dual(loss, structure, classes, offset, together):
    problem = JointProblem(structure, classes, loss, offset=offset, n_samples=20)
    joint = problem.joint()
    solution = joint.solve(tol=1e-3, max_iter=1000)
    A = problem.multipliers(joint, solution.multipliers)
    W, dual = problem.weights(A), problem.dual(A)
    certificate = solution.certificate
    scales = SCALES if loss == "hinge" and not offset else (1.0,)
    primals = [problem.primal(scale * W) for scale in scales]
    assert certificate.scale == scales[int(np.argmin(primals))]
    np.testing.assert_allclose(certificate.objective, min(primals), rtol=1e-10)
    np.testing.assert_allclose(certificate.gap, min(primals) - dual, rtol=1e-6)
    assert solution.converged
    assert 0 <= certificate.gap <= 1e-3 * certificate.objective
    for k, block in enumerate(joint.layout.blocks):
        want = certificate.scale * W[:, block.start : block.stop]
        np.testing.assert_allclose(joint.weights(k, solution), want, atol=1e-9)


@ALL_LOSSES
@every_wide
def test_certificate_in_single_precision(loss, structure, classes):
    problem = JointProblem(structure, classes, loss)
    joint = problem.joint(np.float32)
    solution = joint.solve(tol=1e-4, max_iter=1000)
    A = problem.multipliers(joint, solution.multipliers)
    W = np.hstack([joint.weights(k, solution) for k in range(3)]).astype(float)
    assert (np.abs(problem.cost) * (1 + 1e-6) >= A).all() or loss == "squared_hinge"
    objective = problem.primal(W)
    np.testing.assert_allclose(solution.certificate.objective, objective, rtol=1e-5)
    assert objective - problem.dual(A) <= 1.2e-4 * objective


class Recorder:
    """A checkpoint that keeps what is saved in memory and never has anything to load."""

    def __init__(self):
        self.saved = []

    def load(self, key):
        return None

    def __contains__(self, key):
        return False

    def save(self, key, arrays, meta=None):
        self.saved.append((key, {name: array.copy() for name, array in arrays.items()}, dict(meta or {})))


@ALL_LOSSES
@every_wide
def test_the_dual_never_falls_and_the_gap_is_never_negative(loss, structure, classes, together):
    problem, record = JointProblem(structure, classes, loss), Recorder()
    joint = problem.joint()
    solution = joint.solve(tol=1e-6, max_iter=40, checkpoint=record)
    n_rounds = len(solution.trace)
    now, duals, checked = [joint_module.no_multipliers(np.float64)] * 3, [], 0
    for key, arrays, meta in record.saved:
        block = re.search(r"block-(\d+)", key)
        if block is None:  # a round begins: its shared parts are those of the multipliers
            A = problem.multipliers(joint, now)
            parts = problem.factor @ (A * np.sign(problem.cost)).T @ problem.design
            np.testing.assert_allclose(arrays["shared"], parts[joint.layout.shared], atol=1e-8)
            assert meta["iteration"] == checked
            checked += 1
            duals.append(problem.dual(A))
        else:
            now[int(block[1])] = joint_module.Multipliers(*(arrays[n] for n in ("rows", "columns", "values")))
            if not together:  # one block at a time: every visit counts
                duals.append(problem.dual(problem.multipliers(joint, now)))
    duals.append(problem.dual(problem.multipliers(joint, now)))
    assert checked == n_rounds > 3
    assert (np.diff(duals) >= -1e-12 * abs(duals[-1])).all()
    for column in {"gap", "gap_estimate"} & set(solution.trace.columns):
        assert np.nanmin(solution.trace[column]) >= 0
    assert np.all(np.array(duals) <= solution.certificate.objective)
    assert solution.trace["all_rows"].all() == (loss == "logistic")


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@every_wide
@pytest.mark.parametrize("offset", [False, True], ids=["from zero", "from an offset"])
def test_estimates_on_the_way_are_those_of_the_objective(loss, structure, classes, offset):
    """Visits of blocks at the optimum meet nothing to do: what they met is what is there."""
    problem, record = JointProblem(structure, classes, loss, offset=offset, n_samples=20), Recorder()
    best = problem.joint().solve(tol=1e-5, max_iter=3000)
    joint = problem.joint()
    joint.solve(tol=1e-2, multipliers=best.multipliers, checkpoint=record)
    estimates = [meta["estimates"] for key, _, meta in record.saved if key.startswith("block")]
    assert len(estimates) == 3
    objective, norm, gap = (np.sum(estimates, axis=0) @ M for M in ([1, 1, 0], [0, 1, 0], [0, 0, 1]))
    W = problem.weights(problem.multipliers(joint, best.multipliers))
    np.testing.assert_allclose(objective, problem.primal(W), rtol=1e-3)
    D = W - problem.base
    np.testing.assert_allclose(norm, np.trace(D @ np.linalg.solve(problem.K, D.T)) / 2, rtol=1e-3)
    assert 0 <= gap <= 1e-3 * objective


# --- the same bits -------------------------------------------------------------------------------------------------


@ALL_LOSSES
@DTYPES
def test_same_bits_for_any_number_of_threads(loss, dtype, together):
    problem = JointProblem(*WIDE["tree"], loss, n_samples=60)
    solutions = [problem.joint(dtype, n_jobs).solve(tol=1e-3, max_iter=8) for n_jobs in (1, 2, 3)]
    for other in solutions[1:]:
        np.testing.assert_array_equal(solutions[0].shared, other.shared)
        assert solutions[0].certificate == other.certificate
        for left, right in zip(solutions[0].multipliers, other.multipliers, strict=True):
            for a, b in zip(left, right, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_seed_decides():
    problem = JointProblem(*WIDE["tree"], "hinge")
    first, second, other = (problem.joint().solve(tol=1e-3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.shared, second.shared)
    assert not np.array_equal(first.shared, other.shared)


@pytest.mark.parametrize("structure", ["tree", "graph"])
def test_changes_follow_alike_gathered_or_row_by_row(structure, together, monkeypatch):
    joint = JointProblem(*WIDE[structure], "hinge", n_samples=60).joint()
    before, after = (joint.solve(tol=1e-3, max_iter=n).multipliers for n in (1, 4))
    shared = []
    for gathered in (False, True):
        monkeypatch.setattr(update_module, "gathers", lambda *_, gathered=gathered: gathered)
        shared.append(joint.start(before).shared)
        joint._update_shared(range(len(before)), before, after, shared[-1])
    want = JointProblem(*WIDE[structure], "hinge", n_samples=60)
    U = want.design.T @ (want.multipliers(joint, after) * np.sign(want.cost))
    np.testing.assert_allclose(shared[0], (U @ want.factor.T.toarray()[:, joint.layout.shared]).T, atol=1e-9)
    np.testing.assert_allclose(shared[1], shared[0], atol=1e-9)


@pytest.mark.parametrize(("n_parts", "want"), [(1, False), (2, False), (30, True)])
def test_changes_are_gathered_where_that_is_less_work(n_parts, want):
    rows = prepare_rows(sp.csr_array(np.ones((50, 10))), np.float64, 1.0)
    changed, group = (
        np.repeat(np.arange(50), 3),
        np.tile([0, 1, 2], 50),
    )  # three groups of every row: 1,500 products
    assert update_module.gathers(rows, changed, group, (n_parts, 4)) is want


def test_classes_with_equal_shares_form_a_group():
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((3, 4))[:, [2, 0, 0, 3, 2]]
    sharing = group_classes(mix, np.float64)
    np.testing.assert_array_equal(sharing.mix[:, sharing.group], mix)
    assert sharing.mix.shape == (3, 3)


# --- warm starts ---------------------------------------------------------------------------------------------------


@ALL_LOSSES
@pytest.mark.parametrize("before", [0.2, 5.0], ids=["from a smaller C", "from a larger C"])
@pytest.mark.parametrize("offset", [False, True], ids=["from zero", "from an offset"])
def test_a_warm_start_ends_at_the_same_optimum(loss, before, offset):
    problem = JointProblem(*WIDE["tree"], loss, coupling=0.2, n_samples=15, offset=offset)
    tol = {"tol": 1e-4, "max_iter": 20_000}
    cold = problem.joint().solve(**tol)
    params = problem.joint(C=before).solve(tol=1e-2, max_iter=1000).multipliers
    ids = [[array.copy() for array in m] for m in params]
    joint = problem.joint()
    warm = joint.solve(multipliers=params, **tol)
    assert warm.converged
    np.testing.assert_allclose(warm.certificate.objective, cold.certificate.objective, rtol=1e-4)
    dual = problem.dual(problem.multipliers(joint, warm.multipliers))  # of one optimum: a bound for both
    assert dual <= cold.certificate.objective * (1 + 1e-12)
    for m, arrays in zip(params, ids, strict=True):  # what was given is left as it was
        assert all(np.array_equal(a, b) for a, b in zip(m, arrays, strict=True))


@HINGES
def test_the_optimum_itself_is_a_start_that_ends_at_once(loss):
    problem = JointProblem(*WIDE["tree"], loss)
    cold = problem.joint().solve(tol=1e-4, max_iter=20_000)
    warm = problem.joint().solve(tol=1e-3, multipliers=cold.multipliers)
    assert len(warm.trace) == 1


def test_rounds_that_run_out_are_told():
    problem = JointProblem(*WIDE["tree"], "hinge")
    solution = problem.joint().solve(tol=1e-9, max_iter=3)
    assert not solution.converged
    assert len(solution.trace) == 3
    assert solution.certificate.gap > 0


@pytest.mark.parametrize("density", [0.5, 1.0])
def test_rows_of_no_cost_do_not_matter(density):
    """A row whose pairs all cost nothing is as good as absent."""
    problem = JointProblem(*WIDE["tree"], "squared_hinge", density=density)
    problem.cost[::3] = 0.0
    less = JointProblem(*WIDE["tree"], "squared_hinge", density=density)
    ids = np.arange(40) % 3 > 0
    less.X, less.design, less.cost = problem.X[ids], problem.design[ids], problem.cost[ids]
    result = [p.joint().solve(tol=1e-6, max_iter=20_000).certificate.objective for p in (problem, less)]
    np.testing.assert_allclose(*result, rtol=1e-6)
