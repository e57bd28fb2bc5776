"""Choosing C and coupling: brute force picks the same, paths end, splits of any kind, what is warned of and kept."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold, LeaveOneOut

from arbora import io, running
from arbora.classify import RecursiveLogisticRegression, RecursiveSVC
from arbora.classify.recursive import search as _search
from arbora.classify.recursive import search as _trials
from arbora.classify.recursive import training as _joint
from arbora.classify.recursive import training as _memory
from arbora.core import chunks as memory
from arbora.core.checkpoint import CheckpointError
from arbora.core.estimator import draw_seed
from arbora.core.folds import stratified_folds
from arbora.metrics import macro_f1, micro_f1
from support.recursive_problems import LEAVES, MODELS, QUICK, SETS, TIGHT, TREE, X_NEW, X, Y

TWO = {"costs": [0.1, 1.0]}


def saved(model, folder):
    """Fit with a checkpoint."""
    with running(checkpoint=folder):
        return model.fit(X, Y)


def brute_force(estimator, labels, C, coupling, scoring, **params):
    """Mean score of one candidate over three folds, each fitted from the beginning by the estimator itself."""
    measure = {"macro_f1": macro_f1, "micro_f1": micro_f1}[scoring]
    sets = labels if labels is SETS else [[label] for label in labels]
    indicator = TREE.indicator(sets).astype(np.int64)
    present = np.unique(indicator.indices)
    fold = stratified_folds(indicator[:, present], 3, draw_seed(params["random_state"]))
    scores = []
    for f in range(3):
        seen, unseen = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        first = estimator(C=C, coupling=coupling, **params).fit(X[seen], [labels[i] for i in seen])
        assert len(first.classes_) == len(present)
        result = first.predict(X[unseen])
        if labels is SETS:
            scores.append(
                measure(indicator[unseen][:, present], TREE.indicator(result).astype(np.int64)[:, present])
            )
        else:
            scores.append(measure(Y[unseen].astype(str), result.astype(str)))
    return scores


@pytest.mark.parametrize(
    ("case", "scoring", "labels"),
    [
        ("squared", "macro_f1", Y),
        ("squared", "micro_f1", SETS),
        ("logistic", "micro_f1", Y),
        ("logistic", "macro_f1", SETS),
    ],
    ids=["squared, single", "squared, sets", "logistic, single", "logistic, sets"],
)
@pytest.mark.filterwarnings("ignore:C='cv' chose:UserWarning")
def test_search_picks_what_brute_force_picks(case, scoring, labels, monkeypatch):
    monkeypatch.setattr(_search, "COARSE_TOL", 0.0)
    monkeypatch.setattr(_search, "MAX_ROUNDS", 10**6)
    estimator, _, params = MODELS[case]
    params = {**params, **TIGHT, "structure": TREE, "threshold": "zero"}
    del params["C"]
    Cs, couplings = [0.3, 0.01, 0.1], [0.0, {"r": 0.2}]
    search = {"costs": Cs, "couplings": couplings, "cv": 3, "scoring": scoring}
    model = estimator(C="cv", coupling="cv", search=search, **params).fit(X, labels)
    results, want = model.cv_results_, []
    for C, coupling, scores in zip(results["C"], results["coupling"], results["scores"], strict=True):
        want.append(brute_force(estimator, labels, C, coupling, scoring, **params))
        np.testing.assert_allclose(scores, want[-1], rtol=1e-12)
    assert [(C, c) for c in results["coupling"][::3] for C in sorted(Cs)] == list(
        zip(results["C"], results["coupling"], strict=True)
    )
    best = int(np.argmax(np.mean(want, axis=1)))
    assert (model.C_, model.coupling_) == (results["C"][best], results["coupling"][best])
    assert np.ptp(results["mean_score"]) > 0  # there was something to choose
    np.testing.assert_allclose(results["mean_score"], np.mean(want, axis=1))
    np.testing.assert_allclose(results["std_score"], np.std(want, axis=1))
    assert results["converged"].all()
    assert model.C == "cv"
    again = estimator(C=model.C_, coupling=model.coupling_, **params).fit(X, labels)
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_every_fold_has_documents_of_every_class_that_has_enough():
    positives = sp.csr_array(TREE.indicator([[label] for label in Y]).astype(float))
    fold = stratified_folds(positives, 4, 0)
    for label in LEAVES:
        counts = np.bincount(fold[label == Y], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 1


@pytest.mark.parametrize(
    ("path", "n_tried", "best"),
    [
        ([0.5, 0.6, 0.55, 0.5, 0.9], 4, 0.02),
        ([0.6, 0.5, 0.4, 0.7, 0.65, 0.6], 6, 0.04),  # four costs are tried whatever comes
        ([0.6, 0.5, 0.4, 0.3, 0.9], 4, 0.01),
    ],
)
@pytest.mark.filterwarnings("ignore:C='cv' chose:UserWarning")
def test_a_path_ends_when_the_score_has_fallen_twice(path, n_tried, best, monkeypatch):
    scores = iter(path)
    monkeypatch.setattr(_trials, "_judge", lambda *_: _trials.Judged(next(scores), np.zeros(5)))
    splits = [(np.arange(50), np.arange(50, 100))]
    model = RecursiveSVC(C="cv", search={"costs": np.arange(1, 7) / 100, "cv": splits}, **QUICK).fit(X, Y)
    assert len(model.cv_results_["C"]) == n_tried
    assert best == model.C_


def test_many_candidates_run_a_race(monkeypatch):
    """One fold decides who may run on the others; the winner has run on most folds."""
    fits, train = [], _trials._train_fold
    monkeypatch.setattr(_trials, "_train_fold", lambda *args: fits.append(args[1]) or train(*args))
    search = {"costs": [0.01, 0.03, 0.1, 0.3, 1.0], "couplings": [0.0, 0.1, 1.0]}
    model = RecursiveSVC(C="cv", coupling="cv", search=search, structure=TREE, **QUICK).fit(X, Y)
    scores, n_folds = model.cv_results_["scores"], np.isfinite(model.cv_results_["scores"]).sum(axis=1)
    assert np.isfinite(scores[:, 0]).all()
    assert (n_folds > 1).sum() <= _search.FINALISTS
    assert len(fits) == n_folds.sum() <= 12
    last = n_folds == n_folds.max()
    best = np.flatnonzero(last)[model.cv_results_["mean_score"][last].argmax()]
    assert model.cv_results_["C"][best] == model.C_
    assert model.coupling_ == model.cv_results_["coupling"][best]


@pytest.mark.parametrize("peak", [(100.0, 1.0), (0.01, 0.0), (1.0, 0.1), (30.0, 0.0)])
def test_a_race_finds_the_peak_of_the_grid(peak, monkeypatch):
    """A smooth score of cost and coupling: every peak is found, in far fewer fits than the grid has."""
    where, fits = {}, []

    def train(fold, C, coupling, *_):
        fits.append((C, coupling))
        where["score"] = 0.5 - 0.05 * abs(np.log10(C / peak[0])) - 0.05 * abs(values[id(coupling)] - peak[1])
        return type("Fitted", (), {"solution": type("S", (), {"multipliers": None}), "relative_gap": 0.0})

    monkeypatch.setattr(_trials, "_train_fold", train)
    monkeypatch.setattr(_trials, "_judge_fold", lambda *_: _trials.Judged(where["score"], np.zeros(5)))
    couplings = [0.0, 0.1, 0.3, 1.0]
    coupled = [type("Coupling", (), {})() for _ in couplings]
    values = {id(first): value for first, value in zip(coupled, couplings, strict=True)}
    plan = _search.Plan([], couplings, coupled, None, [], "macro_f1", None, None, extends=True, unit=1.0)
    trials = _search.Trials([None] * 3, plan, None)
    _search.run_race(trials)
    results = _search.tabulate(trials.tried, couplings, 0.1)
    assert _search.best_of(results) == peak
    assert len(fits) <= 14


def test_evidence_averages_to_the_score():
    rng = np.random.default_rng(0)
    truth, result = (sp.csr_array((rng.random((40, 6)) < 0.3).astype(np.int64)) for _ in range(2))
    assert _trials.evidence(truth, result, True).mean() == pytest.approx(macro_f1(truth, result))
    assert _trials.evidence(truth, result, False).mean() == pytest.approx(micro_f1(truth, result))


def test_the_standard_error_is_that_of_resampled_rows():
    """The linearised micro-F1 of label sets has the spread of a bootstrap over rows."""
    rng = np.random.default_rng(0)
    truth = rng.random((400, 5)) < 0.4
    a, b = (truth ^ (rng.random(truth.shape) < share) for share in (0.1, 0.15))
    values = [_trials.evidence(sp.csr_array(truth), sp.csr_array(result), False) for result in (a, b)]
    samples = [rng.integers(400, size=400) for _ in range(300)]
    gains = [
        micro_f1(truth[i].astype(int), a[i].astype(int)) - micro_f1(truth[i].astype(int), b[i].astype(int))
        for i in samples
    ]
    assert _trials.standard_error(*values) == pytest.approx(np.std(gains), rel=0.2)


@pytest.mark.parametrize(("rises", "n_warnings"), [(True, 1), (False, 0)])
def test_the_end_of_given_costs_is_reported(rises, n_warnings, monkeypatch):
    """A choice at the end of the given costs gives a warning if the score still rose there."""
    scores = iter([0.1, 0.3, 0.5] if rises else [0.1, 0.5, 0.501])
    monkeypatch.setattr(_trials, "_judge", lambda *_: _trials.Judged(next(scores), np.zeros(5)))
    splits = [(np.arange(50), np.arange(50, 100))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RecursiveSVC(C="cv", search={"costs": [0.01, 0.02, 0.03], "cv": splits}, **QUICK).fit(X, Y)
    messages = [
        str(warning.message) for warning in caught if "chose the largest cost, 0.03" in str(warning.message)
    ]
    assert len(messages) == n_warnings
    assert all("add larger ones to the costs" in message for message in messages)


def test_a_race_resumes_and_chooses_the_same(tmp_path, monkeypatch):
    search = {"costs": [0.03, 0.1, 0.3, 1.0], "couplings": [0.0, 0.1, 1.0]}
    params = {"C": "cv", "coupling": "cv", "search": search}
    whole = RecursiveSVC(structure=TREE, **params, **QUICK).fit(X, Y)
    judged, judge = [], _trials._judge

    def interrupted(*args):
        if len(judged) == 5:
            raise KeyboardInterrupt
        judged.append(judge(*args))
        return judged[-1]

    monkeypatch.setattr(_trials, "_judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saved(RecursiveSVC(structure=TREE, **params, **QUICK), tmp_path / "fit")
    monkeypatch.setattr(_trials, "_judge", lambda *args: judged.append(judge(*args)) or judged[-1])
    resumed = saved(RecursiveSVC(structure=TREE, **params, **QUICK), tmp_path / "fit")
    np.testing.assert_array_equal(resumed.cv_results_["scores"], whole.cv_results_["scores"])
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    assert len(judged) == np.isfinite(whole.cv_results_["scores"]).sum()  # nothing was judged twice


@pytest.mark.parametrize("end", [300.0, 0.003])
@pytest.mark.filterwarnings("ignore:training stopped")
def test_default_costs_go_on_beyond_the_end_of_the_grid(end, monkeypatch):
    """Scores that rise up to a cost beyond the grid: it is found; given costs are not extended."""

    def train(fold, C, *_):
        train.C = C
        return type("Fitted", (), {"solution": type("S", (), {"multipliers": None}), "relative_gap": 0.0})

    def judge(*_):
        return _trials.Judged(1 - abs(np.log(train.C / end)) / 10, np.full(5, np.log(train.C)))

    monkeypatch.setattr(_trials, "_train_fold", train)
    monkeypatch.setattr(_trials, "_judge_fold", judge)
    result = RecursiveSVC(C="cv", structure=TREE, **QUICK).fit(X, Y).C_
    assert result == pytest.approx(end, rel=0.3)
    params = RecursiveSVC(C="cv", search=TWO, structure=TREE, **QUICK).fit(X, Y)
    assert params.cv_results_["C"].tolist() == [0.1, 1.0]


def test_a_number_given_stays_where_the_other_is_searched():
    model = RecursiveSVC(
        C=0.2, coupling="cv", search={"couplings": [0.0, 0.5], "cv": KFold(2)}, structure=TREE, **QUICK
    ).fit(X, Y)
    assert model.C_ == 0.2
    fixed = RecursiveSVC(C=0.2, coupling=model.coupling_, structure=TREE, **QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, fixed.coef_)
    model.set_params(coupling=0.5, search=None).fit(X, Y)
    assert not hasattr(model, "cv_results_")  # of a fit before


# --- splits --------------------------------------------------------------------------------------------------------

PAIRS = [(np.arange(50, 100), np.arange(50)), (np.arange(50), np.arange(50, 100))]
SPLITTERS = {
    "splitter": lambda: KFold(2),
    "list": lambda: PAIRS,
    "generator": lambda: (pair for pair in PAIRS),
    "masks": lambda: [(np.isin(np.arange(100), seen), list(unseen)) for seen, unseen in PAIRS],
}
every_splitter = pytest.mark.parametrize("splitter", SPLITTERS.values(), ids=SPLITTERS)


@every_splitter
def test_a_model_is_saved_with_what_its_splitter_split(splitter, tmp_path):
    model = RecursiveSVC(C="cv", search={**TWO, "cv": splitter()}, structure=TREE, **QUICK).fit(X, Y)
    same = RecursiveSVC(C="cv", search={**TWO, "cv": PAIRS}, structure=TREE, **QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.cv_results_["scores"], same.cv_results_["scores"])
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model")
    for result, want in zip(loaded.search["cv"], PAIRS, strict=True):
        np.testing.assert_array_equal(result[0], want[0])
        np.testing.assert_array_equal(result[1], want[1])
    again = loaded.fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.cv_results_["scores"], model.cv_results_["scores"])


def test_splits_of_a_loaded_model_are_for_as_many_rows(tmp_path):
    model = RecursiveSVC(C="cv", search={**TWO, "cv": KFold(2)}, structure=TREE, **QUICK).fit(X, Y)
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"splits of the 100 rows.*X has 60 rows.*set it again"):
        loaded.fit(X[:60], Y[:60])
    model.fit(X[:60], Y[:60])  # has its splitter still
    loaded.set_params(search={**TWO, "cv": KFold(2)}).fit(X[:60], Y[:60])
    np.testing.assert_array_equal(loaded.coef_, model.coef_)


def test_what_is_set_after_a_fit_is_what_is_saved(tmp_path):
    model = RecursiveSVC(C="cv", search={**TWO, "cv": PAIRS}, structure=TREE, **QUICK).fit(X, Y)
    io.save(model.set_params(search={"cv": KFold(4)}), tmp_path / "number")
    assert io.load(tmp_path / "number").search == {"cv": 4}
    io.save(model.set_params(search={"cv": PAIRS[:1]}), tmp_path / "pairs")
    assert len(io.load(tmp_path / "pairs").search["cv"]) == 1


def test_no_cv_is_the_default_number_of_folds():
    """In the order of the labels, folds without shuffling would each leave out a class."""
    order = np.argsort(Y.astype(str), kind="stable")
    none, default = (
        RecursiveSVC(C="cv", search={**TWO, **cv}, structure=TREE, **QUICK).fit(X[order], Y[order])
        for cv in ({"cv": None}, {})
    )
    np.testing.assert_array_equal(none.cv_results_["scores"], default.cv_results_["scores"])
    assert none.cv_results_["scores"].shape == (2, 3)


def test_scores_go_by_the_names_of_scikit_learn_too():
    for ours, theirs in (("macro_f1", "f1_macro"), ("micro_f1", "f1_micro")):
        left, right = (
            RecursiveSVC(C="cv", search={**TWO, "scoring": name}, structure=TREE, **QUICK).fit(X, Y)
            for name in (ours, theirs)
        )
        np.testing.assert_array_equal(left.cv_results_["scores"], right.cv_results_["scores"])


def test_a_splitter_that_was_not_asked_is_saved_as_its_number_of_folds(tmp_path):
    model = RecursiveSVC(search={"cv": KFold(4)}, structure=TREE, **QUICK)
    with pytest.warns(UserWarning, match=r"no effect of search=.*neither C nor coupling is 'cv'"):
        model.fit(X, Y)
    io.save(model, tmp_path / "model")
    assert io.load(tmp_path / "model").search == {"cv": 4}
    with pytest.raises(TypeError, match=r"model\.search"):
        io.save(model.set_params(search={"cv": LeaveOneOut()}), tmp_path / "other")


@every_splitter
def test_a_checkpoint_belongs_to_what_was_split(splitter, tmp_path, monkeypatch):
    """Whoever says the same splits in other words goes on; other splits are refused."""

    def model(cv):
        return RecursiveSVC(C="cv", search={**TWO, "cv": cv}, structure=TREE, **QUICK)

    whole = model(PAIRS).fit(X, Y)
    judged, judge = [], _trials._judge

    def counted(*args):
        if len(judged) == 3:
            raise KeyboardInterrupt
        judged.append(judge(*args))
        return judged[-1]

    monkeypatch.setattr(_trials, "_judge", counted)
    with pytest.raises(KeyboardInterrupt):
        saved(model(PAIRS), tmp_path / "fit")
    for other in (3, KFold(3), KFold(2, shuffle=True, random_state=0)):
        with pytest.raises(CheckpointError, match="other data or other parameters"):
            saved(model(other), tmp_path / "fit")
    del judged[:]
    resumed = saved(model(splitter()), tmp_path / "fit")
    assert len(judged) == 2  # the second candidate alone
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)


def test_a_splitter_is_no_part_of_a_checkpoint_without_a_search(tmp_path):
    with pytest.warns(UserWarning, match="no effect of search"):
        saved(RecursiveSVC(search={"cv": KFold(4)}, structure=TREE, **QUICK), tmp_path / "fit")


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (iter(()), "gives no splits"),
        ([(np.arange(50), np.arange(50, 101))], "from 0 to 99"),
        ([(np.arange(50), [])], "at least one row"),
        ([(np.arange(50), np.arange(50, 100) / 2)], "row numbers"),
        ([(np.arange(50) - 1, np.arange(50, 100))], "from 0 to 99"),
    ],
    ids=["used up", "out of range", "empty", "not integers", "negative"],
)
def test_bad_splits_are_refused(cv, message):
    with pytest.raises(ValueError, match=message):
        RecursiveSVC(C="cv", search={"cv": cv}, structure=TREE, **QUICK).fit(X, Y)


# --- weights -------------------------------------------------------------------------------------------------------

NOISE = np.random.default_rng(9).normal(size=(150, X.shape[1])) * 5
NOISE_LABELS = np.array(LEAVES, dtype=object)[np.arange(150) % 5]


@pytest.mark.parametrize("case", ["hinge", "logistic"])
@pytest.mark.parametrize("sets", [False, True])
def test_rows_of_weight_zero_change_nothing(case, sets):
    """Nor do they where C, coupling, calibration and threshold are learned: noise that does not count."""
    estimator, _, params = MODELS[case]
    labels, options = (
        (SETS, [[label] for label in NOISE_LABELS]) if sets else (Y.tolist(), NOISE_LABELS.tolist())
    )
    model = estimator(
        C="cv", coupling="cv", search={"costs": [0.03, 0.3], "couplings": [0.0, 0.5]}, structure=TREE,
        threshold="scut", random_state=0, tol=1e-3, **params,
    )  # fmt: skip
    weight = np.concatenate([np.zeros(75), np.linspace(0.5, 2, len(Y)), np.zeros(75)])
    among = model.fit(
        np.vstack([NOISE[:75], X, NOISE[75:]]), [*options[:75], *labels, *options[75:]], sample_weight=weight
    )
    result = among.cv_results_["scores"], among.coef_, among.calibration_, among.decision_function(X_NEW)
    want = model.fit(X, labels, sample_weight=weight[weight > 0])
    np.testing.assert_array_equal(result[0], want.cv_results_["scores"])
    np.testing.assert_array_equal(result[1], want.coef_)
    np.testing.assert_array_equal(result[2], want.calibration_)
    np.testing.assert_array_equal(result[3], want.decision_function(X_NEW))


def test_splits_of_the_user_lose_their_rows_of_weight_zero():
    weight = np.ones(100)
    weight[::2] = 0
    model = RecursiveSVC(C="cv", search={**TWO, "cv": KFold(2)}, structure=TREE, **QUICK).fit(
        X, Y, sample_weight=weight
    )
    odd = np.arange(1, 100, 2)
    for (seen, unseen), (inside, outside) in zip(model.cv_splits_, PAIRS, strict=True):
        np.testing.assert_array_equal(seen, np.intersect1d(odd, inside))
        np.testing.assert_array_equal(unseen, np.intersect1d(odd, outside))
    weight[50:] = 0
    with pytest.raises(ValueError, match="every row has the sample_weight 0"):
        model.fit(X, Y, sample_weight=weight)


# --- refused before anything is trained ----------------------------------------------------------------------------


def no_training(monkeypatch):
    def fails(*_, **__):
        raise AssertionError("something was trained")

    monkeypatch.setattr(_trials, "train_joint", fails)
    monkeypatch.setattr(_joint, "train_joint", fails)


@pytest.mark.parametrize(
    ("bad", "message"), [(-1.0, "0 or more"), ({"zz": 1.0}, "'zz' is not a node"), (1e6, "most 10000")]
)
def test_a_bad_coupling_is_refused_before_the_first_fit(bad, message, monkeypatch):
    no_training(monkeypatch)
    with pytest.raises(ValueError, match=message):
        RecursiveSVC(coupling="cv", search={"couplings": [0.0, 0.5, bad]}, structure=TREE, **QUICK).fit(X, Y)


@pytest.mark.parametrize("dense", [False, True])
def test_memory_of_a_search_is_counted_and_refused_before_the_first_fit(dense, monkeypatch):
    """Told is what is used: folds of rows, multipliers of all pairs of all folds, one fit."""
    rng = np.random.default_rng(0)
    x = (
        sp.csr_array(rng.random((2000, 30)) + 1.0)
        if dense
        else sp.random_array((2000, 400), density=0.1, rng=rng, format="csr")
    )
    y = np.arange(2000) % 40
    model = RecursiveLogisticRegression(
        C="cv", search={"costs": [1.0, 3.0], "cv": 4}, tol=0.5, max_iter=2, **QUICK
    )
    told, check = [], _memory.search_memory
    monkeypatch.setattr(_memory, "search_memory", lambda *args: told.append(check(*args)) or told[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)  # compiles
        tracemalloc.start()
        model.fit(x, y)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 0.7 < told[-1] / used < 1.6
    no_training(monkeypatch)
    monkeypatch.setattr(memory, "available_memory", lambda: int(0.9 * told[-1]))
    with pytest.raises(MemoryError, match=r"Cross-validation with 4 folds over 40 classes.*fewer folds"):
        model.fit(x, y)


# --- gaps ----------------------------------------------------------------------------------------------------------


def test_candidates_whose_gap_stays_open_are_warned_of_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search = {"costs": [1e-6, 50.0], "couplings": [0.0, 0.5], "cv": 2}
        model = RecursiveSVC(C="cv", coupling="cv", structure=TREE, search=search, max_iter=2, **QUICK).fit(
            X, Y
        )
    messages = [str(warning.message) for warning in caught if "candidates" in str(warning.message)]
    assert len(messages) == 1
    results = model.cv_results_
    assert results["converged"].tolist() == [True, False] * 2
    np.testing.assert_array_equal(results["converged"], results["gap"] <= _search.COARSE_TOL)
    assert messages[0].startswith("2 of 4 candidates")
    assert "max_iter=2" in messages[0]
    assert "C=50 with coupling=0.0, C=50 with coupling=0.5" in messages[0]
    assert "C=1e-06" not in messages[0]


def test_rows_are_prepared_once_a_fold(monkeypatch):
    calls, prepare = [], _trials.prepare_rows
    monkeypatch.setattr(_trials, "prepare_rows", lambda *args: calls.append(1) or prepare(*args))
    monkeypatch.setattr(_joint, "prepare_rows", lambda *args: calls.append(2) or prepare(*args))
    RecursiveSVC(C="cv", search={**TWO, "cv": 3}, structure=TREE, **QUICK).fit(X, Y)
    assert calls == [1, 1, 1, 2]  # the last one is for the fit with what was chosen


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": "cv", "search": {"costs": [0.1], "couplings": [0.1]}}, "no effect of couplings"),
        ({"coupling": "cv", "search": {"costs": [0.1], "couplings": [0.1]}}, "no effect of costs"),
    ],
)
def test_candidates_that_are_not_searched_warn(params, message):
    X, labels = np.tile(np.eye(4), (3, 1)), np.array(["a1", "a2", "b1", "b2"] * 3, dtype=object)
    with pytest.warns(UserWarning, match=message):
        RecursiveSVC(structure=TREE, **{**QUICK, **params}).fit(X, labels)
