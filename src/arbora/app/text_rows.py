"""From documents to rows of numbers: the vectorizer of texts, and rows for training and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import scipy.sparse as sp
from sklearn.base import clone

from arbora.app.documents import Documents
from arbora.core.estimator import warn_caller
from arbora.core.monitor import with_progress
from arbora.text import ENGLISH_STOP_WORDS, LtcVectorizer
from arbora.text.languages import script_warning

AUTO = "auto"
_LANGUAGE_TEXTS = 500  # read to guess the language
_STOP_WORDS = 0.1  # smallest share of stop words in a language
_MANY_DOCUMENTS = 200  # with this many documents a word must occur in two of them


class TextOptions(NamedTuple):
    """How texts become rows."""

    # of the stemmer and the stop words; "none": words as they are; "auto": see `text_language`
    language: str = "english"
    # smallest number of documents with a word; None: 2 for 200 documents or more, else 1
    min_df: int | None = None
    ngrams: int = 1  # longest sequence of words that is a feature


def make_vectorizer(options: TextOptions, n_documents: int) -> LtcVectorizer:
    """Make the unfitted vectorizer for a number of training documents.

    >>> make_vectorizer(TextOptions("none"), 1000).get_params()["min_df"]
    2
    """
    min_df = (2 if n_documents >= _MANY_DOCUMENTS else 1) if options.min_df is None else options.min_df
    return LtcVectorizer(
        stop_words="english" if options.language == "english" else None,
        stem=None if options.language == "none" else options.language,
        ngram_range=(1, max(1, options.ngrams)),
        min_df=max(1, min_df),
    )


def text_language(texts: Sequence[str]) -> str:
    """Return "english" if at least a tenth of the words are English stop words, else "none".

    At most 1,000 texts are read.
    """
    step = max(1, len(texts) // _LANGUAGE_TEXTS)
    words = [word for text in texts[::step] for word in text.lower().split()]
    n_stop = sum(word in ENGLISH_STOP_WORDS for word in words)
    return "english" if n_stop >= _STOP_WORDS * max(1, len(words)) else "none"


def warn_of_script(texts: Sequence[str], language: str) -> None:
    """Warn if the texts are not written in the script of the language."""
    message = script_warning(texts, language)
    if message is not None:
        warn_caller(message)


def fit_rows(
    documents: Documents, features: TextOptions | LtcVectorizer, *, verbose: int = 0
) -> tuple[LtcVectorizer | None, Any]:
    """Return the fitted vectorizer, None for rows of numbers, and the CSR rows of training documents.

    A vectorizer that is given as `features` is cloned.
    """
    texts = documents.texts
    if texts is None:
        return None, sp.csr_matrix(documents.X)
    if isinstance(features, LtcVectorizer):
        vectorizer = clone(features)
    elif isinstance(features, TextOptions):
        language = text_language(texts) if features.language == AUTO else features.language
        warn_of_script(texts, language)
        vectorizer = make_vectorizer(features._replace(language=language), len(texts))
    else:
        raise ValueError(
            f"features must be 'auto', the name of a recipe, or an LtcVectorizer; got {features!r}"
        )
    return vectorizer, vectorizer.fit_transform(with_progress(texts, "words", len(texts), verbose))


def transform_rows(
    documents: Documents, vectorizer: LtcVectorizer | None, n_features: int, *, verbose: int = 0
) -> Any:
    """Return the CSR rows of documents for a model with `n_features` columns.

    `vectorizer` is None for a model that was trained on rows of numbers. A ValueError says if the documents are of
    the other kind, or have another number of columns.
    """
    if vectorizer is not None:
        if documents.texts is None:
            raise ValueError(f"{documents.name} holds rows of numbers, but the model was trained on texts")
        texts = documents.texts
        return vectorizer.transform(with_progress(texts, "words", len(texts), verbose))
    if documents.X is None:
        raise ValueError(f"{documents.name} holds texts, but the model was trained on rows of numbers")
    if documents.X.shape[1] != n_features:
        raise ValueError(
            f"{documents.name} has {documents.X.shape[1]} columns, but the model was trained on {n_features}"
        )
    return sp.csr_matrix(documents.X)


def feature_names(
    documents: Documents | None, vectorizer: LtcVectorizer | None, n_features: int
) -> list[str]:
    """Return readable names of the columns; numbers where there are none."""
    if vectorizer is not None:
        return [str(name) for name in vectorizer.feature_names_]
    if documents is not None and documents.feature_names is not None:
        return [str(name) for name in documents.feature_names]
    return [str(column) for column in range(n_features)]
