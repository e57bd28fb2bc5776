r"""Documents to integer word ids: the only step that processes every character.

A document costs one split and one C-level ``map`` over a dictionary that numbers new words. Stop words, sorting and
stemming are then handled once per distinct word, not once per occurrence.

With the token pattern ``\b\w\w+\b``, and with ``"auto"``, ASCII documents are split by ``str.translate`` and
``str.split``. This is four times faster than the regular expression and gives the same tokens: every non-word
character becomes a space, and words of one character are dropped with the stop words. Other documents are split by
the regular expression, or for ``"auto"`` as `arbora.text.languages` describes.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import Stemmer
from sklearn.feature_extraction.text import strip_accents_ascii, strip_accents_unicode

from arbora.arrays import Ints, Matrix
from arbora.text.languages import resolve_stop_words, split_any_script

# --- Validation of documents and parameters -----------------------------------------------------------------


_MISSING = ("None", "nan", "NaT", "<NA>")  # str() of the missing values of Python, NumPy and pandas


def check_document(document: object, row: int) -> str:
    """Return `document` if it is text; otherwise raise an error that names its row."""
    if isinstance(document, str):
        return document
    if isinstance(document, bytes):
        hint = "decode it first, for example with document.decode('utf-8')"
    elif str(document) in _MISSING:
        hint = "a missing text can be given as ''"
    else:
        hint = "convert it with str(...) if it is meant as text"
    raise TypeError(f"document {row} is {document!r:.60} of type {type(document).__name__}, not str: {hint}")


def check_collection(documents: object) -> Iterable[object]:
    """Return `documents` if it is a collection of texts; a single text or a table raises an error."""
    if isinstance(documents, str | bytes):
        raise ValueError(
            f"an iterable of documents is expected, not a single {type(documents).__name__}; "
            "wrap one document in a list"
        )
    if isinstance(documents, Mapping):
        raise ValueError("an iterable of documents is expected, not a mapping; pass its values()")
    if getattr(documents, "ndim", 1) != 1:
        raise ValueError(
            "an iterable of documents is expected, not a table of shape "
            f"{getattr(documents, 'shape', None)}; pass its column of texts"
        )
    if not isinstance(documents, Iterable):
        raise TypeError(f"an iterable of documents is expected, not {type(documents).__name__}")
    return documents


def check_ngram_range(ngram_range: Sequence[int], words: Iterable[str] = ()) -> tuple[int, int]:
    """Return the shortest and longest n; words that contain a space are refused where n-grams are formed."""
    limits = tuple(ngram_range)
    integers = len(limits) == 2 and all(isinstance(n, Integral) for n in limits)
    if not integers or not 1 <= limits[0] <= limits[1]:
        raise ValueError(
            f"ngram_range must be two integers (min_n, max_n) with 1 <= min_n <= max_n, got {ngram_range!r}"
        )
    if limits[1] > 1:
        spaced = next((word for word in words if " " in word), None)
        if spaced is not None:
            raise ValueError(
                f"token_pattern matches a token with a space, {spaced!r}, which is indistinguishable from an "
                "n-gram; change token_pattern, or use ngram_range=(1, 1)"
            )
    return limits[0], limits[1]


def check_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return `dtype` if it is float32 or float64."""
    checked = np.dtype(dtype)
    if checked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be numpy.float32 or numpy.float64, got {dtype!r}")
    return checked


# --- Documents to integer word ids: the only step that processes every character ----------------------------


TOKEN_PATTERN = r"(?u)\b\w\w+\b"
"""Two or more letters, digits or underscores; scikit-learn's default."""

AUTO_PATTERN = "auto"
"""As `TOKEN_PATTERN`, with n-grams of text without spaces, and emoji; see `arbora.text.languages`."""

ALL_PATTERN = "all"
"""As `AUTO_PATTERN`, and words of one character."""

_ASCII_TO_WORDS = {code: chr(code) if re.match(r"\w", chr(code)) else " " for code in range(128)}
_ONE_LETTER_WORDS = frozenset(_ASCII_TO_WORDS.values()) - {" "}
_CHUNK_TOKENS = 1 << 20  # tokens converted to an array at a time; bounds the temporary memory
_ACCENTS = {None: None, "ascii": strip_accents_ascii, "unicode": strip_accents_unicode}


class Rules(NamedTuple):
    """Functions that turn a document into words."""

    normalize: Callable[[str], str]  # lower-cases a whole document and strips its accents
    split: Callable[[str], list[str]]  # splits normalised text into tokens, in order
    dropped: frozenset[str]  # stop words, the empty token, and one-character tokens of the fast split
    stem: Callable[[list[str]], list[str]]  # maps distinct words to their stems


class Tokens(NamedTuple):
    """The words of a collection."""

    ids: Matrix  # word id of each token (int32), one document after the other
    indptr: Ints  # tokens of document i are ids[indptr[i]:indptr[i + 1]]
    words: list[str]  # distinct, in alphabetical order; ids do not depend on the order of documents


def make_rules(
    *, lowercase: bool, strip_accents: str | None, token_pattern: str, stop_words: Any, stem: str | None
) -> Rules:
    """Make the functions from validated parameters of :class:`~arbora.text.LtcVectorizer`."""
    accents = _ACCENTS[strip_accents]

    def normalize(text: str) -> str:
        text = text.lower() if lowercase else text
        return accents(text) if accents else text

    split = _make_split(token_pattern)
    dropped = resolve_stop_words(stop_words, normalize, split) | {""}
    if token_pattern in (TOKEN_PATTERN, AUTO_PATTERN):
        dropped |= _ONE_LETTER_WORDS
    return Rules(normalize, split, dropped, _make_stem(stem))


def _make_split(token_pattern: str) -> Callable[[str], list[str]]:
    if token_pattern == AUTO_PATTERN:
        return _with_ascii_split(split_any_script)
    if token_pattern == ALL_PATTERN:
        return _with_ascii_split(partial(split_any_script, min_length=1))
    try:
        pattern = re.compile(token_pattern)
    except re.error as error:
        raise ValueError(f"token_pattern {token_pattern!r} is not a regular expression: {error}") from error
    if pattern.groups > 1:
        raise ValueError(
            f"token_pattern {token_pattern!r} has {pattern.groups} capturing groups, at most one can be "
            "the token; write the others as (?:...)"
        )
    findall = pattern.findall
    return _with_ascii_split(findall) if token_pattern == TOKEN_PATTERN else findall


def _with_ascii_split(general: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        return text.translate(_ASCII_TO_WORDS).split() if text.isascii() else general(text)

    return split


def _make_stem(language: str | None) -> Callable[[list[str]], list[str]]:
    if language is None:
        return list
    languages = Stemmer.algorithms()
    if language not in languages:
        near = get_close_matches(language, languages, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"stem={language!r} is not a stemmer{hint}; known: None, {', '.join(languages)}")
    stemmer = Stemmer.Stemmer(language, 0)  # no cache: each distinct word is stemmed once

    def stem(words: list[str]) -> list[str]:
        try:
            stems = stemmer.stemWords(words)
        except UnicodeEncodeError:  # a lone surrogate, which only a token_pattern such as \S+ matches
            stems = stemmer.stemWords([word.encode("utf-8", "replace").decode() for word in words])
        return [short or word for short, word in zip(stems, words, strict=True)]

    return stem


def tokenize(documents: object, rules: Rules) -> Tokens:
    """Convert a collection to word ids in one pass, one document at a time."""
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__
    number.update(zip(rules.dropped, range(len(rules.dropped)), strict=True))  # the lowest ids
    look_up, normalize, split = number.__getitem__, rules.normalize, rules.split
    buffer, ends = array("i"), array("q")
    chunks: list[Matrix] = []
    lengths: list[Ints] = []

    def flush() -> None:
        ids = np.array(buffer, dtype=np.int32) - np.int32(len(rules.dropped))
        is_word = ids >= 0
        so_far = np.concatenate(([0], np.cumsum(is_word)))
        lengths.append(np.diff(so_far[np.array(ends, dtype=np.int64)], prepend=0))
        chunks.append(ids[is_word])
        del buffer[:], ends[:]

    for row, document in enumerate(check_collection(documents)):
        buffer.extend(map(look_up, split(normalize(check_document(document, row)))))
        ends.append(len(buffer))
        if len(buffer) >= _CHUNK_TOKENS:
            flush()
    flush()

    number.default_factory = None  # breaks a reference cycle, so the dictionary is freed at once
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    first_seen = list(number)[len(rules.dropped) :]
    order = sorted(range(len(first_seen)), key=first_seen.__getitem__)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return Tokens(rank[np.concatenate(chunks)], indptr, [first_seen[i] for i in order])


def take_documents(tokens: Tokens, rows: Matrix) -> Tokens:
    """Return the tokens of some documents, with the words that they have.

    Examples
    --------
    >>> tokens = Tokens(np.array([0, 1, 2]), np.array([0, 2, 3]), ["ant", "bee", "cat"])
    >>> ids, indptr, words = take_documents(tokens, np.array([1]))
    >>> words, ids.tolist(), indptr.tolist()
    (['cat'], [0], [0, 1])
    """
    lengths = np.diff(tokens.indptr)[rows]
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    places = np.arange(indptr[-1]) + np.repeat(tokens.indptr[rows] - indptr[:-1], lengths)
    used, ids = np.unique(tokens.ids[places], return_inverse=True)
    return Tokens(ids.astype(np.int32), indptr, [tokens.words[word] for word in used.tolist()])


def drop_words(tokens: Tokens, dropped: Collection[str]) -> Tokens:
    """Return tokens without some words, as if they had been in ``Rules.dropped``.

    Examples
    --------
    >>> tokens = Tokens(np.array([0, 1, 0]), np.array([0, 2, 3]), ["a", "bee"])
    >>> ids, indptr, words = drop_words(tokens, {"a"})
    >>> words, ids.tolist(), indptr.tolist()
    (['bee'], [0], [0, 1, 1])
    """
    is_kept = np.array([word not in dropped for word in tokens.words], bool)
    if is_kept.all():
        return tokens
    here = is_kept[tokens.ids]
    number = np.cumsum(is_kept, dtype=np.int32) - np.int32(1)
    indptr = np.concatenate(([0], np.cumsum(here)))[tokens.indptr]
    words = [word for word, keep in zip(tokens.words, is_kept.tolist(), strict=True) if keep]
    return Tokens(number[tokens.ids[here]], indptr, words)


def stems_of_document(document: str, rules: Rules) -> list[str]:
    """Return the stems of one document in reading order."""
    tokens = rules.split(rules.normalize(check_document(document, 0)))
    return rules.stem([token for token in tokens if token not in rules.dropped])


def given_terms(vocabulary: Sequence[str], rules: Rules, ngram_range: tuple[int, int]) -> list[str]:
    """Return the term of each word or n-gram of a given vocabulary; terms must be distinct and fit `ngram_range`."""
    shortest, longest = ngram_range
    column_of: dict[str, int] = {}
    for column, name in enumerate(vocabulary):
        if not isinstance(name, str):
            raise TypeError(f"vocabulary[{column}] is {name!r}: a str is expected")
        stems = stems_of_document(name, rules)
        if not shortest <= len(stems) <= longest:
            raise ValueError(
                f"vocabulary[{column}] is {name!r}, which has {len(stems)} terms after tokenising and removing stop "
                f"words; ngram_range requires {shortest} to {longest}"
            )
        term = " ".join(stems)
        if term in column_of:
            first = column_of[term]
            raise ValueError(
                f"vocabulary[{column}] is {name!r}, the same term {term!r} as vocabulary[{first}], "
                f"{vocabulary[first]!r}; list it once"
            )
        column_of[term] = column
    if not column_of:
        raise ValueError("vocabulary is empty; use None to learn it from the documents")
    return list(column_of)
