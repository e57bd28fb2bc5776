"""Measure a classifier on documents that it has not seen.

All measures compare label names in one tree. ``docs/model_folder.md`` describes the result under `evaluation.json`;
`arbora.app.evaluation` prints it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbora.app.answers import Predictions, label_names_of, predict_with_probability
from arbora.app.documents import Documents
from arbora.app.folder import Folder, FolderError
from arbora.app.labels import as_text, check_labels, label_sets, rooted_tree
from arbora.app.text_rows import transform_rows
from arbora.arrays import Ints
from arbora.metrics import (
    calibration_by_level,
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
_MAX_PROBABILITIES = 1 << 26  # rows times nodes: 512 MiB


class Trial(NamedTuple):
    """True labels of the test documents, and what was predicted for them."""

    truth: Any  # one label, or a list of labels, for each document
    predictions: Predictions
    baseline: list[Any] | None  # labels predicted by a flat model
    documents: Ints  # row numbers of the test documents among all documents
    n_train: int | None  # number of training documents, if known
    how: str  # "held out" or "given"
    calibration: Table | None = None  # quality of the node probabilities at each level


def trial_of(model: Any, X: Any, y: Any, baseline: Any = None) -> Trial:
    """Let a fitted classifier, and perhaps a baseline, predict given rows with labels; all labels as strings.

    >>> from arbora.classify import OneVsRestSVC
    >>> model = OneVsRestSVC(random_state=0).fit(np.eye(2), [7, 8])
    >>> trial_of(model, np.eye(2), [7, 7]).predictions.labels
    ['7', '8']
    """
    truth, predictions = as_text(label_names_of(model, y)), predict_with_probability(model, X)
    predictions = predictions._replace(
        labels=as_text(predictions.labels), likeliest=as_text(predictions.likeliest)
    )
    other = None if baseline is None else as_text(label_names_of(baseline, baseline.predict(X)))
    return Trial(truth, predictions, other, np.arange(len(truth)), None, "given")


def evaluate(trial: Trial, hierarchy: Hierarchy) -> dict[str, Any]:
    """Measure a trial; return the content of ``evaluation.json``.

    "documents" of confusions are row numbers among all documents. All labels must be nodes of the hierarchy, a tree
    or a DAG.
    """
    truth, predicted, baseline = trial.truth, trial.predictions.labels, trial.baseline
    systems = {"": predicted} | ({} if baseline is None else {"baseline": baseline})
    classes = sorted({name for y in (truth, *systems.values()) for row in label_sets(y) for name in row})
    hits = [name in names for name, names in zip(trial.predictions.likeliest, label_sets(truth), strict=True)]
    confidence = np.clip(trial.predictions.confidence, 0.0, 1.0)
    curve = reliability_curve(hits, confidence)
    scores = {name: _scores(truth, y, hierarchy, classes) for name, y in systems.items()}
    scores[""]["calibration_error"] = expected_calibration_error(hits, confidence)
    return {
        "n_train": trial.n_train,
        "n_test": len(predicted),
        "how": trial.how,
        "scores": scores[""],
        "baseline": None if baseline is None else {"name": "flat", "scores": scores["baseline"]},
        "sign_test": None if baseline is None else _sign_test(truth, predicted, baseline),
        "levels": _levels(trial, hierarchy),
        "nodes": _nodes(truth, predicted, baseline, hierarchy),
        "confusions": _confusions(truth, predicted, hierarchy, trial.documents),
        "reliability": {
            "confidence": curve.confidence.tolist(),
            "accuracy": curve.accuracy.tolist(),
            "n_documents": curve.n_rows.tolist(),
            "edges": curve.edges.tolist(),
        },
    }


def _scores(truth: Any, predicted: Any, hierarchy: Hierarchy, classes: list[Any]) -> dict[str, Any]:
    return {
        "micro_f1": micro_f1(truth, predicted, labels=classes),
        "macro_f1": macro_f1(truth, predicted, labels=classes),
        "hierarchical_f1": hierarchical_f1(truth, predicted, hierarchy),
        "tree_induced_error": tree_induced_error(truth, predicted, hierarchy),
        "calibration_error": None,
    }


def _sign_test(truth: Any, predicted: Any, baseline: Any) -> dict[str, Any]:
    test = sign_test(truth, predicted, baseline, unit="instance")
    won = int(test.statistic)
    return {"won": won, "lost": int(test.n_pairs) - won, "p_value": _number(test.p_value)}


def _number(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def level_calibration(model: Any, X: Any, truth: Any, hierarchy: Hierarchy) -> Table | None:
    """Quality of the node probabilities of a model at each level; None if there are too many to keep in memory."""
    if not hasattr(model, "predict_node_proba") or X.shape[0] * hierarchy.n_nodes > _MAX_PROBABILITIES:
        return None
    return calibration_by_level(truth, model.predict_node_proba(X), hierarchy)


def _levels(trial: Trial, hierarchy: Hierarchy) -> list[dict[str, Any]]:
    truth, predicted, baseline = trial.truth, trial.predictions.labels, trial.baseline
    quality = {int(row[0]): row[1:4] for row in (() if trial.calibration is None else trial.calibration.rows)}
    # Average over the nodes with documents, so that both models are compared on the same nodes.
    table = f1_by_level(truth, predicted, hierarchy, nodes="true")
    other = None if baseline is None else f1_by_level(truth, baseline, hierarchy, nodes="true")
    rows = []
    for place, (level, micro, macro, n_nodes) in enumerate(table.rows):
        _, base_micro, base_macro, _ = other.rows[place] if other is not None else (None, None, None, None)
        log_loss, brier, error = quality.get(int(level), (None, None, None))
        rows.append(
            {
                "level": int(level),
                "n_nodes": int(n_nodes),
                "micro_f1": _number(micro),
                "macro_f1": _number(macro),
                "baseline_micro_f1": _number(base_micro),
                "baseline_macro_f1": _number(base_macro),
                "log_loss": _number(log_loss),
                "brier": _number(brier),
                "calibration_error": _number(error),
            }
        )
    return rows


def _nodes(truth: Any, predicted: Any, baseline: Any, hierarchy: Hierarchy) -> list[dict[str, Any]]:
    """Precision, recall and F1 of every node that is true or predicted; a document counts at all ancestors too."""
    true, pred = (hierarchy.close(hierarchy.indicator(label_sets(y))) for y in (truth, predicted))
    counts = count_classes(true, pred)
    precision, recall, f1 = count_ratios(counts)
    base_f1 = [None] * hierarchy.n_nodes
    if baseline is not None:
        base = count_classes(true, hierarchy.close(hierarchy.indicator(label_sets(baseline))))
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


def _confusions(truth: Any, predicted: Any, hierarchy: Hierarchy, documents: Ints) -> list[dict[str, Any]]:
    """Pairs of a missed label and a wrong label of the same document, most frequent first."""
    pairs: Counter[tuple[Any, Any]] = Counter()
    support: Counter[Any] = Counter()
    examples: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for true, pred, document in zip(
        label_sets(truth), label_sets(predicted), documents.tolist(), strict=True
    ):
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


def evaluate_folder(
    folder: Folder, documents: Documents, *, verbose: int = 0
) -> tuple[dict[str, Any], list[str]]:
    """Measure the classifier of a model folder on labelled documents, as `evaluate`.

    The labels must be nodes of the model, whose names are returned too.
    """
    require_classifier(folder)
    model = folder.load_model()
    estimator = model["estimator"]
    flat = rooted_tree(None, [str(name) for name in estimator.nodes_])
    tree = flat if estimator.structure is None else estimator.hierarchy_
    check_labels(documents, tree)
    X = transform_rows(documents, model["vectorizer"], estimator.n_features_in_, verbose=verbose)
    evaluation = folder.evaluation
    n_tested = evaluation["n_test"] if evaluation and evaluation["how"] == "given" else 0
    n_train = folder.about["n_documents"] - n_tested
    predictions = predict_with_probability(estimator, X)
    calibration = (
        level_calibration(estimator, X, documents.y, tree) if estimator.structure is not None else None
    )
    rows = np.arange(len(documents))
    trial = Trial(documents.y, predictions, None, rows, n_train, "given", calibration)
    return evaluate(trial, tree), [str(name) for name in tree.names]


def require_classifier(folder: Folder) -> None:
    """Raise an error if a model folder does not hold a classifier."""
    if folder.kind != "classifier":
        raise FolderError(
            f"{folder.path} is not a classifier (its kind is {folder.kind!r}): it has no labels to measure"
        )


def name_evaluation(evaluation: dict[str, Any], names: Sequence[str], documents: Documents) -> dict[str, Any]:
    """Replace the numbers of nodes and documents in an evaluation by their names and ids."""
    return {
        **evaluation,
        "nodes": [{**entry, "node": names[entry["node"]]} for entry in evaluation["nodes"]],
        "confusions": [
            {
                **entry,
                "true": names[entry["true"]],
                "predicted": names[entry["predicted"]],
                "documents": [documents.ids[row] for row in entry["documents"]],
            }
            for entry in evaluation["confusions"]
        ],
    }


# --- Print an evaluation as tables --------------------------------------------------------------------------


_N_ROWS = 8  # of the tables of weak nodes and confusions
_SCORES = {
    "micro_f1": "Micro-F1",
    "macro_f1": "Macro-F1",
    "hierarchical_f1": "Hierarchical F1",
    "tree_induced_error": "Tree-induced error",
    "calibration_error": "Calibration error",
}
_OF_TREES = ("hierarchical_f1", "tree_induced_error")
_LEVEL = {
    "level": ("Level", "d"),
    "n_nodes": ("# Nodes", ",d"),
    "micro_f1": ("Micro-F1", "percent"),
    "macro_f1": ("Macro-F1", "percent"),
}
_FLAT_LEVEL = {
    "baseline_micro_f1": ("Flat micro-F1", "percent"),
    "baseline_macro_f1": ("Flat macro-F1", "percent"),
}
_LEVEL_QUALITY = {
    "log_loss": ("Log loss", ".3f"),
    "brier": ("Brier", ".3f"),
    "calibration_error": ("Calibration error", ".3f"),
}


def evaluation_text(evaluation: Mapping[str, Any], names: Sequence[str]) -> str:
    """Write an evaluation as text with tables; `names` are those of the nodes by id."""
    flat = len(evaluation["levels"]) <= 2 and evaluation["baseline"] is None
    parts = [_summary(evaluation), str(_score_table(evaluation, flat))]
    if not flat:
        parts.append(str(_level_table(evaluation)))
    weak = sorted(evaluation["nodes"], key=lambda node: (node["f1"], -node["support"]))
    weak = [node for node in weak if node["support"] and node["f1"] < 1.0][:_N_ROWS]
    if weak:
        rows = [(names[n["node"]], n["support"], n["precision"], n["recall"], n["f1"]) for n in weak]
        columns = ("Weakest nodes", "Documents", "Precision", "Recall", "F1")
        parts.append(str(Table(columns, tuple(rows), ("", ",d", "percent", "percent", "percent"))))
    worst = evaluation["confusions"][:_N_ROWS]
    if worst:
        pairs = tuple((names[c["true"]], names[c["predicted"]], c["count"], c["share"]) for c in worst)
        headings = ("True class", "Predicted class", "Documents", "% of class")
        parts.append(str(Table(headings, pairs, ("", "", ",d", "percent"))))
    return "\n\n".join(parts)


def _summary(evaluation: Mapping[str, Any]) -> str:
    is_given = evaluation["how"] == "given"
    what = "test documents" if is_given else "held-out documents"
    line = f"Evaluated on {evaluation['n_test']:,} {what}"
    line += "." if evaluation["n_train"] is None else f", after training on {evaluation['n_train']:,}."
    if not is_given:
        line += " The saved model is trained on all documents."
    test = evaluation["sign_test"]
    if test is not None:
        p_value = "-" if test["p_value"] is None else f"{test['p_value']:.2g}"
        line += (
            f"\nDocuments that only the model classifies correctly: {test['won']:,}; only the flat model: "
            f"{test['lost']:,} (sign test, p = {p_value})."
        )
    return line


def _score_table(evaluation: Mapping[str, Any], flat: bool) -> Table:
    """Make the table of scores; those of trees say nothing more if all classes are below the root."""
    base = evaluation["baseline"]
    rows = []
    for key, name in _SCORES.items():
        if flat and key in _OF_TREES:
            continue
        form = "{:.3f}" if key in ("tree_induced_error", "calibration_error") else "{:.2%}"
        values = [evaluation["scores"][key], *([base["scores"][key]] if base else [])]
        rows.append((name, *("-" if value is None else form.format(value) for value in values)))
    return Table(("Score", "Model", *(["Flat"] if base else [])), tuple(rows))


def _level_table(evaluation: Mapping[str, Any]) -> Table:
    shown = dict(_LEVEL)
    if evaluation["baseline"] is not None:
        shown |= _FLAT_LEVEL
    if any(level.get("log_loss") is not None for level in evaluation["levels"]):
        shown |= _LEVEL_QUALITY
    rows = [tuple(level.get(key) for key in shown) for level in evaluation["levels"]]
    columns, forms = zip(*shown.values(), strict=True)
    return Table(columns, tuple(rows), forms)
