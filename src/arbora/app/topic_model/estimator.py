"""`TopicModel`: topics of raw texts, from the words to a folder; what ``arbora discover`` uses.

Topics are clusters of directions: flat (`VMFMixture`, `BayesianVMFMixture`, `SphericalKMeans`), a tree of clusters
(`HierarchicalVMFMixture`), or flat clusters that change with time (`TemporalVMFMixture`). A fitted model keeps, for
each topic, how many documents have each word and phrase, so that topics can be described, merged and split again
without the training documents.
"""

from __future__ import annotations

import time
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from arbora import discover
from arbora.app.answers import known_rows, topic_probabilities
from arbora.app.contents.words import GroupForms, forms_of, group_forms, typical_members, typical_words
from arbora.app.documents import Documents, as_documents, as_stamps
from arbora.app.reading import choose_bins
from arbora.app.text_rows import TextOptions, feature_names, fit_rows, text_language, transform_rows
from arbora.app.topic_edits import EditedTopics, edit_leaves, edit_sums, leaves_of
from arbora.app.topic_model.content import TopicContent
from arbora.app.topic_model.editing import TopicEditing
from arbora.core.estimator import all_or_nothing
from arbora.text import LtcVectorizer

MODELS = ("vmf", "bayes", "k-means")
AUTO = "auto"
_TITLE_WORDS = 3


class TopicModel(TopicEditing, TopicContent, ClusterMixin, TransformerMixin, BaseEstimator):
    """Topics of texts.

    Parameters
    ----------
    n_topics : "auto", int or tuple of int
        Number of topics. "auto": the smallest number at which one half of the words of a document tells nearly as
        much as possible about the other half; `n_topics_curve_` shows it. An integer: that many, where the texts
        support them. A tuple: a tree of topics with at most these numbers of children at each level, such as (4, 4).
    over_time : None, True, int or {"year", "month", "week", "day"}
        Topics that change with time: the bins of time, True to choose them from the times. `fit` then needs `times`.
    model : {"vmf", "bayes", "k-means"}
        Model of flat topics.
    features : "auto", str, TextOptions or LtcVectorizer
        How texts become rows. "auto": English stop words and stems if the texts look English, words as they are
        otherwise. A name: a language of the stemmer, or "none". A vectorizer is cloned.
    n_init : int
        Number of random starts; the best result is kept.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows progress bars on a terminal, 2 always.

    Attributes
    ----------
    n_topics_ : int
        Number of topics found, after edits.
    n_topics_curve_ : dict or None
        With "auto": numbers that were tried ("n_topics"), their scores ("score"), and the criterion.
    labels_ : ndarray of shape (n_texts,)
        Topic of each text of the fit; -1 for texts without known words. Not changed by edits.
    n_unknown_ : int
        Number of these texts.
    seconds_ : dict
        Time of the parts of the fit: "features", "topics" and "words".
    vectorizer_ : LtcVectorizer
    estimator_ : fitted mixture or k-means
    forms_ : GroupForms
        How many documents of each topic have each word and phrase, before edits; typical documents count more.
    feature_names_ : list of str or None
        Names of the columns of rows of numbers.
    edits_, edit_forms_ : list
        Merges and splits, and the words of the topics of each split.
    names_ : dict of int to str
        Titles given by `rename`.

    Examples
    --------
    >>> from arbora import TopicModel
    >>> texts = ["fish swim in the sea", "fish in the deep sea", "old trees grow", "trees grow old"] * 5
    >>> model = TopicModel(2, random_state=0).fit(texts)
    >>> sorted(words[:2] for words in model.top_words(phrases=False))
    [['fish', 'sea'], ['grow', 'old']]
    >>> model.predict(["a tree grows", "xyzzy"]).tolist()[1]
    -1
    """

    def __init__(
        self,
        n_topics: Any = AUTO,
        *,
        over_time: Any = None,
        model: str = "vmf",
        features: Any = AUTO,
        n_init: int = 1,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_topics = n_topics
        self.over_time = over_time
        self.model = model
        self.features = features
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, texts: Any, y: Any = None, *, times: Any = None) -> Self:
        """Find the topics.

        Parameters
        ----------
        texts : sequence of str
        y : ignored
        times : sequence of dates or numbers, optional
            With `over_time`: the time of each text.

        Returns
        -------
        self
        """
        return self.fit_documents(as_documents(texts), as_stamps(times, self.over_time))

    def fit_documents(self, documents: Documents, times: NDArray[Any] | None = None) -> Self:
        """Find the topics of a collection, which may also have rows of numbers.

        Parameters
        ----------
        documents : Documents
        times : ndarray of float64 or datetime64[s], optional

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            estimator = self.make_estimator()
            start = time.perf_counter()
            self.vectorizer_, X = self._fit_rows(documents)
            rows_made = time.perf_counter()
            known = known_rows(X)
            if not known.any():
                raise ValueError(
                    f"no document of {documents.name} has a known word: lower min_df, or give longer documents"
                )
            self.n_unknown_ = int((~known).sum())
            self.estimator_ = self._fit_topics(estimator, X, times)
            self.edits_: list[Any] = []
            self.edit_forms_: list[Any] = []
            self.names_: dict[int, str] = {}
            found = time.perf_counter()
            self._describe(documents, X, times)
            end = time.perf_counter()
            self.seconds_ = {"features": rows_made - start, "topics": found - rows_made, "words": end - found}
        return self

    def make_estimator(self) -> Any:
        """Make the unfitted model of rows; parameters that do not fit together are an error."""
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        common: dict[str, Any] = {
            "n_init": max(1, int(self.n_init)),
            "n_jobs": self.n_jobs,
            "random_state": self.random_state,
            "verbose": self.verbose,
        }
        number = self.n_topics
        # All topics share a concentration: otherwise the broadest one collects the texts that are rare in all others.
        if isinstance(number, tuple | list):
            if self.over_time is not None:
                raise ValueError("topics over time are flat: a tree and times cannot be combined")
            branching = tuple(number)
            return discover.HierarchicalVMFMixture(
                branching=branching, init="top-down", concentration="shared", **common
            )
        if number != AUTO and (not isinstance(number, Integral) or int(number) < 1):
            raise ValueError(
                f"n_topics must be 'auto', a number, or numbers of children such as (4, 4); got {number!r}"
            )
        if self.over_time is not None:
            return discover.TemporalVMFMixture(number, concentration="shared", **common)
        if self.model == "k-means":
            return discover.SphericalKMeans(1 if number == AUTO else int(number), **common)
        if self.model == "bayes":
            return discover.BayesianVMFMixture(number, **common)
        return discover.VMFMixture(number, init="annealed", **common)

    def _fit_rows(self, documents: Documents) -> tuple[LtcVectorizer | None, Any]:
        options = self.features
        if documents.texts is not None and isinstance(options, LtcVectorizer):
            vectorizer = clone(options)
            return vectorizer, vectorizer.fit_transform(documents.texts)
        if not isinstance(options, TextOptions):
            language = text_language(documents.texts or ()) if options == AUTO else str(options)
            options = TextOptions(language)
        return fit_rows(documents, options, verbose=self.verbose)

    def _fit_topics(self, estimator: Any, X: Any, times: NDArray[Any] | None) -> Any:
        """Fit the model of rows; zero rows take no part in it."""
        auto = isinstance(self.n_topics, str)
        if auto and isinstance(estimator, discover.SphericalKMeans):
            chosen = discover.VMFMixture(
                AUTO, init="annealed", random_state=self.random_state, n_jobs=self.n_jobs
            ).fit(X)
            self.n_topics_curve_: dict[str, Any] | None = _curve(chosen)
            return estimator.set_params(n_clusters=chosen.n_components_).fit(X)
        if self.over_time is None:
            estimator.fit(X)
        else:
            if times is None:
                raise ValueError("topics over time need the times of the texts: fit(texts, times=...)")
            bins = None if self.over_time is True else self.over_time
            estimator.set_params(bins=choose_bins(times, bins)).fit(X, times)
        self.n_topics_curve_ = _curve(estimator) if auto else None
        return estimator

    def _describe(self, documents: Documents, X: Any, times: NDArray[Any] | None) -> None:
        """Set the topic of each document, and the words of the topics."""
        topics = self._topic_of(self.estimator_, X, times)
        self.labels_ = topics
        names = feature_names(documents, self.vectorizer_, X.shape[1])
        forms = forms_of(documents.texts, X, names, self.vectorizer_)
        means = np.array([leaf.mean for leaf in leaves_of(self.estimator_)])
        members = typical_members(X, topics, means)
        self.forms_ = group_forms(forms, members, least=2 if len(topics) >= 2000 else 1)
        self.feature_names_ = None if documents.texts is not None else list(map(str, names))

    @staticmethod
    def _topic_of(estimator: Any, X: Any, times: NDArray[Any] | None) -> NDArray[np.int64]:
        proba = topic_probabilities(estimator, X, times)
        if hasattr(estimator, "leaf_ids_"):
            proba = proba[:, estimator.leaf_ids_]
        return np.where(known_rows(X), proba.argmax(axis=1), -1)

    # --- prediction -----------------------------------------------------------------------------------------------

    @property
    def topics_(self) -> Any:
        """The fitted model of rows, with the edits."""
        check_is_fitted(self)
        return EditedTopics(self.estimator_, list(self.edits_)).fit() if self.edits_ else self.estimator_

    @property
    def n_topics_(self) -> int:
        """Number of topics, after edits."""
        return len(self._leaves())

    def _leaves(self) -> list[Any]:
        check_is_fitted(self)
        return edit_leaves(leaves_of(self.estimator_), self.edits_)

    def _rows(self, texts: Any) -> Any:
        check_is_fitted(self)
        return transform_rows(as_documents(texts), self.vectorizer_, self.estimator_.n_features_in_)

    def predict(self, texts: Any, *, times: Any = None) -> NDArray[np.int64]:
        """Return the topic of each text; -1 for a text without known words.

        Parameters
        ----------
        texts : sequence of str
        times : sequence of dates or numbers, optional
            Topics over time: times of the texts; by default the last one.

        Returns
        -------
        ndarray of int, shape (n_texts,)
        """
        X = self._rows(texts)
        return self._topic_of(self.topics_, X, as_stamps(times, self.over_time))

    def predict_proba(self, texts: Any, *, times: Any = None) -> NDArray[np.float64]:
        """Return the probability of each topic given the text; see `calibration` of `arbora.discover.VMFMixture`.

        Parameters
        ----------
        texts : sequence of str
        times : sequence of dates or numbers, optional

        Returns
        -------
        ndarray of shape (n_texts, n_topics)
            For a text without known words, the shares of the topics.
        """
        model = self.topics_
        proba = topic_probabilities(model, self._rows(texts), as_stamps(times, self.over_time))
        return proba[:, model.leaf_ids_] if hasattr(model, "leaf_ids_") else proba

    def transform(self, texts: Any) -> NDArray[np.float64]:
        """Return the probabilities of the topics, as `predict_proba`.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_topics)
        """
        return self.predict_proba(texts)

    def is_novel(self, texts: Any, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Return which texts are unlike those of the fit; a text without known words is.

        Parameters
        ----------
        texts : sequence of str
        level : float
            Share of false alarms.

        Returns
        -------
        ndarray of bool, shape (n_texts,)
        """
        return np.asarray(self.topics_.is_novel(self._rows(texts), level=level))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the titles of the topics, the columns of `transform`."""
        return np.array(self.titles(), object)

    # --- words ----------------------------------------------------------------------------------------------------

    def _topic_forms(self) -> GroupForms:
        check_is_fitted(self)
        base: GroupForms = self.forms_
        if not self.edits_:
            return base
        counts = edit_sums(base.counts, self.edits_, [counts for counts, _ in self.edit_forms_])
        sizes = edit_sums(base.sizes[:, None], self.edits_, [sizes[:, None] for _, sizes in self.edit_forms_])
        return base._replace(counts=counts, sizes=sizes.toarray().ravel())

    def top_words(
        self, n_words: int = 10, *, phrases: bool = True, relevance: float | None = None
    ) -> list[list[str]]:
        """Return the typical words of each topic.

        Parameters
        ----------
        n_words : int
            Largest number of words of a topic.
        phrases : bool
            List phrases of two words too.
        relevance : float, optional
            From 1, the commonest words, to 0, the most exclusive ones; by default a class-based tf-idf.

        Returns
        -------
        list of lists of str
            One list for each topic, most typical words first, in their commonest form within the topic. A word that
            fewer than 5% of the documents have, and fewer than half as many as the commonest one, is not listed.
        """
        found = typical_words(self._topic_forms(), n_words, phrases=phrases, relevance=relevance)
        return [[word for word, _ in words] for words in found]

    def titles(self) -> list[str]:
        """Return the title of each topic: its first words, or the name given by `rename`."""
        words = self.top_words(_TITLE_WORDS)
        return [self.names_.get(k) or ", ".join(some) or str(k) for k, some in enumerate(words)]


def _curve(estimator: Any) -> dict[str, Any]:
    """Return the curve of the choice of a number of topics."""
    found = estimator.selection_
    return {
        "n_topics": np.asarray(found["n_components"]),
        "score": np.asarray(found["score"]),
        "criterion": found["criterion"],
    }
