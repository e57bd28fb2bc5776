"""Words and phrases for display: forms within a group, phrases that stick together, siblings that differ."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.app.contents.words import forms_of, group_forms, term_scores, typical_members, typical_words
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


def test_forms_of_a_term_in_one_document_count_as_one_document():
    texts = ["tree trees sea", "trees sea", "wind"]
    groups = group_forms(forms_of(texts, None, (), LtcVectorizer().fit(texts)), np.ones((3, 1)))
    shares = dict(typical_words(groups, 5)[0])
    assert shares["trees"] == pytest.approx(2 / 3) == shares["sea"]


def test_a_group_without_common_words_has_a_short_list():
    texts = [f"blah {chr(97 + k // 2)}zq" for k in range(50)] + ["tree leaf"] * 50
    labels = [0] * 50 + [1] * 50
    assert grouped(texts, labels, phrases=False)[0] == ["blah"]
    assert len(grouped(texts, labels, phrases=False, min_share=0.0)[0]) > 5
    assert len(grouped([f"{chr(97 + k // 2)}zq" for k in range(50)], [0] * 50)[0]) > 5  # none is common


def test_phrases_with_a_common_word_are_not_listed_together():
    texts = [f"new york city {k}" for k in "abcdefgh"] + [f"green tree {k}" for k in "ijklmnop"]
    words = grouped(texts, [0] * 8 + [1] * 8, n_words=5)
    assert sum("york" in word for word in words[0]) == 1


def test_typical_documents_count_more():
    rng = np.random.default_rng(0)
    X = sp.csr_array(np.abs(rng.standard_normal((30, 5))))
    labels, means = np.append(rng.integers(2, size=28), [-1, 2]), rng.standard_normal((3, 5))
    means[2] = -1  # the only document of topic 2 is not along it
    result = typical_members(X, labels, means).toarray()
    rows, unit = X.toarray(), means / np.linalg.norm(means, axis=1, keepdims=True)
    for k in (0, 1):
        cosine = np.maximum(rows @ unit[k] / np.linalg.norm(rows, axis=1), 0)[labels == k]
        np.testing.assert_allclose(result[labels == k, k], cosine**2 / np.mean(cosine**2))
        assert not result[labels != k, k].any()
    assert result[labels == 2, 2] == [1.0]
