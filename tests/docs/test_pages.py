"""The documentation is true: the code of every page runs and prints what the page shows; links and names exist."""

import functools
import pkgutil
import re
import shutil
import warnings

import pytest

import arbora.datasets
from arbora.cli import build_parser, main
from support.pages import read_blocks, run_page
from support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md"]
WITH_CODE = [page for page in PAGES if page.name not in ("index.md", "glossary.md", "demo.md")]

DOCUMENTS = {
    "sea/fish": "fins scales gills water salt",
    "sea/ships": "sails anchor captain water salt",
    "land/trees": "leaves bark roots soil stone",
    "land/roads": "asphalt traffic bridge soil stone",
}


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """A folder with text files in ``docs/``, ``more-docs/`` and ``pile/``, two files, ``model/`` and ``topics/``."""
    top = tmp_path_factory.mktemp("pages")
    for label, words in DOCUMENTS.items():
        for number in range(8):
            for name in ("docs", "more-docs")[: 2 if number == 0 else 1]:
                file = top / name / label / f"{number}.txt"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(" ".join(word for i, word in enumerate(words.split()) if i != number % 5))
    (top / "pile").mkdir()
    for number in range(8):
        (top / "pile" / f"{number}.txt").write_text(
            "clouds thunder rain wind storm".replace("rain", "", number % 2)
        )
    rows = [f"{words},{label}" for label, words in DOCUMENTS.items()] * 3 + ["clouds rain wind,"] * 4
    (top / "partly_labelled.csv").write_text("\n".join(["text,label", *rows]))
    (top / "later.jsonl").write_text('{"text": "rain and wind"}\n')
    (top / "hierarchy.tsv").write_text(
        "".join(f"{label.partition('/')[0]}\t{label}\n" for label in DOCUMENTS)
    )
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(top)
        assert main(["classify", "train", "docs/", "--out", "model/"]) == 0
        assert main(["discover", "docs/", "--tree", "2x2", "--out", "topics/"]) == 0
    return top


@pytest.fixture
def reader(workshop, tmp_path, monkeypatch):
    """Put the reader of a page into a folder of its own."""
    shutil.copytree(workshop, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def corpus():
    """Read the built-in corpus once for all pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arbora.datasets, "load_python_docs", functools.cache(arbora.datasets.load_python_docs))
        yield


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_code_of_the_page_runs_and_prints_what_it_shows(page, reader, corpus):
    assert run_page(page), f"{page.name} has no code that runs"


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_library_exist(page):
    """Dotted names (``arbora.core.trace``) can be imported; paths of Python files lead to files."""
    text = page.read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"\barbora(?:\.[A-Za-z_]\w*)+", text))):
        assert pkgutil.resolve_name(name) is not None
    for path in sorted(set(re.findall(r"(?<![\w./-])[\w./-]+/\w+\.py\b", text))):
        places = (ROOT / path, ROOT / "src/arbora" / path, page.parent / path)
        assert any(place.exists() for place in places), f"{page.name} names {path}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, (
            f"docs/index.md does not link {page.name}"
        )


def test_page_of_the_command_line_shows_its_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = read_blocks(ROOT / "docs/command_line.md")[0].code.splitlines()[1:-1]
    assert build_parser().format_help().splitlines()[: len(shown)] == shown
