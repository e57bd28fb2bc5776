"""Find topics in documents.

Topics are clusters of directions: flat (`VMFMixture`, `BayesianVMFMixture`, `SphericalKMeans`), a tree of clusters
(`HierarchicalVMFMixture`), or flat clusters that change with time (`TemporalVMFMixture`).

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

from arbora import discover
from arbora.app.contents.nodes import SAMPLE
from arbora.app.contents.subject import Subject
from arbora.app.contents.topics import topics_content, without_empty
from arbora.app.documents.collection import Documents
from arbora.app.documents.times import choose_bins, read_times
from arbora.app.folder import Content
from arbora.app.text_rows import TextOptions, feature_names, fit_rows
from arbora.text import LtcVectorizer

DEFAULT_TOPICS = 20
MODELS = ("vmf", "bayes", "k-means")


class TopicOptions(NamedTuple):
    """Which topic model to fit.

    Attributes
    ----------
    topics : int, "auto" or None
        Number of topics; "auto": by held-out density; None: `DEFAULT_TOPICS`.
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
    estimator : fitted mixture or k-means
    vectorizer : fitted LtcVectorizer or None
        Makes rows of texts; None for rows of numbers.
    documents : Documents
        The documents with at least one known word.
    X : CSR matrix
        Their rows.
    times : ndarray or None
        Their times.
    options : TopicOptions
    notices : list of str
        Messages for the user.
    """

    estimator: Any
    vectorizer: LtcVectorizer | None
    documents: Documents
    X: Any
    times: NDArray[Any] | None
    options: TopicOptions
    notices: list[str]

    def content(self, *, sample: int = SAMPLE, settings: Mapping[str, Any] | None = None) -> Content:
        """Describe the topics and their documents: the content of a model folder.

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
        names = feature_names(self.documents, self.vectorizer, self.X.shape[1])
        subject = Subject(self.estimator, self.X, self.documents, names, self.vectorizer)
        given = {"over_time": self.options.over_time} if self.options.over_time else {}
        return topics_content(
            subject, self.times, sample=sample, settings={**given, **(settings or {})}, notices=self.notices
        )


def discover_topics(
    documents: Documents,
    options: TopicOptions | None = None,
    text: TextOptions | None = None,
    *,
    verbose: int = 0,
) -> DiscoveredTopics:
    """Find topics in documents; documents with no known words are left out, with a warning.

    Parameters
    ----------
    documents : Documents
    options : TopicOptions, optional
    text : TextOptions, optional
    verbose : int
        1: progress bars on a terminal.

    Returns
    -------
    DiscoveredTopics
    """
    options = options or TopicOptions()
    estimator = make_topic_model(options, verbose=verbose)
    vectorizer, X = fit_rows(documents, text or TextOptions(), verbose=verbose)
    documents, X, notices = without_empty(documents, X)
    times = None if options.over_time is None else read_times(documents, options.over_time)
    if times is None:
        estimator.fit(X)
    else:
        estimator.set_params(bins=choose_bins(times, options.bins)).fit(X, times)
    return DiscoveredTopics(estimator, vectorizer, documents, X, times, options, notices)


def make_topic_model(options: TopicOptions, *, verbose: int = 0) -> Any:
    """Make the unfitted estimator; options that do not fit together are an error.

    Examples
    --------
    >>> make_topic_model(TopicOptions(5, model="k-means")).n_clusters
    5
    """
    common: dict[str, Any] = {
        "n_init": max(1, options.starts),
        "n_jobs": options.jobs,
        "random_state": options.seed,
        "verbose": verbose,
    }
    if options.tree:
        if options.over_time:
            raise ValueError("topics over time are flat: a tree and times cannot be combined")
        return discover.HierarchicalVMFMixture(branching=options.tree, **common)
    number = DEFAULT_TOPICS if options.topics is None else options.topics
    if number == "auto" and (options.over_time or options.model == "k-means"):
        what = "a model of topics over time" if options.over_time else "the model k-means"
        raise ValueError(f"{what} needs a number of topics: give 20, for example, instead of auto")
    if options.over_time:
        return discover.TemporalVMFMixture(number, **common)
    if options.model == "k-means":
        return discover.SphericalKMeans(int(number), **common)
    return (discover.BayesianVMFMixture if options.model == "bayes" else discover.VMFMixture)(
        number, **common
    )
