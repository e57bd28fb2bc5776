"""Bessel functions and their ratios to about 25 digits, by methods that are independent of the package.

Below order 50, mpmath's function. Above, where that function can take minutes, quadrature over the cosine w of a von
Mises-Fisher distribution: with ``w = tanh u`` the integrand ``exp(x tanh u) cosh(u)^-(2 order + 1)`` decays so fast
that the trapezoidal rule converges exponentially.
"""

from typing import NamedTuple

from mpmath import mp, mpf

DIGITS = 40


class Exact(NamedTuple):
    log_iv: mpf
    ratio: mpf
    complement: mpf
    slope: mpf
    log_normalizer: mpf
    entropy: mpf


def exact(order: float, x: float) -> Exact:
    with mp.workdps(DIGITS):
        v, x = mpf(order), mpf(x)
        log_iv, complement, slope = (_quadrature if v >= 50 else _bessel)(v, x)
        log_normalizer = v * mp.log(x) - (v + 1) * mp.log(2 * mp.pi) - log_iv
        ratio = 1 - complement
        return Exact(log_iv, ratio, complement, slope, log_normalizer, -log_normalizer - x * ratio)


def _bessel(v: mpf, x: mpf) -> tuple[mpf, mpf, mpf]:
    log_iv = mp.log(mp.besseli(v, x))
    ratio = mp.besseli(v + 1, x) / mp.besseli(v, x)
    return log_iv, 1 - ratio, 1 - ratio**2 - (2 * v + 1) * ratio / x


def _quadrature(v: mpf, x: mpf) -> tuple[mpf, mpf, mpf]:
    m = 2 * v + 1
    w = 2 * x / (m + mp.sqrt(m * m + 4 * x * x))  # the peak: x (1 - w^2) = m w
    sine_squared = m / x * w
    centre = mp.log((1 + w) ** 2 / sine_squared) / 2
    step = 1 / mp.sqrt(sine_squared * (2 * x * w + m)) / 2  # half a standard deviation
    nodes = [centre + i * step for i in range(-34, 35)]
    decays = [mp.exp(-2 * u) for u in nodes]
    from_one = [2 * e / (1 + e) for e in decays]  # 1 - tanh u
    logs = [
        m * (mp.log(2) - u - mp.log1p(e)) - x * c for u, e, c in zip(nodes, decays, from_one, strict=True)
    ]
    top = max(logs)
    weights = [mp.exp(value - top) for value in logs]
    total = mp.fsum(weights)
    complement = mp.fdot(weights, from_one) / total
    slope = mp.fdot(weights, [(c - complement) ** 2 for c in from_one]) / total
    constant = v * mp.log(x / 2) - mp.loggamma(v + mpf(1) / 2) - mp.log(mp.pi) / 2
    return constant + x + top + mp.log(total * step), complement, slope
