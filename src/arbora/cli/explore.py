"""``arbora explore``: look at model folders in the browser; ``arbora expand``: a name that is kept for later."""

from __future__ import annotations

import json
from functools import partial

from arbora.app.folder import open_folder

_PAGE = "page.html"


def run(
    models: list[str],
    out: str | None = None,
    serve: bool = False,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    as_json: bool = False,
) -> None:
    """Write a page of model folders, or serve it; arguments are those of the command."""
    folders = [open_folder(model) for model in models]
    if serve:
        from arbora.explore import server

        tell = partial(_tell, as_json=as_json)
        server.serve(folders, host=host, port=port, token=token, tell=tell)
        return
    from arbora.explore.page import make_page

    path = make_page(folders).save(out or _PAGE)
    if as_json:
        keys = ("name", "kind", "n_documents", "n_nodes")
        told = [{key: folder.about.get(key) for key in keys} for folder in folders]
        print(json.dumps({"out": str(path), "bytes": path.stat().st_size, "models": told}))
    else:
        print(f"Written to {path}.")


def _tell(address: str, *, as_json: bool) -> None:
    """Say where the server is; flushed, since whoever started it may wait for that."""
    said = json.dumps({"address": address}) if as_json else f"Serving at {address} (Ctrl-C ends it)"
    print(said, flush=True)


def refuse_expand(data: list[str]) -> None:
    """Say that the verb is reserved."""
    raise ValueError("expand is reserved: growing a partly labelled organisation comes in a later version")
