"""LtcVectorizer against closed forms, scikit-learn, invariances and the estimator contract."""

import json
import lzma
import pickle
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags

from arbora.text import ENGLISH_STOP_WORDS, LtcVectorizer

DOCUMENTS = [
    "The cat sat on the mat; the mat was red.",
    "Cats and dogs, dogs and cats: a dog's life.",
    "Neural networks learn. A neural network learned!",
    "",
    "Of the and to in",
    "The red network of cats, networks, networking",
]

WORDS = st.sampled_from(
    [
        "tree",
        "trees",
        "leaf",
        "leaves",
        "root",
        "roots",
        "the",
        "of",
        "café",
        "naïve",
        "b",
        "42",
        "Baum",
        "σοφός",
    ]
)
COLLECTIONS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), min_size=1, max_size=8).filter(
    lambda documents: any(word in document for document in documents for word in ("tree", "leaf", "root"))
)
ignore_zero_rows = pytest.mark.filterwarnings("ignore:every term occurs in all")


def closed_form(counts, smooth=False):
    """Write out (1 + log tf) log(N / df) with unit rows in dense float64."""
    counts = counts.toarray().astype(float)
    df = (counts > 0).sum(axis=0)
    idf = np.log((1 + len(counts)) / (1 + df)) + 1 if smooth else np.log(len(counts) / df)
    weights = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.where(norms > 0, norms, 1)


def by_term(vectorizer, X):
    """Return one {term: weight} for each row, free of the order of columns."""
    terms = np.array(list(vectorizer.vocabulary_), dtype=object)
    return [dict(zip(terms[row.indices], row.data, strict=True)) for row in map(X.getrow, range(X.shape[0]))]


def assert_same_rows(left, right):
    assert [row.keys() for row in left] == [row.keys() for row in right]
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose([a[t] for t in a], [b[t] for t in a], rtol=1e-5)


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("smooth", [False, True])
def test_equals_closed_form_on_counts_of_scikit_learn(ngram_range, smooth):
    counter = CountVectorizer(ngram_range=ngram_range)
    expected = closed_form(counter.fit_transform(DOCUMENTS), smooth)
    vectorizer = LtcVectorizer(
        stop_words=None, stem=None, ngram_range=ngram_range, smooth_idf=smooth, dtype=np.float64
    )
    X = vectorizer.fit_transform(DOCUMENTS)
    names = vectorizer.get_feature_names_out()
    assert sorted(names) == sorted(counter.get_feature_names_out())
    columns = [counter.vocabulary_[name] for name in names]
    np.testing.assert_allclose(X.toarray(), expected[:, columns], atol=1e-14)


@pytest.mark.parametrize("sublinear_tf", [True, False])
@pytest.mark.parametrize(
    "limits",
    [{}, {"min_df": 2}, {"min_df": 0.3}, {"max_df": 2}, {"max_df": 0.3}, {"min_df": 2, "max_df": 0.5}],
)
def test_smooth_form_equals_tfidf_vectorizer(sublinear_tf, limits):
    theirs = TfidfVectorizer(sublinear_tf=sublinear_tf, **limits)
    ours = LtcVectorizer(
        stop_words=None, stem=None, smooth_idf=True, sublinear_tf=sublinear_tf, dtype=np.float64, **limits
    )
    expected = theirs.fit_transform(DOCUMENTS)
    np.testing.assert_allclose(ours.fit_transform(DOCUMENTS).toarray(), expected.toarray(), atol=1e-14)
    assert ours.vocabulary_ == theirs.vocabulary_
    unseen = ["cat cat cat", "the unknown", ""]
    np.testing.assert_allclose(
        ours.transform(unseen).toarray(), theirs.transform(unseen).toarray(), atol=1e-14
    )


def test_stemmed_counts_equal_scikit_learn_with_our_analyzer():
    vectorizer = LtcVectorizer(ngram_range=(1, 2), dtype=np.float64)
    X = vectorizer.fit_transform(DOCUMENTS)
    counter = CountVectorizer(analyzer=vectorizer.build_analyzer(), vocabulary=vectorizer.vocabulary_)
    np.testing.assert_allclose(X.toarray(), closed_form(counter.fit_transform(DOCUMENTS)), atol=1e-14)
    assert set().union(*map(vectorizer.analyze, DOCUMENTS)) == set(vectorizer.vocabulary_)


def test_term_in_every_document_keeps_its_column_and_has_no_entry():
    vectorizer = LtcVectorizer()
    X = vectorizer.fit_transform(["common tree", "common leaf", "common"])
    column = vectorizer.vocabulary_["common"]
    assert vectorizer.idf_[column] == 0
    assert column not in X.indices
    assert X[2].nnz == 0
    assert np.all(X.data != 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float32"])
def test_output_is_canonical_csr_of_the_dtype(dtype):
    vectorizer = LtcVectorizer(ngram_range=(1, 3), dtype=dtype)
    for X in (vectorizer.fit_transform(DOCUMENTS), vectorizer.transform(DOCUMENTS)):
        assert sparse.issparse(X)
        assert X.format == "csr"
        assert X.dtype == np.dtype(dtype)
        fresh = sparse.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)
        assert fresh.has_canonical_format  # computed anew, not a cached flag
        assert np.all(X.data > 0)
    assert vectorizer.idf_.dtype == np.dtype(dtype)


def test_rows_without_known_terms_are_zero_and_valid():
    vectorizer = LtcVectorizer().fit(DOCUMENTS)
    X = vectorizer.transform(["zyzzyva", "", "the of", "cats"])
    assert np.diff(X.indptr).tolist() == [0, 0, 0, 1]
    assert np.isfinite(X.toarray()).all()
    assert vectorizer.transform([]).shape == (0, len(vectorizer.vocabulary_))


# ---------------------------------------------------------------- invariances


@ignore_zero_rows
@settings(max_examples=30, deadline=None)
@given(COLLECTIONS, st.randoms(use_true_random=False), st.sampled_from([(1, 1), (1, 2), (2, 2)]))
def test_permuting_documents_permutes_rows(documents, random, ngram_range):
    documents = [*documents, "tree leaf"]
    order = list(range(len(documents)))
    random.shuffle(order)
    first, second = LtcVectorizer(ngram_range=ngram_range), LtcVectorizer(ngram_range=ngram_range)
    X = first.fit_transform(documents)
    Y = second.fit_transform([documents[i] for i in order])
    assert first.vocabulary_ == second.vocabulary_
    assert first.feature_names_ == second.feature_names_
    assert (X[order] != Y).nnz == 0


@ignore_zero_rows
@settings(max_examples=30, deadline=None)
@given(COLLECTIONS)
def test_duplicating_the_collection_changes_nothing(documents):
    once, twice = LtcVectorizer(dtype=np.float64), LtcVectorizer(dtype=np.float64)
    X, Y = once.fit_transform(documents), twice.fit_transform(documents * 2)
    assert once.feature_names_ == twice.feature_names_
    np.testing.assert_allclose(sparse.vstack([X, X]).toarray(), Y.toarray(), atol=1e-15)


@ignore_zero_rows
@settings(max_examples=30, deadline=None)
@given(COLLECTIONS, st.sampled_from([(1, 1), (1, 3)]), st.sampled_from([None, "english", "german"]))
def test_rows_have_norm_one_or_zero_and_transform_repeats_fit_transform(documents, ngram_range, stem):
    vectorizer = LtcVectorizer(ngram_range=ngram_range, stem=stem)
    X = vectorizer.fit_transform(documents)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    np.testing.assert_allclose(norms, np.diff(X.indptr) > 0, atol=1e-6)
    assert (vectorizer.transform(documents) != X).nnz == 0
    assert (clone(vectorizer).fit(iter(documents)).transform(tuple(documents)) != X).nnz == 0


@settings(max_examples=30, deadline=None)
@given(COLLECTIONS)
def test_renaming_words_renames_features_only(documents):
    swap = str.maketrans({"t": "v", "v": "t"})
    plain, renamed = (LtcVectorizer(stop_words=None, stem=None, smooth_idf=True) for _ in range(2))
    left = by_term(plain, plain.fit_transform(documents))
    right = by_term(renamed, renamed.fit_transform([document.translate(swap) for document in documents]))
    assert_same_rows([{t.translate(swap): w for t, w in row.items()} for row in left], right)


# ---------------------------------------------------------------- vocabulary


def test_names_are_the_commonest_form_and_ties_go_to_the_alphabet():
    documents = ["connection connected connected", "connecting", "running runs", "x1"]
    vectorizer = LtcVectorizer().fit(documents)
    names = dict(zip(vectorizer.vocabulary_, vectorizer.get_feature_names_out(), strict=True))
    assert names == {"connect": "connected", "run": "running", "x1": "x1"}


def test_names_of_ngrams_are_forms_that_were_written():
    documents = ["machine learning machine learning", "machines learn", "learned learned learned", "machines"]
    vectorizer = LtcVectorizer(ngram_range=(1, 2)).fit(documents)
    names = dict(zip(vectorizer.vocabulary_, vectorizer.feature_names_, strict=True))
    assert names["learn"] == "learned"
    assert names["machin learn"] == "machine learning"  # not "machine learned", which nobody wrote


@settings(max_examples=30, deadline=None)
@given(COLLECTIONS)
def test_names_by_brute_force(documents):
    vectorizer = LtcVectorizer(ngram_range=(1, 2), smooth_idf=True).fit(documents)
    stem = vectorizer.build_analyzer()
    unstemmed = clone(vectorizer).set_params(stem=None).build_analyzer()
    forms: dict[str, Counter] = {}
    for document in documents:
        for term, form in zip(stem(document), unstemmed(document), strict=True):
            forms.setdefault(term, Counter())[form] += 1
    best = {term: min(count, key=lambda form: (-count[form], form)) for term, count in forms.items()}
    assert dict(zip(vectorizer.vocabulary_, vectorizer.feature_names_, strict=True)) == best


def test_names_are_unique_and_in_step_with_the_columns():
    vectorizer = LtcVectorizer(ngram_range=(1, 3), min_df=1, max_features=12).fit(DOCUMENTS)
    names = vectorizer.get_feature_names_out()
    assert names.dtype == object
    assert len(set(names)) == len(names) == 12
    assert list(vectorizer.vocabulary_.values()) == list(range(12))
    for name, column in zip(names, range(12), strict=True):
        assert vectorizer.transform([name])[0, column] > 0


def test_max_features_keeps_the_most_frequent_and_breaks_ties_by_alphabet():
    documents = ["ccc ccc bbb aaa", "ccc ddd eee"]
    for n, expected in ((1, ["ccc"]), (3, ["aaa", "bbb", "ccc"]), (9, ["aaa", "bbb", "ccc", "ddd", "eee"])):
        assert LtcVectorizer(max_features=n, smooth_idf=True).fit(documents).feature_names_ == expected


def test_given_vocabulary_sets_the_columns():
    vectorizer = LtcVectorizer(
        vocabulary=["Networks", "neural network", "unicorn", "cat"], ngram_range=(1, 2)
    )
    X = vectorizer.fit_transform(DOCUMENTS)
    assert vectorizer.get_feature_names_out().tolist() == ["Networks", "neural network", "unicorn", "cat"]
    learned = LtcVectorizer(ngram_range=(1, 2)).fit(DOCUMENTS)
    columns = [learned.vocabulary_[term] for term in ("network", "neural network", "cat")]
    np.testing.assert_array_equal(vectorizer.idf_[[0, 1, 3]], learned.idf_[columns])
    assert vectorizer.idf_[2] == np.float32(np.log(len(DOCUMENTS)))
    assert X.has_canonical_format
    np.testing.assert_array_equal(vectorizer.transform(["a unicorn"]).toarray(), [[0, 0, 1, 0]])


def test_inverse_transform_gives_back_the_names():
    vectorizer = LtcVectorizer()
    X = vectorizer.fit_transform(["red trees", "", "blue leaves and red leaves"])
    expected = [["red", "trees"], [], ["blue", "leaves", "red"]]
    assert [row.tolist() for row in vectorizer.inverse_transform(X)] == expected
    assert [row.tolist() for row in vectorizer.inverse_transform(X.toarray())] == expected
    with pytest.raises(ValueError, match="has 1 columns, the vocabulary has 4"):
        vectorizer.inverse_transform(X[:, :1])


# ---------------------------------------------------------------- estimator contract


@pytest.mark.parametrize(
    "name",
    [
        # check_estimator skips estimators of text; these are its checks that need no numeric data
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_estimators_unfitted",
        "check_get_params_invariance",
        "check_mixin_order",
        "check_no_attributes_set_in_init",
        "check_param_validation",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_transformers_unfitted",
        "check_valid_tag_types",
    ],
)
def test_scikit_learn_checks(name):
    getattr(estimator_checks, name)("LtcVectorizer", LtcVectorizer())


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_tags_say_text_and_check_estimator_passes():
    tags = get_tags(LtcVectorizer())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    estimator_checks.check_estimator(LtcVectorizer())


def test_pipeline_and_grid_search():
    texts = ["red tree", "green trees", "blue tree leaf", "loud dog", "dogs bark", "the dog barks"] * 3
    labels = (["plant"] * 3 + ["animal"] * 3) * 3
    search = GridSearchCV(
        make_pipeline(LtcVectorizer(), LogisticRegression()),
        {"ltcvectorizer__stem": [None, "english"], "ltcvectorizer__ngram_range": [(1, 1), (1, 2)]},
        cv=3,
    ).fit(texts, labels)
    assert search.predict(["trees and leaves", "barking dogs"]).tolist() == ["plant", "animal"]
    assert "dog" in search.best_estimator_[:-1].get_feature_names_out()


def test_fit_leaves_parameters_alone_and_state_is_plain():
    vectorizer = LtcVectorizer(stop_words=["The"], ngram_range=[1, 2], vocabulary=None)
    before = {name: repr(value) for name, value in vectorizer.get_params().items()}
    vectorizer.fit(DOCUMENTS)
    assert {name: repr(value) for name, value in vectorizer.get_params().items()} == before
    state = set(vars(vectorizer)) - set(before)
    assert state == {"vocabulary_", "feature_names_", "idf_", "character_grams_"}
    assert json.loads(json.dumps(vectorizer.vocabulary_)) == vectorizer.vocabulary_
    assert {type(name) for name in vectorizer.feature_names_} == {str}
    assert {type(column) for column in vectorizer.vocabulary_.values()} == {int}


def test_state_alone_restores_the_vectorizer():
    fitted = LtcVectorizer(ngram_range=(1, 2)).fit(DOCUMENTS)
    restored = LtcVectorizer(**fitted.get_params())
    for name in ("vocabulary_", "feature_names_", "idf_", "character_grams_"):
        setattr(restored, name, getattr(fitted, name))
    pickled = pickle.loads(pickle.dumps(fitted))
    for other in (restored, pickled):
        assert (fitted.transform(DOCUMENTS) != other.transform(DOCUMENTS)).nnz == 0


def test_not_fitted():
    for call in (lambda v: v.transform(["a"]), lambda v: v.get_feature_names_out()):
        with pytest.raises(NotFittedError):
            call(LtcVectorizer())


# ---------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        (b"bytes", "decode"),
        (None, "missing"),
        (float("nan"), "missing"),
        (np.float32("nan"), "missing"),
        (pd.NA, "missing"),
        (3, "convert"),
        (["a"], "convert"),
        (np.array(["a", "b"]), "convert"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "fit_transform", "transform"])
def test_items_that_are_not_text_are_named_by_row(bad, hint, method):
    vectorizer = LtcVectorizer().fit(DOCUMENTS)
    with pytest.raises(TypeError, match=rf"document 2 is .* not str: .*{hint}"):
        getattr(vectorizer, method)(["fine", "fine too", bad])


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        ("one text", ValueError, "not a single str"),
        (b"bytes", ValueError, "not a single bytes"),
        (7, TypeError, "not int"),
        (np.array([["a table"]], dtype=object), ValueError, r"table of shape \(1, 1\)"),
        (pd.DataFrame({"text": ["a table"]}), ValueError, "pass its column of texts"),
        ({"first": "a text"}, ValueError, r"pass its values\(\)"),
        (sparse.csr_matrix((2, 2)), ValueError, "table"),
        ([], ValueError, "no documents"),
        (["", "the of"], ValueError, "empty vocabulary"),
    ],
)
def test_collections_that_cannot_be_used(documents, error, message):
    with pytest.raises(error, match=message):
        LtcVectorizer().fit(documents)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"stem": "englsh"}, "did you mean 'english'"),
        ({"stem": "zz"}, "known: None, "),
        ({"stem": 3}, "'stem' parameter"),
        ({"stop_words": "german"}, "'stop_words' parameter"),
        ({"ngram_range": (2, 1)}, "min_n <= max_n"),
        ({"ngram_range": (0, 1)}, "min_n <= max_n"),
        ({"ngram_range": (1, 1.5)}, "two integers"),
        ({"ngram_range": (1,)}, "two integers"),
        ({"min_df": 0}, "'min_df' parameter"),
        ({"max_df": 1.5}, "'max_df' parameter"),
        ({"min_df": 5, "max_df": 2}, "fewer documents"),
        ({"min_df": 6}, "after pruning"),
        ({"max_features": 0}, "'max_features' parameter"),
        ({"strip_accents": "utf"}, "'strip_accents' parameter"),
        ({"token_pattern": "("}, "not a regular expression"),
        ({"token_pattern": "(a)(b)"}, "2 capturing groups"),
        (
            {"token_pattern": r"[^,]+", "ngram_range": (1, 2), "stop_words": None},
            "indistinguishable from an n-gram",
        ),
        ({"dtype": np.int64}, "dtype must be"),
        ({"vocabulary": []}, "vocabulary is empty"),
        ({"vocabulary": ["cat", "the"]}, r"vocabulary\[1\] is 'the', which has 0 terms"),
        (
            {"vocabulary": ["cat", "dog", "cats"]},
            r"vocabulary\[2\] is 'cats', the same term 'cat' as vocabulary\[0\]",
        ),
    ],
)
def test_bad_parameters_raise_at_fit(parameters, message):
    vectorizer = LtcVectorizer(**parameters)  # __init__ only stores
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(DOCUMENTS)
    assert not hasattr(vectorizer, "vocabulary_")


@pytest.mark.parametrize("parameters", [{"stop_words": ["a", 3]}, {"vocabulary": ["cat", 3]}])
def test_lists_of_words_must_hold_words(parameters):
    with pytest.raises(TypeError, match=r"\[1\] is 3"):
        LtcVectorizer(**parameters).fit(DOCUMENTS)


def test_collection_without_a_weight_warns():
    with pytest.warns(UserWarning, match="smooth_idf=True") as caught:
        vectorizer = LtcVectorizer().fit(["a lone document"])
    assert caught[0].filename == __file__
    assert vectorizer.transform(["a lone document"]).nnz == 0
    assert LtcVectorizer(smooth_idf=True).fit_transform(["a lone document"]).nnz == 2


def test_long_and_strange_documents():
    documents = ["word " * 100_000, "w" * 100_000, "\x00\x1f\u200b\ufeff", "🌳🌳 tree\ud800s", "tree"]
    vectorizer = LtcVectorizer()
    X = vectorizer.fit_transform(documents)
    assert vectorizer.feature_names_ == ["tree", "word", "w" * 100_000, "🌳"]
    np.testing.assert_allclose(X.multiply(X).sum(axis=1).ravel(), [[1, 1, 0, 1, 1]], atol=1e-6)


def test_lone_surrogates_inside_tokens_survive_stemming():
    vectorizer = LtcVectorizer(token_pattern=r"\S+").fit(["trees \ud800bad", "leaf"])
    assert vectorizer.transform(["tree"]).nnz == 1


def test_any_iterable_of_texts_is_accepted():
    expected = LtcVectorizer().fit_transform(DOCUMENTS)
    for documents in (tuple(DOCUMENTS), iter(DOCUMENTS), np.array(DOCUMENTS), pd.Series(DOCUMENTS)):
        assert (LtcVectorizer().fit_transform(documents) != expected).nnz == 0


def test_newsgroups_equal_scikit_learn(shared_data):
    path = shared_data / "classification" / "news20" / "test.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(1500), strict=False)]
    stop_words = sorted(ENGLISH_STOP_WORDS)
    theirs = TfidfVectorizer(stop_words=stop_words, sublinear_tf=True, min_df=2, dtype=np.float64)
    ours = LtcVectorizer(stem=None, smooth_idf=True, min_df=2, dtype=np.float64)
    X, expected = ours.fit_transform(texts), theirs.fit_transform(texts)
    assert ours.vocabulary_ == theirs.vocabulary_
    assert abs(X - expected).max() < 1e-12
