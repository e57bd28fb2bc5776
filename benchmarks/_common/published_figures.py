"""Published results that the benchmarks print beside theirs.

S. Gopal, Large-scale Structured Learning (PhD thesis, Carnegie Mellon University, 2014): micro- and macro-F1 of
Tables 3.2 (BSVM, RR-SVM, RR-LR) and 3.3 (TD, HSVM, OT). Table 2.3 of the same thesis has other values for three of
them: HSVM on CLEF 79.92 micro, TD on NEWS20 81.86 macro, TD on IPC 55.34 micro.
"""

from __future__ import annotations

from arbora.metrics.table import Table

# Name in the thesis and the corresponding method here.
METHODS = {
    "BSVM": "OneVsRestSVC",
    "RR-SVM": "RecursiveSVC, as published",
    "RR-LR": "RecursiveLogisticRegression",
    "TD": "TopDownSVC",
    "HSVM": "HierarchicalSVM",
    "OT": "OrthogonalTransfer",
}
# Micro- and macro-F1 in the order of METHODS; None if the thesis has "NS" (does not scale) or "NA".
AVAILABLE = {
    "imclef07a": [(77.53, 48.59), (80.02, 53.92), (80.12, 55.83), (70.11, 32.32), (79.72, 57.23), (73.84, 37.12)],
    "news20": [(83.10, 82.32), (82.78, 82.00), (82.86, 82.06), (81.20, 80.86), (80.79, 80.04), (81.98, 81.20)],
    "lshtc_small": [
        (45.21, 28.62), (45.31, 28.94), (45.11, 28.48), (38.48, 20.01), (39.66, 21.95), (37.12, 19.45),
    ],
    "rcv1_dev2316": [(80.82, 54.72), (81.66, 56.56), (81.23, 55.81), (71.34, 34.15), None, None],
}  # fmt: skip
UNAVAILABLE = {
    "IPC": [(53.12, 45.71), (54.26, 47.89), (55.37, 49.60), (50.34, 42.62), None, None],
    "DMOZ-2010": [(45.36, 32.64), (46.02, 33.12), (45.84, 32.42), (38.64, 22.30), None, None],
    "DMOZ-2012": [(56.44, 31.59), (57.17, 33.05), (53.18, 20.04), (55.14, 30.01), None, None],
    "DMOZ-2011": [(42.88, 24.34), (43.73, 25.69), (42.27, 23.90), (35.91, 21.07), None, None],
    "SWIKI-2011": [(40.87, 26.57), (41.79, 28.72), (40.99, 24.26), (36.65, 17.39), None, None],
    "LWIKI": [(37.66, 19.89), (38.08, 22.31), (37.67, 20.22), None, None, None],
}


def _pair(figures: tuple[float, float] | None) -> str:
    return "" if figures is None else f"{figures[0]:.2f} / {figures[1]:.2f}"


def text(data: str, method: str) -> str:
    """Return the published micro / macro-F1 of a method on a data set, or an empty string."""
    places = list(METHODS.values())
    if data not in AVAILABLE or method not in places:
        return ""
    return _pair(AVAILABLE[data][places.index(method)])


def others() -> Table:
    """Tabulate the data sets of the thesis that are not available."""
    rows = [(name, *map(_pair, figures)) for name, figures in UNAVAILABLE.items()]
    return Table(("micro / macro", *METHODS), rows)
