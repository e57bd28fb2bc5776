"""Informative components: the objective by its definition, its gradient by differences, what they find."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.neighbors import KNeighborsClassifier

from arbora.expand import FisherTransform, InformativeComponents
from arbora.expand.components import ComponentsProblem


def problem(n_rows=25, n_dims=4, n_groups=3, n_references=10, alpha=0.1, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.arange(n_rows) % n_groups
    X = rng.normal(size=(n_rows, n_dims)) + rng.normal(size=(n_groups, n_dims))[codes]
    share = rng.random(n_rows)
    references = np.sort(rng.choice(n_rows, n_references, replace=False))
    return ComponentsProblem(X, codes, share / share.sum(), references, n_groups, alpha)


def test_value_is_that_of_the_definition():
    inputs, A = problem(), np.random.default_rng(1).normal(size=(2, 4))
    value = 0.1 * np.sum(A**2)
    for i, (x, c) in enumerate(zip(inputs.X, inputs.codes, strict=True)):
        others = [j for j in inputs.references if j != i]
        kernel = np.array([np.exp(-np.sum((A @ (x - inputs.X[j])) ** 2)) for j in others])
        right = kernel[inputs.codes[others] == c].sum() / kernel.sum()
        value -= inputs.share[i] * np.log(0.99 * right + 0.01 / 3)
    assert inputs.value_and_gradient(A.ravel())[0] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("n_components", [1, 2, 4])
def test_gradient_by_differences(n_components):
    inputs = problem()
    flat = np.random.default_rng(2).normal(size=n_components * 4)
    numeric = approx_fprime(flat, lambda x: inputs.value_and_gradient(x)[0], 1e-7)
    np.testing.assert_allclose(inputs.value_and_gradient(flat)[1], numeric, rtol=1e-4, atol=1e-6)


def test_blocks_of_rows_do_not_matter(monkeypatch):
    inputs, flat = problem(), np.random.default_rng(2).normal(size=8)
    whole = inputs.value_and_gradient(flat)
    monkeypatch.setattr("arbora.core.chunks.CHUNK_ENTRIES", 40)
    parts = inputs.value_and_gradient(flat)
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-9, atol=1e-12)


def test_objective_falls_from_the_start_of_fisher():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    model = InformativeComponents(2, random_state=0).fit(X, (X[:, 0] * X[:, 1] > 0).astype(int))
    objective = model.trace_["objective"]
    assert np.all(np.diff(objective) <= 1e-12)
    assert model.n_iter_ == len(objective) > 3


def test_finds_what_means_do_not_show():
    """The label is the sign of a product: group means are equal, and Fisher sees nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 6))
    y = (X[:, 2] * X[:, 4] > 0).astype(int)
    train, test = slice(0, 400), slice(400, 800)
    ours = InformativeComponents(2, random_state=0).fit(X[train], y[train])
    with pytest.warns(UserWarning, match="keeps 1 directions"):
        fisher = FisherTransform().fit(X[train], y[train])
    scores = [
        KNeighborsClassifier(9)
        .fit(model.transform(X[train]), y[train])
        .score(model.transform(X[test]), y[test])
        for model in (ours, fisher)
    ]
    assert scores[0] > 0.9
    assert scores[1] < 0.65
    assert len(ours.references_) == 300


def test_units_of_features_do_not_matter():
    rng = np.random.default_rng(0)
    codes = np.arange(150) % 3
    X = rng.normal(size=(150, 4)) + rng.normal(size=(3, 4))[codes]
    first = InformativeComponents(1, alpha=0.0, tol=1e-9, random_state=0).fit(X, codes)
    scaled = InformativeComponents(1, alpha=0.0, tol=1e-9, random_state=0).fit(X * 1000, codes)
    np.testing.assert_allclose(first.transform(X), scaled.transform(X * 1000), rtol=1e-4, atol=1e-4)


def test_bad_input():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match="at least 2 labelled groups"):
        InformativeComponents().fit(X, np.zeros(20, int))
    assert InformativeComponents(7).fit(X, np.arange(20) % 2).transform(X).shape == (20, 3)
    constant = np.column_stack([X, np.ones(20)])
    assert np.isfinite(InformativeComponents().fit(constant, np.arange(20) % 2).components_).all()
