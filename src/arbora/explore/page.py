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

from arbora._version import __version__
from arbora.app.folder import open_folder, reading
from arbora.core.files import publish, temporary_file
from arbora.explore.page_data import MOST_DOCUMENTS, model_data

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
    most_documents: int = MOST_DOCUMENTS,
    live: Mapping[str, Any] | None = None,
) -> Page:
    """Make the page of one or more models.

    Parameters
    ----------
    folders : path, Folder or Content, or a sequence of them
        Model folders, shown in this order.
    title : str, optional
        Title of the page; by default the names of the models.
    most_documents : int
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
    models = ",".join(_data_of(folder, most_documents) for folder in opened)
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


def _data_of(folder: Any, most_documents: int) -> str:
    with reading(folder.path) if hasattr(folder, "path") else nullcontext():
        return as_json(model_data(folder, most_documents))


def write_page(
    folders: Any | Sequence[Any],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    most_documents: int = MOST_DOCUMENTS,
) -> Path:
    """Write the page of one or more models to a file, completely or not at all.

    Parameters
    ----------
    folders, title, most_documents
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
    return make_page(folders, title=title, most_documents=most_documents).save(path)


def show(folders: Any | Sequence[Any], *, height: int = 760, most_documents: int = MOST_DOCUMENTS) -> Page:
    """Show models in a notebook: the page of ``arbora explore`` in a frame.

    Parameters
    ----------
    folders : path, Folder or Content, or a sequence of them
    height : int
        Height of the frame in pixels.
    most_documents : int
        As for `make_page`.

    Returns
    -------
    Page
        Notebooks display it; `save` writes it to a file.

    Examples
    --------
    >>> show("model/")  # doctest: +SKIP
    """
    page = make_page(folders, most_documents=most_documents)
    page.height = height
    return page


def as_json(value: Any) -> str:
    r"""Write JSON that is safe inside a script element.

    Examples
    --------
    >>> print(as_json({"text": "</script><!--"}))
    {"text":"\u003c/script>\u003c!--"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # JSON can contain half of a surrogate pair, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode("utf-8").replace("<", "\\u003c")


def policy(scripts: Sequence[str], *, connect: bool = False) -> str:
    """Write the content-security policy: these scripts, inline styles, images in the page, and nothing else.

    Examples
    --------
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
