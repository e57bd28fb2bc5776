"""Accuracy of classifiers over label structures: recursive, flat, top-down and others, on thirteen sets.

    python -m benchmarks.recursive                    # everything; goes on where it was interrupted
    python -m benchmarks.recursive --only imclef07a   # one set
    python -m benchmarks.recursive --table            # publish what is finished
    python -m benchmarks.recursive --quick            # try the machinery on small parts of the sets

Every cell, a set and a method, is measured in a process of its own (`benchmarks.cells`): the cost C, and the
coupling where the method has one, is chosen by cross-validation on the training part, by one routine for all methods;
then the method is trained once on the whole training part and answers for the test part.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.classify._common.labels import Targets
from arbora.classify.recursive.search import folds
from arbora.classify.thresholds import GlobalCut
from arbora.metrics import compare, macro_f1, micro_f1
from arbora.metrics.table import Marked, Table
from benchmarks import published_figures
from benchmarks.cells import DONE, NOT_APPLICABLE, Cells, one_thread, parse, summary
from benchmarks.contestants import (
    CONTESTANTS,
    COUPLINGS,
    FLAT,
    LOGISTIC,
    RECURSIVE,
    SEARCH_TOL,
    SEED,
    Contestant,
    encoded,
    indicator,
)
from benchmarks.report import published
from benchmarks.tasks import MEASUREMENT_CS, SOURCES, TEXT_CS, Task, take, task

N_FOLDS = 3
QUICK_CS, QUICK_COUPLINGS = (0.1, 1.0), (0.0, 1.0)
MOST_GAP = 0.0101  # relative: a certified gap above it says that the fit was stopped on its way
SECTION = "Recursive: accuracy over trees, DAGs and graphs of labels"

_CHOICES = f"""\
C from {", ".join(f"{C:g}" for C in TEXT_CS)} for texts
and {", ".join(f"{C:g}" for C in MEASUREMENT_CS)} for measurements
({LOGISTIC:g} times as much where the loss is the logistic one),
and the coupling of the recursive models from {", ".join(f"{c:g}" for c in COUPLINGS)} (0 is flat training),"""
EXPLANATION = f"""\
`python -m benchmarks.recursive`. Official splits; micro- and macro-F1 on the test part in per cent, over the labels
that the set assigns (no ancestors added) and that occur in the truth or the answers. All methods have one protocol,
save where the line above a table says otherwise (four large sets choose on a part of the training documents; on two,
some methods take over the choice of others):
{_CHOICES}
by {N_FOLDS}-fold cross-validation on the training part, with the same folds (documents of a class dealt out in turn,
seed {SEED}): the highest mean macro-F1 wins; costs rise, and a path ends when the score has fallen twice in a row.
While choosing, Arbora's models stop at a certified gap of {100 * SEARCH_TOL:g}%, in the last fit at their defaults;
the peers at theirs. Where documents carry several labels, all methods are cut alike: one threshold on the scores of
all classes, the mean of those with the best micro-F1 on the held-out folds. The label tree of napkinXC has its
default cost and its own tree. LinearSVC minimises the objective of {FLAT} and takes its C. One thread. A gap above
the tolerance of the model (1%; {FLAT} 0.1%) is shown: that fit was stopped by its `max_iter`. Marks:
\\* p < 5%, † p < 1% against {FLAT}, two-sided: sign test for micro-F1, Wilcoxon's test for macro-F1.
"Published" is micro / macro of the thesis (Gopal 2014, Tables 3.2 and 3.3), with C from 0.001 to 1000 by
cross-validation: BSVM is beside {FLAT}, RR-SVM beside its own model (coupling 1, `fade=None`),
RR-LR, TD, HSVM and OT beside their namesakes.
"""


Costs = tuple[float | None, ...]


class Choice(NamedTuple):
    """What the cross-validation chose: a candidate, its mean score, and where to cut the scores of label sets."""

    C: float | None
    coupling: Any
    score: float
    cut: float


def judge(answer: NDArray[Any], Y: Any, multilabel: bool) -> tuple[float, float]:
    """Macro-F1 of held-out rows, and the cut it was reached with."""
    if not multilabel:
        return float(macro_f1(Y.indices, answer)), 0.0
    cut = GlobalCut().fit(answer, Y)
    return float(macro_f1(Y, cut.predict(answer).astype(np.int64))), cut.threshold_


def choose(task: Task, targets: Targets, contestant: Contestant, Cs: Costs, most_rows: int | None) -> Choice:
    """Cross-validate every candidate on the training part, costs rising; the best mean macro-F1 wins."""
    rows, held_out = np.arange(task.X.shape[0]), range(N_FOLDS)
    fold = folds(targets.indicator, N_FOLDS, SEED)
    if most_rows is not None and most_rows < len(rows):  # a share of every class, as a fold is one
        part = folds(targets.indicator, round(len(rows) / most_rows), SEED + 1)
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
    """Cost of flat training, and coupling of the recursive one, for a method that is not searched itself."""
    coupling = chosen_by(data, RECURSIVE, cells)["coupling"] if len(contestant.couplings) > 1 else None
    return Choice(flat_cost(data, contestant, cells), coupling, np.nan, 0.0)


def flat_cost(data: str, contestant: Contestant, cells: Cells) -> float:
    """Cost that flat training chose, in the measure of a contestant's loss."""
    return (contestant.scale or 1.0) * float(chosen_by(data, FLAT, cells)["C"])


def chosen_by(data: str, method: str, cells: Cells) -> dict[str, Any]:
    """Finished cell of another method, whose choice is taken over."""
    found = cells.run(f"{data} {method}")
    if found["status"] != DONE:
        raise RuntimeError(f"takes over the choice of {method}, which is not finished: {summary(found)}")
    return found


def measure(data: str, method: str, options: argparse.Namespace, cells: Cells) -> dict[str, Any]:
    """Choose, train and answer; seconds, F1 and the answers themselves."""
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
    """Answers in the form of the labels."""
    if predicted and isinstance(predicted[0], list):
        return [targets.classes[codes].tolist() for codes in predicted]
    return targets.classes[np.array(predicted, dtype=np.int64)]


def marked(data: str, found: dict[str, Any], options: argparse.Namespace) -> dict[str, tuple[Marked, Marked]]:
    """Micro- and macro-F1 of the finished methods, marked where they differ from those of the flat one."""
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
    """One set: all methods, what was chosen, what it took, what was published."""
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
    """Lay out one measure: sets by methods."""
    rows = [
        (SOURCES[data].title, *(found[method][which] if method in found else None for method in CONTESTANTS))
        for data, found in scores.items()
    ]
    return Table(("data", *CONTESTANTS), rows, ("", *["percent"] * len(CONTESTANTS)))


def describe(data: str, options: argparse.Namespace) -> str:
    """One line about a set."""
    work, source = task(data, options.cache, options.quick), SOURCES[data]
    n_classes = len(encoded(work).classes)
    n_labels = f", {sum(map(len, work.y)) / len(work.y):.2f} labels a document" if work.multilabel else ""
    size = (
        f"{work.X.shape[0]:,} / {work.X_test.shape[0]:,} documents, {work.X.shape[1]:,} features, "
        f"{n_classes:,} classes with training documents of {work.structure.n_nodes:,} nodes{n_labels}"
    )
    return f"{size}; {source.note}." if source.note else f"{size}."


def report(cells: Cells, options: argparse.Namespace) -> None:
    """Print the summary and a table for each set, from the finished cells."""
    found = {data: {method: cells.kept(f"{data} {method}") for method in CONTESTANTS} for data in SOURCES}
    found = {data: row for data, row in found.items() if any(row.values())}
    scores = {data: marked(data, row, options) for data, row in found.items()}
    print(EXPLANATION)
    for which, measure_name in enumerate(("Micro-F1", "Macro-F1")):
        print(f"### {measure_name}\n\n{summary_table(scores, which).to_markdown()}\n")
    for data, row in found.items():
        print(f"### {SOURCES[data].title}\n\n{describe(data, options)}\n")
        print(set_table(data, row, scores[data]).to_markdown() + "\n")
    print(f"### Published on sets that are not available here\n\n{published_figures.others().to_markdown()}")


def main() -> None:
    options = parse("Accuracy of classifiers over label structures.", list(SOURCES), list(CONTESTANTS))
    cells = Cells("benchmarks.recursive", options)
    if options.cell:
        data, _, method = options.cell.partition(" ")
        cells.measure(lambda: measure(data, method, options, cells))
        return
    if not options.table:
        for data in options.names:
            task(data, options.cache, options.quick)  # made ready here: no cell pays for it
            for method in options.methods:
                cells.run(f"{data} {method}")
    if options.quick:
        report(cells, options)
    else:
        with published(SECTION):
            report(cells, options)


if __name__ == "__main__":
    one_thread()
    main()
