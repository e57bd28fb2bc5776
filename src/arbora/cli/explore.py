"""``arbora explore``."""

from __future__ import annotations

from arbora.app.folder import open_folder
from arbora.cli.reports import to_json

_PAGE = "page.html"


def explore(
    models: list[str],
    *,
    out: str | None = None,
    serve: bool = False,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    log: bool = False,
    edits: str | None = None,
    as_json: bool = False,
) -> None:
    """Write the page of some model folders, or serve it."""
    if edits is not None:
        from arbora.app.stored_edits import edit_folder, read_edits

        if len(models) != 1:
            raise ValueError("--edits is for one model folder: give the folder that the edits were made on")
        edit_folder(models[0], read_edits(edits))
    folders = [open_folder(model) for model in models]
    if serve:
        from arbora.explore import server

        def print_address(address: str) -> None:
            # Flushed: a program that started the server may wait for this line.
            print(
                to_json({"address": address}) if as_json else f"Serving at {address} (Ctrl-C ends it)",
                flush=True,
            )

        server.serve(folders, host, port, token, print_address, log_requests=log)
        return
    from arbora.explore.page import make_page

    path = make_page(folders).save(out or _PAGE)
    if as_json:
        keys = ("name", "kind", "n_documents", "n_nodes")
        about = [{key: folder.about.get(key) for key in keys} for folder in folders]
        print(to_json({"out": str(path), "bytes": path.stat().st_size, "models": about}))
    else:
        print(f"Written to {path}.")
