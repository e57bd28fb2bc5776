"""The documents of a content: a random sample, with a snippet of each text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.app.documents import Documents

SNIPPET = 300  # characters
N_ENTRIES = 12


def draw_sample(
    n_documents: int, most: int, needed: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw documents at random, in ascending order; the needed ones are always drawn.

    Examples
    --------
    >>> draw_sample(100, 4, np.array([7, 50]), np.random.default_rng(0)).tolist()
    [7, 50, 64, 84]
    """
    if n_documents <= most:
        return np.arange(n_documents)
    others = np.setdiff1d(np.arange(n_documents), needed)
    drawn = rng.choice(others, max(0, most - len(needed)), replace=False)
    return np.sort(np.concatenate([needed, drawn]))


def snippet(text: str, length: int = SNIPPET) -> str:
    r"""Return the beginning of a text on one line, cut between words.

    Examples
    --------
    >>> snippet("a long\n  story of trees", 12)
    'a long story...'
    """
    line = " ".join(text[: 8 * length].split())
    if len(line) <= length:
        return line
    head, _, _ = line[: length + 1].rpartition(" ")
    return (head if len(head) > length // 2 else line[:length]) + "..."


def largest_entries(x: Any, names: Any, n: int = N_ENTRIES) -> list[list[Any]]:
    """Return names and values of the largest entries of a row of numbers, which has no text.

    Examples
    --------
    >>> largest_entries(sp.csr_array([[0.5, 0.0, 2.0]]), None)
    [['2', 2.0], ['0', 0.5]]
    """
    order = np.argsort(-x.data, kind="stable")[:n]
    label = str if names is None else (lambda j: str(names[j]))
    return [[label(int(x.indices[i])), round(float(x.data[i]), 6)] for i in order]


def describe_documents(
    documents: Documents, sampled: NDArray[np.int64], answers: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Make the lines of ``documents.jsonl``.

    Parameters
    ----------
    documents : Documents
        All documents.
    sampled : ndarray of int
        Row numbers of the documents to describe.
    answers : mapping of str to sequence
        Further entries of the sampled documents: "node", "probability", ...

    Returns
    -------
    list of dict

    Examples
    --------
    >>> two = Documents.from_texts(["The sea", "The land"])
    >>> describe_documents(two, np.array([1]), {"node": [3]})
    [{'id': '2', 'text': 'The land', 'label': None, 'node': 3}]
    """
    lines = []
    for place, row in enumerate(sampled.tolist()):
        label = None if documents.y is None else documents.y[row]
        line = {"id": documents.ids[row], "text": "", "label": label}
        if documents.texts is not None:
            line["text"] = snippet(documents.texts[row])
        else:
            line["words"] = largest_entries(sp.csr_array(documents.X[[row]]), documents.feature_names)
        lines.append(line | {name: values[place] for name, values in answers.items()})
    return lines
