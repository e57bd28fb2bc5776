"""`LtcVectorizer`: tokens, stop words, stems, n-grams and ``ltc`` weights with scikit-learn's interface.

The steps are functions of three modules: `tokens` (documents to word ids), `terms` (words to counted stems, n-grams
and character n-grams) and `counts` (counts to rows of unit length, with the equations).
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import pairwise, repeat
from numbers import Integral
from operator import add
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Names
from arbora.core.estimator import RowEstimator, warn_caller
from arbora.core.validation import check_structure
from arbora.text.counts import inverse_document_frequency, ltc_rows, side_by_side
from arbora.text.terms import (
    commonest_forms,
    count,
    count_columns,
    count_grams,
    document_frequencies,
    grams,
    grams_of_words,
    join,
    name_of_gram,
    number_stems,
    select,
)
from arbora.text.tokens import (
    AUTO_PATTERN,
    Rules,
    Tokens,
    check_collection,
    check_document,
    check_dtype,
    check_ngram_range,
    given_terms,
    make_rules,
    stems_of_document,
    tokenize,
)

# --- Words to columns of a fitted vocabulary, kept from call to call: a stream of documents stems each word once ---
#
# `tokenize` numbers, sorts and stems the distinct words of its documents, which a fit needs. To count the words of
# a vocabulary that is known, the column of each word is enough. `KnownWords` finds the column of a word when it is
# first seen and remembers it, up to a limit, so that memory is constant.


_MAX_WORDS = 1 << 17  # that are remembered
_MAX_LENGTH = 64  # characters; longer words are looked up each time


class KnownWords(dict[str, int]):
    """Column of each word, or -1 for a word that is dropped or has no column; filled as words are looked up.

    `rules` have the dropped words and the stemmer, `vocabulary` the column of each stem. `language` is that of the
    stems; see `serves`.
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
        if len(word) <= _MAX_LENGTH:
            if len(self) >= _MAX_WORDS:
                self.clear()
            self[word] = column
        return column


def count_known(
    documents: object, rules: Rules, words: KnownWords, n_columns: int, dtype: npt.DTypeLike
) -> sparse.csr_matrix:
    """Count the words of documents that have a column; documents are iterated over once."""
    look_up, normalize, split = words.__getitem__, rules.normalize, rules.split
    buffer, ends = array("i"), array("q", [0])
    for row, document in enumerate(check_collection(documents)):
        buffer.extend(map(look_up, split(normalize(check_document(document, row)))))
        ends.append(len(buffer))
    columns = np.frombuffer(buffer, dtype=np.int32) if buffer else np.empty(0, dtype=np.int32)
    return count_columns(columns, np.frombuffer(ends, dtype=np.int64), n_columns, dtype)


# --- `LtcVectorizer`: tokens, stop words, stems, n-grams and ``ltc`` weights with scikit-learn's interface ---


class LtcVectorizer(RowEstimator, TransformerMixin, BaseEstimator):
    r"""Convert documents to sparse rows of unit length: stop words, stems, n-grams and ``ltc`` weights.

    The interface is that of scikit-learn's ``TfidfVectorizer``. Features are stems, but have readable names:
    :meth:`get_feature_names_out` returns the most frequent form of each stem in the training documents.

    Parameters
    ----------
    stop_words : {"english"}, list of str or None, default="english"
        Words to ignore: :data:`ENGLISH_STOP_WORDS`, a list of your own, or none. They are matched after
        lower-casing and stripping of accents (a list of your own is treated the same way), before stemming and
        before n-grams are formed.
    stem : str or None, default="english"
        Language of the Snowball stemmer ("french", "german", ...; ``Stemmer.algorithms()`` lists them). None
        disables stemming.
    ngram_range : tuple (min_n, max_n), default=(1, 1)
        Shortest and longest n-gram.
    characters : tuple (min_n, max_n) or None, default=None
        Add character n-grams within words, such as (2, 5). They are a second block of columns, with weights of their
        own; the blocks of a row have equal length. `max_df`, `max_features` and `vocabulary` are for words.
    balanced : bool, default=False
        Give the n-grams of each length n the same weight: they are blocks of columns, as character n-grams are.
    min_df, max_df : int or float, default=1 and 1.0
        Drop terms that occur in fewer, or more, training documents than this. An int is a number of
        documents, a float a proportion.
    max_features : int or None, default=None
        Keep only the terms with most occurrences; ties are broken alphabetically.
    lowercase : bool, default=True
        Convert the text to lower case.
    strip_accents : {"ascii", "unicode"} or None, default=None
        Remove accents, as scikit-learn does; "ascii" also drops all non-ASCII characters.
    token_pattern : str, default="auto"
        Regular expression of a token; if it has a capturing group, the group is the token. "auto": words of two or
        more letters, digits or underscores, as scikit-learn's ``r"(?u)\b\w\w+\b"``; emoji are tokens too, and text
        without spaces between words (Chinese, Japanese, Thai) is cut into n-grams. "all":
        also words of one character.
    vocabulary : list of str or None, default=None
        Words or n-grams to use as columns, in this order, instead of learning them. Each is analysed like the
        documents. `min_df`, `max_df` and `max_features` are then ignored.
    sublinear_tf : bool, default=True
        Use 1 + log tf (the "l" of ltc) instead of tf.
    smooth_idf : bool, default=False
        Use log((1 + N) / (1 + df)) + 1 instead of log(N / df) (the "t"). It is never zero, which helps with very
        few documents. The weights are then those of ``TfidfVectorizer(sublinear_tf=True)``.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        Type of the weights.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Column of each term. Keys are stems, joined by spaces for n-grams, as :meth:`analyze` returns them.
        Columns are ordered by n, then alphabetically.
    feature_names_ : list of str
        Readable name of each column.
    idf_ : ndarray of shape (n_features,)
        Inverse document frequency of each column.
    character_grams_ : list of str
        With `characters`: the n-grams, whose columns come after those of the words.

    Examples
    --------
    >>> from arbora.text import LtcVectorizer
    >>> documents = ["The cat sat.", "Cats and dogs", "A dog, two dogs", "of the"]
    >>> vectorizer = LtcVectorizer()
    >>> vectorizer.fit_transform(documents).toarray().round(2)
    array([[0.45, 0.  , 0.89, 0.  ],
           [0.71, 0.71, 0.  , 0.  ],
           [0.  , 0.65, 0.  , 0.76],
           [0.  , 0.  , 0.  , 0.  ]], dtype=float32)
    >>> vectorizer.get_feature_names_out()
    array(['cat', 'dogs', 'sat', 'two'], dtype=object)
    """

    _tags: ClassVar[Mapping[str, Any]] = {
        "input_tags.string": True,
        "input_tags.two_d_array": False,
        "input_tags.sparse": False,
    }
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "stop_words": [StrOptions({"english"}), list, tuple, set, frozenset, None],
        "stem": [str, None],
        "ngram_range": [tuple, list],
        "characters": [tuple, list, None],
        "balanced": ["boolean"],
        "min_df": [Interval(RealNotInt, 0, 1, closed="both"), Interval(Integral, 1, None, closed="left")],
        "max_df": [Interval(RealNotInt, 0, 1, closed="both"), Interval(Integral, 1, None, closed="left")],
        "max_features": [Interval(Integral, 1, None, closed="left"), None],
        "lowercase": ["boolean"],
        "strip_accents": [StrOptions({"ascii", "unicode"}), None],
        "token_pattern": [str],
        "vocabulary": [list, tuple, np.ndarray, None],
        "sublinear_tf": ["boolean"],
        "smooth_idf": ["boolean"],
        "dtype": "no_validation",  # check_dtype
    }

    def __init__(
        self,
        *,
        stop_words: Literal["english"] | Iterable[str] | None = "english",
        stem: str | None = "english",
        ngram_range: tuple[int, int] = (1, 1),
        characters: tuple[int, int] | None = None,
        balanced: bool = False,
        min_df: float = 1,
        max_df: float = 1.0,
        max_features: int | None = None,
        lowercase: bool = True,
        strip_accents: Literal["ascii", "unicode"] | None = None,
        token_pattern: str = AUTO_PATTERN,
        vocabulary: Sequence[str] | None = None,
        sublinear_tf: bool = True,
        smooth_idf: bool = False,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        self.stop_words = stop_words
        self.stem = stem
        self.ngram_range = ngram_range
        self.characters = characters
        self.balanced = balanced
        self.min_df = min_df
        self.max_df = max_df
        self.max_features = max_features
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.token_pattern = token_pattern
        self.vocabulary = vocabulary
        self.sublinear_tf = sublinear_tf
        self.smooth_idf = smooth_idf
        self.dtype = dtype

    def fit(self, raw_documents: Iterable[str], y: object = None) -> Self:
        """Learn the vocabulary and the document frequencies.

        Parameters
        ----------
        raw_documents : iterable of str
            Iterated over once.
        y : None
            Ignored.

        Returns
        -------
        self : LtcVectorizer

        Examples
        --------
        >>> LtcVectorizer().fit(["one tree", "two trees"]).vocabulary_
        {'tree': 0, 'two': 1}
        """
        self.fit_tokens(tokenize(raw_documents, self.rules()))
        return self

    def fit_transform(self, raw_documents: Iterable[str], y: object = None) -> sparse.csr_matrix:
        """Fit, and return the rows of the training documents, in one pass.

        Parameters
        ----------
        raw_documents : iterable of str
            Iterated over once.
        y : None
            Ignored.

        Returns
        -------
        X : csr_matrix of shape (n_samples, n_features)
            Sorted indices and no stored zeros; each row has unit length or is zero.

        Examples
        --------
        >>> LtcVectorizer().fit_transform(["red tree", "blue tree"]).toarray()
        array([[0., 1., 0.],
               [1., 0., 0.]], dtype=float32)
        """
        return self.fit_tokens(tokenize(raw_documents, self.rules()))

    def transform(self, raw_documents: Iterable[str]) -> sparse.csr_matrix:
        """Return the rows of documents; terms outside the vocabulary are ignored.

        Parameters
        ----------
        raw_documents : iterable of str
            Iterated over once.

        Returns
        -------
        X : csr_matrix of shape (n_samples, n_features)

        Examples
        --------
        >>> LtcVectorizer().fit(["red tree", "blue tree"]).transform(["reds, greens", "green"]).toarray()
        array([[0., 1., 0.],
               [0., 0., 0.]], dtype=float32)
        """
        check_is_fitted(self)
        rules = self._rules()
        if check_ngram_range(self.ngram_range) == (1, 1) and not self.character_grams_:
            words = self._remembered_words(rules)
            counts = count_known(raw_documents, rules, words, len(self.vocabulary_), self.dtype)
            return ltc_rows(counts, self.idf_, self.sublinear_tf)
        return self.transform_tokens(tokenize(raw_documents, rules))

    def inverse_transform(self, X: Any) -> list[Names]:
        """Return the names of the terms of each row.

        Parameters
        ----------
        X : sparse matrix or array of shape (n_samples, n_features)

        Returns
        -------
        names : list of ndarray of str

        Examples
        --------
        >>> vectorizer = LtcVectorizer()
        >>> vectorizer.inverse_transform(vectorizer.fit_transform(["red trees", "blue trees"]))
        [array(['red'], dtype=object), array(['blue'], dtype=object)]
        """
        check_is_fitted(self)
        check_structure(X)
        rows = sparse.csr_matrix(check_array(X, accept_sparse="csr"), copy=True)
        if rows.shape[1] != len(self.feature_names_):
            raise ValueError(f"X has {rows.shape[1]} columns, the vocabulary has {len(self.feature_names_)}")
        rows.eliminate_zeros()
        names = self.get_feature_names_out()
        return [names[rows.indices[start:end]] for start, end in pairwise(rows.indptr)]

    def get_feature_names_out(self, input_features: object = None) -> Names:
        """Return a readable name for each column: the most frequent form of its term in the training documents.

        Parameters
        ----------
        input_features : None
            Ignored; present for compatibility with scikit-learn.

        Returns
        -------
        names : ndarray of str, shape (n_features,)

        Examples
        --------
        >>> documents = ["neural networks", "neural networks", "a neural network"]
        >>> LtcVectorizer(ngram_range=(2, 2), smooth_idf=True).fit(documents).get_feature_names_out()
        array(['neural networks'], dtype=object)
        """
        check_is_fitted(self)
        return np.array(self.feature_names_, dtype=object)

    def build_analyzer(self) -> Callable[[str], list[str]]:
        """Return a function that maps a document to its terms, the keys of ``vocabulary_``.

        Examples
        --------
        >>> LtcVectorizer(ngram_range=(1, 2)).build_analyzer()("The trees of the gardens")
        ['tree', 'garden', 'tree garden']
        """
        rules = self.rules()
        shortest, longest = check_ngram_range(self.ngram_range)

        def analyze(document: str) -> list[str]:
            stems = stems_of_document(document, rules)
            return [
                " ".join(stems[start : start + n])
                for n in range(shortest, longest + 1)
                for start in range(len(stems) - n + 1)
            ]

        return analyze

    def analyze(self, document: str) -> list[str]:
        """Return the terms of one document; the vectoriser need not be fitted.

        Examples
        --------
        >>> LtcVectorizer().analyze("Filing documents into taxonomies")
        ['file', 'document', 'taxonomi']
        """
        return self.build_analyzer()(document)

    def fit_tokens(self, tokens: Tokens) -> sparse.csr_matrix:
        """Fit to documents that are split already, by `rules`; return their rows.

        Parameters
        ----------
        tokens : Tokens
            See `arbora.text.tokens.tokenize`. Documents that are read once can be fitted with several settings.

        Returns
        -------
        X : csr_matrix of shape (n_samples, n_features)
        """
        rules = self.rules()
        dtype, limits = check_dtype(self.dtype), check_ngram_range(self.ngram_range)
        terms = [] if self.vocabulary is None else given_terms(self.vocabulary, rules, limits)
        n_samples = len(tokens.indptr) - 1
        if n_samples == 0:
            raise ValueError("no documents: the iterable is empty")
        if self.vocabulary is None:
            terms, self.feature_names_, counts = self._discover_terms(tokens, rules)
            self.vocabulary_ = dict(zip(terms, range(len(terms)), strict=True))
        else:
            self.feature_names_ = list(map(str, self.vocabulary))
            self.vocabulary_ = dict(zip(terms, range(len(terms)), strict=True))
            counts = self._count_known(tokens, rules)
        blocks = [counts]
        self.character_grams_: list[str] = []
        if self.characters is not None:
            blocks.append(self._discover_grams(tokens))
            self.feature_names_ += list(map(name_of_gram, self.character_grams_))
        df = np.concatenate([document_frequencies(block) for block in blocks])
        self.idf_ = inverse_document_frequency(df, n_samples, self.smooth_idf).astype(dtype)
        if not self.idf_.any():
            warn_caller(
                f"every term occurs in all {n_samples} documents: log(N / df) is 0 and all rows are zero; "
                "use smooth_idf=True to give such terms a weight"
            )
        return self._weigh(blocks)

    def transform_tokens(self, tokens: Tokens) -> sparse.csr_matrix:
        """Return the rows of documents that are split already, by `rules`.

        Parameters
        ----------
        tokens : Tokens
            See `arbora.text.tokens.tokenize`.

        Returns
        -------
        X : csr_matrix of shape (n_samples, n_features)
        """
        blocks = [self._count_known(tokens, self._rules())]
        if self.character_grams_:
            grams, of_words = grams_of_words(tokens.words, check_ngram_range(self.characters or (1, 1)))
            column_of = dict(zip(self.character_grams_, range(len(self.character_grams_)), strict=True))
            has_column = np.array([gram in column_of for gram in grams], bool)
            columns = [column_of[gram] for gram in grams if gram in column_of]
            move = sparse.csr_array(
                (np.ones(len(columns), np.float32), (np.flatnonzero(has_column), columns)),
                shape=(len(grams), len(column_of)),
            )
            blocks.append(
                count_grams(tokens.ids, tokens.indptr, sparse.csr_array(of_words @ move), self.dtype)
            )
        return self._weigh(blocks)

    def _discover_grams(self, tokens: Tokens) -> sparse.csr_matrix:
        """Set the character n-grams that pass the frequency limit; return their counts."""
        grams, of_words = grams_of_words(tokens.words, check_ngram_range(self.characters or (1, 1)))
        counts = count_grams(tokens.ids, tokens.indptr, of_words, self.dtype)
        # N-grams of a single document are dropped: most are parts of rare words, which have a column already.
        n_samples = counts.shape[0]
        min_documents = self.min_df * n_samples if isinstance(self.min_df, float) else self.min_df
        columns = np.flatnonzero(document_frequencies(counts) >= max(min_documents, min(2, n_samples)))
        self.character_grams_ = [grams[k] for k in columns.tolist()]
        return counts[:, columns]

    def _weigh(self, blocks: list[sparse.csr_matrix]) -> sparse.csr_matrix:
        """Give the counts of each block their weights; rows have unit length."""
        if self.balanced and self.vocabulary is None:
            lengths = np.fromiter((term.count(" ") for term in self.vocabulary_), np.int64)
            cuts = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
            blocks = [*(blocks[0][:, start:stop] for start, stop in pairwise(cuts)), *blocks[1:]]
        edges = np.cumsum([block.shape[1] for block in blocks])[:-1]
        parts = zip(blocks, np.split(self.idf_, edges), strict=True)
        return side_by_side([ltc_rows(block, idf, self.sublinear_tf) for block, idf in parts])

    def _discover_terms(self, tokens: Tokens, rules: Rules) -> tuple[list[str], list[str], sparse.csr_matrix]:
        """Return the terms that pass the frequency limits, their names, and their counts."""
        stems, stem_of = number_stems(rules.stem(tokens.words))
        counted, runs = [], []
        for level in grams(tokens, stem_of, len(stems), check_ngram_range(self.ngram_range, tokens.words)):
            n_terms = len(level.terms)
            counted.append(count(level, np.arange(n_terms, dtype=np.int32), n_terms, self.dtype))
            runs.append((level.terms, level.forms[commonest_forms(level)]))
        counts = counted[0] if len(counted) == 1 else sparse.hstack(counted, format="csr")
        if counts.shape[1] == 0:
            raise ValueError(
                "empty vocabulary: the documents contain no term; they may be empty, contain only stop words, "
                "be shorter than ngram_range, or use characters that token_pattern does not match"
            )
        is_kept = select(counts, self.min_df, self.max_df, self.max_features)
        terms, names = [], []
        edges = np.cumsum([len(level_terms) for level_terms, _ in runs])[:-1]
        for (level_terms, forms), keep in zip(runs, np.split(is_kept, edges), strict=True):
            terms += join(level_terms[keep], stems)
            names += join(forms[keep], tokens.words)
        return terms, names, counts if is_kept.all() else counts[:, np.flatnonzero(is_kept)]

    def _count_known(self, tokens: Tokens, rules: Rules) -> sparse.csr_matrix:
        """Count the terms of the vocabulary."""
        stems, stem_of = number_stems(rules.stem(tokens.words))
        counted = []
        for level in grams(tokens, stem_of, len(stems), check_ngram_range(self.ngram_range, tokens.words)):
            columns = map(self.vocabulary_.get, join(level.terms, stems), repeat(-1))
            column_of = np.fromiter(columns, dtype=np.int32, count=len(level.terms))
            counted.append(count(level, column_of, len(self.vocabulary_), self.dtype))
        return reduce(add, counted)  # n-grams of different n have different columns

    def _remembered_words(self, rules: Rules) -> KnownWords:
        """Return the columns of the words of earlier calls; they are not part of the fitted model."""
        words: KnownWords | None = getattr(self, "_known_words", None)
        if words is None or not words.serves(rules, self.vocabulary_, self.stem):
            words = self._known_words = KnownWords(rules, self.vocabulary_, self.stem)
        return words

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_known_words"}

    def rules(self) -> Rules:
        """Return the functions that split documents, for the parameters of this vectorizer."""
        self._validate_params()
        return self._rules()

    def _rules(self) -> Rules:
        return make_rules(
            lowercase=self.lowercase,
            strip_accents=self.strip_accents,
            token_pattern=self.token_pattern,
            stop_words=self.stop_words,
            stem=self.stem,
        )
