"""Words of groups for a slider of relevance: enough of them that any setting of the slider has its words.

The relevance of a word for a group, between the commonest words (1) and the most exclusive ones (0), is defined in
`arbora.app.contents.words`. The page orders the words again when the slider is moved, without a server: it needs, for
each word, the share of the documents of the group that have it, and the share of all documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arbora.app.contents.words import GroupForms, typical_words

SETTINGS = (0.0, 0.3, 0.6, 1.0)  # of the slider, whose first words are kept
N_EACH = 16  # words for each setting
MOST_WORDS = 60_000  # of all groups together: a page stays small

Terms = list[list[Any]]  # word, share of the group, share of all documents


def relevance_terms(groups: GroupForms, siblings: Sequence[int] | None = None) -> list[Terms]:
    """List the words of each group that are relevant at some setting.

    Parameters
    ----------
    groups : GroupForms
    siblings : sequence of n_groups int, optional
        See `arbora.app.contents.words.typical_words`.

    Returns
    -------
    list of lists of [word, share of the group, share of all documents]
        Empty lists if there are more than a few thousand groups.

    Examples
    --------
    >>> from arbora.app.contents.words import forms_of, group_forms
    >>> from arbora.text import LtcVectorizer
    >>> texts = ["fish in the sea", "fish and ships", "old trees", "trees at sea"]
    >>> forms = forms_of(texts, None, (), LtcVectorizer().fit(texts))
    >>> found = relevance_terms(group_forms(forms, np.repeat(np.eye(2), 2, axis=0)))
    >>> [term for term in found[0] if term[0] in ("fish", "sea")]
    [['fish', 1.0, 0.5], ['sea', 0.5, 0.5]]
    """
    n_groups = len(groups.sizes)
    n_each = min(N_EACH, MOST_WORDS // max(1, len(SETTINGS) * n_groups))
    if n_each < N_EACH // 4:
        return [[] for _ in range(n_groups)]
    everywhere = _shares_everywhere(groups)
    lists = [typical_words(groups, n_each, siblings=siblings, relevance=setting) for setting in SETTINGS]
    lists.append(typical_words(groups, n_each, siblings=siblings))
    found = []
    for k in range(n_groups):
        share = {word: value for words in lists for word, value in words[k]}
        found.append([[word, round(value, 5), round(everywhere[word], 5)] for word, value in share.items()])
    return found


def _shares_everywhere(groups: GroupForms) -> dict[str, float]:
    """Return, for each form, the share of all documents that have a form of its term."""
    counts = np.bincount(groups.terms, weights=groups.everywhere, minlength=len(groups.parts))
    shares = np.minimum(counts / max(groups.total, 1.0), 1.0)[groups.terms].tolist()
    return dict(zip(groups.names, shares, strict=True))
