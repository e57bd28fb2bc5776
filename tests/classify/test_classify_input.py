"""Features in any form, input that must be refused, and life inside scikit-learn's tools."""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from arbora.classify import OneVsRestLogistic, OneVsRestSVC, TopDownSVC
from arbora.classify.training import as_csr
from arbora.infer.linear.rows import class_blocks
from arbora.structure import Hierarchy

ALL = pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic, TopDownSVC])
TREE = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")])
EXACT = {"tol": 1e-7, "calibration": None, "random_state": 0, "max_iter": 10_000}


def problem(n_samples=80, density=0.4):
    rng = np.random.default_rng(0)
    y = np.array(["a1", "a2", "b1", "b2"], dtype=object)[np.arange(n_samples) % 4]
    ids = np.arange(n_samples)[:, None] % 4 == np.arange(10) % 4  # words of the class, which it always has
    X = 1 + rng.poisson(1, size=(n_samples, 10)) + 2 * ids
    return (X * (ids | (rng.random(X.shape) < density))).astype(float), y


X, Y = problem()


def memmapped(values, folder, name):
    path = folder / f"{name}.npy"
    np.save(path, values)
    return np.load(path, mmap_mode="r")


def read_only(X, folder):
    return memmapped(X, folder, "dense")


def read_only_sparse(X, folder):
    csr = sp.csr_array(X)
    parts = [memmapped(getattr(csr, name), folder, name) for name in ("data", "indices", "indptr")]
    return sp.csr_array(tuple(parts), shape=csr.shape)


def with_stored_zeros(X, folder):
    rows, columns = np.indices(X.shape)
    return sp.coo_array((X.ravel(), (rows.ravel(), columns.ravel())), shape=X.shape).tocsr()


def with_split_entries(X, folder):
    """Every entry as two halves, in descending columns: neither sorted nor without duplicates."""
    csr = sp.csr_array(X)
    data, indices = [], []
    for start, stop in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        data.append(np.tile(csr.data[start:stop][::-1] / 2, 2))
        indices.append(np.tile(csr.indices[start:stop][::-1], 2))
    return sp.csr_array((np.concatenate(data), np.concatenate(indices), csr.indptr * 2), shape=csr.shape)


def with_long_indices(X, folder):
    csr = sp.csr_array(X)
    csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    return csr


FORMS = {
    "fortran": lambda X, folder: np.asfortranarray(X),
    "strided": lambda X, folder: np.repeat(X, 2, axis=1)[:, ::2],
    "lists": lambda X, folder: X.tolist(),
    "float32": lambda X, folder: X.astype(np.float32),
    "int": lambda X, folder: X.astype(int),
    "uint8": lambda X, folder: X.astype(np.uint8),
    "frame": lambda X, folder: pd.DataFrame(X),
    "csr matrix": lambda X, folder: sp.csr_matrix(X),
    "csc": lambda X, folder: sp.csc_array(X),
    "coo": lambda X, folder: sp.coo_matrix(X),
    "sparse int": lambda X, folder: sp.csr_array(X.astype(int)),
    "memmap": read_only,
    "sparse memmap": read_only_sparse,
    "stored zeros": with_stored_zeros,
    "split and unsorted": with_split_entries,
    "int64 indices": with_long_indices,
}


@ALL
@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_the_form_of_the_features_does_not_matter(estimator, form, density, tmp_path):
    features, y = problem(density=density)
    reference = estimator(structure=TREE, **EXACT).fit(features, y)
    params = form(features, tmp_path)
    before = (
        [part.copy() for part in (params.data, params.indices, params.indptr)]
        if hasattr(params, "indptr")
        else []
    )
    model = estimator(structure=TREE, **EXACT).fit(params, y)
    np.testing.assert_allclose(
        model.decision_function(params), reference.decision_function(features), atol=2e-3
    )
    np.testing.assert_array_equal(model.predict(params), reference.predict(features))
    for part, old in zip(
        (params.data, params.indices, params.indptr) if before else (), before, strict=False
    ):
        np.testing.assert_array_equal(part, old)  # the user's arrays are not ours to sort


@pytest.mark.parametrize("density", [0.0, 0.2, 0.8, 1.0])
def test_as_csr_is_the_same_matrix(density):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(7, 5)) * (rng.random((7, 5)) < density)
    for params in (dense, dense[::-1][::-1], sp.csc_array(dense), with_split_entries(dense, None)):
        result = as_csr(params)
        assert result.format == "csr"
        assert result.has_canonical_format
        np.testing.assert_allclose(result.toarray(), dense)


@pytest.mark.parametrize("n_classes", [1, 31, 32, 33, 64, 65, 1000])
def test_blocks_cover_every_class_once(n_classes):
    blocks = class_blocks(n_classes)
    assert [i for block in blocks for i in block] == list(range(n_classes))
    assert max(map(len, blocks)) <= 32
    sizes = [len(block) for block in blocks[:-1]]
    assert not any(size % 8 for size in sizes)  # SIMD instructions
    assert not sizes or max(sizes) - min(sizes) <= 8
    assert len(blocks) == -(-n_classes // 32)


@ALL
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_and_features_of_zeros(estimator, fit_intercept):
    features = X.copy()
    features[::5] = 0
    features[:, 3] = 0
    model = estimator(structure=TREE, fit_intercept=fit_intercept, random_state=0).fit(
        sp.csr_array(features), Y
    )
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    assert (coef[:, 3] == 0).all()
    assert coef.any()
    proba = model.predict_node_proba(sp.csr_array((2, 10)))
    np.testing.assert_array_equal(proba[0], proba[1])
    np.testing.assert_allclose(proba[:, TREE.id_of("r")], 1)
    nothing = estimator(structure=TREE, fit_intercept=fit_intercept, random_state=0).fit(
        sp.csr_array((80, 4)), Y
    )
    assert np.isfinite(nothing.predict_proba(sp.csr_array((1, 4)))).all()


@ALL
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_features_must_be_finite(estimator, bad, form):
    broken = X.copy()
    broken[3, 2] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        estimator().fit(form(broken), Y)
    model = estimator().fit(X, Y)
    for method in (model.predict, model.predict_proba, model.predict_path, model.predict_backoff):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            method(form(broken))


@ALL
def test_features_too_large_for_the_precision_are_refused(estimator):
    with pytest.raises(ValueError, match=r"as large as .*e\+39.*float32.*tol below 1e-6"):
        estimator().fit(X * 1e39, Y)
    with pytest.raises(ValueError, match="float64: scale the features"):
        estimator(tol=1e-7).fit(sp.csr_array(-X * 1e300), Y)


@ALL
def test_wrong_shapes(estimator):
    model = estimator().fit(X, Y)
    for method in (model.predict, model.predict_proba, model.decision_function, model.predict_path):
        for wrong in (X[:, :4], sp.csr_array(np.hstack([X, X]))):
            with pytest.raises(ValueError, match=r"features.*expecting 10"):
                method(wrong)
    for wrong in (X[:0], X[:, :0], X[0], X[None]):
        with pytest.raises(ValueError, match=r"minimum of 1|Expected 2D|dim"):
            estimator().fit(wrong, Y[: len(wrong)])
    with pytest.raises(ValueError, match="inconsistent"):
        estimator().fit(X, Y[:-1])


BAD = [
    {"C": 0.0},
    {"C": -1.0},
    {"C": np.nan},
    {"C": np.inf},
    {"C": "1"},
    {"tol": 0.0},
    {"tol": -1e-3},
    {"max_iter": 0},
    {"max_iter": 10.0},
    {"calibration": 1},
    {"calibration": "platt"},
    {"n_jobs": 1.5},
    {"loss": "hing"},
    {"class_weight": "equal"},
]


@pytest.mark.parametrize(
    ("estimator", "params"),
    [
        (estimator, params)
        for estimator in (OneVsRestSVC, OneVsRestLogistic, TopDownSVC)
        for params in BAD
        if params.keys() <= estimator().get_params().keys()
    ],
    ids=str,
)
def test_bad_parameters_are_named(estimator, params):
    (name,) = params
    with pytest.raises(ValueError, match=f"'{name}' parameter of {estimator.__name__}"):
        estimator(**params).fit(X, Y)


@ALL
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(80), "Negative values"),
        (np.full(80, np.nan), "NaN"),
        (np.full(80, np.inf), "infinity"),
        (np.ones(79), "80"),
        (np.ones((80, 2)), "1D"),
        (np.zeros(80), "non-zero"),
    ],
    ids=["negative", "nan", "inf", "short", "matrix", "zero"],
)
def test_bad_sample_weights(estimator, weight, message):
    with pytest.raises(ValueError, match=message):
        estimator().fit(X, Y, sample_weight=weight)


@ALL
def test_a_fit_that_cannot_fit_says_so_before_it_starts(estimator, monkeypatch):
    monkeypatch.setattr("arbora.core.chunks.available_memory", lambda: 1000)
    monkeypatch.setattr(
        "arbora.classify.linear.solve_block", lambda *args, **kwargs: pytest.fail("it started")
    )
    with pytest.raises(
        MemoryError, match=r"4 classes on 80 rows with 10 features.*needs about.*fewer features"
    ):
        estimator(1.0).fit(X, Y)


@ALL
def test_not_fitted_yet(estimator):
    from sklearn.exceptions import NotFittedError

    for method in ("predict", "predict_proba", "predict_path", "predict_backoff", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(estimator(), method)(X)


@ALL
def test_a_failed_fit_leaves_parameters_alone(estimator):
    model = estimator(C=2.0, structure=TREE)
    before = model.get_params()
    with pytest.raises(ValueError, match="not a node"):
        model.fit(X, np.full(80, "a9"))
    assert model.get_params() == before


@ALL
def test_copies_predict_the_same(estimator):
    model = estimator(structure=TREE, random_state=0).fit(X, Y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(sp.csr_array(X)), model.predict_proba(sp.csr_array(X)))
    assert copy.predict_path(X) == model.predict_path(X)
    assert copy.structure == TREE
    fresh = clone(model)
    assert fresh.structure is TREE
    assert not hasattr(fresh, "coef_")
    np.testing.assert_array_equal(fresh.fit(X, Y).predict(X), model.predict(X))


@ALL
def test_fitting_again_forgets_the_first_fit(estimator):
    model = estimator(random_state=0).fit(X, [[label] for label in Y])
    model.set_params(structure=TREE).fit(X[:, :5], Y)
    fresh = estimator(random_state=0, structure=TREE).fit(X[:, :5], Y)
    np.testing.assert_array_equal(model.predict_proba(X[:, :5]), fresh.predict_proba(X[:, :5]))
    assert vars(model).keys() == vars(fresh).keys()


def fit_and_score(estimator, n_jobs):
    return estimator(structure=TREE, random_state=0, n_jobs=n_jobs).fit(X, Y).decision_function(X)


@ALL
@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_threads_inside_joblib(estimator, backend):
    expected = fit_and_score(estimator, 1)
    result = joblib.Parallel(n_jobs=2, backend=backend)(
        joblib.delayed(fit_and_score)(estimator, 2) for _ in range(2)
    )
    for scores in result:
        np.testing.assert_array_equal(scores, expected)


@ALL
@pytest.mark.parametrize(
    "step", [StandardScaler(with_mean=False), TfidfTransformer()], ids=["scaled", "tfidf"]
)
def test_in_a_pipeline_and_under_a_grid(estimator, step):
    pipeline = make_pipeline(step, estimator(structure=TREE, random_state=0))
    name = pipeline.steps[-1][0]
    counts = sp.csr_matrix(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(pipeline, {f"{name}__C": [1e-9, 1.0]}, cv=3).fit(counts, Y)
    by_hand = [
        cross_val_score(clone(pipeline).set_params(**{f"{name}__C": C}), counts, Y, cv=3).mean()
        for C in (1e-9, 1.0)
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand)
    assert search.best_score_ > 0.9
    assert search.best_estimator_.predict(counts).shape == (80,)


@ALL
def test_cross_validation_with_a_structure(estimator):
    model = estimator(structure=TREE, random_state=0)
    scores = cross_val_score(model, X, Y, cv=4)
    assert np.isfinite(scores).all()
    assert scores.mean() > 0.9
    assert np.mean(cross_val_predict(model, X, Y, cv=4) == Y) == pytest.approx(scores.mean())
    indicator = TREE.indicator([[label] for label in Y]).toarray().astype(int)
    assert cross_val_score(model, X, indicator, cv=4).mean() > 0.4


def test_in_a_chain_of_scikit_learn():
    indicator = np.column_stack([Y == "a1", Y == "b1"]).astype(int)
    chain = ClassifierChain(OneVsRestSVC(random_state=0)).fit(X, indicator)
    assert (chain.predict(X) == indicator).mean() > 0.8


@ALL
def test_a_frame_is_checked_by_its_columns(estimator):
    frame = pd.DataFrame(X, columns=[f"word {i}" for i in range(10)])
    model = estimator(random_state=0).fit(frame, pd.Series(Y, index=np.arange(80)[::-1]))
    assert model.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(model.predict(frame), estimator(random_state=0).fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize("form", [np.array, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_found(form, value):
    X = np.arange(1.0, 13.0).reshape(4, 3)
    X[2, 1] = value
    with pytest.raises(ValueError, match="row 2, column 1"):
        OneVsRestSVC().fit(form(X), ["a", "b", "a", "b"])
    model = OneVsRestSVC().fit(np.eye(4, 3), ["a", "b", "a", "b"])
    with pytest.raises(ValueError, match="row 2, column 1"):
        model.predict(form(X))


def test_large_finite_values_are_not_taken_for_infinity():
    X = np.full((4, 3), 1e308)  # their sum overflows, they do not
    with pytest.raises(ValueError, match="overflows in float32"):
        OneVsRestSVC().fit(X, ["a", "b", "a", "b"])


@pytest.mark.parametrize("index", [3, 1000, -1])
@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
def test_a_matrix_with_indices_outside_its_shape_is_refused(container, index):
    X = container(np.eye(4, 3))
    X.indices[1] = index
    with pytest.raises(ValueError, match=f"entry in column {index}"):
        OneVsRestSVC().fit(X, ["a", "b", "a", "b"])
    model = OneVsRestSVC().fit(np.eye(4, 3), ["a", "b", "a", "b"])
    with pytest.raises(ValueError, match="damaged"):
        model.predict_proba(X)
