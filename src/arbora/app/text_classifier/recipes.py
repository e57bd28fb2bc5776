"""Recipes: how `TextClassifier` makes rows of texts, by name.

A name lists kinds of features: "words" or "stems", "bigrams" (pairs of neighbouring words) and "characters" (n-grams
of 3 and 4 characters within words), such as "words+bigrams". "without stop words" at the end drops English stop
words. Words of one letter count only in recipes with bigrams, where they tell "type a" from "type b": alone they are
noise in long texts, such as papers with formulas. Plain "words" are thus those of ``TfidfVectorizer``.

>>> recipe = parse_recipe("stems+bigrams without stop words")
>>> recipe.bigrams, recipe.name
(True, 'stems+bigrams without stop words')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from arbora.app.text_rows import TextOptions, make_vectorizer
from arbora.text import LtcVectorizer
from arbora.text.languages import is_one_letter, without_spaces
from arbora.text.tokens import ALL_PATTERN, AUTO_PATTERN, drop_words, take_documents, tokenize

CHARACTERS = (3, 4)  # lengths of the character n-grams
SHORT = 30  # words; most texts of this length gain by character n-grams
LONG = 150  # words; in longer texts character n-grams are not tried, since they are many and help little
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

    def join(self, other: Recipe) -> Recipe:
        """Return the recipe with the features of both; stop words are dropped if one of them drops them."""
        return Recipe(
            self.stems or other.stems,
            self.bigrams or other.bigrams,
            self.characters or other.characters,
            self.stop_words and other.stop_words,
        )

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
            balanced=True,
            token_pattern=ALL_PATTERN if self.bigrams else AUTO_PATTERN,
            smooth_idf=True,
        )


SAFE = Recipe()  # the words as they are: rows of TfidfVectorizer(sublinear_tf=True)
_EVERY_TOKEN = Recipe(bigrams=True)  # has the tokens of all other recipes


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


def vectorizer_of(features: Any, n_documents: int) -> LtcVectorizer:
    """Make the unfitted vectorizer of features that are not the name of a recipe."""
    if isinstance(features, TextOptions):
        return make_vectorizer(features, n_documents)
    if isinstance(features, LtcVectorizer):
        vectorizer: LtcVectorizer = clone(features)
        return vectorizer
    raise ValueError(f"features must be 'auto', the name of a recipe, or an LtcVectorizer; got {features!r}")


class SplitTexts:
    """Texts that are split into tokens once, for the rows of any recipe.

    Parameters
    ----------
    texts : sequence of str
    language : str
        Language of the stemmer, or "none".
    """

    def __init__(self, texts: Sequence[str], language: str) -> None:
        self.language = language
        self.spaces = not without_spaces(texts)
        self.tokens = tokenize(texts, _EVERY_TOKEN.vectorizer(language).rules())
        self.letters = frozenset(filter(is_one_letter, self.tokens.words))

    @property
    def length(self) -> float:
        """Mean number of tokens of a text."""
        return len(self.tokens.ids) / max(1, len(self.tokens.indptr) - 1)

    @property
    def short(self) -> bool:
        """Whether the texts have few words."""
        return self.length <= SHORT

    def fit(self, recipe: Recipe, rows: NDArray[np.int64] | None = None) -> tuple[LtcVectorizer, Any]:
        """Return the fitted vectorizer of a recipe, and the rows of all or of some texts."""
        tokens = self.tokens if rows is None else take_documents(self.tokens, rows)
        vectorizer = recipe.vectorizer(self.language)
        dropped = vectorizer.rules().dropped | (frozenset() if recipe.bigrams else self.letters)
        return vectorizer, vectorizer.fit_tokens(drop_words(tokens, dropped))

    def candidates(self) -> list[Recipe]:
        """Return the kinds of features to try, besides plain words."""
        if not self.spaces:  # the tokens are character n-grams already
            return []
        found = [Recipe(bigrams=True, characters=True)] if self.short else []
        found.append(Recipe(bigrams=True))
        if self.language != "none":
            found.append(Recipe(stems=True))
        if self.language == "english":
            found.append(Recipe(stems=True, stop_words=False))
        if self.length <= LONG:
            found.append(Recipe(characters=True))
        return found
