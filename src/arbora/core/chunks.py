"""Cut a range into parts that depend on its length alone, never on the number of threads.

Floating point addition is not associative: statistics summed over other parts differ in the last bits. A
model that cuts its rows with :func:`split` and adds in order gives the same bits with one thread and with
sixty-four.
"""

from itertools import pairwise


def split(n: int, n_parts: int | None = None, *, size: int | None = None, even: bool = True) -> list[slice]:
    """Cut ``range(n)`` into consecutive slices.

    Their lengths differ by one at most, unless `even` is False.

    Parameters
    ----------
    n : int
        Length of what is cut.
    n_parts : int, optional
        Number of parts; fewer are made when there are fewer than ``n_parts`` elements, so that no part is
        empty.
    size : int, optional
        Greatest length of a part. Give either ``n_parts`` or ``size``.
    even : bool
        With ``size``: False gives all parts but the last that length, so that they start at its multiples.

    Returns
    -------
    list of slice
        The longer parts come first; empty when ``n`` is 0.

    Examples
    --------
    >>> from arbora.core.chunks import split
    >>> split(10, 3)
    [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    >>> [part.stop - part.start for part in split(10, size=4)]
    [4, 3, 3]
    >>> [part.stop - part.start for part in split(10, size=4, even=False)]
    [4, 4, 2]
    """
    if (n_parts is None) == (size is None):
        raise ValueError("give either n_parts or size: split(n, n_parts) or split(n, size=...)")
    if n < 0:
        raise ValueError(f"cannot split a range of negative length {n}")
    if size is not None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        if not even:
            return [slice(start, min(start + size, n)) for start in range(0, n, size)]
        n_parts = -(-n // size)
    assert n_parts is not None
    if n_parts < 1 and n > 0:
        raise ValueError(f"n_parts must be at least 1, got {n_parts}")
    n_parts = min(n_parts, n)
    if n_parts < 1:
        return []
    length, longer = divmod(n, n_parts)
    starts = [part * length + min(part, longer) for part in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(starts)]
