"""Max-margin cluster topic model: a cluster topic model whose clusters are kept apart by a margin."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

from sklearn.utils._param_validation import Interval

from arbora.discover.topics.model import ClusterTopicModel
from arbora.infer.mcmc.chains import Chains
from arbora.infer.mcmc.max_margin import Margin


class MarginPriorOptions(NamedTuple):
    """Values of the parameter `prior`: those of `PriorOptions`, and the variance of the projections."""

    alpha: float = 10.0
    alpha1: float = 10.0
    alpha0: float = 10.0
    beta: float = 0.01
    omega: float = 0.1
    concentrations: str = "fixed"
    v: float = 0.1


class MaxMarginClusterTopicModel(ClusterTopicModel):
    """Cluster topic model with a margin between the clusters, by Gibbs sampling (MMCTM).

    Every cluster k has a projection eta_k of topic shares. A document loses weight exp(-2 c h), where h is the hinge
    loss of its shares x: h = max(0, margin + max over other clusters of eta_j.x - eta_k.x). With c = 0 the model is
    `ClusterTopicModel`.

    Parameters
    ----------
    n_topics, n_clusters
        See `ClusterTopicModel`.
    c : float
        Weight of the losses.
    margin : float
        Difference of scores from which a document loses nothing.
    prior : dict, optional
        As for `ClusterTopicModel`, and v (0.1): prior variance of the projections.
    sampling, n_fold_in, fractions, n_jobs, random_state, verbose
        See `ClusterTopicModel`.

    Attributes
    ----------
    projections_ : ndarray of shape (n_clusters, n_topics)
        Posterior mean of the projections, in the chain with the largest joint density.
    components_, topic_weights_, cluster_topics_, cluster_labels_, cluster_weights_, labels_, n_zero_rows_,
    label_proba_, hyperparameters_, agreement_, rhat_, effective_sample_size_, trace_,
    chain_parameters_, hierarchy_, leaf_ids_, n_features_in_
        See `ClusterTopicModel`.

    Notes
    -----
    The margin acts on topics, which the model itself chooses: without landmarks it would put all documents into one
    cluster. Give landmarks of every cluster.

    References
    ----------
    C. Chen, J. Zhu and X. Zhang (2014). Robust Bayesian max-margin clustering. NIPS. The conditionals of its appendix
    are replaced by exact ones, see `arbora.infer.mcmc.max_margin`.

    Examples
    --------
    >>> from arbora.discover import MaxMarginClusterTopicModel
    >>> X = [[4, 2, 0, 0], [3, 3, 1, 0], [0, 0, 5, 2], [0, 1, 2, 4]]
    >>> model = MaxMarginClusterTopicModel(2, sampling={"n_samples": 20}, random_state=0)
    >>> model.fit_predict(X, ["sea", None, "land", None]).tolist()
    ['sea', 'sea', 'land', 'land']
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ClusterTopicModel._parameter_constraints,
        "c": [Interval(Real, 0, None, closed="left")],
        "margin": [Interval(Real, 0, None, closed="left")],
    }
    _prior_options: ClassVar[Any] = MarginPriorOptions

    def __init__(
        self,
        n_topics: int = 50,
        n_clusters: int | None = None,
        *,
        c: float = 9.0,
        margin: float = 0.1,
        prior: dict[str, Any] | None = None,
        sampling: dict[str, int] | None = None,
        n_fold_in: int = 60,
        fractions: str = "error",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_topics,
            n_clusters,
            prior=prior,
            sampling=sampling,
            n_fold_in=n_fold_in,
            fractions=fractions,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.c = c
        self.margin = margin

    def _margin(self, prior: Any) -> Margin | None:
        return None if self.c == 0 else Margin(float(self.c), float(self.margin), float(prior.v))

    def _summarise(self, chains: Chains, *args: Any, **options: Any) -> None:
        super()._summarise(chains, *args, **options)
        self.projections_ = self.chain_parameters_[0].projections
