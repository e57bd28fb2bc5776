"""Character n-grams within words, counted once per distinct word.

The n-grams of a word are those of the word between two spaces, so that " un" begins a word and "ing " ends one. The
counts of documents are the product of the counts of words and the n-grams of the distinct words: no text is read
twice. A name shows where the word goes on: "un…", "…ing", "…ner…".
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

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
    """Return whether a name is that of a character n-gram.

    Examples
    --------
    >>> is_fragment("…ing"), is_fragment("king")
    (True, False)
    """
    return name.startswith(ELLIPSIS) or name.endswith(ELLIPSIS)


def grams_of_words(words: Sequence[str], limits: tuple[int, int]) -> tuple[list[str], sparse.csr_array]:
    """Return the distinct n-grams of words, in alphabetical order, and how often each word has them.

    Examples
    --------
    >>> grams, counts = grams_of_words(["on", "no"], (2, 3))
    >>> grams
    [' n', ' no', ' o', ' on', 'n ', 'no', 'no ', 'o ', 'on', 'on ']
    >>> counts.sum(axis=1)
    array([5., 5.], dtype=float32)
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
    ids: npt.NDArray[np.integer],
    indptr: npt.NDArray[np.integer],
    grams: sparse.csr_array,
    dtype: npt.DTypeLike,
) -> sparse.csr_matrix:
    """Count the n-grams of documents, given as word ids.

    Examples
    --------
    >>> _, grams = grams_of_words(["on", "no"], (3, 3))
    >>> count_grams(np.array([0, 0, 1]), np.array([0, 2, 3]), grams, np.float32).toarray()
    array([[0., 2., 0., 2.],
           [1., 0., 1., 0.]], dtype=float32)
    """
    shape = (len(indptr) - 1, grams.shape[0])
    words = sparse.csr_array((np.ones(len(ids), dtype=dtype), ids, indptr), shape=shape, copy=True)
    words.sum_duplicates()
    found = sparse.csr_matrix(words @ grams)
    found.sort_indices()
    return found
