"""Find topics in documents with `TopicModel`, by the options of the command line.

>>> from arbora.app.documents import Documents
>>> documents = Documents.from_texts(["fish swim", "fish dive", "old trees", "trees grow"])
>>> topics = discover_topics(documents, TopicOptions(topics=2, jobs=1))
>>> len(topics.content().nodes)
3
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from arbora.app.contents.nodes import SAMPLE
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.app.reading import read_times
from arbora.app.text_rows import AUTO, TextOptions
from arbora.app.topic_model import TopicModel
from arbora.arrays import Matrix
from arbora.metrics.table import Table

# --- The number of topics in words: how many were asked for and found, and how the number was chosen --------


def choice_text(asked: Any, n_topics: int, curve: Mapping[str, Any] | None) -> str:
    """Say how many topics were asked for and found; if the number was chosen, show the scores.

    `asked` and `curve` are `n_topics` and `n_topics_curve_` of `TopicModel`.

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
        return _chosen(n_topics, curve)
    if isinstance(asked, list | tuple):
        limit, shape = prod(asked), " x ".join(map(str, asked))
        return f"{n_topics} topics found of at most {limit} ({shape})."
    if n_topics == asked:
        return f"{n_topics} topics found, as asked for."
    return f"{n_topics} topics found of {asked} asked for: the documents do not support more."


def _chosen(n_topics: int, curve: Mapping[str, Any]) -> str:
    by_words = curve["criterion"] == "halves"
    how = (
        ": the smallest number whose agreement of the topics of two halves of the words of each document,\n"
        "smoothed over the numbers tried, is at least 80% of the largest:"
        if by_words
        else "; the number was chosen by the density of held-out documents:"
    )
    heads = ("topics", *(str(int(number)) for number in curve["n_topics"]))
    line = ("agreement" if by_words else "density", *(f"{float(score):.2f}" for score in curve["score"]))
    return f"{n_topics} topics found{how}\n\n{Table(heads, (line,)).to_markdown()}"


# --- Find topics in documents with `TopicModel`, by the options of the command line -------------------------


DEFAULT_TOPICS = AUTO


class TopicOptions(NamedTuple):
    """Which topic model to fit."""

    topics: int | str | None = None  # "auto": see `TopicModel`; None: `DEFAULT_TOPICS`
    tree: tuple[int, ...] | None = None  # number of children at each level of a tree of topics
    over_time: str | None = None  # field of dates or numbers, for topics that change with time
    # number of time bins, or "year", "month", "week" or "day"; None: chosen from the times
    bins: str | int | None = None
    model: str = "vmf"  # of flat topics: "vmf", "bayes" or "k-means"
    starts: int = 1  # random starts, of which the best result is kept
    jobs: int = -1  # number of threads; -1: all cores
    seed: int = 0


class DiscoveredTopics(NamedTuple):
    """A fitted topic model with its documents, and their times."""

    model: TopicModel
    documents: Documents
    times: Matrix | None
    options: TopicOptions

    @property
    def estimator(self) -> Any:
        """The fitted mixture or k-means of the rows."""
        return self.model.estimator_

    def content(self, *, sample: int = SAMPLE, settings: Mapping[str, Any] | None = None) -> Content:
        """Describe the topics and their documents: the content of a model folder; see `About`.

        Documents with no known words are left out, with a warning.
        """
        field = {"over_time": self.options.over_time} if self.options.over_time else {}
        return self.model.content(
            self.documents, times=self.times, sample=sample, settings={**field, **(settings or {})}
        )


def discover_topics(
    documents: Documents,
    options: TopicOptions | None = None,
    text: TextOptions | None = None,
    *,
    verbose: int = 0,
) -> DiscoveredTopics:
    """Find topics in documents; documents with no known words take no part.

    Without `text`, the options are chosen from the texts.
    """
    options = options or TopicOptions()
    model = make_topic_model(options, text, verbose=verbose)
    times = None if options.over_time is None else read_times(documents, options.over_time)
    return DiscoveredTopics(model.fit(documents, times=times), documents, times, options)


def make_topic_model(
    options: TopicOptions, text: TextOptions | None = None, *, verbose: int = 0
) -> TopicModel:
    """Make the unfitted model; options that do not fit together are an error.

    >>> make_topic_model(TopicOptions(5, model="k-means")).make_estimator().n_clusters
    5
    """
    number: Any = DEFAULT_TOPICS if options.topics is None else options.topics
    model = TopicModel(
        tuple(options.tree) if options.tree else number,
        over_time=None if options.over_time is None else options.bins or True,
        model=options.model,
        features=AUTO if text is None else text,
        n_init=options.starts,
        n_jobs=options.jobs,
        random_state=options.seed,
        verbose=verbose,
    )
    model.make_estimator()
    return model
