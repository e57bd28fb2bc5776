"""The verdict of `benchmarks.max_margin`, computed from its finished cells."""

from __future__ import annotations

from typing import Any

from benchmarks._common.cells import DONE, Cells
from benchmarks._common.max_margin_sets import S_SETS, SOURCES, TABLE

OURS, FREE, PEER = "DPGMM", "DPGMM, S sampled", "scikit-learn DP"
_SAME = 0.005  # differences of NMI and ARI below this are called equal


def is_earlier(cell: dict[str, Any]) -> bool:
    """Return whether a cell is of the run before the present default scale."""
    return cell.get("code") == "earlier"


def uses_defaults(key: str) -> bool:
    """Return whether a cell depends on the default scale."""
    kind, *rest = key.split(" | ")
    return kind in ("table", "density", "rings", "grid") and rest[-1] not in ("k-means", "spectral", PEER)


def found(cells: Cells, key: str) -> dict[str, Any] | None:
    """Return a finished cell of the present defaults."""
    kept = cells.kept(key)
    if kept is None or kept["status"] != DONE or (is_earlier(kept) and uses_defaults(key)):
        return None
    return kept


def compare(cells: Cells, kind: str, names: list[str], one: str, other: str, measure: str) -> str:
    """Say on how many sets one method is above, equal to and below another, and where it is below."""
    above, equal, below, missing = 0, 0, [], 0
    for name in names:
        pair = [found(cells, f"{kind} | {name} | {method}") for method in (one, other)]
        if None in pair or any(measure not in cell for cell in pair if cell is not None):
            missing += 1
            continue
        left, right = (cell[measure] for cell in pair if cell is not None)
        if abs(left - right) < _SAME:
            equal += 1
        elif left > right:
            above += 1
        else:
            below.append(f"{SOURCES[name].title} ({left:.2f} against {right:.2f})")
    if missing == len(names):
        return "not measured with the present default"
    text = f"above on {above}, equal on {equal}, below on {len(below)}"
    text += f": {', '.join(below)}" if below else ""
    return text + (f"; {missing} not measured" if missing else "")


def clusters_of(cells: Cells, method: str) -> str:
    """Numbers of clusters of the S sets."""
    kept = [found(cells, f"density | {name} | {method}") for name in S_SETS]
    return ", ".join("not measured" if cell is None else f"{cell['n_large']:.1f}" for cell in kept)


def seconds_ratio(cells: Cells) -> str:
    """Range of the ratios of processor seconds, ours to scikit-learn's."""
    ratios = []
    for name in SOURCES:
        ours, peer = (found(cells, f"density | {name} | {method}") for method in (OURS, PEER))
        if ours is not None and peer is not None and peer["seconds"] > 0:
            ratios.append(ours["seconds"] / peer["seconds"])
    return f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else "unmeasured"


def verdict(cells: Cells) -> str:
    """Return the verdict as bullet points."""
    every, table = list(SOURCES), list(TABLE)
    lines = [
        f"`DirichletProcessGaussianMixture()` against scikit-learn's Dirichlet process on {len(every)} sets. "
        f"Held-out density: {compare(cells, 'density', every, OURS, PEER, 'score')}. ARI in the same fits: "
        f"{compare(cells, 'density', every, OURS, PEER, 'ari')}. ARI in Table 1: "
        f"{compare(cells, 'table', table, OURS, PEER, 'ari')}. It takes {seconds_ratio(cells)} times the processor "
        "seconds.",
        f"Clusters with 1% of the rows on S1 to S4 (15 are true): {clusters_of(cells, OURS)}; scikit-learn "
        f"{clusters_of(cells, PEER)}; all of S, r and nu sampled {clusters_of(cells, FREE)}.",
        "Sampling S, r and nu against the default. "
        f"Density: {compare(cells, 'density', every, FREE, OURS, 'score')}. "
        f"ARI: {compare(cells, 'density', every, FREE, OURS, 'ari')}.",
        "Margins, NMI in Table 1. DPMMGM (given the number of classes) against DPGMM: "
        f"{compare(cells, 'table', table, 'DPMMGM', OURS, 'nmi')}. DPMMGM* (not given it): "
        f"{compare(cells, 'table', table, 'DPMMGM*', OURS, 'nmi')}. With the number of clusters "
        f"fixed, margins against none: {compare(cells, 'table', table, 'fixed K, margin', 'fixed K', 'nmi')}.",
    ]
    return "\n".join(f"- {line}" for line in lines)
