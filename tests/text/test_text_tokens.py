"""Tokens, stop words, accents and stemmers."""

import re

import numpy as np
import pytest
import Stemmer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

import arbora.text.tokens
from arbora.text import ENGLISH_STOP_WORDS, LtcVectorizer
from arbora.text.tokens import TOKEN_PATTERN, make_rules, stems_of_document, tokenize


def rules(**changes):
    defaults = {
        "lowercase": True,
        "strip_accents": None,
        "token_pattern": TOKEN_PATTERN,
        "stop_words": None,
        "stem": None,
    }
    return make_rules(**(defaults | changes))


def written(tokens):
    """Return the words of each document."""
    words = [tokens.words[i] for i in tokens.ids]
    return [words[start:end] for start, end in zip(tokens.indptr[:-1], tokens.indptr[1:], strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.text(st.characters(max_codepoint=127)), st.text("ab_ 1-é\n", max_size=30)))
@example("".join(map(chr, range(128))))
@example("a bb a_ _ __ 1 22 don't x\x1cyy\x85zz")
def test_fast_split_equals_the_regular_expression(text):
    assert stems_of_document(text, rules(lowercase=False)) == re.findall(TOKEN_PATTERN, text)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.text(max_size=40), max_size=6),
    st.sampled_from([None, "ascii", "unicode"]),
    st.booleans(),
    st.sampled_from([TOKEN_PATTERN, r"\w+", r"[a-z](\w+)"]),
)
def test_words_equal_the_analyzer_of_scikit_learn(documents, strip_accents, lowercase, token_pattern):
    options = {"strip_accents": strip_accents, "lowercase": lowercase, "token_pattern": token_pattern}
    analyze = CountVectorizer(**options).build_analyzer()
    tokens = tokenize(documents, rules(**options))
    assert written(tokens) == [analyze(document) for document in documents]
    assert tokens.words == sorted(set(tokens.words))


def test_chunks_are_joined(monkeypatch):
    monkeypatch.setattr(arbora.text.tokens, "_CHUNK_TOKENS", 100)
    documents = ["the " + "ant bee " * 40, "", "cow", "the", "bee the " * 100, "", "ant"]
    tokens = tokenize(documents, rules(stop_words=["the"]))
    assert np.diff(tokens.indptr).tolist() == [2 * 40, 0, 1, 0, 100, 0, 1]
    assert written(tokens)[4:] == [["bee"] * 100, [], ["ant"]]


def test_documents_are_read_once_and_one_at_a_time():
    alive = []

    def read():
        for i in range(5):
            alive.append(i)
            yield f"document number{i}"

    vectorizer = LtcVectorizer()
    assert vectorizer.fit_transform(read()).shape == (5, 6)
    assert alive == list(range(5))


@pytest.mark.parametrize("language", Stemmer.algorithms())
def test_every_language_stems_each_word_as_its_stemmer_does(language):
    words = [
        "walking",
        "gehend",
        "marchant",
        "größeren",
        "книгами",
        "البيوت",
        "τρέχοντας",
        "corriendo",
        "evlerimizden",
    ]
    stemmer = Stemmer.Stemmer(language)
    expected = [stemmer.stemWord(word) or word for word in words]
    assert LtcVectorizer(stem=language, stop_words=None).analyze(" ".join(words)) == expected


def test_unseen_forms_of_known_stems_are_found():
    vectorizer = LtcVectorizer(stem="french", stop_words=["les", "des"])
    vectorizer.fit(["les chats marchaient", "des chiens"])
    assert vectorizer.transform(["le chat marchait"]).nnz == 2


def test_stop_words_are_matched_before_stemming():
    assert LtcVectorizer(stop_words=["cats"]).analyze("cat cats") == ["cat"]
    assert LtcVectorizer(stop_words=["thi"]).analyze("this") == ["this"]
    assert LtcVectorizer(stop_words=["doe"]).analyze("does") == ["doe"]


def test_stop_words_are_normalised_like_the_text():
    assert LtcVectorizer(stop_words=("The", "ÉTÉ"), strip_accents="unicode").analyze("the ete Été tree") == [
        "tree"
    ]
    assert LtcVectorizer(stop_words={"The"}, lowercase=False, stem=None).analyze("The the") == ["the"]


def test_stop_words_that_cannot_match_are_reported():
    with pytest.warns(UserWarning, match=r"\[\"don't\", 'new york'\] never match"):
        LtcVectorizer(stop_words=["don't", "New York", "the", "a"]).fit(["one tree", "trees"])


def test_english_list_is_made_of_function_words():
    assert {"the", "of", "and", "is", "which", "not", "because", "would"} <= ENGLISH_STOP_WORDS
    assert not {"system", "computer", "good", "time", "people", "government", "won"} & ENGLISH_STOP_WORDS
    assert all(re.fullmatch("[a-z]+", word) for word in ENGLISH_STOP_WORDS)
    assert LtcVectorizer().analyze("I don't think we'll ever see that they've been there") == ["think", "see"]


def test_ngrams_run_over_stop_words_and_stop_at_documents():
    vectorizer = LtcVectorizer(ngram_range=(2, 3))
    assert vectorizer.analyze("state of the art method") == ["state art", "art method", "state art method"]
    assert vectorizer.fit(["ant bee", "cow", "", "bee ant"]).feature_names_ == ["ant bee", "bee ant"]


def test_case_and_accents_can_be_kept_or_removed():
    text = "Café CAFÉ cafe"
    assert LtcVectorizer(stem=None).analyze(text) == ["café", "café", "cafe"]
    assert LtcVectorizer(stem=None, lowercase=False).analyze(text) == ["Café", "CAFÉ", "cafe"]
    assert LtcVectorizer(stem=None, strip_accents="ascii").analyze(text) == ["cafe"] * 3


def test_empty_tokens_are_not_words():
    assert LtcVectorizer(token_pattern=r"\w*", stop_words=None, stem=None).analyze("a, b") == ["a", "b"]
    assert LtcVectorizer(token_pattern=r"\w+", stop_words=None, stem=None).analyze("a, b") == ["a", "b"]


def test_analyze_requires_a_text():
    with pytest.raises(TypeError, match="not str"):
        LtcVectorizer().analyze(None)
