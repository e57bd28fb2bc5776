"""HBLR on CLEF with learned and with fixed precisions, with and without the tree.

    python -m benchmarks.hblr_why

M3 by MAP, evaluated on held-out fifths of the training part. The test part is not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arbora.classify import HierarchicalBayesClassifier
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from benchmarks._common.cells import one_thread, parse
from benchmarks._common.contestants import encoded, indicator
from benchmarks._common.hblr_models import CLEF, ready
from benchmarks._common.report import published
from benchmarks._common.tasks import Task, take
from benchmarks.hblr import class_probabilities, inside

PRECISIONS = (1.0, 3.0, 10.0, 30.0)
N_SPLITS, QUICK_SPLITS = 3, 1
SEED = 100
_SURE = 1e8  # shape of a prior that fixes the precision
SECTION = "HBLR: learned precisions against fixed ones"
EXPLANATION = f"""\
`python -m benchmarks.hblr_why`. CLEF, M3 by MAP with a softmax: precisions learned (the default), or fixed at the
same value for all nodes (every class and, with the tree, every inner node). Means over {N_SPLITS} held-out fifths of
the training part (seeds {SEED} to {SEED + N_SPLITS - 1}); micro- and macro-F1 in per cent, and mean negative
log-probability of the true class.
"""


def split(work: Task, seed: int) -> Task:
    """Hold out a fifth of the training part."""
    held = np.random.default_rng(seed).permutation(len(work.y)) < len(work.y) // 5
    seen, unseen = np.flatnonzero(~held), np.flatnonzero(held)
    return work._replace(
        X=work.X[seen], y=take(work.y, seen), X_test=work.X[unseen], y_test=take(work.y, unseen)
    )


def judge(work: Task, tree: bool, prior: Any) -> tuple[float, float, float]:
    """Micro-F1, macro-F1 and negative log-likelihood."""
    model = HierarchicalBayesClassifier(work.structure if tree else None, prior=prior, n_jobs=1)
    model.fit(work.X, work.y)
    targets, answer = encoded(work), model.predict(work.X_test)
    proba = class_probabilities(model, work.X_test, targets.classes)
    likelihood = inside(proba[indicator(work.y_test, work.structure, targets).tocoo().coords])
    return micro_f1(work.y_test, answer), macro_f1(work.y_test, answer), float(-np.log(likelihood).mean())


def main() -> None:
    """Run all and publish the table."""
    options = parse("HBLR with learned and with fixed precisions.", [CLEF], [])
    work = ready(CLEF, options)
    splits = [split(work, SEED + number) for number in range(QUICK_SPLITS if options.quick else N_SPLITS)]
    priors: dict[str, Any] = {"learned": "fisher"}
    priors |= {f"{precision:g}": {"shape": _SURE, "rate": _SURE / precision} for precision in PRECISIONS}
    rows = []
    for name, prior in priors.items():
        for tree in (True, False):
            scores = np.mean([judge(part, tree, prior) for part in splits], axis=0)
            rows.append((name, "tree" if tree else "flat", *scores.tolist()))
    table = Table(
        ("precision", "model", "micro-F1", "macro-F1", "NLL"), rows, ("", "", "percent", "percent", ".3f")
    )
    if options.quick:
        print(table)
        return
    with published(SECTION):
        print(f"{EXPLANATION}\n{table.to_markdown()}")


if __name__ == "__main__":
    one_thread()
    main()
