"""The number of topics in words: how many were asked for and found, and how the number was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from arbora.metrics.table import Table


def choice_text(asked: Any, found: int, curve: Mapping[str, Any] | None) -> str:
    """Say how many topics were asked for and found; if the number was chosen, show the scores.

    Parameters
    ----------
    asked : "auto", int or sequence of int
        The parameter `n_topics` of `TopicModel`.
    found : int
        Number of topics.
    curve : mapping, optional
        `n_topics_curve_` of `TopicModel`.

    Returns
    -------
    str

    Examples
    --------
    >>> choice_text((4, 4), 13, None)
    '13 topics found of at most 16 (4 x 4).'
    >>> choice_text(20, 20, None)
    '20 topics found, as asked for.'
    >>> print(choice_text("auto", 3, {"n_topics": [2, 3, 4], "score": [0.3, 0.61, 0.6], "criterion": "halves"}))
    3 topics found: the smallest number whose agreement of the topics of two halves of the words of each document,
    smoothed over the numbers tried, is at least 80% of the largest:
    <BLANKLINE>
    | topics    | 2    | 3    | 4    |
    | :-------- | :--- | :--- | :--- |
    | agreement | 0.30 | 0.61 | 0.60 |
    """
    if curve is not None:
        return _chosen(found, curve)
    if isinstance(asked, list | tuple):
        most, shape = prod(asked), " x ".join(map(str, asked))
        return f"{found} topics found of at most {most} ({shape})."
    if found == asked:
        return f"{found} topics found, as asked for."
    return f"{found} topics found of {asked} asked for: the documents do not support more."


def _chosen(found: int, curve: Mapping[str, Any]) -> str:
    by_words = curve["criterion"] == "halves"
    how = (
        ": the smallest number whose agreement of the topics of two halves of the words of each document,\n"
        "smoothed over the numbers tried, is at least 80% of the largest:"
        if by_words
        else "; the number was chosen by the density of held-out documents:"
    )
    heads = ("topics", *(str(int(number)) for number in curve["n_topics"]))
    line = ("agreement" if by_words else "density", *(f"{float(score):.2f}" for score in curve["score"]))
    return f"{found} topics found{how}\n\n{Table(heads, (line,)).to_markdown()}"
