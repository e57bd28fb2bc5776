"""Bessel functions and von Mises-Fisher quantities against mpmath, SciPy, integrals, identities and closed forms."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mp, mpf
from scipy import integrate, optimize, special, stats

from arbora.special import (
    bessel_ratio,
    bessel_ratio_complement,
    bessel_ratio_derivative,
    kappa_mle,
    log_iv,
    sample_vmf,
    vmf_entropy,
    vmf_log_normalizer,
    vmf_logpdf,
)
from arbora.special.kernels import ENOUGH, SWITCH, _ufunc
from support.bessel_reference import Exact, exact

MAX_ORDER, MAX_X = 5e5, 1e8
BESSEL = (log_iv, bessel_ratio, bessel_ratio_complement, bessel_ratio_derivative)


def log_uniform(low, high, size, rng):
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


def whole_domain(size, seed):
    """Random orders (some 0, half of them multiples of 1/2, as for integer dimensions) and arguments."""
    rng = np.random.default_rng(seed)
    order = log_uniform(1e-3, MAX_ORDER, size, rng)
    order[::2] = np.ceil(2 * order[::2]) / 2
    order[:: size // 8] = 0.0
    return order, log_uniform(1e-8, MAX_X, size, rng)


def computed(order, x):
    n_features = 2 * order + 2
    return Exact(
        log_iv(order, x),
        bessel_ratio(order, x),
        bessel_ratio_complement(order, x),
        bessel_ratio_derivative(order, x),
        vmf_log_normalizer(x, n_features),
        vmf_entropy(x, n_features),
    )


def assert_accurate(order, x):
    """1e-10 x max(1, |value|) for logarithms and entropy; ratio and complement relative, and the slope."""
    order = (2 * order + 2) / 2 - 1  # the order after rounding of n_features
    mine = computed(order, x)
    references = [exact(v, a) for v, a in zip(order, x, strict=True)]
    for name in Exact._fields:
        floor = 1 if name in ("log_iv", "log_normalizer", "entropy") else 0
        for v, a, value, reference in zip(order, x, getattr(mine, name), references, strict=True):
            truth = getattr(reference, name)
            error = abs(mpf(value) - truth) / max(floor, abs(truth))
            assert error <= 1e-10, f"{name}({v}, {a}) = {value}: error {mp.nstr(error, 3)}"


def test_accuracy_over_the_whole_domain():
    assert_accurate(*whole_domain(96, seed=0))


def test_accuracy_around_the_switch_and_below():
    rng = np.random.default_rng(1)
    angle, radius = rng.uniform(0, np.pi / 2, 40), log_uniform(1.0, 60.0, 40, rng)
    radius[:20] = SWITCH * (1 + rng.choice([-1e-12, 1e-12], 20))
    assert_accurate(radius * np.sin(angle), radius * np.cos(angle))


def test_accuracy_where_the_logarithms_pass_through_zero():
    # Sums of numbers of size 1e6 that cancel: 1e-10 is below their rounding.
    order = np.array([60.5, 1234.25, 54_321.0, 499_999.0, MAX_ORDER])
    for function in (lambda x, v: log_iv(v, x), lambda x, v: vmf_log_normalizer(x, 2 * v + 2)):
        roots = [optimize.brentq(function, 0.3 * v, 20 * v, args=(v,), rtol=1e-14) for v in order]
        assert_accurate(order, np.array(roots))


def test_no_jump_where_the_method_or_the_number_of_terms_changes():
    radius = np.concatenate([[SWITCH], ENOUGH])[:, None]
    angle = np.linspace(0.0, np.pi / 2, 41)[:-1]
    order, x = radius * np.sin(angle), radius * np.cos(angle)
    below, above = computed(order, x * (1 - 1e-13)), computed(order, x * (1 + 1e-13))
    for name in ("log_iv", "log_normalizer", "entropy"):
        low, high = getattr(below, name), getattr(above, name)
        change = 3e-13 * x  # no slope of these is above 1 + order / x
        assert np.all(np.abs(high - low) <= 3e-13 * order + change + 1e-13 * np.maximum(1, np.abs(high))), (
            name
        )
    for name in ("ratio", "complement"):
        np.testing.assert_allclose(getattr(below, name), getattr(above, name), rtol=2e-12)
    np.testing.assert_allclose(below.slope, above.slope, rtol=1e-11)


def test_agreement_with_scipy_where_scipy_works():
    order, x = whole_domain(5_000, seed=2)
    scaled, next_scaled = special.ive(order, x), special.ive(order + 1, x)
    # Elsewhere scipy underflows or loses digits
    right = (scaled > 1e-290) & (next_scaled > 1e-290) & (x < 1e6)
    assert right.mean() > 0.3
    order, x, scaled, next_scaled = order[right], x[right], scaled[right], next_scaled[right]
    expected = np.log(scaled) + x
    assert np.all(np.abs(log_iv(order, x) - expected) <= 1e-12 * np.maximum(1, np.abs(expected)))
    np.testing.assert_allclose(bessel_ratio(order, x), next_scaled / scaled, rtol=1e-11)


def test_recurrence_of_the_ratio_and_riccati_equation():
    order, x = whole_domain(5_000, seed=3)
    ratio = bessel_ratio(order, x)
    np.testing.assert_allclose(ratio, 1 / (2 * (order + 1) / x + bessel_ratio(order + 1, x)), rtol=2e-14)
    linear = (2 * order + 1) * ratio / x
    np.testing.assert_allclose(bessel_ratio_derivative(order, x) + ratio**2 + linear, 1.0, rtol=1e-14)
    np.testing.assert_allclose(bessel_ratio_complement(order, x) + ratio, 1.0, rtol=1e-14)


def test_the_ratio_is_the_ratio_of_the_functions():
    order, x = whole_domain(5_000, seed=4)
    low, high = log_iv(order, x), log_iv(order + 1, x)
    error = np.abs(np.log(bessel_ratio(order, x)) - (high - low))
    assert np.all(error <= 1e-13 + 5e-16 * (np.abs(low) + np.abs(high)))


def test_derivatives_by_central_differences():
    order, x = whole_domain(2_000, seed=5)
    large = x > 1e-2
    order, x = order[large], x[large]
    n_features, h = 2 * order + 2, 1e-3 * x
    slope = (bessel_ratio(order, x + h) - bessel_ratio(order, x - h)) / (2 * h)
    rounding = 4e-16 / h
    np.testing.assert_array_less(
        np.abs(slope - bessel_ratio_derivative(order, x)),
        1e-5 * bessel_ratio_derivative(order, x) + rounding,
    )
    fall = vmf_log_normalizer(x + h, n_features) - vmf_log_normalizer(x - h, n_features)
    rounding = 1e-15 * np.abs(vmf_log_normalizer(x, n_features)) / h
    np.testing.assert_array_less(
        np.abs(-fall / (2 * h) - bessel_ratio(order, x)), 1e-5 * bessel_ratio(order, x) + rounding + 1e-15
    )


@pytest.mark.parametrize("order", [0.0, 0.5, 7.3, 31.9, 49.0, 1e3, MAX_ORDER])
def test_monotone_in_the_argument(order):
    x = np.geomspace(1e-8, MAX_X, 4_001)
    n_features = 2 * order + 2
    assert np.all(np.diff(log_iv(order, x)) > 0)
    assert np.all(np.diff(bessel_ratio(order, x)) >= 0)
    assert np.all(np.diff(bessel_ratio_complement(order, x)) <= 0)
    assert np.all(bessel_ratio_derivative(order, x) > 0)
    x = x[x > 1e-2 * np.sqrt(n_features)]  # below, the change from one to the next is less than rounding
    assert np.all(np.diff(vmf_log_normalizer(x, n_features)) < 0)
    assert np.all(np.diff(vmf_entropy(x, n_features)) < 0)


def test_monotone_in_the_order():
    order = np.geomspace(1.0, MAX_ORDER, 4_001)
    for x in (1e-3, 1.0, 40.0, 1e4, 1e6):
        assert np.all(np.diff(bessel_ratio(order, x)) < 0)
        assert np.all(np.diff(log_iv(order, x)) < 0)


def test_closed_forms_in_three_dimensions():
    x = np.geomspace(1e-3, 700, 200)
    np.testing.assert_allclose(vmf_log_normalizer(x, 3), np.log(x / (4 * np.pi * np.sinh(x))), rtol=1e-12)
    x = np.geomspace(0.3, 300, 200)  # for smaller x the closed form loses digits
    np.testing.assert_allclose(bessel_ratio(0.5, x), 1 / np.tanh(x) - 1 / x, rtol=1e-13)
    np.testing.assert_allclose(bessel_ratio_derivative(0.5, x), 1 / x**2 - 1 / np.sinh(x) ** 2, rtol=1e-11)


@pytest.mark.parametrize("kappa", [0.0, 0.01, 1.0, 20.0, 31.9, 32.1, 1e3])
@pytest.mark.parametrize("n_features", [2, 3])
def test_numerical_integration_on_circle_and_sphere(n_features, kappa):
    mu = np.eye(n_features)[0]

    def log_density(angle):
        return vmf_logpdf(np.cos(angle) * mu + np.sin(angle) * np.eye(n_features)[1], mu, kappa)

    def mean(function):
        band = 2.0 if n_features == 2 else 2 * np.pi  # both sides of the circle; the parallel on the sphere
        edges = np.array([0.0, 0.03, 0.1, 0.3, 1.0, np.pi])

        def integrand(angle):
            area = band * np.sin(angle) ** (n_features - 2)
            return area * np.exp(log_density(angle)) * function(angle)

        return sum(integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-13)[0] for a, b in pairwise(edges))

    order = n_features / 2 - 1
    ratio = float(bessel_ratio(order, kappa))
    assert mean(lambda _: 1.0) == pytest.approx(1.0, abs=1e-12)
    assert mean(np.cos) == pytest.approx(ratio, abs=1e-12)
    variance = mean(lambda angle: (np.cos(angle) - ratio) ** 2)
    assert variance == pytest.approx(float(bessel_ratio_derivative(order, kappa)), rel=1e-9)
    entropy = mean(lambda angle: -log_density(angle))
    assert entropy == pytest.approx(float(vmf_entropy(kappa, n_features)), abs=1e-11)


def test_kappa_mle_solves_its_equation_to_machine_precision():
    order, kappa = whole_domain(5_000, seed=6)
    kappa = np.where(np.arange(kappa.size) % 2, kappa, kappa * np.maximum(1.0, order))
    r = bessel_ratio(order, kappa)
    estimate = kappa_mle(r[r < 1], 2 * order[r < 1] + 2)
    order, r = (2 * order[r < 1] + 2) / 2 - 1, r[r < 1]
    small = r < 0.5
    np.testing.assert_allclose(bessel_ratio(order, estimate)[small], r[small], rtol=2e-15)
    # Below the switch 1 - A is a difference of numbers near 1, so its error is absolute.
    size = np.where(np.hypot(order, estimate) < SWITCH, 1.0, 1 - r)
    assert np.all((np.abs(bessel_ratio_complement(order, estimate) - (1 - r)) <= 2e-15 * size)[~small])


def test_kappa_mle_against_mpmath():
    order, kappa = whole_domain(24, seed=8)
    order = np.ceil(order * 2) / 2
    r = np.clip(bessel_ratio(order, kappa), None, 1 - 2.0**-52)
    for v, length, estimate in zip(order, r, kappa_mle(r, 2 * order + 2), strict=True):
        reference = exact(v, estimate)
        # What one more exact Newton step would change.
        step = (mpf(length) - reference.ratio) / reference.slope
        assert abs(step) <= 2e-13 * estimate, (v, length)


def test_kappa_mle_inverts_the_ratio():
    order, kappa = whole_domain(5_000, seed=7)
    ratio, complement = bessel_ratio(order, kappa), bessel_ratio_complement(order, kappa)
    usable = complement > 1e-6  # otherwise r determines kappa to a few digits only
    estimate = kappa_mle(ratio[usable], 2 * order[usable] + 2)
    condition = ratio / (kappa * bessel_ratio_derivative(order, kappa))
    assert np.all(np.abs(estimate / kappa[usable] - 1) <= 1e-14 * (1 + condition[usable]))


@pytest.mark.parametrize("n_features", [2, 3, 100, 1_000_000])
def test_kappa_mle_at_the_ends(n_features):
    tiny = np.array([1e-300, 1e-150, 1e-16])
    np.testing.assert_allclose(kappa_mle(tiny, n_features), n_features * tiny, rtol=1e-14)
    close = np.array([2.0**-53, 2.0**-50, 2.0**-46])  # 1 - A = (D - 1) / (2 kappa) (1 + O(1 / kappa D))
    np.testing.assert_allclose(kappa_mle(1 - close, n_features), (n_features - 1) / (2 * close), rtol=1e-7)
    assert kappa_mle(0.0, n_features) == 0.0
    assert kappa_mle([1.0, 1 + 1e-13], n_features).tolist() == [np.inf, np.inf]


def test_kappa_mle_maximises_the_likelihood():
    n_features, r = 40, 0.3
    best = optimize.minimize_scalar(
        lambda k: -(k * r + vmf_log_normalizer(k, n_features)), bounds=(0, 100), method="bounded"
    )
    assert kappa_mle(r, n_features) == pytest.approx(best.x, rel=1e-5)


def unit_rows(n_rows, n_features, seed):
    rows = np.random.default_rng(seed).standard_normal((n_rows, n_features))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_logpdf_agrees_with_scipy():
    X, means, kappa = unit_rows(7, 6, 0), unit_rows(3, 6, 1), np.array([0.1, 4.0, 90.0])
    expected = [stats.vonmises_fisher(mu, k).logpdf(X) for mu, k in zip(means, kappa, strict=True)]
    np.testing.assert_allclose(vmf_logpdf(X, means, kappa), np.transpose(expected), rtol=1e-12)


def test_logpdf_forms_of_input():
    X, means = unit_rows(5, 30, 2), unit_rows(4, 30, 3)
    kappa = np.array([0.0, 1.0, 10.0, 1e3])
    full = vmf_logpdf(X, means, kappa)
    assert full.shape == (5, 4)
    for convert in (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array):
        np.testing.assert_allclose(vmf_logpdf(convert(X), means, kappa), full, rtol=1e-13)
    np.testing.assert_allclose(vmf_logpdf(X.astype(np.float32), means, kappa), full, rtol=1e-4)
    np.testing.assert_array_equal(vmf_logpdf(X, means, 3.0), vmf_logpdf(X, means, np.full(4, 3.0)))
    np.testing.assert_allclose(vmf_logpdf(X, means[2], 10.0), full[:, 2], rtol=1e-13)
    np.testing.assert_allclose(vmf_logpdf(X[1], means, kappa), full[1], rtol=1e-13)
    assert vmf_logpdf(X[1], means[2], 10.0) == pytest.approx(full[1, 2], rel=1e-13)
    np.testing.assert_array_equal(
        vmf_logpdf([[0, 1]], [[0, 1]], 1.0), vmf_logpdf([[0.0, 1]], [[0, 1.0]], 1.0)
    )
    assert vmf_logpdf(X[:0], means, kappa).shape == (0, 4)


def test_logpdf_keeps_a_million_features_sparse():
    n_features = 1_000_000
    X = sp.csr_array((np.ones(3), [5, 999_999, 5], [0, 1, 2, 3]), shape=(3, n_features))
    mu = np.zeros(n_features)
    mu[5] = 1.0
    gap = vmf_logpdf(X, mu, 2e6)
    assert gap[0] == gap[2]
    assert gap[0] - gap[1] == pytest.approx(2e6, rel=1e-12)


@pytest.mark.parametrize(("n_features", "kappa"), [(2, 3.0), (50, 200.0), (2_000, 1e3), (20_000, 1e6)])
def test_draws_have_the_mean_and_the_entropy_of_the_formulas(n_features, kappa):
    mu = unit_rows(1, n_features, 5)[0]
    X = sample_vmf(mu, kappa, 200, random_state=0)
    order = n_features / 2 - 1
    cosines = X @ mu
    error = np.sqrt(bessel_ratio_derivative(order, kappa) / cosines.size)
    assert abs(cosines.mean() - bessel_ratio(order, kappa)) < 4.5 * error
    assert abs(vmf_logpdf(X, mu, kappa).mean() + vmf_entropy(kappa, n_features)) < 4.5 * kappa * error


def test_broadcasting_and_types():
    order, x = np.array([[0.0], [3.0], [1e4]]), np.array([0.5, 40.0, 1e5, 1e8])
    for function in BESSEL:
        table = function(order, x)
        assert table.shape == (3, 4)
        assert table[1, 2] == function(3, 1e5)
        assert np.isscalar(function(3, 1e5))
        assert function(order, x[:0]).shape == (3, 0)
        out = np.empty((3, 4))
        assert function(order, x, out=out) is out
        np.testing.assert_array_equal(function(order, x[::2]), table[:, ::2])
        np.testing.assert_array_equal(function(0, np.float32([0.5])), function(0.0, [0.5]))
    assert vmf_log_normalizer(x, [[2], [3]]).shape == (2, 4)
    assert kappa_mle([[0.1], [0.2]], [2, 3, 4]).shape == (2, 3)


def test_limits_at_zero():
    assert log_iv([0.0, 1e-9, 0.5, 1e5], 0.0).tolist() == [0.0, -np.inf, -np.inf, -np.inf]
    order = np.array([0.0, 0.5, 100.0, 5e5])
    assert not bessel_ratio(order, 0.0).any()
    assert np.all(bessel_ratio_complement(order, 0.0) == 1.0)
    np.testing.assert_allclose(bessel_ratio_derivative(order, 0.0), 1 / (2 * order + 2), rtol=1e-14)
    n_features = 2 * order + 2
    area = np.log(2) + n_features / 2 * np.log(np.pi) - special.gammaln(n_features / 2)
    np.testing.assert_allclose(vmf_log_normalizer(0.0, n_features), -area, rtol=1e-14)
    np.testing.assert_allclose(vmf_entropy(0.0, n_features), area, rtol=1e-14)
    np.testing.assert_allclose(bessel_ratio(order, 1e-300), 1e-300 / n_features, rtol=1e-14)


@pytest.mark.parametrize("function", BESSEL)
@pytest.mark.parametrize(
    ("order", "x", "message"),
    [
        (-0.5, 1.0, "order must lie between 0 and 1e\\+100, got -0.5;"),
        (0.5, -1.0, "x must lie between 0 and 1e\\+100, got -1;"),
        ([0.5, np.nan], 1.0, "order .* got nan at position 1; 1 of 2"),
        (0.5, [1.0, 2.0, np.nan], "x .* got nan at position 2; 1 of 3"),
        (0.5, np.inf, "x .* got inf"),
        (np.inf, 0.5, "order .* got inf"),
    ],
)
def test_bessel_arguments_out_of_range(function, order, x, message):
    with pytest.raises(ValueError, match=message):
        function(order, x)


@pytest.mark.parametrize("function", [vmf_log_normalizer, vmf_entropy])
@pytest.mark.parametrize(
    ("kappa", "n_features", "message"),
    [
        (-1.0, 3, "kappa must lie"),
        (np.nan, 3, "kappa must lie"),
        (np.inf, 3, "kappa must lie"),
        (1.0, 1, "n_features must lie between 2"),
        (1.0, np.nan, "n_features must lie"),
    ],
)
def test_normalizer_and_entropy_arguments_out_of_range(function, kappa, n_features, message):
    with pytest.raises(ValueError, match=message):
        function(kappa, n_features)


@pytest.mark.parametrize(
    ("r", "n_features", "message"),
    [
        (-1e-9, 3, "r must lie"),
        (1.001, 3, "r must lie"),
        (np.nan, 3, "r must lie"),
        (0.5, 1, "n_features must lie"),
    ],
)
def test_kappa_mle_arguments_out_of_range(r, n_features, message):
    with pytest.raises(ValueError, match=message):
        kappa_mle(r, n_features)


@pytest.mark.parametrize(
    ("X", "mu", "kappa", "message"),
    [
        ([[0.6, 0.8], [3.0, 4.0]], [1.0, 0.0], 1.0, "rows of X .* row 1 has length 5"),
        (
            sp.csr_array([[0.6, 0.8], [0.0, 0.0]]),
            [1.0, 0.0],
            1.0,
            "row 1 has length 0 .* drop zero rows",
        ),
        ([[np.nan, 0.8]], [1.0, 0.0], 1.0, "rows of X .* row 0 has length nan"),
        ([[0.6, 0.8]], [[1.0, 0.0], [1.0, 1.0]], 1.0, "rows of mu .* row 1 has length 1.41421"),
        ([[0.6, 0.8]], [1.0, 0.0, 0.0], 1.0, "X has 2 features and mu has 3"),
        ([[0.6, 0.8]], [1.0, 0.0], [1.0, 2.0], "one value per mean \\(1\\)"),
        ([[0.6, 0.8]], [1.0, 0.0], -1.0, "kappa must lie"),
        ([[1.0]], [1.0], 1.0, "n_features >= 2"),
    ],
)
def test_logpdf_invalid_input(X, mu, kappa, message):
    with pytest.raises(ValueError, match=message):
        vmf_logpdf(X, mu, kappa)


def test_threads_compile_a_function_without_a_warning():
    def twice(x):
        return 2.0 * x

    function = _ufunc(twice)
    start = Barrier(4)

    def call(_):
        start.wait()
        return function(np.ones(3)).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(call, range(4))) == [6.0] * 4
