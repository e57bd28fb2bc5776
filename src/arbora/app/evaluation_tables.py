"""Print an evaluation as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arbora.metrics.table import Table

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
    """Write an evaluation as text with tables.

    Parameters
    ----------
    evaluation : dict
        See `arbora.app.evaluation.evaluate`.
    names : sequence of str
        Names of the nodes by id.

    Returns
    -------
    str
    """
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
    given = evaluation["how"] == "given"
    what = "test documents" if given else "held-out documents"
    line = f"Evaluated on {evaluation['n_test']:,} {what}"
    line += "." if evaluation["n_train"] is None else f", after training on {evaluation['n_train']:,}."
    if not given:
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
