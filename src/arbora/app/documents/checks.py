"""Warnings about a test: too few documents, or texts that were trained on."""

from __future__ import annotations

import math

from arbora.app.documents.collection import Documents
from arbora.app.documents.duplicates import text_key
from arbora.core.estimator import warn_caller
from arbora.datasets.base import label_names

FEW = 50  # test documents that make a score vague


def warn_split(train: Documents, test: Documents) -> None:
    """Warn if the scores of a test will mislead: few test documents, classes without any, texts that were trained on.

    Parameters
    ----------
    train, test : Documents
        With labels.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_split(Documents.from_texts(["a fish"], ["sea"]), Documents.from_texts(["A fish"], ["sea"]))
    >>> [str(one.message).partition(":")[0] for one in caught]
    ['1 of 1 test documents is also in the training documents', 'there are only 1 test documents']
    """
    for message in (*_duplicates(train, test), *_few(train, test)):
        warn_caller(message)


def _duplicates(train: Documents, test: Documents) -> list[str]:
    if train.texts is None or test.texts is None:
        return []
    known = {text_key(text) for text in train.texts if text.strip()}
    twice = [name for name, text in zip(test.ids, test.texts, strict=True) if text_key(text) in known]
    if not twice:
        return []
    verb = "is" if len(twice) == 1 else "are"
    return [
        f"{len(twice):,} of {len(test):,} test documents {verb} also in the training documents: the scores are too "
        f"high (first: {twice[0]}); --dedupe (dedupe=True) leaves out duplicates"
    ]


def _few(train: Documents, test: Documents) -> list[str]:
    trained, tested = (set(label_names(documents.y)) for documents in (train, test))
    n_without = len(trained - tested)
    vague = len(test) < FEW
    if not vague and not n_without:
        return []
    parts = []
    if vague:
        points = math.ceil(
            100 * math.sqrt(1 / max(1, len(test)))
        )  # two standard deviations of a share of 1/2
        parts.append(
            f"there are only {len(test)} test documents: scores can be off by {min(points, 100)} points"
        )
    if n_without:
        parts.append(f"{n_without:,} of {len(trained):,} classes have no test document")
    return ["; ".join(parts)]
