r"""Words and phrases as they are written, for display: in which documents each form of each term occurs.

A *form* is a word, or a phrase of two words, as written; a *term* is its stem, or its pair of stems. The forms of a
term are counted separately, so that a group of documents can show the form that is commonest in it.

A phrase is a pair of neighbouring words, neither of them a stop word, that stick together: with the shares p of words
and pairs among all tokens, the normalised pointwise mutual information

.. math:: \log \frac{p_{12}}{p_1 p_2} \Big/ {-\log p_{12}}

is at least 0.45, and the pair occurs in at least 5 documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Ints
from arbora.text.ltc import LtcVectorizer
from arbora.text.terms import number_stems
from arbora.text.tokens import Tokens, make_rules, tokenize

_STICKY = 0.45  # least normalised mutual information of a phrase
_MIN_DOCUMENTS = 5  # of a phrase


class Forms(NamedTuple):
    """Forms of terms, and the documents that they occur in."""

    documents: sp.csr_array  # (n_documents, n_forms): 1 where a form occurs
    names: list[str]  # the forms
    terms: Ints  # term of each form: first words, then phrases
    parts: Ints  # (n_terms, 2): terms of the two words of a phrase; -1 for a word


def find_forms(texts: Iterable[str], vectorizer: LtcVectorizer, *, phrases: bool = True) -> Forms:
    """Find the forms of the words of a fitted vectorizer in documents, and phrases of two of these words."""
    rules = vectorizer.rules()
    all_words = make_rules(
        lowercase=vectorizer.lowercase,
        strip_accents=vectorizer.strip_accents,
        token_pattern=vectorizer.token_pattern,
        stop_words=None,
        stem=None,
    )
    tokens = tokenize(texts, all_words)
    stems, stem_of = number_stems(rules.stem(tokens.words))
    has_term = np.array([stem in vectorizer.vocabulary_ for stem in stems], bool)[stem_of]
    has_term &= np.array([word not in rules.dropped for word in tokens.words], bool)
    used, term_of = np.unique(stem_of[has_term], return_inverse=True)
    word_term = np.full(len(tokens.words), -1)
    word_term[has_term] = term_of  # words that share a stem are one term
    words = np.flatnonzero(has_term)
    owner = np.repeat(np.arange(len(tokens.indptr) - 1), np.diff(tokens.indptr))
    here = has_term[tokens.ids]
    form_of = np.full(len(tokens.words), -1)
    form_of[words] = np.arange(len(words))
    pairs_of_words = [(owner[here], form_of[tokens.ids[here]])]
    names, terms = [tokens.words[word] for word in words.tolist()], word_term[words]
    parts = np.full((len(used), 2), -1)
    if phrases:
        pairs = _phrases(tokens, owner, word_term)
        pairs_of_words.append((pairs.owner, pairs.form + len(names)))
        names += [f"{tokens.words[a]} {tokens.words[b]}" for a, b in pairs.words.tolist()]
        terms = np.concatenate([terms, pairs.terms + len(parts)])
        parts = np.vstack([parts, pairs.parts])
    rows, columns = (np.concatenate(positions) for positions in zip(*pairs_of_words, strict=True))
    n_documents = len(tokens.indptr) - 1
    documents = sp.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(n_documents, len(names)))
    documents.sum_duplicates()
    documents.data[:] = 1
    return Forms(documents, names, terms.astype(np.int64), parts.astype(np.int64))


class _Phrases(NamedTuple):
    """Occurrences of phrases (document, form), words of the forms, terms of the forms, and words of the terms."""

    owner: Ints
    form: Ints
    words: Ints
    terms: Ints
    parts: Ints


def _phrases(tokens: Tokens, owner: Ints, word_term: Ints) -> _Phrases:
    """Find the pairs of neighbouring words that stick together."""
    n_terms, n_words = int(word_term.max(initial=-1)) + 1, len(tokens.words)
    term = word_term[tokens.ids]
    place = np.flatnonzero((term[:-1] >= 0) & (term[1:] >= 0) & (owner[:-1] == owner[1:]))
    first, second = term[place], term[place + 1]
    keys, pair = np.unique(first.astype(np.int64) * n_terms + second, return_inverse=True)
    count = np.bincount(pair, minlength=len(keys))
    documents = np.unique(pair.astype(np.int64) * len(tokens.indptr) + owner[place]) // len(tokens.indptr)
    n_documents = np.bincount(documents, minlength=len(keys))
    single, total = np.bincount(term[term >= 0], minlength=n_terms), max(len(term), 1)
    left, right = np.divmod(keys, max(n_terms, 1))
    joint = count / total
    with np.errstate(divide="ignore", invalid="ignore"):
        sticky = np.log(joint * total**2 / (single[left] * single[right])) / -np.log(joint)
    sticking = np.flatnonzero((n_documents >= _MIN_DOCUMENTS) & (sticky >= _STICKY) & (left != right))
    new = np.full(len(keys), -1)
    new[sticking] = np.arange(len(sticking))
    inside = new[pair] >= 0
    place, pair = place[inside], new[pair[inside]]
    forms, form = np.unique(
        tokens.ids[place].astype(np.int64) * n_words + tokens.ids[place + 1], return_inverse=True
    )
    terms = np.zeros(len(forms), np.int64)
    terms[form] = pair
    words: Any = np.column_stack(np.divmod(forms, max(n_words, 1)))
    return _Phrases(owner[place], form, words, terms, np.column_stack([left[sticking], right[sticking]]))
