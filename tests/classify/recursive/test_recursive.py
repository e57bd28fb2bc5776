"""Recursive classifiers: reductions, options, weights of any node, files, hostile input."""

import gc
import tracemalloc
import warnings
import weakref
from copy import copy

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from arbora import io
from arbora.classify import OneVsRestSVC, RecursiveSVC
from arbora.classify import decisions as held_out
from arbora.classify.decisions import Calibration
from arbora.classify.recursive import estimators as recursive_classifier
from arbora.classify.recursive import training as _memory
from arbora.classify.recursive.coupling import couple
from arbora.core import chunks as memory
from arbora.datasets import make_hierarchical_text
from arbora.infer.linear.coupled import CoupledSolver
from arbora.infer.linear.layout import lay_out
from arbora.metrics import micro_f1
from arbora.structure import Hierarchy
from arbora.text import LtcTransformer
from support.recursive_problems import (
    DAG,
    GRAPH,
    LEAVES,
    QUICK,
    SETS,
    SHARP,
    TIGHT,
    TREE,
    X_NEW,
    Y_NEW,
    X,
    Y,
    dense,
    every_model,
    every_structure,
)

# --- reductions ----------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize(
    "how", ["no structure", "a forest of single nodes", "no coupling", "graph, no coupling"]
)
def test_reduces_to_the_flat_model(model, flat, params, how):
    structure, coupling = {
        "no structure": (None, 1.0),
        "a forest of single nodes": (Hierarchy.from_edges([], nodes=LEAVES), 1.0),
        "no coupling": (DAG, 0.0),
        "graph, no coupling": (GRAPH, 0.0),
    }[how]
    ours = model(structure=structure, coupling=coupling, **TIGHT, **params).fit(X, Y)
    reference = flat(**TIGHT, **params).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, reference.coef_, atol=2e-3 * np.abs(reference.coef_).max())
    np.testing.assert_allclose(
        ours.intercept_, reference.intercept_, atol=2e-3 * np.abs(reference.coef_).max()
    )
    assert (ours.predict(X_NEW) == reference.predict(X_NEW)).mean() > 0.98


def test_two_classes_without_a_structure_are_one_classifier_twice():
    two = np.isin(Y, ["a1", "b2"])
    ours = RecursiveSVC(**TIGHT).fit(X[two], Y[two])
    reference = OneVsRestSVC(**TIGHT).fit(X[two], Y[two])
    np.testing.assert_allclose(ours.decision_function(X_NEW), reference.decision_function(X_NEW), atol=1e-2)


@every_model
def test_coupling_leads_from_the_flat_model_to_the_published_one(model, flat, params):
    """The closer the coupling ties siblings, the closer their weights are to each other."""

    def spread(coupling):
        coef = model(structure=TREE, coupling=coupling, **{**TIGHT, "tol": 1e-3}, **params).fit(X, Y).coef_
        return ((coef[:3] - coef[:3].mean(axis=0)) ** 2).sum() / (coef**2).sum()

    assert spread(0.0) > spread(0.3) > spread(3.0)


@every_structure
@every_model
def test_dense_equals_sparse_and_pruned_equals_dense(model, flat, params, structure):
    exact = {**TIGHT, "tol": 9e-7, "structure": structure, **params}
    dense = model(**exact).fit(X, Y)
    sparse = model(**exact).fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=5e-3 * np.abs(dense.coef_).max())
    pruned = model(**exact, prune_below=0.0).fit(X, Y)
    np.testing.assert_allclose(pruned.coef_.toarray(), dense.coef_, atol=1e-10)
    np.testing.assert_allclose(pruned.decision_function(X_NEW), dense.decision_function(X_NEW), atol=1e-9)
    np.testing.assert_array_equal(pruned.predict(X_NEW), dense.predict(X_NEW))


def test_parts_of_a_tree_are_differences_of_nodes_from_their_parents():
    """Of TREE the roots have one part, and each child of a or b its own; b3 has no documents."""
    model = RecursiveSVC(structure=TREE, prune_below=0.0, coupling=0.3, **TIGHT).fit(X, Y)
    np.testing.assert_allclose(model.sharing_.data, 1.0)
    names = ["r", "a", "b", *LEAVES]
    weights = dict(zip(names, model.node_weights(names)[0], strict=True))
    parents = {"a": "r", "b": "r", **{leaf: leaf[0] for leaf in LEAVES}}
    want = [weights["r"], *(weights[name] - weights[parent] for name, parent in parents.items())]
    result = model.differences_.toarray()
    assert result.shape == (8, X.shape[1])
    for row in want:
        assert np.abs(result - row).max(axis=1).min() < 1e-6


def wide_problem():
    """640 classes of two documents each, with 20,000 features."""
    rng = np.random.default_rng(0)
    n_classes, n_features = 640, 20_000
    y = np.repeat(np.arange(n_classes), 2)
    columns = np.column_stack([y, n_classes + rng.integers(n_features - n_classes, size=(len(y), 3))])
    rows = np.repeat(np.arange(len(y)), 4)
    sparse = sp.csr_array((np.full(rows.size, 0.5), (rows, columns.ravel())), shape=(len(y), n_features))
    tree = Hierarchy.from_edges([(f"p{label // 8}", label) for label in range(n_classes)])
    return tree, sparse, y


def peak_of(function):
    function()  # compiles
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_of_a_pruned_model_does_not_grow_with_classes_times_features():
    tree, sparse, y = wide_problem()
    model = RecursiveSVC(structure=tree, prune_below=0.1, tol=0.2, **QUICK)
    peak = peak_of(lambda: model.fit(sparse, y))
    assert peak < 0.5 * 4 * len(model.classes_) * sparse.shape[1], f"{peak / 2**20:.0f} MiB"


def test_nor_does_it_when_such_a_model_goes_on_learning():
    """Old classes and new ones: the weights to start from are never there all at once."""
    tree, sparse, y = wide_problem()
    reference = y < 620
    model = RecursiveSVC(structure=tree, prune_below=0.1, tol=0.2, **QUICK).fit(
        sparse[reference], y[reference]
    )
    peak = peak_of(lambda: copy(model).partial_fit(sparse[1200:], y[1200:]))
    assert peak < 0.5 * 4 * 640 * sparse.shape[1], f"{peak / 2**20:.0f} MiB"


def test_pruning_drops_small_entries_and_moves_scores_little():
    whole, pruned = (
        RecursiveSVC(structure=TREE, prune_below=below, **TIGHT).fit(X, Y) for below in (0.0, 0.05)
    )
    assert pruned.differences_.nnz < whole.differences_.nnz
    assert np.abs(pruned.differences_.data).min() > 0.05
    moved = np.abs(pruned.decision_function(X_NEW) - whole.decision_function(X_NEW))
    # A score is a sum over the parts of a class: no more can be lost than the bound a part and entry.
    assert (
        0 < moved.max() <= 0.05 * (np.abs(X_NEW).sum(axis=1)).max() * np.abs(whole.sharing_).sum(axis=0).max()
    )


# --- options -------------------------------------------------------------------------------------------------------


def test_data_on_inner_nodes():
    y = Y.copy()
    y[:30] = "a"
    model = RecursiveSVC(structure=TREE, **QUICK).fit(X, y)
    assert set(model.classes_) == {"a", *LEAVES}
    proba = model.predict_node_proba(X_NEW)
    index = {name: i for i, name in enumerate(model.nodes_.tolist())}
    below = proba[:, [index[n] for n in ("a1", "a2", "a3")]].sum(axis=1)
    assert (proba[:, index["a"]] >= below - 1e-9).all()  # what is left is its own


@pytest.mark.parametrize("kind", ["sets", "indicator", "sparse indicator"])
@every_structure
def test_multilabel(kind, structure):
    indicator = structure.indicator(SETS)
    y = {
        "sets": SETS,
        "indicator": indicator.toarray().astype(int),
        "sparse indicator": indicator.astype(int),
    }[kind]
    model = RecursiveSVC(structure=structure, **QUICK).fit(X, y)
    result = model.predict(X)
    if kind == "sets":
        result = structure.indicator(result)
    assert result.shape == indicator.shape
    assert sp.issparse(result) == (kind != "indicator")
    assert micro_f1(indicator.astype(int), sp.csr_array(result).astype(int)) > 0.7
    flags = RecursiveSVC(structure=structure, **QUICK).fit(X, SETS)
    np.testing.assert_array_equal(model.coef_, flags.coef_)


@every_structure
@pytest.mark.parametrize("labels", [Y, SETS], ids=["single", "sets"])
def test_predictions_hang_together(structure, labels):
    model = RecursiveSVC(structure=structure, random_state=0).fit(X, labels)
    proba, nodes = model.predict_node_proba(X_NEW), model.nodes_.tolist()
    assert ((proba >= 0) & (proba <= 1 + 1e-9)).all()
    for parent, child in model.hierarchy_.names[model.hierarchy_.edges]:
        assert (proba[:, nodes.index(parent)] >= proba[:, nodes.index(child)] - 1e-9).all()
    result, paths = model.predict(X_NEW), model.predict_path(X_NEW)
    if labels is Y:
        assert [path[-1] for path in paths] == result.tolist()
        best, values = model.predict_top_k(X_NEW, 3)
        first = model.classes_[model.predict_proba(X_NEW).argmax(axis=1)]
        assert best[:, 0].tolist() == first.tolist()
        assert (np.diff(values, axis=1) <= 0).all()
        depth = dict(zip(nodes, model.hierarchy_.depth.tolist(), strict=True))
        sure, unsure = model.predict_backoff(X_NEW, 0.99), model.predict_backoff(X_NEW, 0.3)
        both = [(s, u) for s, u in zip(sure, unsure, strict=True) if s is not None]
        assert all(depth[s] <= depth[u] for s, u in both)
    else:
        assert [sorted(path[-1] for path in row) for row in paths] == [sorted(row) for row in result]


@every_model
@pytest.mark.parametrize("scale", [2.0, 50.0])
def test_class_weight_multiplies_the_cost_of_positives(model, flat, params, scale):
    """Documents given again in the class alone: as rows that count in its problem, and in the others with cost 0.

    Without a coupling the problems are separate, and that of the class is the flat one of two classes with the rows
    of the class weighted.
    """
    ours = model(coupling=0.0, structure=TREE, class_weight={"a1": scale}, **{**SHARP, **params}).fit(X, Y)
    mine = Y == "a1"
    alone = flat(**{**SHARP, **params}).fit(X, mine, sample_weight=np.where(mine, scale, 1.0))
    np.testing.assert_allclose(ours.coef_[0], alone.coef_[0], atol=1e-5)
    plain = model(coupling=0.0, structure=TREE, **{**SHARP, **params}).fit(X, Y)
    np.testing.assert_allclose(ours.coef_[1:], plain.coef_[1:], atol=1e-5)
    assert np.abs(ours.coef_[0] - plain.coef_[0]).max() > 1e-2


def test_class_weight_of_a_name_that_nothing_has():
    with pytest.raises(ValueError, match="did you mean 'a1'"):
        RecursiveSVC(structure=TREE, class_weight={"a11": 2.0}).fit(X, Y)


@every_structure
@every_model
def test_a_sample_weight_of_two_is_a_document_given_twice(model, flat, params, structure):
    """And a weight of zero one that is not given; a weight of all rows is a factor on C."""
    times = np.random.default_rng(3).integers(0, 4, len(Y))
    ours = model(structure=structure, **{**SHARP, **params})
    weighted = ours.fit(X, Y, sample_weight=times).coef_
    labels = model(structure=structure, **{**SHARP, **params}).fit(
        np.repeat(X, times, axis=0), np.repeat(Y, times)
    )
    np.testing.assert_allclose(weighted, labels.coef_, atol=1e-5)
    half = model(structure=structure, **{**SHARP, **params, "C": SHARP["C"] / 2})
    np.testing.assert_allclose(half.fit(X, Y, sample_weight=2.0 * times).coef_, weighted, atol=1e-5)


# --- the default coupling ------------------------------------------------------------------------------------------

WIDE = Hierarchy.from_edges([("r", f"c{k}") for k in range(20)])  # more classes below a node than 16


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    y = np.array([f"c{k}" for k in range(20)], dtype=object)[np.arange(200) % 20]
    centres = dict(zip(WIDE.names.tolist(), rng.normal(size=(21, 8)), strict=True))
    return np.array([centres[name] for name in y]) + rng.normal(size=(200, 8)), y


def test_a_number_fades_and_a_sequence_does_not(wide):
    """Of 20 classes below a node, the coupling is 16 / 20 of 0.1; a number for each level holds as it is given."""
    fading, faded, plain = (
        RecursiveSVC(coupling=coupling, structure=WIDE, **TIGHT).fit(*wide)
        for coupling in (0.1, {"r": 0.1 * 16 / 20}, np.array([0.1]))
    )
    assert (fading.coupling_, fading.fade_) == (0.1, 16.0)
    assert plain.fade_ is None
    np.testing.assert_allclose(fading.coef_, faded.coef_, atol=1e-4)
    assert np.abs(fading.coef_ - plain.coef_).max() > 1e-3
    # The root minimises ||w_r||^2 / s + sum_l ||w_l - w_r||^2 with its faded s.
    root, _ = fading.node_weights(["r"])
    np.testing.assert_allclose(root[0], fading.coef_.sum(axis=0) / (20 + 1 / 0.08), atol=1e-8)


def test_couplings_of_a_search_fade(wide):
    search = {"costs": [0.1], "couplings": [0.0, 0.3]}
    searched = RecursiveSVC(C="cv", coupling="cv", search=search, structure=WIDE, **QUICK).fit(*wide)
    same = RecursiveSVC(0.1, coupling={"r": searched.coupling_ * 16 / 20}, structure=WIDE, **QUICK).fit(*wide)
    again = RecursiveSVC(searched.C_, coupling=searched.coupling_, structure=WIDE, **QUICK).fit(*wide)
    np.testing.assert_array_equal(searched.coef_, again.coef_)
    np.testing.assert_allclose(searched.coef_, same.coef_, atol=1e-6)


def test_the_fade_holds_when_more_is_learned(wide):
    X, y = wide
    fading, faded = (
        RecursiveSVC(coupling=coupling, structure=WIDE, **TIGHT).fit(X, y).partial_fit(X[:20], y[:20])
        for coupling in (0.1, {"r": 0.1 * 16 / 20})
    )
    np.testing.assert_allclose(fading.coef_, faded.coef_, atol=1e-4)
    assert fading.set_params(coupling=[0.1]).partial_fit(X[:20], y[:20]).fade_ is None


# --- weights of any node -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prune_below", [None, 0.0])
def test_node_weights_minimise_the_regulariser(prune_below):
    model = RecursiveSVC(structure=TREE, coupling=0.5, prune_below=prune_below, **TIGHT).fit(X, Y)
    names = ["r", "a", "b", *LEAVES]
    coef, intercept = model.node_weights(names)
    W = dict(zip(names, np.column_stack([coef, intercept]), strict=True))
    np.testing.assert_allclose(coef[3:], dense(model.coef_), atol=1e-12)
    # The gradient of 1/2 sum ||w_n - w_p||^2 / s_n in each inner node; leaves have s = 1, b3 only follows.
    for node, parent, children in [("r", None, "ab"), ("a", "r", LEAVES[:3]), ("b", "r", LEAVES[3:])]:
        up = (W[node] - (W[parent] if parent else 0)) / 0.5
        down = sum((W[child] - W[node]) / (0.5 if child in "ab" else 1.0) for child in children)
        np.testing.assert_allclose(up, down, atol=1e-8)
    np.testing.assert_allclose(model.node_weights(["b3"])[0][0], W["b"][:-1], atol=1e-8)


def test_node_weights_do_not_depend_on_what_else_is_asked_for():
    y = Y.copy()
    y[np.isin(y, ["b1", "b2"])] = "b"  # the leaves below b are without documents
    for structure in (TREE, DAG):
        model = RecursiveSVC(structure=structure, **QUICK).fit(X, y)
        names = structure.names.tolist()
        together = model.node_weights(names)[0]
        for name, row in zip(names, together, strict=True):
            np.testing.assert_allclose(model.node_weights([name])[0][0], row, atol=1e-5)


def test_node_weights_without_a_structure_go_by_the_names_of_classes():
    model = RecursiveSVC(**QUICK).fit(X, Y)
    np.testing.assert_allclose(model.node_weights(["b1", "a1"])[0], dense(model.coef_)[[3, 0]])
    with pytest.raises(ValueError, match="'zz' is not a class"):
        model.node_weights(["zz"])
    with pytest.raises(ValueError, match="not a node"):
        RecursiveSVC(structure=TREE, **QUICK).fit(X, Y).node_weights(["zz"])


# --- files, memory, messages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
@every_structure
def test_a_pruned_model_is_saved_and_loaded(structure, mmap, tmp_path):
    model = RecursiveSVC(structure=structure, prune_below=0.01, **QUICK).fit(X, Y)
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model", mmap=mmap)
    for method in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(loaded, method)(X_NEW), getattr(model, method)(X_NEW))
    np.testing.assert_array_equal(loaded.coef_.toarray(), model.coef_.toarray())
    loaded.partial_fit(X_NEW, Y_NEW)  # goes on learning where it is now
    np.testing.assert_array_equal(loaded.coef_.toarray(), model.partial_fit(X_NEW, Y_NEW).coef_.toarray())


def test_memory_is_refused_before_it_is_spent(monkeypatch):
    model = RecursiveSVC(structure=TREE, prune_below=0.0, **QUICK).fit(X, Y)
    monkeypatch.setattr(memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"5 classes together on 100 rows.*prune_below=0.0"):
        RecursiveSVC(1.0, structure=TREE, **QUICK).fit(X, Y)
    with pytest.raises(MemoryError, match="differences_ and sharing_"):
        _ = model.coef_
    assert model.predict(X_NEW).shape == (60,)  # needs no full weights
    with pytest.raises(MemoryError, match="fewer nodes at a time"):
        model.node_weights(["a"])
    with pytest.raises(MemoryError, match="5 classes together on 100 rows"):
        model.partial_fit(X, Y)


def test_a_fit_that_could_not_be_calibrated_is_refused_before_it_is_trained(monkeypatch):
    wide = np.hstack([X, np.zeros((100, 5000))])
    model = RecursiveSVC(structure=TREE, random_state=0).fit(wide, Y)
    coupling = couple(TREE, model.class_nodes_, model.coupling_, model.fade_)
    size = _memory.size_of(sp.csr_array(wide), np.float32)
    alone = _memory.joint_memory(size, lay_out(coupling.factor), "hinge", True, 1)
    monkeypatch.setattr(memory, "available_memory", lambda: alone)
    model.set_params(calibration=None).fit(wide, Y)
    monkeypatch.setattr(_memory, "train_joint", None)
    with pytest.raises(MemoryError, match=r"80 rows.*beside the weights of all rows, to calibrate"):
        model.set_params(calibration="holdout").fit(wide, Y)


def test_only_the_weights_of_a_fit_are_there_when_it_is_calibrated(monkeypatch):
    train, alive = _memory.train_joint, []

    def watched(*args, **options):
        gc.collect()
        alive.append([joint() is not None for joint in joints])
        fitted = train(*args, **options)
        joints.append(weakref.ref(fitted.joint))
        return fitted

    joints = []
    monkeypatch.setattr(_memory, "train_joint", watched)
    monkeypatch.setattr(recursive_classifier, "train_joint", watched)
    RecursiveSVC(structure=TREE, calibration=2, random_state=0).fit(X, Y)
    assert alive == [[], [False], [False, False]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0.0}, "'C' parameter"),
        ({"C": "CV"}, "'C' parameter"),
        ({"coupling": -0.5}, "'coupling' parameter"),
        ({"coupling": "strong"}, "'coupling' parameter"),
        ({"coupling": [1.0, -1.0]}, "0 or more"),
        ({"coupling": {"a": "strong"}}, "give a number"),
        ({"coupling": {"zz": 1.0}}, "'zz' is not a node"),
        ({"structure": GRAPH, "coupling": 2.0}, r"number in \[0, 1\]"),
        ({"structure": "tree"}, "structure must be"),
        ({"C": "cv", "search": {"costs": []}}, "give at least one"),
        ({"C": "cv", "search": {"costs": [1.0, -1.0]}}, "above 0"),
        ({"C": "cv", "search": {"costs": ["a"]}}, "finite numbers"),
        ({"coupling": "cv", "search": {"couplings": []}}, "couplings is empty"),
        ({"coupling": "cv", "search": {"cv": 1000}}, "at least as many rows"),
        ({"coupling": "cv", "search": {"cv": 1}}, "'cv' parameter|n_splits|at least"),
        ({"search": {"scoring": "accuracy"}}, "scoring"),
        ({"search": {"score": "micro_f1"}}, "did you mean 'scoring'"),
        ({"prune_below": -1.0}, "'prune_below' parameter"),
        ({"loss": "logistic"}, "'loss' parameter"),
        ({"class_weight": {"a1": -1.0}}, "0 or more"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        RecursiveSVC(**{"structure": TREE, **params}).fit(X, Y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.where(X[3, 0] == X, np.nan, X), Y, "NaN in row"),
        (X, [*Y[:-1], "a4"], "'a4' is not a node"),
        (X, ["a1"] * len(Y), "at least 2 classes"),
        (X[:5], Y, "inconsistent"),
        (X, None, "requires y"),
        (X, [[]] * len(Y), "no row of y carries a label"),
    ],
    ids=["nan", "unknown label", "one class", "lengths", "none", "no labels"],
)
def test_bad_input_is_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        RecursiveSVC(structure=TREE).fit(x, y)


def test_a_fit_that_is_cut_short_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 before the relative duality gap"):
        model = RecursiveSVC(structure=TREE, max_iter=1, tol=1e-9, **QUICK).fit(X, Y)
    assert model.duality_gap_ > 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RecursiveSVC(structure=TREE, **QUICK).fit(X, Y).duality_gap_ <= 1e-2


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_held_out_training_that_starts_warm_gives_the_same_scores(loss, monkeypatch):
    data = make_hierarchical_text(1200, 2000, branching=(10, 20), n_test=1, mean_length=40, random_state=0)
    X, solve, scores = LtcTransformer().fit_transform(data.X_train), CoupledSolver.solve, []

    def keep(parts, *further):
        scores.append(parts[0].scores)
        return Calibration(1.0)

    def solve_exactly(self, *, certify=True, multipliers=None, tol=0.0, **options):
        return solve(self, tol=1e-3, **options)

    monkeypatch.setattr(held_out, "fit_calibration", keep)
    for method in (solve, solve_exactly):
        monkeypatch.setattr(CoupledSolver, "solve", method)
        RecursiveSVC(0.3, loss=loss, structure=data.hierarchy, random_state=0).fit(X, data.y_train)
    # How far the best class of a row is above the others, which probabilities depend on.
    result, exact = (s.max(axis=1) - s.mean(axis=1) for s in scores)
    assert result.mean() == pytest.approx(exact.mean(), rel=0.025)


def test_default_tolerance_is_finer_for_rows_with_few_zeros():
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(12, 20)), rng.integers(12, size=600)
    dense = centres[y] + rng.normal(size=(600, 20))
    sparse = np.where(rng.random(dense.shape) < 0.3, dense, 0.0)
    for rows, tol in ((dense, 1e-3), (sparse, 1e-2)):
        default, params = (
            RecursiveSVC(tol=value, calibration=None, random_state=0).fit(rows, y) for value in (None, tol)
        )
        np.testing.assert_array_equal(default.coef_, params.coef_)
        assert default.duality_gap_ <= tol
    with pytest.warns(ConvergenceWarning, match="tol=0.001"):
        RecursiveSVC(max_iter=1, calibration=None, random_state=0).fit(dense, y)
