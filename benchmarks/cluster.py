"""Cost of training in shards: bytes, memory and seconds, measured and predicted.

    python -m benchmarks.cluster                # 1 and 2 workers on this machine
    python -m benchmarks.cluster --quick        # smaller; RESULTS.md is not written

Bytes are those of the arguments and results of the steps, counted as they are pickled. Seconds of an iteration are
the median without the first two, in which workers load compiled code. CPU seconds show how the work is distributed
even if other programs use the cores. A fit on one thread comes first to compile the kernels. The text is made by
`datasets.make_hierarchical_text`. docs/cluster.md describes the cost model; it is computed by `predict_lc`,
`predict_lc_tree`, `predict_recursive` and `predict_mixture`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import arbora
from arbora.classify import HierarchicalBayesClassifier, MultinomialLogistic, RecursiveSVC
from arbora.classify.multinomial import design_matrix
from arbora.classify.recursive.coupling import couple
from arbora.datasets import make_hierarchical_text
from arbora.discover import VMFMixture
from arbora.engine import RayEngine, ThreadEngine
from arbora.infer.linear.layout import lay_out
from arbora.infer.linear.shards import cut_layout
from arbora.infer.softmax.lc import BLOCK
from arbora.infer.softmax.penalty import split_factor
from arbora.infer.tree_sum import cut_leaves
from arbora.text import LtcTransformer
from benchmarks._common.cells import one_thread
from benchmarks._common.report import machine, published

SECTION = "Training in shards: threads and workers of a cluster"
SIZES = {"full": (16_000, 1_024, 40_000), "quick": (3_000, 256, 8_000)}  # documents, classes, features
ITERATIONS, SKIPPED = 6, 2
COMPONENTS = 50
LC_TREE, HBLR = "LC over a tree", "HierarchicalBayesClassifier"


class Size(NamedTuple):
    """Sizes that the costs depend on."""

    documents: int
    nonzeros: int
    features: int  # with the bias
    classes: int


class Counted(NamedTuple):
    """Measurements of one fit."""

    seconds: float  # of an iteration or round
    busiest: float  # CPU seconds of the busiest worker in an iteration or round
    sent: float  # bytes of an iteration or round, to all workers
    received: float
    common: int  # bytes of the data that all workers read
    resident: int  # bytes of the state of a worker
    objective: float
    model: Any


def n_bytes(value: Any) -> int:
    """Bytes of a pickled value, including its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process on this machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class CountingEngine(RayEngine):
    """An engine that counts the bytes sent to and received from the shards."""

    def shards(self, make: Any, common: Any, pieces: Any) -> Any:
        """Make shards that count their steps."""
        self.common, self.sent, self.received, self.n_steps = n_bytes(common), 0, 0, 0
        shards = super().shards(make, common, pieces)
        step, ask = shards.step, shards.ask
        self.busy: list[float] = []

        def counting_step(name: str, *arguments: Any, each: Any = None) -> list[Any]:
            before = [cpu_seconds(pid) for pid in shards.pids]
            found = step(name, *arguments, each=each)
            self.busy.append(max(cpu_seconds(pid) - b for pid, b in zip(shards.pids, before, strict=True)))
            own = each if each is not None else [()] * len(found)
            self.sent += sum(n_bytes((arguments, more)) for more in own)
            self.received += sum(n_bytes(answer) for answer in found)
            self.n_steps += 1
            return found

        def asking(shard: int, name: str, *arguments: Any) -> Any:
            if not hasattr(self, "resident"):
                self.resident = n_bytes(ask(0, "state"))
            return ask(shard, name, *arguments)

        shards.step, shards.ask = counting_step, asking
        return shards

    def with_jobs(self, n_jobs: int | None) -> CountingEngine:
        """Return the same engine."""
        return self


def make_text(documents: int, classes: int, features: int) -> tuple[Any, Any, Any]:
    data = make_hierarchical_text(documents, features, n_leaves=classes, depth=4, n_test=1, random_state=0)
    return LtcTransformer().fit_transform(data.X_train), data.y_train, data.hierarchy


def fit(model: Any, X: Any, y: Any, engine: Any = None) -> Any:
    with warnings.catch_warnings(), arbora.running(engine=engine):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def per_iteration(model: Any) -> float:
    return float(np.median(np.diff(model.trace_["seconds"])[SKIPPED - 1 :]))


def lc(X: Any, y: Any, tree: Any, engine: Any, n_jobs: int = 1, **more: Any) -> Any:
    arguments = {"C": 1.0, "solver": "lc", "tol": 1e-9, "max_iter": ITERATIONS, **more}
    return fit(MultinomialLogistic(n_jobs=n_jobs, **arguments), X, y, engine)


def lc_tree(X: Any, y: Any, tree: Any, engine: Any, n_jobs: int = 1) -> Any:
    return lc(X, y, tree, engine, n_jobs, structure=tree, coupling=0.3)


def recursive(X: Any, y: Any, tree: Any, engine: Any, n_jobs: int = 1) -> Any:
    arguments = {
        "C": 1.0,
        "loss": "hinge",
        "structure": tree,
        "coupling": 0.3,
        "calibration": None,
        "random_state": 0,
        "prune_below": 0.01,
    }
    return fit(RecursiveSVC(tol=1e-9, max_iter=ITERATIONS, n_jobs=n_jobs, **arguments), X, y, engine)


def bayes(X: Any, y: Any, tree: Any, engine: Any, n_jobs: int = 1) -> Any:
    options = {"likelihood": "logistic", "prune_below": 0.01, "tol": 1e-4, "max_iter": ITERATIONS}
    return fit(HierarchicalBayesClassifier(tree, n_jobs=n_jobs, **options), X, y, engine)


def mixture(X: Any, y: Any, tree: Any, engine: Any, n_jobs: int = 1) -> Any:
    # The finest tolerance of single precision: the fit does not end before `ITERATIONS`.
    model = VMFMixture(COMPONENTS, tol=1e-6, max_iter=ITERATIONS, n_jobs=n_jobs, random_state=0)
    return fit(model, X, y, engine)


def count(train: Any, text: Any, n_shards: int) -> Counted:
    engine = CountingEngine(n_shards=n_shards)
    model = train(*text, engine)
    return Counted(
        per_iteration(model),
        float(
            np.sum(engine.busy[SKIPPED:]) / model.n_iter_ * len(engine.busy) / (len(engine.busy) - SKIPPED)
        ),
        engine.sent / model.n_iter_,
        engine.received / model.n_iter_,
        engine.common,
        getattr(engine, "resident", 0),  # a shard of a mixture has only rows
        float(model.trace_["objective"][-1]),
        model,
    )


def predict_lc(size: Size, n_workers: int) -> dict[str, float]:
    """Bytes predicted by the model of docs/cluster.md, for float32 and 1, 2, 4, 8... workers."""
    N, nnz, D, K = size
    return {
        "to workers": n_workers * 4 * (N + D),
        "from workers": n_workers * 4 * (2 * N + D),
        "common": 24 * nnz + 16 * N + 8 * D,
        "a worker": 4 * D * K / n_workers,
        "visits": 4 * 8 * BLOCK * (N + D),
    }


def predict_lc_tree(model: Any, size: Size, n_workers: int) -> dict[str, float]:
    """Bytes of LC plus those of the nodes that several workers share."""
    factor, _ = couple(model.structure_, model.class_nodes_, model.coupling)
    shared = split_factor(factor)
    assert shared is not None, "in a tree each class has its own part"
    n_all, crossing, local = np.diff(shared.factor.indptr), [], []
    for piece in cut_leaves(-(-size.classes // BLOCK), n_workers):
        n_here = np.diff(shared.factor[:, piece.start * BLOCK : piece.stop * BLOCK].tocsr().indptr)
        crossing.append(int(((n_here > 0) & (n_here < n_all)).sum()))
        local.append(int(((n_here > 0) & (n_here == n_all)).sum()))
    said, row = predict_lc(size, n_workers), 4 * size.features
    said["to workers"] += row * sum(crossing)
    said["from workers"] += 2 * row * sum(crossing)
    said["a worker"] += row * local[0]
    del said["common"]  # the factor of the shared parts is added to it and is small
    return said


def predict_recursive(model: Any, size: Size, n_workers: int) -> dict[str, float]:
    """Upper bound of the bytes of a round: a row of features for each shared part, and one with the feature ids.

    A fit ends with one certificate, for which all shared parts are sent once more.
    """
    factor, _ = couple(model.structure_, model.class_nodes_, model.coupling_, model.fade_)
    layout = lay_out(factor, n_workers)
    pieces = cut_layout(layout, cut_leaves(len(layout.blocks), n_workers))
    to = back = sum(len(piece.ids) + 1 for piece in pieces if len(piece.ids)) / model.n_iter_
    for w in range(len(layout.waves)):
        moved = []
        for piece in pieces:
            blocks = piece.layout.waves[w].tolist()
            seen = np.concatenate([piece.layout.seen[k] for k in blocks]) if blocks else []
            moved.append(piece.ids[np.isin(piece.crossing, seen)])
        back += sum(len(ids) + 1 for ids in moved if len(ids))
        told = [len(np.intersect1d(np.concatenate(moved), piece.ids)) for piece in pieces]
        to += sum(n + 1 for n in told if n)
    row = 4 * size.features
    return {"to workers": to * row, "from workers": back * row}


def predict_mixture(size: Size, n_workers: int) -> dict[str, float]:
    """Bytes of an iteration: parameters of all components are sent, and as many sums received."""
    each = n_workers * 4 * size.features * COMPONENTS
    return {"to workers": each, "from workers": each}


def table(rows: list[list[str]], columns: list[str]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [columns, ["---"] * len(columns), *rows])


def mega(value: float) -> str:
    return f"{value / 1e6:.3g}"


def predict(name: str, model: Any, size: Size, n_workers: int) -> dict[str, float]:
    """Predict the costs of a fitted model."""
    if name == "RecursiveSVC":
        return predict_recursive(model, size, n_workers)
    if name == HBLR:
        return {}  # the rounds of the dual, as many as the precisions need
    if name == "LC":
        return predict_lc(size, n_workers)
    if name == LC_TREE:
        return predict_lc_tree(model, size, n_workers)
    return predict_mixture(size._replace(features=model.n_features_in_), n_workers)


def rows_of(name: str, train: Any, text: Any, size: Size) -> list[list[str]]:
    """Rows of one model: threads, workers, and predicted costs."""
    train(*text, ThreadEngine(1))
    here = {n: per_iteration(train(*text, ThreadEngine(n), n)) for n in (1, 2)}
    rows = [[f"threads: {n}", f"{here[n]:.3f}", f"{here[1] / here[n]:.2f}", *[""] * 5] for n in (1, 2)]
    found = {n: count(train, text, n) for n in (1, 2)}
    for n, counted in found.items():
        rows.append([
            f"workers: {n}", f"{counted.seconds:.3f}", f"{found[1].seconds / counted.seconds:.2f}",
            f"{counted.busiest:.3f}",
            mega(counted.sent), mega(counted.received), mega(counted.common), mega(counted.resident),
        ])  # fmt: skip
        said = predict(name, counted.model, size, n)
        if not any(said.values()):  # no shared parts: only the step calls are sent
            continue
        names = ("to workers", "from workers", "common", "a worker")
        label, half = (
            ("at most", "") if name == "RecursiveSVC" else ("predicted", f"{found[1].busiest / n:.3f}")
        )
        rows.append([label, "", "", half, *(mega(said[what]) if what in said else "" for what in names)])
    return rows


def report(text: Any) -> None:
    """Measure and print the tables."""
    X, y, _ = text
    rows, _ = design_matrix(X, 1.0, np.float32)
    size = Size(*rows.shape[:1], rows.nnz, rows.shape[1], len(set(y)))
    print(
        f"`python -m benchmarks.cluster`: {size.documents:,} documents, {size.classes:,} classes, {size.features:,} "
        f"features, {size.nonzeros:,} non-zeros. See docs/cluster.md.\n"
    )
    columns = [
        "", "s / iteration", "speed-up", "CPU s of the busiest worker", "MB to workers", "MB from workers",
        "MB common", "MB per worker",
    ]  # fmt: skip
    models = {"LC": lc, LC_TREE: lc_tree, "RecursiveSVC": recursive, HBLR: bayes, "VMFMixture": mixture}
    for name, train in models.items():
        rows = rows_of(name, train, text, size)
        print(f"{name}\n\n{table(rows, columns)}\n")
        if name == "LC":
            one = next(float(row[3]) for row in rows if row[0] == "workers: 1")
            print(f"Constant a: {1e9 * one / (size.nonzeros * size.classes):.1f} ns.\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    if parser.parse_args().quick:
        report(make_text(*SIZES["quick"]))
        print(f"Machine: {machine()}")
    else:
        with published(SECTION):
            report(make_text(*SIZES["full"]))


if __name__ == "__main__":
    one_thread()
    main()
