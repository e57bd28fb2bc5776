"""Close calls decided by the tree, beside the most probable class, for the recursive classifiers at their defaults.

    python -m benchmarks.close_calls

The rule and its constant (classes at least half as probable as the best one) were chosen on the other sets;
LSHTC-small was measured once, afterwards. Splits are those of `benchmarks.wild`; every fit has three seeds.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from arbora.classify import RecursiveLogisticRegression, RecursiveSVC
from arbora.metrics import hierarchical_f1, macro_f1, micro_f1
from arbora.metrics.table import Table
from benchmarks._common.cells import one_thread
from benchmarks._common.report import published
from benchmarks._common.wild_sets import KEPT_ASIDE, title, wild_task

SECTION = "Close calls decided by the tree"
SETS = "imclef07a", "imclef07d", "news20", "python_docs", "wordnet_gloss", "lshtc_small"
TOO_SLOW = {("RecursiveLogisticRegression", "wordnet_gloss")}
SEEDS = range(3)
EXPLANATION = """\
`python -m benchmarks.close_calls`. `predict` of the recursive classifiers at their defaults, on sets with one label
per document and a tree. Points of F1 of the most probable class ("class"), means of three seeds; then
the change by `predict` ("path"), the share of the documents with another answer, and processor seconds of a
prediction of the test part, one thread. The rule and its constant were chosen on the other sets; the set marked ∘ was
measured once, afterwards. Flat classifiers gained nothing from the rule, so they do not have it.
"""
METRICS = "micro", "macro", "hierarchical"


def measure(estimator: type, name: str, seed: int) -> dict[str, Any]:
    """Scores and times of both decisions of one model."""
    task = wild_task(name, Path(gettempdir()) / "arbora-benchmarks")
    model = estimator(structure=task.structure, n_jobs=1, random_state=seed).fit(task.X, task.y)
    found: dict[str, Any] = {}
    answers = []
    rules = {
        "class": lambda X: model.classes_[model.decision_function(X).argmax(axis=1)],
        "path": model.predict,
    }
    for how, answer in rules.items():
        answer(task.X_test)  # loads or compiles kernels
        start = time.process_time()
        answers.append(answer(task.X_test))
        found["seconds", how] = time.process_time() - start
        found["micro", how] = micro_f1(task.y_test, answers[-1])
        found["macro", how] = macro_f1(task.y_test, answers[-1])
        found["hierarchical", how] = hierarchical_f1(task.y_test, answers[-1], task.structure)
    found["changed"] = np.mean(answers[0] != answers[1])
    return found


def main() -> None:
    rows = []
    for estimator in (RecursiveSVC, RecursiveLogisticRegression):
        for name in SETS:
            if (estimator.__name__, name) in TOO_SLOW:
                continue
            runs = [measure(estimator, name, seed) for seed in SEEDS]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            scores = [mean[metric, "class"] for metric in METRICS]
            changes = [100 * (mean[metric, "path"] - mean[metric, "class"]) for metric in METRICS]
            times = [mean["seconds", how] for how in ("class", "path")]
            mark = " ∘" if name in KEPT_ASIDE else ""
            row = (estimator.__name__, title(name) + mark, *scores, *changes, mean["changed"], *times)
            rows.append(row)
            print(row)
    columns = (
        "model", "data", "micro-F1", "macro-F1", "hierarchical F1", "micro", "macro", "hierarchical", "changed (%)",
        "seconds, class", "seconds, path",
    )  # fmt: skip
    forms = ("", "", *["percent"] * 3, *["+.2f"] * 3, "percent", ".3f", ".3f")
    with published(SECTION):
        print(f"{EXPLANATION}\n{Table(columns, rows, forms).to_markdown()}\n")


if __name__ == "__main__":
    one_thread()
    main()
