"""L-BFGS-B with the value and the gradient in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Matrix = NDArray[Any]


class Minimum(NamedTuple):
    """Where L-BFGS-B ended."""

    x: Matrix
    value: float


def lbfgs(
    function: Callable[..., tuple[float, Matrix]],
    start: Matrix,
    *arguments: Any,
    bounds: tuple[float | None, float | None] | None = None,
    max_iter: int,
    callback: Callable[[Matrix], None] | None = None,
    exact: bool = False,
) -> Minimum:
    """Minimise a smooth function of a vector.

    Parameters
    ----------
    function : callable
        Gives value and gradient for a vector and `arguments`.
    start : ndarray
        Flattened.
    bounds : pair, optional
        Lower and upper bound of all entries.
    max_iter : int
    callback : callable, optional
        Called with the vector after each iteration; StopIteration ends the run.
    exact : bool
        Whether to go on until no step improves the value, instead of SciPy's tolerances.

    Examples
    --------
    >>> import numpy as np
    >>> lbfgs(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(1), max_iter=20).x.round(6)
    array([3.])
    """
    options: Any = {"maxiter": max_iter, "maxcor": 20} | ({"ftol": 0.0, "gtol": 0.0} if exact else {})
    limits: Any = None if bounds is None else [bounds] * start.size
    call: Any = minimize
    found = call(
        function, start.ravel(), arguments, jac=True, method="L-BFGS-B", bounds=limits, callback=callback,
        options=options,
    )  # fmt: skip
    return Minimum(np.asarray(found.x), float(found.fun))
