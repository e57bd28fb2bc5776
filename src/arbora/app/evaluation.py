"""How well a classifier does on documents it has not seen: the evaluation of a model folder, and its tables.

Everything is measured against labels by name in one tree. What the folder holds is described in
``docs/model_folder.md``, `evaluation.json`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbora.app.answers import Filing
from arbora.metrics import (
    expected_calibration_error,
    f1_by_level,
    hierarchical_f1,
    macro_f1,
    micro_f1,
    reliability_curve,
    sign_test,
    tree_induced_error,
)
from arbora.metrics.classification import count_classes, count_ratios
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

N_CONFUSIONS = 50
N_EXAMPLES = 3
_SHOWN = 8  # rows of the tables for people
_SCORES = {
    "micro_f1": "Micro-F1",
    "macro_f1": "Macro-F1",
    "hierarchical_f1": "Hierarchical F1",
    "tree_induced_error": "Tree-induced error",
    "calibration_error": "Calibration error",
}


class Trial(NamedTuple):
    """What was tried: truth and answers for the tested documents, and their numbers among all documents."""

    truth: Any  # labels, or lists of labels
    filing: Filing
    baseline: Any  # labels by the baseline, or None
    documents: np.ndarray
    n_train: int | None  # None: not known
    how: str


def evaluate(trial: Trial, hierarchy: Hierarchy) -> dict[str, Any]:
    """Measure a trial.

    Parameters
    ----------
    trial : Trial
    hierarchy : Hierarchy
        Tree or DAG with all labels among its nodes.

    Returns
    -------
    dict
        Content of ``evaluation.json``; "documents" of confusions are numbers among all documents.

    Examples
    --------
    >>> tree = Hierarchy.from_edges([("root", "a"), ("root", "b")])
    >>> filing = Filing(["a", "a"], [0.9, 0.6], ["a", "a"], np.array([0.9, 0.6]))
    >>> result = evaluate(Trial(["a", "b"], filing, None, np.array([3, 5]), 8, "given"), tree)
    >>> result["scores"]["micro_f1"], result["confusions"]
    (0.5, [{'true': 2, 'predicted': 1, 'count': 1, 'share': 1.0, 'documents': [5]}])
    """
    truth, found, baseline = trial.truth, trial.filing.labels, trial.baseline
    systems = {"": found} | ({} if baseline is None else {"baseline": baseline})
    classes = sorted({name for y in (truth, *systems.values()) for row in _as_sets(y) for name in row})
    hits = [name in names for name, names in zip(trial.filing.likeliest, _as_sets(truth), strict=True)]
    confidence = np.clip(trial.filing.confidence, 0.0, 1.0)
    curve = reliability_curve(hits, confidence)
    scores = {name: _scores(truth, y, hierarchy, classes) for name, y in systems.items()}
    scores[""]["calibration_error"] = expected_calibration_error(hits, confidence)
    return {
        "n_train": trial.n_train,
        "n_test": len(found),
        "how": trial.how,
        "scores": scores[""],
        "baseline": None if baseline is None else {"name": "flat", "scores": scores["baseline"]},
        "sign_test": None if baseline is None else _sign_test(truth, found, baseline),
        "levels": _levels(truth, found, baseline, hierarchy),
        "nodes": _nodes(truth, found, baseline, hierarchy),
        "confusions": _confusions(truth, found, hierarchy, trial.documents),
        "reliability": {
            "confidence": curve.confidence.tolist(),
            "accuracy": curve.accuracy.tolist(),
            "n_documents": curve.n_rows.tolist(),
            "edges": curve.edges.tolist(),
        },
    }


def _as_sets(y: Any) -> list[Sequence[Any]]:
    return [
        names if isinstance(names, list) else [names] for names in (y if isinstance(y, list) else y.tolist())
    ]


def _scores(truth: Any, found: Any, hierarchy: Hierarchy, classes: list[Any]) -> dict[str, Any]:
    return {
        "micro_f1": micro_f1(truth, found, labels=classes),
        "macro_f1": macro_f1(truth, found, labels=classes),
        "hierarchical_f1": hierarchical_f1(truth, found, hierarchy),
        "tree_induced_error": tree_induced_error(truth, found, hierarchy),
        "calibration_error": None,
    }


def _sign_test(truth: Any, found: Any, baseline: Any) -> dict[str, Any]:
    test = sign_test(truth, found, baseline, unit="instance")
    won = int(test.statistic)
    return {"won": won, "lost": int(test.n_pairs) - won, "p_value": _number(test.p_value)}


def _number(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _levels(truth: Any, found: Any, baseline: Any, hierarchy: Hierarchy) -> list[dict[str, Any]]:
    # The same nodes for both, so that averages compare: those with documents.
    table = f1_by_level(truth, found, hierarchy, nodes="true")
    other = None if baseline is None else f1_by_level(truth, baseline, hierarchy, nodes="true")
    rows = []
    for place, (level, micro, macro, n_nodes) in enumerate(table):
        _, base_micro, base_macro, _ = other.rows[place] if other is not None else (None, None, None, None)
        rows.append(
            {
                "level": int(level),
                "n_nodes": int(n_nodes),
                "micro_f1": _number(micro),
                "macro_f1": _number(macro),
                "baseline_micro_f1": _number(base_micro),
                "baseline_macro_f1": _number(base_macro),
            }
        )
    return rows


def _nodes(truth: Any, found: Any, baseline: Any, hierarchy: Hierarchy) -> list[dict[str, Any]]:
    """Precision, recall and F1 of every node that is true or predicted somewhere, labels closed under ancestors."""
    true, pred = (hierarchy.close(hierarchy.indicator(_as_sets(y))) for y in (truth, found))
    counts = count_classes(true, pred)
    precision, recall, f1 = count_ratios(counts)
    base_f1 = [None] * hierarchy.n_nodes
    if baseline is not None:
        base = count_classes(true, hierarchy.close(hierarchy.indicator(_as_sets(baseline))))
        base_f1 = count_ratios(base)[2].tolist()
    return [
        {
            "node": node,
            "support": int(counts.actual[node]),
            "predicted": int(counts.predicted[node]),
            "precision": float(precision[node]),
            "recall": float(recall[node]),
            "f1": float(f1[node]),
            "baseline_f1": base_f1[node],
        }
        for node in np.flatnonzero((counts.actual > 0) | (counts.predicted > 0)).tolist()
    ]


def _confusions(truth: Any, found: Any, hierarchy: Hierarchy, documents: np.ndarray) -> list[dict[str, Any]]:
    """Pairs of a label that was missed and one that was wrongly given to the same document, most frequent first."""
    pairs: Counter[tuple[Any, Any]] = Counter()
    support: Counter[Any] = Counter()
    examples: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for true, pred, document in zip(_as_sets(truth), _as_sets(found), documents.tolist(), strict=True):
        support.update(true)
        missed = [name for name in true if name not in pred]
        extra = [name for name in pred if name not in true]
        for pair in ((a, b) for a in missed for b in extra):
            pairs[pair] += 1
            if len(examples[pair]) < N_EXAMPLES:
                examples[pair].append(document)
    ranked = sorted(pairs, key=lambda pair: (-pairs[pair], *map(str, pair)))[:N_CONFUSIONS]
    return [
        {
            "true": hierarchy.id_of(a),
            "predicted": hierarchy.id_of(b),
            "count": pairs[a, b],
            "share": pairs[a, b] / support[a],
            "documents": examples[a, b],
        }
        for a, b in ranked
    ]


def evaluation_text(evaluation: Mapping[str, Any], names: Sequence[str]) -> str:
    """Write an evaluation in tables, for people.

    Parameters
    ----------
    evaluation : dict
        Of `evaluate`.
    names : sequence of str
        Names of the nodes by id.

    Returns
    -------
    str
    """
    parts = [_introduce(evaluation), str(_score_table(evaluation)), str(_level_table(evaluation))]
    weak = sorted(evaluation["nodes"], key=lambda node: (node["f1"], -node["support"]))
    weak = [node for node in weak if node["support"] and node["f1"] < 1.0][:_SHOWN]
    if weak:
        rows = [(names[n["node"]], n["support"], n["precision"], n["recall"], n["f1"]) for n in weak]
        columns = ("Weakest nodes", "Documents", "Precision", "Recall", "F1")
        parts.append(str(Table(columns, rows, ("", ",d", "percent", "percent", "percent"))))
    worst = evaluation["confusions"][:_SHOWN]
    if worst:
        rows = [(names[c["true"]], names[c["predicted"]], c["count"], c["share"]) for c in worst]
        columns = ("Filed wrongly: belongs to", "was put into", "Documents", "% of class")
        parts.append(str(Table(columns, rows, ("", "", ",d", "percent"))))
    return "\n\n".join(parts)


def _introduce(evaluation: Mapping[str, Any]) -> str:
    given = evaluation["how"] == "given"
    what = "test documents" if given else "documents that were held out"
    line = f"Evaluated on {evaluation['n_test']:,} {what}"
    line += "." if evaluation["n_train"] is None else f", after training on {evaluation['n_train']:,}."
    if not given:
        line += " The saved model is trained on all of them."
    test = evaluation["sign_test"]
    if test is not None:
        p_value = "-" if test["p_value"] is None else f"{test['p_value']:.2g}"
        line += (
            f"\nDocuments that only the model has right: {test['won']:,}; only the flat model: {test['lost']:,} "
            f"(sign test, p = {p_value})."
        )
    return line


def _score_table(evaluation: Mapping[str, Any]) -> Table:
    base = evaluation["baseline"]
    rows = []
    for key, name in _SCORES.items():
        form = "{:.3f}" if key in ("tree_induced_error", "calibration_error") else "{:.2%}"
        values = [evaluation["scores"][key], *([base["scores"][key]] if base else [])]
        rows.append((name, *("-" if value is None else form.format(value) for value in values)))
    return Table(("Score", "Model", *(["Flat"] if base else [])), rows)


def _level_table(evaluation: Mapping[str, Any]) -> Table:
    base = evaluation["baseline"] is not None
    columns = (
        "Level",
        "# Nodes",
        "Micro-F1",
        "Macro-F1",
        *(("Flat micro-F1", "Flat macro-F1") if base else ()),
    )
    keys = ("level", "n_nodes", "micro_f1", "macro_f1", "baseline_micro_f1", "baseline_macro_f1")
    rows = [tuple(level[key] for key in keys[: len(columns)]) for level in evaluation["levels"]]
    return Table(columns, rows, ("d", ",d", *["percent"] * (len(columns) - 2)))
