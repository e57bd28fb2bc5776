"""Words to columns of a fitted vocabulary, kept from call to call: a stream of documents stems each word once.

`tokenize` numbers, sorts and stems the distinct words of its documents, which a fit needs. To count the words of a
vocabulary that is known, the column of each word is enough. `KnownWords` finds the column of a word when it is first
seen and remembers it, up to a limit, so that memory is constant.
"""

from array import array

import numpy as np
import numpy.typing as npt
from scipy import sparse

from arbora.text.tokens import Rules, check_collection, check_document

_MOST = 1 << 17  # words remembered
_LONGEST = 64  # characters; longer words are looked up each time


class KnownWords(dict[str, int]):
    """Column of each word, or -1 for a word that is dropped or has no column; filled as words are looked up.

    Parameters
    ----------
    rules : Rules
        Their dropped words and stems.
    vocabulary : dict of str to int
        Column of each stem.
    language : str or None
        Of the stems; see `serves`.

    Examples
    --------
    >>> from arbora.text.tokens import TOKEN_PATTERN, make_rules
    >>> rules = make_rules(lowercase=True, strip_accents=None, token_pattern=TOKEN_PATTERN,
    ...                    stop_words=["the"], stem="english")
    >>> words = KnownWords(rules, {"tree": 0})
    >>> words["trees"], words["the"], words["sea"]
    (0, -1, -1)
    """

    def __init__(self, rules: Rules, vocabulary: dict[str, int], language: str | None = None) -> None:
        self._rules, self._vocabulary, self._language = rules, vocabulary, language
        self._n_columns = len(vocabulary)

    def serves(self, rules: Rules, vocabulary: dict[str, int], language: str | None) -> bool:
        """Whether the columns hold for these rules and this vocabulary; a fit or `set_params` may change them."""
        same = self._vocabulary is vocabulary and self._n_columns == len(vocabulary)
        return same and self._language == language and self._rules.dropped == rules.dropped

    def __missing__(self, word: str) -> int:
        column = -1
        if word not in self._rules.dropped:
            column = self._vocabulary.get(self._rules.stem([word])[0], -1)
        if len(word) <= _LONGEST:
            if len(self) >= _MOST:
                self.clear()
            self[word] = column
        return column


def count_known(
    documents: object, rules: Rules, words: KnownWords, n_columns: int, dtype: npt.DTypeLike
) -> sparse.csr_matrix:
    """Count the words of documents that have a column; documents are iterated over once.

    Examples
    --------
    >>> from arbora.text.tokens import TOKEN_PATTERN, make_rules
    >>> rules = make_rules(lowercase=True, strip_accents=None, token_pattern=TOKEN_PATTERN,
    ...                    stop_words=["the"], stem="english")
    >>> words = KnownWords(rules, {"tree": 0, "sea": 1})
    >>> count_known(["the trees, a tree", "sea"], rules, words, 2, np.float32).toarray()
    array([[2., 0.],
           [0., 1.]], dtype=float32)
    """
    look_up, normalize, split = words.__getitem__, rules.normalize, rules.split
    buffer, ends = array("i"), array("q", [0])
    for row, document in enumerate(check_collection(documents)):
        buffer.extend(map(look_up, split(normalize(check_document(document, row)))))
        ends.append(len(buffer))
    columns = np.frombuffer(buffer, dtype=np.int32) if buffer else np.empty(0, dtype=np.int32)
    known = columns >= 0
    indptr = np.concatenate(([0], np.cumsum(known)))[np.frombuffer(ends, dtype=np.int64)]
    columns = columns[known]
    shape = (len(indptr) - 1, n_columns)
    counts = sparse.csr_matrix((np.ones(len(columns), dtype=dtype), columns, indptr), shape=shape)
    counts.sum_duplicates()  # also sorts the indices of each row
    return counts
