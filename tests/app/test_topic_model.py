"""`TopicModel`: topics of raw texts, their words, edits, folders."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import arbora
from arbora import TopicModel, io
from arbora.app.contents.fitted_model import model_content
from arbora.app.documents import Documents
from arbora.app.filing import Filer
from arbora.app.folder import open_folder
from arbora.app.text_rows import TextOptions, text_language
from arbora.discover import VMFMixture
from arbora.text import LtcVectorizer

SUBJECTS = {
    name: words.split()
    for name, words in {
        "sea": "fish whales gills scales ships sails anchor captain harbour waves tide salt reef coral squid",
        "wood": "trees leaves bark roots moss oak birch fern squirrel owl acorn timber branch forest path",
        "bank": "money loans credit interest bonds shares market dollar broker dividend profit stock fund tax rate",
        "sky": "clouds rain storm thunder wind lightning sun moon stars comet orbit planet rocket pilot wing",
    }.items()
}
COMMON = ("the", "and", "of", "to", "in", "is", "that", "it", "was", "for")


def write(n, seed, length=14):
    """Texts of a subject: two thirds words of it, some of the others, and stop words."""
    rng, texts, subjects = np.random.default_rng(seed), [], []
    everything = [word for words in SUBJECTS.values() for word in words]
    for number in range(n):
        subject = list(SUBJECTS)[number % len(SUBJECTS)]
        subject_words, other = (
            rng.choice(SUBJECTS[subject], 2 * length // 3),
            rng.choice(everything, length // 3),
        )
        words = rng.permutation([*subject_words, *other, *rng.choice(COMMON, length // 2)])
        texts.append(" ".join(words))
        subjects.append(subject)
    return texts, subjects


@pytest.fixture(scope="module")
def collection():
    return write(320, 0)


@pytest.fixture(scope="module")
def fitted(collection):
    return TopicModel(4).fit(collection[0])


def subject_of(words):
    """The subject that most words belong to, and their number."""
    counts = {name: len(set(words) & set(subject_words)) for name, subject_words in SUBJECTS.items()}
    return max(counts.items(), key=lambda pair: pair[1])


def test_the_number_of_topics_is_found_and_explained(collection):
    model = TopicModel(n_jobs=1).fit(collection[0])
    assert 3 <= model.n_topics_ <= 6
    curve = model.n_topics_curve_
    assert curve["criterion"] == "halves"
    assert model.n_topics_ in curve["n_topics"].tolist()
    assert len(curve["n_topics"]) == len(curve["score"])
    assert set(model.seconds_) == {"features", "topics", "words"}
    assert adjusted_rand_score(collection[1], model.labels_) > 0.6


def test_words_that_two_topics_share_divide_the_probability():
    rng = np.random.default_rng(0)
    shared = ["bank", "rate", "interest", "loan", "money", "credit", "market", "dollar"]
    subject_words = (
        ["fed", "reserves", "repurchase", "liquidity", "treasury", "system", "drain", "federal"],
        ["mortgage", "house", "buyer", "home", "property", "estate", "builder", "tenant"],
    )
    other = ["wheat", "corn", "grain", "harvest", "farm", "crop", "tonnes", "export"]

    def text(words, n=7):
        return " ".join(rng.choice(words, n))

    texts = [f"{text(subject_words[k])} {text(shared)}" for k in range(2) for _ in range(80)]
    texts += [text(other, 14) for _ in range(80)]
    model = TopicModel(3, n_jobs=1).fit(texts)
    fed, house, wheat = model.predict(
        ["fed reserves treasury drain", "mortgage house tenant", "wheat corn grain"]
    )
    assert len({fed, house, wheat}) == 3
    vague, clear = model.predict_proba(["bank rate", "fed reserves repurchase liquidity treasury"])
    assert min(vague[fed], vague[house]) > 0.1
    assert vague[wheat] < min(vague[fed], vague[house])
    assert clear[fed] > vague.max()


def test_annealing_makes_the_topics_depend_less_on_the_seed():
    texts = write(400, 3, length=9)[0]
    rows = LtcVectorizer(stem="english", min_df=2).fit_transform(texts)
    bounds = {
        init: [
            VMFMixture(8, init=init, calibration=None, random_state=seed).fit(rows).lower_bounds_[-1]
            for seed in range(4)
        ]
        for init in ("annealed", "k-means++")
    }
    assert np.mean(bounds["annealed"]) > np.mean(bounds["k-means++"])
    assert TopicModel(8).make_estimator().init == "annealed"


def test_numbers_are_no_words_of_topics():
    texts = [
        "73d congress 1933 law",
        "73d congress vote 1934",
        "3d print plastic 12mm",
        "3d print shape 12mm",
    ] * 5
    words = [word for topic in TopicModel(2, n_jobs=1).fit(texts).top_words(phrases=False) for word in topic]
    assert {"congress", "3d"} <= set(words)
    assert not {"73d", "1933", "1934", "12mm"} & set(words)


def test_topics_have_the_words_of_their_subject_and_no_other_topic_has_them(fitted):
    words = fitted.top_words(8, phrases=False)
    assert [len(some) for some in words] == [8] * 4
    matches = [subject_of(some) for some in words]
    assert sorted(name for name, _ in matches) == sorted(SUBJECTS)
    assert min(count for _, count in matches) >= 7
    assert len({word for some in words for word in some}) == 32


def test_prediction_of_new_and_unknown_texts(collection, fitted):
    texts, subjects = write(60, 1)
    labels = fitted.predict([*texts, "xyzzy", "", None])
    assert labels.dtype.kind == "i"
    assert labels[-3:].tolist() == [-1, -1, -1]
    assert adjusted_rand_score(subjects, labels[:-3]) > 0.8
    proba = fitted.predict_proba([*texts, "xyzzy"])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba[:-1].argmax(axis=1), labels[:-3])
    np.testing.assert_allclose(proba[-1], fitted.estimator_.weights_)
    np.testing.assert_array_equal(fitted.transform(texts), proba[:-1])
    assert fitted.is_novel(["xyzzy"]).tolist() == [True]
    np.testing.assert_array_equal(fitted.predict(collection[0]), fitted.labels_)


def test_texts_without_known_words_are_counted(collection):
    model = TopicModel(4).fit([*collection[0], "the and of", ""])
    assert model.n_unknown_ == 2
    assert model.labels_[-2:].tolist() == [-1, -1]
    with pytest.raises(ValueError, match="not a single text"):
        model.predict("one text")


def test_it_works_at_the_end_of_a_pipeline(collection):
    model = make_pipeline(FunctionTransformer(lambda texts: [text.upper() for text in texts]), TopicModel(4))
    assert len(set(model.fit_predict(collection[0]))) == 4


@pytest.mark.parametrize("kind", ["bayes", "k-means"])
def test_other_models_of_flat_topics(collection, kind):
    model = TopicModel(model=kind).fit(collection[0])
    assert model.n_topics_curve_["criterion"] == "halves"
    assert adjusted_rand_score(collection[1], model.predict(collection[0])) > 0.6
    np.testing.assert_allclose(model.predict_proba(collection[0]).sum(axis=1), 1.0)


def test_wrong_parameters_are_refused_with_advice(collection):
    for options, problem in (
        ({"n_topics": 0}, "n_topics must be"),
        ({"n_topics": "many"}, "n_topics must be"),
        ({"n_topics": (2, 2), "over_time": True}, "cannot be combined"),
        ({"model": "lda"}, "model must be one of"),
        ({"over_time": True}, "times"),
    ):
        with pytest.raises(ValueError, match=problem):
            TopicModel(**options).fit(collection[0])
    with pytest.raises(ValueError, match="over_time=True"):
        TopicModel(2).fit(collection[0], times=range(320))


def test_features_are_chosen_or_given(collection):
    assert text_language(collection[0]) == "english"
    assert text_language(["der die das und nicht ein Baum"] * 5) == "none"
    vectorizer = LtcVectorizer(stop_words=None, stem=None, min_df=3)
    model = TopicModel(2, features=vectorizer).fit(collection[0])
    assert model.vectorizer_ is not vectorizer
    assert model.vectorizer_.min_df == 3
    assert TopicModel(2, features=TextOptions("none")).fit(collection[0]).vectorizer_.stem is None


# --- edits --------------------------------------------------------------------------------------------------------


def test_merging_adds_probabilities_and_words(collection, fitted):
    before = fitted.predict_proba(collection[0])
    model = TopicModel(4).fit(collection[0]).rename(3, "last").rename(0, "first").merge([2, 0])
    assert model.n_topics_ == 3
    after = model.predict_proba(collection[0])
    np.testing.assert_allclose(after[:, 0], before[:, 0] + before[:, 2])
    np.testing.assert_allclose(after[:, 1:], before[:, [1, 3]])
    subjects = {subject_of(fitted.top_words()[k])[0] for k in (0, 2)}
    merged = model.top_words(20, phrases=False)[0]
    assert all(len(set(merged) & set(SUBJECTS[name])) >= 5 for name in subjects)
    assert model.titles()[2] == "last"
    assert "first" not in model.titles()
    np.testing.assert_allclose(model.undo().predict_proba(collection[0]), before)


def test_splitting_divides_a_topic_by_its_documents(collection):
    texts, subjects = collection
    model = TopicModel(2).fit(texts)
    before = model.predict_proba(texts)
    pair = [sorted({s for s, z in zip(subjects, model.labels_, strict=True) if z == k}) for k in (0, 1)]
    whole = int(len(pair[1]) > len(pair[0]))
    model.split(whole, texts, 2)
    assert model.n_topics_ == 3
    after = model.predict_proba(texts)
    np.testing.assert_allclose(after[:, whole] + after[:, whole + 1], before[:, whole])
    split = model.top_words(6, phrases=False)[whole : whole + 2]
    assert subject_of(split[0])[0] != subject_of(split[1])[0]
    assert adjusted_rand_score(subjects, model.predict(texts)) > adjusted_rand_score(
        subjects, before.argmax(1)
    )
    with pytest.raises(ValueError, match="a split needs two of each"):
        model.split(0, ["xyzzy"])


def test_reducing_joins_the_halves_of_a_subject(collection):
    texts, subjects = collection
    model = TopicModel(8).fit(texts)
    assert model.n_topics_ == 8
    assert adjusted_rand_score(subjects, model.reduce_to(4).predict(texts)) > 0.8
    with pytest.raises(ValueError, match="from 1 to 4"):
        model.reduce_to(5)


def test_wrong_edits_are_refused(fitted):
    for edit, problem in (
        (lambda: fitted.merge([1, 1]), "two different topics"),
        (lambda: fitted.merge([0, 4]), "from 0 to 3"),
        (lambda: fitted.rename(-1, "x"), "from 0 to 3"),
        (fitted.undo, "nothing|no merge"),
    ):
        with pytest.raises(ValueError, match=problem):
            edit()


def test_trees_are_edited_too(collection):
    texts, _ = collection
    model = TopicModel((2, 2)).fit(texts)
    before = model.n_topics_
    assert before >= 3
    model.merge([0, 1]).split(1, texts)
    assert model.n_topics_ == before
    content = model.content(texts)
    assert content.kind == "topic tree"
    leaves = [node for node in content.nodes if node["own"]]
    assert len(leaves) == before
    assert sum(node["own"] for node in content.nodes) == len(texts)
    np.testing.assert_allclose(model.topics_.predict_node_proba(model.rows(texts))[:, 0], 1.0)


# --- time, folders ------------------------------------------------------------------------------------------------


def test_topics_over_time_have_bins_and_can_be_merged(collection, tmp_path):
    texts, _ = collection
    years = 1990 + np.arange(len(texts)) // 80
    model = TopicModel(4, over_time=True).fit(texts, times=years)
    assert model.estimator_.times_.tolist() == [1990, 1991, 1992, 1993]
    assert model.predict(texts, times=years).shape == (320,)
    model.merge([0, 1])
    content = model.content(texts, times=years)
    assert content.kind == "topics over time"
    assert len(content.time["shares"]) == 3
    np.testing.assert_allclose(np.sum(content.time["shares"], axis=0), 1.0, atol=1e-3)
    model.save(tmp_path / "m", texts, times=years)
    np.testing.assert_array_equal(TopicModel.load(tmp_path / "m").predict(texts), model.predict(texts))
    with pytest.raises(ValueError, match="cannot be split"):
        model.split(0, texts)


def test_edits_are_kept_in_folders_and_files(collection, tmp_path):
    texts, _ = collection
    model = TopicModel(4).fit(texts).merge([0, 1]).split(1, texts).rename(0, "both")
    model.save(tmp_path / "folder", texts)
    io.save(model, tmp_path / "file")
    for name in ("folder", "file"):
        loaded = TopicModel.load(tmp_path / name)
        np.testing.assert_array_equal(loaded.predict_proba(texts), model.predict_proba(texts))
        assert loaded.top_words() == model.top_words()
        assert loaded.titles() == model.titles()
        assert loaded.undo().n_topics_ == 3
    folder = open_folder(tmp_path / "folder")
    assert [node["title"] for node in folder.nodes][1] == "both"
    answers = Filer(folder, n_words=3).file_texts([texts[0], "xyzzy"])
    assert int(answers[0]["topic"]) == model.predict(texts[:1])[0]
    assert "note" in answers[1]
    size = sum(path.stat().st_size for path in (tmp_path / "folder").rglob("*") if path.is_file())
    plain = tmp_path / "plain"
    TopicModel(4).fit(texts).save(plain, texts)
    assert size < 2 * sum(path.stat().st_size for path in plain.rglob("*") if path.is_file())
    io.save(LtcVectorizer().fit(texts), tmp_path / "other")
    with pytest.raises(ValueError, match="holds no topic model"):
        TopicModel.load(tmp_path / "other")


def test_the_page_shows_texts_or_words_alone(collection, fitted):
    content = model_content(fitted, collection[0])
    assert content.about["n_documents"] == 320
    sizes = [node["size"] for node in content.nodes[1:]]
    assert sizes == np.bincount(fitted.labels_).tolist()
    words = [[word for word, _ in node["words"]] for node in content.nodes[1:]]
    assert words == fitted.top_words(12)
    assert len(model_content(fitted).nodes) == 5


def test_rows_of_numbers_have_topics_too():
    X = np.kron(np.eye(3), np.ones((20, 6))) + 0.01
    documents = Documents("rows", [str(k) for k in range(60)], None, [(None, None)] * 60, X=X)
    model = TopicModel(3).fit(documents)
    assert model.vectorizer_ is None
    assert len(set(model.labels_.tolist())) == 3


def test_it_is_exported_from_the_top():
    assert arbora.TopicModel is TopicModel
    assert "TopicModel" in dir(arbora)


@pytest.mark.parametrize("options", [{"n_topics": (2, 2)}, {"n_topics": 4, "over_time": 2}], ids=str)
def test_no_topic_of_a_tree_or_over_time_is_broader_than_the_others(collection, options):
    texts, _ = collection
    model = TopicModel(n_jobs=1, **options).fit(
        texts, times=np.arange(len(texts)) if "over_time" in options else None
    )
    kappa = model.estimator_.concentrations_
    kappa = kappa[model.estimator_.leaf_ids_] if hasattr(model.estimator_, "leaf_ids_") else kappa
    np.testing.assert_allclose(kappa, kappa.flat[0])
