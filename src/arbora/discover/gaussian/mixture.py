r"""Dirichlet-process mixtures of Gaussians by collapsed Gibbs sampling: a posterior over partitions.

.. math:: y \sim \mathrm{CRP}(\alpha), \quad \Sigma_k \sim \mathrm{InverseWishart}(S, \nu), \quad
          \mu_k \sim N(m, \Sigma_k / r), \quad x_i \sim N(\mu_{y_i}, \Sigma_{y_i}),

with the priors of :math:`\alpha, r, \nu, S` of `normal_wishart` and `sampler`. Features are standardised; m is their
mean, and the scale S is between unit variances and their covariance (`starts.default_scale`), fixed by default:
a cluster that is narrower needs enough rows to show it. :math:`r = 0.01` leaves the means of clusters free. Chains
start from k-means with 20 clusters: a chain that starts from one cluster often stays there, since a useful split of
many rows is rarely proposed.

References
----------
C. E. Rasmussen (2000). The infinite Gaussian mixture model. NIPS.
R. Neal (2000). Markov chain sampling methods for Dirichlet process mixture models. JCGS 9(2).
D. Dahl (2005). Sequentially-allocated merge-split sampler for conjugate and nonconjugate Dirichlet process mixture
models. Technical report.
S. Wade and Z. Ghahramani (2018). Bayesian cluster analysis: point estimation and credible balls. Bayesian Analysis.
"""

from __future__ import annotations

from arbora.arrays import Array
from arbora.discover.gaussian.base import GaussianPartitionMixture
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState


class DirichletProcessGaussianMixture(GaussianPartitionMixture):
    """Mixture of Gaussians whose number of clusters is found, with a posterior over partitions.

    Parameters
    ----------
    n_components : int, optional
        Fixes the number of clusters (a symmetric Dirichlet prior with parameter alpha / n_components replaces the
        process; some clusters may stay empty). By default the number is unknown and has a posterior.
    covariance : {"full", "diag", "spherical"}
        Form of the covariances of the clusters.
    alpha : float or "sample"
        Concentration of the process: larger values give more clusters. "sample", here and below: has a posterior.
    r : float or "sample"
        Precision of the means of clusters around the mean of all rows, in units of the precision of a cluster.
    nu : float or "sample", optional
        Degrees of freedom of the prior of covariances; above n_features - 1 for "full". By default n_features + 2 for
        "full", else 3.
    S : array-like, float or "sample", optional
        Scale of the prior of covariances; by default a matrix between the variances of the features and the
        covariance of all rows ("full"), the variances of the features ("diag") or the mean of these. An array has the
        form of the covariances: (n_features, n_features), (n_features,) or a number (with ``standardize=False``). A
        scale that is sampled fits densities better, and finds more and smaller clusters: a cluster that is not
        exactly Gaussian is covered by several.
    standardize : bool
        True divides each feature by its standard deviation, False all features by the same number. Units of
        features matter for "spherical", and for the k-means start.
    init : "k-means" or array-like of shape (n_samples,)
        Labels that the chains start from.
    initial_clusters : int
        Clusters of the k-means start; `n_components` if that is given.
    merge_split : int
        Merge and split proposals in each sweep.
    point_estimate : {"vi", "binder", "map"}
        How `labels_` summarises the draws: the partition with the least mean variation of information, or Binder
        loss, from them; or the draw of highest density.
    n_warmup : int
        Sweeps at the start of each chain that are discarded.
    n_samples : int
        Draws that each chain keeps.
    thin : int
        Sweeps for each draw.
    n_chains : int
        Number of chains. They run in parallel.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    checkpoint : path, optional
        Folder where the chains are saved from time to time. An interrupted fit resumes from there with the same
        draws; the folder is cleared at the end. Without a `random_state` the seed is then 0.
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Point estimate of the partition; clusters are numbered by decreasing size.
    n_clusters_, n_large_clusters_ : int
        Number of clusters of `labels_`, and of those with at least 1% of the rows.
    n_clusters_posterior_, n_large_clusters_posterior_ : dict of "value" and "probability"
        Distribution of these numbers over the draws.
    partitions_ : ndarray of shape (n_chains, n_samples, n_rows)
        Labels of all draws.
    weights_, counts_, means_, covariances_ : ndarray
        Shares, sizes, and posterior means of the means and covariances of the clusters of `labels_`.
    draws_ : dict of ndarray of shape (n_chains, n_samples)
        Quantities that do not depend on the numbering of clusters: log joint density, number of clusters, entropy of
        the partition, share of the largest cluster, hyperparameters.
    rhat_, ess_ : dict of float
        R-hat and effective sample size of each of `draws_`.
    prior_ : dict of float
        Posterior means of the hyperparameters.
    prior_scale_ : ndarray
        Posterior mean of S, in units of `feature_scales_`.
    predictive_ : dict of ndarray
        Components of the predictive density; see `arbora.discover.gaussian.predictive`.
    density_quantiles_ : ndarray
        Quantiles of the log-densities of training rows, each without that row; see `is_novel`.
    feature_means_, feature_scales_ : ndarray of shape (n_features,)
        Standardisation of the features.
    trace_ : Trace
        Log joint density, number of clusters and share of accepted merge-split moves, mean over the chains.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.discover import DirichletProcessGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1.0, (60, 2)) for m in (-6.0, 0.0, 6.0)])
    >>> model = DirichletProcessGaussianMixture(n_warmup=50, n_samples=50, random_state=0).fit(X)
    >>> model.n_clusters_
    3
    >>> model.predict([[-6.0, -6.0], [6.0, 6.0]]).tolist() == [model.labels_[0], model.labels_[-1]]
    True
    >>> bool(model.similarity_matrix(rows=[0], columns=[1, 179])[0, 0] > 0.9)
    True
    >>> model.is_novel([[0.0, 0.0], [30.0, -30.0]])
    array([False,  True])
    """

    def _extend(
        self, model: PartitionModel, start: PartitionState, X: Array, seed: int
    ) -> tuple[PartitionModel, PartitionState]:
        return model, start
