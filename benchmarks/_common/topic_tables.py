"""Tables of `benchmarks.first_contact`: methods, probabilities, numbers of topics, other models, BERTopic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from arbora.metrics.table import Table
from benchmarks._common.cells import DONE, Cells, summary

SEEDS = 2
METHODS = "TopicModel", "NMF", "LDA"
NUMBERS = 5, 10, 20, 40, 60  # fixed numbers of topics
GRID = 2, 3, 4, 6, 8, 12, 16, 24, 32, 48  # numbers of topics that are tried
WORDS = 10


def cell(cells: Cells, key: str, show: Callable[[dict[str, Any]], str]) -> str:
    found = cells.kept(key)
    return show(found) if found is not None and found["status"] == DONE else summary(found)


def number(name: str, digits: int = 3) -> Callable[[dict[str, Any]], str]:
    return lambda found: "" if np.isnan(found[name]) else f"{found[name]:.{digits}f}"


def npmi_of_all(found: dict[str, Any]) -> str:
    """Show the NPMI of ten words of every topic, and the mean number that is listed."""
    return f"{found['npmi_of_all']:.3f} ({found['listed']:.1f})" if "listed" in found else ""


def report_methods(cells: Cells, titles: Mapping[str, str]) -> None:
    """Print words and agreement with classes, for each method."""
    lines = []
    for name, title in titles.items():
        for method in METHODS:
            key = f"topics | {name} | {method}"
            best = cell(
                cells,
                f"fixed | {name}",
                lambda f: "" if np.isnan(f["nmi"]) else f"{f['nmi']:.3f} ({f['n_topics']})",
            )
            lines.append(
                (
                    title if method == METHODS[0] else "",
                    method,
                    cell(cells, key, number("n_topics", 1)),
                    cell(cells, key, number("npmi")),
                    cell(cells, key, npmi_of_all),
                    cell(cells, key, number("diversity")),
                    cell(cells, key, number("nmi")),
                    best if method == METHODS[0] else "",
                    cell(cells, key, lambda f: f"{f['empty']:.1f} / {f['clones']:.1f}"),
                    cell(cells, key, number("seconds", 1)),
                )
            )
    heads = (
        "set",
        "method",
        "topics",
        "NPMI",
        f"of {WORDS} (listed)",
        "diversity",
        "NMI",
        "best K: NMI (K)",
        "empty / clones",
        "seconds",
    )
    print(Table(heads, lines).to_markdown())


def report_probabilities(cells: Cells, titles: Mapping[str, str]) -> None:
    """Print the time of the choice of the number, and the reliability of probabilities."""
    lines = [
        (
            title,
            cell(cells, f"topics | {name} | TopicModel", number("ratio", 2)),
            *(
                cell(cells, f"reliability | {name}", number(what, digits))
                for what, digits in (
                    ("temperature", 0),
                    ("accuracy", 3),
                    ("confidence", 3),
                    ("before", 3),
                    ("after", 3),
                )
            ),
        )
        for name, title in titles.items()
    ]
    print(
        "\nTime of `TopicModel()` relative to that with the same number of topics given. Probabilities: temperature,"
    )
    print(
        "how often half A of the words of a held-out document has the topic of half B, mean confidence, and the"
    )
    print("mean distance of both in ten bins, before and after tempering:\n")
    heads = "set", "time", "temperature", "agreement", "confidence", "error before", "error after"
    print(Table(heads, lines).to_markdown())


def report_numbers(cells: Cells, titles: Mapping[str, str]) -> None:
    """Print the agreement of halves by the number of topics, and the NMI of fixed numbers."""
    print(
        "\nThe number of topics: agreement of the topics of two halves of the words (last seed; smoothed, relative to"
    )
    print(
        "the largest; the smallest number with 0.8 is chosen; trials end when it no longer rises, or at the cap), and"
    )
    print("NMI of fixed numbers:\n")

    def agreement(k: int) -> Callable[[dict[str, Any]], str]:
        def show(found: dict[str, Any]) -> str:
            curve = found.get("curve", {})
            return f"{curve[str(k)] / max(curve.values()):.2f}" if str(k) in curve else ""

        return show

    def fixed(k: int) -> Callable[[dict[str, Any]], str]:
        return lambda found: f"{found['all'][str(k)]:.3f}" if str(k) in found.get("all", {}) else ""

    lines = [
        (
            title,
            cell(cells, f"topics | {name} | TopicModel", lambda f: str(f["n_each"][-1])),
            *(cell(cells, f"topics | {name} | TopicModel", agreement(k)) for k in GRID),
            *(cell(cells, f"fixed | {name}", fixed(k)) for k in NUMBERS),
        )
        for name, title in titles.items()
    ]
    heads = ("set", "chosen", *(f"M({k})" for k in GRID), *(f"NMI({k})" for k in NUMBERS))
    print(Table(heads, lines).to_markdown())


def report_structures(cells: Cells, titles: Mapping[str, str], structures: Iterable[str]) -> None:
    """Print empty and cloned topics of other models."""
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("found", lambda f: ", ".join(map(str, f["found"]))),
        ("empty", number("empty", 0)),
        ("clones", number("clones", 0)),
        ("largest cosine", number("cosine", 2)),
        ("largest share", number("largest", 2)),
    ]
    lines = [
        (title, one, *(cell(cells, f"structure | {name} | {one}", show) for _, show in columns))
        for name, title in titles.items()
        for one in structures
    ]
    print(
        f"\nOther models and the number asked for; topics found with {SEEDS} seeds, and the worst of these:"
    )
    print("empty and cloned topics, the largest cosine of two means, the share of the largest topic.\n")
    print(Table(("set", "model", *(head for head, _ in columns)), lines).to_markdown())


def report_bertopic(cells: Cells, titles: Mapping[str, str]) -> None:
    """Print the comparison with BERTopic on samples of the texts, if it was measured."""
    found = {title: cells.kept(f"bertopic | {name}") for name, title in titles.items()}
    measured = [(title, one) for title, one in found.items() if one is not None and one["status"] == DONE]
    if not measured:
        print("\nBERTopic is not compared: `--bertopic` was not given.")
        return
    versions = ", ".join(f"{name} {number}" for name, number in measured[0][1]["versions"].items())
    print(
        "\nBERTopic (all-MiniLM-L6-v2; English stop words are left out; its own number of topics, and that of"
    )
    print(
        "`TopicModel()`), on the same random samples of texts. The encoder reads 256 tokens, little of a long text."
    )
    print(f"Outliers are a topic of their own in the NMI. Seconds with the encoder; one seed; {versions}.")
    print("The other sets were not measured.\n")
    lines = [
        (
            f"{title}, {one['n_texts']} texts" if k == 0 else "",
            row["method"],
            str(row["n_topics"]),
            f"{row['npmi']:.3f}",
            f"{row['diversity']:.3f}",
            "" if np.isnan(row["nmi"]) else f"{row['nmi']:.3f}",
            f"{row['outliers']:.2f}",
            f"{row['seconds']:.1f}",
        )
        for title, one in measured
        for k, row in enumerate(one["rows"])
    ]
    heads = "set", "method", "topics", "NPMI", "diversity", "NMI", "outliers", "seconds"
    print(Table(heads, lines).to_markdown())
