"""Show models in the browser, in a notebook and in figures.

======================  ============================================================================
`page`                  one HTML file with all views of model folders, or of a model in memory
`server`                the page with a view that files new documents; `guard` has its limits
`figures`               single Plotly figures
======================  ============================================================================
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "show_model": "arbora.explore.page",
    "open_folder": "arbora.app.folder",
    "make_page": "arbora.explore.page",
    "write_page": "arbora.explore.page",
    "show": "arbora.explore.page",
    "serve": "arbora.explore.server",
}

__all__ = ["make_page", "open_folder", "serve", "show", "show_model", "write_page"]


def __getattr__(name: str) -> Any:
    # A part may need an optional package: import it when it is first used.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
