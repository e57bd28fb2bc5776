"""The built-in corpus: documents, labels, split."""

import ast
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from arbora.datasets import load_python_docs, python_docs
from arbora.datasets.python_docs import (
    MIN_WORDS,
    _docstrings,
    clean_docstring,
    lift_small_classes,
    stratified_test_rows,
)

# ---- a package written here -----------------------------------------------------------------------------

FILLER = "of a function that has a docstring with enough words to count"
FILES = {
    "__init__.py": f'"""Package {FILLER}."""',
    "_solve.py": "\n".join(
        f'def solve_{i}():\n    """Solver {i} {FILLER}; see scipy.stats.norm.\n\n    >>> solve_{i}()\n    """'
        for i in range(6)
    ),
    "deep/__init__.py": "",
    "deep/down/__init__.py": f'"""Module far down {FILLER}."""',
    "deep/down/below.py": "\n".join(f'def f{i}():\n    """Below {i} {FILLER}."""' for i in range(5)),
    "small.py": f'"""Small {FILLER}."""\nraise RuntimeError("imported")\ndef short():\n    """Too short."""',
    "twice.py": f'"""Small {FILLER}."""',
    "code.py": f'"""Nearly all code {FILLER}."""\n' + "x = 1\n" * 1000,
    "broken.py": f'"""Syntax error {FILLER}."""\ndef (:',
    "tests/test_it.py": f'"""Test {FILLER}."""',
    "deep/_lib/vendored.py": f'"""Vendored {FILLER}."""',
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, source in FILES.items():
        file = tmp_path / "pkg" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    monkeypatch.setattr(python_docs, "package_folders", lambda: [("pkg", tmp_path / "pkg", True)])
    return tmp_path / "pkg"


def test_documents_and_labels(package):
    data = load_python_docs(max_depth=3, test_size=0)
    # Classes with fewer than 5 documents are merged into their parent: pkg/small here, pkg/deep/down is kept.
    assert Counter(data.y) == {"pkg": 2, "pkg/solve": 6, "pkg/deep/down": 6}
    assert data.hierarchy.to_edges() == [
        ("root", "pkg"), ("pkg", "pkg/deep"), ("pkg", "pkg/solve"), ("pkg/deep", "pkg/deep/down")
    ]  # fmt: skip
    texts = dict(zip(data.texts, data.y, strict=True))
    assert texts[f"Solver 0 {FILLER}; see  ."] == "pkg/solve"
    assert texts[f"Small {FILLER}."] == "pkg"  # once, though two modules have it
    assert not [text for text in texts if text.startswith(("Too", "Nearly", "Syntax", "Test", "Vendored"))]
    assert Counter(load_python_docs(max_depth=2, test_size=0).y) == {"pkg": 2, "pkg/solve": 6, "pkg/deep": 6}


def test_private_modules_of_the_standard_library_are_skipped(package, monkeypatch):
    monkeypatch.setattr(python_docs, "package_folders", lambda: [("python", package, False)])
    assert Counter(load_python_docs(test_size=0).y) == {"python": 2, "python/deep/down": 6}


def test_no_documented_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(python_docs, "package_folders", lambda: [("pkg", tmp_path, True)])
    with pytest.raises(FileNotFoundError, match="no documented source file in"):
        load_python_docs()


IN_ANOTHER_PROCESS = """
import pathlib, sys
from arbora.datasets import load_python_docs, python_docs
python_docs.package_folders = lambda: [("pkg", pathlib.Path(sys.argv[1]), True)]
data = load_python_docs(random_state=1)
print("sklearn" in sys.modules)
print(list(zip(data.texts, data.y.tolist())))
"""


def test_another_process_reads_the_same_and_imports_nothing(package):
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    data, other = load_python_docs(random_state=1), load_python_docs(random_state=2)
    expected = list(zip(data.texts, data.y.tolist(), strict=True))
    assert done.stdout.splitlines() == ["False", str(expected)]
    assert data.texts_test != other.texts_test
    assert sorted(data.texts) == sorted(other.texts)


# ---- the installed packages -------------------------------------------------------------------------------


def test_installed_packages():
    """Holds for any installed versions."""
    data = load_python_docs()
    assert data.hierarchy.is_tree
    assert "python" in data.hierarchy.children("root")
    data.hierarchy.encode(data.y)  # raises for an unknown name
    sizes, tests = Counter(data.y), Counter(data.y_test)
    assert all(tests[label] == size // 4 for label, size in sizes.items())
    assert min(size for label, size in sizes.items() if "/" in label) >= 5
    assert len(set(data.texts)) == len(data.texts) == len(data.y)
    assert min(len(text.split()) for text in data.texts) >= MIN_WORDS
    assert not [text for text in data.texts if re.search(r"\b(scipy|sklearn|numpy)\.\w", text)]


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
