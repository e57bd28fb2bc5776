"""Words that are remembered from call to call: the same rows as without a memory, in bounded memory."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arbora.text.ltc as known_words
from arbora.text import LtcVectorizer
from arbora.text.counts import ltc_rows
from arbora.text.tokens import tokenize

DOCUMENTS = [
    "The trees of the sea",
    "a tree, two seas; Flüsse",
    "rivers run to the sea",
    "naïve café 北京 ok",
]
TEXTS = st.lists(
    st.text(st.sampled_from("tresa TRES,.é北\ud800\n_1")) | st.sampled_from(DOCUMENTS), max_size=5
)


def without_memory(vectorizer: LtcVectorizer, texts: list[str]) -> np.ndarray:
    rules = vectorizer._rules()
    counts = vectorizer._count_known(tokenize(texts, rules), rules)
    return ltc_rows(counts, vectorizer.idf_, vectorizer.sublinear_tf).toarray()


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from(["english", None]), st.sampled_from([r"(?u)\b\w\w+\b", r"\S+"]))
def test_the_rows_are_those_of_a_vectorizer_without_memory(texts, stem, pattern):
    vectorizer = LtcVectorizer(stem=stem, token_pattern=pattern).fit(DOCUMENTS)
    for _ in range(2):  # words are looked up, then remembered
        X = vectorizer.transform(texts)
        assert (X.has_sorted_indices, X.dtype) == (True, np.float32)
        np.testing.assert_array_equal(X.toarray(), without_memory(vectorizer, texts))


def test_few_words_are_remembered_and_long_ones_are_not(monkeypatch):
    monkeypatch.setattr(known_words, "_MAX_WORDS", 3)
    vectorizer = LtcVectorizer().fit(DOCUMENTS)
    texts = [" ".join(f"w{number} sea trees" for number in range(50)), "x" * 100 + " sea"]
    np.testing.assert_array_equal(vectorizer.transform(texts).toarray(), without_memory(vectorizer, texts))
    assert 0 < len(vectorizer._known_words) <= 3
    assert max(map(len, vectorizer._known_words)) < 100


@pytest.mark.parametrize("change", [{"stop_words": ["sea"]}, {"stem": None}, {"lowercase": False}])
def test_a_changed_parameter_takes_effect(change):
    vectorizer = LtcVectorizer().fit(DOCUMENTS)
    texts = ["the Sea and the seas, trees"]
    vectorizer.transform(texts)
    vectorizer.set_params(**change)
    np.testing.assert_array_equal(vectorizer.transform(texts).toarray(), without_memory(vectorizer, texts))


def test_another_fit_forgets_the_words():
    vectorizer = LtcVectorizer().fit(DOCUMENTS)
    vectorizer.transform(["sea tree"])
    vectorizer.fit(["sand", "sea dunes"])
    assert vectorizer.transform(["sea"]).nonzero()[1].tolist() == [vectorizer.vocabulary_["sea"]]


def test_a_pickle_has_no_remembered_words():
    vectorizer = LtcVectorizer().fit(DOCUMENTS)
    before = len(pickle.dumps(vectorizer))
    vectorizer.transform([f"w{number}" for number in range(1000)])
    assert len(pickle.dumps(vectorizer)) == before
    assert pickle.loads(pickle.dumps(vectorizer)).transform(["sea"]).nnz == 1
