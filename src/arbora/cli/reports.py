"""Results of the verbs as text or JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.folder import PLAN, Content
from arbora.app.topics import choice_text
from arbora.app.training import Tuning
from arbora.metrics.table import Table

_EVALUATION_KEYS = ("n_train", "n_test", "how", "scores", "baseline", "sign_test", "levels")
_TOPIC_KEYS = ("name", "title", "parent", "size", "share", "words")
_SCORE_NAMES = {"macro_f1": "Macro-F1", "micro_f1": "Micro-F1"}


MAX_ROWS = 20  # of a table that is printed; the report of the folder has all
_RULE = re.compile(r"-+(  +-+)*")
_ASCII = json.JSONEncoder(allow_nan=False)
_UNICODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def to_json(value: Any) -> str:
    """Write a value as one line of strict JSON; letters are escaped only where the output is not Unicode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = (_UNICODE if encoding.lower().startswith("utf") else _ASCII).encode(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def shorten_tables(report: str, n_rows: int = MAX_ROWS) -> str:
    """Keep the first rows of each table of a report."""
    lines: list[str] = []
    n_left = n_more = 0  # rows of this table that can still be shown; rows that are not shown
    for line in [*report.split("\n"), ""]:
        if n_left and line.strip():
            n_more += n_left == 1
            n_left = max(1, n_left - 1)
            if n_more:
                continue
        elif n_left:
            lines += [f"... and {n_more:,} more (--all prints all)"] if n_more else []
            n_left = n_more = 0
        if _RULE.fullmatch(line):
            n_left = n_rows + 1
        lines.append(line)
    return "\n".join(lines[:-1])


def training_text(content: Content, out: str, seconds: float) -> str:
    """Report a trained classifier."""
    n_classes = sum(node["own"] > 0 for node in content.nodes)
    depth = 1 + max(node["depth"] for node in content.nodes)
    estimator = content.model["estimator"]
    tree = f" a tree of {len(content.nodes):,} nodes on {depth} levels;" if depth > 2 else ""
    return (
        f"{content.about['n_documents']:,} documents in {n_classes:,} classes;{tree} "
        f"{estimator.n_features_in_:,} features; {type(estimator).__name__}."
        f"{_paths_text(content)}\n\n"
        f"{content.report}\n\nWritten to {out} in {seconds:.1f} s."
    )


def _paths_text(content: Content) -> str:
    """Say that labels are paths, and how to read them as plain names."""
    path = next((node["name"] for node in content.nodes if node["own"] and "/" in node["name"]), None)
    if path is None or content.about["settings"].get("hierarchy") != "auto":
        return ""
    above = path.rpartition("/")[0]
    return f"\nLabels are paths in the tree: {path!r} is below {above!r} (--hierarchy none: plain names)."


def training_json(content: Content, out: str, seconds: float) -> dict[str, Any]:
    """Report a trained classifier as values for JSON."""
    evaluation = content.evaluation
    return {
        "out": out,
        "kind": content.kind,
        "n_documents": content.about["n_documents"],
        "n_nodes": len(content.nodes),
        "evaluation": None if evaluation is None else {key: evaluation[key] for key in _EVALUATION_KEYS},
        **_skipped(content),
        "seconds": round(seconds, 2),
    }


def topics_text(content: Content, out: str, seconds: float, show_all: bool = False) -> str:
    """Report topics."""
    report = content.report if show_all else shorten_tables(content.report)
    estimator = content.model["estimator"]
    return (
        f"{content.about['n_documents']:,} documents, {estimator.n_features_in_:,} words, {_n_leaves(content):,} "
        f"topics; {type(estimator).__name__}.\n\n{report}\n\n{_choice(content)}"
        f"Written to {out} in {seconds:.1f} s."
    )


def _choice(content: Content) -> str:
    """Say how many topics were asked for and found."""
    model = content.model.get("topic_model")
    if model is None:
        return ""
    return choice_text(model.n_topics, model.n_topics_, model.n_topics_curve_) + "\n\n"


def topics_json(content: Content, out: str, seconds: float) -> dict[str, Any]:
    """Report topics as values for JSON."""
    topics = [{key: node[key] for key in _TOPIC_KEYS} for node in content.nodes]
    for topic in topics:
        topic["parent"] = None if topic["parent"] is None else content.nodes[topic["parent"]]["name"]
    result = {
        "out": out,
        "kind": content.kind,
        "n_documents": content.about["n_documents"],
        "n_topics": _n_leaves(content),
        **_choice_json(content),
        "topics": topics,
        **_skipped(content),
        "seconds": round(seconds, 2),
    }
    if content.time is not None:
        result["times"] = content.time["bins"]
        for node, shares in zip(content.time["nodes"], content.time["shares"], strict=True):
            topics[node]["shares"] = shares
    return result


def _choice_json(content: Content) -> dict[str, Any]:
    """Return the number of topics that was asked for, and the scores if the number was chosen."""
    model = content.model.get("topic_model")
    if model is None:
        return {}
    curve, asked = model.n_topics_curve_, model.n_topics
    choice: dict[str, Any] = {"asked": list(asked) if isinstance(asked, tuple) else asked}
    if curve is not None:
        choice["curve"] = {key: np.asarray(curve[key]).tolist() for key in ("n_topics", "score")}
    return choice


def groups_text(content: Content, out: str, seconds: float, show_all: bool = False) -> str:
    """Report known and new groups."""
    report = content.report if show_all else shorten_tables(content.report)
    estimator = content.model["estimator"]
    n_pile = sum(node["states"]["filed"] + node["states"]["proposed"] for node in content.nodes)
    n_known = len(estimator.known_classes_)
    return (
        f"{content.about['n_documents'] - n_pile:,} documents in {n_known:,} known groups, {n_pile:,} in the pile; "
        f"{estimator.n_features_in_:,} words; {type(estimator).__name__}.\n\n{report}\n\n"
        f"Written to {out} in {seconds:.1f} s; the plan is {Path(out) / PLAN}."
    )


def groups_json(content: Content, out: str, seconds: float) -> dict[str, Any]:
    """Report known and new groups as values for JSON."""
    assert content.expansion is not None
    ids = [document["id"] for document in content.documents]
    groups = [
        {
            "name": node["name"],
            "title": node["title"],
            "new": bool(node.get("new")),
            **node["states"],
            "confidence": node.get("confidence"),
            "words": node["words"],
            "documents": [ids[line] for line in node["documents"]],
        }
        for node in content.nodes
        if node["own"] or node.get("new")
    ]
    proposals = {
        key: [
            {**proposal, "documents": [[ids[line] for line in side] for side in proposal["documents"]]}
            for proposal in content.expansion[key]
        ]
        for key in ("splits", "merges")
    }
    return {
        "out": out,
        "kind": content.kind,
        "n_documents": content.about["n_documents"],
        **content.expansion,
        **proposals,
        "groups": groups,
        "plan": str(Path(out) / PLAN),
        **_skipped(content),
        "seconds": round(seconds, 2),
    }


def _skipped(content: Content) -> dict[str, Any]:
    skipped = content.about.get("skipped")
    return {"skipped": skipped} if skipped else {}


def _n_leaves(content: Content) -> int:
    return len(content.nodes) - len({node["parent"] for node in content.nodes} - {None})


def tuning_text(tuning: Tuning, data: str, model: str, scoring: str) -> str:
    """Report the candidates of a cross-validation, and the command that trains with the best."""
    tried, best = tuning.tried, tuning.tried[0]
    with_coupling = best.coupling is not None
    columns = ("C", *(["Coupling"] if with_coupling else []), _SCORE_NAMES[scoring], "± over folds", "Folds")
    rows = [
        (
            candidate.C,
            *([candidate.coupling] if with_coupling else []),
            candidate.mean,
            candidate.std,
            candidate.n_folds,
        )
        for candidate in tried
    ]
    formats = ("g", *(["g"] if with_coupling else []), "percent", "percent", "d")
    coupling = f" --coupling {best.coupling:g}" if with_coupling else ""
    about = "" if tuning.features is None else f" Features: {tuning.features}."
    features = "" if tuning.features is None else f" --features '{tuning.features}'"
    return (
        f"{Table(columns, tuple(rows), formats)}\n\nMean over the folds.{about} To train with the best:\n"
        f"  arbora classify train {data}{features} --model {model} --C {best.C:g}{coupling} --out model/"
    )


def tuning_json(tuning: Tuning) -> dict[str, Any]:
    """Report the candidates of a cross-validation as values for JSON."""
    tried = [candidate._asdict() for candidate in tuning.tried]
    return {"best": tried[0], "features": tuning.features, "tried": tried}
