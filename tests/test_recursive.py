"""Recursive classifiers: reductions, optima by generic solvers, searches by brute force, growth, hostile input."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from arbora import io
from arbora.classify import (
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveLogisticRegression,
    RecursiveSVC,
    _search,
)
from arbora.classify._coupling import couple
from arbora.infer import memory
from arbora.metrics import macro_f1, micro_f1
from arbora.structure import Hierarchy, LabelGraph

LEAVES = ["a1", "a2", "a3", "b1", "b2"]
TREE = Hierarchy.from_edges(
    [("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2"), ("b", "b3")]
)
DAG = TREE.with_edges([("b", "a3"), ("r", "c"), ("c", "b1")], nodes=["c"])
GRAPH = LabelGraph.from_edges([("a1", "a2"), ("a2", "a3"), ("b1", "b2"), ("a3", "b1"), ("b2", "b3")])
STRUCTURES = {"tree": TREE, "dag": DAG, "graph": GRAPH}
every_structure = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
MODELS = {
    "hinge": (RecursiveSVC, OneVsRestSVC, {}),
    "squared": (RecursiveSVC, OneVsRestSVC, {"loss": "squared_hinge"}),
    "logistic": (RecursiveLogisticRegression, OneVsRestLogistic, {}),
}
every_model = pytest.mark.parametrize(("model", "flat", "params"), MODELS.values(), ids=MODELS)
TIGHT = {
    "tol": 1e-8,
    "dtype": "float64",
    "calibration": None,
    "max_iter": 20_000,
    "random_state": 0,
    "C": 0.1,
}
QUICK = {"calibration": None, "random_state": 0}


def clouds(n=100, seed=0, labels=LEAVES, n_features=8, noise=0.7):
    rng = np.random.default_rng(7)
    centre = {name: rng.standard_normal(n_features) for name in [*DAG.names.tolist(), "b3"]}
    rng = np.random.default_rng(seed)
    y = np.array(labels, dtype=object)[rng.integers(len(labels), size=n)]
    X = np.array([centre[name] + centre[name[0]] for name in y]) + noise * rng.standard_normal(
        (n, n_features)
    )
    return X * (rng.random(X.shape) < 1.02 - 0.6 * noise), y


def dense(coef):
    return coef.toarray() if sp.issparse(coef) else coef


X, Y = clouds()
X_NEW, Y_NEW = clouds(60, seed=1)
SETS = [[label, "b2"] if i % 3 else [label] if i % 5 else [] for i, label in enumerate(Y)]


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
    known = flat(**TIGHT, **params).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, known.coef_, atol=2e-3 * np.abs(known.coef_).max())
    np.testing.assert_allclose(ours.intercept_, known.intercept_, atol=2e-3 * np.abs(known.coef_).max())
    assert (ours.predict(X_NEW) == known.predict(X_NEW)).mean() > 0.98


def test_two_classes_without_a_structure_are_one_classifier_twice():
    two = np.isin(Y, ["a1", "b2"])
    ours = RecursiveSVC(**TIGHT).fit(X[two], Y[two])
    known = OneVsRestSVC(**TIGHT).fit(X[two], Y[two])
    np.testing.assert_allclose(ours.decision_function(X_NEW), known.decision_function(X_NEW), atol=1e-2)


@every_model
def test_coupling_leads_from_the_flat_model_to_the_published_one(model, flat, params):
    """The closer the coupling ties siblings, the closer their weights are to each other."""

    def spread(coupling):
        coef = (
            model(structure=TREE, coupling=coupling, fade=None, **{**TIGHT, "tol": 1e-3}, **params)
            .fit(X, Y)
            .coef_
        )
        return ((coef[:3] - coef[:3].mean(axis=0)) ** 2).sum() / (coef**2).sum()

    assert spread(0.0) > spread(0.3) > spread(3.0)


@every_structure
@every_model
def test_dense_equals_sparse_and_pruned_equals_dense(model, flat, params, structure):
    exact = {**TIGHT, "tol": 1e-6, "structure": structure, **params}
    dense = model(**exact).fit(X, Y)
    sparse = model(**exact).fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=5e-3 * np.abs(dense.coef_).max())
    pruned = model(**exact, prune_below=0.0).fit(X, Y)
    np.testing.assert_allclose(pruned.coef_.toarray(), dense.coef_, atol=1e-10)
    np.testing.assert_allclose(pruned.decision_function(X_NEW), dense.decision_function(X_NEW), atol=1e-9)
    np.testing.assert_array_equal(pruned.predict(X_NEW), dense.predict(X_NEW))


def test_parts_of_a_tree_are_differences_of_nodes_from_their_parents():
    """Of TREE the roots have one part, and each child of a or b its own; b3 has no documents."""
    model = RecursiveSVC(structure=TREE, prune_below=0.0, coupling=0.3, fade=None, **TIGHT).fit(X, Y)
    np.testing.assert_allclose(model.sharing_.data, 1.0)
    names = ["r", "a", "b", *LEAVES]
    weights = dict(zip(names, model.node_weights(names)[0], strict=True))
    parents = {"a": "r", "b": "r", **{leaf: leaf[0] for leaf in LEAVES}}
    want = [weights["r"], *(weights[name] - weights[parent] for name, parent in parents.items())]
    found = model.differences_.toarray()
    assert found.shape == (8, X.shape[1])
    for row in want:
        assert np.abs(found - row).max(axis=1).min() < 1e-6


def test_memory_of_a_pruned_model_does_not_grow_with_classes_times_features():
    rng = np.random.default_rng(0)
    n_classes, n_features = 960, 20_000
    y = np.repeat(np.arange(n_classes), 2)
    columns = np.column_stack([y, n_classes + rng.integers(n_features - n_classes, size=(len(y), 3))])
    rows = np.repeat(np.arange(len(y)), 4)
    sparse = sp.csr_array((np.full(rows.size, 0.5), (rows, columns.ravel())), shape=(len(y), n_features))
    tree = Hierarchy.from_edges([(f"p{label // 8}", label) for label in range(n_classes)])
    model = RecursiveSVC(structure=tree, prune_below=0.1, **QUICK)
    model.fit(sparse, y)  # compiles
    tracemalloc.start()
    model.fit(sparse, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 4 * n_classes * n_features, f"{peak / 2**20:.0f} MiB"


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
    proba = model.predict_proba(X_NEW)
    at = {name: i for i, name in enumerate(model.nodes_.tolist())}
    below = proba[:, [at[n] for n in ("a1", "a2", "a3")]].sum(axis=1)
    assert (proba[:, at["a"]] >= below - 1e-9).all()  # what is left is its own


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
    found = model.predict(X)
    if kind == "sets":
        found = structure.indicator(found)
    assert found.shape == indicator.shape
    assert sp.issparse(found) == (kind != "indicator")
    assert micro_f1(indicator.astype(int), sp.csr_array(found).astype(int)) > 0.7
    flags = RecursiveSVC(structure=structure, **QUICK).fit(X, SETS)
    np.testing.assert_array_equal(model.coef_, flags.coef_)


@every_structure
@pytest.mark.parametrize("labels", [Y, SETS], ids=["single", "sets"])
def test_predictions_hang_together(structure, labels):
    model = RecursiveSVC(structure=structure, random_state=0).fit(X, labels)
    proba, nodes = model.predict_proba(X_NEW), model.nodes_.tolist()
    assert ((proba >= 0) & (proba <= 1 + 1e-9)).all()
    for parent, child in model.hierarchy_.names[model.hierarchy_.edges]:
        assert (proba[:, nodes.index(parent)] >= proba[:, nodes.index(child)] - 1e-9).all()
    found, paths = model.predict(X_NEW), model.predict_path(X_NEW)
    if labels is Y:
        assert [path[-1] for path in paths] == found.tolist()
        best, values = model.predict_top_k(X_NEW, 3)
        assert best[:, 0].tolist() == found.tolist()
        assert (np.diff(values, axis=1) <= 0).all()
        depth = dict(zip(nodes, model.hierarchy_.depth.tolist(), strict=True))
        sure, unsure = model.predict_backoff(X_NEW, 0.99), model.predict_backoff(X_NEW, 0.3)
        both = [(s, u) for s, u in zip(sure, unsure, strict=True) if s is not None]
        assert all(depth[s] <= depth[u] for s, u in both)
    else:
        assert [sorted(path[-1] for path in row) for row in paths] == [sorted(row) for row in found]


def test_class_weight_multiplies_the_cost_of_positives():
    """A weight of 2 is a document that comes twice, as far as the positives of its class go."""
    weighted = RecursiveSVC(structure=TREE, class_weight={"a1": 50.0}, **QUICK).fit(X, Y)
    plain = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y)
    assert (weighted.predict(X_NEW) == "a1").sum() > (plain.predict(X_NEW) == "a1").sum()
    with pytest.raises(ValueError, match="did you mean 'a1'"):
        RecursiveSVC(structure=TREE, class_weight={"a11": 2.0}).fit(X, Y)


def test_sample_weight_is_a_factor_on_C():
    twice = RecursiveSVC(structure=TREE, **{**TIGHT, "C": 0.05}).fit(X, Y, sample_weight=np.full(len(Y), 2.0))
    once = RecursiveSVC(structure=TREE, **TIGHT).fit(X, Y)
    np.testing.assert_allclose(twice.coef_, once.coef_, atol=1e-6)


@every_model
def test_warm_start_ends_at_the_same_optimum_sooner(model, flat, params):
    params = {**params, **TIGHT, "tol": 1e-5, "structure": TREE}
    x = sp.csr_array(X)
    cold = model(**params).fit(x, Y)
    warm = model(**{**params, "C": 0.095}, warm_start=True).fit(x, Y)
    warm.set_params(C=0.1).fit(x, Y)
    np.testing.assert_allclose(warm.coef_, cold.coef_, atol=3e-2 * np.abs(cold.coef_).max())
    assert warm.n_iter_ < cold.n_iter_
    warm.fit(x[:50], Y[:50])  # other documents: begins anew
    np.testing.assert_array_equal(warm.coef_, model(**params).fit(x[:50], Y[:50]).coef_)


def test_warm_start_takes_anything_that_came_before():
    """From sparse rows to dense ones, from one structure to another, from one coupling to another."""
    model = RecursiveLogisticRegression(structure=TREE, warm_start=True, **QUICK).fit(sp.csr_array(X), Y)
    model.fit(X, Y)
    model.fit(sp.csr_array(X), Y)
    model.set_params(structure=GRAPH, coupling=0.7).fit(X, Y)
    assert model.duality_gap_ <= model.tol


# --- cross-validation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["macro_f1", "micro_f1"])
@pytest.mark.parametrize("labels", [Y, SETS], ids=["single", "sets"])
def test_search_picks_what_brute_force_picks(scoring, labels, monkeypatch):
    monkeypatch.setattr(_search, "COARSE_TOL", 1e-5)
    fine = {"tol": 1e-5, "dtype": "float64", **QUICK}
    Cs, couplings = [1.0, 0.01, 0.1], [0.0, 1.0, {"r": 0.2}]
    model = RecursiveSVC(
        C="cv", coupling="cv", Cs=Cs, couplings=couplings, structure=TREE, cv=3, scoring=scoring, **fine
    ).fit(X, labels)
    indicator = TREE.indicator(labels if labels is SETS else [[label] for label in labels]).astype(np.int64)
    present = np.unique(indicator.indices)
    fold = _search.folds(sp.csr_array(indicator[:, present]).astype(float), 3, model._seed())
    measure = {"macro_f1": macro_f1, "micro_f1": micro_f1}[scoring]
    table = {}
    for coupling in couplings:
        for C in sorted(Cs):
            scores = []
            for f in range(3):
                seen, unseen = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
                # An indicator keeps the classes of which a fold has no document out of the way of names.
                one = RecursiveSVC(C=C, coupling=coupling, structure=TREE, **fine)
                one.fit(X[seen], [labels[i] for i in seen])
                assert len(one.classes_) == len(present)
                found = one.predict(X[unseen])
                if labels is SETS:
                    found = TREE.indicator(found).astype(np.int64)[:, present]
                    scores.append(measure(indicator[unseen][:, present], found))
                else:
                    scores.append(measure(Y[unseen].astype(str), found.astype(str)))
            table[C, str(coupling)] = np.mean(scores)
    results = model.cv_results_
    for C, coupling, mean in zip(results["C"], results["coupling"], results["mean_score"], strict=True):
        assert abs(mean - table[C, str(coupling)]) < 0.03  # a document or two at the border
    assert table[model.C_, str(model.coupling_)] > max(table.values()) - 0.03
    np.testing.assert_allclose(results["mean_score"], results["scores"].mean(axis=1))
    np.testing.assert_allclose(results["std_score"], results["scores"].std(axis=1))
    assert model.C == "cv"
    again = RecursiveSVC(C=model.C_, coupling=model.coupling_, structure=TREE, **fine).fit(X, labels)
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_every_fold_has_documents_of_every_class_that_has_enough():
    positives = sp.csr_array(TREE.indicator([[label] for label in Y]).astype(float))
    fold = _search.folds(positives, 4, 0)
    for label in LEAVES:
        counts = np.bincount(fold[label == Y], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 1


def test_a_path_ends_when_the_score_has_fallen_twice(monkeypatch):
    scores = iter([0.5, 0.6, 0.55, 0.5, 0.9])
    monkeypatch.setattr(_search, "_judge", lambda *_: next(scores))
    splits = [(np.arange(50), np.arange(50, 100))]
    model = RecursiveSVC(C="cv", Cs=[0.01, 0.02, 0.03, 0.04, 0.05], cv=splits, **QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.cv_results_["C"], [0.01, 0.02, 0.03, 0.04])
    assert model.C_ == 0.02


def test_a_number_given_stays_where_the_other_is_searched():
    model = RecursiveSVC(
        C=0.2, coupling="cv", couplings=[0.0, 0.5], structure=TREE, cv=KFold(2), **QUICK
    ).fit(X, Y)
    assert model.C_ == 0.2
    fixed = RecursiveSVC(C=0.2, coupling=model.coupling_, structure=TREE, **QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, fixed.coef_)
    model.set_params(coupling=0.5).fit(X, Y)
    assert not hasattr(model, "cv_results_")  # of a fit before


# --- weights of any node -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prune_below", [None, 0.0])
def test_node_weights_minimise_the_regulariser(prune_below):
    model = RecursiveSVC(structure=TREE, coupling=0.5, prune_below=prune_below, fade=None, **TIGHT).fit(X, Y)
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
        model = RecursiveSVC(structure=structure, fade=2.0, **QUICK).fit(X, y)
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


# --- growth --------------------------------------------------------------------------------------------------------


def proximal(loss, K, W0, X, S, C):
    """Weights of the proximal problem by L-BFGS: 1/2 tr (W - W0) K^-1 (W - W0)' + C sum of losses."""
    design, inverse = np.column_stack([X, np.ones(len(X))]), np.linalg.inv(K)

    def value(w):
        W = w.reshape(W0.shape)
        D, m = W - W0, S * (design @ W)
        if loss == "logistic":
            losses, slope = np.logaddexp(0, -m), -expit(-m)
        else:
            losses, slope = np.maximum(1 - m, 0) ** 2, -2 * np.maximum(1 - m, 0)
        gradient = D @ inverse + C * design.T @ (S * slope)
        return np.trace(D @ inverse @ D.T) / 2 + C * losses.sum(), gradient.ravel()

    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000}
    return minimize(value, W0.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(W0.shape)


@pytest.mark.parametrize("case", ["squared", "logistic"])
@every_structure
@pytest.mark.parametrize("prune_below", [None, 0.0])
def test_partial_fit_solves_the_proximal_problem(case, structure, prune_below):
    estimator, _, params = MODELS[case]
    model = estimator(structure=structure, prune_below=prune_below, fade=None, **TIGHT, **params).fit(X, Y)
    before = np.column_stack([dense(model.coef_), model.intercept_]).T
    more, labels = X_NEW[:12], Y_NEW[:12]
    model.partial_fit(more, labels)
    coupling = couple(structure, structure.encode(LEAVES), 0.3)
    factor = coupling.factor[:, np.argsort(coupling.order)].toarray()
    signs = np.where(labels[:, None] == np.array(LEAVES, dtype=object), 1.0, -1.0)
    want = proximal(case, factor.T @ factor, before, more, signs, 0.1)
    found = np.column_stack([dense(model.coef_), model.intercept_]).T
    np.testing.assert_allclose(found, want, atol=1e-3 * np.abs(want).max())
    assert not np.allclose(found, before, atol=1e-2)


@every_model
@pytest.mark.parametrize("prune_below", [None, 0.0])
@pytest.mark.parametrize("structure", [None, TREE, DAG, GRAPH], ids=["none", "tree", "dag", "graph"])
def test_a_new_class_is_found_and_old_ones_are_not_forgotten(model, flat, params, prune_below, structure):
    first, test = clouds(100, 0, noise=0.2), clouds(60, 1, noise=0.2)
    ours = model(structure=structure, prune_below=prune_below, **QUICK, **params).fit(*first)
    accuracy = ours.score(*test)
    ours.partial_fit(*clouds(60, 3, [*LEAVES, "b3"], noise=0.2))
    assert ours.classes_.tolist() == [*LEAVES, "b3"]
    assert ours.score(*clouds(40, 5, ["b3"], noise=0.2)) > 0.8
    assert ours.score(*test) > accuracy - 0.1
    assert ours.coef_.shape == (6, 8)
    assert ours.predict_proba(X_NEW).shape == (60, len(ours.nodes_))


def test_a_grown_structure_is_kept():
    grown = TREE.with_edges([("r", "c"), ("c", "b3x")], nodes=["c", "b3x"])
    model = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y)
    more, _ = clouds(10, 3, ["b3"])
    model.partial_fit(more, ["b3x"] * 10, structure=grown)
    assert model.structure_ == grown
    assert "b3x" in model.classes_
    assert model.structure == TREE  # a parameter is the user's
    model.partial_fit(X[:1], Y[:1])
    assert model.structure_ == grown
    flat = RecursiveSVC(**QUICK).fit(X, Y)
    flat.partial_fit(X, Y, structure=TREE).partial_fit(X[:1], Y[:1])
    assert flat.structure_ == TREE
    with pytest.raises(ValueError, match="not a node"):
        model.partial_fit(X[:1], Y[:1], structure=Hierarchy.from_edges([("r", "a1")]))


def test_a_pruned_model_does_not_grow_with_every_call():
    model = RecursiveSVC(structure=TREE, prune_below=0.0, **QUICK).fit(X, Y)
    sizes = []
    for i in range(4):
        model.partial_fit(X_NEW[i : i + 10], Y_NEW[i : i + 10])
        sizes.append(model.differences_.shape[0])
    assert len(set(sizes)) == 1


def test_partial_fit_of_label_sets():
    for threshold in ("zero", "global", "rcut", "scut", "instance"):
        model = RecursiveSVC(structure=TREE, threshold=threshold, **QUICK).fit(X, SETS)
        new, _ = clouds(40, 3, ["b3"])
        model.partial_fit(new, [["b3", "a1"] if i % 2 else ["b3"] for i in range(40)])
        found = model.predict(clouds(30, 4, ["b3"])[0])
        assert np.mean(["b3" in labels for labels in found]) > 0.5
        model.partial_fit(X[:2], [["a1"], []])


def test_partial_fit_of_one_document_and_of_weights():
    model = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y)
    before = model.coef_.copy()
    model.partial_fit(X[:2], Y[:2], sample_weight=[0.0, 1.0])  # a document that counts for nothing
    other = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y).partial_fit(X[1:2], Y[1:2])
    np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-2 * np.abs(before).max())
    model.partial_fit(X[:1], Y[:1])
    plain = RecursiveSVC(**QUICK).fit(X, Y == "a1").partial_fit(X[:1], [True])
    assert plain.classes_.dtype == bool
    fresh = RecursiveSVC(structure=TREE, **QUICK).partial_fit(X, Y, classes=LEAVES)
    np.testing.assert_array_equal(fresh.coef_, before)


def test_partial_fit_refuses_what_it_cannot_take_and_stays_as_it_was(monkeypatch):
    model = RecursiveSVC(**QUICK).fit(X, Y)
    before, classes = model.coef_.copy(), model.classes_.copy()
    for x, y, more, message in [
        (X[:2], [1, 2], {}, "labels of one kind"),
        (X[:2], [["a1"], ["a2"]], {}, "of the kind 'single'"),
        (X[:2], ["a1", "zz"], {"classes": LEAVES}, "'zz' of y is not one of the 5 classes"),
        (X[:2, :3], Y[:2], {}, "features"),
        (X[:2], Y[:1], {}, "inconsistent"),
        (X[:1] * 1e30, Y[:1], {}, "overflows"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(x, y, **more)
    with pytest.raises(ValueError, match="structure of the constructor"):
        RecursiveSVC().partial_fit(X, Y, structure=TREE)

    def fails(*_, **__):
        raise RuntimeError("the machine is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(RecursiveSVC, "_train", fails)
        with pytest.raises(RuntimeError, match="on fire"):
            model.partial_fit(X[:2], ["a1", "new"])
    np.testing.assert_array_equal(model.coef_, before)
    np.testing.assert_array_equal(model.classes_, classes)


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
        RecursiveSVC(structure=TREE, **QUICK).fit(X, Y)
    with pytest.raises(MemoryError, match="differences_ and sharing_"):
        _ = model.coef_
    assert model.predict(X_NEW).shape == (60,)  # needs no full weights
    with pytest.raises(MemoryError, match="before and after"):
        model.partial_fit(X, Y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0.0}, "'C' parameter"),
        ({"C": "CV"}, "'C' parameter"),
        ({"coupling": -0.5}, "'coupling' parameter"),
        ({"coupling": "auto"}, "'coupling' parameter"),
        ({"coupling": [1.0, -1.0]}, "0 or more"),
        ({"coupling": {"a": "strong"}}, "give a number"),
        ({"coupling": {"zz": 1.0}}, "'zz' is not a node"),
        ({"structure": GRAPH, "coupling": 2.0}, r"number in \[0, 1\]"),
        ({"structure": "tree"}, "structure must be"),
        ({"C": "cv", "Cs": []}, "at least one cost"),
        ({"C": "cv", "Cs": [1.0, -1.0]}, "above 0"),
        ({"C": "cv", "Cs": ["a"]}, "finite numbers"),
        ({"coupling": "cv", "couplings": []}, "couplings is empty"),
        ({"coupling": "cv", "cv": 1000}, "at least as many rows"),
        ({"coupling": "cv", "cv": 1}, "'cv' parameter|n_splits|at least"),
        ({"scoring": "accuracy"}, "'scoring' parameter"),
        ({"prune_below": -1.0}, "'prune_below' parameter"),
        ({"fade": 0}, "'fade' parameter"),
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
    with pytest.warns(ConvergenceWarning, match="max_iter=1 rounds before the relative duality gap"):
        model = RecursiveSVC(structure=TREE, max_iter=1, tol=1e-9, **QUICK).fit(X, Y)
    assert model.duality_gap_ > 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RecursiveSVC(structure=TREE, **QUICK).fit(X, Y).duality_gap_ <= 1e-2
