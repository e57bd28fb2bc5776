r"""Typical words of groups of documents: distinctive, readable, and different from group to group.

Let p(w|k) be the share of the documents of group k with term w, and p(w) that among all documents. Terms are ordered
by a class-based tf-idf,

.. math:: \log p(w|k) + \tfrac54 \log \log \Bigl(1 + \frac{1}{p(w)}\Bigr),

or, if a number :math:`\lambda` is given, by their relevance (Sievert and Shirley 2014), between the commonest terms
(1) and the most exclusive ones (0),

.. math:: \lambda \log p(w|k) + (1 - \lambda) \log \frac{p(w|k)}{p(w)}.

Documents of topics count in p(w|k) by how typical they are: the square of the cosine of document and topic, the share
of the squared length of the row that lies along the mean direction. Documents that only just belong to a topic
otherwise add words that its core does not use.

A term is listed for a group only if no sibling has it in a clearly larger share of its documents, so that siblings
differ, and if it is in at least a twentieth of the documents of the group, or in half as many as its commonest term:
a group with few common words has a short list. A term is a word or a phrase of two words, and has the form that is
commonest in the group ("excel" and "excellent" may have one stem). A word that the group uses mostly inside a listed
phrase is not listed again, and neither is a phrase that shares a word with a listed one.

References
----------
C. Sievert and K. Shirley (2014). LDAvis: a method for visualizing and interpreting topics. ACL workshop on
interactive language learning, visualization, and interfaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Array, Ints, Matrix
from arbora.text.ltc import LtcVectorizer
from arbora.text.phrases import Forms, find_forms

# Drop a term if a sibling has it in more than 1 / 0.5 = twice as large a share of its documents.
_SHARED = 0.5
# Drop a word if a listed phrase contains it in at least this share of the documents with the word.
_INSIDE = 0.5
_CANDIDATES = 10  # terms to consider for each word to list
_RARITY = 1.25  # power of the inverse document frequency; 1 lists commoner words, 2 rarer ones
_MIN_DOCUMENTS = 2  # documents of a group with a listed term, by their weights, if the group has several
_MIN_SHARE = 0.05  # share of the documents of a group with a listed term
_OF_MAX = 0.5  # or share of the documents that have the commonest term


class GroupForms(NamedTuple):
    """How many documents of each group have each form.

    A document with several forms of a term counts for each of them with an equal part, so that sums over the forms of
    a term are numbers of documents.
    """

    counts: sp.csr_array  # (n_groups, n_forms)
    sizes: Array  # number of documents of each group
    everywhere: Array  # number of documents with each form, in the whole collection
    total: float  # number of documents of the collection
    names: list[str]
    terms: Ints  # see `arbora.text.phrases.Forms`
    parts: Ints  # see there

    def take(self, groups: Any) -> GroupForms:
        """Return sums over groups: `groups` is a matrix (n_new, n_groups)."""
        mixed = sp.csr_array(sp.csr_array(groups) @ self.counts)
        return self._replace(counts=mixed, sizes=np.asarray(groups @ self.sizes, dtype=np.float64))


def forms_of(texts: Sequence[str] | None, X: Any, names: Sequence[str], vectorizer: Any) -> Forms:
    """Find words and phrases of texts; of rows of numbers, the names of the columns that are not zero."""
    if texts is not None and isinstance(vectorizer, LtcVectorizer) and vectorizer.ngram_range[0] == 1:
        return find_forms(texts, vectorizer)
    documents = sp.csr_array(X, copy=True)
    documents.eliminate_zeros()
    documents.data = (documents.data > 0).astype(np.int32)
    n_terms = documents.shape[1]
    return Forms(documents, [str(name) for name in names], np.arange(n_terms), np.full((n_terms, 2), -1))


def group_forms(forms: Forms, members: Any, *, min_documents: int = 1) -> GroupForms:
    """Count the documents of groups that have each form.

    `members` has the weight of each document in each group, such as 1, (n_documents, n_groups). Forms of fewer than
    `min_documents` documents are dropped.

    >>> from arbora.text import LtcVectorizer
    >>> texts = ["a tree and trees", "trees", "the sea"]
    >>> groups = group_forms(forms_of(texts, None, (), LtcVectorizer().fit(texts)), [[1], [1], [0]])
    >>> groups.names, groups.counts.toarray().tolist()
    (['sea', 'tree', 'trees'], [[0.0, 0.5, 1.5]])
    """
    members = sp.csr_array(members, dtype=np.float64)
    documents = _divided_among_forms(forms)
    counts = sp.csr_array(members.T @ documents)
    everywhere = np.asarray(documents.sum(axis=0), dtype=np.float64).ravel()
    ids = np.flatnonzero(np.asarray(forms.documents.sum(axis=0)).ravel() >= min_documents)
    sizes = np.asarray(members.sum(axis=0), dtype=np.float64).ravel()
    names = [forms.names[form] for form in ids.tolist()]
    total = float(forms.documents.shape[0])
    return GroupForms(counts[:, ids], sizes, everywhere[ids], total, names, forms.terms[ids], forms.parts)


def _divided_among_forms(forms: Forms) -> sp.csr_array:
    """Return documents and forms, with one divided by the number of forms of the same term in the document."""
    documents: sp.csr_array = forms.documents.astype(np.float64)
    if len(forms.names) == len(forms.parts):  # each term has one form
        return documents
    owner = np.repeat(np.arange(documents.shape[0], dtype=np.int64), np.diff(documents.indptr))
    keys = owner * len(forms.parts) + forms.terms[documents.indices]
    _, place, n_forms = np.unique(keys, return_inverse=True, return_counts=True)
    data = documents.data / n_forms[place]
    return sp.csr_array((data, documents.indices, documents.indptr), shape=documents.shape)


def typical_members(X: Any, labels: Ints, means: Any) -> sp.csr_array:
    """Return the weights of documents in their topics: squared cosines, with mean 1 in each topic.

    `labels` has the topic of each document, or -1. The result is a CSR array of shape (n_documents, n_topics).
    """
    members = np.flatnonzero(labels >= 0)
    topics, n_topics, rows = labels[members], len(means), sp.csr_array(X)[members]
    unit = np.asarray(means, np.float64)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-300)
    owner = np.repeat(np.arange(len(members)), np.diff(rows.indptr))
    along = np.bincount(owner, rows.data * unit[topics[owner], rows.indices], minlength=len(members))
    lengths = np.bincount(owner, rows.data.astype(np.float64) ** 2, minlength=len(members))
    weights = np.maximum(along, 0.0) ** 2 / np.maximum(lengths, 1e-300)
    sizes, totals = (np.bincount(topics, values, minlength=n_topics) for values in (None, weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(totals[topics] > 0, weights * (sizes / totals)[topics], 1.0)
    return sp.csr_array((scaled, (members, topics)), shape=(len(labels), n_topics))


def term_scores(shares: Array, everywhere: Array, relevance: float | None = None) -> Array:
    """Return the scores of terms: class-based tf-idf, or relevance; -inf for absent terms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if relevance is None:
            scores = np.log(shares) + _RARITY * np.log(np.log1p(1 / everywhere))
        else:
            scores = np.log(shares) - (1 - relevance) * np.log(everywhere)
    return np.where(shares > 0, scores, -np.inf)


def typical_words(
    groups: GroupForms,
    n_words: int = 12,
    *,
    siblings: Sequence[int] | None = None,
    relevance: float | None = None,
    phrases: bool = True,
    min_share: float = _MIN_SHARE,
) -> list[list[tuple[str, float]]]:
    """List the typical words of each group with the share of its documents that have them, most relevant first.

    Groups with the same number in `siblings` show different words; by default all groups do. `relevance` goes from 1,
    the commonest words, to 0, the most exclusive ones; None: a class-based tf-idf. `phrases` lists phrases of two
    words too. A word is listed if at least the share `min_share` of the documents of the group have it, or half as
    many as have its commonest word.

    >>> from arbora.text import LtcVectorizer
    >>> texts = ["fish swim", "fish swam in the sea", "trees grow", "old trees"]
    >>> forms = forms_of(texts, None, (), LtcVectorizer().fit(texts))
    >>> words = typical_words(group_forms(forms, np.repeat(np.eye(2), 2, axis=0)), 2)
    >>> [word for word, _ in words[0]], [word for word, _ in words[1]]
    (['fish', 'sea'], ['trees', 'grow'])
    """
    n_forms, n_terms = len(groups.terms), len(groups.parts)
    to_term = sp.csr_array((np.ones(n_forms), groups.terms, np.arange(n_forms + 1)), shape=(n_forms, n_terms))
    counts = sp.csr_array(groups.counts @ to_term)
    counts.sort_indices()
    owner, terms = np.repeat(np.arange(len(groups.sizes)), np.diff(counts.indptr)), counts.indices
    sizes = np.maximum(groups.sizes, 1.0)[owner]
    shares = np.minimum(counts.data / sizes, 1.0)
    everywhere = np.minimum(np.asarray(groups.everywhere @ to_term) / max(groups.total, 1.0), 1.0)
    scores = term_scores(shares, everywhere[terms], relevance)
    unreadable = _unreadable(groups, n_terms)[terms]
    hidden = unreadable | (counts.data < np.minimum(_MIN_DOCUMENTS, sizes / 2))
    largest = _largest_of_group(np.where(unreadable, 0.0, shares), owner)
    hidden |= shares < np.minimum(min_share, _OF_MAX * largest)
    if not phrases:
        hidden |= groups.parts[terms, 0] >= 0
    kin = np.zeros(len(groups.sizes), int) if siblings is None else np.asarray(siblings)
    hidden |= shares < _SHARED * _largest_of_group(shares, kin[owner] * np.int64(n_terms) + terms)
    scores[hidden] = -np.inf
    parts = [slice(*bounds) for bounds in pairwise(counts.indptr.tolist())]
    return [
        _list_words(groups, k, terms[part], scores[part], shares[part], n_words)
        for k, part in enumerate(parts)
    ]


def _largest_of_group(shares: Array, keys: Ints) -> Array:
    """Return the largest share among entries with the same key, for each entry."""
    distinct, place = np.unique(keys, return_inverse=True)
    largest = np.zeros(len(distinct))
    np.maximum.at(largest, place, shares)
    return largest[place]


def _unreadable(groups: GroupForms, n_terms: int) -> NDArray[np.bool_]:
    """Mark terms that are numbers or begin with one ("73d", "200th anniversary"; not "3d"), unless all are."""
    numbers = np.zeros(n_terms, bool)
    plain = [any(part.isdigit() or part[:2].isdigit() for part in name.split()) for name in groups.names]
    numbers[groups.terms[np.array(plain, bool)]] = True
    return numbers if not numbers.all() else np.zeros(n_terms, bool)


def _list_words(
    groups: GroupForms, group: int, terms: Matrix, scores: Array, shares: Array, n_words: int
) -> list[tuple[str, float]]:
    """List the best terms of a group in their commonest forms, without words that listed phrases contain."""
    count = min(_CANDIDATES * n_words, len(scores))
    best = np.argpartition(-scores, count - 1)[:count] if count else np.empty(0, np.int64)
    best = best[np.lexsort((terms[best], -scores[best]))]
    best = best[np.isfinite(scores[best])]
    share = dict(zip(terms[best].tolist(), shares[best].tolist(), strict=True))
    listed: list[int] = []
    taken: dict[int, float] = {}  # words inside listed phrases, with the share of the phrase
    for term in share:
        words = [part for part in groups.parts[term].tolist() if part >= 0]
        if share[term] * _INSIDE < taken.get(term, 0.0):
            continue
        if any(word in taken or (word in listed and share[term] < _INSIDE * share[word]) for word in words):
            continue
        listed = [other for other in listed if other not in words]  # the phrase says more
        listed.append(term)
        for word in words:
            taken[word] = max(taken.get(word, 0.0), share[term])
        if len(listed) == n_words:
            break
    return [(_commonest_form(groups, group, term), share[term]) for term in listed]


def _commonest_form(groups: GroupForms, group: int, term: int) -> str:
    """Return the form of a term that most documents of a group have."""
    row = slice(groups.counts.indptr[group], groups.counts.indptr[group + 1])
    forms, counts = groups.counts.indices[row], groups.counts.data[row]
    ids = np.flatnonzero(groups.terms[forms] == term)
    return groups.names[int(forms[ids[np.lexsort((forms[ids], -counts[ids]))[0]]])]


# --- Words of groups for a slider of relevance: enough of them that any setting of the slider has its words ---
#
# The docstring of this file defines the relevance of a word, between the commonest words (1) and the most exclusive
# ones (0). The page orders the words again when the slider is moved, without a server: it needs,
# for each word, the share of the documents of the group that have it, and the share of all documents.


SETTINGS = (0.0, 0.3, 0.6, 1.0)  # of the slider, whose first words are kept
N_EACH = 16  # words for each setting
MAX_WORDS = 60_000  # of all groups together: a page stays small

Terms = list[list[Any]]  # word, share of the group, share of all documents


def relevance_terms(groups: GroupForms, siblings: Sequence[int] | None = None) -> list[Terms]:
    """List the words of each group that are relevant at some setting.

    A word has its share of the documents of the group, and of all documents. For `siblings` see `typical_words`. The
    lists are empty if there are more than a few thousand groups.

    >>> from arbora.text import LtcVectorizer
    >>> texts = ["fish in the sea", "fish and ships", "old trees", "trees at sea"]
    >>> forms = forms_of(texts, None, (), LtcVectorizer().fit(texts))
    >>> terms = relevance_terms(group_forms(forms, np.repeat(np.eye(2), 2, axis=0)))
    >>> [term for term in terms[0] if term[0] in ("fish", "sea")]
    [['fish', 1.0, 0.5], ['sea', 0.5, 0.5]]
    """
    n_groups = len(groups.sizes)
    n_each = min(N_EACH, MAX_WORDS // max(1, len(SETTINGS) * n_groups))
    if n_each < N_EACH // 4:
        return [[] for _ in range(n_groups)]
    everywhere = _shares_everywhere(groups)
    lists = [typical_words(groups, n_each, siblings=siblings, relevance=setting) for setting in SETTINGS]
    lists.append(typical_words(groups, n_each, siblings=siblings))
    terms = []
    for k in range(n_groups):
        share = {word: value for words in lists for word, value in words[k]}
        terms.append([[word, round(value, 5), round(everywhere[word], 5)] for word, value in share.items()])
    return terms


def _shares_everywhere(groups: GroupForms) -> dict[str, float]:
    """Return, for each form, the share of all documents that have a form of its term."""
    counts = np.bincount(groups.terms, weights=groups.everywhere, minlength=len(groups.parts))
    shares = np.minimum(counts / max(groups.total, 1.0), 1.0)[groups.terms].tolist()
    return dict(zip(groups.names, shares, strict=True))
