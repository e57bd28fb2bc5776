r"""The Dirichlet process max-margin Gaussian mixture (Chen, Zhu and Zhang 2014), by an exact sampler.

To the mixture of `DirichletProcessGaussianMixture` every cluster adds a projection :math:`\eta_k \sim N(0, v I)`, and
every row the factor :math:`e^{-2 c h_i}`,

.. math:: h_i = \max(0, \ell + \max_{k \ne y_i} \eta_k^\top x_i - \eta_{y_i}^\top x_i),

where k runs over the clusters that have rows (over all, if their number is fixed); with one cluster h is 0. Rows are
standardised, and may be projected (`margin_features`). c = 0 is the plain mixture.

Differences from the paper. Its augmented posterior (equation 7) keeps the most violated competitor s_i as a variable.
The sum over s_i is not the factor above, and a sampler that holds s_i has another stationary distribution: it is far
from the enumeration of all partitions of a few rows. Here s_i is no variable, and a cluster that opens or closes
changes the factors of all rows. Equation 10 has the covariance :math:`(r \Lambda)^{-1}`
for rows; here, as in the model that the paper refers to, r scales the covariance of the mean only. The factor is not
normalised over x, so the model has no density of rows: `score_samples` is that of the Gaussian clusters, given the
draws of the partition.

The paper chooses c and the margin by a heuristic that needs a number of clusters (``select="heuristic"``): in sweep t
one of them moves by u / t, u uniform, up if there are too many clusters, down if there are too few. Here it acts in
the warm-up only, so that the draws that are kept come from one distribution.

References
----------
C. Chen, J. Zhu and X. Zhang (2014). Robust Bayesian max-margin clustering. NIPS.
S. Favaro and Y. W. Teh (2013). MCMC for normalized random measure mixture models. Statistical Science 28(3).
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array
from arbora.core.running import outside_blocks
from arbora.discover.gaussian.mixture import (
    DirichletProcessGaussianMixture,
    PriorOptions,
    Sampling,
    Standardizer,
)
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState
from arbora.infer.mcmc.chains import Chains

_FIRST_STRENGTH = 0.1  # c and margin at the start of the heuristic


class MarginPriorOptions(NamedTuple):
    """Values of the parameter `prior`: those of `PriorOptions`, and the variance of the projections."""

    alpha: float | str = "sample"
    r: float | str = 0.01
    nu: float | str | None = None
    S: Any = None
    v: float = 0.01


class MaxMarginGaussianMixture(DirichletProcessGaussianMixture):
    """Mixture of Gaussians with margins between its clusters (DPMMGM).

    Parameters
    ----------
    n_components : int, optional
        Fixes the number of clusters; by default it is unknown and has a posterior.
    c : float
        Weight of the margins; 0 gives `DirichletProcessGaussianMixture`.
    margin : float
        Width of the margin, in units of the scores.
    margin_features : int or array-like of shape (n_features, n_margin_features), optional
        Margins are on this projection of the standardised features: an int is the number of principal components.
        By default they are on the features themselves.
    select : "heuristic", optional
        Choose c and margin in the warm-up by the rule of the paper, starting from 0.1 each. Give a long `n_warmup`.
    target_clusters : int, optional
        Number of clusters that the rule aims at (DPMMGM). By default `fit` first fits a
        `DirichletProcessGaussianMixture` with the same parameters, and aims at its number of clusters (DPMMGM*).
    prior : dict, optional
        As for `DirichletProcessGaussianMixture`, and v (0.01): prior variance of the projections.
    covariance, standardize, init, merge_split, point_estimate, sampling, n_jobs, random_state, verbose
        See `DirichletProcessGaussianMixture`.

    Attributes
    ----------
    selection_ : dict or None
        With ``select="heuristic"``: c, margin and the target number of clusters.
    margin_basis_ : ndarray of shape (n_features, n_margin_features) or None
        With `margin_features`.
    labels_, n_clusters_, n_large_clusters_, n_clusters_posterior_, n_large_clusters_posterior_, partitions_, \
weights_, counts_, means_, covariances_, draws_, rhat_, ess_, prior_, prior_scale_, predictive_, density_quantiles_, \
feature_means_, feature_scales_, trace_, n_features_in_
        See `DirichletProcessGaussianMixture`.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.discover import MaxMarginGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1.0, (60, 2)) for m in (-6.0, 6.0)])
    >>> model = MaxMarginGaussianMixture(sampling={"n_warmup": 50, "n_samples": 50}, random_state=0).fit(X)
    >>> model.n_clusters_
    2
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DirichletProcessGaussianMixture._parameter_constraints,
        "c": [Interval(Real, 0, None, closed="left")],
        "margin": [Interval(Real, 0, None, closed="left")],
        "margin_features": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "select": [StrOptions({"heuristic"}), None],
        "target_clusters": [Interval(Integral, 1, None, closed="left"), None],
    }
    _prior_options: ClassVar[Any] = MarginPriorOptions

    def __init__(
        self,
        n_components: int | None = None,
        *,
        c: float = 0.1,
        margin: float = 1.0,
        margin_features: Any = None,
        select: str | None = None,
        target_clusters: int | None = None,
        covariance: str = "full",
        prior: dict[str, Any] | None = None,
        standardize: bool = True,
        init: Any = 20,
        merge_split: int = 10,
        point_estimate: str = "vi",
        sampling: dict[str, int] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            covariance=covariance,
            prior=prior,
            standardize=standardize,
            init=init,
            merge_split=merge_split,
            point_estimate=point_estimate,
            sampling=sampling,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.c = c
        self.margin = margin
        self.margin_features = margin_features
        self.select = select
        self.target_clusters = target_clusters

    def _model(
        self, prior: Any, sampling: Sampling, standardizer: Standardizer, X: Array, seed: int
    ) -> tuple[PartitionModel, PartitionState]:
        model, start = super()._model(prior, sampling, standardizer, X, seed)
        c, width, target = float(self.c), float(self.margin), None
        if self.select == "heuristic":
            c, width, target = _FIRST_STRENGTH, _FIRST_STRENGTH, self._target(prior, X, start, seed)
        if c == 0:
            return model, start
        model = model._replace(
            variance=float(prior.v), margin_basis=self._basis(X), target=target, n_adapt=sampling.n_warmup
        )
        return model, start._replace(c=c, width=width)

    def _target(self, prior: Any, X: Array, start: PartitionState, seed: int) -> int:
        """Return the number of clusters that the heuristic aims at; by default that of the plain mixture."""
        if self.n_components is not None:
            raise ValueError(
                "select='heuristic' changes the number of clusters, but n_components fixes it: give target_clusters."
            )
        if self.target_clusters is not None:
            return int(self.target_clusters)
        options = {name: getattr(prior, name) for name in PriorOptions._fields}
        if prior.S is not None and not isinstance(prior.S, str):  # X has the units of the model: so must S
            options["S"] = {"full": start.scale, "diag": start.scale[0]}.get(
                self.covariance, start.scale[0, 0]
            )
        names = DirichletProcessGaussianMixture().get_params()
        params = {name: getattr(self, name) for name in names}
        params |= {"prior": options, "random_state": seed, "verbose": 0}
        with outside_blocks():  # the checkpoint of the block is that of the chains with margins
            return DirichletProcessGaussianMixture(**params).fit(X).n_clusters_

    def _basis(self, X: Array) -> Array | None:
        """Return the matrix that makes the rows of the margins."""
        features, p = self.margin_features, X.shape[1]
        if features is None:
            return None
        if isinstance(features, Integral):
            if features > min(X.shape):
                raise ValueError(
                    f"margin_features={features} principal components need as many rows and features, X is {X.shape}."
                )
            _, vectors = np.linalg.eigh(X.T @ X)
            return np.ascontiguousarray(vectors[:, ::-1][:, : int(features)])
        basis = np.array(features, np.float64)
        if basis.ndim != 2 or len(basis) != p or not np.isfinite(basis).all():
            raise ValueError(
                f"margin_features must be an int or a finite matrix of {p} rows, one for each feature; it has the "
                f"shape {basis.shape}."
            )
        return np.ascontiguousarray(basis)

    def _summarise(
        self,
        model: PartitionModel,
        standardizer: Standardizer,
        X: Array,
        chains: Chains,
        rng: np.random.Generator,
    ) -> None:
        super()._summarise(model, standardizer, X, chains, rng)
        selection = {"c": self.prior_["c"], "margin": self.prior_["margin"], "n_clusters": model.target}
        self.selection_ = None if model.target is None else selection
        self.margin_basis_ = model.margin_basis

    def _margin_rows(self, X: Array) -> Array | None:
        if np.shape(self.predictive_["projections"])[1] == 0:
            return None
        return X if self.margin_basis_ is None else X @ self.margin_basis_
