"""Deciding words in a text: stems, phrases, and characters that are not words."""

from arbora.app.answers import mark_words
from arbora.text import LtcVectorizer


def marked(text, words, vectorizer):
    spans = mark_words(text, words, list(vectorizer.get_feature_names_out()), vectorizer)
    return [text[start:end] for start, end, _ in spans]


def test_every_form_of_a_stem_is_marked():
    vectorizer = LtcVectorizer().fit(["trading trades", "sailing boats"])
    name = next(name for name in vectorizer.get_feature_names_out() if name.startswith("trad"))
    text = "🚢 Traded, trading - the boats' trades"
    assert marked(text, [(name, 0.5)], vectorizer) == ["Traded", "trading", "trades"]


def test_a_phrase_is_marked_as_a_whole():
    vectorizer = LtcVectorizer(ngram_range=(1, 2)).fit(["interest rate", "interest rate", "rate of growth"])
    assert marked("the interest rate fell, interest grew", [("interest rate", 1.0)], vectorizer) == [
        "interest",
        "rate",
    ]


def test_unknown_words_and_empty_texts_have_no_marks():
    vectorizer = LtcVectorizer().fit(["fish swim", "old trees"])
    assert marked("", [("fish", 1.0)], vectorizer) == []
    assert marked("birds fly", [("fish", 1.0)], vectorizer) == []
    assert marked("fish", [("no such column", 1.0)], vectorizer) == []
