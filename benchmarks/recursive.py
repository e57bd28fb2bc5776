"""Accuracy of classifiers over label structures: recursive, flat, top-down and others, on thirteen data sets.

    python -m benchmarks.recursive                    # everything; resumes an interrupted run
    python -m benchmarks.recursive --only imclef07a   # one data set
    python -m benchmarks.recursive --table            # write finished cells to RESULTS.md
    python -m benchmarks.recursive --quick            # small parts of the data

A cell is a data set and a method, measured in its own process (`benchmarks._common.cells`). The cost C, and the
coupling if the method has one, are chosen by cross-validation on the training part, by one routine for all methods.
Then the method is trained once on the whole training part and predicts the test part.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.classify.thresholds import GlobalCut
from arbora.classify.training import Targets
from arbora.core.folds import stratified_folds
from arbora.metrics import compare, macro_f1, micro_f1
from arbora.metrics.table import Marked, Table
from benchmarks._common import published_figures
from benchmarks._common.cells import DONE, NOT_APPLICABLE, Cells, one_thread, parse, summary
from benchmarks._common.contestants import (
    CONTESTANTS,
    COUPLINGS,
    FLAT,
    LOGISTIC,
    N_FOLDS,
    QUICK_COUPLINGS,
    QUICK_CS,
    RECURSIVE,
    SEARCH_TOL,
    SEED,
    Contestant,
    encoded,
    indicator,
)
from benchmarks._common.report import published
from benchmarks._common.tasks import MEASUREMENT_CS, SOURCES, TEXT_CS, Task, take, task

MOST_GAP = 0.0101  # relative; a larger certified gap means that the fit stopped before convergence
SECTION = "Recursive: accuracy over trees, DAGs and graphs of labels"

_CHOICES = f"""\
C from {", ".join(f"{C:g}" for C in TEXT_CS)} for texts
and {", ".join(f"{C:g}" for C in MEASUREMENT_CS)} for measurements
({LOGISTIC:g} times as much for the logistic loss),
and the coupling of the recursive models from {", ".join(f"{c:g}" for c in COUPLINGS)} (0 is flat training),"""
EXPLANATION = f"""\
`python -m benchmarks.recursive`. Official splits; micro- and macro-F1 on the test part in per cent, over the labels
of the data set (without added ancestors) that occur in the truth or the predictions. All methods follow one protocol,
unless the line above a table states otherwise (on four large sets parameters are chosen on a part of the training
documents; on two of them some methods use the choice of others):
{_CHOICES}
by {N_FOLDS}-fold cross-validation on the training part with the same stratified folds (seed {SEED}): the highest mean
macro-F1 wins; costs increase, and the search ends when the score has fallen twice in a row. During the search
Arbora's models stop at a certified gap of {100 * SEARCH_TOL:g}%, in the final fit at their default tolerance; the
other packages use theirs. For multilabel data all methods use the same kind of threshold: one for the scores of all
classes, the mean of those with the best micro-F1 on the held-out folds. The label tree of napkinXC has its default
cost and its own tree. LinearSVC minimises the objective of {FLAT} and uses its C. One thread. A gap above the
tolerance of the model (1%; {FLAT} 0.1%) is shown; that fit stopped at its `max_iter`. Marks: \\* p < 5%, † p < 1%
against {FLAT}, two-sided: sign test for micro-F1, Wilcoxon's test for macro-F1. "Published" is micro / macro of the
thesis (Gopal 2014, Tables 3.2 and 3.3), with C from 0.001 to 1000 by cross-validation: BSVM is shown with {FLAT},
RR-SVM with its own model (coupling 1), and RR-LR, TD, HSVM and OT with the corresponding models.
"""


Costs = tuple[float | None, ...]


class Choice(NamedTuple):
    """Result of the cross-validation: a candidate, its mean score, and the threshold for label sets."""

    C: float | None
    coupling: Any
    score: float
    cut: float


def judge(answer: NDArray[Any], Y: Any, multilabel: bool) -> tuple[float, float]:
    """Macro-F1 on held-out rows and the threshold."""
    if not multilabel:
        return float(macro_f1(Y.indices, answer)), 0.0
    cut = GlobalCut().fit(answer, Y)
    return float(macro_f1(Y, cut.predict(answer).astype(np.int64))), cut.threshold_


def choose(task: Task, targets: Targets, contestant: Contestant, Cs: Costs, most_rows: int | None) -> Choice:
    """Cross-validate every candidate on the training part with increasing costs; the best mean macro-F1 wins."""
    rows, held_out = np.arange(task.X.shape[0]), range(N_FOLDS)
    fold = stratified_folds(targets.indicator, N_FOLDS, SEED)
    if most_rows is not None and most_rows < len(rows):  # a stratified part of the rows
        part = stratified_folds(targets.indicator, round(len(rows) / most_rows), SEED + 1)
        rows, held_out = np.flatnonzero(part == 0), range(1)
    Y = indicator(task.y, task.structure, targets)
    choices = []
    for coupling in contestant.couplings:
        models = [contestant.make(task, targets, True) for _ in held_out]
        path: list[float] = []
        for C in Cs:
            if len(path) > 2 and path[-1] < path[-2] < path[-3]:
                break
            judged = []
            for f, model in enumerate(models):
                seen, unseen = rows[fold[rows] != f], rows[fold[rows] == f]
                model.fit(task.X[seen], model.target(take(task.y, seen)), C, coupling)
                judged.append(judge(model.answer(task.X[unseen]), Y[unseen], task.multilabel))
            score, cut = np.mean(judged, axis=0).tolist()
            path.append(score)
            choices.append(Choice(C, coupling, score, cut))
    return max(choices, key=lambda choice: choice.score)


def of_others(data: str, contestant: Contestant, cells: Cells) -> Choice:
    """Cost of flat training and coupling of recursive training, for a method without its own search."""
    coupling = chosen_by(data, RECURSIVE, cells)["coupling"] if len(contestant.couplings) > 1 else None
    return Choice(flat_cost(data, contestant, cells), coupling, np.nan, 0.0)


def flat_cost(data: str, contestant: Contestant, cells: Cells) -> float:
    """Cost that flat training chose, scaled for the loss of a contestant."""
    return (contestant.scale or 1.0) * float(chosen_by(data, FLAT, cells)["C"])


def chosen_by(data: str, method: str, cells: Cells) -> dict[str, Any]:
    """Finished cell of another method, whose choice is used."""
    found = cells.run(f"{data} {method}")
    if found["status"] != DONE:
        raise RuntimeError(f"needs the choice of {method}, which is not finished: {summary(found)}")
    return found


def measure(data: str, method: str, options: argparse.Namespace, cells: Cells) -> dict[str, Any]:
    """Choose parameters, train and predict; return seconds, F1 and the predictions."""
    work, contestant = task(data, options.cache, options.quick), CONTESTANTS[method]
    why = contestant.refuses(work)
    if why:
        return {"status": NOT_APPLICABLE, "why": why}
    Cs = QUICK_CS if options.quick else SOURCES[data].Cs
    scaled: Costs = (None,) if contestant.scale is None else tuple(contestant.scale * C for C in Cs)
    if options.quick and len(contestant.couplings) > 1:
        contestant = contestant._replace(couplings=QUICK_COUPLINGS)
    targets = encoded(work)
    started = time.perf_counter()
    if method in SOURCES[data].unsearched:
        chosen = of_others(data, contestant, cells)
    elif method in SOURCES[data].flat_cost:
        cost = flat_cost(data, contestant, cells)
        chosen = choose(work, targets, contestant, (cost,), SOURCES[data].most_searched)
    elif contestant.same_problem_as is None:
        chosen = choose(work, targets, contestant, scaled, SOURCES[data].most_searched)
    else:
        known = cells.run(f"{data} {contestant.same_problem_as}")
        chosen = Choice(*(known[field] for field in Choice._fields))
    model = contestant.make(work, targets, False)
    target = model.target(work.y)
    model.fit(work.X, target, chosen.C, chosen.coupling)
    answer = model.answer(work.X_test)
    if work.multilabel:
        sets = answer > np.float64(chosen.cut)
        predicted = [np.flatnonzero(row).tolist() for row in sets]
    else:
        predicted = answer.tolist()
    named = names_of(predicted, targets)
    return {
        "micro": float(micro_f1(work.y_test, named)),
        "macro": float(macro_f1(work.y_test, named)),
        "seconds": time.perf_counter() - started,
        **chosen._asdict(),
        "gap": float(getattr(getattr(model, "model", None), "duality_gap_", np.nan)),
        "predicted": predicted,
    }


def names_of(predicted: list[Any], targets: Targets) -> Any:
    """Convert class codes to labels."""
    if predicted and isinstance(predicted[0], list):
        return [targets.classes[codes].tolist() for codes in predicted]
    return targets.classes[np.array(predicted, dtype=np.int64)]


def marked(data: str, found: dict[str, Any], options: argparse.Namespace) -> dict[str, tuple[Marked, Marked]]:
    """Micro- and macro-F1 of the finished methods, marked if they differ from the flat one."""
    done = {method: cell for method, cell in found.items() if cell and cell["status"] == DONE}
    if not done:
        return {}
    work = task(data, options.cache, options.quick)
    targets = encoded(work)
    named = {method: names_of(cell["predicted"], targets) for method, cell in done.items()}
    marks = dict.fromkeys(done, ("", ""))
    if FLAT in done and len(done) > 1:
        for method, micro, _, macro, _ in compare(work.y_test, named, baseline=FLAT):
            marks[method] = micro.mark, macro.mark
    return {
        method: (Marked(cell["micro"], marks[method][0]), Marked(cell["macro"], marks[method][1]))
        for method, cell in done.items()
    }


def set_table(data: str, found: dict[str, Any], scores: dict[str, tuple[Marked, Marked]]) -> Table:
    """Table of one data set: F1, chosen parameters and published results of all methods."""
    flat = scores.get(FLAT)
    rows = []
    for method, cell in found.items():
        figures = published_figures.text(data, method)
        if method not in scores:
            rows.append((method, summary(cell), *[None] * 5, figures))
            continue
        micro, macro = scores[method]
        gain = None if flat is None or method == FLAT else 100 * (macro - flat[1])
        C, coupling = cell["C"], cell["coupling"]
        open_gap = cell["gap"] if cell["gap"] > MOST_GAP else None
        name = f"{method} ◦" if method in SOURCES[data].unsearched else method
        rows.append((name, micro, macro, gain, C, coupling, open_gap, figures))
    columns = ("method", "micro-F1", "macro-F1", "macro above flat", "C", "coupling", "gap left", "published")
    return Table(columns, rows, ("", "percent", "percent", "+.2f", "g", "g", "percent", ""))


def summary_table(scores: dict[str, dict[str, tuple[Marked, Marked]]], which: int) -> Table:
    """Table of one measure: data sets by methods."""
    rows = [
        (SOURCES[data].title, *(found[method][which] if method in found else None for method in CONTESTANTS))
        for data, found in scores.items()
    ]
    return Table(("data", *CONTESTANTS), rows, ("", *["percent"] * len(CONTESTANTS)))


def describe(data: str, options: argparse.Namespace) -> str:
    """Describe a data set in one line."""
    work, source = task(data, options.cache, options.quick), SOURCES[data]
    n_classes = len(encoded(work).classes)
    n_labels = f", {sum(map(len, work.y)) / len(work.y):.2f} labels per document" if work.multilabel else ""
    size = (
        f"{work.X.shape[0]:,} / {work.X_test.shape[0]:,} documents, {work.X.shape[1]:,} features, "
        f"{n_classes:,} classes with training documents of {work.structure.n_nodes:,} nodes{n_labels}"
    )
    return f"{size}; {source.note}." if source.note else f"{size}."


def report(cells: Cells, options: argparse.Namespace) -> None:
    """Print the summary and a table for each data set from the finished cells."""
    found = {data: {method: cells.kept(f"{data} {method}") for method in CONTESTANTS} for data in SOURCES}
    found = {data: row for data, row in found.items() if any(row.values())}
    scores = {data: marked(data, row, options) for data, row in found.items()}
    print(EXPLANATION)
    for which, measure_name in enumerate(("Micro-F1", "Macro-F1")):
        print(f"### {measure_name}\n\n{summary_table(scores, which).to_markdown()}\n")
    for data, row in found.items():
        print(f"### {SOURCES[data].title}\n\n{describe(data, options)}\n")
        print(set_table(data, row, scores[data]).to_markdown() + "\n")
    print(
        f"### Published results on data sets not available here\n\n{published_figures.others().to_markdown()}"
    )


def main() -> None:
    options = parse("Accuracy of classifiers over label structures.", list(SOURCES), list(CONTESTANTS))
    cells = Cells("benchmarks.recursive", options)
    if options.cell:
        data, _, method = options.cell.partition(" ")
        cells.measure(lambda: measure(data, method, options, cells))
        return
    if not options.table:
        for data in options.names:
            task(data, options.cache, options.quick)  # loaded before the cells are timed
            for method in options.methods:
                cells.run(f"{data} {method}")
    with published(SECTION, write=not options.quick):
        report(cells, options)


if __name__ == "__main__":
    one_thread()
    main()
