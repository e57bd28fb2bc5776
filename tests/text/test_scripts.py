"""Scripts without spaces, emoji, combining marks, and the script of a language."""

import numpy as np
import pytest

from arbora.text import LtcVectorizer
from arbora.text.languages import script_warning, split_any_script, without_spaces
from arbora.text.terms import grams_of_words


def test_text_without_spaces_is_cut_into_n_grams():
    assert split_any_script("我爱机器学习") == [*"我爱机器学习", "我爱", "爱机", "机器", "器学", "学习"]
    assert split_any_script("a 手 ok", min_length=1) == ["a", "手", "ok"]
    assert split_any_script("iPhone手机 ok") == ["iPhone", "手", "机", "手机", "ok"]
    assert "ภา" in split_any_script("ภาษาไทย")
    X = LtcVectorizer().fit_transform(["机器学习很好", "学习机器", "天气很好", "今天天气"])
    similar = (X @ X.T).toarray()
    assert similar[0, 1] > similar[0, 3]


def test_emoji_are_tokens_with_their_modifiers():
    assert split_any_script("great 👍🏽 🎉🎉!") == ["great", "👍🏽", "🎉", "🎉"]
    assert split_any_script("👨‍👩‍👧 🇫🇷 ❤️") == ["👨‍👩‍👧", "🇫🇷", "❤️"]
    assert "😀" in LtcVectorizer().fit(["good 😀", "bad 😡"]).vocabulary_


def test_combining_marks_stay_in_their_word():
    assert split_any_script("हिन्दी में किताबें") == ["हिन्दी", "में", "किताबें"]
    assert split_any_script("e\u0301te\u0301 x") == ["e\u0301te\u0301"]


@pytest.mark.parametrize("text", ["naïve Café", "straße 3x über", "русский язык", "ελληνικά 12", "x\u00e9"])
def test_spaced_scripts_split_as_in_scikit_learn(text):
    from sklearn.feature_extraction.text import TfidfVectorizer

    assert split_any_script(text.lower()) == TfidfVectorizer().build_analyzer()(text)


def test_a_script_that_does_not_fit_the_language_is_reported():
    assert "Cyrillic" in script_warning(["рыбы плавают в море"], "english")
    assert "Chinese" in script_warning(["鱼在海里"], "english")
    assert script_warning(["рыбы плавают"], "russian") is None
    assert script_warning(["Fische schwimmen über"], "german") is None
    assert script_warning(["рыбы"], "none") is None
    assert script_warning(["", "12"], "english") is None
    assert without_spaces(["鱼在海里"])
    assert not without_spaces(["рыбы", "fish", "한국어 문장"])


def test_character_n_grams_equal_those_of_scikit_learn():
    from sklearn.feature_extraction.text import CountVectorizer

    words = ["a", "on", "tree", "trees"]
    theirs = CountVectorizer(analyzer="char_wb", ngram_range=(2, 3)).fit(words)
    grams, counts = grams_of_words(words, (2, 3))
    wanted = theirs.transform(words).toarray()
    assert grams == theirs.get_feature_names_out().tolist()
    np.testing.assert_array_equal(counts.toarray(), wanted)


def test_character_n_grams_are_a_block_of_their_own():
    texts = ["walking home", "walked home", "talking", "red talks"]
    vectorizer = LtcVectorizer(stop_words=None, stem=None, characters=(2, 4))
    X = vectorizer.fit_transform(texts)
    n_words = len(vectorizer.vocabulary_)
    squares = X.multiply(X)
    np.testing.assert_allclose(squares[:, :n_words].sum(axis=1), 0.5, rtol=1e-5)
    np.testing.assert_allclose(squares.sum(axis=1), 1.0, rtol=1e-5)
    assert (vectorizer.transform(texts) != X).nnz == 0
    assert vectorizer.transform(["walker"]).nnz > 0  # by its n-grams alone
    names = vectorizer.get_feature_names_out().tolist()
    assert "wal…" in names
    assert "…ing" in names
    assert len(set(names)) == len(names) == X.shape[1]
