"""The expand part of the demo: hide a third of the modules of one package, and find them again."""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np

from arbora.app.documents import Documents
from arbora.app.expansion import ExpandedDocuments, ExpansionOptions, expand_documents
from arbora.app.folder import Content
from arbora.arrays import Matrix
from arbora.cli.demo.printing import print_paragraph, shorten_list
from arbora.datasets import Dataset
from arbora.datasets.base import name_array
from arbora.metrics import expansion_accuracy
from arbora.metrics.table import Table

MIN_DOCUMENTS = 20  # documents of a module that takes part
LABELLED = 0.5  # share of the documents of the other modules that keep their labels
_EXAMPLES = 4  # words of a new group


class Hidden(NamedTuple):
    """Documents of which some have lost their labels, the true modules, and the modules that are hidden."""

    documents: Documents
    truth: Matrix
    names: list[str]


def hide_modules(data: Dataset, branch: str, seed: int = 0) -> Hidden:
    """Hide a third of the modules of a branch, and half of the labels of the others."""
    rng = np.random.default_rng(seed)
    labels = np.asarray(data.y, object)
    inside = [number for number, label in enumerate(labels) if str(label).startswith(f"{branch}/")]
    depth = branch.count("/") + 2
    modules = name_array("/".join(str(label).split("/")[:depth]) for label in labels[inside])
    names, counts = np.unique(modules.astype(str), return_counts=True)
    large = names[counts >= MIN_DOCUMENTS]
    rows = np.flatnonzero(np.isin(modules.astype(str), large))
    truth = modules[rows]
    hidden = sorted(rng.permutation(large)[: max(1, len(large) // 3)].tolist())
    shown = ~np.isin(truth.astype(str), hidden) & (rng.random(len(truth)) < LABELLED)
    texts = [(data.texts or [])[inside[row]] for row in rows.tolist()]
    ids = [f"{label} #{inside[row] + 1}" for row, label in zip(rows.tolist(), truth, strict=True)]
    y = name_array(label if there else None for label, there in zip(truth, shown, strict=True))
    return Hidden(Documents.from_texts(texts, y, name=f"{branch}, partly sorted", ids=ids), truth, hidden)


def show_expansion(data: Dataset, branch: str) -> Content:
    """Hide modules, find them again, print how well; return the content of the model folder."""
    hidden = hide_modules(data, branch)
    known_groups = sorted(set(hidden.truth.tolist()) - set(hidden.names))
    n_pile = sum(label is None for label in hidden.documents.y)
    print_paragraph(
        f"{len(known_groups) + len(hidden.names)} modules of {branch} with {MIN_DOCUMENTS} documents or more. "
        f"The labels of {len(hidden.names)} of them are hidden ({', '.join(hidden.names)}), and half of the labels "
        f"of the others. The pile holds {n_pile:,} of {len(hidden.truth):,} documents."
    )
    learned = ExpansionOptions(metric="within", clusterer="vmf")
    tried = {
        "estimated number of new groups": learned,
        f"{len(hidden.names)} new groups asked for": learned._replace(new=len(hidden.names)),
        f"{len(hidden.names)} asked for, nothing learned": learned._replace(
            new=len(hidden.names), metric="identity"
        ),
    }
    rows, expanded = [], {}
    for name, options in tried.items():
        start = time.perf_counter()
        with warnings.catch_warnings():  # the table shows how many groups are found
            warnings.filterwarnings("ignore", ".*were asked for, and")
            expanded[name] = expand_documents(hidden.documents, options)
        rows.append((name, *_scores(expanded[name], hidden, known_groups), time.perf_counter() - start))
    columns = ("ExpandClusters", "found", "all", "known", "new", "seconds")
    print(f"\n{Table(columns, tuple(rows), ('', 'd', 'percent', 'percent', 'percent', '.1f'))}")
    print_paragraph(
        "Hungarian accuracy over the pile, with one assignment of groups to modules: all documents, those of known "
        "modules, those of hidden ones."
    )
    best = expanded["estimated number of new groups"]
    low, high = best.estimator.n_new_range_
    content = best.content(settings={"command": "demo", "seed": 0})
    print(f"\n{_new_groups(content, best, hidden)}")
    print_paragraph(
        f"The number of new groups is an estimate; probably {low} to {high}. Mostly: the module that most "
        "documents of the group come from, and its share of the group. A known module there means that the group is "
        "a part of that module."
    )
    return content


def _scores(
    expanded: ExpandedDocuments, hidden: Hidden, known_groups: list[str]
) -> tuple[int, float, float, float]:
    """Return the number of new groups, and the accuracies over the documents of the pile."""
    position = {name: row for row, name in enumerate(hidden.documents.ids)}
    planned = [entry for entry in expanded.plan if entry.group is not None]
    truth = hidden.truth[[position[entry.document] for entry in planned]].astype(str)
    scores = expansion_accuracy(truth, np.array([entry.group for entry in planned]), known_groups)
    return int(expanded.estimator.n_new_), *scores


def _new_groups(content: Content, expanded: ExpandedDocuments, hidden: Hidden) -> Table:
    """Table of the new groups with their words and the modules that they are found to be."""
    module = dict(zip(hidden.documents.ids, hidden.truth.tolist(), strict=True))
    words = {node["name"]: [word for word, _ in node["words"]] for node in content.nodes}
    rows = []
    for group in expanded.estimator.new_groups_:
        inside = [module[entry.document] for entry in expanded.plan if entry.group == group.name]
        names, counts = np.unique(np.array(inside, str), return_counts=True)
        best = int(counts.argmax())
        listed = shorten_list(", ".join(words[group.name][:_EXAMPLES]), 40)
        rows.append((group.name, group.size, str(names[best]), counts[best] / counts.sum(), listed))
    columns = ("group", "documents", "mostly", "share", "words")
    return Table(columns, tuple(rows), ("", ",d", "", "percent", ""))
