r"""The von Mises-Fisher distribution: normaliser, density, entropy and estimate of the concentration.

.. math:: p(x \mid \mu, \kappa) = C_D(\kappa) \exp(\kappa\, \mu^\top x), \qquad
          \log C_D(\kappa) = \nu \log \kappa - \tfrac{D}{2} \log 2\pi - \log I_\nu(\kappa), \qquad
          \nu = \tfrac{D}{2} - 1.

The mean of :math:`\mu^\top x` is the ratio :math:`A_D(\kappa) = I_{\nu+1}(\kappa) / I_\nu(\kappa)`. The maximum
likelihood estimate of the concentration makes it equal to the length ``r`` of the mean of the data. The entropy is
:math:`-\log C_D(\kappa) - \kappa A_D(\kappa)`.

References
----------
K. V. Mardia and P. E. Jupp, Directional Statistics, Wiley (2000).
A. Banerjee, I. Dhillon, J. Ghosh and S. Sra, Clustering on the unit hypersphere using von Mises-Fisher
distributions, Journal of Machine Learning Research 6 (2005).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from arbora.arrays import Array
from arbora.special import kernels
from arbora.special.bessel import refuse
from arbora.special.kernels import LARGEST

_ABOVE_ONE = 1e-12  # tolerance for rounding: the mean of equal unit rows may be slightly longer than 1


def _evaluate(function: Callable[..., Array], kappa: npt.ArrayLike, n_features: npt.ArrayLike) -> Array:
    order = np.asarray(n_features, dtype=np.float64) / 2.0 - 1.0
    result = function(order, np.asarray(kappa, dtype=np.float64))
    if np.isnan(result).any():
        refuse("n_features", n_features, 2.0, LARGEST)
        refuse("kappa", kappa, 0.0, LARGEST)
    return result


def vmf_log_normalizer(kappa: npt.ArrayLike, n_features: npt.ArrayLike) -> Array:
    r"""Log-normaliser :math:`\log C_D(\kappa)` of the von Mises-Fisher density.

    Its derivative is ``-bessel_ratio(n_features / 2 - 1, kappa)``.

    Parameters
    ----------
    kappa : array-like
        Concentration, 0 (uniform) or more.
    n_features : array-like
        Dimension :math:`D` of the space that contains the sphere, 2 or more; broadcast against ``kappa``.

    Returns
    -------
    ndarray, or a number when both arguments are numbers

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.special import vmf_log_normalizer
    >>> bool(np.isclose(vmf_log_normalizer(0.0, 3), -np.log(4 * np.pi)))     # uniform on the sphere
    True
    >>> print(vmf_log_normalizer([1.0, 1e4], 1_000_000).round(4))
    [5488810.4104 5488760.4129]
    """
    return _evaluate(kernels.log_normalizer, kappa, n_features)


def vmf_entropy(kappa: npt.ArrayLike, n_features: npt.ArrayLike) -> Array:
    r"""Differential entropy of the von Mises-Fisher distribution, in nats.

    Parameters
    ----------
    kappa : array-like
        Concentration, 0 (uniform) or more.
    n_features : array-like
        Dimension, 2 or more; broadcast against ``kappa``.

    Returns
    -------
    ndarray, or a number when both arguments are numbers

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.special import vmf_entropy
    >>> print(vmf_entropy(0.0, 2) - np.log(2 * np.pi))       # uniform on the circle
    0.0
    >>> print(vmf_entropy(1e8, 3).round(10))                  # 1 - log(kappa / 2 pi)
    -15.5828036775
    """
    return _evaluate(kernels.entropy, kappa, n_features)


def kappa_mle(r: npt.ArrayLike, n_features: npt.ArrayLike) -> Array:
    r"""Maximum likelihood estimate of the concentration: the solution of :math:`A_D(\kappa) = r`.

    Newton's method to machine precision, safeguarded by the bounds of Hornik and Grün. The bounds are tight, so a few
    steps suffice for any ``r`` and any dimension.

    Parameters
    ----------
    r : array-like
        Mean resultant length: the length of the mean of unit vectors, between 0 and 1. For few vectors in a high
        dimension the maximum likelihood estimate is strongly biased upwards.
    n_features : array-like
        Dimension, 2 or more; broadcast against ``r``.

    Returns
    -------
    ndarray, or a number when both arguments are numbers
        0 where ``r`` is 0, infinity where ``r`` is 1 (all data are one point).

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.special import bessel_ratio, kappa_mle
    >>> kappa = kappa_mle([0.0, 0.1, 0.999999, 1.0], 1000)
    >>> print(kappa.round(3))
    [0.00000000e+00 1.01008000e+02 4.99499751e+08            inf]
    >>> print(bessel_ratio(499, kappa[:3]))
    [0.       0.1      0.999999]
    """
    length = np.asarray(r, dtype=np.float64)
    rounded = np.where((length > 1.0) & (length <= 1.0 + _ABOVE_ONE), 1.0, length)
    order = np.asarray(n_features, dtype=np.float64) / 2.0 - 1.0
    result = kernels.ratio_inverse(order, rounded)
    if np.isnan(result).any():
        refuse("n_features", n_features, 2.0, LARGEST)
        refuse("r", rounded, 0.0, 1.0)
    return result


def _check_rows(name: str, values: Any) -> Any:
    """Validate rows of unit length, dense or CSR."""
    sparse = bool(sp.issparse(values))
    rows: Any = values.tocsr() if sparse else np.asarray(values)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"{name} must have shape (n_rows, n_features >= 2), got {rows.shape}")
    if sparse:
        squares = np.bincount(
            np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)),
            weights=np.square(rows.data, dtype=np.float64),
            minlength=rows.shape[0],
        )
    else:
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    tolerance = 1e-4 if rows.dtype == np.float32 else 1e-6
    wrong = np.flatnonzero(~(np.abs(np.sqrt(squares) - 1.0) <= tolerance))  # NaN is wrong
    if wrong.size:
        raise ValueError(
            f"rows of {name} must have unit length: row {wrong[0]} has length {np.sqrt(squares[wrong[0]]):.6g} "
            f"({wrong.size} of {rows.shape[0]} rows are wrong); divide each row by its norm and drop zero rows"
        )
    return rows


def vmf_logpdf(X: Any, mu: npt.ArrayLike, kappa: npt.ArrayLike) -> Array:
    r"""Log-density of rows under von Mises-Fisher distributions, with respect to the surface of the sphere.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Unit rows. Sparse rows are not densified. A single row of shape (n_features,) is accepted.
    mu : array-like of shape (n_components, n_features) or (n_features,)
        Unit mean directions.
    kappa : float or array-like of shape (n_components,)
        Concentration, one for all means or one per mean.

    Returns
    -------
    ndarray of shape (n_samples, n_components)
        The axis of samples is dropped if ``X`` is a single row, the axis of components if ``mu`` is 1-d.

    Notes
    -----
    The error of a cosine in double precision is about 1e-16; the error of the log-density is ``kappa`` times larger.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from arbora.special import vmf_logpdf
    >>> X = sp.csr_array([[1.0, 0.0, 0.0], [0.6, 0.0, 0.8]])
    >>> print(vmf_logpdf(X, np.eye(3)[:2], [0.0, 10.0]).round(4))
    [[-2.531  -9.5353]
     [-2.531  -9.5353]]
    """
    single_row = not sp.issparse(X) and np.ndim(X) == 1
    rows = _check_rows("X", np.asarray(X)[None, :] if single_row else X)
    means = np.asarray(mu, dtype=np.float64)
    single_mean = means.ndim == 1
    means = _check_rows("mu", means[None, :] if single_mean else means)
    if rows.shape[1] != means.shape[1]:
        raise ValueError(f"X has {rows.shape[1]} features and mu has {means.shape[1]}")
    concentration = np.asarray(kappa, dtype=np.float64)
    if concentration.ndim > 1 or concentration.size not in (1, means.shape[0]):
        raise ValueError(
            f"kappa must be a number or hold one value per mean ({means.shape[0]}), got {concentration.shape}"
        )
    log_normalizer = vmf_log_normalizer(concentration, means.shape[1])
    result = np.asarray(rows @ (means * concentration.reshape(-1, 1)).T + log_normalizer)
    if single_mean:
        result = result[:, 0]
    return np.asarray(result[0] if single_row else result)
