"""`TopicModel`: topics of raw texts, from the words to a folder; what ``arbora discover`` uses.

Topics are clusters of directions: flat (`VMFMixture`, `BayesianVMFMixture`, `SphericalKMeans`), a tree of clusters
(`HierarchicalVMFMixture`), or flat clusters that change with time (`TemporalVMFMixture`). A fitted model keeps, for
each topic, how many documents have each word and phrase, so that topics can be described, merged and split again
without the training documents.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from arbora import discover
from arbora.app.answers import known_rows, leaf_probabilities, topics_of_rows
from arbora.app.contents.nodes import About, Subject
from arbora.app.contents.topics import require_words, topic_words, topics_content, without_empty
from arbora.app.contents.words import GroupForms, forms_of, group_forms, typical_members, typical_words
from arbora.app.documents import Documents, as_documents, as_times
from arbora.app.folder import Content
from arbora.app.reading import choose_bins
from arbora.app.text_model import TextModel
from arbora.app.text_rows import AUTO, TextOptions, feature_names, fit_rows
from arbora.app.topic_edits import (
    EditedTopics,
    Leaf,
    Merge,
    Split,
    check_edits,
    closest_merges,
    edit_leaves,
    edit_sums,
    leaves_of,
    read_edits,
)
from arbora.arrays import Array, Ints, Matrix
from arbora.datasets.readers.records import join_labels
from arbora.text import LtcVectorizer

MODELS = ("vmf", "bayes", "k-means")
_TITLE_WORDS = 3
_MANY_TEXTS = 2000  # in a fit with as many texts, words of one text are dropped


class TopicModel(TextModel, ClusterMixin, TransformerMixin, BaseEstimator):
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
        Number of topics, after edits (a property).
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

    _kind = "topic model"
    _command = "arbora discover"

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

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, texts: Any, y: Any = None, *, times: Any = None) -> Self:
        """Find the topics.

        One model of the rows is trained, `n_init` times from different starts. With "auto", that model trains smaller
        ones on half of the rows, and compares their topics of the two halves of the words of other rows, to choose
        the number of topics; for k-means, which cannot choose,
        a mixture is trained first, and its number is used.

        Parameters
        ----------
        texts : sequence of str or Documents
        y : ignored
        times : sequence of dates or numbers, optional
            With `over_time`: the time of each text.

        Returns
        -------
        self
        """
        documents, stamps = as_documents(texts), self._stamps(times)
        self.make_estimator()  # parameters that do not fit together are refused before the rows are made
        if self.over_time is not None and stamps is None:
            raise ValueError("topics over time need the times of the texts: fit(texts, times=...)")
        start = time.perf_counter()
        vectorizer, X = fit_rows(documents, self._text_features(), verbose=self.verbose)
        has_words = require_words(documents, X)
        rows_made = time.perf_counter()
        estimator, curve = self._fit_topics(X, stamps)
        labels = topics_of_rows(estimator, X, stamps)
        topics_found = time.perf_counter()
        names = feature_names(documents, vectorizer, X.shape[1])
        members = typical_members(X, labels, np.array([leaf.mean for leaf in leaves_of(estimator)]))
        min_documents = 2 if len(labels) >= _MANY_TEXTS else 1
        forms = group_forms(
            forms_of(documents.texts, X, names, vectorizer), members, min_documents=min_documents
        )
        spent = np.diff([start, rows_made, topics_found, time.perf_counter()]).tolist()
        self.vectorizer_, self.estimator_, self.forms_ = vectorizer, estimator, forms
        self.labels_, self.n_unknown_, self.n_topics_curve_ = labels, int((~has_words).sum()), curve
        self.feature_names_ = None if documents.texts is not None else names
        self.seconds_ = dict(zip(("features", "topics", "words"), spent, strict=True))
        self.edits_: list[Merge | Split] = []
        self.edit_forms_: list[tuple[sp.csr_array, Array]] = []
        self.names_: dict[int, str] = {}
        return self

    def _text_features(self) -> TextOptions | LtcVectorizer:
        if isinstance(self.features, TextOptions | LtcVectorizer):
            return self.features
        return TextOptions(str(self.features))

    def _fit_topics(self, X: Any, stamps: Matrix | None) -> tuple[Any, dict[str, Any] | None]:
        """Fit the model of rows; return it, and how its `fit` chose the number of topics, if it did."""
        estimator = self.make_estimator()
        if isinstance(estimator, discover.SphericalKMeans) and self.n_topics == AUTO:
            mixture = self._flat_mixture(AUTO, init="annealed").fit(X)
            estimator.set_params(n_clusters=mixture.n_components_).fit(X)
            return estimator, choice_curve(mixture)
        if stamps is None:
            estimator.fit(X)
        else:
            bins = None if self.over_time is True else self.over_time
            estimator.set_params(bins=choose_bins(stamps, bins)).fit(X, stamps)
        return estimator, choice_curve(estimator) if isinstance(self.n_topics, str) else None

    def _stamps(self, times: Any) -> Matrix | None:
        if times is not None and self.over_time is None:
            raise ValueError("times are for topics over time: TopicModel(over_time=True)")
        return None if times is None else as_times(times)

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
            return discover.HierarchicalVMFMixture(
                tuple(number), init="top-down", concentration="shared", **common
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

    def _flat_mixture(self, n_components: Any, **options: Any) -> discover.VMFMixture:
        """Make a mixture that is fitted beside the main one."""
        return discover.VMFMixture(
            n_components, random_state=self.random_state, n_jobs=self.n_jobs, **options
        )

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

    def _leaves(self) -> list[Leaf]:
        check_is_fitted(self)
        return edit_leaves(leaves_of(self.estimator_), self.edits_)

    def predict(self, texts: Any, *, times: Any = None) -> Ints:
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
        X = self.rows(texts)
        return topics_of_rows(self.topics_, X, self._stamps(times))

    def predict_proba(self, texts: Any, *, times: Any = None) -> Array:
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
        return leaf_probabilities(self.topics_, self.rows(texts), self._stamps(times))

    def transform(self, texts: Any) -> Array:
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
        return np.asarray(self.topics_.is_novel(self.rows(texts), level=level))

    def get_feature_names_out(self, input_features: Any = None) -> Matrix:
        """Return the titles of the topics, the columns of `transform`."""
        return np.array(self.titles(), object)

    # --- words, the page, model folders ---------------------------------------------------------------------------

    def topic_forms(self) -> GroupForms:
        """Return how many documents of each topic have each word and phrase, after edits."""
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
        lists = typical_words(self.topic_forms(), n_words, phrases=phrases, relevance=relevance)
        return [[word for word, _ in words] for words in lists]

    def titles(self) -> list[str]:
        """Return the title of each topic: its first words, or the name given by `rename`."""
        words = self.top_words(_TITLE_WORDS)
        return [self.names_.get(k) or ", ".join(top) or str(k) for k, top in enumerate(words)]

    def _describe(self, documents: Documents, y: Any, times: Any, about: About) -> Content:
        if y is not None:
            documents = dataclasses.replace(documents, y=join_labels(list(y)))
        model, stamps = self.topics_, self._stamps(times)
        X = sp.csr_array((0, self.estimator_.n_features_in_))
        if len(documents):
            X = self.rows(documents)
            stamps = None if stamps is None else stamps[known_rows(X)]
            documents, X, left_out = without_empty(documents, X)
            about = about._replace(notices=[*about.notices, *left_out])
        if hasattr(model, "times_"):
            about = about._replace(settings={"over_time": "time", **about.settings})
        else:
            stamps = None
        names = self.feature_names_ or feature_names(None, self.vectorizer_, X.shape[1])
        subject = Subject(model, X, documents, names, self.vectorizer_)
        words = topic_words(model, self.topic_forms())
        content = topics_content(subject, stamps, about, words=words, names=self.names_)
        for topic, node in enumerate(words.leaves.tolist()):
            content.nodes[node]["topic"] = topic
        return content

    # --- edits: see `arbora.app.topic_edits` ----------------------------------------------------------------------

    def _check_topic(self, topic: Any) -> int:
        if not isinstance(topic, Integral) or not 0 <= int(topic) < self.n_topics_:
            raise ValueError(f"topics are numbers from 0 to {self.n_topics_ - 1}, got {topic!r}")
        return int(topic)

    def merge(self, topics: Sequence[int]) -> Self:
        """Make one topic of several; it has the number of the first of them, later topics move up.

        Parameters
        ----------
        topics : sequence of int

        Returns
        -------
        self
        """
        chosen = sorted({self._check_topic(topic) for topic in topics})
        if len(chosen) < 2:
            raise ValueError("merge needs at least two different topics")
        names, others = self.names_, set(chosen[1:])
        left = [k for k in range(self.n_topics_) if k not in others]
        self.edits_ = [*self.edits_, Merge(tuple(chosen))]
        self.names_ = {new: names[old] for new, old in enumerate(left) if old in names and old != chosen[0]}
        return self

    def split(self, topic: int, texts: Any, n_topics: int = 2) -> Self:
        """Divide a topic, given documents of it.

        Parameters
        ----------
        topic : int
        texts : sequence of str
            The texts of the fit, or others; those of the topic are used.
        n_topics : int
            Number of new topics; fewer if the texts do not support them. They take the place of the topic.

        Returns
        -------
        self
        """
        topic = self._check_topic(topic)
        if hasattr(self.estimator_, "times_"):
            raise ValueError("topics over time cannot be split: fit again with more topics")
        documents = as_documents(texts)
        X = self.rows(documents)
        members = np.flatnonzero(topics_of_rows(self.topics_, X) == topic)
        if len(members) < 2 or n_topics < 2:
            raise ValueError(
                f"{len(members)} of the texts are of topic {topic}, and n_topics={n_topics}: a split needs two of "
                "each"
            )
        mixture = self._flat_mixture(min(n_topics, len(members))).fit(X[members])
        n_parts = mixture.n_components_
        if n_parts < 2:
            raise ValueError(f"topic {topic} cannot be split: its texts have one direction")
        split_texts = None if documents.texts is None else [documents.texts[row] for row in members.tolist()]
        forms = forms_of(split_texts, X[members], self.feature_names_ or (), self.vectorizer_)
        weights = typical_members(X[members], mixture.predict(X[members]), mixture.means_)
        groups, place = group_forms(forms, weights), {name: k for k, name in enumerate(self.forms_.names)}
        common = [k for k, name in enumerate(groups.names) if name in place]
        columns = [place[groups.names[k]] for k in common]
        move = sp.csr_array(
            (np.ones(len(common)), (common, columns)), shape=(len(groups.names), len(self.forms_.names))
        )
        self.edits_ = [*self.edits_, Split(topic, mixture)]
        self.edit_forms_ = [*self.edit_forms_, (sp.csr_array(groups.counts @ move), groups.sizes)]
        shift = n_parts - 1
        self.names_ = {k + (shift if k > topic else 0): v for k, v in self.names_.items() if k != topic}
        return self

    def reduce_to(self, n_topics: Any) -> Self:
        """Merge the most similar topics until `n_topics` are left.

        Parameters
        ----------
        n_topics : int

        Returns
        -------
        self
        """
        if not isinstance(n_topics, Integral) or not 1 <= int(n_topics) <= self.n_topics_:
            raise ValueError(f"n_topics must be a number from 1 to {self.n_topics_}, got {n_topics!r}")
        for edit in closest_merges(self._leaves(), int(n_topics)):
            self.merge(edit.topics)
        return self

    def rename(self, topic: int, title: str) -> Self:
        """Give a topic a title; an empty one gives its words back.

        Parameters
        ----------
        topic : int
        title : str

        Returns
        -------
        self
        """
        topic = self._check_topic(topic)
        others = {k: name for k, name in self.names_.items() if k != topic}
        self.names_ = others | ({topic: str(title)} if title else {})
        return self

    def apply_edits(self, edits: Any, texts: Any = None) -> Self:
        """Apply renames, merges and splits that the page of ``arbora explore`` exported.

        Parameters
        ----------
        edits : path or list of dict
            A file of edits, or its content; see `arbora.app.stored_edits`.
        texts : sequence of str, optional
            Texts for splits.

        Returns
        -------
        self
        """
        listed = read_edits(edits) if isinstance(edits, str | os.PathLike) else check_edits(edits)
        for number, edit in enumerate(listed, start=1):
            try:
                if edit["edit"] == "rename":
                    self.rename(edit["topic"], edit["title"])
                elif edit["edit"] == "merge":
                    self.merge(edit["topics"])
                elif texts is None:
                    raise ValueError("a split needs texts of the topic")
                else:
                    self.split(edit["topic"], texts, edit["n_topics"])
            except ValueError as error:
                raise ValueError(f"edit {number}, {edit['edit']}: {error}") from error
        return self

    def undo(self) -> Self:
        """Undo the last merge or split; titles given by `rename` are dropped."""
        check_is_fitted(self)
        if not self.edits_:
            raise ValueError("there is no merge and no split to undo")
        if isinstance(self.edits_[-1], Split):
            self.edit_forms_ = self.edit_forms_[:-1]
        self.edits_, self.names_ = self.edits_[:-1], {}
        return self


def choice_curve(estimator: Any) -> dict[str, Any]:
    """Return how a fitted mixture chose its number of topics, as `TopicModel.n_topics_curve_`."""
    selection = estimator.selection_
    return {
        "n_topics": np.asarray(selection["n_components"]),
        "score": np.asarray(selection["score"]),
        "criterion": selection["criterion"],
    }
