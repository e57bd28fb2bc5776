"""Pruning of small weights, so that models of very many classes fit into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def pruned(V: NDArray[Any], below: Any) -> sp.csr_array:
    """Keep the entries whose absolute value exceeds a threshold, one for all rows or one for each.

    Examples
    --------
    >>> import numpy as np
    >>> pruned(np.array([[0.5, -2.0], [0.5, -2.0]]), np.array([[1.0], [0.0]])).toarray()
    array([[ 0. , -2. ],
           [ 0.5, -2. ]])
    """
    return sp.csr_array(np.where(np.abs(V) > below, V, V.dtype.type(0)))
