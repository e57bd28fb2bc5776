"""Hierarchical Bayesian logistic regression (HBLR): F1, likelihood and calibration of it and of other models.

    python -m benchmarks.hblr                      # everything; resumes an interrupted run
    python -m benchmarks.hblr --only resplits      # one table
    python -m benchmarks.hblr --methods "M3 map" "M3 flat"
    python -m benchmarks.hblr --table              # write finished cells to RESULTS.md
    python -m benchmarks.hblr --quick              # small parts of the data

A cell is a data set (or another split of CLEF) and a method, measured in its own process
(`benchmarks._common.cells`). The Bayesian models have no parameter to choose; the others choose theirs by
cross-validation on the training part.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from arbora.classify.thresholds import GlobalCut
from arbora.core.folds import stratified_folds
from arbora.metrics import bootstrap_interval, expected_calibration_error, macro_f1, micro_f1
from arbora.metrics.table import Marked, Table
from benchmarks._common import published_figures
from benchmarks._common.cells import DONE, Cells, one_thread, parse, summary
from benchmarks._common.contestants import N_FOLDS, QUICK_CS, SEED, encoded, indicator
from benchmarks._common.hblr_models import CLEF, FLAT, METHODS, MOST_STEPS, PEER, SAMPLED, ready, resplit
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, take, task
from benchmarks.recursive import describe

RESPLITS = "resplits"
N_RESPLITS, QUICK_RESPLITS = 10, 2
SECTION = "HBLR: accuracy, likelihood and calibration"

_ON_CLEF = [method for method in METHODS if not method.endswith(", logistic")]
_NOT_AGAIN = {
    "M1 variational",
    "M2 variational",
    SAMPLED,
    "RecursiveSVC, cv",
    "RecursiveLogisticRegression, cv",
}
TABLES = {
    CLEF: _ON_CLEF,
    RESPLITS: [method for method in _ON_CLEF if method not in _NOT_AGAIN],
    "news20": ["M3 map", "M3 map, logistic", "M1 map", FLAT, PEER],
    "lshtc_small": ["M3 map, logistic", "M1 map, logistic", "M3 flat, logistic"],
    "rcv1_dev2316": ["M3 map, logistic", "M1 map, logistic", "M3 flat, logistic"],
}
SHOWN = ("OneVsRestSVC", "RecursiveSVC", "RecursiveLogisticRegression")  # of benchmarks.recursive
# Micro- and macro-F1 of the thesis: Tables 2.4 (CLEF), 2.2 and 3.2.
PUBLISHED = {
    CLEF: {
        "M1 variational": (81.21, 56.67), "M2 variational": (79.92, 51.23), "M3 variational": (81.61, 59.67),
        "M1 map": (80.88, 55.53), "M2 map": (80.25, 54.76), "M3 map": (81.41, 59.65),
        "M1 flat": (79.82, 52.13), "M2 flat": (77.83, 48.78), FLAT: (80.52, 55.23),
        SAMPLED: (81.10, 55.59), PEER: (80.52, 54.76),
    },
    "news20": {"M1 map": (82.24, 81.54), "M3 map": (82.56, 81.69), PEER: (82.56, 81.82)},
    "lshtc_small": {"M1 map, logistic": (45.48, 28.81), "M3 map, logistic": (46.03, 30.81)},
    "rcv1_dev2316": {"M3 map, logistic": (81.98, 56.08)},
}  # fmt: skip

EXPLANATION = f"""\
`python -m benchmarks.hblr`. HBLR has its default parameters. "Flat" is the same model without the tree, by MAP. HBLR
has the softmax likelihood unless the name contains "logistic". The other models choose C (and the coupling) by
{N_FOLDS}-fold cross-validation on the training part, by macro-F1, from the costs of `benchmarks.recursive`
(`LogisticRegression` with L-BFGS, at most {MOST_STEPS} steps). One thread; seconds are those of `fit`, including the
search. Micro- and macro-F1 in per cent, over the labels of the data set. NLL is the mean negative log-probability of
the true class; ECE is the calibration error of the most probable class, 15 bins of equal width, in per cent.
"Published": micro / macro of the thesis (Gopal 2014). ‡: a fit stopped at its `max_iter`, or R-hat of {SAMPLED} is
above 1.05. Times of MAP on sparse rows are older than those in the section "HBLR: time on many classes".
"""
ON_CLEF = """\
Official split. In brackets: 95% interval of the "basic" bootstrap over the test documents, 1,000 resamples.
"Published" is Table 2.4; multinomial logistic regression is MLR of Table 2.2, RecursiveLogisticRegression RR-LR of
Table 3.2.
"""
ON_RESPLITS = f"""\
The same images in {N_RESPLITS} random splits of the same sizes, stratified by class, features standardised on the
training part. Mean ± standard deviation over the splits; then the mean difference from {FLAT} on the same split ± its
standard error. As the training parts overlap, its square is the variance of the differences times 1 / splits + test
size / training size (Nadeau and Bengio 2003), about twice that of independent splits.
"""
ON_OTHERS = """\
Official split. The lower rows are from `benchmarks.recursive`, with the same features and test documents. C and
coupling are chosen by cross-validation; probabilities are not available; seconds include search and prediction.
(scikit-learn's LogisticRegression is not run on LSHTC-small, where L-BFGS would need 5 GB.)
"""
ON_SETS = f"""\
A document may have several labels. F1 at a probability of 0.5, and with one threshold for all classes learned as in
`benchmarks.recursive` (whose rows have only that): the mean, in log-odds, of the thresholds with the best micro-F1 on
{N_FOLDS} held-out folds. NLL is the sum over the classes, ECE that of all decisions. The thesis uses an
instance-based threshold.
"""


def class_probabilities(model: Any, X: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities with a column for each of the given classes; 0 for classes that the model does not know."""
    values = model.predict_proba(X)
    names = np.broadcast_to(model.classes_, values.shape)
    order = np.argsort(classes)
    columns = order[np.searchsorted(classes, names, sorter=order)]
    proba = np.zeros((len(values), len(classes)))
    np.put_along_axis(proba, columns, values.astype(np.float64), axis=1)
    return proba


def inside(proba: NDArray[np.float64]) -> NDArray[np.float64]:
    """Clip probabilities away from 0 and 1."""
    least = np.finfo(np.float64).eps
    return np.clip(proba, least, 1 - least)


def fitted(model: Any, X: Any, y: Any) -> dict[str, Any]:
    """Fit a model; return seconds, chosen parameters, and whether it stopped before convergence."""
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    seconds = time.perf_counter() - started
    best = model.best_params_ if isinstance(model, GridSearchCV) else {}
    chosen = {name: getattr(model, f"{name}_", best.get(name)) for name in ("C", "coupling")}
    stopped = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return {"seconds": seconds, "stopped": stopped, **chosen}


def one_label(model: Any, work: Task) -> dict[str, Any]:
    """Evaluate a single-label model, with bootstrap intervals."""
    targets = encoded(work)
    proba = class_probabilities(model, work.X_test, targets.classes)
    answer = model.predict(work.X_test)
    found: dict[str, Any] = {}
    for name, metric in (("micro", micro_f1), ("macro", macro_f1)):
        value, low, high, _ = bootstrap_interval(
            metric, work.y_test, answer, method="basic", random_state=SEED
        )
        found |= {name: value, f"{name}_low": low, f"{name}_high": high}
    # Documents of classes without training documents, which occur with --quick only, are left out.
    Y = indicator(work.y_test, work.structure, targets).tocoo()
    likelihood = inside(proba[Y.coords])
    best = proba.argmax(axis=1)
    hit = targets.classes[best] == work.y_test
    error = expected_calibration_error(hit.astype(np.int64), proba.max(axis=1))
    return found | {"nll": float(-np.log(likelihood).mean()), "ece": float(error)}


def label_sets(model: Any, work: Task) -> dict[str, Any]:
    """Evaluate a multilabel model with two thresholds."""
    targets = encoded(work)
    Y = indicator(work.y_test, work.structure, targets).toarray()
    proba = class_probabilities(model, work.X_test, targets.classes)
    found: dict[str, Any] = {}
    for name, cut in (("half", 0.5), ("cut", learned_cut(model, work))):
        sets = [targets.classes[row].tolist() for row in proba > cut]
        found |= {f"micro_{name}": float(micro_f1(work.y_test, sets)), "cut": cut}
        found |= {f"macro_{name}": float(macro_f1(work.y_test, sets))}
    likelihood = inside(proba)
    nll = -(xlogy(Y, likelihood) + xlogy(1 - Y, 1 - likelihood)).sum(axis=1).mean()
    error = expected_calibration_error(Y.ravel(), proba.ravel())
    return found | {"nll": float(nll), "ece": float(error)}


def learned_cut(model: Any, work: Task) -> float:
    """Learn the threshold: mean log-odds of the best micro-F1 on held-out folds. The model is refitted."""
    targets = encoded(work)
    fold = stratified_folds(targets.indicator, N_FOLDS, SEED)
    cuts = []
    for f in range(N_FOLDS):
        seen, unseen = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        model.fit(work.X[seen], take(work.y, seen))
        proba = class_probabilities(model, work.X[unseen], targets.classes)
        cuts.append(GlobalCut().fit(logit(inside(proba)), targets.indicator[unseen]).threshold_)
    return float(expit(np.mean(cuts)))


def measure(key: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fit and evaluate the model of a cell."""
    data, _, method = key.partition(" ")
    if data == RESPLITS:
        number, _, method = method.partition(" ")
        work = resplit(task(CLEF, options.cache, options.quick), int(number))
        data = CLEF
    else:
        work = ready(data, options)
    model = METHODS[method](work, QUICK_CS if options.quick else SOURCES[data].Cs, options.quick)
    found = fitted(model, work.X, work.y)
    return found | (label_sets if work.multilabel else one_label)(model, work)


def keys(data: str, methods: Iterable[str], quick: bool) -> list[str]:
    """Return the cells of a table; with --quick only some methods of the resplits."""
    if data != RESPLITS:
        return [f"{data} {method}" for method in methods]
    numbers = range(QUICK_RESPLITS if quick else N_RESPLITS)
    methods = [method for method in methods if not quick or method in ("M3 map", FLAT, PEER)]
    return [f"{RESPLITS} {number} {method}" for method in methods for number in numbers]


def figures(data: str, method: str) -> str:
    """Return the published micro / macro-F1 of a method on a data set, or an empty string."""
    pair = PUBLISHED[data].get(method)
    return (
        published_figures.text(data, method.removesuffix(", cv"))
        if pair is None
        else "{:.2f} / {:.2f}".format(*pair)
    )


def seconds(cell: dict[str, Any]) -> Marked:
    return Marked(cell["seconds"], "‡" if cell["stopped"] else "")


def chosen_words(cell: dict[str, Any]) -> str:
    return ", ".join(f"{name} {cell[name]:g}" for name in ("C", "coupling") if cell[name] is not None)


def interval(cell: dict[str, Any], name: str) -> str:
    value, low, high = (100 * cell[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.2f} [{low:.1f}, {high:.1f}]"


def clef_table(cells: Cells) -> Table:
    """All methods on CLEF, official split."""
    rows = []
    for method in TABLES[CLEF]:
        cell = cells.kept(f"{CLEF} {method}")
        if cell is None or cell["status"] != DONE:
            rows.append((method, summary(cell), *[None] * 5, figures(CLEF, method)))
            continue
        f1 = interval(cell, "micro"), interval(cell, "macro")
        measures = cell["nll"], cell["ece"], seconds(cell), chosen_words(cell)
        rows.append((method, *f1, *measures, figures(CLEF, method)))
    columns = ("method", "micro-F1", "macro-F1", "NLL", "ECE", "seconds", "chosen", "published")
    return Table(columns, rows, ("", "", "", ".3f", "percent", ".1f", "", ""))


def mean_text(values: NDArray[Any], form: str) -> str:
    return f"{values.mean():{form}} ± {values.std(ddof=1):{form}}" if len(values) > 1 else "-"


def gain_text(difference: NDArray[Any], form: str, ratio: float) -> str:
    """Mean difference over splits, and its standard error as Nadeau and Bengio correct it."""
    if len(difference) < 2:
        return "-"
    error = difference.std(ddof=1) * np.sqrt(1 / len(difference) + ratio)
    return f"{difference.mean():+{form}} ± {error:{form}}"


def resplit_table(cells: Cells, options: argparse.Namespace) -> Table:
    """Means over the resplits of CLEF, and paired differences from the flat model."""
    work = task(CLEF, options.cache, options.quick)
    ratio = len(work.y_test) / len(work.y)
    measures = {"micro": (100, ".2f"), "macro": (100, ".2f"), "nll": (1, ".3f")}  # scale and form
    found: dict[str, dict[int, Any]] = {}
    for method in TABLES[RESPLITS]:
        kept = {number: cells.kept(f"{RESPLITS} {number} {method}") for number in range(N_RESPLITS)}
        found[method] = {number: cell for number, cell in kept.items() if cell and cell["status"] == DONE}
    rows = []
    for method, done in found.items():
        both = sorted(done.keys() & found[FLAT].keys()) if method != FLAT else []
        means, gains = [], []
        for name, (scale, form) in measures.items():
            values = np.array([cell[name] for cell in done.values()])
            above = np.array([done[number][name] - found[FLAT][number][name] for number in both])
            means.append(mean_text(scale * values, form))
            gains.append(gain_text(scale * above, form, ratio))
        rows.append((method, len(done), *means, *gains))
    titles = "micro-F1", "macro-F1", "NLL"
    return Table(("method", "splits", *titles, *(f"{title} - {FLAT}'s" for title in titles)), rows)


def kept_rows(data: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Finished cells of `benchmarks.recursive` on a set."""
    cells = Cells("benchmarks.recursive", options)
    found = {method: cells.kept(f"{data} {method}") for method in SHOWN}
    return {method: cell for method, cell in found.items() if cell and cell["status"] == DONE}


def set_table(data: str, cells: Cells, options: argparse.Namespace) -> Table:
    """Table of another data set: cells of this benchmark, then those of `benchmarks.recursive`."""
    multilabel = task(data, options.cache, options.quick).multilabel
    f1 = ("micro_half", "macro_half", "micro_cut", "macro_cut") if multilabel else ("micro", "macro")
    rows = []
    for method in TABLES[data]:
        cell = cells.kept(f"{data} {method}")
        if cell is None or cell["status"] != DONE:
            rows.append((method, summary(cell), *[None] * (len(f1) + 3), figures(data, method)))
            continue
        measures = (*(cell[name] for name in f1), cell["nll"], cell["ece"], seconds(cell))
        chosen = f"threshold {cell['cut']:.2g}" if multilabel else chosen_words(cell)
        rows.append((method, *measures, chosen, figures(data, method)))
    for method, cell in kept_rows(data, options).items():
        half = (None, None) if multilabel else ()
        measures = (*half, cell["micro"], cell["macro"], None, None, cell["seconds"])
        rows.append((method, *measures, chosen_words(cell), figures(data, method)))
    names = {"half": " at 0.5", "cut": ", one threshold"}
    titles = [f"{name[:5]}-F1{names.get(name[6:], '')}" for name in f1]
    columns = ("method", *titles, "NLL", "ECE", "seconds", "chosen", "published")
    return Table(columns, rows, ("", *["percent"] * len(f1), ".3f", "percent", ".1f", "", ""))


def report(cells: Cells, options: argparse.Namespace) -> None:
    """Print all tables from the finished cells."""
    print(EXPLANATION)
    print(
        f"### {SOURCES[CLEF].title}\n\n{describe(CLEF, options)}\n{ON_CLEF}\n{clef_table(cells).to_markdown()}\n"
    )
    print(f"### CLEF, resplit\n\n{ON_RESPLITS}\n{resplit_table(cells, options).to_markdown()}\n")
    for data in list(TABLES)[2:]:
        multilabel = task(data, options.cache, options.quick).multilabel
        note = ON_SETS if multilabel else ON_OTHERS
        table = set_table(data, cells, options)
        print(f"### {SOURCES[data].title}\n\n{describe(data, options)}\n{note}\n{table.to_markdown()}\n")


def main() -> None:
    options = parse("HBLR compared with flat and recursive models.", list(TABLES), list(METHODS))
    cells = Cells("benchmarks.hblr", options)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options))
        return
    if not options.table:
        for data in options.names:
            # Loaded before the cells are timed
            task(CLEF if data == RESPLITS else data, options.cache, options.quick)
            asked = [method for method in TABLES[data] if method in options.methods]
            for key in keys(data, asked, options.quick):
                cells.run(key)
    with published(SECTION, write=not options.quick):
        report(cells, options)


if __name__ == "__main__":
    one_thread()
    main()
