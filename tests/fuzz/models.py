"""Model files and model folders: flipped bits, and forged content with right checksums."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.app.filing import Filer
from arbora.app.folder import FolderError, open_folder
from arbora.classify import MultinomialLogistic, OneVsRestSVC, RecursiveSVC, TopDownSVC
from arbora.discover import HierarchicalVMFMixture, SphericalKMeans, VMFMixture
from arbora.explore.page import make_page
from arbora.io import ModelFileError, load, save
from arbora.io.npz import view_npz
from arbora.structure import Hierarchy
from arbora.text import LtcTransformer
from fuzz.mutate import mutate, mutate_array, mutate_json
from fuzz.target import ACCEPTED, REFUSED, Unclean
from support.explore_folders import temporal_folder
from support.serving import trained_folder

TREE = Hierarchy.from_edges(
    [("root", "a"), ("root", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")]
)
OUT_OF_BOUNDS = "index is out of bounds"  # numba's message; NumPy's names the axis


def _rows(rng: np.random.Generator) -> Any:
    return np.abs(rng.standard_normal((40, 7))) * (rng.random((40, 7)) < 0.6)


def prepare_models(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = _rows(rng)
    X[:, 0] += 0.1
    y = np.array(["a1", "a2", "b1", "b2"], dtype=object)[rng.integers(4, size=40)]
    models = {
        "top_down": TopDownSVC(structure=TREE, random_state=0).fit(X, y),
        "flat": OneVsRestSVC(structure=TREE, random_state=0).fit(sp.csr_array(X), y),
        "several": OneVsRestSVC(random_state=0).fit(X, [[name, "x"] for name in y]),
        "recursive": RecursiveSVC(structure=TREE, random_state=0).fit(X, y),
        "softmax": MultinomialLogistic(C=1.0, random_state=0).fit(X, y),
        "vmf": VMFMixture(3, random_state=0, max_iter=5).fit(X),
        "tree": HierarchicalVMFMixture((2, 2), random_state=0, max_iter=3, tol=0.1).fit(X),
        "k-means": SphericalKMeans(3, random_state=0).fit(X),
        "ltc": LtcTransformer().fit(np.round(X)),
        "matrices": {
            "a": sp.csr_array(X),
            "b": sp.csc_array(X),
            "c": sp.coo_array(X),
            "d": {1, 2},
            "e": (TREE, TREE),
        },
    }
    kept = {}
    for name, model in models.items():
        save(model, folder / name)
        arrays = next((folder / name).glob("arrays-*.npz"))
        kept[name] = ((folder / name / "manifest.json").read_bytes(), arrays.name, arrays.read_bytes())
    return {"folder": folder / "attacked", "kept": kept, "X": X}


def _with_checksum(manifest: dict[str, Any]) -> bytes:
    body = json.dumps({name: value for name, value in manifest.items() if name != "checksum"})[1:].encode()
    return f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    from io import BytesIO

    from arbora.core.files import HashingWriter
    from arbora.io.npz import write_npz

    file = BytesIO()
    write_npz(HashingWriter(file, hashlib.sha256()), arrays)
    return file.getvalue()


def _forge(
    rng: random.Random, manifest: dict[str, Any], content: bytes, folder: Path
) -> tuple[bytes, str, bytes]:
    """Change the manifest, the arrays or both; all checksums are right."""
    if rng.random() < 0.7:
        (folder / "old.npz").write_bytes(content)
        arrays = view_npz(folder / "old.npz", np.frombuffer(content, np.uint8))
        (folder / "old.npz").unlink()
        for name in rng.sample(list(arrays), min(len(arrays), rng.choice((1, 1, 2)))):
            arrays[name] = mutate_array(rng, arrays[name])
        content = _npz(arrays)
    if rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 3))):
            manifest["model"] = mutate_json(rng, manifest["model"], 1)
    digest = hashlib.sha256(content).hexdigest()
    name = f"arrays-{digest[:16]}.npz"
    manifest["arrays"] = {"file": name, "bytes": len(content), "sha256": digest}
    if rng.random() < 0.1:
        manifest = mutate_json(rng, manifest)
    return _with_checksum(manifest), name, content


def use(model: Any, X: Any) -> None:
    """Predict with a model that was accepted: a forged one may raise any exception, but must not crash."""
    for name in (
        "predict",
        "predict_proba",
        "predict_node_proba",
        "transform",
        "decision_function",
        "score_samples",
    ):
        call = getattr(model, name, None)
        if callable(call):
            for rows in (X, sp.csr_array(X)):
                try:
                    call(rows)
                except MemoryError as error:
                    if "needs about" not in str(error) and "allocate" not in str(error):
                        raise
                except Exception as error:
                    if OUT_OF_BOUNDS in str(error):
                        raise Unclean(f"{type(model).__name__}.{name}: a kernel left its arrays") from error


def attack_models(state: dict[str, Any], rng: random.Random) -> str:
    folder: Path = state["folder"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    manifest, name, content = state["kept"][rng.choice(list(state["kept"]))]
    forged = rng.random() < 0.7
    if forged:
        manifest, name, content = _forge(rng, json.loads(manifest), content, folder)
    elif rng.random() < 0.5:
        at = rng.randrange(len(content))
        content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    elif rng.random() < 0.5:
        content = mutate(rng, content)
    else:
        manifest = mutate(rng, manifest)
    (folder / "manifest.json").write_bytes(manifest)
    (folder / name).write_bytes(content)
    mmap = rng.random() < 0.5
    try:
        model = load(folder, mmap=mmap)
    except ModelFileError:
        return REFUSED
    if (
        not forged
        and not mmap
        and manifest != b""
        and content not in (kept[2] for kept in state["kept"].values())
    ):
        raise Unclean("damage of the arrays was not found")
    use(model, state["X"])
    return ACCEPTED


def prepare_folders(folder: Path) -> dict[str, Any]:
    made = [trained_folder(folder / "classifier"), temporal_folder(folder / "temporal")]
    return {"made": made, "folder": folder / "attacked"}


PARTS = (
    "folder.json",
    "nodes.json",
    "documents.jsonl",
    "arrays.npz",
    "evaluation.json",
    "time.json",
    "report.txt",
)


def forge_folder(rng: random.Random, source: Path, target: Path) -> None:
    """Copy a folder with one changed file, and right checksums."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    name = rng.choice([part for part in PARTS if (target / part).exists()])
    index = json.loads((target / "folder.json").read_bytes())
    if name == "folder.json":
        index = mutate_json(rng, index)
    elif name.endswith("json") and rng.random() < 0.8:
        value = json.loads((target / name).read_bytes())
        (target / name).write_text(json.dumps(mutate_json(rng, value)), errors="replace")
    elif name == "documents.jsonl" and rng.random() < 0.8:
        lines = [json.loads(line) for line in (target / name).read_text().split("\n") if line]
        at = rng.randrange(len(lines))
        lines[at] = mutate_json(rng, lines[at], rng.randrange(2))
        (target / name).write_text("".join(json.dumps(line) + "\n" for line in lines), errors="replace")
    elif name == "arrays.npz" and rng.random() < 0.8:
        arrays = dict(np.load(target / name))
        key = rng.choice(list(arrays))
        arrays[key] = mutate_array(rng, arrays[key])
        (target / name).write_bytes(_npz(arrays))
    else:
        (target / name).write_bytes(mutate(rng, (target / name).read_bytes()))
    if name != "folder.json":
        content = (target / name).read_bytes()
        index["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (target / "folder.json").write_bytes(
        _with_checksum(index)
        if isinstance(index, dict) and rng.random() < 0.95
        else json.dumps(index).encode()
    )


def attack_folders(state: dict[str, Any], rng: random.Random) -> str:
    target = state["folder"]
    forge_folder(rng, rng.choice(state["made"]), target)
    try:
        folder = open_folder(target)
        for part in (
            "nodes",
            "documents",
            "positions",
            "node_positions",
            "evaluation",
            "time",
            "report",
            "plan",
        ):
            getattr(folder, part)
        page = make_page(folder)
        if page.html.count("<script") != 3:
            raise Unclean(f"the page has {page.html.count('<script')} script elements")
        if rng.random() < 0.3 and folder.kind == "classifier":
            Filer(folder)
        return ACCEPTED
    except (FolderError, ModelFileError):
        return REFUSED
