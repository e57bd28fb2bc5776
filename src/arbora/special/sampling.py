r"""Exact sampling from the von Mises-Fisher distribution.

.. math:: p(x \mid \mu, \kappa) = C_D(\kappa) \exp(\kappa\, \mu^\top x), \qquad \|x\| = \|\mu\| = 1

A draw combines its cosine with the mean and a uniform direction in the tangent space (Ulrich 1984):
:math:`x = w \mu + \sqrt{1 - w^2}\, t`, with :math:`t \perp \mu` uniform, and

.. math:: p(w) \propto (1 - w^2)^{(D - 3)/2} e^{\kappa w}.

``w`` comes from the rejection sampler of Wood (1994). The published form loses all digits of :math:`1 - w`, and of
the tangent component, when the concentration is large. Here the Beta variate of the envelope is represented by its
two Gamma variates :math:`g_1, g_2`; with
:math:`b = (D-1) / (2\kappa + \sqrt{4\kappa^2 + (D-1)^2})`,

.. math:: 1 - w = \frac{2 b g_1}{g_2 + b g_1}, \qquad
          \sqrt{1 - w^2} = \frac{2 \sqrt{b g_1 g_2}}{g_2 + b g_1},

both without cancellation. With :math:`x_0 = (1-b)/(1+b)` and :math:`\delta = w - x_0`, a proposal is accepted
when

.. math:: \kappa \delta + (D - 1) \log\left(1 - \frac{x_0 \delta}{1 - x_0^2}\right) \ge \log u.

A Householder reflection maps the first axis to :math:`\mu` in O(D) per draw; no basis is built.

References
----------
G. Ulrich, Computer generation of distributions on the m-sphere, Applied Statistics 33 (1984).
A. T. A. Wood, Simulation of the von Mises Fisher distribution, Communications in Statistics 23 (1994).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arbora.arrays import Array


class _Cosine(NamedTuple):
    """Cosine and sine of the angle between a draw and its mean."""

    cos: Array
    sin: Array


def _sample_cosine(kappa: Array, n_features: int, rng: np.random.Generator) -> _Cosine:
    """Cosine and sine to the mean, one pair per entry of ``kappa``; rejected proposals are redrawn."""
    m = n_features - 1
    b = m / (2.0 * kappa + np.hypot(2.0 * kappa, m))
    x0, one_minus_x0, one_minus_x0_squared = (
        (1.0 - b) / (1.0 + b),
        2.0 * b / (1.0 + b),
        4.0 * b / (1.0 + b) ** 2,
    )
    cos, sin = np.empty_like(kappa), np.empty_like(kappa)
    left = np.arange(kappa.size)
    while left.size:
        g1, g2 = rng.standard_gamma(m / 2.0, size=(2, left.size))
        bg1 = b[left] * g1
        scale = g2 + bg1
        delta = one_minus_x0[left] - 2.0 * bg1 / scale
        log_ratio = kappa[left] * delta + m * np.log1p(-x0[left] * delta / one_minus_x0_squared[left])
        accept = log_ratio >= -rng.standard_exponential(left.size)
        done = left[accept]
        cos[done] = ((g2 - bg1) / scale)[accept]
        sin[done] = (2.0 * np.sqrt(bg1 * g2) / scale)[accept]
        left = left[~accept]
    return _Cosine(cos, sin)


def _rotate_first_axis_to(mu: Array, draws: Array) -> Array:
    """Reflect draws around the first axis to draws around ``mu``, in place.

    The reflector ``v = mu + sign(mu_0) e_0`` has no cancellation. It maps ``e_0`` to ``-sign(mu_0) mu``, so the sign
    of the first coordinate is changed first.
    """
    sign = np.where(mu[..., 0] >= 0.0, 1.0, -1.0)
    draws[:, 0] *= -sign
    projection = np.einsum("ij,ij->i", draws, np.broadcast_to(mu, draws.shape)) + sign * draws[:, 0]
    projection /= 1.0 + np.abs(mu[..., 0])
    draws[:, 0] -= projection * sign
    draws -= projection[:, None] * mu
    return draws


def _check_mean(mu: npt.ArrayLike) -> Array:
    mean = np.asarray(mu, dtype=np.float64)
    if mean.ndim not in (1, 2) or mean.shape[-1] < 2:
        raise ValueError(
            f"mu must have shape (n_features,) or (n_samples, n_features >= 2), got {mean.shape}"
        )
    norms = np.linalg.norm(mean, axis=-1)
    if not np.all(np.abs(norms - 1.0) < 1e-6):  # also catches NaN
        worst = int(np.argmax(np.where(np.isfinite(norms), np.abs(norms - 1.0), np.inf)))
        raise ValueError(
            f"mu must have unit length: row {worst} has length {np.ravel(norms)[worst]:.6g}; "
            "divide it by its norm first"
        )
    return np.asarray(mean / norms[..., None])


def _check_kappa(kappa: npt.ArrayLike, n_draws: int) -> Array:
    concentration = np.asarray(kappa, dtype=np.float64)
    if concentration.ndim > 1 or (concentration.ndim == 1 and concentration.size != n_draws):
        raise ValueError(
            f"kappa must be a number or hold one value per draw ({n_draws}), got {concentration.shape}"
        )
    if not np.all((concentration >= 0.0) & np.isfinite(concentration)):
        raise ValueError("kappa must be finite and not negative")
    return np.broadcast_to(concentration, (n_draws,)).astype(np.float64)


def sample_vmf(
    mu: npt.ArrayLike,
    kappa: npt.ArrayLike,
    size: int | None = None,
    random_state: Any = None,
) -> Array:
    r"""Draw from von Mises-Fisher distributions, exactly.

    Parameters
    ----------
    mu : array-like of shape (n_features,) or (n_samples, n_features)
        Unit mean direction. If 2-d, one draw is made around each row.
    kappa : float or array-like of shape (n_samples,)
        Concentration, 0 (uniform on the sphere) or more; one for all draws or one per draw.
    size : int, optional
        Number of draws around a single ``mu``. ``None`` returns one draw without the leading axis. Must be ``None``
        if ``mu`` is 2-d.
    random_state : int, numpy Generator or None
        Seed or generator; a generator is advanced in place.

    Returns
    -------
    ndarray of shape (size, n_features), (n_features,) or (n_samples, n_features)
        Unit vectors.

    Notes
    -----
    A draw takes O(n_features) time and memory. The measured mean number of proposals per draw is at most 1.52 for
    all dimensions and concentrations.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.special import sample_vmf
    >>> x = sample_vmf([1.0, 0.0, 0.0], kappa=100.0, size=5, random_state=0)
    >>> x.shape, bool(np.allclose(np.linalg.norm(x, axis=1), 1.0))
    ((5, 3), True)
    >>> bool(x[:, 0].min() > 0.9)
    True
    """
    mean = _check_mean(mu)
    if mean.ndim == 2 and size is not None:
        raise ValueError("size must be None when mu is 2-d: one draw is made around each row")
    if size is not None and size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    n_draws = mean.shape[0] if mean.ndim == 2 else 1 if size is None else int(size)
    concentration = _check_kappa(kappa, n_draws)
    rng = np.random.default_rng(random_state)
    cosine = _sample_cosine(concentration, mean.shape[-1], rng)
    draws = rng.standard_normal((n_draws, mean.shape[-1]))
    tangent = draws[:, 1:]
    tangent *= (cosine.sin / np.linalg.norm(tangent, axis=1))[:, None]
    draws[:, 0] = cosine.cos
    _rotate_first_axis_to(mean, draws)
    return draws[0] if mean.ndim == 1 and size is None else draws
