"""The built-in corpus: what a document is, what a label is, and that reading it imports nothing."""

import ast
import hashlib
import inspect
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from arbora.datasets import load_python_docs
from arbora.datasets.python_docs import (
    MIN_WORDS,
    _docstrings,
    clean_docstring,
    lift_small_classes,
    stratified_test_rows,
)


@pytest.fixture(scope="module")
def docs():
    return load_python_docs()


def test_size_and_shape(docs):
    sizes = Counter(docs.y)
    assert 3000 < len(docs.texts) < 20_000
    assert len(sizes) > 100
    assert docs.hierarchy.is_tree
    assert docs.hierarchy.height == 3
    assert sorted(docs.hierarchy.children("root")) == ["numpy", "python", "scipy", "sklearn"]


def test_labels_are_nodes_and_classes_are_not_tiny(docs):
    docs.hierarchy.encode(docs.y)  # raises for an unknown name
    sizes = Counter(docs.y)
    assert min(size for label, size in sizes.items() if "/" in label) >= 5
    assert {"python/json", "scipy/stats", "sklearn/linear_model", "numpy/linalg"} <= set(docs.hierarchy.names)
    assert not [name for name in docs.hierarchy.names if "test" in name.split("/")[-1].split("_")[0:1]]


def test_split_is_stratified(docs):
    train, test = Counter(docs.y_train), Counter(docs.y_test)
    assert set(test) <= set(train)
    for label, size in Counter(docs.y).items():
        assert test[label] == size // 4
    assert len(docs.texts_train) == len(docs.y_train)
    assert len(docs.texts_test) == len(docs.y_test)


def test_texts_are_distinct_prose(docs):
    texts = docs.texts
    assert len(set(texts)) == len(texts)
    assert min(len(text.split()) for text in texts) >= MIN_WORDS
    assert not [text for text in texts if re.search(r"^\s*>>> ", text, re.MULTILINE)]
    assert not [text for text in texts if re.search(r"\b(scipy|sklearn|numpy)\.\w", text)]


IN_ANOTHER_PROCESS = """
import sys
from arbora.datasets import load_python_docs
from arbora.structure import Hierarchy
before = set(sys.modules)
data = load_python_docs(random_state=1)
packages = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(packages & {"sklearn", "tkinter", "turtle", "asyncio", "xml"}))
print(hash_of(sorted(zip(data.texts, data.y.tolist()))))
print(hash_of(data.texts_test))
"""


def hash_of(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()


def test_another_process_reads_the_same_and_imports_nothing(docs):
    code = "import hashlib\n" + inspect.getsource(hash_of) + IN_ANOTHER_PROCESS
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, everything, test_part = done.stdout.splitlines()
    assert imported == "[]"
    assert everything == hash_of(sorted(zip(docs.texts, docs.y.tolist(), strict=True)))
    assert test_part != hash_of(docs.texts_test)  # another seed, another split


def test_importing_the_package_is_light():
    heavy = "('scipy', 'sklearn', 'numba', 'pandas')"
    code = f"import sys, arbora.datasets; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SOURCE = '''
"""Module text."""
class Public:
    """Class text."""
    x: int
    """Not a docstring."""
    def method(self):
        r"""Method text."""
        def inner():
            """Inner text."""
    def _hidden(self):
        """Hidden text."""
    class Inner:
        """Inner class text."""
class _Private:
    """Private text."""
    def method(self):
        """Method of a private class."""
async def function():
    """Function text."""
def bare():
    return """not a docstring"""
'''


def test_docstrings_of_public_things():
    assert list(_docstrings(ast.parse(SOURCE))) == [
        "Module text.", "Class text.", "Method text.", "Inner class text.", "Function text."
    ]  # fmt: skip


def test_clean_docstring():
    text = """Fit it.

        See scipy.stats.norm and `np.linalg.svd`, in 3.5 steps ...

        >>> from scipy import stats
        >>> for i in range(3):
        ...     print(i)
        0
    """
    cleaned = clean_docstring(text)
    assert "import" not in cleaned
    assert "print" not in cleaned
    assert "norm" not in cleaned
    assert "in 3.5 steps ..." in cleaned
    assert cleaned.startswith("Fit it.\n\nSee")


def test_lifting_small_classes():
    labels = ["a/b/c"] * 2 + ["a/b/d"] * 3 + ["a/e"] * 2 + ["f"]
    assert lift_small_classes(labels, 3) == ["a"] * 2 + ["a/b/d"] * 3 + ["a"] * 2 + ["f"]
    assert lift_small_classes(labels, 1) == labels
    assert Counter(lift_small_classes(labels, 100)) == {"a": 7, "f": 1}


@pytest.mark.parametrize("test_size", [0.0, 0.2, 0.5, 0.9])
def test_stratified_rows(test_size):
    labels = np.array(list("aabbbbbccccccccccd"), dtype=object)
    is_test = stratified_test_rows(labels, test_size, np.random.default_rng(0))
    for label in "abcd":
        assert is_test[labels == label].sum() == int(test_size * (labels == label).sum())


@pytest.mark.parametrize("options", [{"max_depth": 0}, {"test_size": 1.0}])
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        load_python_docs(**options)
