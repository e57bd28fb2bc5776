"""Arbora organises large collections.

Three verbs, three packages: ``arbora.classify`` files new items into a taxonomy or label graph that exists,
``arbora.discover`` finds structure where there is none, ``arbora.expand`` extends one that is partly labelled.
Sub-packages are imported when first used, so that ``import arbora`` costs nothing.
"""

from importlib import import_module
from typing import Any

from arbora._version import __version__
from arbora.checked_kernels import check_kernels, is_checked
from arbora.core.estimator import set_viewer
from arbora.core.running import running

_PACKAGES = (
    "app",
    "classify",
    "core",
    "datasets",
    "discover",
    "engine",
    "expand",
    "explore",
    "infer",
    "io",
    "kernels",
    "metrics",
    "special",
    "structure",
    "text",
)

_MODELS = {  # of raw texts
    "TextClassifier": "arbora.app.text_classifier",
    "TopicModel": "arbora.app.topic_model",
}

__all__ = ["__version__", "running", *_MODELS, *_PACKAGES]


def _view(model: Any, *arguments: Any, **options: Any) -> Any:
    from arbora.explore import show_model

    return show_model(model, *arguments, **options)


set_viewer(_view)
if is_checked():
    check_kernels()


def __getattr__(name: str) -> Any:
    if name in _MODELS:
        return getattr(import_module(_MODELS[name]), name)
    if name in _PACKAGES:
        return import_module(f"arbora.{name}")
    raise AttributeError(f"module 'arbora' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
