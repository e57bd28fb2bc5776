"""Damaged sparse matrices: every estimator and every public way in refuses them before compiled code sees them."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from arbora.classify import OneVsRestSVC, TopDownSVC, thresholds
from arbora.core.validation import check_structure, structure_problem
from arbora.metrics import micro_f1
from arbora.text import LtcTransformer, LtcVectorizer
from support.registry import REGISTRY

HUGE = np.iinfo(np.int32).max


def sound(kind="csr"):
    return sp.csr_array(np.eye(4) + np.tri(4)).asformat(kind)


def changed(kind, **arrays):
    """A matrix of a format with some of its arrays replaced after it was made."""
    X = sound(kind)
    for name, value in arrays.items():
        setattr(X, name, value(getattr(X, name)) if callable(value) else value)
    return X


def with_value(place, value):
    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


def rows_of_coo(value):
    X = sound("coo")
    X.coords = (with_value(3, value)(X.coords[0]), X.coords[1])
    return X


def key_of_dok():
    X = sound("dok")
    X._dict[(0, 99)] = 1.0
    return X


def list_of_lil(value):
    X = sound("lil")
    X.rows[2][0] = value
    return X


DAMAGED = {
    # scipy's check_format(full_check=True) accepts the first one: it stops if the last entry of indptr is 0.
    "csr, last indptr 0": (changed("csr", indptr=np.array([0, 2**30, 2**30, 5, 0], np.int32)), "do not rise"),
    "csr, indptr falls": (changed("csr", indptr=with_value(2, 9)), "do not rise"),
    "csr, indptr does not begin at 0": (changed("csr", indptr=with_value(0, 1)), "do not rise"),
    "csr, negative indptr": (changed("csr", indptr=with_value(1, -5)), "do not rise"),
    "csr, indptr too long": (changed("csr", indptr=with_value(4, HUGE)), "beyond its 10 indices"),
    "csr, short indptr": (changed("csr", indptr=lambda a: a[:-1]), "4 entries"),
    "csr, column": (changed("csr", indices=with_value(3, HUGE)), f"column {HUGE}"),
    "csr, negative column": (changed("csr", indices=with_value(3, -1)), "column -1"),
    "csr, short data": (changed("csr", data=lambda a: a[:5]), "5 values"),
    "csr, dtype": (changed("csr", indices=lambda a: a.astype(float)), "float64"),
    "csr, byte order": (changed("csr", indices=lambda a: a.astype(">i4")), ">i4"),
    "csr, objects": (changed("csr", data=lambda a: a.astype(object)), "not a number"),
    "csr, two dimensions": (changed("csr", indices=lambda a: a[None]), "not an array of one dimension"),
    "csc, row": (changed("csc", indices=with_value(3, 99)), "row 99"),
    "csc, indptr": (changed("csc", indptr=np.array([0, 2**30, 5, 0, 0], np.int32)), "do not rise"),
    "coo, row": (rows_of_coo(99), "row 99"),
    "coo, negative row": (rows_of_coo(-1), "row -1"),
    "coo, short data": (changed("coo", data=lambda a: a[:5]), "for 5 values"),
    "bsr, column": (changed("bsr", indices=with_value(0, 77)), "block column 77"),
    "dia, offsets": (changed("dia", offsets=lambda a: a[:-1]), "diagonals"),
    "lil, column": (list_of_lil(99), "outside the shape"),
    "lil, not a number": (list_of_lil("x"), "outside the shape"),
    "dok, key": (key_of_dok(), "(0, 99)"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_described(name):
    X, says = DAMAGED[name]
    assert says in structure_problem(X)
    with pytest.raises(ValueError, match="y is damaged"):
        check_structure(X, "y")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_sound_matrices_pass(kind):
    for X in (sound(kind), sp.csr_array((0, 4)).asformat(kind), sp.csr_array((3, 0)).asformat(kind)):
        assert structure_problem(X) is None
    one = sp.coo_array(np.array([0.0, 2.0]))
    assert structure_problem(one) is None
    assert structure_problem(sp.csr_array(one)) is None
    assert structure_problem([[1, 2]]) is None


def damage_like(X):
    """Damage a matrix of the shape of X in three ways."""
    rows = sp.csr_array(np.asarray(X, dtype=float))
    indptr = rows.indptr.copy()
    indptr[1:-1], indptr[-1] = 2**30, 0
    evil = rows.copy()
    evil.indptr = indptr
    columns = sp.csc_array(rows)
    columns.indices = with_value(0, 2**30)(columns.indices)
    places = sp.coo_array(rows)
    places.coords = (places.coords[0], with_value(0, -(2**30))(places.coords[1]))
    return evil, columns, places


@pytest.mark.parametrize("row", [row for row in REGISTRY if row.numeric], ids=lambda row: row.cls.__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_way_into_every_estimator_refuses_damage(row):
    data = row.data()
    model = row.make(**row.quick)
    fitted = None
    for damaged in damage_like(data.X):
        with pytest.raises(ValueError, match="X is damaged"):
            model.fit(damaged, data.y)
        if fitted is None:
            fitted = clone(model).fit(data.X, data.y)
        for name in ("predict", "transform", "predict_proba", "decision_function", "score_samples", "score"):
            call = getattr(fitted, name, None)
            if not callable(call):
                continue
            options = () if name != "score" or data.y is None else (data.y,)
            with pytest.raises(ValueError, match="X is damaged"):
                call(damaged, *options)
        if hasattr(fitted, "partial_fit"):
            with pytest.raises(ValueError, match="X is damaged"):
                fitted.partial_fit(damaged, data.y)


def test_labels_measures_names_and_pictures_refuse_damage():
    evil, columns, _ = damage_like(np.eye(4))
    X, Y = np.eye(4), np.eye(4, dtype=int)
    model = OneVsRestSVC(random_state=0).fit(X, Y)
    words = LtcVectorizer().fit(["one two", "three four"])
    calls = [
        lambda bad: OneVsRestSVC().fit(X, bad),
        lambda bad: model.score(X, bad),
        lambda bad: thresholds.GlobalCut().fit(X, bad),
        lambda bad: micro_f1(Y, bad),
        lambda bad: words.inverse_transform(bad),
        lambda bad: model.explore(bad),
    ]
    for call in calls:
        for bad in (evil, columns):
            with pytest.raises(ValueError, match="is damaged"):
                call(bad)


def test_one_wide_index_does_not_take_all_memory():
    X = sp.csr_array((np.ones(2), np.array([0, 2**40]), np.array([0, 1, 2])), shape=(2, 2**40 + 1))
    with pytest.raises(MemoryError, match=r"1099511627777 features needs about .* column index"):
        LtcTransformer().fit(X)
    tall = sp.coo_array((np.ones(2), (np.array([0, 2**40]), np.array([0, 1]))), shape=(2**40 + 1, 2))
    with pytest.raises(MemoryError, match="1099511627777 rows"):
        LtcTransformer().fit(tall)


@pytest.mark.parametrize(
    "row",
    [row for row in REGISTRY if row.numeric and row.cls.__module__.startswith("arbora.classify")],
    ids=lambda row: row.cls.__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_huge_values_at_prediction_are_refused_as_in_fit(row):
    data = row.data()
    model = row.make(**row.quick).fit(data.X, data.y)
    for value in (1e200, -1e200):
        X = np.array(data.X_new, dtype=float)
        X[0, 0] = value
        for name in ("predict", "predict_proba", "predict_node_proba", "predict_path"):
            with pytest.raises(ValueError, match="whose square overflows"):
                getattr(model, name)(X)


def test_large_values_at_prediction_give_finite_probabilities():
    X = np.random.default_rng(0).standard_normal((30, 4))
    y = np.where(X[:, 0] > 0, "a", "b")
    model = TopDownSVC(random_state=0).fit(X, y)
    proba = model.predict_proba(np.full((2, 4), 1e18))
    assert np.isfinite(proba).all()
