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
    parts = [_summary(evaluation), str(_score_table(evaluation)), str(_level_table(evaluation))]
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


def _score_table(evaluation: Mapping[str, Any]) -> Table:
    base = evaluation["baseline"]
    rows = []
    for key, name in _SCORES.items():
        form = "{:.3f}" if key in ("tree_induced_error", "calibration_error") else "{:.2%}"
        values = [evaluation["scores"][key], *([base["scores"][key]] if base else [])]
        rows.append((name, *("-" if value is None else form.format(value) for value in values)))
    return Table(("Score", "Model", *(["Flat"] if base else [])), tuple(rows))


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
    return Table(columns, tuple(rows), ("d", ",d", *["percent"] * (len(columns) - 2)))
