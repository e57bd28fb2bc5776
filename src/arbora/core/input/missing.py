"""Missing values among labels and texts."""

from __future__ import annotations

import sys
from typing import Any

from sklearn.utils._missing import is_scalar_nan


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or the NA of pandas.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), "nan", 0)]
    [True, True, False, False]
    """
    # A value can be the NA of pandas only if pandas is imported. Importing it here would cost more than a fit.
    pandas = sys.modules.get("pandas")
    return value is None or is_scalar_nan(value) or value is getattr(pandas, "NA", None)
