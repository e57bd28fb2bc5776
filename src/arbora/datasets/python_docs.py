"""The built-in corpus: docstrings of the installed Python, NumPy, SciPy and scikit-learn.

A document is the docstring of a public module, class, function or method. Its label is the path of its module, such
as ``python/email/mime`` or ``sklearn/linear_model/ridge``. Source files are parsed, never imported; compiled modules
are skipped. Nothing is downloaded or cached.

The text must not reveal the label. It is therefore the docstring alone, without the names of the module and the
function. Code lines of examples and dotted names that start with a package (``scipy.stats.norm``) are removed. Short
docstrings and exact duplicates are dropped.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from arbora.arrays import Matrix
from arbora.core.folds import group_codes, take_per_group
from arbora.datasets.base import Dataset, name_array, path_edges

PACKAGES = ("numpy", "scipy", "sklearn")
MIN_WORDS = 8

# Tests, vendored copies, build tools, code tables, applications and deprecated packages: no public documentation.
_SKIPPED_FOLDER = re.compile(
    r"tests?|testing|externals|_external|_lib|_vendor|__pycache__|distutils|lib2to3|idlelib|encodings"
    r"|turtledemo|pydoc_data|ensurepip|msilib|f2py|_build_utils|_pyinstaller|_?typing|_examples|.*-.*"
)
# Minimum proportion of a file inside triple quotes. Files below it have 14% of the documents and take 28% of the
# time.
_MIN_DOCUMENTED = 0.2
_PROMPT = re.compile(r"^\s*(?:>>>|\.\.\.)(?: .*)?$", re.MULTILINE)
_DOTTED = re.compile(r"\b(?:numpy|scipy|sklearn|np|sp)(?:\.\w+)+")
_DEFINITION = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@contextmanager
def _parsing_foreign_code() -> Iterator[None]:
    """Silence warnings about the parsed code, and pause the garbage collector, which would traverse every tree."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if was_enabled:
            gc.enable()


def _source_files(root: Path, private: bool) -> Iterator[Path]:
    """Python files under a folder in sorted order, without skipped folders; private ones only if ``private``."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if not _SKIPPED_FOLDER.fullmatch(name) and (private or not name.startswith("_"))
        )
        for name in sorted(files):
            if name.endswith(".py") and (private or not name.startswith("_") or name == "__init__.py"):
                yield Path(folder, name)


def _module_label(prefix: str, root: Path, file: Path, max_depth: int) -> str:
    """Path of the module below its package, cut at ``max_depth``; leading underscores are removed."""
    parts = [part.lstrip("_") for part in file.relative_to(root).with_suffix("").parts]
    if file.stem == "__init__":
        parts.pop()
    return "/".join([prefix, *parts][:max_depth])


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of a module, of its public classes and functions, and of their public methods."""
    waiting: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while waiting:
        node = waiting.pop()
        text = ast.get_docstring(node, clean=False)
        if text is not None:
            yield text
        if isinstance(node, ast.Module | ast.ClassDef):
            waiting += [
                item
                for item in reversed(node.body)
                if isinstance(item, _DEFINITION) and not item.name.startswith("_")
            ]


def clean_docstring(text: str) -> str:
    """Prose of a docstring, without indentation, example code and dotted names of the packages."""
    return _DOTTED.sub(" ", _PROMPT.sub("", inspect.cleandoc(text))).strip()


def _read_package(prefix: str, root: Path, private: bool, max_depth: int) -> Iterator[tuple[str, str]]:
    """Text and label of every docstring under a folder that is long enough."""
    for file in _source_files(root, private):
        source = file.read_bytes()
        if sum(map(len, source.split(b'"""')[1::2])) <= _MIN_DOCUMENTED * len(source):
            continue
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):  # written for another version of Python
            continue
        label = _module_label(prefix, root, file, max_depth)
        for text in map(clean_docstring, _docstrings(tree)):
            if len(text.split()) >= MIN_WORDS:
                yield text, label


def package_folders() -> list[tuple[str, Path, bool]]:
    """Name and folder of the standard library and of each installed package, and whether private files count.

    Public names of NumPy, SciPy and scikit-learn are often defined in private modules.
    """
    folders = [("python", Path(sysconfig.get_paths()["stdlib"]), False)]
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            folders.append((package, Path(spec.submodule_search_locations[0]), True))
    return folders


def _collect(max_depth: int) -> dict[str, str]:
    """Label of each distinct text of the installed packages, in a fixed order."""
    folders = package_folders()
    label_of: dict[str, str] = {}
    with _parsing_foreign_code():
        for folder in folders:
            for text, label in _read_package(*folder, max_depth):
                label_of.setdefault(text, label)
    if not label_of:
        raise FileNotFoundError(
            f"no documented source file in {', '.join(str(folder) for _, folder, _ in folders)}"
        )
    return label_of


def lift_small_classes(labels: list[str], min_size: int) -> list[str]:
    """Move the documents of small classes to their parents, deepest classes first; packages are kept."""
    labels = list(labels)
    for depth in range(max(label.count("/") for label in labels), 0, -1):
        sizes = Counter(labels)
        labels = [
            label.rpartition("/")[0] if label.count("/") == depth and sizes[label] < min_size else label
            for label in labels
        ]
    return labels


def stratified_test_rows(labels: Matrix, test_size: float, rng: np.random.Generator) -> Matrix:
    """Mark about ``test_size`` of the rows of each class as test rows, never a whole class."""
    groups = group_codes(labels)
    return take_per_group(groups, np.floor(test_size * np.bincount(groups)), rng)


def load_python_docs(
    *, max_depth: int = 3, min_class_size: int = 5, test_size: float = 0.25, random_state: int = 0
) -> Dataset:
    """Load the docstrings of the installed Python, NumPy, SciPy and scikit-learn as a labelled corpus.

    Parameters
    ----------
    max_depth : int, default=3
        Number of levels of the module path to keep, including the package.
    min_class_size : int, default=5
        Classes with fewer documents are merged into their parent.
    test_size : float, default=0.25
        Proportion of each class in the test part.
    random_state : int, default=0
        Seed of the split.

    Returns
    -------
    Dataset
        ``texts_train``, ``texts_test``; ``y_train``, ``y_test`` (module paths; some are inner nodes);
        ``hierarchy`` with the node ``root`` on top. The corpus depends only on the installed versions.

    Examples
    --------
    >>> from arbora.datasets import load_python_docs
    >>> data = load_python_docs(max_depth=2)
    >>> data.hierarchy.height, data.hierarchy.parents("python")
    (2, ['root'])
    """
    from arbora.structure import Hierarchy

    if max_depth < 1:
        raise ValueError(f"max_depth must be at least 1, got {max_depth}")
    if not 0.0 <= test_size < 1.0:
        raise ValueError(f"test_size must lie in [0, 1), got {test_size}")
    label_of = _collect(max_depth)
    labels = name_array(lift_small_classes(list(label_of.values()), min_class_size))
    is_test = stratified_test_rows(labels, test_size, np.random.default_rng(random_state))
    texts = name_array(label_of)
    return Dataset(
        "python docs",
        y_train=labels[~is_test],
        y_test=labels[is_test],
        hierarchy=Hierarchy.from_edges(path_edges(sorted(set(labels)))),
        texts_train=texts[~is_test].tolist(),
        texts_test=texts[is_test].tolist(),
    )
