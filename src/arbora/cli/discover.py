"""``arbora discover``: find topics in documents and write a model folder.

Topics are clusters of directions: flat (`VMFMixture`, or its Bayesian form, or spherical k-means), a tree of them
(`HierarchicalVMFMixture`), or flat ones that change with time (`TemporalVMFMixture`).
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora import discover
from arbora.cli.reading import Reading, Words, feature_names, learn_rows, make_vectorizer, read, source_of
from arbora.datasets.documents import Documents
from arbora.explore.answers import known_rows, topic_means, topic_probabilities
from arbora.explore.folder import Content, check_target, write_folder
from arbora.explore.nodes import N_WORDS, Filed, describe_documents, show, topic_titles
from arbora.explore.time import choose_bins, describe_time, points_of, read_times
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

DEFAULT_TOPICS = 20
_SHOWN_WORDS = 6
_NAMED = 3  # documents that are named in a warning


class Topics(NamedTuple):
    """Topics in a tree with one root: means and concentrations of its nodes, node and probability of each row."""

    tree: Hierarchy
    means: NDArray[Any]
    concentrations: NDArray[Any] | None
    node: NDArray[np.int64]
    probability: NDArray[np.float64]


def run(
    data: str,
    out: str,
    sample: int = 50_000,
    topics: int | str | None = None,
    tree: tuple[int, ...] | None = None,
    over_time: str | None = None,
    bins: str | int | None = None,
    model: str = "vmf",
    starts: int = 1,
    seed: int = 0,
    jobs: int = -1,
    as_json: bool = False,
    **more: Any,
) -> None:
    """Find topics and write a model folder; arguments are those of the command."""
    start = time.perf_counter()
    check_target(out)
    if tree and over_time:
        raise ValueError("--tree and --over-time do not go together: topics over time are flat")
    how, words = Reading.from_arguments(more), Words.from_arguments(more)
    common = {"n_init": max(1, starts), "n_jobs": jobs, "random_state": seed, "verbose": 1}
    estimator = make_mixture(topics, tree, over_time, model, common)
    extra = (over_time,) if over_time else ()
    documents = read(source_of(data, how, labels="optional", extra=extra))
    vectorizer = None if documents.texts is None else make_vectorizer(words, len(documents))
    X = learn_rows(documents, vectorizer)
    documents, X, notices = without_empty(documents, X)
    names = feature_names(documents, vectorizer, X.shape[1])
    times = None if over_time is None else read_times(documents, over_time)
    if times is None:
        estimator.fit(X)
    else:
        estimator.set_params(bins=choose_bins(times, bins)).fit(X, times)
    settings = {"command": "discover", "data": data, "model": type(estimator).__name__, "seed": seed}
    settings |= {"tree": list(tree)} if tree else {"topics": topics or DEFAULT_TOPICS}
    settings |= {"language": words.language} | ({"over_time": over_time} if over_time else {})
    kind = "topic tree" if tree else "topics over time" if over_time else "topics"
    kept = {"vectorizer": vectorizer, "estimator": estimator}
    kept["feature_names"] = None if documents.feature_names is None else names
    content = content_of(kind, kept, documents, X, names, sample, settings, notices, times)
    write_folder(out, content)
    _tell(content, out, as_json, time.perf_counter() - start)


def make_mixture(
    topics: int | str | None,
    tree: tuple[int, ...] | None,
    over_time: str | None,
    model: str,
    common: dict[str, Any],
) -> Any:
    """Make the estimator that the arguments ask for.

    Examples
    --------
    >>> make_mixture(5, None, None, "k-means", {}).n_clusters
    5
    """
    if tree:
        return discover.HierarchicalVMFMixture(branching=tree, **common)
    number = DEFAULT_TOPICS if topics is None else topics
    if over_time:
        if number == "auto":
            raise ValueError("--over-time needs a number of topics: give --topics 20, for example")
        if not hasattr(discover, "TemporalVMFMixture"):
            raise ValueError(
                "--over-time needs TemporalVMFMixture, which this version of Arbora does not have"
            )
        return discover.TemporalVMFMixture(number, **common)
    if model == "k-means":
        if number == "auto":
            raise ValueError("--model k-means needs a number of topics: give --topics 20, for example")
        return discover.SphericalKMeans(number, **common)
    return (discover.BayesianVMFMixture if model == "bayes" else discover.VMFMixture)(number, **common)


def without_empty(documents: Documents, X: Any) -> tuple[Documents, Any, list[str]]:
    """Leave out documents without any word that counts, which point nowhere; say which."""
    known = known_rows(X)
    n_empty = int((~known).sum())
    if not n_empty:
        return documents, X, []
    if n_empty == len(known):
        raise ValueError(
            f"no document of {documents.name} has a word that occurs in another: there are no topics"
        )
    some = ", ".join(documents.ids[row] for row in np.flatnonzero(~known)[:_NAMED].tolist())
    some += ", ..." if n_empty > _NAMED else ""
    notice = f"{n_empty:,} documents without any word that counts are left out ({some})."
    warnings.warn(notice.rstrip("."), stacklevel=2)
    kept = np.flatnonzero(known)
    return documents.take(kept), X[kept], [notice]


def topics_of(estimator: Any, X: Any, times: Any = None) -> Topics:
    """Put the topics of a fitted model into a tree with one root, and the rows into the topics."""
    proba, means = topic_probabilities(estimator, X, times), topic_means(estimator)
    kappa = getattr(estimator, "concentrations_", None)
    if hasattr(estimator, "hierarchy_"):
        tree, leaves = estimator.hierarchy_, estimator.leaf_ids_
        proba = proba[:, leaves]
    else:
        names = [str(topic) for topic in range(len(means))]
        tree = Hierarchy.from_edges([("root", name) for name in names], nodes=["root", *names])
        leaves = np.arange(1, len(means) + 1)
        size = np.bincount(proba.argmax(axis=1), minlength=len(means))
        means = np.vstack([size @ means / len(proba), means])
        kappa = None if kappa is None else np.append(np.nan, kappa)
    best = proba.argmax(axis=1)
    return Topics(tree, means, kappa, leaves[best], proba[np.arange(len(best)), best])


def content_of(
    kind: str,
    kept: dict[str, Any],
    documents: Documents,
    X: Any,
    names: list[str],
    sample: int,
    settings: dict[str, Any],
    notices: list[str],
    times: NDArray[Any] | None = None,
) -> Content:
    """Gather all that goes into the model folder."""
    found = topics_of(kept["estimator"], X, times)
    words = [_top(mean, names) for mean in found.means]
    n_documents = len(documents)
    ones = np.ones(n_documents, bool)
    at = sp.csr_array((ones, found.node, np.arange(n_documents + 1)), shape=(n_documents, found.tree.n_nodes))
    shown = show(
        Filed(found.tree, X, at),
        words,
        topic_titles(found.tree, words),
        sample=sample,
        centres=found.means,
        random_state=settings["seed"],
    )
    if found.concentrations is not None:
        for node, kappa in zip(shown.nodes, found.concentrations.tolist(), strict=True):
            node["concentration"] = round(kappa, 3) if np.isfinite(kappa) else None
    answers = {
        "node": found.node[shown.sampled].tolist(),
        "probability": found.probability[shown.sampled].round(4).tolist(),
    }
    over_time = None
    if times is not None:
        estimator = kept["estimator"]
        answers["time"] = points_of(estimator.times_, times[shown.sampled]).tolist()
        topics = np.arange(1, found.tree.n_nodes)
        over_time = describe_time(estimator, settings["over_time"], times, topics, names)
    about = {
        "name": documents.name,
        "settings": settings,
        "n_documents": n_documents,
        "multilabel": False,
        "notices": [*notices, *shown.notices],
    }
    return Content(
        kind,
        about,
        kept,
        shown.nodes,
        describe_documents(documents, shown.sampled, answers),
        shown.positions,
        shown.node_positions,
        topics_text(shown.nodes),
        time=over_time,
    )


def _top(mean: NDArray[Any], names: list[str]) -> list[tuple[str, float]]:
    count = min(N_WORDS, len(mean))
    top = np.argpartition(-mean, count - 1)[:count]
    top = top[np.lexsort((top, -mean[top]))]
    return [(names[j], float(mean[j])) for j in top.tolist() if mean[j] > 0]


def topics_text(nodes: list[dict[str, Any]]) -> str:
    """Table of topics with their sizes and words, the largest first, children under their parents.

    Examples
    --------
    >>> node = {"id": 0, "parent": None, "depth": 0, "name": "root", "size": 2, "share": 1.0, "words": [["sea", 0.5]]}
    >>> print(topics_text([node, node | {"id": 1, "parent": 0, "depth": 1, "name": "0"}]))
    Topic  Documents       %  Words
    -----  ---------  ------  -----
    0              2  100.00  sea
    """
    children: dict[Any, list[dict[str, Any]]] = {}
    for node in sorted(nodes, key=lambda node: (-node["size"], node["id"])):
        children.setdefault(node["parent"], []).append(node)
    rows, waiting = [], list(reversed(children[None]))
    while waiting:
        node = waiting.pop()
        if node["parent"] is not None:
            words = ", ".join(word for word, _ in node["words"][:_SHOWN_WORDS])
            rows.append(("  " * (node["depth"] - 1) + node["name"], node["size"], node["share"], words))
        waiting += reversed(children.get(node["id"], []))
    return str(Table(("Topic", "Documents", "%", "Words"), rows, ("", ",d", "percent", "")))


def _tell(content: Content, out: str, as_json: bool, seconds: float) -> None:
    estimator, about = content.model["estimator"], content.about
    leaves = len(content.nodes) - len({node["parent"] for node in content.nodes} - {None})
    if as_json:
        result = {
            "out": out,
            "kind": content.kind,
            "n_documents": about["n_documents"],
            "n_topics": leaves,
            "topics": [
                {key: node[key] for key in ("name", "title", "size", "share", "words")}
                for node in content.nodes
            ],
            "seconds": round(seconds, 2),
        }
        print(json.dumps(result, allow_nan=False))
        return
    print(
        f"{about['n_documents']:,} documents, {estimator.n_features_in_:,} words, {leaves:,} topics; "
        f"{type(estimator).__name__}.\n\n{content.report}\n\nWritten to {out} in {seconds:.1f} s."
    )
