"""Halves of the words of documents: the number of components, and probabilities that are right."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax

from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    HierarchicalVMFMixture,
    MultinomialMixture,
    TemporalVMFMixture,
    VMFMixture,
)
from arbora.discover.mixture.selection import (
    agreement,
    draw_halves,
    grid,
    has_words,
    matched_temperature,
    search_halves,
)

SUBJECTS, WORDS = 5, 400


def documents(n_documents, seed, length=40):
    """Counts of words: a third of the words of a document are of its subject, the others of any."""
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(99).dirichlet(np.full(WORDS, 0.05), SUBJECTS)
    subject = rng.integers(SUBJECTS, size=n_documents)
    share = topics[subject] / 3 + 2 / 3 / WORDS
    return sp.csr_array(np.array([rng.multinomial(length, p) for p in share]), dtype=float), subject


@pytest.fixture(scope="module")
def texts():
    return documents(600, 0)


def test_halves_are_disjoint_and_together_the_row(texts):
    X, _ = texts
    ids = np.random.default_rng(0).permutation(X.shape[0])
    halves = draw_halves(X, ids, np.random.default_rng(1), unit=False)
    assert halves.A.multiply(halves.B).nnz == 0
    np.testing.assert_array_equal((halves.A + halves.B).toarray(), X[halves.ids].toarray())
    assert np.abs(np.diff(halves.A.indptr) - np.diff(halves.B.indptr)).max() <= 1
    unit = draw_halves(X, ids, np.random.default_rng(1))
    np.testing.assert_allclose(np.asarray(unit.A.multiply(unit.A).sum(axis=1)).ravel(), 1.0)


def test_rows_of_numbers_have_no_words(texts):
    X, _ = texts
    assert has_words(X)
    assert not has_words(-X)
    assert not has_words(sp.csr_array(np.random.default_rng(0).random((50, 8))))


def test_agreement_is_zero_by_chance_and_entropy_at_best():
    rng = np.random.default_rng(0)
    z = rng.integers(20, size=500)
    by_chance = [agreement(z, rng.permutation(z)) for _ in range(20)]
    assert abs(np.mean(by_chance)) < 3 * np.std(by_chance) / np.sqrt(20) + 1e-3
    shares = np.bincount(z) / 500
    assert 0.7 * -(shares @ np.log(shares)) < agreement(z, z) <= -(shares @ np.log(shares))


def test_the_search_takes_the_smallest_number_on_the_plateau():
    curve = {k: 1 - 1 / k**2 for k in grid(200)}
    asked = []

    def score(k):
        asked.append(k)
        return curve[k] if k <= 24 else 0.5

    selection = search_halves(score, 200)
    assert selection.best == 3
    assert max(asked) == 48  # not risen for two numbers
    assert search_halves(lambda k: -0.1, 50).best == 2


@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture, MultinomialMixture, TemporalVMFMixture])
def test_the_number_of_subjects_is_found(texts, kind):
    model = kind("auto", random_state=0).fit(texts[0])
    assert model.selection_["criterion"] == "halves"
    assert SUBJECTS - 1 <= model.n_components_ <= SUBJECTS + 3
    assert len(model.selection_["score"]) == len(model.selection_["n_components"])


def test_the_criterion_can_be_given(texts):
    few = texts[0][:60]
    assert VMFMixture("density", random_state=0).fit(few).selection_["criterion"] == "density"
    rows = np.random.default_rng(0).random((60, 8))
    assert VMFMixture("halves", random_state=0).fit(rows).selection_["criterion"] == "halves"
    assert VMFMixture("auto", random_state=0).fit(rows).selection_["criterion"] == "density"


@pytest.mark.parametrize("temperature", [1.0, 20.0])
def test_the_temperature_of_known_probabilities_is_found(temperature):
    rng = np.random.default_rng(0)
    joint = 40 * rng.standard_normal((3000, 6))
    p = softmax(joint / temperature, axis=1)
    z = (p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    assert matched_temperature(joint, np.mean(z == joint.argmax(axis=1))) == pytest.approx(
        temperature, rel=0.2
    )


def calibration_error(proba, hit):
    """Mean distance of confidence and accuracy, in ten bins of equal size."""
    bins = np.array_split(np.argsort(proba.max(axis=1)), 10)
    return np.mean([abs(proba.max(axis=1)[ids].mean() - hit[ids].mean()) for ids in bins])


@pytest.mark.parametrize(
    "kind",
    [
        VMFMixture, BayesianVMFMixture, TemporalVMFMixture, DirichletProcessVMFMixture, MultinomialMixture,
        HierarchicalVMFMixture,
    ],
)  # fmt: skip
def test_probabilities_of_new_documents_are_right_for_their_other_half(kind):
    train, X = (documents(600, seed, length=16)[0] for seed in (1, 2))
    options = {"structure": (3, 2)} if kind is HierarchicalVMFMixture else {"n_components": 6}
    halves = draw_halves(X, np.arange(600), np.random.default_rng(0), kind is not MultinomialMixture)
    errors, labels = [], []
    for calibration in ("auto", None):
        model = kind(random_state=0, calibration=calibration, **options).fit(train)
        assert (model.calibration_temperature_ > 1) == (calibration == "auto")
        proba = model.predict_proba(halves.A)
        hit = (model.predict(halves.A) == model.predict(halves.B)).astype(float)
        errors.append(calibration_error(proba, hit))
        labels.append(proba.argmax(axis=1))
    np.testing.assert_array_equal(*labels)
    assert errors[0] < 0.6 * errors[1]


def test_the_progress_bar_says_which_fit_is_running(texts, capsys):
    n_components = VMFMixture("auto", random_state=0, verbose=2).fit(texts[0]).n_components_
    shown = capsys.readouterr().err
    for fit in ("selection: 2 components", f"fit: {n_components} components", "calibration: "):
        assert fit in shown
