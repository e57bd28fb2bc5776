"""Time of two checkouts of Arbora in alternation.

    python -m benchmarks.versions --old ../old --new . [--turns 5] [--only flat]

Each turn starts one process per checkout, with `PYTHONPATH` set to its `src`. The process compiles the kernels on a
small part of the data, then fits on one thread and reports processor seconds, objective and a checksum of the
predictions. The checkouts take turns, and the order changes from turn to turn. The table gives the shortest time of
each, their ratio, and whether objectives and predictions agree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

_WARM_UP = 400  # rows


def _text(name: str) -> tuple[Any, Any, Any, Any]:
    from arbora.datasets import load
    from arbora.text import LtcTransformer

    data = load(name)
    ltc = LtcTransformer().fit(data.X_train)
    return ltc.transform(data.X_train), data.y_train, ltc.transform(data.X_test), data.hierarchy


def _flat() -> tuple[Any, Any, Any, Any]:
    from arbora.classify import OneVsRestSVC

    X, y, X_test, _ = _text("news20")
    return OneVsRestSVC(1.0, loss="hinge", calibration=None, random_state=0, n_jobs=1), X, y, X_test


def _recursive() -> tuple[Any, Any, Any, Any]:
    from arbora.classify import RecursiveSVC

    X, y, X_test, tree = _text("lshtc_small")
    return (
        RecursiveSVC(1.0, loss="hinge", structure=tree, calibration=None, random_state=0, n_jobs=1),
        X,
        y,
        X_test,
    )


def _multinomial() -> tuple[Any, Any, Any, Any]:
    from arbora.classify import MultinomialLogistic

    X, y, X_test, _ = _text("news20")
    return MultinomialLogistic(C=10.0, random_state=0, n_jobs=1), X, y, X_test


def _multinomial_lc() -> tuple[Any, Any, Any, Any]:
    from arbora.classify import MultinomialLogistic

    X, y, X_test, _ = _text("news20")
    return MultinomialLogistic(C=10.0, solver="lc", random_state=0, n_jobs=1), X, y, X_test


def _vmf() -> tuple[Any, Any, Any, Any]:
    from arbora.discover import VMFMixture

    X, _, X_test, _ = _text("news20")
    return VMFMixture(20, random_state=0, n_jobs=1), X, None, X_test


def _vmf_bayes() -> tuple[Any, Any, Any, Any]:
    from arbora.discover import BayesianVMFMixture

    X, _, X_test, _ = _text("news20")
    return BayesianVMFMixture(20, random_state=0, n_jobs=1), X, None, X_test


def _clef(**options: Any) -> tuple[Any, Any, Any, Any]:
    from sklearn.preprocessing import StandardScaler

    from arbora.classify import HierarchicalBayesClassifier
    from arbora.datasets import load

    data = load("imclef07a")
    dense = [X.toarray() if hasattr(X, "toarray") else X for X in (data.X_train, data.X_test)]
    scale = StandardScaler().fit(dense[0])
    X, X_test = (scale.transform(X).astype(np.float32) for X in dense)
    model = HierarchicalBayesClassifier(structure=data.hierarchy, n_jobs=1, **options)
    return model, X, data.y_train, X_test


def _hblr() -> tuple[Any, Any, Any, Any]:
    return _clef(inference="map")


def _hblr_logistic() -> tuple[Any, Any, Any, Any]:
    return _clef(inference="map", likelihood="logistic")


def _expand() -> tuple[Any, Any, Any, Any]:
    from sklearn.datasets import load_digits

    from arbora.expand import ExpandClusters

    X, y = load_digits(return_X_y=True)
    labelled = np.where((y < 6) & (np.arange(len(y)) % 2 == 0), y, -1)
    return ExpandClusters(random_state=0, n_jobs=1), X, labelled, X[::7]


def _texts(n_texts: int) -> tuple[list[str], list[str]]:
    from arbora.datasets import load_python_docs

    corpus = load_python_docs()
    rows = np.sort(np.random.default_rng(0).permutation(len(corpus.texts_train))[:n_texts])
    return [corpus.texts_train[i] for i in rows], [str(corpus.y_train[i]) for i in rows]


def _text_classifier() -> tuple[Any, Any, Any, Any]:
    from arbora import TextClassifier

    texts, labels = _texts(3000)
    return TextClassifier(random_state=0, n_jobs=1), texts, labels, texts[::9]


def _topic_model() -> tuple[Any, Any, Any, Any]:
    from arbora import TopicModel

    texts, _ = _texts(3000)
    return TopicModel(random_state=0, n_jobs=1), texts, None, texts[::9]


TASKS = {
    "flat": ("OneVsRestSVC, NEWS20", _flat),
    "recursive_speed": ("RecursiveSVC, LSHTC-small", _recursive),
    "multinomial": ("MultinomialLogistic, NEWS20", _multinomial),
    "multinomial_lc": ('MultinomialLogistic(solver="lc"), NEWS20', _multinomial_lc),
    "vmf_speed": ("VMFMixture(20), NEWS20", _vmf),
    "vmf_bayes": ("BayesianVMFMixture(20), NEWS20", _vmf_bayes),
    "hblr_speed": ("HierarchicalBayesClassifier, MAP, CLEF", _hblr),
    "hblr_logistic": ("HierarchicalBayesClassifier, MAP logistic, CLEF", _hblr_logistic),
    "expand": ("ExpandClusters, digits", _expand),
    "text_classifier": ("TextClassifier, 3,000 pieces of the Python docs", _text_classifier),
    "topic_model": ("TopicModel, 3,000 pieces of the Python docs", _topic_model),
}


def work(task: str) -> dict[str, float]:
    """Fit the model of a task once; runs in a process of its own."""
    from sklearn.base import clone
    from threadpoolctl import threadpool_limits

    model, X, y, X_test = TASKS[task][1]()
    n_rows = len(X) if isinstance(X, list) else X.shape[0]
    few = np.sort(np.random.default_rng(0).permutation(n_rows)[:_WARM_UP])

    def part(rows: Any) -> Any:
        return rows if rows is None else [rows[i] for i in few] if isinstance(rows, list) else rows[few]

    with threadpool_limits(1):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(model).fit(part(X), part(y)).predict(X_test[:10])
        started = process_time()
        model.fit(X, y)
        seconds = process_time() - started
        answers = np.asarray(model.predict(X_test))
    trace = getattr(model, "trace_", None)
    objective = float(trace["objective"][-1]) if trace is not None else float("nan")
    return {
        "seconds": seconds,
        "objective": objective,
        "predictions": zlib.crc32(repr(answers.tolist()).encode()),
    }


def _run(task: str, checkout: Path) -> dict[str, float]:
    code = f"import json; from benchmarks.versions import work; print(json.dumps(work({task!r})))"
    here = str(Path(__file__).parents[1])
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), here]),
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=here, check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Time every task on both checkouts and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", choices=list(TASKS), action="append")
    options = parser.parse_args()
    places = {"old": options.old.resolve(), "new": options.new.resolve()}
    print("| fit, one thread | old s | new s | new / old | objective, relative change | same predictions |")
    print("|---|---|---|---|---|---|")
    for task in options.only or TASKS:
        runs: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
        for turn in range(options.turns):
            for name in sorted(places, reverse=bool(turn % 2)):
                runs[name].append(_run(task, places[name]))
        old, new = (min(run["seconds"] for run in runs[name]) for name in ("old", "new"))
        before, after = (runs[name][0]["objective"] for name in ("old", "new"))
        same = runs["old"][0]["predictions"] == runs["new"][0]["predictions"]
        change = abs(after - before) / max(abs(before), np.finfo(float).tiny)
        title = TASKS[task][0]
        print(
            f"| {title} | {old:.2f} | {new:.2f} | {new / old:.3f} | {change:.1e} | {'yes' if same else 'no'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
