"""The choice of features and model: what wins, when nothing is chosen, sampling of rows, shared tokens."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer

from arbora import TextClassifier, running
from arbora.app import text_choice as search
from arbora.app import training as tuning
from arbora.app.classifiers import ClassifierOptions
from arbora.app.documents import Documents
from arbora.app.text_choice import (
    SAFE,
    Candidate,
    Labels,
    Recipe,
    Search,
    SplitTexts,
    Whole,
    choose,
    choose_cost,
    families_of,
    parse_recipe,
    sample_rows,
)
from arbora.classify import OneVsRestSVC, RecursiveSVC
from arbora.structure import Hierarchy

VERBS = ("walk", "talk", "jump", "play", "cook", "paint", "look", "want", "help", "clean", "start", "open")


def order_texts(n, seed=0):
    """Texts whose label is the order of two words: pairs of words are needed."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["yes", "no"], n)
    pairs = {"no": "not good", "yes": "good not"}
    return [f"{pairs[label]} {' '.join(rng.choice(VERBS, 2))}" for label in labels], labels.tolist()


def ending_texts(n, seed=0):
    """Texts whose label is the ending of made-up words: character n-grams are needed."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["ing", "ness"], n)
    stems = ["".join(rng.choice(list("bcdfgklmnprstvz"), 5)) for _ in range(n)]
    return [f"{stem}{label}" for stem, label in zip(stems, labels, strict=True)], labels.tolist()


@pytest.mark.parametrize(("make", "needed"), [(order_texts, "bigrams"), (ending_texts, "characters")])
def test_features_that_are_needed_are_chosen(make, needed):
    model = TextClassifier(n_jobs=1).fit(*make(150))
    assert needed in model.choice_["features"]
    texts, labels = make(60, seed=1)
    assert model.score(texts, labels) > 0.9
    plain = TextClassifier(features="words", n_jobs=1).fit(*make(150))
    assert plain.score(texts, labels) < 0.8
    assert "features" not in plain.choice_
    assert any("points better than words" in line for line in model.choice_["why"])
    assert "of 3 folds of 150 texts" in model.choice_["why"][-1]
    assert model.choice_text().startswith("Chosen in")


def test_plain_words_stay_where_nothing_is_better():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(VERBS, 40)) for _ in range(120)]  # not short: chance gains are not enough
    model = TextClassifier(n_jobs=1).fit(texts, rng.choice(["a", "b"], 120))
    tried = {candidate["features"] for candidate in model.choice_["candidates"]}
    assert {"words", "words+bigrams", "words+characters"} <= tried
    best = max(candidate["score"] for candidate in model.choice_["candidates"])
    assert 0 <= best <= 1


def test_small_sets_and_given_settings_are_not_searched(capsys):
    texts, labels = order_texts(20)
    model = TextClassifier(n_jobs=1).fit(texts, labels)
    assert model.choice_ == {}
    assert "too few texts" in model.choice_text()
    fixed = TextClassifier(features="words", model="flat", C=0.5, n_jobs=1, verbose=2).fit(*order_texts(60))
    assert fixed.choice_ == {}
    assert fixed.estimator_.C == 0.5
    assert capsys.readouterr().out == ""
    TextClassifier(features="words", n_jobs=1, verbose=2).fit(*order_texts(60))
    assert "Chosen in" in capsys.readouterr().out


def test_a_given_cost_is_kept_and_the_choice_can_be_fixed():
    model = TextClassifier(C=0.7, n_jobs=1).fit(*order_texts(100))
    assert {candidate["C"] for candidate in model.choice_["candidates"]} == {0.7}
    assert {candidate["model"] for candidate in model.choice_["candidates"]} == {"flat", "logistic"}
    fixed = model.chosen()
    assert fixed.features == model.choice_["features"]
    again = fixed.fit(*order_texts(100))
    assert again.choice_ == {}
    texts = order_texts(30, seed=2)[0]
    np.testing.assert_array_equal(again.decision_function(texts), model.decision_function(texts))


@pytest.mark.parametrize("n_texts", [20, 60])
def test_a_given_coupling_is_used(n_texts):
    texts, labels = ending_texts(n_texts)
    model = TextClassifier(coupling=0.7, n_jobs=1).fit(texts, [f"all/{label}" for label in labels])
    assert isinstance(model.estimator_, RecursiveSVC)
    assert model.estimator_.coupling_ == 0.7
    assert "model" not in model.choice_


def test_the_fits_of_a_choice_leave_a_checkpoint_alone(tmp_path):
    """A folder belongs to one fit, and a `TextClassifier` trains several: the block says that nothing used it."""
    texts, labels = ending_texts(60)
    with (
        pytest.warns(UserWarning, match="no fit of this block uses a checkpoint"),
        running(checkpoint=tmp_path / "fit"),
    ):
        model = TextClassifier(n_jobs=1, random_state=0).fit(texts, labels)
    assert not (tmp_path / "fit").exists()
    assert (
        model.predict(texts) == TextClassifier(n_jobs=1, random_state=0).fit(texts, labels).predict(texts)
    ).all()


def test_the_choice_is_the_same_with_more_threads():
    single, two = (TextClassifier(n_jobs=n).fit(*ending_texts(60)) for n in (1, 2))
    assert single.choice_ == two.choice_


def test_models_of_a_tree_are_tried_if_there_is_one():
    texts, labels = order_texts(90)
    paths = [f"answer/{label}" for label in labels]
    tried = {
        candidate["model"] for candidate in TextClassifier(n_jobs=1).fit(texts, paths).choice_["candidates"]
    }
    assert tried == {"flat", "logistic", "recursive-svm"}
    tried = {
        candidate["model"]
        for candidate in TextClassifier("flat", n_jobs=1).fit(texts, paths).choice_["candidates"]
    }
    assert tried == {"flat", "logistic"}


def test_short_texts_try_pairs_and_characters_together_and_no_stems_beside_them():
    model = TextClassifier(n_jobs=1).fit(*ending_texts(150))
    tried = {candidate["features"] for candidate in model.choice_["candidates"]}
    assert model.choice_["features"] == "words+bigrams+characters"
    assert not any("stems" in name or name in ("words+bigrams", "words+characters") for name in tried)


def test_a_model_is_compared_at_the_chosen_features():
    """Beside the flat model there, not only with plain words."""

    def right(candidate):
        needed = 0.3 * (candidate.features == Recipe(bigrams=True))
        return (
            0.4 + needed + 0.1 * (candidate.model == "logistic") * (1 if candidate.features == SAFE else -1)
        )

    choice = choose(FakeSearch(right), [Recipe(bigrams=True)], free_model=True, C=1.0, n_rows=600)
    assert (choice.best.features, choice.best.model) == (Recipe(bigrams=True), "flat")
    assert {
        candidate.model for candidate, _ in choice.tried if candidate.features == Recipe(bigrams=True)
    } == {
        "flat",
        "logistic",
    }


def test_the_search_ends_at_its_limit_of_work():
    texts, labels = order_texts(90)
    split = SplitTexts(texts, "english")
    search = Search(
        lambda recipe: split.fit(recipe)[1], Labels(labels), None, 1, 0, Whole(90, 2, len(split.tokens.ids))
    )
    plain, pairs = (Candidate(Recipe(bigrams=bigrams), "flat", 1.0, None) for bigrams in (False, True))
    search.test(plain)
    assert search.work.left()
    spent = search.work.spent
    search.work.spent = np.inf
    assert not search.better(plain, pairs, 0.0)
    assert pairs not in search.scores
    search.work.spent = spent
    assert search.better(plain, pairs, 0.0)
    assert search.work.spent > 2 * spent


def test_the_reason_names_what_was_tried_and_what_was_not():
    def pairs_are_best(candidate):
        return 0.4 + 0.3 * (candidate.features == Recipe(bigrams=True))

    search = FakeSearch(lambda candidate: 0.5)
    why = choose(search, [Recipe(bigrams=True)], free_model=True, C=1.0, n_rows=600).why
    assert why[:2] == [
        "words: not better beyond noise: words+bigrams",
        "flat: not better beyond noise: logistic",
    ]
    search = FakeSearch(pairs_are_best)
    search.work.left = lambda extra=0.0: (
        Recipe(bigrams=True) not in {candidate.features for candidate in search.scores}
    )
    why = choose(search, [Recipe(bigrams=True), Recipe(stems=True)], free_model=True, C=1.0, n_rows=600).why
    assert (
        "points better than words; not tried, since the choice would take over 3 plain fits: stems" in why[0]
    )
    assert why[1] == (
        "flat: nothing else was tried; not tried, since the choice would take over 3 plain fits: logistic"
    )
    search = FakeSearch(pairs_are_best)
    assert choose(search, None, free_model=False, C=1.0, n_rows=600).why[0].startswith("C = 1")


class Warns(OneVsRestSVC):
    def fit(self, X, y):
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)
        warnings.warn("something else", UserWarning, stacklevel=2)
        return super().fit(X, y)


def tune_order_texts():
    documents, options = Documents.from_texts(*order_texts(60)), ClassifierOptions("flat", jobs=1)
    tuning.tune_classifier(documents, options, features="words", costs=[1.0], folds=2)


def fit_order_texts():
    TextClassifier(features="words", n_jobs=1).fit(*order_texts(60))


@pytest.mark.parametrize(("module", "run"), [(search, fit_order_texts), (tuning, tune_order_texts)])
def test_only_warnings_of_coarse_fits_are_hidden(monkeypatch, module, run):
    monkeypatch.setattr(module, "make_classifier", lambda *arguments, **options: Warns(random_state=0))
    with pytest.warns(UserWarning, match="something else") as shown:
        run()
    assert not any(issubclass(warning.category, ConvergenceWarning) for warning in shown)


def test_several_labels_are_searched_too():
    texts, labels = order_texts(90)
    sets = [[label, "all"] for label in labels]
    model = TextClassifier(n_jobs=1).fit(texts, sets)
    assert "bigrams" in model.choice_["features"]
    indicator = np.array([[label == "yes", True] for label in labels], int)
    assert "bigrams" in TextClassifier(n_jobs=1).fit(texts, indicator).choice_["features"]


def test_text_without_spaces_needs_no_search_of_features():
    rng = np.random.default_rng(0)
    words = {"sea": ["大海", "鱼群", "船只", "海浪"], "land": ["树木", "道路", "山脉", "草地"]}
    labels = [["sea", "land"][number % 2] for number in range(60)]
    texts = ["".join(rng.choice(words[label], 3)) for label in labels]
    model = TextClassifier(n_jobs=1).fit(texts, labels)
    assert {candidate["features"] for candidate in model.choice_["candidates"]} == {"words"}
    assert model.predict(["鱼群和海浪", "山脉"]).tolist() == ["sea", "land"]


def test_a_script_that_does_not_fit_the_language_is_a_warning():
    with pytest.warns(UserWarning, match="Cyrillic"):
        TextClassifier(language="english", n_jobs=1).fit(
            ["рыбы плавают", "деревья растут"] * 5, ["a", "b"] * 5
        )


def test_shared_tokens_give_the_rows_of_a_fit_on_texts():
    texts, _ = order_texts(40)
    texts[7] += " x"  # of one letter: only with bigrams
    texts[8] += " é ß я 学 🎈"
    split = SplitTexts(texts, "english")
    for name in ("words", "stems+bigrams", "words+characters", "stems+bigrams+characters without stop words"):
        recipe = parse_recipe(name)
        assert recipe.name == name
        rows = np.arange(5, 25)
        vectorizer, X = split.fit(recipe, rows)
        wanted = recipe.vectorizer("english").fit_transform([texts[row] for row in rows])
        np.testing.assert_allclose(X.toarray(), wanted.toarray(), rtol=1e-6)
        assert abs(vectorizer.transform([texts[row] for row in rows]) - wanted).max() < 1e-6
        assert ("я" in vectorizer.vocabulary_) == ("x" in vectorizer.vocabulary_) == recipe.bigrams


def test_plain_words_are_those_of_scikit_learn():
    texts = [*order_texts(40)[0], "let x be a vector, i = 1 ... n", "a b c", "naïve œuvre é"]
    ours = SplitTexts(texts, "none").fit(SAFE)[1]
    theirs = TfidfVectorizer(sublinear_tf=True)
    np.testing.assert_allclose(ours.toarray(), theirs.fit_transform(texts).toarray(), rtol=1e-5)


def test_samples_have_whole_classes_or_all_classes():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 20)
    families = np.arange(200) // 10
    rows = sample_rows(groups, families, rng, 1000)
    counts = np.bincount(groups[rows], minlength=200)
    assert set(counts) == {0, 20}
    assert len(set(families[counts > 0])) <= 6  # family by family
    few = np.repeat(np.arange(3), [3000, 900, 100])
    counts = np.bincount(few[sample_rows(few, np.arange(3), rng, 1000)])
    assert counts.tolist() == [750, 225, 25]
    assert len(sample_rows(groups[:50], families, rng, 1000)) == 50
    tree = Hierarchy.from_paths(["a/b", "a/c", "d/e"])
    assert len(set(families_of(["a/b", "a/c", "d/e"], tree).tolist())) == 2


class FakeSearch(Search):
    """Scores of costs without training."""

    def __init__(self, right):
        super().__init__(lambda recipe: None, Labels(np.repeat(["a", "b"], 300)), None, 1, 0)
        self.right = right

    def test(self, candidate, n_folds=1):
        rng = np.random.default_rng(0)
        self.scores[candidate] = (rng.random(600) < self.right(candidate)).astype(float)
        return self.scores[candidate]


def test_costs_rise_while_they_help():
    search = FakeSearch(lambda candidate: 0.9 - 0.2 * abs(np.log(candidate.C / 3)))
    assert choose_cost(search, Candidate(SAFE, "flat", 1.0, None), (3.0, 1 / 3)).C == 3.0
    search = FakeSearch(lambda candidate: 0.5 + 0.05 * np.log(candidate.C))
    assert choose_cost(search, Candidate(SAFE, "flat", 1.0, None), (3.0,)).C == 9.0  # within the limits
    search = FakeSearch(lambda candidate: 0.5 + 0.1 * (candidate.features != SAFE))
    assert search.better(Candidate(SAFE, "flat", 1.0, None), Candidate(Recipe(True), "flat", 1.0, None), 1.0)
    assert not search.better(
        Candidate(Recipe(True), "flat", 1.0, None), Candidate(SAFE, "flat", 1.0, None), 1.0
    )
