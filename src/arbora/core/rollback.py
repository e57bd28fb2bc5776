"""Changes to an estimator that are undone if they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore all attributes of an estimator if the block fails, so that an earlier fit stays usable.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from arbora.core.rollback import all_or_nothing
    >>> model = SimpleNamespace(coef_=1)
    >>> try:
    ...     with all_or_nothing(model):
    ...         model.coef_ = 2
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     model
    namespace(coef_=1)
    """
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
