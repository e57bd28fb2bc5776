"""``arbora discover``: find topics in documents and write a model folder.

Topics are clusters of directions: flat (`VMFMixture`, or its Bayesian form, or spherical k-means), a tree of them
(`HierarchicalVMFMixture`), or flat ones that change with time (`TemporalVMFMixture`).
"""

from __future__ import annotations

import json
import time
from typing import Any

from arbora import discover
from arbora.app.contents import Subject, topics_content, without_empty
from arbora.app.folder import Content, check_target, write_folder
from arbora.app.reading import Reading, Words, feature_names, learn_rows, make_vectorizer, read, source_of
from arbora.app.topic_times import choose_bins, read_times

DEFAULT_TOPICS = 20


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
    subject = Subject(estimator, X, documents, names, vectorizer)
    content = topics_content(subject, times, sample=sample, settings=settings, notices=notices)
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


def _tell(content: Content, out: str, as_json: bool, seconds: float) -> None:
    estimator, about = content.model["estimator"], content.about
    leaves = len(content.nodes) - len({node["parent"] for node in content.nodes} - {None})
    if as_json:
        told = ("name", "title", "parent", "size", "share", "words")
        topics = [{key: node[key] for key in told} for node in content.nodes]
        result = {
            "out": out,
            "kind": content.kind,
            "n_documents": about["n_documents"],
            "n_topics": leaves,
            "topics": topics,
            "seconds": round(seconds, 2),
        }
        for topic in topics:
            topic["parent"] = None if topic["parent"] is None else content.nodes[topic["parent"]]["name"]
        if content.time is not None:
            result["times"] = content.time["bins"]
            for node, shares in zip(content.time["nodes"], content.time["shares"], strict=True):
                topics[node]["shares"] = shares
        print(json.dumps(result, allow_nan=False))
        return
    print(
        f"{about['n_documents']:,} documents, {estimator.n_features_in_:,} words, {leaves:,} topics; "
        f"{type(estimator).__name__}.\n\n{content.report}\n\nWritten to {out} in {seconds:.1f} s."
    )
