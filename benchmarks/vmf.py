"""Von Mises-Fisher mixtures on real texts: recovery of known classes, held-out likelihood, novelty detection.

    python -m benchmarks.vmf                       # everything; resumes an interrupted run
    python -m benchmarks.vmf --only cnae9 k9 --quick

Recoverability (Table 5.2 of the thesis): 20 clusters, all documents, ltc weights (counts for the multinomial models).
All methods start from the same random labels, and means over ten starts are reported. Generalisation (Figure 5.1):
half of the documents are held out. Further tables: posterior of the concentration (Table 5.5), tf-idf against tf
(Table 5.3), in- and out-of-sample detection (Table 5.4). Every cell is measured in its own process.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.decomposition import LatentDirichletAllocation, TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize

from arbora.datasets import load
from arbora.discover import BayesianVMFMixture, MultinomialMixture, SphericalKMeans, VMFMixture
from arbora.metrics import clustering_report
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.cells import DONE, Cells, one_thread, parse, summary
from benchmarks._common.report import published

SECTION = "von Mises-Fisher mixtures: known classes, held-out likelihood, novelty"
RUNS, K, DIMENSIONS, LEVEL = 10, 20, 50, 0.05
NUMBERS = 10, 15, 20, 25, 30
QUICK_ROWS, QUICK_RUNS = 250, 2
MEASURES = "nmi", "adjusted_rand_index", "purity", "macro_f1", "mi", "rand_index"
SMALL = "cnae9", "k9", "tdt2"  # data sets of the tables other than recoverability
WEIGHTED = "cnae9", "tdt2"
METHODS = "B-vMF", "B-vMF own", "vMF", "vMF annealed", "K-means", "spherical K-means", "GM", "MM", "LDA"
PLAIN = "B-vMF not annealed"
HELD_OUT = "vMF", PLAIN, "B-vMF", "B-vMF own"
COMPARED = "B-vMF", "vMF", "K-means", "GM", "MM", "LDA"
CONCENTRATIONS = "sample", "bound", "grid"

EXPLANATION = f"""\
`python -m benchmarks.vmf`: {K} clusters, means over {RUNS} starts. All start from random labels, as in the
thesis. "B-vMF own" has one concentration for each component, "vMF annealed" has k-means++ and a decreasing
temperature. GM (spherical) uses {DIMENSIONS} dimensions of an SVD. In brackets: published results (Table 5.2) for the
same data sets. The annealed start of B-vMF, which is its default, was chosen with knowledge of the classes of up to
nine of these sets, so its figures are optimistic. So was the smoothing of MM (1 of 1, 0.1, 0.01, 0.001), on seven of
them. The model of the thesis is "B-vMF own"; B-vMF has one concentration for all components.
"""


class Source(NamedTuple):
    """A collection: title, function that reads counts and classes, and published NMI and ARI by method."""

    title: str
    read: Callable[[], tuple[Any, Any]]
    published: Mapping[str, tuple[float, float]] = MappingProxyType({})


def counted(name: str, **options: Any) -> tuple[Any, Any]:
    data = load(name, **options)
    return data.X, data.y


def reuters(subset: str) -> tuple[Any, Any]:
    data = load("reuters21578", subset=subset)
    return CountVectorizer(min_df=2, stop_words="english").fit_transform(data.texts), data.y


def figures(*pairs: float) -> dict[str, tuple[float, float]]:
    names = "B-vMF", "vMF", "K-means", "GM", "MM", "LDA"
    return dict(zip(names, zip(pairs[::2], pairs[1::2], strict=True), strict=True))


SOURCES = {
    "cnae9": Source(
        "CNAE", lambda: counted("cnae9"),
        figures(0.748, 0.669, 0.650, 0.426, 0.605, 0.357, 0.620, 0.311, 0.726, 0.528, 0.320, 0.169),
    ),
    "k9": Source(
        "K9", lambda: counted("k9_k1a_k1b"),
        figures(0.551, 0.352, 0.543, 0.350, 0.482, 0.293, 0.487, 0.264, 0.487, 0.321, 0.269, 0.110),
    ),
    "tdt2": Source("TDT2, 30 classes", lambda: counted("tdt2_30")),
    "citeseer": Source("CiteSeer (another version)", lambda: counted("citeseer")),
    "news20": Source("NEWS20", lambda: counted("news20", texts=False)),
    "r8": Source("Reuters R8", lambda: reuters("r8")),
    "r52": Source("Reuters R52", lambda: reuters("r52")),
    **{
        name: Source(name, lambda name=name: counted(f"cluto_{name}"))
        for name in ("classic", "la1", "wap", "tr11", "tr12", "tr23", "tr31", "re0")
    },
}  # fmt: skip


class Texts(NamedTuple):
    """Documents with at least one word: counts, ltc weights, unit-length frequencies, class codes."""

    counts: sp.csr_matrix
    ltc: sp.csr_matrix
    tf: sp.csr_matrix
    y: np.ndarray


def prepared(name: str, quick: bool) -> Texts:
    X, y = SOURCES[name].read()
    X, y = sp.csr_matrix(X, dtype=np.float64), np.unique(np.asarray(y).astype(str), return_inverse=True)[1]
    if quick:
        ids = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:QUICK_ROWS])
        X, y = X[ids], y[ids]
        X = X[:, np.asarray(X.sum(axis=0)).ravel() > 0]
    ltc = sp.csr_matrix(LtcTransformer().fit_transform(X))
    filled = np.flatnonzero(np.asarray(abs(ltc).sum(axis=1)).ravel() > 0)
    return Texts(X[filled], ltc[filled], normalize(X[filled]), y[filled])


class PlainBayesianVMFMixture(BayesianVMFMixture):
    """The mixture without annealing of the start."""

    _annealing_steps = 0


def label_means(X: Any, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Mean of the rows of each random label, for methods that start from means."""
    member = sp.csr_matrix(
        (np.ones(len(labels)), (labels, np.arange(len(labels)))), (n_clusters, len(labels))
    )
    means = member @ X
    means = means.toarray() if sp.issparse(means) else np.asarray(means)
    return means / np.bincount(labels, minlength=n_clusters)[:, None]


def gaussian(texts: Texts, labels: np.ndarray, seed: int) -> np.ndarray:
    size = min(DIMENSIONS, min(texts.ltc.shape) - 1)
    Z = TruncatedSVD(size, random_state=seed).fit_transform(texts.ltc)
    start = label_means(Z, labels, labels.max() + 1)
    model = GaussianMixture(len(start), covariance_type="spherical", means_init=start, random_state=seed)
    return model.fit_predict(Z)


def topics(texts: Texts, labels: np.ndarray, seed: int) -> np.ndarray:
    model = LatentDirichletAllocation(labels.max() + 1, random_state=seed)
    return model.fit_transform(texts.counts).argmax(axis=1)


def clusters(method: str, texts: Texts, labels: np.ndarray, seed: int) -> np.ndarray:
    """Cluster with one method from random labels."""
    k, common = int(labels.max()) + 1, {"init": labels, "random_state": seed}
    if method.startswith("B-vMF"):
        concentration = "shared" if method == "B-vMF" else "own"
        model: Any = BayesianVMFMixture(k, concentration=concentration, init="random", random_state=seed)
    elif method == "vMF":
        model = VMFMixture(k, init="random", random_state=seed)
    elif method == "vMF annealed":
        model = VMFMixture(k, assignments="annealed", random_state=seed)
    elif method == "spherical K-means":
        model = SphericalKMeans(k, **common)
    elif method == "K-means":
        return KMeans(k, init=label_means(texts.ltc, labels, k), n_init=1).fit_predict(texts.ltc)
    elif method == "MM":
        return MultinomialMixture(k, **common).fit_predict(texts.counts)
    else:
        return {"GM": gaussian, "LDA": topics}[method](texts, labels, seed)
    return model.fit(texts.ltc).predict(texts.ltc)


def measure_classes(name: str, method: str, quick: bool) -> dict[str, Any]:
    texts, results, started = prepared(name, quick), [], time.perf_counter()
    for seed in range(QUICK_RUNS if quick else RUNS):
        labels = np.random.default_rng(seed).permutation(np.arange(len(texts.y)) % K)
        report = clustering_report(texts.y, clusters(method, texts, labels, seed))
        results.append([*(getattr(report, measure) for measure in MEASURES), report.n_clusters])
    means, deviation = np.mean(results, axis=0), np.std(results, axis=0)
    numbers = dict(zip((*MEASURES, "used"), means.tolist(), strict=True))
    return {
        **numbers,
        "deviation": float(deviation[0]),
        "seconds": (time.perf_counter() - started) / len(results),
    }


def measure_held_out(name: str, what: str, number: int, quick: bool) -> dict[str, Any]:
    """Mean log-density of held-out documents; `what` is a method or a `concentration_posterior`."""
    X, scores, started = prepared(name, quick).ltc, [], time.perf_counter()
    for seed in range(QUICK_RUNS if quick else RUNS):
        train, test = np.split(np.random.default_rng(seed).permutation(X.shape[0]), [X.shape[0] // 2])
        if what == "vMF":
            model: Any = VMFMixture(number, random_state=seed)
        elif what in CONCENTRATIONS:
            model = BayesianVMFMixture(
                number, concentration_posterior=what, concentration="own", random_state=seed
            )
        else:
            kind = PlainBayesianVMFMixture if what == PLAIN else BayesianVMFMixture
            concentration = "own" if what == "B-vMF own" else "shared"
            model = kind(number, concentration=concentration, random_state=seed)
        scores.append(model.fit(X[train]).score(X[test]))
    seconds = (time.perf_counter() - started) / len(scores)
    return {"score": float(np.mean(scores)), "deviation": float(np.std(scores)), "seconds": seconds}


def measure_weights(name: str, weights: str, quick: bool) -> dict[str, Any]:
    texts = prepared(name, quick)
    X, results = getattr(texts, weights), []
    for seed in range(QUICK_RUNS if quick else RUNS):
        for model in (VMFMixture(30, random_state=seed), KMeans(30, n_init=1, random_state=seed)):
            report = clustering_report(texts.y, model.fit(X).predict(X))
            results.append([report.nmi, report.adjusted_rand_index])
    vmf, kmeans = np.mean(results[::2], axis=0), np.mean(results[1::2], axis=0)
    return {"vmf_nmi": vmf[0], "vmf_ari": vmf[1], "kmeans_nmi": kmeans[0], "kmeans_ari": kmeans[1]}


def measure_novelty(name: str, method: str, quick: bool) -> dict[str, Any]:
    """Accuracy of distinguishing held-out documents of known classes from those of new classes."""
    texts, accuracy = prepared(name, quick), []
    size = min(DIMENSIONS, min(texts.ltc.shape) - 1)
    for seed in range(QUICK_RUNS if quick else RUNS):
        rng = np.random.default_rng(seed)
        classes = rng.permutation(texts.y.max() + 1)
        known = np.isin(texts.y, classes[: len(classes) // 2])
        inside = rng.permutation(np.flatnonzero(known))
        train, held_out = np.split(inside, [len(inside) // 2])
        svd = TruncatedSVD(size, random_state=seed).fit(texts.ltc[train])
        Z = normalize(svd.transform(texts.ltc))
        test = np.concatenate([held_out, np.flatnonzero(~known)])
        seen, novel = (
            np.abs(Z[test]).sum(axis=1) > 1e-9,
            np.ones(len(test), dtype=bool),
        )  # documents without known words are novel
        if method == "GM":
            model: Any = GaussianMixture(K, covariance_type="spherical", random_state=seed).fit(Z[train])
            novel[seen] = model.score_samples(Z[test][seen]) < np.quantile(
                model.score_samples(Z[train]), LEVEL
            )
        else:
            model = (
                BayesianVMFMixture(K, random_state=seed)
                if method == "B-vMF"
                else VMFMixture(K, random_state=seed)
            )
            novel[seen] = model.fit(Z[train]).is_novel(Z[test][seen], level=LEVEL)
        right = novel == ~known[test]
        accuracy.append([right.mean(), (right[: len(held_out)].mean() + right[len(held_out) :].mean()) / 2])
    plain, balanced = np.mean(accuracy, axis=0).tolist()
    return {"accuracy": plain, "balanced": balanced}


def measure(key: str, quick: bool) -> dict[str, Any]:
    kind, *rest = key.split(" | ")
    if kind == "held-out":
        return measure_held_out(rest[0], rest[1], int(rest[2]), quick)
    works = {"classes": measure_classes, "weights": measure_weights, "novelty": measure_novelty}
    return works[kind](rest[0], rest[1], quick)


def keys(names: list[str]) -> list[str]:
    """Names of all cells, recoverability first."""
    results = [f"classes | {name} | {method}" for name in names for method in METHODS]
    small = [name for name in names if name in SMALL]
    results += [
        f"held-out | {name} | {method} | {number}"
        for name in small for method in HELD_OUT for number in NUMBERS
    ]  # fmt: skip
    results += [f"held-out | k9 | {how} | {K}" for how in CONCENTRATIONS if "k9" in names]
    results += [f"weights | {name} | {w}" for name in names if name in WEIGHTED for w in ("ltc", "tf")]
    return results + [f"novelty | {name} | {m}" for name in small for m in ("B-vMF", "vMF", "GM")]


def cell(cells: Cells, key: str, show: Callable[[dict[str, Any]], str]) -> str:
    results = cells.kept(key)
    return show(results) if results is not None and results["status"] == DONE else summary(results)


def classes_table(cells: Cells, names: list[str], measure: str) -> Table:
    lines = []
    for name in names:
        figures = SOURCES[name].published
        line = [SOURCES[name].title]
        for method in METHODS:
            place = {"nmi": 0, "adjusted_rand_index": 1}.get(measure)
            beside = f" ({figures[method][place]:.3f})" if place is not None and method in figures else ""
            line.append(cell(cells, f"classes | {name} | {method}", lambda f: f"{f[measure]:.3f}") + beside)
        lines.append(line)
    return Table(("set", *METHODS), lines)


def firsts(cells: Cells, names: list[str]) -> str:
    """Count the data sets on which each method has the highest NMI, among the methods of the thesis and among all."""
    lines = []
    for group, methods in (("the methods of the thesis", COMPARED), ("all methods here", METHODS)):
        first: Counter[str] = Counter()
        for name in names:
            results = {m: cells.kept(f"classes | {name} | {m}") or {} for m in methods}
            if all("nmi" in cell for cell in results.values()):
                first[max(methods, key=lambda m: results[m]["nmi"])] += 1
        counts = ", ".join(f"{method} {n}" for method, n in first.most_common())
        lines.append(f"among {group}, on {first.total()} data sets: {counts}")
    return f"Highest NMI {'; '.join(lines)}."


def report(cells: Cells, names: list[str]) -> None:
    print(EXPLANATION)
    for what in (*MEASURES, "used"):
        print(f"\n{what.replace('_', ' ')}:\n\n{classes_table(cells, names, what).to_markdown()}")
    print(f"\n{firsts(cells, names)}")
    small = [name for name in names if name in SMALL]
    lines = [
        (SOURCES[name].title, method, *(cell(cells, f"held-out | {name} | {method} | {n}", score) for n in NUMBERS))
        for name in small for method in HELD_OUT
    ]  # fmt: skip
    heads = ("set", "method", *(f"{n} clusters" for n in NUMBERS))
    print(
        '\nMean log-density of held-out documents, in nats ("not annealed": started like vMF with k-means++, where no'
    )
    print(f"component becomes empty):\n\n{Table(heads, lines).to_markdown()}")
    lines = [(how, cell(cells, f"held-out | k9 | {how} | {K}", timed)) for how in CONCENTRATIONS]
    print(
        "\nPosterior of the concentrations, K9: nats per held-out document and seconds per fit (published: sampling"
    )
    print(f"is above bounding, 25.4 and 24.6 s):\n\n{Table(('posterior', 'result'), lines).to_markdown()}")
    lines = [
        (SOURCES[name].title, w, cell(cells, f"weights | {name} | {w}", four))
        for name in names if name in WEIGHTED for w in ("ltc", "tf")
    ]  # fmt: skip
    print(
        "\ntf-idf against tf, 30 clusters, NMI and ARI of vMF, then of K-means (published for CNAE: ltc .650 .426"
    )
    print(
        f".605 .311, tf .553 .310 .536 .288):\n\n{Table(('set', 'weights', 'result'), lines).to_markdown()}"
    )
    lines = [
        (SOURCES[name].title, m, cell(cells, f"novelty | {name} | {m}", both_kinds))
        for name in small for m in ("B-vMF", "vMF", "GM")
    ]  # fmt: skip
    print(
        "\nIn- and out-of-sample detection: accuracy (balanced accuracy); half of the classes are known. Published on"
    )
    print(
        f"other texts: .612 B-vMF, .558 vMF, .582 GM:\n\n{Table(('set', 'method', 'accuracy'), lines).to_markdown()}"
    )


def score(results: dict[str, Any]) -> str:
    return f"{results['score']:.1f}"


def timed(results: dict[str, Any]) -> str:
    return f"{results['score']:.1f}, {results['seconds']:.1f} s"


def both_kinds(results: dict[str, Any]) -> str:
    return f"{results['accuracy']:.3f} ({results['balanced']:.3f})"


def four(results: dict[str, Any]) -> str:
    return " ".join(f"{results[key]:.3f}" for key in ("vmf_nmi", "vmf_ari", "kmeans_nmi", "kmeans_ari"))


def main() -> None:
    options: argparse.Namespace = parse("Von Mises-Fisher mixtures on texts.", list(SOURCES), list(METHODS))
    cells = Cells("benchmarks.vmf", options)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options.quick))
        return
    if not options.table:
        for key in keys(options.names):
            if not key.startswith("classes") or key.rpartition(" | ")[2] in options.methods:
                cells.run(key)
    if options.quick:
        report(cells, options.names)
    else:
        with published(SECTION):
            report(cells, list(SOURCES))


if __name__ == "__main__":
    one_thread()
    main()
