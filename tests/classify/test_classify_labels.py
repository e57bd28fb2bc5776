"""Labels in any form, on any structure: what goes into `fit` comes out of `predict`."""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, KFold

from arbora.classify import OneVsRestLogistic, OneVsRestSVC, TopDownSVC
from arbora.classify.training import encode_targets
from arbora.structure import Hierarchy

BOTH = pytest.mark.parametrize("estimator", [OneVsRestSVC, TopDownSVC])
N = 30


def rows(codes):
    """One well separated row for each code, with a little noise."""
    codes = np.asarray(codes)
    noise = np.random.default_rng(0).normal(scale=0.05, size=(len(codes), codes.max() + 1))
    return 3 * np.eye(codes.max() + 1)[codes] + noise


CODES = np.arange(N) % 3
X = rows(CODES)


@BOTH
@pytest.mark.parametrize(
    "names",
    [
        np.array(["cat", "dog", "eel"]),
        np.array(["cat", "dog", "eel"], dtype=object),
        np.array([7, -1, 3]),
        np.array([1, 2, 250], dtype=np.uint8),
        np.array([1.0, 2.0, 5.0]),
        np.array([b"x", b"y", b"z"]).astype("U"),
        np.array(["häuser", "日本", ""]),
    ],
    ids=["str", "object", "int", "uint8", "float", "bytes", "unicode"],
)
@pytest.mark.parametrize(
    "box", [np.asarray, list, tuple, pd.Series], ids=["array", "list", "tuple", "series"]
)
def test_one_label_a_row(estimator, names, box):
    y = names[CODES]
    model = estimator(random_state=0).fit(X, box(y))
    result = model.predict(X)
    assert isinstance(result, np.ndarray)
    assert result.dtype.kind == np.asarray(box(y)).dtype.kind
    np.testing.assert_array_equal(result, y)
    np.testing.assert_array_equal(model.classes_, np.unique(names))
    assert model.predict_path(X) == [[label] for label in y.tolist()]
    assert model.predict_proba(X).shape == (N, 3)
    np.testing.assert_array_equal(model.nodes_[model.predict_proba(X).argmax(axis=1)], y)


@BOTH
def test_bools_and_columns(estimator):
    y = CODES == 1
    model = estimator(random_state=0).fit(X, y)
    assert model.predict(X).dtype == bool
    np.testing.assert_array_equal(model.predict(X), y)
    with pytest.warns(match="column-vector"):
        column = estimator(random_state=0).fit(X, CODES[:, None])
    np.testing.assert_array_equal(column.predict(X), CODES)


@BOTH
def test_categorical_series_with_an_unused_category(estimator):
    y = pd.Series(pd.Categorical.from_codes(CODES, ["a", "b", "c", "never"]))
    model = estimator(random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict(X).tolist() == y.tolist()


TREE = Hierarchy.from_edges(
    [
        ("r", "a"),
        ("r", "b"),
        ("a", "a1"),
        ("a", "a2"),
        ("a2", "deep"),
        ("b", "empty"),
        ("b", "b1"),
        ("r", "c"),
    ]
)
SETS = [[["a"], ["b", "c"], []][code] for code in CODES]


@BOTH
@pytest.mark.parametrize(
    "form",
    [
        lambda sets: sets,
        lambda sets: [tuple(labels) for labels in sets],
        lambda sets: [set(labels) for labels in sets],
        lambda sets: [frozenset(labels) for labels in sets],
        lambda sets: [np.array(labels, dtype="U1") for labels in sets],
        lambda sets: [labels + labels for labels in sets],
        lambda sets: tuple(sets),
        lambda sets: pd.Series(sets),
        lambda sets: np.array([*sets, None], dtype=object)[:-1],
    ],
    ids=["lists", "tuples", "sets", "frozensets", "arrays", "repeated", "tuple", "series", "object"],
)
@pytest.mark.parametrize("structure", [None, Hierarchy.from_edges([("r", "a"), ("r", "b"), ("r", "c")])])
def test_label_sets_come_back_as_lists(estimator, form, structure):
    model = estimator(random_state=0, structure=structure).fit(X, form(SETS))
    assert model.predict(X) == SETS
    paths = [[[label] if structure is None else ["r", label] for label in labels] for labels in SETS]
    assert model.predict_path(X) == paths


@BOTH
@pytest.mark.parametrize("kind", [set, frozenset])
def test_sets_of_zero_and_one_are_sets(estimator, kind):
    """A list of rows of zeros and ones is an indicator; a set never is."""
    model = estimator(random_state=0).fit(X, [kind({code % 2}) for code in CODES])
    assert model.predict(X) == [[code % 2] for code in CODES]
    indicator = estimator(random_state=0).fit(X, [[int(code == 1), int(code == 2)] for code in CODES])
    np.testing.assert_array_equal(indicator.predict(X), np.eye(3, dtype=int)[CODES][:, 1:])


@BOTH
@pytest.mark.parametrize("with_structure", [False, True])
@pytest.mark.parametrize(
    "form",
    [np.asarray, np.ndarray.tolist, sp.csr_array, sp.csc_matrix, sp.coo_array, pd.DataFrame],
    ids=["dense", "list", "csr", "csc", "coo", "frame"],
)
@pytest.mark.parametrize("dtype", [int, bool, np.float32])
def test_indicators(estimator, with_structure, form, dtype):
    Y = np.eye(4, dtype=int)[CODES]  # the last column has no data
    Y[CODES == 2] = 0  # nor have these rows labels
    Y[CODES == 1, 0] = 1
    structure = Hierarchy.from_edges([(1, 3), (1, 2), (0, 1)], nodes=range(4)) if with_structure else None
    model = estimator(random_state=0, structure=structure).fit(X, form(Y.astype(dtype)))
    result = model.predict(X)
    assert sp.issparse(result) == sp.issparse(form(Y))
    np.testing.assert_array_equal(result.toarray() if sp.issparse(result) else result, Y)
    assert model.predict_node_proba(X).shape == (N, 4)
    assert len(model.classes_) == (2 if with_structure else 4)


@BOTH
def test_the_users_indicator_is_left_as_it_is(estimator):
    Y = sp.csr_array(np.eye(3)[CODES])
    Y.data[4] = 0.0  # a stored zero
    before = [part.copy() for part in (Y.data, Y.indices, Y.indptr)]
    estimator().fit(X, Y)
    for part, old in zip((Y.data, Y.indices, Y.indptr), before, strict=True):
        np.testing.assert_array_equal(part, old)


@BOTH
@pytest.mark.parametrize("structure", [None, TREE])
def test_a_stored_zero_is_no_label(estimator, structure):
    dense = np.zeros((N, TREE.n_nodes))
    dense[np.arange(N), CODES + 3] = 1
    dense[4] = 0
    stored = sp.csr_array((np.ones(N), CODES + 3, np.arange(N + 1)), shape=dense.shape)
    stored.data[4] = 0
    stored.indices[4] = 8  # where no row has a label
    a, b = (estimator(random_state=0, structure=structure).fit(X, Y) for Y in (dense, stored))
    assert a.classes_.tolist() == b.classes_.tolist()
    np.testing.assert_array_equal(a.decision_function(X), b.decision_function(X))


@BOTH
def test_stored_zeros_and_split_entries_mean_what_they_sum_to(estimator):
    Y = np.eye(3)[CODES]
    # Every one is stored as 1 + 0
    twice = sp.csr_array((np.tile([1.0, 0.0], N), np.repeat(CODES, 2), np.arange(N + 1) * 2), shape=(N, 3))
    a = estimator(random_state=0).fit(X, Y).decision_function(X)
    b = estimator(random_state=0).fit(X, twice).decision_function(X)
    np.testing.assert_array_equal(a, b)


STRUCTURES = {
    "unequal depths, data on internal nodes, leaves without": (TREE, ["a", "a1", "deep", "b1", "c"]),
    "data on the root": (TREE, ["r", "a1", "c"]),
    "data on internal nodes only": (TREE, ["a", "b", "a2"]),
    "two classes, one below the other": (TREE, ["a", "deep"]),
    "same last part under two parents": (
        Hierarchy.from_paths(["comp/misc", "rec/misc", "misc"]),
        ["comp/misc", "rec/misc", "misc"],
    ),
    "forest": (Hierarchy.from_edges([("x", "x1"), ("y", "y1"), ("y", "y2")], ["z"]), ["x1", "y1", "y2", "z"]),
    "root taken": (
        Hierarchy.from_edges([("root", "root*"), ("root**", "b"), ("root**", "c")]),
        ["root", "root*", "b", "c"],
    ),
    "spawned name taken": (Hierarchy.from_edges([("a", "a/*"), ("a", "b")]), ["a", "a/*", "b"]),
    "chains": (
        Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("r", "d"), ("d", "e")]),
        ["c", "e", "b"],
    ),
    "integers": (Hierarchy.from_edges([(9, 4), (9, 1), (4, 3), (4, 0)]), [3, 0, 1, 4]),
    "integers and their spelling, both with documents": (
        Hierarchy.from_edges([(5, "a"), ("5", "b"), ("5", "5/*")]),
        [5, "5", "a", "b", "5/*"],
    ),
    "integers and their spelling": (Hierarchy.from_edges([(9, "4"), (9, 4)]), [4, "4"]),
    "dag": (
        Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "e")]),
        ["c", "d", "e"],
    ),
    "dag over levels": (
        Hierarchy.from_edges([("r", "a"), ("r", "c"), ("a", "c"), ("a", "b")]),
        ["a", "b", "c"],
    ),
    "roots only": (Hierarchy.from_edges([], ["x", "y", "z"]), ["x", "y", "z"]),
}


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic, TopDownSVC])
@pytest.mark.parametrize(("structure", "names"), STRUCTURES.values(), ids=STRUCTURES.keys())
@pytest.mark.parametrize("multilabel", [False, True])
def test_structures(estimator, structure, names, multilabel):
    codes = np.arange(10 * len(names)) % len(names)
    features = rows(codes)
    y = [names[code] for code in codes]
    truth = [[label] for label in y] if multilabel else y
    model = estimator(C=10.0, structure=structure, random_state=0).fit(features, truth)
    result = model.predict(features)
    assert (result if multilabel else result.tolist()) == truth
    assert set(model.classes_.tolist()) == set(names)
    np.testing.assert_array_equal(model.nodes_, structure.names)
    paths = model.predict_path(features)
    for label, path in zip(y, [p[0] for p in paths] if multilabel else paths, strict=True):
        assert path == structure.path(label)
        assert path[0] in structure.names[structure.root_ids].tolist()
    proba = model.predict_node_proba(features)
    assert proba.shape == (len(y), structure.n_nodes)
    empty = ~structure.close(structure.indicator([names])).toarray()[0]
    assert (proba[:, empty] == 0).all()  # nothing lies at or below these nodes
    assert ((proba >= 0) & (proba <= 1)).all()
    if not multilabel:
        assert proba[np.arange(len(y)), structure.encode(y)].mean() > 0.5


def test_routes_of_a_forest_with_every_awkward_name():
    structure, names = STRUCTURES["root taken"]
    model = TopDownSVC(structure=structure).fit(rows(np.arange(8) % 4), names * 2)
    assert len(model.routes_.root_ids) == 1
    assert not np.isin(model.class_leaves_, model.routes_.root_ids).any()
    assert model.routes_.is_leaf[model.class_leaves_].all()
    assert len(set(model.class_leaves_.tolist())) == 4


@BOTH
def test_an_only_label_and_rows_without_it(estimator):
    y = [["yes"] if code else [] for code in CODES]
    for structure in (None, Hierarchy.from_edges([], ["yes"]), Hierarchy.from_edges([("r", "yes")])):
        model = estimator(random_state=0, structure=structure).fit(X, y)
        assert model.predict(X) == y
        assert model.decision_function(X).shape == (N, 1)


@BOTH
def test_a_label_that_every_row_carries(estimator):
    """There is nothing to learn, and nothing may break."""
    chain = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("r", "c")])
    model = estimator(random_state=0, structure=chain).fit(X, [["b"]] * N)
    assert model.predict(X) == [["b"]] * N
    assert (model.predict_node_proba(X)[:, chain.encode(["r", "a", "b"])] > 0.5).all()
    assert (model.predict_node_proba(X)[:, chain.id_of("c")] == 0).all()


@BOTH
@pytest.mark.parametrize("y", [["cat"] * N, np.ones(N, dtype=int), [True] * N])
def test_one_class_is_refused_by_name(estimator, y):
    with pytest.raises(ValueError, match=f"only one class .*{y[0]}.*at least 2 classes"):
        estimator().fit(X, y)


@BOTH
@pytest.mark.parametrize(
    ("structure", "empty"),
    [
        (None, [[]] * N),
        (None, [set()] * N),
        (TREE, [[]] * N),
        (TREE, [set()] * N),
        (TREE, sp.csr_array((N, TREE.n_nodes), dtype=int)),
    ],
    ids=["lists", "sets", "lists, tree", "sets, tree", "csr, tree"],
)
def test_no_label_at_all_is_refused(estimator, structure, empty):
    with pytest.raises(ValueError, match="no row of y carries a label"):
        estimator(structure=structure).fit(X, empty)


@BOTH
@pytest.mark.parametrize("wrap", [lambda y: y, lambda y: [[label] for label in y]])
def test_unknown_labels_get_the_nearest_name(estimator, wrap):
    tree = Hierarchy.from_paths(["comp/graphics", "comp/windows", "rec"])
    y = ["comp/windows", "comp/grafics", "rec"] * 10
    with pytest.raises(ValueError, match=r"'comp/grafics' is not a node .*did you mean 'comp/graphics'"):
        estimator(structure=tree).fit(X, wrap(y))


def test_labels_are_read_without_looking_for_pandas(monkeypatch):
    def refuse(name, *args):
        assert name != "pandas", "pandas was looked for"

    y = np.array(["a", "b", "c"] * 10, dtype=object)
    monkeypatch.delitem(sys.modules, "pandas")
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=refuse), *sys.meta_path])
    assert encode_targets(y, None).classes.tolist() == ["a", "b", "c"]


HOSTILE = {
    "missing": (["a", None, "b"] * 10, "row 1 of y has no label .None"),
    "nan among words": (np.array(["a", "b", np.nan] * 10, dtype=object), "row 2 of y has no label .nan"),
    "nan in a list": (["a", "b", float("nan")] * 10, "row 2 of y has no label .nan"),
    "pandas' NA": (pd.Series(["a", "b", None] * 10, dtype="string"), "row 2 of y has no label"),
    "sets of several kinds": ([["a"], ["b", 1], []] * 10, r"several kinds \(int, str\)"),
    "missing in a set": ([["a"], ["b", None], []] * 10, r"several kinds \(NoneType, str\)"),
    "floats in a set": ([[1.5], [2.5, 1.5], []] * 10, "strings or integers.*1.5"),
    "no columns": (sp.csr_array((N, 0), dtype=int), "no row of y carries a label"),
    "nan": (np.array([1.0, np.nan, 2.0] * 10), "NaN"),
    "continuous": (np.linspace(0, 1, N), "continuous"),
    "mixed": ([["a"], ["b"], "c"] * 10, "row 2 of y is 'c'.*every row a list"),
    "words in a matrix": (np.full((N, 2), "a"), "must be an indicator"),
    "negative": (-np.eye(3)[CODES], "zeros and ones only"),
    "counts": (2 * np.eye(3, dtype=int)[CODES], "zeros and ones only"),
    "nan in a matrix": (np.full((N, 3), np.nan), "zeros and ones only"),
    "sparse with a two": (sp.csr_array(2 * np.eye(3)[CODES]), "zeros and ones only"),
    "two dimensions too many": (np.zeros((N, 2, 2)), "dim 3"),
    "too short": (["a"] * 5, r"inconsistent numbers of samples: \[30, 5\]"),
    "none": (None, "requires y"),
}


@BOTH
@pytest.mark.parametrize(("y", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_bad_labels_are_refused_with_the_reason(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        estimator().fit(X, y)


@BOTH
def test_an_indicator_must_have_a_column_for_each_node(estimator):
    with pytest.raises(ValueError, match="3 columns but the structure has 9 nodes"):
        estimator(structure=TREE).fit(X, np.eye(3)[CODES])


@BOTH
def test_a_structure_must_be_a_hierarchy(estimator):
    for wrong in ({"a": ["b"]}, [("a", "b")], "tree"):
        with pytest.raises((TypeError, ValueError), match=r"structure.*Hierarchy"):
            estimator(structure=wrong).fit(X, CODES)
    with pytest.raises(TypeError, match=r"Hierarchy, a LabelGraph or None, got dict.*from_edges"):
        encode_targets(CODES, {"a": ["b"]})


def test_class_weight_names_are_checked():
    y = np.array(["alpha", "beta", "gamma"])[CODES]
    with pytest.raises(ValueError, match=r"names 'alpa', .*did you mean 'alpha'"):
        OneVsRestSVC(class_weight={"alpa": 2.0}).fit(X, y)
    for weight in (-1.0, np.nan, np.inf, "2"):
        with pytest.raises(ValueError, match="gives 'beta' the weight"):
            OneVsRestSVC(class_weight={"beta": weight}).fit(X, y)


@BOTH
def test_score_is_the_share_of_rows_that_are_wholly_right(estimator):
    model = estimator(random_state=0).fit(X, SETS)
    wrong = [*SETS]
    wrong[0], wrong[1], wrong[2] = [], ["b"], ["never seen"]
    assert model.score(X, SETS) == 1
    assert model.score(X, [set(labels) for labels in wrong]) == pytest.approx(1 - 3 / N)
    assert model.score(X, wrong, sample_weight=np.arange(N) < 6) == pytest.approx(0.5)
    indicator = np.array([[name in labels for name in "abc"] for labels in wrong], dtype=int)
    by_matrix = estimator(random_state=0).fit(X, np.array([[n in labels for n in "abc"] for labels in SETS]))
    assert by_matrix.score(X, indicator) == pytest.approx(1 - 2 / N)  # "never seen" has no column
    with pytest.raises(ValueError, match="inconsistent"):
        model.score(X, SETS[:-1])
    search = GridSearchCV(estimator(random_state=0), {"C": [0.1, 1.0]}, cv=KFold(3)).fit(X, SETS)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("structure", [None, Hierarchy.from_edges([("top", f"c{i}") for i in range(8)])])
@pytest.mark.parametrize("dtype", ["U2", object])
def test_one_row_a_class_is_no_regression_problem(structure, dtype):
    """Names are classes beyond doubt: no warning, which is an error here. Of numbers scikit-learn may well warn."""
    y = np.array([f"c{i}" for i in range(8)], dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encode_targets(y, structure).classes.tolist() == y.tolist()
        with pytest.raises(UserWarning, match="regression"):
            encode_targets(np.arange(30), None)
