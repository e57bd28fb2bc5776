"""The contract with the user, tested on every estimator of the registry.

Each row is fitted once; the tests that only read a fitted model share it (`fitted`).
"""

import functools
import inspect
import pickle
import warnings
from typing import Any, NamedTuple
from unittest import SkipTest

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import arbora
from arbora import io
from support.contract import Data
from support.excuses import WEIGHTS, excuses, name_of
from support.registry import REGISTRY

# Chains of a few sweeps, and solvers of scikit-learn at tolerances that nothing reaches, do not converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NUMERIC = [row for row in REGISTRY if row.numeric]

every = pytest.mark.parametrize("row", REGISTRY, ids=lambda row: row.cls.__name__)
numeric = pytest.mark.parametrize("row", NUMERIC, ids=lambda row: row.cls.__name__)
classifiers = pytest.mark.parametrize(
    "row", [row for row in NUMERIC if is_classifier(row.cls())], ids=lambda row: row.cls.__name__
)
iterative = pytest.mark.parametrize(
    "row",
    [row for row in NUMERIC if "max_iter" in inspect.signature(row.cls).parameters],
    ids=lambda row: row.cls.__name__,
)


class Fit(NamedTuple):
    """A row fitted to its data, with the parameters before the fit and the outputs for the new items."""

    model: Any
    params: dict[str, Any]
    data: Data
    outputs: dict[str, Any]


@functools.cache
def fit_of(number):
    row = REGISTRY[number]
    data, model = row.data(), row.make()
    params = model.get_params()
    model.fit(data.X, data.y)
    return Fit(model, params, data, outputs(model, data.X_new))


@pytest.fixture
def fitted(row):
    """The fit of a row, which all tests share: read only."""
    return fit_of(next(number for number, other in enumerate(REGISTRY) if other is row))


def outputs(model, X):
    """All that a fitted model says of items, by the name of the method."""
    names = (
        "predict", "predict_proba", "predict_node_proba", "decision_function", "transform", "score_samples"
    )  # fmt: skip
    methods = {name: getattr(model, name, None) for name in names}
    values = {name: method(X) for name, method in methods.items() if callable(method)}
    return {name: value.toarray() if sp.issparse(value) else value for name, value in values.items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.quick
def test_every_public_estimator_has_a_row():
    registered = {row.cls for row in REGISTRY}
    for package in sorted({*arbora.__all__} - {"__version__"}):
        module = getattr(arbora, package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.isclass(thing) and issubclass(thing, BaseEstimator):
                assert thing in registered, f"{name} has no row in tests/support/registry.py"


@pytest.mark.filterwarnings("ignore::UserWarning")  # of data that the checks choose
@parametrize_with_checks([row.cls(**row.quick) for row in NUMERIC], expected_failed_checks=excuses)
def test_scikit_learn_checks(estimator, check):
    """An excused check that passes fails: `xfail_strict` of pyproject.toml."""
    try:
        check(estimator)
    except SkipTest:
        if name_of(check) not in excuses(estimator):
            raise  # else the test ends without an error: an excuse of a check that is skipped is never needed


@numeric
def test_every_excuse_names_a_check_that_runs(row):
    estimator = row.cls(**row.quick)
    names = {name_of(check) for _, check in estimator_checks_generator(estimator)}
    assert set(excuses(estimator)) <= names


@pytest.mark.parametrize("check", WEIGHTS)
@pytest.mark.parametrize("row", [row for row in NUMERIC if row.exact], ids=lambda row: row.cls.__name__)
def test_weights_are_repetitions_where_a_fit_is_exact(row, check):
    getattr(estimator_checks, check)(row.cls.__name__, row.cls(**row.exact))


@every
@pytest.mark.quick
def test_reduces_to_something_known(row):
    ours, expected = row.reduces(row.data())
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@classifiers
@pytest.mark.quick
def test_learns_the_truth(row, fitted):
    data = fitted.data
    guess = np.mean(data.y_new == np.array(data.y)[0])
    assert fitted.model.score(data.X_new, data.y_new) > 2 * guess


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in REGISTRY
        if row.cls.__name__.endswith("VMFMixture") or row.cls.__name__ == "MultinomialMixture"
    ],
    ids=lambda row: row.cls.__name__,
)
def test_bound_never_falls(row):
    data = row.data()
    bounds = row.make(tol=9e-7, max_iter=300).fit(data.X, data.y).lower_bounds_
    assert len(bounds) > 2
    assert np.all(np.diff(bounds) >= -1e-10 * np.maximum(np.abs(bounds[:-1]), 1.0))


@pytest.mark.parametrize(
    "row", [row for row in NUMERIC if not row.sparse_is_text], ids=lambda row: row.cls.__name__
)
def test_dense_equals_sparse(row):
    data = row.data()
    dense = outputs(row.make(**row.exact).fit(data.X, data.y), data.X_new)
    sparse = outputs(row.make(**row.exact).fit(sp.csr_array(data.X), data.y), sp.csr_array(data.X_new))
    for name, value in dense.items():
        if value.dtype == object:
            assert (value == sparse[name]).all()
        else:
            np.testing.assert_allclose(value, sparse[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    "row",
    [row for row in REGISTRY if "n_jobs" in inspect.signature(row.cls).parameters],
    ids=lambda row: row.cls.__name__,
)
def test_same_result_for_any_n_jobs(row, fitted):
    data = fitted.data
    for n_jobs in (2, 3):
        assert_same(fitted.outputs, outputs(row.make(n_jobs=n_jobs).fit(data.X, data.y), data.X_new))


@every
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.quick
def test_save_and_load(row, fitted, mmap, tmp_path):
    model = fitted.model
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model", mmap=mmap)
    assert_same(fitted.outputs, outputs(loaded, fitted.data.X_new))
    assert loaded.get_params().keys() == model.get_params().keys()
    for name in ("trace_", "hierarchy_", "classes_", "duality_gap_"):
        if hasattr(model, name):
            assert np.all(getattr(loaded, name) == getattr(model, name)), name


@every
def test_pickle(row, fitted):
    assert_same(fitted.outputs, outputs(pickle.loads(pickle.dumps(fitted.model)), fitted.data.X_new))


@every
def test_a_clone_is_unfitted_and_gives_the_same_result(row, fitted):
    fresh = clone(fitted.model)
    assert not [name for name in vars(fresh) if name.endswith("_")]
    assert_same(fitted.outputs, outputs(fresh.fit(fitted.data.X, fitted.data.y), fitted.data.X_new))


@every
def test_fit_leaves_parameters_alone(row, fitted):
    assert all(fitted.model.get_params()[name] is value for name, value in fitted.params.items())


@classifiers
@pytest.mark.quick
def test_class_and_node_probabilities(row, fitted):
    """The columns are those of `classes_` and `nodes_`; a parent has the sum of its children."""
    model, data = fitted.model, fitted.data
    assert model.classes_.tolist() == sorted(set(data.y))
    proba, nodes = fitted.outputs["predict_proba"], fitted.outputs["predict_node_proba"]
    assert proba.shape == (len(data.X_new), len(model.classes_))
    assert nodes.shape == (len(data.X_new), len(model.nodes_))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(nodes[:, model.class_nodes_], proba, rtol=1e-6, atol=1e-12)
    tree = model.hierarchy_
    for node in np.flatnonzero(~tree.is_leaf):
        children = tree.child_indices[tree.child_indptr[node] : tree.child_indptr[node + 1]]
        np.testing.assert_allclose(nodes[:, node], nodes[:, children].sum(axis=1), rtol=1e-6)


@numeric
def test_huge_values_are_refused_or_give_finite_answers(row):
    data = row.data()
    model = row.make(**row.quick).fit(data.X, data.y)
    X = np.array(data.X, dtype=float)[:3]
    names = ("predict_proba", "predict_node_proba", "transform", "decision_function")
    for value in (1e300, -1e160, 1e152, 1e100):
        X[1, 0] = value
        for method in filter(callable, (getattr(model, name, None) for name in names)):
            try:
                answer = method(X)
            except ValueError:
                continue
            assert np.isfinite(answer.toarray() if sp.issparse(answer) else answer).all(), (method, value)


@numeric
def test_trace_columns_have_one_meaning(row, fitted):
    """`gap` is the certified relative duality gap, absent in models that have none."""
    model = fitted.model
    if not hasattr(model, "trace_"):
        return
    trace = model.trace_
    assert {"objective", "seconds"} <= set(trace.columns)
    assert len(trace) == getattr(model, "n_iter_", len(trace))  # a sampler has no iterations of a solver
    assert np.isfinite(trace["objective"]).all()
    assert trace.is_monotone("seconds", increasing=True)
    assert ("gap" in trace) == hasattr(model, "duality_gap_")
    for name in {"gap", "gap_estimate", "change"} & set(trace.columns):
        assert np.nanmin(trace[name]) >= 0
    if "gap" in trace:
        assert trace.last["gap"] == pytest.approx(model.duality_gap_, rel=1e-5)
        assert "gain" not in trace


@iterative
def test_a_fit_that_has_not_converged_warns_at_the_line_of_the_caller(row):
    data = row.data()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        row.make(tol=1e-12, max_iter=1).fit(data.X, data.y)
    stopped = [warning for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    assert stopped
    assert {warning.filename for warning in stopped} == {__file__}
