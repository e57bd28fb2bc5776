"""Names of array types, and the smallest number that a computation may divide by."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Matrix: TypeAlias = NDArray[Any]  # of any type of number, as users give it
Names: TypeAlias = NDArray[np.object_]

TINY = float(np.finfo(np.float64).tiny)
