"""Cluster topic model: topics of words, and clusters of documents that share their topics (Wallach 2008).

The model and its sampler are in `sampler`; `max_margin` adds a margin between the clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.checkpoint import open_checkpoint
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine
from arbora.core.estimator import Explorable, RowEstimator, all_or_nothing, draw_seed, read_options
from arbora.core.labels import Groups, read_groups
from arbora.core.running import running_checkpoint
from arbora.discover.mixture.describe import UNKNOWN, Features, largest_features
from arbora.discover.mixture.rows import zero_rows
from arbora.discover.topics.sampler import (
    ClusterTopics,
    Concentrations,
    Corpus,
    TopicState,
    log_rising_table,
    make_corpus,
    padded,
    padded_prior,
    read_counts,
    start_state,
    starting_labels,
)
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import SAMPLING_CONSTRAINTS, Chains, ChainSchedule, mean_trace, run_chains
from arbora.infer.mcmc.diagnostics import ess_bulk, ess_tail, rhat
from arbora.infer.mcmc.max_margin import Margin
from arbora.kernels.gibbs.topics import fold_in
from arbora.structure import Hierarchy

# --- Options, landmarks, and what is kept of the chains ------------------------------------------------------


_DEFAULT_CLUSTERS = 8  # without landmarks
_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_PRIOR_CONSTRAINTS: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("alpha", "alpha1", "alpha0", "beta", "omega", "v"), _POSITIVE),
        "concentrations": [StrOptions({"fixed", "sample"})],
    }
)
# The diagnostics need four draws of a chain.
_SAMPLING_CONSTRAINTS = {**SAMPLING_CONSTRAINTS, "n_samples": [Interval(Integral, 4, None, closed="left")]}


class PriorOptions(NamedTuple):
    """Values of the parameter `prior`."""

    alpha: float = 10.0
    alpha1: float = 10.0
    alpha0: float = 10.0
    beta: float = 0.01
    omega: float = 0.1
    concentrations: str = "fixed"


class Sampling(NamedTuple):
    """Values of the parameter `sampling`."""

    n_warmup: int = 50
    n_samples: int = 50
    thin: int = 1
    n_chains: int = 2


class Landmarks(NamedTuple):
    """Cluster of each document or -1, names of the clusters, and the number of clusters with landmarks."""

    codes: Ints
    names: Matrix
    n_named: int


def read_landmarks(y: Any, n_documents: int, n_clusters: int | None) -> Landmarks:
    """Read the known clusters of documents, integers or strings (-1, None or NaN: unknown); y may be None.

    `n_clusters` None means one for each label, or 8 without labels; it grows to the number of labels. Clusters
    without landmarks are named "cluster 2", ..., or by integers after the largest label.
    """
    nobody = Groups(np.full(n_documents, -1, np.int64), np.empty(0, np.int64))
    groups = nobody if y is None else read_groups(y, n_documents, none_labelled="")
    n_named = groups.n_groups
    if n_clusters is None and n_named == 1:
        label = groups.classes.tolist()[0]
        raise ValueError(
            f"all landmarks in y have the label {label!r}: give landmarks of at least two clusters, or "
            "set n_clusters to find others."
        )
    n_clusters = max(n_clusters or 0, n_named) or _DEFAULT_CLUSTERS
    rest = range(n_named, n_clusters)
    if groups.classes.dtype.kind in "iu":
        above = int(groups.classes.max(initial=-1)) + 1
        names: Matrix = np.append(groups.classes, np.arange(above, above + len(rest)))
    else:
        dtype = object if groups.classes.dtype.kind == "O" else None  # None: strings as long as the longest
        names = np.array([*groups.classes.tolist(), *(f"cluster {k}" for k in rest)], dtype)
    return Landmarks(groups.codes, names, n_named)


def _arrays_of(state: TopicState) -> Mapping[str, Matrix]:
    """Return the arrays that are kept of a draw."""
    names = "base", "clusters", "projections", "concentrations"
    sizes = np.bincount(state.labels, minlength=len(state.clusters))
    return {**{name: getattr(state, name) for name in names}, "sizes": sizes}


def _averages_of(state: TopicState) -> Mapping[str, Matrix]:
    """Return the arrays of a state that are averaged over the draws."""
    return {"word_topics": state.word_topics, "proba": state.proba}


def diagnose(chains: Chains, *, aligned: bool, sampled: bool) -> tuple[dict[str, Matrix], dict[str, Matrix]]:
    """Return R-hat and effective sample sizes of quantities that mean the same in all chains.

    Topics are numbered differently in each chain. So are clusters without landmarks (`aligned` is False): their sizes
    are then compared in descending order.
    """
    sizes = chains.draws["sizes"].astype(np.float64)
    quantities = {
        "log_joint": chains.log_joint,
        "cluster_sizes": sizes if aligned else -np.sort(-sizes, axis=2),
    }
    if sampled:
        quantities["concentrations"] = chains.draws["concentrations"]
    return (
        {name: rhat(draws) for name, draws in quantities.items()},
        {name: np.minimum(ess_bulk(draws), ess_tail(draws)) for name, draws in quantities.items()},
    )


def agreement(labels: Ints) -> float:
    """Return the share of equal labels over all pairs of rows; 1 for one row."""
    pairs = [(a, b) for a in range(len(labels)) for b in range(a)]
    return float(np.mean([np.mean(labels[a] == labels[b]) for a, b in pairs])) if pairs else 1.0


def named(names: Matrix, clusters: Matrix, unknown: NDArray[np.bool_]) -> Matrix:
    """Return names of clusters; -1 where they are unknown, in an array of objects if names are strings."""
    labels: Matrix = names[clusters]
    if unknown.any():
        labels = labels if labels.dtype.kind in "iu" else labels.astype(object)
        labels[unknown] = UNKNOWN
    return labels


def check_memory(X: sp.csr_array, model: ClusterTopics, n_chains: int) -> None:
    """Refuse a fit whose chains do not fit into memory."""
    n_documents, n_words = X.shape
    width = padded(model.n_topics)
    per_chain = 4 * width * (n_documents + 4 * n_words) + 8 * model.n_topics * n_documents
    per_chain += 16 * model.n_clusters * n_documents + 4 * int(X.data.sum())
    require_memory(
        n_chains * per_chain,
        f"Sampling {n_chains} chains with {model.n_topics} topics of {n_documents} documents and {n_words} words",
        "Use fewer chains or topics, or fewer words (a larger min_df).",
    )


# --- New documents in a fitted cluster topic model: their topics and labels are sampled given the parameters ---


_CHUNK_DOCUMENTS = 256  # documents of a task


class TopicParameters(NamedTuple):
    """Posterior means of one chain: words of topics, topics of clusters, sizes of clusters, projections."""

    components: Array  # (n_topics, n_words)
    base: Array  # (n_topics,)
    clusters: Array  # (n_clusters, n_topics)
    shares: Array  # (n_clusters,)
    projections: Array  # (n_clusters, n_topics)
    alpha: float


class Folded(NamedTuple):
    """Probabilities of the clusters, and shares of the topics, of documents."""

    proba: Array
    topics: Array


def fold_documents(
    parameters: TopicParameters,
    data: Corpus,
    strength: tuple[float, float],
    n_sweeps: int,
    seed: int,
    engine: Engine,
) -> Folded:
    """Sample topics and labels of documents, and average over the last two thirds of the sweeps.

    `strength` is the weight c and the width of the margin. The draws of a document depend on its words and the seed
    only.
    """
    n_clusters, n_topics = parameters.clusters.shape
    phi = np.zeros((data.n_words, padded(n_topics)))
    phi[:, :n_topics] = parameters.components.T
    prior = padded_prior(parameters.clusters, parameters.alpha)
    base = padded_prior(parameters.base[None], parameters.alpha)[0]
    table, eta = log_rising_table(prior, n_topics), np.ascontiguousarray(parameters.projections.T)
    proba, topics = np.zeros((data.n_documents, n_clusters)), np.zeros((data.n_documents, n_topics))
    n_burn = n_sweeps // 3

    def fold(part: slice) -> None:
        fold_in(
            data.indptr[part.start : part.stop + 1], data.words, phi, prior, base, table,
            np.log(parameters.shares), eta, *strength, n_burn, n_sweeps - n_burn, np.uint64(seed),
            proba[part], topics[part],
        )  # fmt: skip

    engine.map(fold, split(data.n_documents, size=_CHUNK_DOCUMENTS))
    proba /= proba.sum(axis=1, keepdims=True)
    return Folded(proba, topics)


def mean_parameters(draws: dict[str, Any], means: dict[str, Any], chain: int) -> TopicParameters:
    """Return the posterior means of a chain from its draws and averages."""
    alpha, _, _, beta, omega = draws["concentrations"][chain].mean(axis=0).tolist()
    clusters = draws["clusters"][chain].mean(axis=0)
    counts = means["word_topics"][chain, :, : clusters.shape[1]].T + beta
    sizes = draws["sizes"][chain].mean(axis=0) + omega
    return TopicParameters(
        counts / counts.sum(axis=1, keepdims=True),
        draws["base"][chain].mean(axis=0),
        clusters,
        sizes / sizes.sum(),
        draws["projections"][chain].mean(axis=0),
        alpha,
    )


def _mean_proba(folded: Sequence[Folded]) -> Array:
    """Return the probabilities of the clusters, averaged over chains."""
    return np.asarray(np.mean([chain.proba for chain in folded], axis=0))


# --- The tree of a cluster topic model: clusters below a root, and below each cluster the topics it consists of ---


_ROOT = "root"
_MIN_SHARE = 0.05  # of a topic in a cluster that it is listed under


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
    listed = cluster_topics >= np.minimum(_MIN_SHARE, cluster_topics.max(axis=1, keepdims=True))
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
    shares = topic_shares[:, tree.topic] + 1e-12
    total = np.zeros_like(proba)
    for leaf, k in enumerate(tree.cluster.tolist()):
        total[:, k] += shares[:, leaf]
    nodes = np.empty((len(proba), 1 + n_clusters + len(tree.topic)))
    nodes[:, 0] = proba.sum(axis=1)
    nodes[:, 1 : 1 + n_clusters] = proba
    nodes[:, 1 + n_clusters :] = shares * (proba / total)[:, tree.cluster]
    return nodes


# --- The estimator -------------------------------------------------------------------------------------------


class ClusterTopicModel(
    RowEstimator, ClassNamePrefixFeaturesOutMixin, Explorable, TransformerMixin, BaseEstimator
):
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
    prior : dict, optional
        Concentrations, the values of the paper by default, and whether they are fixed.

        - alpha (10): topics of a document around those of its cluster.
        - alpha1 (10): topics of a cluster around those of all clusters.
        - alpha0 (10): topics of all clusters.
        - beta (0.01): words of a topic.
        - omega (0.1): sizes of the clusters.
        - concentrations ("fixed"): "sample" samples all five, with exponential priors of these means.
    sampling : dict, optional
        n_warmup (50): sweeps at the start of each chain that are discarded; n_samples (50): draws of each chain that
        are kept, at least 4; thin (1): sweeps for each draw; n_chains (2): independent chains.
    n_fold_in : int
        Number of sweeps over a new document; predictions are averages over the last two thirds of them.
    fractions : {"error", "round"}
        What to do with values of X that are not whole numbers: refuse them, or round them.
    n_jobs : int, optional
        Number of chains that run at the same time, and threads of predictions. The result does not depend on it.
    random_state : int, RandomState instance or None
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

    With ``arbora.running(checkpoint=folder)`` the states of the chains are saved. An interrupted fit continues from
    there with the same draws; the folder is removed at the end.

    A document without words has the probabilities of the sizes of the clusters, and the label -1 unless it is a
    landmark.

    References
    ----------
    H. Wallach (2008). Structured topic models for language. PhD thesis, University of Cambridge.

    Examples
    --------
    >>> from arbora.discover import ClusterTopicModel
    >>> X = [[4, 2, 0, 0], [3, 3, 1, 0], [0, 0, 5, 2], [0, 1, 2, 4]]
    >>> model = ClusterTopicModel(2, sampling={"n_samples": 20}, random_state=0).fit(X, ["sea", None, "land", None])
    >>> model.labels_.tolist()
    ['sea', 'sea', 'land', 'land']
    >>> model.predict([[2, 2, 0, 0]]).tolist()
    ['sea']
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_topics": [Interval(Integral, 1, None, closed="left")],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "prior": [dict, None],
        "sampling": [dict, None],
        "n_fold_in": [Interval(Integral, 3, None, closed="left")],
        "fractions": [StrOptions({"error", "round"})],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _tags: ClassVar[Mapping[str, Any]] = {"input_tags.positive_only": True}
    _prior_options: ClassVar[Any] = PriorOptions

    def __init__(
        self,
        n_topics: int = 50,
        n_clusters: int | None = None,
        *,
        prior: dict[str, Any] | None = None,
        sampling: dict[str, int] | None = None,
        n_fold_in: int = 60,
        fractions: str = "error",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_topics = n_topics
        self.n_clusters = n_clusters
        self.prior = prior
        self.sampling = sampling
        self.n_fold_in = n_fold_in
        self.fractions = fractions
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _margin(self, prior: Any) -> Margin | None:
        """Return the margin between the clusters; None for a model without one."""
        return None

    def _read_prior(self) -> Any:
        return read_options("prior", self.prior, self._prior_options, _PRIOR_CONSTRAINTS)

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
            prior = self._read_prior()
            sampling = read_options("sampling", self.sampling, Sampling, _SAMPLING_CONSTRAINTS)
            rows = read_counts(self, X, self.fractions, reset=True)
            landmarks = read_landmarks(y, rows.shape[0], self.n_clusters)
            concentrations = Concentrations(*(getattr(prior, name) for name in Concentrations._fields))
            sampled = prior.concentrations == "sample"
            n_clusters = len(landmarks.names)
            model = ClusterTopics(self.n_topics, n_clusters, concentrations, self._margin(prior), sampled)
            check_memory(rows, model, sampling.n_chains)
            data = make_corpus(rows, landmarks.codes)
            if not len(data.words):
                raise ValueError("X has no words: all its entries are zero. Give documents with words.")
            seed = draw_seed(self.random_state, resumable=running_checkpoint() is not None)
            labels = starting_labels(rows, landmarks.codes, n_clusters, seed)
            checkpoint = open_checkpoint(
                self, *data, seed=seed, prior=prior, sampling=sampling, n_fold_in=None
            )
            chains = run_chains(
                model, data, ChainSchedule(*sampling), seed, keep=_arrays_of, average=_averages_of,
                start=lambda rng: start_state(model, data, labels, rng),
                n_jobs=self.n_jobs, verbose=self.verbose, checkpoint=checkpoint,
            )  # fmt: skip
            self._summarise(chains, sampling, landmarks, zero_rows(rows), sampled=sampled)
        return self

    def _summarise(
        self,
        chains: Chains,
        sampling: Sampling,
        landmarks: Landmarks,
        is_empty: NDArray[np.bool_],
        *,
        sampled: bool,
    ) -> None:
        """Compute and assign everything that is learned."""
        aligned = landmarks.n_named == len(landmarks.names)
        best = int(np.argmax([trace["objective"][sampling.n_warmup :].mean() for trace in chains.traces]))
        used = list(range(sampling.n_chains)) if aligned else [best]
        used.sort(key=lambda chain: chain != best)  # the best one first: its topics are those of the model
        parameters = [mean_parameters(chains.draws, chains.means, chain) for chain in used]
        proba = chains.means["proba"]
        mean = proba[used].mean(axis=0)
        label_proba = mean / mean.sum(axis=1, keepdims=True)
        has_landmark = landmarks.codes >= 0
        codes = np.where(has_landmark, landmarks.codes, label_proba.argmax(axis=1))
        tokens = chains.means["word_topics"][best, :, : self.n_topics].sum(axis=0)
        concentrations = chains.draws["concentrations"].mean(axis=(0, 1)).tolist()
        tree = make_tree(parameters[0].clusters, landmarks.names)

        self.trace_ = mean_trace(chains.traces)
        self.rhat_, self.effective_sample_size_ = diagnose(chains, aligned=aligned, sampled=sampled)
        self.agreement_ = agreement(proba.argmax(axis=2)) if aligned else np.nan
        self.chain_parameters_ = parameters
        self.components_ = parameters[0].components
        self.topic_weights_ = tokens / tokens.sum()
        self.cluster_topics_ = parameters[0].clusters
        self.cluster_labels_ = landmarks.names
        self.cluster_weights_ = parameters[0].shares
        self.label_proba_ = label_proba
        self.labels_ = named(landmarks.names, codes, is_empty & ~has_landmark)
        self.n_zero_rows_ = int(is_empty.sum())
        self.hyperparameters_ = dict(zip(Concentrations._fields, concentrations, strict=True))
        self.fold_in_seed_ = draw_seed(0 if self.random_state is None else self.random_state)
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
        margin = self._margin(self._read_prior())
        strength = (0.0, 0.0) if margin is None else (margin.c, margin.width)
        with ThreadEngine(self.n_jobs) as engine:
            return [
                fold_documents(chain, data, strength, self.n_fold_in, self.fold_in_seed_, engine)
                for chain in chains
            ]

    def _checked(self, X: Any) -> sp.csr_array:
        check_is_fitted(self)
        return read_counts(self, X, self.fractions, reset=False)

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
        return _mean_proba(self._fold(self._checked(X), self.chain_parameters_))

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
        proba = _mean_proba(self._fold(rows, self.chain_parameters_))
        return named(self.cluster_labels_, proba.argmax(axis=1), zero_rows(rows))

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
        return node_probabilities(_mean_proba(folded), folded[0].topics, self._tree())
