"""Find topics in documents with `TopicModel`, by the options of the command line.

>>> from arbora.app.documents import Documents
>>> documents = Documents.from_texts(["fish swim", "fish dive", "old trees", "trees grow"])
>>> found = discover_topics(documents, TopicOptions(topics=2, jobs=1))
>>> len(found.content().nodes)
3
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from arbora.app.contents.nodes import SAMPLE
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.app.reading import read_times
from arbora.app.text_rows import TextOptions
from arbora.app.topic_model import AUTO, MODELS, TopicModel

DEFAULT_TOPICS = AUTO

__all__ = [
    "DEFAULT_TOPICS",
    "MODELS",
    "DiscoveredTopics",
    "TopicOptions",
    "discover_topics",
    "make_topic_model",
]


class TopicOptions(NamedTuple):
    """Which topic model to fit.

    Attributes
    ----------
    topics : int, "auto" or None
        Number of topics; "auto": see `TopicModel`; None: `DEFAULT_TOPICS`.
    tree : tuple of int or None
        A tree of topics: the number of children at each level.
    over_time : str or None
        Field of dates or numbers: topics that change with time.
    bins : str, int or None
        Time bins: a number, or "year", "month", "week" or "day"; None: chosen from the times.
    model : str
        Model of flat topics: "vmf", "bayes" or "k-means".
    starts : int
        Number of random starts; the best result is kept.
    jobs : int
        Number of threads; -1: all cores.
    seed : int
        Random seed.
    """

    topics: int | str | None = None
    tree: tuple[int, ...] | None = None
    over_time: str | None = None
    bins: str | int | None = None
    model: str = "vmf"
    starts: int = 1
    jobs: int = -1
    seed: int = 0


class DiscoveredTopics(NamedTuple):
    """A fitted topic model with its documents.

    Attributes
    ----------
    model : fitted TopicModel
    documents : Documents
    times : ndarray or None
        Their times.
    options : TopicOptions
    """

    model: TopicModel
    documents: Documents
    times: NDArray[Any] | None
    options: TopicOptions

    @property
    def estimator(self) -> Any:
        """The fitted mixture or k-means of the rows."""
        return self.model.estimator_

    def content(self, *, sample: int = SAMPLE, settings: Mapping[str, Any] | None = None) -> Content:
        """Describe the topics and their documents: the content of a model folder.

        Documents with no known words are left out, with a warning.

        Parameters
        ----------
        sample : int
            Largest number of documents to keep.
        settings : mapping, optional
            How the model was made.

        Returns
        -------
        Content
        """
        given = {"over_time": self.options.over_time} if self.options.over_time else {}
        return self.model.content(
            self.documents, times=self.times, sample=sample, settings={**given, **(settings or {})}
        )


def discover_topics(
    documents: Documents,
    options: TopicOptions | None = None,
    text: TextOptions | None = None,
    *,
    verbose: int = 0,
) -> DiscoveredTopics:
    """Find topics in documents; documents with no known words take no part.

    Parameters
    ----------
    documents : Documents
    options : TopicOptions, optional
    text : TextOptions, optional
        By default chosen from the texts.
    verbose : int
        1: progress bars on a terminal.

    Returns
    -------
    DiscoveredTopics
    """
    options = options or TopicOptions()
    model = make_topic_model(options, text, verbose=verbose)
    times = None if options.over_time is None else read_times(documents, options.over_time)
    return DiscoveredTopics(model.fit_documents(documents, times), documents, times, options)


def make_topic_model(
    options: TopicOptions, text: TextOptions | None = None, *, verbose: int = 0
) -> TopicModel:
    """Make the unfitted model; options that do not fit together are an error.

    Examples
    --------
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
