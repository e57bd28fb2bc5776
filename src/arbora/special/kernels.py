r"""Compiled scalar functions of `arbora.special`: Bessel functions of high order and large argument.

Two methods cover every order :math:`\nu \ge 0` and argument :math:`x \ge 0`. With :math:`t = \sqrt{\nu^2 + x^2}`:

**t < 32: the power series**, whose terms are all positive. With :math:`y = x^2/4`,

.. math:: I_\nu(x) = \frac{(x/2)^\nu}{\Gamma(\nu+1)} F, \quad
          F = \sum_k \frac{y^k}{k!\,(\nu+1)_k}, \quad
          A = \frac{I_{\nu+1}(x)}{I_\nu(x)} = \frac{d \log F}{dx}.

**t >= 32: the uniform expansion** of Debye, for the logarithm and in powers of :math:`1/t`. In this form it is valid
for large orders and, as Hankel's expansion, for small orders and large arguments. With :math:`q = \nu^2/t^2`,

.. math:: \log I_\nu(x) &= t + \nu \log\frac{x}{\nu + t} - \tfrac12 \log 2\pi t
              + \sum_{k \ge 1} \frac{d_k(q)}{t^k}, \\
          A &= \frac{x}{\nu + t} + \frac{x}{t} \sum_{k \ge 1} \frac{e_k(q)}{t^k}, \\
          A' &= \frac{\nu}{t (\nu + t)} + \frac{1}{t} \sum_{k \ge 1} \frac{f_k(q)}{t^k}.

The second line is the derivative of the first minus :math:`\nu/x`, the third the derivative of the second:

.. math:: e_{k+1} = -(k d_k + 2 q d_k'), \qquad f_k = e_k - (1 - q) \left((k+1) e_k + 2 q e_k'\right).

Substituted into the Riccati equation :math:`A' = 1 - A^2 - (2\nu+1) A/x` they give :math:`e_1 = -1/2` and

.. math:: 2 e_m + e_{m-1} + f_{m-1} + (1-q) \sum_{i+j=m} e_i e_j = 0.

The polynomials :math:`2^{2m-1} e_m` have integer coefficients, computed here exactly.

No formula subtracts nearly equal numbers: :math:`1 - A` has its own formula. Where :math:`\log I` or the
log-normaliser is near zero, :math:`t` and :math:`\nu \log` are computed together with their rounding errors.

All kernels are in this one file because numba's cache detects changes in the file of the caller only.

References
----------
NIST Digital Library of Mathematical Functions, sections 10.25, 10.40 and 10.41.
D. E. Amos, Computation of modified Bessel functions and their ratios, Mathematics of Computation 28 (1974).
K. Hornik and B. Grün, Amos-type bounds for modified Bessel function ratios, J. Math. Anal. Appl. 408 (2013).
"""

import math
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np

from arbora.arrays import Array

Polynomial: TypeAlias = list[int]
_COMPILING = Lock()
_Function = TypeVar("_Function", bound=Callable[..., Any])

SWITCH = 32.0  # power series for smaller t, uniform expansion for larger t
LARGEST = 1e100  # squares of larger orders and arguments could overflow
_MAX_TERMS = 15
_ROUNDING = 3e-17

_LOG_2 = math.log(2.0)
_LOG_2_HIGH = math.floor(_LOG_2 * 2**20) / 2**20  # times 26 bits of the order and an exponent: exact
_LOG_2_LOW = 2.319046813846299616e-17 + (_LOG_2 - _LOG_2_HIGH)
_LOG_2PI = math.log(2.0 * math.pi)
_LOG_PI_4 = math.log(math.pi / 4.0)


def _kernel(function: _Function) -> _Function:
    return cast(_Function, numba.njit(cache=True, error_model="numpy", nogil=True)(function))


def _ufunc(function: Callable[..., float]) -> Callable[..., Array]:
    """Make a broadcasting function; it returns NaN for arguments out of range, and callers raise the error."""
    vectorize: Any = numba.vectorize  # numba has no types
    compiled = vectorize(cache=True)(function)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Array:
        if compiled.types:
            return cast(Array, compiled(*arguments, **options))
        with _COMPILING:  # numba warns if two threads compile a function at the same time
            return cast(Array, compiled(*arguments, **options))

    return call


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    product = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return product


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    size = max(len(a), len(b))
    return [x + y for x, y in zip(a + [0] * (size - len(a)), b + [0] * (size - len(b)), strict=True)]


def _slope_polynomial(e: Polynomial, k: int) -> Polynomial:
    """``f_k`` from ``e_k``; coefficients in order of increasing power of q."""
    return _plus(e, _times([-1, 1], [(k + 1 + 2 * j) * c for j, c in enumerate(e)]))


def _ratio_polynomials(n_terms: int) -> list[Polynomial]:
    """``2^(2m-1) e_m`` for m = 1 to ``n_terms``, by the Riccati equation."""
    e: list[Polynomial] = [[-1]]
    for m in range(2, n_terms + 1):
        linear = _plus(e[-1], _slope_polynomial(e[-1], m - 1))
        squares = [0]
        for i in range(m - 1):
            squares = _plus(squares, _times(e[i], e[m - 2 - i]))
        e.append(_plus([-2 * c for c in linear], _times([-1, 1], squares)))
    return e


def _tables() -> tuple[Array, Array, Array, Array]:
    """Coefficients of d, e and f (row k, column power of q), and the smallest t for which 1, 2, ... terms suffice."""
    size = _MAX_TERMS + 2
    log, ratio, slope = (np.zeros((size, size + 1)) for _ in range(3))
    smallest = np.empty(_MAX_TERMS)
    q = np.linspace(0.0, 1.0, 65)
    for m, e in enumerate(_ratio_polynomials(_MAX_TERMS + 2), start=1):
        scale = 2 ** (2 * m - 1)
        if m < size:
            ratio[m, : len(e)] = [c / scale for c in e]
            f = _slope_polynomial(e, m)
            slope[m, : len(f)] = [c / scale for c in f]
        if m > 1:
            log[m - 1, : len(e)] = [-c / (scale * (m - 1 + 2 * j)) for j, c in enumerate(e)]
        if m > 2:  # the remainder after m - 2 terms, relative to the smallest 1 - A, about 1 / 2t
            largest = np.abs(np.polynomial.polynomial.polyval(q, [c / scale for c in e])).max()
            smallest[m - 3] = (2.0 * largest / _ROUNDING) ** (1.0 / (m - 1))
    return log, ratio, slope, smallest


_LOG_TERMS, _RATIO_TERMS, _SLOPE_TERMS, ENOUGH = _tables()


@_kernel
def _expansion(table: Array, n_terms: int, v: float, t: float) -> float:
    """Sum of ``table[k](q) / t^k`` for k = 1 to ``n_terms``."""
    u = 1.0 / t
    q = (v * u) * (v * u)
    total = 0.0
    for k in range(n_terms, 0, -1):
        value = table[k, k]
        for j in range(k - 1, -1, -1):
            value = value * q + table[k, j]
        total = (total + value) * u
    return total


@_kernel
def _n_terms(t: float) -> int:
    n_terms = _MAX_TERMS
    while n_terms > 1 and t >= ENOUGH[n_terms - 2]:
        n_terms -= 1
    return n_terms


@_kernel
def _valid(v: float, x: float) -> bool:
    return 0.0 <= v <= LARGEST and 0.0 <= x <= LARGEST


@_kernel
def _series(v: float, x: float) -> tuple[float, float]:
    """``F - 1`` and ``A / x``."""
    y = 0.25 * x * x
    term = 1.0 / (v + 1.0)  # term k of F, divided by y
    total, weighted = term, term
    k = 1.0
    while k * term > 1e-17 * weighted:
        k += 1.0
        term *= y / (k * (v + k))
        total += term
        weighted += k * term
    excess = y * total
    return excess, 0.5 * weighted / (1.0 + excess)


@_kernel
def _split(a: float) -> tuple[float, float]:
    """Split into two halves of 26 bits, whose products are exact (Veltkamp)."""
    scaled = 134217729.0 * a
    high = scaled - (scaled - a)
    return high, a - high


@_kernel
def _hypotenuse(v: float, x: float) -> tuple[float, float]:
    """``t`` and its rounding error."""
    t = math.sqrt(v * v + x * x)
    vh, vl = _split(v)
    xh, xl = _split(x)
    th, tl = _split(t)
    residual = (xh - th) * (xh + th) + vh * vh if x > v else (vh - th) * (vh + th) + xh * xh
    residual += 2.0 * (vh * vl + xh * xl - th * tl)
    residual += vl * vl + xl * xl - tl * tl
    return t, residual / (2.0 * t)


@_kernel
def _log_parts(a: float) -> tuple[float, float]:
    """``n`` and ``f`` with ``log a = n log 2 + f`` and ``|f| <= 0.35``, so the rounding error of f is small."""
    mantissa, exponent = math.frexp(a)
    if mantissa < 0.7071067811865476:
        return exponent - 1.0, math.log(2.0 * mantissa)
    return float(exponent), math.log(mantissa)


@_kernel
def _times_log(v: float, n: float, f: float) -> tuple[float, float]:
    """``v (n log 2 + f)`` as the sum of an exact number and a small remainder."""
    vh, vl = _split(v)
    return vh * (n * _LOG_2_HIGH), vh * (n * _LOG_2_LOW) + (vl * n * _LOG_2 + v * f)


@_kernel
def _log_iv(v: float, x: float) -> float:
    if not _valid(v, x):
        return math.nan
    if x == 0.0:
        return 0.0 if v == 0.0 else -math.inf
    if v * v + x * x < SWITCH * SWITCH:
        excess, _ = _series(v, x)
        return v * math.log(0.5 * x) - math.lgamma(v + 1.0) + math.log1p(excess)
    t, t_low = _hypotenuse(v, x)
    w = v + t
    w_low = min(v, t) - (w - max(v, t)) + t_low
    nw, fw = _log_parts(w)
    nx, fx = _log_parts(x)
    high, low = _times_log(v, nx - nw, fx - fw - w_low / w)
    rest = _expansion(_LOG_TERMS, _n_terms(t), v, t) - 0.5 * (math.log(t) + _LOG_2PI)
    return (t + high) + (low + t_low + rest)


@_kernel
def _log_normalizer(v: float, x: float) -> float:
    """``v log x - (v + 1) log 2 pi - log I_v(x)``, computed without ``log x``."""
    if not _valid(v, x):
        return math.nan
    if v * v + x * x < SWITCH * SWITCH:
        excess, _ = _series(v, x)
        return v * _LOG_2 + math.lgamma(v + 1.0) - (v + 1.0) * _LOG_2PI - math.log1p(excess)
    t, t_low = _hypotenuse(v, x)
    w = v + t
    w_low = min(v, t) - (w - max(v, t)) + t_low
    n, f = _log_parts(w)
    high, low = _times_log(v, n - 3.0, f - _LOG_PI_4 + w_low / w)  # 2 pi = 2^3 (pi / 4)
    rest = 0.5 * (math.log(t) - _LOG_2PI) - _expansion(_LOG_TERMS, _n_terms(t), v, t)
    return (high - t) + (low - t_low + rest)


@_kernel
def _entropy(v: float, x: float) -> float:
    """``-log C - x A``; for large t the leading terms, ``x A = t - v + ...``, cancel analytically."""
    if not _valid(v, x):
        return math.nan
    if v * v + x * x < SWITCH * SWITCH:
        _, ratio = _series(v, x)
        return -_log_normalizer(v, x) - ratio * x * x
    t = math.sqrt(v * v + x * x)
    n_terms = _n_terms(t)
    main = v * (1.0 + _LOG_2PI - math.log(v + t)) - 0.5 * (math.log(t) - _LOG_2PI)
    linear = (x / t) * x * _expansion(_RATIO_TERMS, n_terms + 1, v, t)
    return main + (_expansion(_LOG_TERMS, n_terms, v, t) - linear)


@_kernel
def _ratio(v: float, x: float) -> float:
    if not _valid(v, x):
        return math.nan
    if v * v + x * x < SWITCH * SWITCH:
        _, ratio = _series(v, x)
        return ratio * x
    t = math.sqrt(v * v + x * x)
    return x * (1.0 / (v + t) + _expansion(_RATIO_TERMS, _n_terms(t) + 1, v, t) / t)


@_kernel
def _ratio_complement(v: float, x: float) -> float:
    """One minus the ratio."""
    if not _valid(v, x):
        return math.nan
    if v * v + x * x < SWITCH * SWITCH:
        return 1.0 - _ratio(v, x)
    t = math.sqrt(v * v + x * x)
    leading = (v + v * (v / (t + x))) / (v + t)  # 1 - x / (v + t)
    return leading - (x / t) * _expansion(_RATIO_TERMS, _n_terms(t) + 1, v, t)


@_kernel
def _ratio_slope(v: float, x: float) -> float:
    """First derivative of the ratio."""
    if not _valid(v, x):
        return math.nan
    if v * v + x * x < SWITCH * SWITCH:
        _, ratio = _series(v, x)
        return (1.0 - ratio * x) * (1.0 + ratio * x) - (2.0 * v + 1.0) * ratio
    t = math.sqrt(v * v + x * x)
    return v / t / (v + t) + _expansion(_SLOPE_TERMS, _n_terms(t) + 1, v, t) / t


@_kernel
def _amos_inverse(r: float, alpha: float, beta_squared: float) -> float:
    """Solve ``x / (alpha + sqrt(beta^2 + x^2)) = r``."""
    complement = (1.0 - r) * (1.0 + r)
    root = math.sqrt(alpha * r * alpha * r + beta_squared * complement)
    return r * (alpha + root) / complement


@_kernel
def _ratio_inverse(v: float, r: float) -> float:
    """Solve ``A = r`` by Newton's method, safeguarded by bounds on the solution."""
    if not (0.0 <= v <= LARGEST and 0.0 <= r <= 1.0):
        return math.nan
    if r == 0.0 or r == 1.0:
        return 0.0 if r == 0.0 else math.inf
    alpha = v + 0.5
    low = _amos_inverse(r, alpha, alpha * (v + 1.5)) * (1.0 - 1e-14)
    high = _amos_inverse(r, alpha, (v + 1.5) * (v + 1.5)) * (1.0 + 1e-14)
    x = 0.5 * (low + high)
    for _ in range(100):
        # For r >= 1/2, 1 - r is exact and 1 - A has a small relative error.
        gap = r - _ratio(v, x) if r < 0.5 else _ratio_complement(v, x) - (1.0 - r)
        if gap > 0.0:
            low = x
        else:
            high = x
        following = x + gap / _ratio_slope(v, x)
        if abs(following - x) <= 1e-9 * x:  # the remaining error is about the square of the step
            return following
        x = following if low <= following <= high else 0.5 * (low + high)
    return x


log_iv = _ufunc(_log_iv)
log_normalizer = _ufunc(_log_normalizer)
log_normalizer_of_one = _log_normalizer  # for compiled code
entropy = _ufunc(_entropy)
ratio = _ufunc(_ratio)
ratio_complement = _ufunc(_ratio_complement)
ratio_slope = _ufunc(_ratio_slope)
ratio_inverse = _ufunc(_ratio_inverse)
