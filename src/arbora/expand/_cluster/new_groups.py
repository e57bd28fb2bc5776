"""What is said about new groups: names, sizes, confidence, rows that stand for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Matrix = NDArray[Any]
_SHOWN = 5  # central and borderline rows of a group


class NewGroup(NamedTuple):
    """A group that no label named.

    `confidence` is the mean probability of the group over its rows. `central` are its most probable rows, and
    `borderline` its least probable ones, as row numbers of the fit.
    """

    name: Any
    size: int
    confidence: float
    central: list[int]
    borderline: list[int]


def name_new_groups(known: NDArray[Any], n_new: int) -> NDArray[Any]:
    """Names of all groups: the known ones, then "new 1", "new 2", ..., or integers above the largest known one.

    Examples
    --------
    >>> import numpy as np
    >>> name_new_groups(np.array(["cat", "dog"], dtype=object), 2)
    array(['cat', 'dog', 'new 1', 'new 2'], dtype=object)
    >>> name_new_groups(np.array([0, 7]), 2)
    array([0, 7, 8, 9])
    """
    if known.dtype.kind in "iu":
        return np.concatenate([known, known.max() + 1 + np.arange(n_new)])
    taken, names, number = set(known.tolist()), list[str](), 1
    while len(names) < n_new:
        name = f"new {number}"
        if name not in taken:
            names.append(name)
        number += 1
    return np.array([*known.tolist(), *names], dtype=object)


def describe_new_groups(
    codes: NDArray[np.int64], own: Matrix, names: NDArray[Any], n_known: int
) -> list[NewGroup]:
    """Describe the groups after the first `n_known`, in their order, by the probability of each row in its group.

    Examples
    --------
    >>> import numpy as np
    >>> describe_new_groups(np.array([0, 1, 1]), np.array([0.9, 0.8, 0.6]), np.array([3, 4]), 1)
    [NewGroup(name=4, size=2, confidence=0.7, central=[1, 2], borderline=[2, 1])]
    """
    found = []
    for group in range(n_known, len(names)):
        rows = np.flatnonzero(codes == group)
        value = own[rows]
        order = rows[np.argsort(-value, kind="stable")]
        name = names[group]
        found.append(
            NewGroup(
                name.item() if hasattr(name, "item") else name,
                len(rows),
                round(float(value.mean()), 4) if len(rows) else 0.0,
                order[:_SHOWN].tolist(),
                order[::-1][:_SHOWN].tolist(),
            )
        )
    return found


def match_names(
    codes: NDArray[np.int64], n_new: int, before: NDArray[Any], old: NDArray[Any], known: NDArray[Any]
) -> list[Any]:
    """Names of new groups that keep those of an earlier fit, by Hungarian matching of the rows they share.

    Parameters
    ----------
    codes : ndarray of int
        New group of each row, negative for rows of known groups.
    n_new : int
    before : ndarray
        Groups that the earlier fit gave to the rows.
    old : ndarray
        Names of its new groups. One that has become a known group is not used again.
    known : ndarray

    Examples
    --------
    >>> import numpy as np
    >>> before = np.array(["new 2", "new 2", "new 1"], dtype=object)
    >>> match_names(np.array([0, 0, 1]), 2, before, np.array(["new 1", "new 2"], dtype=object), np.array(["a"]))
    ['new 2', 'new 1']
    """
    gone = set(known.tolist())
    usable = [name for name in old.tolist() if name not in gone]
    overlap = np.array(
        [[np.sum((codes == k) & (before == name)) for name in usable] for k in range(n_new)]
    ).reshape(n_new, len(usable))
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    matched = {int(k): usable[b] for k, b in zip(rows, columns, strict=True) if overlap[k, b] > 0}
    names = name_new_groups(known, n_new + len(usable))[len(known) :].tolist()
    fresh = iter([name for name in names if name not in set(usable)])
    return [matched[k] if k in matched else next(fresh) for k in range(n_new)]
