"""Data files: svmlight, XMLC, ARFF, CLUTO, JSONL, CSV, folders of texts and npz; plain and compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.reading import make_source, read_documents
from arbora.datasets import (
    DataFormatError,
    read_cluto,
    read_csv,
    read_folder,
    read_hmc_arff,
    read_jsonl,
    read_svmlight,
    read_xmlc,
)
from arbora.datasets.readers.npz import read_npz
from fuzz.mutate import mutate, mutate_array
from fuzz.target import ACCEPTED, REFUSED, Unclean, refused_memory

SAMPLES: dict[str, bytes] = {
    "svmlight": b"1,2 1:1 3:2.5 7:-1e-3\n3 2:0.5\n\n# remark\n4, 5 1:1e2 9:+.5\n",
    "xmlc": b"3 5 4\n0,1 0:0.5 4:1\n 2:1\n3 1:1e-2 3:2\n",
    "arff": b"@RELATION r\n@ATTRIBUTE size numeric\n@ATTRIBUTE c {red,'dark green'}\n@ATTRIBUTE b {0,1}\n"
    b"@ATTRIBUTE class hierarchical 1,1/2,3\n@DATA\n0.5,red,1,1/2@3\n?,'dark green',0,1\n% remark\n1e3,?,?,3\n",
    "dag": b"@RELATION r\n@ATTRIBUTE x real\n@ATTRIBUTE class hierarchical root/a,a/b,root/c,c/b\n"
    b"@DATA\n1,b\n2,a@c\n",
    "cluto": b"2 3 3\n1 2 3 1\n2 5\n",
    "cluto dense": b"2 3\n1 2 3\n4.5 -1e3 0\n",
    "jsonl": b'{"text": "a cat", "label": "animal", "id": 7}\n\n'
    b'{"text": "a tree \\u00e9", "label": ["plant", "wood"]}\n',
    "csv": b'text,label,id\n"one, two\nthree",a;b,1\nfour,,2\n"say ""x""",c,3\n',
    "tsv": b"text\tlabel\none two\ta\nthree\tb\n",
}  # fmt: skip
READERS: dict[str, Callable[[Path], Any]] = {
    "svmlight": read_svmlight,
    "xmlc": read_xmlc,
    "arff": read_hmc_arff,
    "dag": lambda path: read_hmc_arff(path, structure="dag"),
    "cluto": read_cluto,
    "cluto dense": read_cluto,
    "jsonl": read_jsonl,
    "csv": lambda path: read_csv(path, label_separator=";"),
    "tsv": lambda path: read_csv(path, delimiter="\t"),
}
PACKERS: list[Callable[[bytes], bytes]] = [
    gzip.compress,
    lambda data: lzma.compress(data, preset=0),
    bz2.compress,
]
LIMIT = 1 << 20  # unpacked bytes


def prepare(folder: Path) -> Path:
    return folder


def check_result(found: Any) -> None:
    """A result that was accepted must be sound."""
    X = getattr(found, "X", None)
    if X is None:
        return
    data = X.data if hasattr(X, "indptr") else X
    if np.isinf(np.asarray(data)).any():
        raise Unclean("an infinite value was read")
    if hasattr(X, "indptr") and X.nnz:
        X.check_format(full_check=True)
        X.sum()


def attack_texts(folder: Path, rng: random.Random) -> str:
    kind = rng.choice(list(SAMPLES))
    data = mutate(rng, SAMPLES[kind])
    if rng.random() < 0.1:
        data = mutate(rng, rng.choice(PACKERS)(data)) if rng.random() < 0.7 else rng.choice(PACKERS)(data)
    path = folder / f"x.{rng.choice(('dat', 'csv', 'svm', 'jsonl'))}"
    path.write_bytes(data)
    try:
        if rng.random() < 0.2:
            source = make_source(
                str(path),
                format=rng.choice(("auto", "jsonl", "csv", "tsv", "svmlight", "npz")),
                labels="optional",
            )
            found = read_documents(source._replace(max_unpacked=LIMIT))
        else:
            found = READERS[kind](path)
        check_result(found)
        return ACCEPTED
    except DataFormatError:
        return REFUSED
    except MemoryError as error:
        if refused_memory(error):
            return REFUSED
        raise


def attack_folder(folder: Path, rng: random.Random) -> str:
    top = folder / "docs"
    shutil.rmtree(top, ignore_errors=True)
    for _ in range(rng.randrange(4)):
        name = rng.choice(("a", "b/c", "root", ".x", "é", "a/b/c/d", "x" * 100))
        file = top / name / rng.choice(("1.txt", "2", ".hidden", "3.gz"))
        file.parent.mkdir(parents=True, exist_ok=True)
        data = mutate(rng, b"a text of several words \xc3\xa9")
        file.write_bytes(gzip.compress(data) if rng.random() < 0.2 else data)
    try:
        read_folder(top, max_unpacked=LIMIT)
        return ACCEPTED
    except DataFormatError:
        return REFUSED


def _matrix_arrays(rng: random.Random) -> dict[str, np.ndarray]:
    import scipy.sparse as sp

    made = np.random.default_rng(rng.randrange(2**32))
    n, d = rng.randrange(6), rng.randrange(6)
    X = (made.random((n, d)) < 0.5) * made.standard_normal((n, d))
    extra = {
        "y": made.integers(3, size=n),
        "ids": np.arange(n).astype(str),
        "feature_names": np.arange(d).astype(str),
    }
    extra = {name: array for name, array in extra.items() if rng.random() < 0.3}
    if rng.random() < 0.3:
        return {"X": X, **extra}
    kind = rng.choice(("csr", "csc"))
    S = sp.csr_array(X).asformat(kind)
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": np.array(S.shape)}
    return {**parts, "format": np.array(kind.encode()), **extra}


def attack_npz(folder: Path, rng: random.Random) -> str:
    arrays = _matrix_arrays(rng)
    for name in list(arrays):
        if rng.random() < 0.4 and name != "format":
            arrays[name] = mutate_array(rng, arrays[name])
    file = io.BytesIO()
    (np.savez_compressed if rng.random() < 0.3 else np.savez)(file, **arrays)
    data = file.getvalue()
    if rng.random() < 0.4:
        data = mutate(rng, data)
    elif rng.random() < 0.1:  # a header that lies, in a sound archive
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file := io.BytesIO(), "w") as new:
            for name in old.namelist():
                new.writestr(name, mutate(rng, old.read(name)))
        data = file.getvalue()
    path = folder / "x.npz"
    path.write_bytes(data)
    try:
        check_result(read_npz(path, max_unpacked=LIMIT))
        return ACCEPTED
    except DataFormatError:
        return REFUSED
