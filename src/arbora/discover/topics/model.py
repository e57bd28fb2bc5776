"""Cluster topic model: topics of words, and clusters of documents that share their topics (Wallach 2008).

The model and its sampler are in `sampler`; `max_margin` adds a margin between the clusters.
"""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.estimator import Explorable, all_or_nothing
from arbora.discover.mixture.prediction import Features, draw_seed, largest_features
from arbora.discover.mixture.rows import zero_rows
from arbora.discover.topics.fitting import (
    Folded,
    TopicParameters,
    agreement,
    diagnose,
    fold_documents,
    mean_parameters,
    named,
    read_landmarks,
    run_chains,
)
from arbora.discover.topics.sampler import ClusterTopics, Concentrations, make_corpus, read_counts
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import Chains, ChainSchedule, mean_trace
from arbora.infer.mcmc.max_margin import Margin
from arbora.structure import Hierarchy

# --- The tree of a cluster topic model: clusters below a root, and below each cluster the topics it consists of ---


_ROOT = "root"
_LEAST_SHARE = 0.05  # of a topic in a cluster that it is listed under


class ClusterTree(NamedTuple):
    """Root, clusters and topics in clusters, in this order; cluster and topic of each of the leaves."""

    hierarchy: Hierarchy
    leaves: Ints
    cluster: Ints
    topic: Ints


def make_tree(cluster_topics: Matrix, labels: Matrix) -> ClusterTree:
    """List the topics with a share of at least 5% under each cluster, and always the largest one.

    Examples
    --------
    >>> tree = make_tree(np.array([[0.9, 0.1], [0.01, 0.99]]), np.array(["sea", "land"]))
    >>> tree.hierarchy.names.tolist()
    ['root', 'sea', 'land', 'sea/0', 'sea/1', 'land/1']
    """
    listed = cluster_topics >= np.minimum(_LEAST_SHARE, cluster_topics.max(axis=1, keepdims=True))
    cluster, topic = np.nonzero(listed)
    names = [str(label) for label in labels.tolist()]
    if _ROOT in names or len(set(names)) < len(names):
        names = [f"{k}: {name}" for k, name in enumerate(names)]
    below = [f"{names[k]}/{t}" for k, t in zip(cluster.tolist(), topic.tolist(), strict=True)]
    edges = [(_ROOT, name) for name in names]
    edges += [(names[k], child) for k, child in zip(cluster.tolist(), below, strict=True)]
    tree = Hierarchy.from_edges(edges, nodes=[_ROOT, *names, *below])
    return ClusterTree(tree, np.arange(len(names) + 1, tree.n_nodes), cluster, topic)


def node_means(components: Matrix, cluster_topics: Matrix, shares: Matrix, topic: Matrix) -> Array:
    """Return the probabilities of the words in all nodes of the tree."""
    clusters = cluster_topics @ components
    return np.vstack([shares @ clusters, clusters, components[topic]])


def node_probabilities(proba: Matrix, topic_shares: Matrix, tree: ClusterTree) -> Array:
    """Return the probabilities of the nodes: of the clusters, shared among their topics by the topics of the row."""
    n_clusters = proba.shape[1]
    own = topic_shares[:, tree.topic] + 1e-12
    total = np.zeros_like(proba)
    for leaf, k in enumerate(tree.cluster.tolist()):
        total[:, k] += own[:, leaf]
    nodes = np.empty((len(proba), 1 + n_clusters + len(tree.topic)))
    nodes[:, 0] = proba.sum(axis=1)
    nodes[:, 1 : 1 + n_clusters] = proba
    nodes[:, 1 + n_clusters :] = own * (proba / total)[:, tree.cluster]
    return nodes


# --- Cluster topic model: topics of words, and clusters of documents that share their topics (Wallach 2008) ---


_POSITIVE = [Interval(Real, 0, None, closed="neither")]


class ClusterTopicModel(ClassNamePrefixFeaturesOutMixin, Explorable, TransformerMixin, BaseEstimator):
    """Topics of words, and clusters of documents with common topics, by Gibbs sampling (CTM).

    Every topic is a distribution of words, every cluster a distribution of topics. Documents whose cluster is known,
    the landmarks, are given through `y`; the others are assigned.

    Parameters
    ----------
    n_topics : int
        Number of topics.
    n_clusters : int, optional
        Number of clusters. Default: one for each label in y, or 8 without labels. Every label has its own cluster,
        also if there are more labels than `n_clusters`; clusters beyond the labels are found.
    alpha : float
        Concentration of the topics of a document around those of its cluster.
    alpha1 : float
        Concentration of the topics of a cluster around those of all clusters.
    alpha0 : float
        Concentration of the topics of all clusters.
    beta : float
        Concentration of the words of a topic.
    omega : float
        Concentration of the sizes of the clusters.
    concentrations : {"fixed", "sample"}
        Whether the five concentrations are as given, or are sampled with exponential priors of these means.
    n_samples : int
        Number of draws of each chain that are kept, at least 4.
    n_warmup : int
        Number of first sweeps of each chain that are discarded.
    thin : int
        Number of sweeps for each draw that is kept.
    n_chains : int
        Number of independent chains.
    n_fold_in : int
        Number of sweeps over a new document; predictions are averages over the last two thirds of them.
    fractions : {"error", "round"}
        What to do with values of X that are not whole numbers: refuse them, or round them.
    n_jobs : int, optional
        Number of chains that run at the same time, and threads of predictions. The result does not depend on it.
    random_state : int, RandomState instance or None
    checkpoint : path, optional
        Folder where the states of the chains are saved. An interrupted fit continues from there with the same draws;
        the folder is removed at the end of the fit.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_features)
        Probabilities of the words in each topic: posterior means of the chain with the largest joint density.
    topic_weights_ : ndarray of shape (n_topics,)
        Shares of the topics in all words.
    cluster_topics_ : ndarray of shape (n_clusters, n_topics)
        Shares of the topics in each cluster.
    cluster_labels_ : ndarray of shape (n_clusters,)
        Names of the clusters: the sorted labels of y, then names of the clusters that have no landmarks.
    cluster_weights_ : ndarray of shape (n_clusters,)
        Shares of the clusters among documents.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each document; -1 for a document without words that is no landmark.
    n_zero_rows_ : int
        Number of documents of the fit without words.
    label_proba_ : ndarray of shape (n_samples, n_clusters)
        Posterior probabilities of the clusters of the documents.
    hyperparameters_ : dict
        Posterior means of the five concentrations.
    agreement_ : float
        Share of documents to which two chains give the same cluster, over all pairs of chains; 1 with one chain. NaN
        if some clusters have no landmarks: they are numbered differently in each chain.
    rhat_, effective_sample_size_ : dict
        R-hat and effective sample size of "log_joint", "cluster_sizes" and, if sampled, "concentrations".
    trace_ : Trace
        For each sweep: the log joint density (as objective), the share of accepted topics and the share of documents
        in the largest cluster, averaged over the chains.
    chain_parameters_ : list of TopicParameters
        Posterior means of the chains that predict: of all chains if every cluster has landmarks, else of the chain
        with the largest joint density.
    hierarchy_, leaf_ids_
        Clusters, and under each the topics with at least 5% of its words: the nodes of `predict_node_proba`.
    n_features_in_ : int

    Notes
    -----
    Chains start from the labels of a linear support vector machine of the landmarks; without landmarks, from
    spherical k-means. R-hat of "log_joint" is usually far above 1, because each chain finds other topics.

    A document without words has the probabilities of the sizes of the clusters, and the label -1 unless it is a
    landmark.

    References
    ----------
    H. Wallach (2008). Structured topic models for language. PhD thesis, University of Cambridge.

    Examples
    --------
    >>> from arbora.discover import ClusterTopicModel
    >>> X = [[4, 2, 0, 0], [3, 3, 1, 0], [0, 0, 5, 2], [0, 1, 2, 4]]
    >>> model = ClusterTopicModel(2, n_samples=20, random_state=0).fit(X, ["sea", None, "land", None])
    >>> model.labels_.tolist()
    ['sea', 'sea', 'land', 'land']
    >>> model.predict([[2, 2, 0, 0]]).tolist()
    ['sea']
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_topics": [Interval(Integral, 1, None, closed="left")],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        **dict.fromkeys(("alpha", "alpha1", "alpha0", "beta", "omega"), _POSITIVE),
        "concentrations": [StrOptions({"fixed", "sample"})],
        "n_samples": [Interval(Integral, 4, None, closed="left")],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "thin": [Interval(Integral, 1, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_fold_in": [Interval(Integral, 3, None, closed="left")],
        "fractions": [StrOptions({"error", "round"})],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_topics: int = 50,
        n_clusters: int | None = None,
        *,
        alpha: float = 10.0,
        alpha1: float = 10.0,
        alpha0: float = 10.0,
        beta: float = 0.01,
        omega: float = 0.1,
        concentrations: str = "fixed",
        n_samples: int = 50,
        n_warmup: int = 50,
        thin: int = 1,
        n_chains: int = 2,
        n_fold_in: int = 60,
        fractions: str = "error",
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_topics = n_topics
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.alpha1 = alpha1
        self.alpha0 = alpha0
        self.beta = beta
        self.omega = omega
        self.concentrations = concentrations
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.thin = thin
        self.n_chains = n_chains
        self.n_fold_in = n_fold_in
        self.fractions = fractions
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _margin(self) -> Margin | None:
        """Return the margin between the clusters; None for a model without one."""
        return None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the posterior.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts of words.
        y : array-like of shape (n_samples,), optional
            Landmarks: the cluster of each document, an integer or a string; -1, None or NaN where it is not known.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            rows = read_counts(self, X, reset=True)
            landmarks = read_landmarks(y, rows.shape[0], self.n_clusters)
            prior = Concentrations(self.alpha, self.alpha1, self.alpha0, self.beta, self.omega)
            model = ClusterTopics(
                self.n_topics, len(landmarks.names), prior, self._margin(), self.concentrations == "sample"
            )
            chains = run_chains(self, model, rows, landmarks.codes)
            self.cluster_labels_ = landmarks.names
            aligned = landmarks.n_named == model.n_clusters
            self._summarise(chains, aligned=aligned)
            known = landmarks.codes >= 0
            best = np.where(known, landmarks.codes, self.label_proba_.argmax(axis=1))
            empty = zero_rows(rows)
            self.n_zero_rows_ = int(empty.sum())
            self.labels_ = named(self.cluster_labels_, best, empty & ~known)
        return self

    def _summarise(self, chains: Chains, *, aligned: bool) -> None:
        """Keep posterior means and diagnostics."""
        schedule = ChainSchedule(self.n_warmup, self.n_samples, self.thin)
        self.rhat_, self.effective_sample_size_ = diagnose(
            chains, schedule, aligned=aligned, sampled=self.concentrations == "sample"
        )
        self.trace_ = mean_trace(chains.traces)
        ends = [trace["objective"][self.n_warmup :].mean() for trace in chains.traces]
        best = int(np.argmax(ends))
        used = list(range(self.n_chains)) if aligned else [best]
        used.sort(key=lambda chain: chain != best)  # the best one first: its topics are those of the model
        self.chain_parameters_ = [mean_parameters(chains.draws, chains.means, chain) for chain in used]
        proba = chains.means["proba"]
        mean = proba[used].mean(axis=0)
        self.label_proba_ = mean / mean.sum(axis=1, keepdims=True)
        self.agreement_ = agreement(proba.argmax(axis=2)) if aligned else np.nan
        main = self.chain_parameters_[0]
        self.components_, self.cluster_topics_, self.cluster_weights_ = (
            main.components,
            main.clusters,
            main.shares,
        )
        tokens = chains.means["word_topics"][best, :, : self.n_topics].sum(axis=0)
        self.topic_weights_ = tokens / tokens.sum()
        means = chains.draws["concentrations"].mean(axis=(0, 1)).tolist()
        self.hyperparameters_ = dict(zip(Concentrations._fields, means, strict=True))
        self.fold_in_seed_ = draw_seed(0 if self.random_state is None else self.random_state)
        tree = self._tree()
        self.hierarchy_, self.leaf_ids_ = tree.hierarchy, tree.leaves

    def fit_predict(self, X: Any, y: Any = None) -> Matrix:
        """Sample the posterior and return the cluster of each document.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Landmarks, as for `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        labels: Matrix = self.fit(X, y).labels_
        return labels

    # --- new documents --------------------------------------------------------------------------------------------

    def _fold(self, X: Any, chains: list[TopicParameters]) -> list[Folded]:
        data = make_corpus(X)
        margin = self._margin()
        strength = (0.0, 0.0) if margin is None else (margin.c, margin.width)
        with ThreadEngine(self.n_jobs) as engine:
            return [
                fold_documents(chain, data, strength, self.n_fold_in, self.fold_in_seed_, engine)
                for chain in chains
            ]

    def _checked(self, X: Any) -> sp.csr_array:
        check_is_fitted(self)
        return read_counts(self, X, reset=False)

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of the clusters of new documents, averaged over the chains.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            Columns in the order of `cluster_labels_`.
        """
        return self._proba(self._checked(X))

    def _proba(self, rows: sp.csr_array) -> Array:
        folded = self._fold(rows, self.chain_parameters_)
        return np.asarray(np.mean([one.proba for one in folded], axis=0))

    def predict(self, X: Any) -> Matrix:
        """Return the most probable cluster of new documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of clusters, as in `cluster_labels_`; -1 for a document without words.
        """
        rows = self._checked(X)
        return named(self.cluster_labels_, self._proba(rows).argmax(axis=1), zero_rows(rows))

    def transform(self, X: Any) -> Array:
        """Return the shares of the topics in new documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_topics)
        """
        return self._fold(self._checked(X), self.chain_parameters_[:1])[0].topics

    @property
    def _n_features_out(self) -> int:
        return int(self.n_topics)

    # --- description ----------------------------------------------------------------------------------------------

    def top_features(self, feature_names: Any = None, n: int = 10) -> Features:
        """List the most probable words of each topic.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of words in each list.

        Returns
        -------
        list of lists of (name, probability)
            One list for each topic, most probable words first.
        """
        check_is_fitted(self)
        return largest_features(self, self.components_, feature_names, n)

    def _tree(self) -> ClusterTree:
        return make_tree(self.cluster_topics_, self.cluster_labels_)

    @property
    def means_(self) -> Array:
        """Probabilities of the words in the nodes of `hierarchy_`."""
        check_is_fitted(self)
        return node_means(self.components_, self.cluster_topics_, self.cluster_weights_, self._tree().topic)

    def predict_node_proba(self, X: Any) -> Array:
        """Return the probabilities of the nodes of `hierarchy_`: a cluster, then its topics in these documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
        """
        folded = self._fold(self._checked(X), self.chain_parameters_)
        proba = np.mean([one.proba for one in folded], axis=0)
        return node_probabilities(proba, folded[0].topics, self._tree())
