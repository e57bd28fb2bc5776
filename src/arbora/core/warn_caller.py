"""Warnings that point at the user's line, however deep inside Arbora they are raised."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the stack level of the first frame outside Arbora.

    Parameters
    ----------
    message : str
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
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    # The frame of this function is level 1, so that a caller outside Arbora is level 2.
    warnings.warn(message, category, stacklevel=level)
