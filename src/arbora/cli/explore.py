"""``arbora explore``: look at model folders in the browser; ``arbora expand``: a name that is kept for later."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from arbora.explore.folder import open_folder

_PAGE = "page.html"
_LOCAL = ("127.0.0.1", "localhost", "::1")


def run(
    models: list[str],
    out: str | None = None,
    serve: bool = False,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
) -> None:
    """Write a page of model folders, or serve it; arguments are those of the command."""
    folders = [open_folder(model) for model in models]
    if serve:
        if host not in _LOCAL and not token:
            raise ValueError(
                f"--host {host} can be reached by others: give a --token that a browser must show"
            )
        _part("arbora.explore.server").serve(folders, host=host, port=port, token=token)
        return
    path = _part("arbora.explore.page").make_page(folders).save(out or _PAGE)
    print(f"Written to {path}.")


def _part(module: str) -> Any:
    """Import a part that not every installation has."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("arbora"):
            raise ValueError(
                "this version of Arbora has no browser yet; the model folders are in order"
            ) from None
        raise ValueError(f"{error.name} is missing: pip install 'arbora[explore,serve]'") from None


def refuse_expand(data: list[str]) -> None:
    """Say that the verb is reserved."""
    raise ValueError("expand is reserved: growing a partly labelled organisation comes in a later version")
