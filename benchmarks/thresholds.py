"""Five thresholds for multilabel documents on three data sets.

python -m benchmarks.thresholds
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from arbora.classify import OneVsRestSVC
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from benchmarks._common.contestants import SEED, encoded, indicator
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, task

SETS = ("bibtex", "enron_hmc", "delicious")
THRESHOLDS = ("zero", "global", "rcut", "scut", "instance")
EXPLANATION = f"""\
`python -m benchmarks.thresholds`. Micro / macro-F1 in per cent on the official test parts, macro-F1 over the classes
of the training part. `OneVsRestSVC(C=1, loss="hinge")`, thresholds learned on the rows that the default
calibration holds out, seed {SEED}; C was not tuned.
"""


def scores(data: str, folder: Path) -> list[tuple[float, float]]:
    """Micro- and macro-F1 on the test part of a data set, by threshold."""
    work = task(data, folder)
    targets = encoded(work)
    truth = indicator(work.y_test, work.structure, targets)
    found = []
    for threshold in THRESHOLDS:
        model = OneVsRestSVC(
            1.0, loss="hinge", structure=work.structure, threshold=threshold, random_state=SEED
        )
        answer = indicator(model.fit(work.X, work.y).predict(work.X_test), work.structure, targets)
        found.append((micro_f1(truth, answer), macro_f1(truth, answer)))
    return found


def main() -> None:
    """Measure all data sets and publish the table."""
    folder = Path(tempfile.gettempdir()) / "arbora-benchmarks"
    with published("Thresholds for documents with several labels"):
        print(EXPLANATION)
        rows = [
            (
                SOURCES[data].title,
                *(f"{100 * micro:.1f} / {100 * macro:.1f}" for micro, macro in scores(data, folder)),
            )
            for data in SETS
        ]
        print(Table(("data", *THRESHOLDS), rows).to_markdown())


if __name__ == "__main__":
    main()
