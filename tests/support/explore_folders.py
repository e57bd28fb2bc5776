"""Model folders for the tests of the browser: small, made up, written as ``docs/model_folder.md`` says."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.folder import Content, write_folder

HOSTILE = '<script>document.title = "taken over"</script><img src=x onerror="document.title=1"> & <b>bold</b>'

SUBJECTS = {
    "science/physics": "particle energy quantum field detector mass collision neutrino",
    "science/physics/optics": "laser lens photon fibre wavelength mirror interference light",
    "science/biology": "cell protein gene organism tissue enzyme membrane bacteria",
    "science/biology/ecology": "species habitat forest climate population river predator soil",
    "science/astronomy": "star galaxy telescope orbit planet nebula comet redshift",
    "arts/music": "melody chord orchestra rhythm violin concert harmony score",
    "arts/painting": "canvas colour portrait brush gallery sketch pigment fresco",
    "arts/theatre": "stage actor drama costume audience scene rehearsal comedy",
    "sport/football": "goal league striker penalty match referee keeper tackle",
    "sport/athletics": "sprint marathon hurdle javelin record relay pole track",
    "sport/sailing": "wind yacht regatta harbour mast sail crew tide",
    "trade/markets": "stock bond yield investor index dividend broker futures",
    "trade/shipping": "cargo port container freight vessel customs tonnage route",
}


def _sentence(words: list[str], rng: np.random.Generator) -> str:
    drawn = rng.choice(words, 14)
    return f"The {drawn[0]} and the {drawn[1]}: " + " ".join(drawn[2:]) + "."


def _nodes(names: list[str], labels: list[str], documents: dict[str, list[int]]) -> list[dict[str, Any]]:
    ids = {name: number for number, name in enumerate(names)}
    nodes = []
    for name, number in ids.items():
        above = name.rpartition("/")[0] if "/" in name else ("all" if name != "all" else None)
        below = [label for label in labels if name == "all" or label == name or label.startswith(name + "/")]
        words = [
            w for key, text in SUBJECTS.items() if key.startswith(name) or name == "all" for w in text.split()
        ]
        nodes.append(
            {
                "id": number,
                "name": name,
                "title": name.rpartition("/")[2],
                "parent": None if above is None else ids[above],
                "depth": 0 if above is None else name.count("/") + 1,
                "size": 20 * len(below),
                "own": 20 * labels.count(name),
                "share": len(below) / max(1, len(labels)),
                "words": [[word, round(2.0 / (1 + i), 3)] for i, word in enumerate(words[:12])],
                "documents": documents.get(name, [])[:5],
            }
        )
    return nodes


def _evaluation(nodes: list[dict[str, Any]], rng: np.random.Generator) -> dict[str, Any]:
    rows = []
    for node in nodes:
        precision, recall = rng.uniform(0.55, 1.0, 2).round(3).tolist()
        f1 = round(2 * precision * recall / (precision + recall), 4)
        flat = round(min(1.0, max(0.0, f1 - rng.normal(0.03, 0.06))), 4)
        rows.append(
            {
                "node": node["id"],
                "support": node["size"] // 5,
                "predicted": node["size"] // 5,
                "precision": precision,
                "recall": recall,
                "f1": f1,
                "baseline_f1": flat,
            }
        )
    leaves = [node for node in nodes if node["own"]]
    confusions = [
        {
            "true": a["id"],
            "predicted": b["id"],
            "count": 9 - i,
            "share": round(0.2 - 0.02 * i, 3),
            "documents": a["documents"][:3],
        }
        for i, (a, b) in enumerate(pairwise(leaves[:7]))
    ]
    confidence = np.linspace(0.25, 0.95, 8)
    scores = {
        "micro_f1": 0.861,
        "macro_f1": 0.832,
        "hierarchical_f1": 0.903,
        "tree_induced_error": 0.612,
        "calibration_error": 0.031,
    }
    flat = {
        "micro_f1": 0.842,
        "macro_f1": 0.797,
        "hierarchical_f1": 0.889,
        "tree_induced_error": 0.701,
        "calibration_error": 0.045,
    }
    levels = [
        {
            "level": level,
            "n_nodes": n,
            "micro_f1": m,
            "macro_f1": m - 0.02,
            "baseline_micro_f1": m - 0.01,
            "baseline_macro_f1": m - 0.05,
        }
        for level, n, m in ((1, 1, 1.0), (2, 4, 0.94), (3, 11, 0.87), (4, 2, 0.8))
    ]
    return {
        "n_train": 1040,
        "n_test": 260,
        "how": "held out",
        "scores": scores,
        "baseline": {"name": "flat", "scores": flat},
        "sign_test": {"won": 19, "lost": 8, "p_value": 0.052},
        "levels": levels,
        "nodes": rows,
        "confusions": confusions,
        "reliability": {
            "confidence": confidence.round(3).tolist(),
            "accuracy": np.clip(confidence + rng.normal(0, 0.03, 8), 0, 1).round(3).tolist(),
            "n_documents": [4, 6, 9, 14, 20, 35, 60, 112],
            "edges": np.linspace(0, 1, 11).round(2).tolist(),
        },
    }


def classifier_folder(path: Path, model: dict[str, Any] | None = None, *, hostile: bool = True) -> Path:
    """A classifier with an evaluation; one of its documents and one of its classes try to run scripts."""
    rng = np.random.default_rng(0)
    names = ["all", "science", "arts", "sport", "trade", *SUBJECTS]
    subjects = dict(SUBJECTS)
    if hostile:
        evil = 'trade/<img src=x onerror="document.title=2">'
        names.append(evil)
        subjects[evil] = "alert onerror script iframe"
    labels = list(subjects)
    ids = {name: number for number, name in enumerate(names)}
    documents, centres, by_label = [], [], {}
    for label in labels:
        words = subjects[label].split()
        centre = rng.normal(0, 0.35, 3)
        for number in range(20):
            by_label.setdefault(label, []).append(len(documents))
            text = HOSTILE if hostile and label == labels[-1] and number == 0 else _sentence(words, rng)
            filed = label if rng.random() < 0.85 else labels[int(rng.integers(len(labels)))]
            documents.append(
                {
                    "id": f"{label}/{number}.txt",
                    "text": text,
                    "label": label,
                    "node": ids[filed],
                    "probability": round(float(rng.uniform(0.4, 1)), 3),
                    "seen": number > 3,
                }
            )
            centres.append(centre + rng.normal(0, 0.06, 3))
    nodes = _nodes(names, labels, by_label)
    for node in nodes[:5]:
        node["documents"] = [
            d for d, doc in enumerate(documents) if node["name"] in ("all", doc["label"].split("/")[0])
        ][:5]
    positions = np.array(centres, np.float32)
    about = {
        "name": "subjects",
        "settings": {"command": "classify train", "model": "recursive-svm", "C": 1.0},
        "estimator": "RecursiveSVC",
        "n_documents": len(documents),
        "n_features": 104,
        "has_text": True,
        "multilabel": False,
        "notices": [],
    }
    content = Content(
        "classifier",
        about,
        model or {},
        nodes,
        documents,
        positions,
        np.stack([_centre(positions, nodes, documents, n) for n in names]),
        "report",
        _evaluation(nodes, rng),
    )
    write_folder(path, content)
    return path


def _centre(
    positions: np.ndarray, nodes: list[dict[str, Any]], documents: list[dict[str, Any]], name: str
) -> np.ndarray:
    rows = [
        i for i, doc in enumerate(documents) if name == "all" or (doc["label"] + "/").startswith(name + "/")
    ]
    return positions[rows].mean(axis=0) if rows else np.full(3, np.nan, np.float32)


def temporal_folder(path: Path, n_bins: int = 10, empty: tuple[int, ...] = ()) -> Path:
    """Topics over time: some rise, some fall, and their words change; some bins may have no documents."""
    rng = np.random.default_rng(1)
    themes = list(SUBJECTS)[:9]
    slope = np.linspace(-2.5, 2.5, len(themes))
    time = np.linspace(0, 1, n_bins)
    weight = np.exp(slope[:, None] * time + rng.normal(0, 0.12, (len(themes), n_bins)))
    shares = weight / weight.sum(axis=0)
    nodes = [
        {
            "id": 0,
            "name": "root",
            "title": "all documents",
            "parent": None,
            "depth": 0,
            "size": 900,
            "own": 0,
            "share": 1.0,
            "words": [],
            "documents": [],
        }
    ]
    documents, words = [], []
    for k, theme in enumerate(themes):
        vocabulary = SUBJECTS[theme].split()
        lines = list(range(len(documents), len(documents) + 12))
        size = round(900 * float(shares[k].mean()))
        nodes.append(
            {
                "id": k + 1,
                "name": str(k),
                "title": ", ".join(vocabulary[:3]),
                "parent": 0,
                "depth": 1,
                "size": size,
                "own": size,
                "share": size / 900,
                "words": [[w, round(0.6 / (i + 1), 3)] for i, w in enumerate(vocabulary)],
                "documents": lines[:4],
                "concentration": 310.0 + k,
            }
        )
        documents += [
            {
                "id": f"{k}-{i}",
                "text": _sentence(vocabulary, rng),
                "label": "0" if k == 3 else None,  # the name of a topic, too
                "node": k + 1,
                "probability": 0.9,
                "time": int(rng.integers(n_bins)),
            }
            for i in range(12)
        ]
        order = [np.roll(vocabulary, -(b * 3 // n_bins)).tolist()[:6] for b in range(n_bins)]
        words.append([[[w, round(0.6 / (i + 1), 3)] for i, w in enumerate(some)] for some in order])
    bins = [
        {
            "name": str(2001 + b),
            "start": 2001 + b,
            "end": 2002 + b,
            "n_documents": 0 if b in empty else 90,
        }
        for b in range(n_bins)
    ]
    trends = [
        {
            "birth": 0,
            "peak": int(s.argmax()),
            "last": n_bins - 1,
            "change": float(s[-3:].mean() - s[:3].mean()),
        }
        for s in shares
    ]
    positions = rng.normal(0, 0.3, (len(documents), 3)).astype(np.float32)
    centres = np.vstack([positions.mean(axis=0), positions.reshape(len(themes), 12, 3).mean(axis=1)])
    about = {
        "name": "years",
        "settings": {"command": "discover", "over_time": "year"},
        "estimator": "TemporalVMFMixture",
        "n_documents": 900,
        "n_features": 72,
        "has_text": True,
        "notices": ["A sample of 108 of 900 documents is shown."],
    }
    write_folder(
        path,
        Content(
            "topics over time",
            about,
            {},
            nodes,
            documents,
            positions,
            centres,
            "report",
            None,
            {
                "field": "year",
                "bins": bins,
                "nodes": list(range(1, len(themes) + 1)),
                "shares": [
                    [None if b in empty else round(share, 4) for b, share in enumerate(row)]
                    for row in shares.tolist()
                ],
                "words": words,
                "trends": trends,
            },
        ),
    )
    return path


def odd_folder(path: Path) -> Path:
    """What is rare and allowed: several roots, many children, two parents, several labels, no text, empty nodes."""
    n_children = 300
    names = ["first", "second", "", *(f"first/{i}" for i in range(n_children))]
    parents = [None, None, None, *([0] * n_children)]
    nodes = []
    for i, (name, parent) in enumerate(zip(names, parents, strict=True)):
        # Documents with several labels: the children have more than their parent.
        size = {0: 4, 1: 3, 2: 0}.get(i, 3 if i < 8 else 0)
        node = {"id": i, "name": name, "title": name, "parent": parent, "depth": 0 if parent is None else 1}
        node |= {"size": size, "own": size, "share": size / 4, "words": [], "documents": []}
        nodes.append(node | ({"more_parents": [1]} if i == 3 else {}))
    documents = [
        {
            "id": str(i),
            "text": "",
            "words": [["17", 0.5]],
            "label": ["first/1"],
            "node": [4, 5],
            "probability": [0.9, 0.6],
        }
        for i in range(4)
    ]
    documents[0] |= {"label": None, "node": [], "probability": []}
    about = {"name": "odd", "settings": {}, "estimator": "OneVsRestSVC", "n_documents": 4, "n_features": 20}
    about |= {"has_text": False, "multilabel": True, "notices": []}
    nowhere = np.full((len(nodes), 3), np.nan)
    evaluation = {
        "n_train": 3,
        "n_test": 1,
        "how": "held out",
        "baseline": None,
        "sign_test": None,
        "levels": [],
    }
    evaluation |= {"nodes": [], "confusions": [], "reliability": None}
    evaluation["scores"] = {
        "micro_f1": 0.0,
        "macro_f1": 0.0,
        "hierarchical_f1": 0.0,
        "calibration_error": None,
    }
    positions = np.zeros((len(documents), 3), np.float32)
    write_folder(path, Content("classifier", about, {}, nodes, documents, positions, nowhere, "", evaluation))
    return path


def large_folder(path: Path, n_nodes: int, n_documents: int, text_length: int = 300) -> Path:
    """A tree of n_nodes and a sample of n_documents, for the size and speed of pages."""
    rng = np.random.default_rng(2)
    parent = [None, *(int(rng.integers(max(0, (i - 1) // 30), i)) for i in range(1, n_nodes))]
    at = rng.integers(n_nodes, size=n_documents)
    own = np.bincount(at, minlength=n_nodes)
    size = own.copy()
    for node in range(n_nodes - 1, 0, -1):
        size[parent[node]] += size[node]
    words = np.array([f"word{i}" for i in range(5000)])
    depth = [0] * n_nodes
    for node in range(1, n_nodes):
        depth[node] = depth[parent[node]] + 1
    line_of = {int(node): line for line, node in enumerate(at.tolist())}
    nodes = [
        {
            "id": i,
            "name": f"node/{i}",
            "title": f"node {i}",
            "parent": parent[i],
            "depth": depth[i],
            "size": int(size[i]),
            "own": int(own[i]),
            "share": size[i] / max(1, n_documents),
            "words": [[str(w), 0.5] for w in words[rng.integers(5000, size=12)]],
            "documents": [line_of[i]] if i in line_of else [],
        }
        for i in range(n_nodes)
    ]
    per_text = max(1, text_length // 9)
    documents = [
        {
            "id": str(d),
            "text": " ".join(words[rng.integers(5000, size=per_text)])[:text_length],
            "label": None,
            "node": int(at[d]),
            "probability": 0.5,
        }
        for d in range(n_documents)
    ]
    positions = rng.normal(0, 0.3, (n_documents, 3)).astype(np.float32)
    about = {
        "name": "large",
        "settings": {},
        "estimator": "HierarchicalVMFMixture",
        "n_documents": n_documents,
        "n_features": 5000,
        "has_text": True,
        "notices": [],
    }
    write_folder(
        path,
        Content(
            "topic tree", about, {}, nodes, documents, positions, rng.normal(0, 0.3, (n_nodes, 3)), "report"
        ),
    )
    return path
