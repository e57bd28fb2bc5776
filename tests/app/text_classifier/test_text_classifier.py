"""`TextClassifier`: labels of all kinds, prediction, words, folders, scikit-learn's tools."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

import arbora
from arbora import TextClassifier, io
from arbora.app.contents.fitted_model import model_content
from arbora.app.documents import Documents
from arbora.app.evaluation import evaluate_folder
from arbora.app.filing import Filer
from arbora.app.folder import open_folder
from arbora.app.text_rows import TextOptions
from arbora.classify import OneVsRestLogistic, RecursiveSVC
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer

WORDS = {
    "sea/fish": ["fins", "scales", "gills", "swims", "reef", "coral", "tail"],
    "sea/ships": ["sails", "anchor", "captain", "harbour", "mast", "deck", "crew"],
    "land/trees": ["leaves", "bark", "roots", "branch", "oak", "birch", "moss"],
    "land/roads": ["asphalt", "traffic", "bridge", "lane", "tunnel", "signs", "cars"],
}


def write(n, seed=0, length=5):
    """Short texts: words of a class, and words that all classes have."""
    rng, names = np.random.default_rng(seed), list(WORDS)
    labels = [names[number % len(names)] for number in range(n)]
    texts = [
        " ".join(rng.permutation([*rng.choice(WORDS[label], length), *rng.choice(["the", "of", "and"], 3)]))
        for label in labels
    ]
    return texts, labels


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier(n_jobs=1).fit(*write(80))


def test_five_lines_are_enough(fitted):
    texts, labels = write(40, seed=1)
    assert fitted.score(texts, labels) > 0.9
    assert fitted.predict(texts).tolist()[:4] == list(WORDS)
    assert fitted.classes_.tolist() == sorted(WORDS)
    proba = fitted.predict_proba(texts)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(fitted.classes_[proba.argmax(axis=1)], fitted.predict(texts))
    assert fitted.decision_function(texts).shape == (40, 4)
    assert arbora.TextClassifier is TextClassifier


def test_labels_with_slashes_are_a_tree_unless_told_otherwise(fitted):
    texts, labels = write(40, seed=1)
    assert fitted.predict_path(texts[:1]) == [["root", "sea", "sea/fish"]]
    nodes = fitted.nodes_.tolist()
    proba = fitted.predict_node_proba(texts)
    parts = proba[:, [nodes.index("sea/fish"), nodes.index("sea/ships")]].sum(axis=1)
    np.testing.assert_allclose(proba[:, nodes.index("sea")], parts, rtol=1e-6)
    unsure = fitted.predict_backoff(["gills captain"], threshold=0.8)
    assert unsure.tolist() == ["sea"]
    assert TextClassifier("auto", n_jobs=1).fit(texts, labels).nodes_.tolist() == nodes
    flat = TextClassifier("flat", n_jobs=1).fit(texts, labels)
    assert flat.nodes_.tolist() == sorted(WORDS)
    assert flat.predict_path(texts[:1]) == [["sea/fish"]]


def test_a_structure_can_be_given():
    texts, labels = write(40)
    tree = Hierarchy.from_edges(
        [
            *(("all", "wet"), ("all", "dry"), ("wet", "sea/fish"), ("wet", "sea/ships")),
            *(("dry", "land/trees"), ("dry", "land/roads")),
        ]
    )
    model = TextClassifier(tree, "recursive-svm", n_jobs=1).fit(texts, labels)
    assert isinstance(model.estimator_, RecursiveSVC)
    assert model.predict_path(["fins and gills"]) == [["all", "wet", "sea/fish"]]
    with pytest.raises(ValueError, match="structure must be a Hierarchy"):
        TextClassifier("deep").fit(texts, labels)


def test_labels_of_any_kind_come_back_as_they_were_given():
    texts, labels = write(40)
    numbers = np.array([list(WORDS).index(label) for label in labels])
    model = TextClassifier(n_jobs=1).fit(texts, numbers)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.predict(["fins and gills"]).tolist() == [0]
    sets = [[label, "wet"] if label.startswith("sea") else [label] for label in labels]
    model = TextClassifier(n_jobs=1).fit(texts, sets)
    assert set(model.predict(["fins and gills"])[0]) == {"sea/fish", "wet"}
    assert model.score(texts, sets) > 0.9
    indicator = np.eye(4, dtype=int)[numbers]
    model = TextClassifier(n_jobs=1).fit(texts, indicator)
    assert model.predict(["fins and gills"]).tolist() == [[1, 0, 0, 0]]
    assert sp.issparse(TextClassifier(n_jobs=1).fit(texts, sp.csr_array(indicator)).predict(texts))


def test_two_classes_have_one_score():
    texts, labels = write(40)
    two = [label.split("/")[0] for label in labels]
    model = TextClassifier(n_jobs=1).fit(texts, two)
    assert model.decision_function(texts).shape == (40,)
    labels, values = model.predict_top_k(["fins and gills"], 2)
    assert labels.tolist() == [["sea", "land"]]
    assert values[0, 0] > values[0, 1]


def test_missing_and_unknown_texts_get_an_answer(fitted):
    scores = fitted.decision_function(["xyzzy", "", None, float("nan")])
    np.testing.assert_array_equal(scores, scores[[0] * 4])
    texts, labels = write(20)
    model = TextClassifier(n_jobs=1).fit([*texts, float("nan")], [*labels, labels[0]])
    assert "nan" not in model.vectorizer_.vocabulary_
    with pytest.raises(ValueError, match="text 1 is bytes"):
        fitted.predict(["text", b"text"])
    with pytest.raises(ValueError, match="row 20 of y has no label"):
        TextClassifier().fit([*texts, "text"], [*labels, float("nan")])
    with pytest.raises(ValueError, match="not a single text"):
        fitted.predict("one text")
    with pytest.raises(ValueError, match="no texts"):
        TextClassifier().fit([], [])
    with pytest.raises(NotFittedError):
        TextClassifier().predict(["text"])
    assert not hasattr(TextClassifier(), "classes_")


def test_scikit_learn_tools_work():
    texts, labels = write(60)
    model = TextClassifier(features="words", model="flat", n_jobs=1)
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, texts, labels, cv=3).mean() > 0.8
    assert cross_val_predict(model, texts, labels, cv=3, method="predict_proba").shape == (60, 4)
    search = GridSearchCV(model, {"features": ["words", "stems+bigrams"], "C": [0.1, 1.0]}, cv=2)
    assert search.fit(texts, labels).best_estimator_.score(texts, labels) > 0.9
    scored = cross_val_score(model, np.array(texts, object), labels, cv=2, scoring="neg_log_loss")
    assert np.isfinite(scored).all()


def test_features_and_models_can_be_given():
    texts, labels = write(40)
    vectorizer = LtcVectorizer(stop_words=None, stem=None)
    model = TextClassifier(features=vectorizer, model=OneVsRestLogistic(10.0, random_state=0)).fit(
        texts, labels
    )
    assert model.vectorizer_ is not vectorizer
    assert isinstance(model.estimator_, OneVsRestLogistic)
    assert "the" in model.vectorizer_.vocabulary_
    model = TextClassifier(features="stems+bigrams without stop words", n_jobs=1).fit(texts, labels)
    assert "the" not in model.vectorizer_.vocabulary_
    assert any(" " in name for name in model.vectorizer_.feature_names_)
    assert TextClassifier(features=TextOptions("none"), n_jobs=1).fit(texts, labels).vectorizer_.stem is None
    with pytest.raises(ValueError, match="'letters' is unknown"):
        TextClassifier(features="letters").fit(texts, labels)
    with pytest.raises(ValueError, match="must be 'auto', the name of a recipe"):
        TextClassifier(features=3).fit(texts, labels)
    with pytest.raises(ValueError, match="unknown model 'forest'"):
        TextClassifier(model="forest").fit(texts, labels)


def test_a_given_classifier_gets_the_tree_and_keeps_its_parameters():
    texts, labels = write(20)
    model = TextClassifier(model=RecursiveSVC(2.0, random_state=0)).fit(texts, labels)
    assert model.predict_path(texts[:1]) == [["root", "sea", "sea/fish"]]
    assert model.estimator_.C == 2.0
    assert model.model.structure is None
    tree = Hierarchy.from_paths(labels)
    with_tree = TextClassifier(model=RecursiveSVC(structure=tree, random_state=0)).fit(texts, labels)
    assert with_tree.predict_path(texts[:1]) == [["sea", "sea/fish"]]
    flat = TextClassifier("flat", RecursiveSVC(random_state=0)).fit(texts, labels)
    assert flat.predict_path(texts[:1]) == [["sea/fish"]]
    with pytest.raises(ValueError, match="give one of them"):
        TextClassifier(tree, RecursiveSVC(structure=tree)).fit(texts, labels)
    for name in ("C", "coupling"):
        with pytest.raises(ValueError, match=f"set {name} in the classifier"):
            TextClassifier(model=RecursiveSVC(), **{name: 0.5}).fit(texts, labels)


def test_what_cannot_be_used_is_refused_before_the_fit():
    texts, labels = write(20)
    with pytest.raises(ValueError, match=r"a classifier of arbora\.classify"):
        TextClassifier(model=LogisticRegression()).fit(texts, labels)
    with pytest.raises(ValueError, match="or an LtcVectorizer"):
        TextClassifier(features=TfidfVectorizer()).fit(texts, labels)
    with pytest.raises(ValueError, match="not a stemmer"):
        TextClassifier(language="klingon").fit(texts, labels)


@pytest.mark.parametrize("kind", ["deciding", "typical"])
def test_words_of_classes_and_of_nodes_above_them(fitted, kind):
    words = fitted.top_words(4, kind=kind)
    for label, class_words in WORDS.items():
        assert words[label]
        assert set(words[label]) <= set(class_words)
    assert {word for name in words for word in words[name] if name == "sea"} <= {
        *WORDS["sea/fish"],
        *WORDS["sea/ships"],
    }


def test_words_are_whole_words_even_with_character_n_grams():
    texts, labels = write(60)
    model = TextClassifier(features="words+characters", n_jobs=1).fit(texts, labels)
    assert any("…" in name for name in model.vectorizer_.feature_names_)
    assert set(model.top_words(3)["sea/fish"]) <= set(WORDS["sea/fish"])
    with pytest.raises(ValueError, match="kind must be"):
        model.top_words(kind="rare")


def test_a_model_folder_keeps_it(fitted, tmp_path):
    texts, labels = write(20, seed=2)
    fitted.save(tmp_path / "model", texts, labels)
    again = TextClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(texts), fitted.predict(texts))
    assert again.get_params() == fitted.get_params()
    assert again.top_words(kind="typical") == fitted.top_words(kind="typical")
    assert again.choice_ == fitted.choice_
    folder = open_folder(tmp_path / "model")
    (answer,) = Filer(folder, n_words=2).file_texts(["gills and scales"])
    assert answer["label"] == "sea/fish"
    evaluation, _ = evaluate_folder(folder, Documents.from_texts(texts, labels))
    assert evaluation["scores"]["micro_f1"] == pytest.approx(fitted.score(texts, labels))
    io.save(fitted, tmp_path / "plain")
    np.testing.assert_array_equal(
        TextClassifier.load(tmp_path / "plain").predict(texts), fitted.predict(texts)
    )
    io.save(LtcVectorizer().fit(texts), tmp_path / "other")
    with pytest.raises(ValueError, match="holds no text classifier"):
        TextClassifier.load(tmp_path / "other")


def test_the_page_shows_it_with_and_without_texts(fitted):
    texts, labels = write(12, seed=3)
    assert model_content(fitted).kind == "classifier"
    content = model_content(fitted, texts, labels)
    assert content.evaluation["n_test"] == 12
    assert {node["name"] for node in content.nodes} >= set(WORDS)
    with pytest.raises(ValueError, match="topics over time"):
        fitted.content(texts, times=range(12))
