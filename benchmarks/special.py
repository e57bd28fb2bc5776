"""Accuracy of `arbora.special` against mpmath over the whole domain, and speed compared with `scipy.special.ive`.

Run with ``python -m benchmarks.special``; prints Markdown tables. The points are random and uniform in the logarithms
of order and argument. Reference values come from `tests/support/bessel_reference.py`. In the timing the contestants
alternate, so that other work on the machine slows all of them, and the best turn counts.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ive

from arbora.special import (
    bessel_ratio,
    bessel_ratio_complement,
    bessel_ratio_derivative,
    kappa_mle,
    log_iv,
    vmf_entropy,
    vmf_log_normalizer,
)
from benchmarks._common.report import published
from benchmarks._common.timing import best_of

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.bessel_reference import exact

FUNCTIONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "log_iv": ("log_iv", log_iv),
    "log_normalizer": ("vmf_log_normalizer", lambda v, x: vmf_log_normalizer(x, 2 * v + 2)),
    "entropy": ("vmf_entropy", lambda v, x: vmf_entropy(x, 2 * v + 2)),
    "ratio": ("bessel_ratio", bessel_ratio),
    "complement": ("bessel_ratio_complement", bessel_ratio_complement),
    "slope": ("bessel_ratio_derivative", bessel_ratio_derivative),
}
RELATIVE = ("ratio", "complement", "slope")


def log_uniform(low: float, high: float, size: int, rng: np.random.Generator) -> np.ndarray:
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


def places(n_points: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Orders and arguments: everywhere, at the switch between methods, and at zeros of the logarithms."""
    rng = np.random.default_rng(0)
    v = np.ceil(2 * log_uniform(1e-3, 5e5, n_points, rng)) / 2  # dimensions are integers
    v[::2] = (2 * log_uniform(1e-3, 5e5, n_points, rng)[::2] + 2) / 2 - 1
    v[: n_points // 20] = 0.0
    everywhere = v, log_uniform(1e-8, 1e8, n_points, rng)
    angle = rng.uniform(0, np.pi / 2, n_points // 3)
    radius = 32.0 * (1 + rng.choice([-1e-12, 1e-12], angle.size))
    switch = (2 * radius * np.sin(angle) + 2) / 2 - 1, radius * np.cos(angle)
    high = np.ceil(2 * log_uniform(100, 5e5, n_points // 20, rng)) / 2
    roots = [
        brentq(lambda x, v=v, f=FUNCTIONS[name][1]: float(f(v, x)), 0.3 * v, 20 * v, rtol=1e-14)
        for name in ("log_iv", "log_normalizer")
        for v in high
    ]
    return {
        "everywhere": everywhere,
        "at the switch": switch,
        "at zeros": (np.tile(high, 2), np.array(roots)),
    }


def errors(order: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
    references = [exact(v, a) for v, a in zip(order, x, strict=True)]
    found = {}
    for field, (_, function) in FUNCTIONS.items():
        floor = 0 if field in RELATIVE else 1
        truths = [getattr(reference, field) for reference in references]
        pairs = zip(function(order, x), truths, strict=True)
        found[field] = np.array(
            [float(abs(value - truth) / max(floor, abs(truth))) for value, truth in pairs]
        )
    return found


def accuracy(n_points: int) -> None:
    grids = places(n_points)
    table = {name: errors(*grid) for name, grid in grids.items()}
    heads = [f"{name} ({grid[0].size:,} points)" for name, grid in grids.items()]
    print("| function | error | " + " | ".join(heads) + " |")
    print("|---|---|" + "---:|" * len(heads))
    for field, (name, _) in FUNCTIONS.items():
        kind = "relative" if field in RELATIVE else "/ max(1, abs(value))"
        print(f"| `{name}` | {kind} | " + " | ".join(f"{e[field].max():.1e}" for e in table.values()) + " |")


def regions(size: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    zeros, halves = np.zeros(size), np.full(size, 0.5)
    return {
        "order 0, x < 1": (zeros, rng.uniform(0, 1, size)),
        "order 0, x < 32": (zeros, rng.uniform(0, 32, size)),
        "order 0, x to 1e8": (zeros, log_uniform(32, 1e8, size, rng)),
        "order 1/2, x to 1e4": (halves, log_uniform(1e-3, 1e4, size, rng)),
        "order < 32, x < 32": (rng.uniform(0, 32, size), rng.uniform(0, 32, size)),
        "order < 100, x to 1e3": (rng.uniform(0, 100, size), log_uniform(32, 1e3, size, rng)),
        "order to 5e5, x to 1e8": (log_uniform(100, 5e5, size, rng), log_uniform(100, 1e8, size, rng)),
    }


def speed(size: int, turns: int) -> None:
    print(
        "| points | `ive` correct | `ive`, ns | `log_iv`, ns | times faster | `bessel_ratio`, ns | `kappa_mle`, ns |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (order, x) in regions(size).items():
        r = np.minimum(bessel_ratio(order, x), 1 - 2.0**-52)
        seconds = best_of(
            turns,
            {
                "ive": lambda v=order, x=x: ive(v, x),
                "log_iv": lambda v=order, x=x: log_iv(v, x),
                "ratio": lambda v=order, x=x: bessel_ratio(v, x),
                "kappa": lambda v=order, r=r: kappa_mle(r, 2 * v + 2),
            },
        )
        scaled = ive(order, x)
        expected = log_iv(order, x) - x
        with np.errstate(divide="ignore"):
            right = np.abs(np.log(scaled) - expected) <= 1e-10 * np.maximum(1, np.abs(expected + x))
        ns = {key: 1e9 * value / size for key, value in seconds.items()}
        print(
            f"| {name} | {right.mean():.0%} | {ns['ive']:.0f} | {ns['log_iv']:.0f} | {ns['ive'] / ns['log_iv']:.1f} "
            f"| {ns['ratio']:.0f} | {ns['kappa']:.0f} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Accuracy and speed of arbora.special.")
    parser.add_argument("--points", type=int, default=1_500, help="points of the accuracy grid")
    parser.add_argument("--turns", type=int, default=50, help="turns of each contestant; the best one counts")
    options = parser.parse_args(arguments)
    with published("Special functions"):
        print("Largest error against mpmath, orders 0 to 5e5, arguments 1e-8 to 1e8. Target: 1e-10.\n")
        accuracy(options.points)
        print(f"\nOne thread, nanoseconds per value, arrays of 1,000; best of {options.turns}.\n")
        speed(1_000, options.turns)


if __name__ == "__main__":
    main()
