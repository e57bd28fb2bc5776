"""What a fitted mixture tells: components of rows, densities, novelty, samples; all of it in double precision.

A mixture gives its parameters (`_params`), their log-joint with rows (`_scores`), and how to draw rows (`_draw`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from arbora.core.products import csr_matmul
from arbora.core.validation import check_rows
from arbora.discover._mixture.memory_mapped import chunks
from arbora.discover._mixture.top_features import ClusterLook
from arbora.engine import ThreadEngine
from arbora.infer.mixture.statistics import LinearScores

LEVELS = 1001  # quantiles of the density that are kept for `is_novel`


def draw_seed(random_state: Any) -> int:
    """Draw the seed from which all randomness of a call follows."""
    return int(check_random_state(random_state).randint(2**31 - 1))


class Questions(ClusterLook):
    """Mixin: questions about rows, answered by the parameters that a fit left."""

    _min_features: ClassVar[int] = 1

    # --- what a model gives ---------------------------------------------------------------------------------------

    def _check_matrix(self, X: Any, reset: bool) -> sp.csr_array:
        return check_rows(self, X, reset=reset, min_features=self._min_features)

    @abstractmethod
    def _check_X(self, X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array:
        """Bring checked rows into the form of the model, in double precision; refuse what has none."""

    @abstractmethod
    def _params(self) -> Any:
        """Return the parameters that the attributes hold."""

    @abstractmethod
    def _scores(self, params: Any) -> LinearScores:
        """Return the log-joint of a row and a component as a linear function of the row."""

    def _constant(self, X: sp.csr_array) -> NDArray[np.float64]:
        """Part of the log-density of a row that all components share."""
        return np.zeros(X.shape[0])

    @abstractmethod
    def _draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> Any:
        """Draw a row from the component of each label, for `sample`."""

    @abstractmethod
    def _n_parameters(self) -> int:
        """Return the number of free parameters."""

    # --- questions ------------------------------------------------------------------------------------------------

    def _log_joint(self, params: Any, X: sp.csr_array) -> NDArray[np.float64]:
        scores = self._scores(params)
        return csr_matmul(X, scores.weights.astype(np.float64, copy=False)) * scores.scale + scores.offset

    def _density(self, params: Any, X: sp.csr_array) -> NDArray[np.float64]:
        return logsumexp(self._log_joint(params, X), axis=1) + self._constant(X)

    def _by_chunks(
        self, function: Callable[[sp.csr_array], Any], X: sp.csr_array, engine: ThreadEngine | None = None
    ) -> NDArray[Any]:
        return np.concatenate(
            (engine or ThreadEngine(self.n_jobs)).map(lambda part: function(X[part]), chunks(X))
        )

    def _checked(self, X: Any) -> sp.csr_array:
        check_is_fitted(self)
        return self._check_X(self._check_matrix(X, reset=False))

    def _centres(self) -> NDArray[np.float64]:
        return np.asarray(self.means_)

    def _ask(self, X: Any, function: Callable[[Any, sp.csr_array], Any]) -> NDArray[Any]:
        """Apply a function of parameters and rows to all rows of X, some at a time."""
        X, params = self._checked(X), self._params()
        return self._by_chunks(lambda part: function(params, part), X)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable component of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._ask(X, lambda params, part: self._log_joint(params, part).argmax(axis=1))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each component given the row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """

        def probabilities(params: Any, part: sp.csr_array) -> NDArray[np.float64]:
            joint = self._log_joint(params, part)
            joint -= joint.max(axis=1, keepdims=True)
            np.exp(joint, out=joint)
            joint /= joint.sum(axis=1, keepdims=True)
            return joint

        return self._ask(X, probabilities)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return the log-density of each row, with all its constants.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._ask(X, self._density)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on X: the lower, the better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        scores = self.score_samples(X)
        return float(-2 * scores.sum() + self._n_parameters() * np.log(len(scores)))

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on X: the lower, the better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return float(-2 * self.score_samples(X).sum() + 2 * self._n_parameters())

    def is_novel(self, X: Any, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Tell which rows are unlike the training data.

        A row is novel when its density is lower than that of a share `level` of the training rows, each of them
        judged by a model from which its own part was taken away. So about that share of new rows from the same
        source is called novel by mistake.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        level : float
            Between 0 and 1.

        Returns
        -------
        ndarray of bool, shape (n_samples,)
        """
        if not 0 <= level <= 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}: it is the share of false alarms.")
        scores = self.score_samples(X)
        return scores < np.interp(level, np.linspace(0.0, 1.0, LEVELS), self.density_quantiles_)

    def _shares(self) -> NDArray[np.float64]:
        """Return the weights of the components."""
        return np.asarray(self.weights_)

    def sample(self, n_samples: int = 1) -> tuple[Any, NDArray[Any]]:
        """Draw rows from the mixture; where there is a posterior, from its predictive distribution.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            The component that each row was drawn from.
        """
        check_is_fitted(self)
        rng, shares = np.random.default_rng(draw_seed(self.random_state)), self._shares()
        labels = rng.choice(len(shares), size=n_samples, p=shares)
        return self._draw(labels, rng), labels
