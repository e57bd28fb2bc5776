"""Recipes: how `TextClassifier` makes rows of texts, by name.

A name lists kinds of features: "words" or "stems", "bigrams" (pairs of neighbouring words) and "characters" (n-grams
of 2 to 5 characters within words), such as "words+bigrams". "without stop words" at its end drops English stop words.

>>> recipe = parse_recipe("stems+bigrams without stop words")
>>> recipe.bigrams, recipe.name
(True, 'stems+bigrams without stop words')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sklearn.base import clone

from arbora.app.text_rows import TextOptions, make_vectorizer
from arbora.text import LtcVectorizer
from arbora.text.tokens import ALL_PATTERN

CHARACTERS = (2, 5)  # lengths of the character n-grams
_KINDS = ("words", "stems", "bigrams", "characters")
_NO_STOP_WORDS = " without stop words"


class Recipe(NamedTuple):
    """How texts become rows.

    Attributes
    ----------
    stems : bool
        Stems instead of words.
    bigrams : bool
        Also pairs of neighbouring words.
    characters : bool
        Also character n-grams within words.
    stop_words : bool
        Keep stop words.
    """

    stems: bool = False
    bigrams: bool = False
    characters: bool = False
    stop_words: bool = True

    @property
    def name(self) -> str:
        """Name of the recipe, which `parse_recipe` reads."""
        kinds = ["stems" if self.stems else "words"]
        kinds += ["bigrams"] * self.bigrams + ["characters"] * self.characters
        return "+".join(kinds) + ("" if self.stop_words else _NO_STOP_WORDS)

    def vectorizer(self, language: str) -> LtcVectorizer:
        """Make the unfitted vectorizer.

        Parameters
        ----------
        language : str
            Language of the stemmer; "none": stems are words.
        """
        return LtcVectorizer(
            stop_words=None if self.stop_words else "english",
            stem=language if self.stems and language != "none" else None,
            ngram_range=(1, 2 if self.bigrams else 1),
            characters=CHARACTERS if self.characters else None,
            token_pattern=ALL_PATTERN,
            smooth_idf=True,
        )


SAFE = Recipe()  # the words as they are, with the weights of TfidfVectorizer(sublinear_tf=True)


def parse_recipe(name: str) -> Recipe:
    """Read the name of a recipe.

    Examples
    --------
    >>> parse_recipe("words+letters")
    Traceback (most recent call last):
    ...
    ValueError: features='words+letters' is unknown: use "auto", or words or stems, bigrams, characters, joined by +
    """
    kinds = name.removesuffix(_NO_STOP_WORDS).split("+")
    if not set(kinds) <= set(_KINDS) or ("words" in kinds) == ("stems" in kinds):
        raise ValueError(
            f'features={name!r} is unknown: use "auto", or words or stems, bigrams, characters, joined by +'
        )
    return Recipe(
        "stems" in kinds, "bigrams" in kinds, "characters" in kinds, not name.endswith(_NO_STOP_WORDS)
    )


def vectorizer_of(features: Any, language: str, n_documents: int) -> LtcVectorizer:
    """Make the unfitted vectorizer of features that are not "auto"."""
    if isinstance(features, Recipe):
        return features.vectorizer(language)
    if isinstance(features, TextOptions):
        return make_vectorizer(features, n_documents)
    if isinstance(features, str):
        return parse_recipe(features).vectorizer(language)
    if hasattr(features, "fit_transform") and hasattr(features, "transform"):
        vectorizer: LtcVectorizer = clone(features)
        return vectorizer
    raise ValueError(f"features must be 'auto', the name of a recipe, or a vectorizer; got {features!r}")


def candidates(language: str, *, spaces: bool, long: bool) -> Iterable[Recipe]:
    """Yield the recipes to try.

    Parameters
    ----------
    language : str
        "none": no stems; stop words are dropped in English alone.
    spaces : bool
        Whether words have spaces between them.
    long : bool
        Texts have many words each: character n-grams are expensive, and of little use.
    """
    yield SAFE
    if not spaces:  # the tokens are character n-grams already
        return
    yield Recipe(bigrams=True)
    if language != "none":
        yield Recipe(stems=True)
        yield Recipe(stems=True, bigrams=True)
    if language == "english":
        yield Recipe(stems=True, stop_words=False)
    if not long:
        yield Recipe(characters=True)
        yield Recipe(bigrams=True, characters=True)
