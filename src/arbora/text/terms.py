"""Words to terms: stems and their n-grams, counted with arrays.

A *form* is a run of n words as written; a *term* is the run of their stems. The forms "neural network" and
"neural networks" are one term. Runs of n words are built from runs of n - 1 words by numbering distinct pairs
(shorter run, next word). Strings are created once per kept term, not once per occurrence.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from arbora.arrays import Ints, Matrix
from arbora.text.tokens import Tokens

# --- Character n-grams within words, counted once per distinct word -----------------------------------------
#
# The n-grams of a word are those of the word between two spaces, so that " un" begins a word and "ing " ends one. The
# counts of documents are the product of the counts of words and the n-grams of the distinct words: no text is read
# twice. A name shows where the word goes on: "un…", "…ing", "…ner…".


ELLIPSIS = "…"


def name_of_gram(gram: str) -> str:
    """Return the readable name of an n-gram.

    Examples
    --------
    >>> name_of_gram(" un"), name_of_gram("ing "), name_of_gram("ner"), name_of_gram(" to ")
    ('un…', '…ing', '…ner…', '…to')
    """
    whole = gram.startswith(" ") and gram.endswith(" ")
    before = ELLIPSIS if whole or not gram.startswith(" ") else ""
    after = "" if gram.endswith(" ") else ELLIPSIS
    return f"{before}{gram.strip()}{after}"


def is_fragment(name: str) -> bool:
    """Return whether a name is that of a character n-gram, such as "…ing".

    Examples
    --------
    >>> is_fragment("…ing"), is_fragment("king")
    (True, False)
    """
    return name.startswith(ELLIPSIS) or name.endswith(ELLIPSIS)


def grams_of_words(words: Sequence[str], limits: tuple[int, int]) -> tuple[list[str], sparse.csr_array]:
    """Return the distinct n-grams of words, in alphabetical order, and how often each word has them.

    Words are padded with a space on both sides; `limits` are the smallest and the largest n.
    """
    shortest, longest = limits
    number: dict[str, int] = {}
    columns: list[int] = []
    ends = [0]
    for word in words:
        padded = f" {word} "
        for n in range(shortest, min(longest, len(padded)) + 1):
            columns += [number.setdefault(padded[k : k + n], len(number)) for k in range(len(padded) - n + 1)]
        ends.append(len(columns))
    order = sorted(number)
    rank = np.empty(len(order), dtype=np.int32)
    rank[[number[gram] for gram in order]] = np.arange(len(order), dtype=np.int32)
    data = np.ones(len(columns), dtype=np.float32)
    counts = sparse.csr_array(
        (data, rank[np.array(columns, dtype=np.int64)], np.array(ends)), shape=(len(words), len(order))
    )
    counts.sum_duplicates()
    return order, counts


def count_grams(
    ids: Matrix,
    indptr: Matrix,
    grams: sparse.csr_array,
    dtype: npt.DTypeLike,
) -> sparse.csr_matrix:
    """Count the n-grams of documents, given as word ids."""
    shape = (len(indptr) - 1, grams.shape[0])
    words = sparse.csr_array((np.ones(len(ids), dtype=dtype), ids, indptr), shape=shape, copy=True)
    words.sum_duplicates()
    counts = sparse.csr_matrix(words @ grams)
    counts.sort_indices()
    return counts


# --- Words to terms: stems and their n-grams, counted with arrays -------------------------------------------


class Grams(NamedTuple):
    """Runs of n consecutive words: the distinct runs and their occurrences."""

    ids: Matrix  # form of each run, in reading order
    indptr: Matrix  # runs of document i are ids[indptr[i]:indptr[i + 1]]
    forms: Matrix  # (n_forms, n): words of each form, in lexicographic order
    term_of: Matrix  # term of each form
    terms: Matrix  # (n_terms, n): stems of each term, in lexicographic order


def number_stems(stems: list[str]) -> tuple[list[str], Matrix]:
    """Return the distinct stems in alphabetical order, and the index of the stem of each word."""
    distinct = sorted(set(stems))
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    return distinct, np.fromiter(map(number.__getitem__, stems), dtype=np.int32, count=len(stems))


def grams(tokens: Tokens, stem_of: Matrix, n_stems: int, ngram_range: tuple[int, int]) -> Iterator[Grams]:
    """Yield the runs of each length in `ngram_range`, both ends included."""
    shortest, longest = ngram_range
    words = np.arange(len(tokens.words), dtype=np.int32)
    stems = np.arange(n_stems, dtype=np.int32)
    level = Grams(tokens.ids, tokens.indptr, words[:, None], stem_of, stems[:, None])
    for n in range(1, longest + 1):
        if n > 1:
            level = _lengthen(level, tokens, stem_of, n_stems)
        if n >= shortest:
            yield level


def _lengthen(level: Grams, tokens: Tokens, stem_of: Matrix, n_stems: int) -> Grams:
    """Extend each run by the next word; runs at the end of a document are dropped."""
    n = level.forms.shape[1]
    runs = np.maximum(np.diff(tokens.indptr) - n, 0)
    indptr = np.concatenate(([0], np.cumsum(runs)))

    def positions(start_of_document: Matrix) -> Matrix:
        return np.asarray(np.arange(indptr[-1]) + np.repeat(start_of_document[:-1] - indptr[:-1], runs))

    heads, tails = level.ids[positions(level.indptr)], tokens.ids[positions(tokens.indptr) + n]
    shorter, last, ids = _pairs(heads, tails, len(tokens.words))
    forms = np.column_stack((level.forms[shorter], last))
    shorter, last, term_of = _pairs(level.term_of[shorter], stem_of[last], n_stems)
    return Grams(ids, indptr, forms, term_of, np.column_stack((level.terms[shorter], last)))


def _pairs(left: Matrix, right: Matrix, n_right: int) -> tuple[Matrix, Matrix, Matrix]:
    """Distinct pairs in order, as two columns, and the pair of each position."""
    keys, inverse = np.unique(left.astype(np.int64) * n_right + right, return_inverse=True)
    distinct_left, distinct_right = np.divmod(keys, max(n_right, 1))
    return distinct_left, distinct_right.astype(np.int32), inverse.astype(np.int32)


def join(runs: Matrix, words: list[str]) -> list[str]:
    """Return runs of word ids as strings."""
    columns = [map(words.__getitem__, column.tolist()) for column in runs.T]
    return list(columns[0]) if len(columns) == 1 else list(map(" ".join, zip(*columns, strict=True)))


def commonest_forms(level: Grams) -> Matrix:
    """Return the most frequent form of each term; ties are broken alphabetically."""
    frequency = np.bincount(level.ids, minlength=len(level.forms))
    order = np.lexsort((-frequency, level.term_of))  # stable: ties keep the order of forms
    first = np.diff(level.term_of[order], prepend=-1) > 0
    return order[first]


def count(level: Grams, column_of: Matrix, n_columns: int, dtype: npt.DTypeLike) -> sparse.csr_matrix:
    """Count the terms of each document; ``column_of[term]`` is -1 for a term without a column."""
    return count_columns(column_of[level.term_of][level.ids], level.indptr, n_columns, dtype)


def count_columns(columns: Matrix, indptr: Matrix, n_columns: int, dtype: npt.DTypeLike) -> sparse.csr_matrix:
    """Count the columns of the terms of each document; -1 is a term without a column."""
    has_column = columns >= 0
    if not has_column.all():
        indptr = np.concatenate(([0], np.cumsum(has_column)))[indptr]
        columns = columns[has_column]
    shape = (len(indptr) - 1, n_columns)
    counts = sparse.csr_matrix((np.ones(len(columns), dtype=dtype), columns, indptr), shape=shape)
    counts.sum_duplicates()  # also sorts the indices of each row
    return counts


def document_frequencies(counts: sparse.csr_matrix) -> Ints:
    """Return the number of rows in which each column is not zero."""
    return np.bincount(counts.indices, minlength=counts.shape[1])


def select(
    counts: sparse.csr_matrix, min_df: float, max_df: float, max_features: int | None
) -> npt.NDArray[np.bool_]:
    """Mark the columns to keep: those with document frequency between two limits, then the most frequent.

    An int limit is a number of documents, a float limit a proportion.
    """
    n_samples = counts.shape[0]
    lowest = min_df if isinstance(min_df, int | np.integer) else min_df * n_samples
    highest = max_df if isinstance(max_df, int | np.integer) else max_df * n_samples
    if highest < lowest:
        raise ValueError(
            f"max_df={max_df} means fewer documents ({highest:g}) than min_df={min_df} ({lowest:g}) "
            f"in a collection of {n_samples}"
        )
    df = document_frequencies(counts)
    is_kept = (df >= lowest) & (df <= highest)
    if max_features is not None and is_kept.sum() > max_features:
        frequency = np.bincount(counts.indices, weights=counts.data, minlength=counts.shape[1])
        best = np.argsort(np.where(is_kept, -frequency, np.inf), kind="stable")[:max_features]
        is_kept = np.zeros_like(is_kept)
        is_kept[best] = True
    if not is_kept.any():
        raise ValueError(
            f"none of {len(is_kept)} terms is left after pruning; lower min_df={min_df} or raise max_df={max_df}"
        )
    return is_kept
