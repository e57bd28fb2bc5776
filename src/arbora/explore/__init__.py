"""Look at a model: the folder that holds it with all there is to see, the page that shows it, and figures.

``arbora.app.folder`` writes and opens model folders, ``arbora.explore.page`` makes the page,
``arbora.explore.display`` that of a model in memory (``model.explore()``), ``arbora.explore.server`` serves it,
``arbora.explore.figures`` draws single pictures.
"""

from typing import Any

_PLACES = {
    "look_at": "arbora.explore.display",
    "open_folder": "arbora.app.folder",
    "make_page": "arbora.explore.page",
    "write_page": "arbora.explore.page",
    "show": "arbora.explore.page",
    "serve": "arbora.explore.server",
}

__all__ = ["look_at", "make_page", "open_folder", "serve", "show", "write_page"]


def __getattr__(name: str) -> Any:
    # Each part needs packages that not every installation has; it is imported when it is used.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
