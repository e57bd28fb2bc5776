"""Seconds to build, validate and use structures of 500,000 nodes: ``python -m benchmarks.structure``.

Each line is the best of three runs. On a busy machine use the CPU time. The tree is bushy. A "deep" structure has
100,000 levels: a chain, or a chain with additional edges from each node to its grandchild.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from arbora.structure import Hierarchy, LabelGraph
from benchmarks._common.report import published

N_NODES = 500_000
N_DEEP = 100_000
REPEATS = 3


def best_of(function: Callable[[], Any]) -> tuple[float, float]:
    """Best of several runs, in wall-clock and CPU seconds."""
    wall, processor = [], []
    for _ in range(REPEATS):
        start = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return min(wall), min(processor)


def random_parents(n_nodes: int, rng: np.random.Generator) -> np.ndarray:
    """Parents of a bushy random tree; every node comes after its parent."""
    nodes = np.arange(n_nodes)
    parents = (rng.random(n_nodes) * (nodes // 6 + 1)).astype(np.int64)
    parents[0] = -1
    return np.minimum(parents, nodes - 1)


def full_paths(parents: np.ndarray) -> list[str]:
    """Path of every node, such as ``n0/n1/n17``."""
    paths: list[str] = []
    for node, parent in enumerate(parents.tolist()):
        paths.append(f"n{node}" if parent < 0 else f"{paths[parent]}/n{node}")
    return paths


def build_cases(rng: np.random.Generator, folder: str) -> dict[str, Callable[[], Any]]:
    """Ways to build and validate, by name."""
    parents = random_parents(N_NODES, rng)
    edges = rng.permutation(np.column_stack([parents, np.arange(N_NODES)])[1:])
    pairs = [(a, b) for a, b in edges.tolist()]
    strings = [(f"node-{a}", f"node-{b}") for a, b in pairs]
    paths = full_paths(parents)
    tuples = [tuple(path.split("/")) for path in paths]
    half = N_NODES // 2
    extra = np.column_stack([rng.integers(0, half, 100_000), rng.integers(half, N_NODES, 100_000)])
    dag = np.concatenate([edges, extra])
    chain = np.arange(-1, N_DEEP - 1)
    steps = np.arange(N_DEEP)
    braid = np.concatenate([np.column_stack([steps[:-k], steps[k:]]) for k in (1, 2)])
    file = Path(folder, "hierarchy.tsv")
    file.write_text("".join(f"{a}\t{b}\n" for a, b in strings))
    return {
        "from_edges, integer array": lambda: Hierarchy.from_edges(edges),
        "from_edges, list of integer pairs": lambda: Hierarchy.from_edges(pairs),
        "from_edges, list of string pairs": lambda: Hierarchy.from_edges(strings),
        "from_edges, DAG of 600,000 edges": lambda: Hierarchy.from_edges(dag),
        "from_parents": lambda: Hierarchy.from_parents(parents),
        "from_paths, strings": lambda: Hierarchy.from_paths(paths),
        "from_paths, tuples": lambda: Hierarchy.from_paths(tuples),
        "read, tsv": lambda: Hierarchy.read(file),
        "chain 100,000 deep": lambda: Hierarchy.from_parents(chain),
        "DAG 100,000 deep": lambda: Hierarchy.from_edges(braid),
    }


def use_cases(rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    """Operations on a built structure, by name."""
    parents = random_parents(N_NODES, rng)
    tree = Hierarchy.from_parents(parents)
    chain = Hierarchy.from_parents(np.arange(-1, N_DEEP - 1))
    a, b = rng.integers(0, N_NODES, (2, 1_000_000))
    labels = rng.integers(0, N_NODES, 300_000)
    marks, rows = np.ones(labels.size, dtype=bool), np.arange(labels.size) // 3
    Y = sparse.csr_array((marks, (rows, labels)), shape=(100_000, N_NODES))
    random_edges = rng.integers(0, N_NODES, (1_500_000, 2))
    random_edges = random_edges[random_edges[:, 0] != random_edges[:, 1]]
    graph = LabelGraph(np.arange(N_NODES), random_edges)
    names = tree.names[labels]

    def fresh(structure: Any, use: Callable[[Any], Any]) -> Callable[[], Any]:
        # A structure caches its arrays, so every run builds a new one.
        state = structure.to_state()
        return lambda: use(type(structure).from_state(state))

    return {
        "rebuild from to_state()": fresh(tree, lambda h: h),
        "... and levels": fresh(tree, lambda h: h.levels),
        "... and ancestor_matrix": fresh(tree, lambda h: h.ancestor_matrix),
        "... and levels, chain 100,000 deep": fresh(chain, lambda h: h.levels),
        "encode 300,000 names": lambda: tree.encode(names),
        "close 100,000 label sets": lambda: tree.close(Y),
        "most_specific of 100,000 label sets": lambda: tree.most_specific(Y),
        "lca_ids of 1,000,000 pairs": lambda: tree.lca_ids(a, b),
        "subtree of the root": lambda: tree.subtree(0),
        "collapse_chains": tree.collapse_chains,
        "rebuild a graph of 1,500,000 edges": fresh(graph, lambda g: g),
    }


def report(title: str, cases: dict[str, Callable[[], Any]]) -> None:
    print(f"\n| {title} | seconds | CPU seconds |\n|---|---:|---:|")
    for name, function in cases.items():
        wall, processor = best_of(function)
        print(f"| {name} | {wall:.2f} | {processor:.2f} |")


def main() -> None:
    rng = np.random.default_rng(0)
    with published("Structures of 500,000 nodes"), tempfile.TemporaryDirectory() as folder:
        print(f"Best of {REPEATS} runs, in wall-clock and CPU time. Target: every build under 2 s.")
        report("build and validate", build_cases(rng, folder))
        report("use", use_cases(rng))


if __name__ == "__main__":
    main()
