"""Warnings that point at the user's line, however deep inside Arbora they are raised."""

from __future__ import annotations

import sys
import warnings

# Packages between the user's line and the warning: scikit-learn wraps `fit` and calls it in searches and pipelines.
_SKIPPED = frozenset({"arbora", "sklearn", "joblib"})


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn with the stack level of the first frame outside Arbora, scikit-learn and joblib.

    In a worker thread no such frame may exist; the warning then points at the bottom of the thread's stack.

    Parameters
    ----------
    message : str or Warning
        A warning object has a category of its own.
    category : type of Warning

    Examples
    --------
    >>> import warnings
    >>> from arbora.core.warn_caller import warn_caller
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_caller("the fit has not converged")
    >>> str(caught[0].message)
    'the fit has not converged'
    """
    level, frame = 2, sys._getframe(1)  # level 1 is this function
    while frame.f_back is not None and _package(frame.f_globals) in _SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
