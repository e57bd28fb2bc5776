"""Words and phrases for display: forms within a group, phrases that stick together, siblings that differ."""

import numpy as np
import pytest

from arbora.app.contents.words import forms_of, group_forms, term_scores, typical_words
from arbora.text import LtcVectorizer
from arbora.text.phrases import find_forms


def grouped(texts, labels, **options):
    vectorizer = LtcVectorizer().fit(texts)
    forms = forms_of(texts, None, (), vectorizer)
    groups = group_forms(forms, np.eye(max(labels) + 1)[labels])
    return [[word for word, _ in words] for words in typical_words(groups, **options)]


@pytest.mark.parametrize("phrases", [True, False])
def test_forms_count_documents_not_occurrences(phrases):
    texts = ["Tree trees tree", "trees", "the sea"]
    forms = find_forms(texts, LtcVectorizer().fit(texts), phrases=phrases)
    assert forms.names == ["sea", "tree", "trees"]
    assert forms.terms.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(forms.documents.toarray(), [[0, 1, 1], [0, 0, 1], [1, 0, 0]])


def test_phrases_are_neighbours_that_stick_together():
    rng = np.random.default_rng(0)
    filler = [f"word{k}" for k in range(30)]
    texts = [
        " ".join([*rng.choice(filler, 5), "crude oil", *rng.choice(filler, 5), "bank of england"])
        for _ in range(40)
    ]
    names = find_forms(texts, LtcVectorizer(smooth_idf=True).fit(texts)).names
    assert "crude oil" in names
    assert not any(name.startswith("word") and " " in name for name in names)
    assert "bank england" not in names  # not neighbours: a stop word is between them


def test_the_form_is_the_commonest_in_the_group():
    """Excel and excellent have one stem."""
    texts = [
        "excel sheet",
        "excel table",
        "excel macro",
        "excellent food",
        "excellent wine",
        "excellent soup",
    ]
    assert [words[0] for words in grouped(texts, [0, 0, 0, 1, 1, 1])] == ["excel", "excellent"]


def test_siblings_show_different_words():
    texts = ["bank rate loan"] * 6 + ["bank river water"] * 6 + ["bank rate loan river water sand"] * 2
    words = grouped(texts, [0] * 6 + [1] * 6 + [1] * 2, n_words=4)
    assert "rate" not in words[1]
    assert "river" not in words[0]


def test_a_word_inside_a_listed_phrase_is_not_repeated():
    texts = [f"crude oil price {k}" for k in "abcdefgh"] + [f"green tree {k}" for k in "ijklmnop"]
    words = grouped(texts, [0] * 8 + [1] * 8, n_words=5)
    assert "crude oil" in words[0]
    assert not {"crude", "oil"} & set(words[0])


def test_relevance_moves_from_common_to_exclusive_words():
    shares, everywhere = np.array([[0.9, 0.2]]), np.array([0.8, 0.05])
    assert term_scores(shares, everywhere, 1.0).argmax() == 0
    assert term_scores(shares, everywhere, 0.0).argmax() == 1
    assert np.isneginf(term_scores(np.array([[0.0]]), np.array([0.5]))[0, 0])


def test_numbers_are_not_listed_unless_there_is_nothing_else():
    assert grouped(["1987 oil 42", "1987 gas 43"], [0, 0]) == [["gas", "oil"]]
    assert grouped(["12 34", "12 56"], [0, 0])[0]
