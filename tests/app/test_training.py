"""The work of the command line from Python: train, tune, discover, evaluate, file."""

import numpy as np
import pytest

from arbora.app import training as tuning
from arbora.app.classifiers import MODELS, ClassifierOptions, make_baseline, make_classifier
from arbora.app.documents import Documents
from arbora.app.evaluation import evaluate_folder
from arbora.app.filing import Filer
from arbora.app.folder import open_folder, write_folder
from arbora.app.labels import find_hierarchy
from arbora.app.text_classifier import TextClassifier
from arbora.app.text_rows import TextOptions, transform_rows
from arbora.app.topics import TopicOptions, discover_topics
from arbora.app.training import train_classifier, tune_classifier
from arbora.classify import OneVsRestSVC
from arbora.structure import Hierarchy

WORDS = {
    "sea/fish": ["fins", "scales", "gills"],
    "sea/ships": ["sails", "anchor", "captain"],
    "land/trees": ["leaves", "bark", "roots"],
}


def make_documents(n, seed=0, **fields):
    rng = np.random.default_rng(seed)
    labels = [list(WORDS)[number % len(WORDS)] for number in range(n)]
    return Documents.from_texts(
        [" ".join(rng.permutation(WORDS[label])[:2]) for label in labels], labels, **fields
    )


def test_nodes_of_a_classifier_have_typical_and_deciding_words():
    documents = make_documents(60)
    options = ClassifierOptions("flat", jobs=1)
    content = train_classifier(documents, options, structure=find_hierarchy(documents)).content()
    by_name = {node["name"]: node for node in content.nodes}
    for name, words in WORDS.items():
        for kind in ("typical", "words"):
            assert {word for word, _ in by_name[name][kind]} <= set(words)
            assert by_name[name][kind]
    inside = {word for word, _ in by_name["sea"]["typical"]}
    assert inside <= {*WORDS["sea/fish"], *WORDS["sea/ships"]}
    assert all(0 < share <= 1 for node in content.nodes for _, share in node["typical"])


def test_a_trained_classifier_is_evaluated_saved_and_used(tmp_path):
    documents, test = make_documents(30), make_documents(9, seed=1)
    structure = find_hierarchy(documents)
    options = ClassifierOptions("flat", jobs=1)
    trained = train_classifier(documents, options, structure=structure, test=test)
    assert (trained.trial.n_train, trained.trial.how, len(trained.documents)) == (30, "given", 39)
    content = trained.content()
    write_folder(tmp_path / "model", content)
    folder = open_folder(tmp_path / "model")
    evaluation, names = evaluate_folder(folder, test)
    assert evaluation["scores"] == pytest.approx(content.evaluation["scores"])
    assert {"root", "sea", *WORDS} <= set(names)
    (answer,) = Filer(folder, n_words=2).file_texts(["gills and scales"])
    assert answer["label"] == "sea/fish"
    assert {word for word, _ in answer["words"]} == {"gills", "scales"}


def test_what_is_chosen_on_the_training_part_is_trained_on_all_documents(tmp_path):
    documents = make_documents(90)
    trained = train_classifier(documents, ClassifierOptions(jobs=1), structure=find_hierarchy(documents))
    choice = trained.classifier.choice_
    assert choice["n_texts"] == trained.trial.n_train < 90
    assert trained.classifier.features == choice["features"]
    content = trained.content()
    assert content.about["settings"]["chosen"] == choice
    write_folder(tmp_path / "model", content)
    again = TextClassifier.load(tmp_path / "model")
    assert again.choice_ == choice
    assert again.predict(["gills and scales"]).tolist() == ["sea/fish"]


def test_a_model_that_uses_the_tree_is_compared_with_a_flat_one():
    documents = make_documents(60)
    options = ClassifierOptions("recursive-svm", jobs=1)
    evaluation = (
        train_classifier(documents, options, structure=find_hierarchy(documents)).content().evaluation
    )
    assert evaluation["baseline"]["name"] == "flat"


def test_the_report_of_flat_classes_has_no_scores_of_trees():
    documents, options = make_documents(60), ClassifierOptions("flat", jobs=1)
    flat = train_classifier(documents, options).content().report
    tree = train_classifier(documents, options, structure=find_hierarchy(documents)).content().report
    for name in ("Hierarchical F1", "Tree-induced error", "Level"):
        assert name in tree
        assert name not in flat
    assert "Macro-F1" in flat


def test_features_of_a_command_are_those_of_the_model():
    text = TextOptions("auto", ngrams=2)
    trained = train_classifier(make_documents(30), ClassifierOptions("flat", jobs=1), text)
    assert trained.vectorizer.ngram_range == (1, 2)
    trained = train_classifier(make_documents(30), ClassifierOptions("flat", jobs=1), features="stems")
    assert trained.vectorizer.ngram_range == (1, 1)


def test_nothing_is_printed(capfd):
    trained = train_classifier(make_documents(30), ClassifierOptions("flat", jobs=1))
    trained.content()
    discover_topics(make_documents(12), TopicOptions(topics=3, jobs=1)).content()
    assert capfd.readouterr() == ("", "")


def test_too_few_documents_are_not_evaluated():
    with pytest.warns(UserWarning, match="too few documents to hold any out"):
        trained = train_classifier(make_documents(3), ClassifierOptions("flat", jobs=1))
    assert trained.trial is None
    assert trained.content().evaluation is None


@pytest.mark.parametrize("model", ["multinomial", "top-down"])
def test_models_without_their_own_search_are_tuned_over_a_grid(model):
    documents = make_documents(18)
    structure = find_hierarchy(documents)
    options = ClassifierOptions(model, jobs=1)
    tried = tune_classifier(
        documents, options, structure=structure, costs=[1.0, 3.0], couplings=[0.1], folds=2
    ).tried
    assert {candidate.C for candidate in tried} == {1.0, 3.0}
    assert {candidate.coupling for candidate in tried} == {0.1 if model == "multinomial" else None}
    assert [candidate.mean for candidate in tried] == sorted(
        (candidate.mean for candidate in tried), reverse=True
    )


def test_the_best_of_many_candidates_was_tried_on_all_folds():
    documents = make_documents(24)
    tried = tune_classifier(
        documents,
        ClassifierOptions("recursive-svm", jobs=1),
        structure=find_hierarchy(documents),
        costs=[0.1, 1.0, 10.0],
        couplings=[0.0, 0.1, 1.0],
        folds=3,
    ).tried
    n_folds = [candidate.n_folds for candidate in tried]
    assert set(n_folds) == {1, 3}
    assert n_folds == sorted(n_folds, reverse=True)
    finalists = [candidate.mean for candidate in tried if candidate.n_folds == 3]
    assert finalists == sorted(finalists, reverse=True)


def test_a_cost_is_tuned_on_the_features_that_are_trained(monkeypatch):
    seen = []
    search = tuning._search_grid
    monkeypatch.setattr(
        tuning,
        "_search_grid",
        lambda estimator, X, *arguments: seen.append(X) or search(estimator, X, *arguments),
    )
    documents, options = make_documents(60), ClassifierOptions("flat", jobs=1)
    result = tune_classifier(documents, options, costs=[1.0], folds=2)
    trained = train_classifier(documents, options, test=make_documents(3))
    assert result.features == trained.classifier.choice_["features"]
    expected = transform_rows(documents, trained.vectorizer, trained.estimator.n_features_in_)
    assert abs(seen[0] - expected).max() < 1e-6
    assert tune_classifier(documents, options, features="stems", costs=[1.0], folds=2).features == "stems"
    assert tune_classifier(documents, options, TextOptions(), costs=[1.0], folds=2).features is None


def test_a_flat_baseline_has_its_own_cost():
    options, tree = ClassifierOptions("recursive-svm", C=100.0), Hierarchy.from_paths(["a/b", "a/c"])
    assert make_classifier(options, tree, False).C == 100.0
    assert make_baseline(options, tree, False).C == OneVsRestSVC().C


@pytest.mark.parametrize("model", [name for name in MODELS if name != "bayes"])
def test_the_default_cost_is_that_of_the_estimator(model):
    made = make_classifier(ClassifierOptions(model), Hierarchy.from_paths(["a/b", "a/c"]), False)
    assert made.C == type(made)().C


def test_topics_over_time_keep_the_name_of_the_field():
    documents = make_documents(24, fields={"year": [1999 + number % 2 for number in range(24)]})
    result = discover_topics(documents, TopicOptions(topics=3, over_time="year", jobs=1))
    assert result.content().time["field"] == "year"


def test_options_are_checked():
    assert "recursive-svm" in MODELS
    with pytest.raises(ValueError, match="unknown model 'tree': use one of recursive-svm"):
        make_classifier(ClassifierOptions("tree"), None, False)
    with pytest.raises(ValueError, match="y has 2 entries for 1 texts"):
        Documents.from_texts(["a"], ["b", "c"])
    with pytest.raises(ValueError, match="was trained on rows of numbers"):
        transform_rows(Documents.from_texts(["a"]), None, 3)
