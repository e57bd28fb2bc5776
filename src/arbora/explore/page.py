r"""One HTML file with models, views and all code; it loads nothing when it is opened.

The page is safe to open whatever the documents contain. The data are a block of JSON that the browser does not
execute, with every ``<`` written as ``\u003c``, and the code inserts text as text. A content-security policy allows
only the scripts of the page, by their SHA-256, and no connections. (Inline styles are allowed because Plotly writes
them; the policy forbids what they could load.)
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from arbora._version import __version__
from arbora.app.contents.fitted_model import model_content
from arbora.app.contents.nodes import draw_sample
from arbora.app.folder import open_folder, reading
from arbora.arrays import Ints, Matrix
from arbora.core.files import publish, temporary_file

# --- The data of a page: the content of a model folder in columns, with no more documents than a browser can draw ---
#
# Text is not escaped here: `page` escapes the JSON, and the JavaScript of the page inserts text as text.


MAX_DOCUMENTS = 50_000
POSITION_SCALE = 1e-4  # unit of positions, which are written as integers: five characters instead of ten

_ABOUT = (
    "kind",
    "name",
    "arbora",
    "created",
    "settings",
    "estimator",
    "n_documents",
    "n_nodes",
    "n_features",
    "has_text",
    "multilabel",
)
_NODE_COLUMNS = ("name", "title", "parent", "size", "own", "words")
_OPTIONAL_NODE_COLUMNS = (
    "more_parents",
    "topic",
    "typical",
    "terms",
    "concentration",
    "new",
    "confidence",
    "states",
    "labels",
    "profile",
)
_DOCUMENT_COLUMNS = ("id", "text", "label", "node", "probability")
_OPTIONAL_DOCUMENT_COLUMNS = ("words", "time", "state")


def model_data(folder: Any, max_documents: int = MAX_DOCUMENTS, seed: int = 0) -> dict[str, Any]:
    """Make the data of one open model folder or content, as values for JSON.

    Of more than `max_documents`, a random sample is kept, with a notice, and all that nodes and confusions refer to.
    """
    lines = sample_documents(folder, max_documents, seed)
    place = {int(old): new for new, old in enumerate(lines)}
    documents = [folder.documents[line] for line in lines.tolist()]
    about = {key: folder.about.get(key) for key in _ABOUT}
    about["notices"] = list(folder.about.get("notices") or ())
    if len(lines) < len(folder.documents):
        about["notices"].append(
            f"This page shows a random sample of {len(lines):,} of the {len(folder.documents):,} documents."
        )
    nodes = columns(folder.nodes, _NODE_COLUMNS, _OPTIONAL_NODE_COLUMNS)
    for name in ("documents", "borderline"):
        if name == "documents" or any(name in node for node in folder.nodes):
            nodes[name] = [_moved(node.get(name, ()), place) for node in folder.nodes]
    return {
        "about": about,
        "nodes": nodes,
        "documents": columns(documents, _DOCUMENT_COLUMNS, _OPTIONAL_DOCUMENT_COLUMNS),
        "positions": whole_positions(folder.positions[lines]),
        "nodePositions": whole_positions(folder.node_positions),
        "evaluation": _moved_evaluation(folder.evaluation, place),
        "time": folder.time,
        "expansion": _moved_expansion(folder.expansion, place),
    }


def sample_documents(folder: Any, max_documents: int, seed: int) -> Ints:
    """Choose the documents of a page: all that are referred to, and a random sample; ascending."""
    n_documents = len(folder.documents)
    if n_documents <= max_documents:
        return np.arange(n_documents)
    needed = {
        line for node in folder.nodes for name in ("documents", "borderline") for line in node.get(name, ())
    }
    if folder.evaluation:
        needed |= {line for row in folder.evaluation["confusions"] for line in row["documents"]}
    if folder.expansion:
        proposals = (*folder.expansion["splits"], *folder.expansion["merges"])
        needed |= {line for proposal in proposals for side in proposal["documents"] for line in side}
    return draw_sample(
        n_documents, max_documents, np.array(sorted(needed), np.int64), np.random.default_rng(seed)
    )


def columns(rows: Sequence[dict[str, Any]], names: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    """Convert rows to columns; an optional column is included if any row has a value.

    >>> columns([{"id": "a", "time": 3}, {"id": "b"}], ["id"], ["time", "words"])
    {'id': ['a', 'b'], 'time': [3, None]}
    """
    lists = {name: [row.get(name) for row in rows] for name in (*names, *optional)}
    return {
        name: values
        for name, values in lists.items()
        if name in names or any(value is not None for value in values)
    }


def whole_positions(positions: Matrix) -> list[int | None]:
    """Flatten positions to integers, in units of `POSITION_SCALE`; None for NaN.

    >>> whole_positions(np.array([[0.5, -0.25, np.nan]]))
    [5000, -2500, None]
    """
    flat = np.asarray(positions, np.float64).ravel() / POSITION_SCALE
    finite = np.isfinite(flat)
    whole = np.rint(np.where(finite, flat, 0.0)).astype(np.int64).tolist()
    return [value if there else None for value, there in zip(whole, finite.tolist(), strict=True)]


def _moved(lines: Sequence[int], place: dict[int, int]) -> list[int]:
    return [place[line] for line in lines if line in place]


def _moved_evaluation(evaluation: dict[str, Any] | None, place: dict[int, int]) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    confusions = [{**row, "documents": _moved(row["documents"], place)} for row in evaluation["confusions"]]
    return {**evaluation, "confusions": confusions}


def _moved_expansion(expansion: dict[str, Any] | None, place: dict[int, int]) -> dict[str, Any] | None:
    if expansion is None:
        return None
    proposals = {
        key: [
            {**proposal, "documents": [_moved(side, place) for side in proposal["documents"]]}
            for proposal in expansion[key]
        ]
        for key in ("splits", "merges")
    }
    return {**expansion, **proposals}


# --- One HTML file with models, views and all code; it loads nothing when it is opened ----------------------


_SCRIPTS = (
    "model",
    "drawing",
    "colours",
    "words",
    "details",
    "tree_layout",
    "tree",
    "time_words",
    "time",
    "quality",
    "map_canvas",
    "map_labels",
    "map_selection",
    "map_solid",
    "map",
    "filing",
    "edit_replay",
    "editing",
    "main",
)


class Page:
    """A page; a notebook displays it in a frame.

    Attributes
    ----------
    html : str
        The whole page.
    """

    def __init__(self, content: str, height: int = 760) -> None:
        self.html = content
        self.height = height

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, completely or not at all.

        Parameters
        ----------
        path : path
            Missing parent folders are created.

        Returns
        -------
        Path
        """
        target = Path(path)
        if target.is_dir():
            raise ValueError(f"{path} is a folder: give the path of a file for the page")
        above = next(parent for parent in (*target.parents, Path()) if parent.exists())
        if not above.is_dir():
            raise ValueError(f"{path} cannot be created: {above} is a file, not a folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(target.parent) as (file, temporary):
            file.write(self.html.encode("utf-8"))
            publish(file, temporary, target)
        return target

    def _repr_html_(self) -> str:
        # The sandboxed frame has its own origin: the page can access neither the notebook nor its kernel.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" title="Arbora" '
            f'style="width: 100%; height: {self.height}px; border: 1px solid #8883; border-radius: 8px"></iframe>'
        )


def make_page(
    folders: Any | Sequence[Any],
    *,
    title: str | None = None,
    max_documents: int = MAX_DOCUMENTS,
    live: Mapping[str, Any] | None = None,
) -> Page:
    """Make the page of one or more models.

    Parameters
    ----------
    folders : path, Folder or Content, or a sequence of them
        Model folders, shown in this order.
    title : str, optional
        Title of the page; by default the names of the models.
    max_documents : int
        Largest number of documents of each model; if a folder has more, the page shows a sample and a notice.
    live : mapping, optional
        Limits of the server of the page, and what it allows; without them the page makes no connections.

    Returns
    -------
    Page

    Examples
    --------
    >>> make_page("model/").html[:15]  # doctest: +SKIP
    '<!doctype html>'
    """
    opened = [_opened(folder) for folder in _as_list(folders)]
    if not opened:
        raise ValueError("give at least one model folder to show")
    models = ",".join(_data_of(folder, max_documents) for folder in opened)
    data = as_json({"live": live is not None, "limits": live or {}})[:-1] + f',"models":[{models}]}}'
    scripts = {"plotly": plotly_script(), "script": own_script()}
    values = {
        "policy": policy(list(scripts.values()), connect=live is not None),
        "generator": html.escape(f"Arbora {__version__}"),
        "title": html.escape(title or ", ".join(str(folder.about["name"]) for folder in opened)),
        "style": asset("page.css"),
        "data": data,
        **scripts,
    }
    return Page(_fill(asset("page.html"), values))


def _data_of(folder: Any, max_documents: int) -> str:
    with reading(folder.path) if hasattr(folder, "path") else nullcontext():
        return as_json(model_data(folder, max_documents))


def write_page(
    folders: Any | Sequence[Any],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_documents: int = MAX_DOCUMENTS,
) -> Path:
    """Write the page of one or more models to a file, completely or not at all.

    Parameters
    ----------
    folders, title, max_documents
        As for `make_page`.
    path : path
        The HTML file.

    Returns
    -------
    Path

    Examples
    --------
    >>> write_page(["model/", "topics/"], "page.html")  # doctest: +SKIP
    """
    return make_page(folders, title=title, max_documents=max_documents).save(path)


def show(folders: Any | Sequence[Any], *, height: int = 760, max_documents: int = MAX_DOCUMENTS) -> Page:
    """Show models in a notebook: the page of ``arbora explore`` in a frame.

    Parameters
    ----------
    folders : path, Folder or Content, or a sequence of them
    height : int
        Height of the frame in pixels.
    max_documents : int
        As for `make_page`.

    Returns
    -------
    Page
        Notebooks display it; `save` writes it to a file.

    Examples
    --------
    >>> show("model/")  # doctest: +SKIP
    """
    return Page(make_page(folders, max_documents=max_documents).html, height)


def as_json(value: Any) -> str:
    r"""Write JSON that is safe inside a script element.

    >>> print(as_json({"text": "</script><!--"}))
    {"text":"\u003c/script>\u003c!--"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # JSON can contain half of a surrogate pair, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode("utf-8").replace("<", "\\u003c")


def policy(scripts: Sequence[str], *, connect: bool = False) -> str:
    """Write the content-security policy: these scripts, inline styles, images in the page, and nothing else.

    >>> policy(["1"])[:58]
    "default-src 'none'; script-src 'sha256-a4ayc/80/OGda4BO/1o"
    """
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode() for script in scripts
    )
    return "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(f"'sha256-{value}'" for value in hashes),
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "connect-src 'self'" if connect else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def plotly_script() -> str:
    """Return the JavaScript of the installed plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("the page needs plotly: pip install arbora[explore]") from error
    # HTML parsers normalise line ends, and the hash must be that of the normalised script.
    return _inline(str(get_plotlyjs()))


def own_script() -> str:
    """Return the JavaScript of the views, in its own scope."""
    parts = "\n".join(asset(f"{name}.js") for name in _SCRIPTS)
    return _inline(f'"use strict";\n(() => {{\n{parts}\n}})();\n')


def asset(name: str) -> str:
    """Read a file of the page."""
    return files("arbora.explore").joinpath("assets", name).read_text(encoding="utf-8")


def _inline(script: str) -> str:
    script = script.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("this JavaScript cannot be embedded in a page: it contains '</script' or '<!--'")
    return script


def _fill(template: str, values: dict[str, str]) -> str:
    """Fill the placeholders of a template in one pass; the values are not scanned for placeholders."""
    head, *sections = template.split("[[")
    filled = [head]
    for section in sections:
        name, _, rest = section.partition("]]")
        filled += [values[name], rest]
    return "".join(filled)


def _as_list(folders: Any) -> list[Any]:
    return list(folders) if isinstance(folders, list | tuple) else [folders]


def _opened(folder: Any) -> Any:
    return open_folder(folder) if isinstance(folder, str | os.PathLike) else folder


# --- The page of a fitted model in memory: what ``model.explore(...)`` returns. Nothing is written to disk ---


def show_model(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    documents: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
    times: Any = None,
    baseline: Any = None,
    name: str | None = None,
    height: int = 760,
    layout: str = "neighbours",
) -> Page:
    """Make the page of a fitted classifier, mixture or k-means; ``model.explore(...)`` does the same.

    Parameters
    ----------
    model : fitted estimator of this package
    X, y, documents, words, times, baseline, name
        See `explore` of the model.
    height : int
        Height of the frame in pixels.
    layout : {"neighbours", "linear"}
        Map of the rows: similar rows near each other (needs openTSNE), or a linear projection.

    Returns
    -------
    Page
        Notebooks display it; `save` writes it to a file.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> model = OneVsRestSVC(random_state=0).fit([[1.0, 0.0], [0.0, 1.0]], ["sea", "land"])
    >>> page = show_model(model, [[0.9, 0.1]], documents=["fish in a tree"], words=["fish", "tree"])
    >>> page.html[:15]
    '<!doctype html>'
    """
    content = model_content(
        model,
        X,
        y,
        documents=documents,
        words=words,
        times=times,
        baseline=baseline,
        name=name,
        layout=layout,
    )
    return Page(make_page([content]).html, height)
