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
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array, Ints
from arbora.discover.gaussian.base import GaussianPartitionMixture
from arbora.discover.gaussian.mixture import DirichletProcessGaussianMixture
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState
from arbora.infer.mcmc.max_margin import Margin, draw_projections

_FIRST = 0.1  # c and margin at the start of the heuristic
_START_STEPS = 3  # of the projections, before the first labels are drawn


class MaxMarginGaussianMixture(GaussianPartitionMixture):
    """Mixture of Gaussians with margins between its clusters (DPMMGM).

    Parameters
    ----------
    n_components : int, optional
        Fixes the number of clusters; by default it is unknown and has a posterior.
    c : float
        Weight of the margins; 0 gives `DirichletProcessGaussianMixture`.
    margin : float
        Width of the margin, in units of the scores.
    v : float
        Prior variance of the projections.
    margin_features : int or array-like of shape (n_features, n_margin_features), optional
        Margins are on this projection of the standardised features: an int is the number of principal components.
        By default they are on the features themselves.
    select : "heuristic", optional
        Choose c and margin in the warm-up by the rule of the paper, starting from 0.1 each. Give a long `n_warmup`.
    target_clusters : int, optional
        Number of clusters that the rule aims at (DPMMGM). By default that of a
        `DirichletProcessGaussianMixture` with the same parameters (DPMMGM*).
    covariance, alpha, r, nu, S, standardize, init, initial_clusters, merge_split, point_estimate, n_warmup, \
n_samples, thin, n_chains, n_jobs, random_state, checkpoint, verbose
        See `DirichletProcessGaussianMixture`.

    Attributes
    ----------
    selection_ : dict
        With ``select="heuristic"``: c, margin and the target number of clusters.
    margin_basis_ : ndarray of shape (n_features, n_margin_features)
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
    >>> model = MaxMarginGaussianMixture(n_warmup=50, n_samples=50, random_state=0).fit(X)
    >>> model.n_clusters_
    2
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **GaussianPartitionMixture._parameter_constraints,
        "c": [Interval(Real, 0, None, closed="left")],
        "margin": [Interval(Real, 0, None, closed="left")],
        "v": [Interval(Real, 0, None, closed="neither")],
        "margin_features": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "select": [StrOptions({"heuristic"}), None],
        "target_clusters": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        c: float = 0.1,
        margin: float = 1.0,
        v: float = 0.01,
        margin_features: Any = None,
        select: str | None = None,
        target_clusters: int | None = None,
        covariance: str = "full",
        alpha: float | str = "sample",
        r: float | str = 0.01,
        nu: float | str | None = None,
        S: Any = None,
        standardize: bool = True,
        init: Any = "k-means",
        initial_clusters: int = 20,
        merge_split: int = 10,
        point_estimate: str = "vi",
        n_warmup: int = 100,
        n_samples: int = 200,
        thin: int = 1,
        n_chains: int = 2,
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            covariance=covariance,
            alpha=alpha,
            r=r,
            nu=nu,
            S=S,
            standardize=standardize,
            init=init,
            initial_clusters=initial_clusters,
            merge_split=merge_split,
            point_estimate=point_estimate,
            n_warmup=n_warmup,
            n_samples=n_samples,
            thin=thin,
            n_chains=n_chains,
            n_jobs=n_jobs,
            random_state=random_state,
            checkpoint=checkpoint,
            verbose=verbose,
        )
        self.c = c
        self.margin = margin
        self.v = v
        self.margin_features = margin_features
        self.select = select
        self.target_clusters = target_clusters

    def _extend(
        self, model: PartitionModel, start: PartitionState, X: Array, seed: int
    ) -> tuple[PartitionModel, PartitionState]:
        c, width, target = float(self.c), float(self.margin), None
        if self.select == "heuristic":
            c, width, target = _FIRST, _FIRST, self._target(X, start, seed)
        if c == 0:
            return model, start
        model = model._replace(
            variance=float(self.v), margin_basis=self._basis(X), target=target, n_adapt=self.n_warmup
        )
        return model, start._replace(c=c, width=width)

    def _target(self, X: Array, start: PartitionState, seed: int) -> int:
        """Return the number of clusters that the heuristic aims at."""
        if self.n_components is not None:
            raise ValueError(
                "select='heuristic' changes the number of clusters, but n_components fixes it: give target_clusters."
            )
        if self.target_clusters is not None:
            return int(self.target_clusters)
        names = DirichletProcessGaussianMixture().get_params()
        plain = DirichletProcessGaussianMixture(**{name: getattr(self, name) for name in names})
        plain.set_params(random_state=seed, checkpoint=None, verbose=0)
        if self.S is not None and not isinstance(self.S, str):  # X has the units of the model: so must S
            scale = start.scale
            plain.set_params(S={"full": scale, "diag": scale[0]}.get(self.covariance, scale[0, 0]))
        return int(plain.fit(X).n_clusters_)

    def _basis(self, X: Array) -> Array | None:
        """Return the matrix that makes the rows of the margins."""
        given, p = self.margin_features, X.shape[1]
        if given is None:
            return None
        if isinstance(given, Integral):
            if given > min(X.shape):
                raise ValueError(
                    f"margin_features={given} principal components need as many rows and features, X is {X.shape}."
                )
            _, vectors = np.linalg.eigh(X.T @ X)
            return np.ascontiguousarray(vectors[:, ::-1][:, : int(given)])
        basis = np.array(given, np.float64)
        if basis.ndim != 2 or len(basis) != p or not np.isfinite(basis).all():
            raise ValueError(
                f"margin_features must be an int or a finite matrix of {p} rows, one for each feature; it has the "
                f"shape {basis.shape}."
            )
        return np.ascontiguousarray(basis)

    def _start(
        self, model: PartitionModel, start: PartitionState, X: Array, labels: Ints, rng: np.random.Generator
    ) -> PartitionState:
        state = super()._start(model, start, X, labels, rng)
        if model.variance is None:
            return state
        rows = model.margin_rows(X)
        K = model.n_components or int(state.labels.max()) + 1
        projections = np.zeros((K, rows.shape[1]))
        margin = Margin(float(state.c), float(state.width), model.variance)
        for _ in range(_START_STEPS):
            projections = draw_projections(projections, rows, state.labels, margin, rng)
        return state._replace(projections=projections)

    def _summarise(self, model: PartitionModel, X: Array, chains: Any, rng: np.random.Generator) -> None:
        super()._summarise(model, X, chains, rng)
        if model.target is not None:
            self.selection_ = {
                "c": self.prior_["c"],
                "margin": self.prior_["margin"],
                "n_clusters": model.target,
            }
