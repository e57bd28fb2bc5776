"""Hierarchies and label graphs: files, edges, paths and parents."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

from arbora.structure import Hierarchy, LabelGraph, StructureError
from fuzz.mutate import VALUES, mutate
from fuzz.target import ACCEPTED, REFUSED, Unclean

SAMPLES = [
    b"root\ta\nroot\tb\na\tc\n",
    b"root a\nroot b\na c\n",
    b"1 2 3\n1 2 4\n1 5\n",
    b"parent: None child: Root child-description: Root\nparent: Root child: C1 child-description: x\n",
]
GRAPH = b"a\tb\nb\tc\t0.5\n"


def prepare(folder: Path) -> Path:
    return folder


def use(found: Any) -> None:
    """Everything that a structure computes must agree with itself."""
    if isinstance(found, Hierarchy):
        for name in found.names.tolist()[:5]:
            if found.path(name)[-1] != name:
                raise Unclean("a path does not end at its node")
        found.ancestor_matrix.sum()
        found.close(found.indicator([[name] for name in found.names.tolist()[:3]]))
        if Hierarchy.from_state(found.to_state()).names.tolist() != found.names.tolist():
            raise Unclean("a structure changes when it is saved")


def attack_files(folder: Path, rng: random.Random) -> str:
    graph = rng.random() < 0.2
    data = mutate(rng, GRAPH if graph else rng.choice(SAMPLES))
    data = mutate(rng, gzip.compress(data)) if rng.random() < 0.1 else data
    path = folder / "tree"
    path.write_bytes(data)
    try:
        if graph:
            use(LabelGraph.read(path))
        else:
            use(Hierarchy.read(path, format=rng.choice(("auto", "tsv", "pairs", "paths", "rcv1"))))
        return ACCEPTED
    except StructureError:
        return REFUSED


def attack_values(folder: Path, rng: random.Random) -> str:
    names: list[Any] = ["a", "b", "c", "a/b", 1, 2, "", rng.choice(VALUES)]
    pairs = [(rng.choice(names), rng.choice(names)) for _ in range(rng.randrange(8))]
    try:
        kind = rng.randrange(5)
        if kind == 0:
            use(Hierarchy.from_edges(pairs))
        elif kind == 1:
            use(
                Hierarchy.from_parents(
                    [rng.choice((-1, 0, 1, 2, 5, -7, None)) for _ in range(rng.randrange(6))]
                )
            )
        elif kind == 2:
            use(
                Hierarchy.from_paths(
                    [rng.choice(("a/b", "a", "", "/", "a//b", "a/b/c", 7)) for _ in range(4)]
                )
            )
        elif kind == 3:
            use(LabelGraph.from_edges(pairs))
        else:
            state = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "c")]).to_state()
            key = rng.choice(list(state))
            state[key] = rng.choice(VALUES) if rng.random() < 0.5 else _odd_array(rng, state[key])
            use(Hierarchy.from_state(state))
        return ACCEPTED
    except (ValueError, TypeError, KeyError):  # wrong arguments of a function, not a file
        return REFUSED


def _odd_array(rng: random.Random, value: Any) -> Any:
    import numpy as np

    from fuzz.mutate import mutate_array, mutate_json

    return mutate_array(rng, value) if isinstance(value, np.ndarray) else mutate_json(rng, value)
