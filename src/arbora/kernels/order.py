"""Random permutations inside kernels, the same on every machine and for any number of threads."""

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST


@nb.njit(inline="always", **FAST)
def shuffle(rows, n, state):  # type: ignore[no-untyped-def]
    """Shuffle rows[:n]; return the next state of the generator.

    Fisher-Yates with the upper 31 bits of a 64-bit linear congruential generator.
    """
    for s in range(n - 1, 0, -1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        r = np.int64(((state >> np.uint64(33)) * np.uint64(s + 1)) >> np.uint64(31))
        rows[s], rows[r] = rows[r], rows[s]
    return state
