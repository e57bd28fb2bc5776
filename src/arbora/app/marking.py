"""Find the deciding words of an answer in the text that it was given for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

_TOKEN = re.compile(r"\w+(?:['’-]\w+)*")
_MOST_TOKENS = 20_000  # of a text that are looked at


def mark_words(
    text: str, words: Sequence[Sequence[Any]], names: Sequence[str], vectorizer: Any
) -> list[list[Any]]:
    """Return where the deciding words are in a text.

    Every distinct token, and every pair of neighbours, is given to the vectorizer alone: a token is marked if that
    gives the column of a deciding word. So stems and phrases are found whatever the vectorizer does with them.

    Parameters
    ----------
    text : str
    words : sequence of (word, weight)
        The deciding words of the text.
    names : sequence of str
        Names of the columns of the vectorizer.
    vectorizer : fitted vectorizer

    Returns
    -------
    list of [start, end, weight]
        In order, without overlaps.

    Examples
    --------
    >>> from arbora.text import LtcVectorizer
    >>> vectorizer = LtcVectorizer().fit(["fish swim", "tall trees"])
    >>> mark_words("A fish swims!", [("swim", 0.5)], list(vectorizer.get_feature_names_out()), vectorizer)
    [[7, 12, 0.5]]
    """
    wanted = {str(word): float(weight) for word, weight in words}
    columns = [j for j, name in enumerate(names) if str(name) in wanted]
    tokens = [match.span() for match in _TOKEN.finditer(text)][:_MOST_TOKENS]
    if not columns or not tokens:
        return []
    single = [text[start:end] for start, end in tokens]
    pairs = [f"{first} {second}" for first, second in pairwise(single)]
    distinct = {piece: row for row, piece in enumerate(dict.fromkeys([*single, *pairs]))}
    found = sp.csc_array(vectorizer.transform(list(distinct)))[:, columns]
    weights = np.array([wanted[str(names[j])] for j in columns])
    strength = np.asarray((found > 0).astype(np.float64) @ weights).ravel()
    alone = np.array([strength[distinct[piece]] for piece in single])
    best = alone.copy()
    for i, pair in enumerate(pairs):
        together = strength[distinct[pair]]
        if together > alone[i] + alone[i + 1] + 1e-12:  # the words of a phrase that counts as such
            best[i : i + 2] = np.maximum(best[i : i + 2], together)
    return [
        [start, end, round(float(value), 4)]
        for (start, end), value in zip(tokens, best, strict=True)
        if value > 0
    ]
