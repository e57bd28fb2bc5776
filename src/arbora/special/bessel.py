r"""Modified Bessel functions of the first kind and their ratios, for high orders and large arguments.

All functions broadcast and have about 14 correct digits for orders from 0 to 5e5 and arguments from 0 to 1e8;
`arbora.special.kernels` describes the methods. The ratio

.. math:: A_\nu(x) = \frac{I_{\nu+1}(x)}{I_\nu(x)} = \frac{d}{dx} \log I_\nu(x) - \frac{\nu}{x}

increases from 0 to 1. It is the mean resultant length of a von Mises-Fisher distribution in ``2 * order + 2``
dimensions.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from arbora.arrays import Array
from arbora.special import kernels
from arbora.special.kernels import LARGEST


def refuse(name: str, values: npt.ArrayLike, low: float, high: float) -> None:
    """Raise ValueError if a value is outside [low, high] or NaN; the message shows the first one."""
    array = np.asarray(values, dtype=np.float64)
    outside = np.flatnonzero(~((array >= low) & (array <= high)))  # NaN is outside
    if outside.size:
        where = f" at position {outside[0]}" if array.ndim else ""
        raise ValueError(
            f"{name} must lie between {low:g} and {high:g}, got {array.flat[outside[0]]:g}{where}; "
            f"{outside.size} of {array.size} values are outside"
        )


def _evaluate(
    function: Callable[..., Array], order: npt.ArrayLike, x: npt.ArrayLike, out: Array | None
) -> Array:
    result = function(np.asarray(order, dtype=np.float64), np.asarray(x, dtype=np.float64), out=out)
    if np.isnan(result).any():
        refuse("order", order, 0.0, LARGEST)
        refuse("x", x, 0.0, LARGEST)
    return result


def log_iv(order: npt.ArrayLike, x: npt.ArrayLike, out: Array | None = None) -> Array:
    r"""Logarithm of the modified Bessel function of the first kind, :math:`\log I_\nu(x)`.

    Parameters
    ----------
    order : array-like
        Order :math:`\nu`, 0 or more.
    x : array-like
        Argument, 0 or more; broadcast against ``order``.
    out : ndarray of float64, optional
        Array for the result.

    Returns
    -------
    ndarray, or a number when both arguments are numbers
        ``-inf`` where ``x`` is 0 and the order is not.

    See Also
    --------
    bessel_ratio : the derivative of `log_iv` is ``bessel_ratio(order, x) + order / x``.

    Examples
    --------
    >>> from arbora.special import log_iv
    >>> print(log_iv(0, [0.0, 1.0, 1e8]).round(6))
    [0.00000000e+00 2.35914000e-01 9.99999899e+07]
    >>> print(log_iv(5e5, 1e5).round(6))       # scipy.special.ive underflows to 0 here
    -646324.709203
    """
    return _evaluate(kernels.log_iv, order, x, out)


def bessel_ratio(order: npt.ArrayLike, x: npt.ArrayLike, out: Array | None = None) -> Array:
    r"""Ratio of modified Bessel functions, :math:`A_\nu(x) = I_{\nu+1}(x) / I_\nu(x)`.

    Parameters
    ----------
    order : array-like
        Order :math:`\nu` of the denominator, 0 or more.
    x : array-like
        Argument, 0 or more; broadcast against ``order``.
    out : ndarray of float64, optional
        Array for the result.

    Returns
    -------
    ndarray, or a number when both arguments are numbers
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.special import bessel_ratio
    >>> x = np.array([0.5, 5.0, 50.0])
    >>> bool(np.allclose(bessel_ratio(0.5, x), 1 / np.tanh(x) - 1 / x, rtol=1e-13))  # closed form of order 1/2
    True
    """
    return _evaluate(kernels.ratio, order, x, out)


def bessel_ratio_complement(order: npt.ArrayLike, x: npt.ArrayLike, out: Array | None = None) -> Array:
    r"""Complement of the ratio, :math:`1 - A_\nu(x)`, accurate where the ratio rounds to 1.

    Parameters
    ----------
    order : array-like
        Order :math:`\nu`, 0 or more.
    x : array-like
        Argument, 0 or more; broadcast against ``order``.
    out : ndarray of float64, optional
        Array for the result.

    Returns
    -------
    ndarray, or a number when both arguments are numbers

    Examples
    --------
    >>> from arbora.special import bessel_ratio, bessel_ratio_complement
    >>> print(bessel_ratio_complement(0, 1e12))
    5.00000000000125e-13
    >>> print(1 - bessel_ratio(0, 1e12))
    5.000444502911705e-13
    """
    return _evaluate(kernels.ratio_complement, order, x, out)


def bessel_ratio_derivative(order: npt.ArrayLike, x: npt.ArrayLike, out: Array | None = None) -> Array:
    r"""First derivative of the ratio, :math:`A_\nu'(x) = 1 - A_\nu(x)^2 - (2\nu + 1) A_\nu(x) / x`.

    The formula above loses all digits for large ``x``; the computed value does not.

    It is the variance of the cosine to the mean of a von Mises-Fisher distribution, and the Fisher information about
    its concentration.

    Parameters
    ----------
    order : array-like
        Order :math:`\nu`, 0 or more.
    x : array-like
        Argument, 0 or more; broadcast against ``order``.
    out : ndarray of float64, optional
        Array for the result.

    Returns
    -------
    ndarray, or a number when both arguments are numbers

    Examples
    --------
    >>> from arbora.special import bessel_ratio_derivative
    >>> print(bessel_ratio_derivative(0.5, [0.0, 1e6]).round(15))       # 1 / (2 order + 2); 1 / x**2
    [3.33333333e-01 1.00000000e-12]
    """
    return _evaluate(kernels.ratio_slope, order, x, out)
