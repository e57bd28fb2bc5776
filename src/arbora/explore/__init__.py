"""Look at a model: the folder that holds it with all there is to see, the page that shows it, and figures.

``arbora.explore.folder`` writes and opens model folders, ``arbora.explore.page`` makes the page,
``arbora.explore.look`` that of a model in memory (``model.explore()``), ``arbora.explore.server`` serves it,
``arbora.explore.figures`` draws single pictures.
"""

from typing import Any

_PLACES = {
    "look_at": "look",
    "open_folder": "folder",
    "make_page": "page",
    "write_page": "page",
    "show": "page",
    "serve": "server",
}

__all__ = ["look_at", "make_page", "open_folder", "serve", "show", "write_page"]


def __getattr__(name: str) -> Any:
    # Each part needs packages that not every installation has; it is imported when it is used.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
