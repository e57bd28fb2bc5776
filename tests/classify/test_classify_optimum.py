"""The optimum of the linear classifiers: against LIBLINEAR, reductions to each other, certificates."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from arbora.classify import OneVsRestLogistic, OneVsRestSVC, TopDownSVC
from arbora.structure import Hierarchy

TIGHT = {
    "C": 1.0,
    "tol": 1e-8,
    "calibration": None,
    "max_iter": 20_000,
    "random_state": 0,
}
LOSSES = ("hinge", "squared_hinge", "logistic")


def problem(n_samples=90, n_features=6, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_samples) % n_classes)
    centres = rng.normal(size=(n_classes, n_features))
    return centres[y] + rng.normal(size=(n_samples, n_features)), y


def ours(loss, **params):
    if loss == "logistic":
        return OneVsRestLogistic(**{**TIGHT, **params})
    return OneVsRestSVC(loss=loss, **{**TIGHT, **params})


def liblinear(loss, X, y, sample_weight=None, **params):
    """coef and intercept of LIBLINEAR, one class against the rest."""
    if loss != "logistic":
        model = LinearSVC(loss=loss, dual=True, tol=1e-10, max_iter=1_000_000, random_state=0, **params)
        model.fit(X, y, sample_weight)
        return model.coef_, np.broadcast_to(model.intercept_, len(model.coef_))
    class_weight = params.pop("class_weight", None) or {}
    classes = np.unique(y)
    rows = []
    for label in classes[1:] if len(classes) == 2 else classes:
        weight = {1: class_weight.get(label, 1.0)}
        if len(classes) == 2:
            weight[0] = class_weight.get(classes[0], 1.0)
        model = LogisticRegression(
            solver="liblinear", tol=1e-12, max_iter=10_000, class_weight=weight, **params
        ).fit(X, (y == label).astype(int), sample_weight)
        rows.append((model.coef_[0], np.ravel(model.intercept_)[0]))
    coef, intercept = zip(*rows, strict=True)
    return np.array(coef), np.array(intercept)


def objective(loss, X, y_signed, coef, intercept, C=1.0, scaling=1.0, cost=1.0):
    """Primal objective of one class, written down from the definition in float64."""
    w, b = np.asarray(coef, dtype=np.float64), np.float64(intercept)
    margin = y_signed * (np.asarray(X, dtype=np.float64) @ w + b)
    if loss == "logistic":
        losses = np.logaddexp(0, -margin)
    else:
        losses = np.maximum(0, 1 - margin) ** (2 if loss == "squared_hinge" else 1)
    bias = b / scaling if scaling else 0.0
    return 0.5 * (w @ w + bias**2) + C * np.sum(cost * losses)


def signs(y, classes):
    return [np.where(y == label, 1.0, -1.0) for label in (classes[1:] if len(classes) == 2 else classes)]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"C": 0.1},
        {"C": 7.0},
        {"fit_intercept": False},
        {"class_weight": {0: 4.0, 1: 0.25}},
    ],
    ids=["plain", "small-C", "large-C", "no-intercept", "class-weight"],
)
@pytest.mark.parametrize("loss", LOSSES)
def test_same_optimum_as_liblinear(loss, params, n_classes):
    X, y = problem(n_classes=n_classes)
    model = ours(loss, **params).fit(X, y)
    coef, intercept = liblinear(loss, X, y, **dict(params))
    assert model.coef_.shape == coef.shape == (1 if n_classes == 2 else n_classes, X.shape[1])
    theirs = (X @ coef.T + intercept).squeeze()
    np.testing.assert_allclose(model.decision_function(X), theirs, atol=1e-3)
    scaling = 1.0 if params.get("fit_intercept", True) else 0.0
    weight = params.get("class_weight", {})
    for i, signed in enumerate(signs(y, model.classes_)):
        positive = weight.get(int(model.classes_[-1 if n_classes == 2 else i]), 1.0)
        negative = weight.get(0, 1.0) if n_classes == 2 else 1.0
        common = {
            "C": params.get("C", 1.0),
            "scaling": scaling,
            "cost": np.where(signed > 0, positive, negative),
        }
        mine = objective(loss, X, signed, model.coef_[i], model.intercept_[i], **common)
        other = objective(loss, X, signed, coef[i], intercept[i], **common)
        assert mine <= other * (1 + 1e-6)
        assert other <= mine * (1 + 1e-5)  # else the comparison says nothing


@pytest.mark.parametrize("n_classes", [2, 3])
def test_balanced_weights_are_those_of_liblinear(n_classes):
    X, y = problem(n_classes=n_classes)
    keep = np.flatnonzero((y != 0) | (np.arange(len(y)) % 4 == 0))  # class 0 is rare
    X, y = X[keep], y[keep]
    model = ours("hinge", class_weight="balanced").fit(X, y)
    coef, _ = liblinear("hinge", X, y, class_weight="balanced")
    np.testing.assert_allclose(model.coef_, coef, atol=1e-3)
    assert np.abs(model.coef_ - ours("hinge").fit(X, y).coef_).max() > 0.01


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_two_is_a_duplicated_row_and_of_zero_none(loss):
    X, y = problem()
    times = np.random.default_rng(1).integers(0, 4, size=len(y))
    again = np.repeat(np.arange(len(y)), times)
    weighted = ours(loss).fit(X, y, sample_weight=times)
    repeated = ours(loss).fit(X[again], y[again])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_two_classes_are_the_problem_of_two_columns(loss):
    X, y = problem(n_classes=2)
    first = ours(loss).fit(X, y)
    two = ours(loss).fit(X, np.eye(2, dtype=int)[y])  # the same rows as an indicator: two classifiers
    assert first.coef_.shape == (1, X.shape[1])
    assert first.intercept_.shape == (1,)
    assert two.coef_.shape == (2, X.shape[1])
    assert first.decision_function(X).shape == (len(X),)
    np.testing.assert_allclose(first.decision_function(X), two.decision_function(X)[:, 1], atol=1e-3)
    np.testing.assert_allclose(-first.decision_function(X), two.decision_function(X)[:, 0], atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_several_blocks_are_the_classes_trained_alone(loss):
    X, y = problem(n_samples=210, n_features=8, n_classes=70)  # three blocks of classes
    model = ours(loss, tol=1e-7).fit(X, y)
    assert model.coef_.shape == (70, 8)
    for label in (0, 22, 23, 24, 46, 47, 69):  # the ends of the blocks and their middles
        alone = ours(loss).fit(X, y == label)
        np.testing.assert_allclose(
            model.decision_function(X)[:, label], alone.decision_function(X), atol=5e-3
        )


@pytest.mark.parametrize("loss", LOSSES[:2])
@pytest.mark.parametrize("n_classes", [2, 3, 40])
def test_top_down_on_a_star_is_flat(loss, n_classes):
    X, y = problem(n_samples=120, n_classes=n_classes)
    flat = ours(loss).fit(X, y)
    coef = np.vstack([-flat.coef_, flat.coef_]) if n_classes == 2 else flat.coef_
    star = Hierarchy.from_edges([("all", f"class {i:02}") for i in range(n_classes)])
    names = np.array([f"class {i:02}" for i in y])
    for model in (
        TopDownSVC(loss=loss, **TIGHT).fit(X, y),
        TopDownSVC(loss=loss, structure=star, **TIGHT).fit(X, names),
    ):
        edge_of_class = np.argsort(model.routes_.child_indices)  # leaves in the order of their ids
        edges = edge_of_class[np.argsort(np.argsort(model.class_leaves_))]
        np.testing.assert_allclose(model.coef_.toarray()[edges], coef, atol=1e-6)
        scores = flat.decision_function(X)
        scores = np.column_stack([-scores, scores]) if n_classes == 2 else scores
        # Of equal scores either may be the largest
        result = np.searchsorted(model.classes_, model.predict(X))
        np.testing.assert_allclose(scores[np.arange(len(X)), result], scores.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_every_choice_is_a_flat_model_of_the_documents_below(loss):
    """On a tree with data on an internal node, a chain and a class that is the only one of its root."""
    tree = Hierarchy.from_edges(
        [
            ("r", "a"),
            ("r", "b"),
            ("a", "a1"),
            ("a", "a2"),
            ("a", "a3"),
            ("b", "b1"),
            ("b1", "b2"),
            ("b1", "b3"),
        ]
    )
    X, y = problem(n_samples=140, n_classes=7)
    labels = np.array(["a1", "a2", "a3", "a", "b2", "b3", "b3"])[y]
    model = TopDownSVC(loss=loss, structure=tree, **TIGHT).fit(X, labels)
    routes = model.routes_
    leaf_of = dict(zip(model.classes_.tolist(), routes.decode(model.class_leaves_).tolist(), strict=True))
    index = [leaf_of[label] for label in labels]
    seen = 0
    for parent in routes:
        children = routes.children(parent)
        if len(children) < 2:
            continue
        branch = np.array(
            [next((c for c in children if c == leaf or c in routes.ancestors(leaf)), "") for leaf in index]
        )
        below = branch != ""
        flat = ours(loss).fit(X[below], branch[below])
        coef = np.vstack([-flat.coef_, flat.coef_]) if len(children) == 2 else flat.coef_
        start = routes.child_indptr[routes.id_of(parent)]
        for i, label in enumerate(flat.classes_):
            edge = start + children.index(str(label))
            np.testing.assert_allclose(model.coef_.toarray()[edge], coef[i], atol=2e-4)
        seen += 1
    assert seen == 3  # r, a with its own documents, b1


def test_two_children_that_share_documents_are_two_problems():
    """In a DAG the document of a shared class is positive for both of its parents."""
    dag = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "e")])
    X, y = problem(n_classes=3)
    model = TopDownSVC(structure=dag, loss="hinge", **TIGHT).fit(X, np.array(["c", "d", "e"])[y])
    routes = model.routes_
    for parent, positives in {"a": (0, 1), "b": (0, 2)}.items():
        alone = ours("hinge").fit(X, np.isin(y, positives))
        edge = routes.child_indptr[routes.id_of("r")] + routes.children("r").index(parent)
        np.testing.assert_allclose(model.coef_.toarray()[edge], alone.coef_[0], atol=2e-4)


@pytest.mark.parametrize("tol", [5e-7, 1e-3, 1e-1])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_certificate_bounds_the_distance_to_the_optimum(loss, tol):
    X, y = problem(n_samples=120, n_classes=34)
    model = ours(loss, tol=tol).fit(X, y)
    best = ours(loss, tol=1e-7).fit(X, y)

    def total(m):
        return sum(
            objective(loss, X, signed, m.coef_[i], m.intercept_[i])
            for i, signed in enumerate(signs(y, m.classes_))
        )

    above = total(model) / total(best) - 1
    assert -1.1e-7 <= above <= model.duality_gap_ + 1e-6
    assert model.duality_gap_ <= tol
    assert len(model.trace_) == model.n_iter_
    assert model.trace_["gap"][-1] == pytest.approx(model.duality_gap_, rel=1e-9)
    assert model.trace_["objective"][-1] == pytest.approx(total(model), rel=1e-5)
    assert (np.diff(model.trace_["seconds"]) >= 0).all()


def test_top_down_certifies_all_its_choices_together():
    tree = Hierarchy.from_paths(["a/b", "a/c", "d/e", "d/f"])
    X, y = problem()
    labels = np.array(["a/b", "a/c", "d/e", "d/f"])[y]
    model = TopDownSVC(structure=tree, tol=1e-4, random_state=0).fit(X, labels)
    assert 0 <= model.duality_gap_ <= 1e-4
    assert model.trace_["gap"][-1] == pytest.approx(model.duality_gap_, rel=1e-9)


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic, TopDownSVC])
def test_too_few_sweeps_are_told(estimator):
    X, y = problem()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 .* tol=1e-12; it is \S+ over all classes"):
        model = estimator(max_iter=1, tol=1e-12).fit(X, y)
    assert model.duality_gap_ > 1e-12
    assert model.n_iter_ == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator().fit(X, y)


def test_a_large_cost_separates_separable_classes():
    X, y = problem(n_classes=3)
    X = sp.csr_array(np.hstack([X, 5 * np.eye(3)[y]]))
    assert (OneVsRestSVC(C=100.0, random_state=0).fit(X, y).predict(X) == y).all()
