"""Random numbers inside kernels: xoshiro256+ with its state in an array of four unsigned integers.

numba's own generator has one hidden state per thread, so its draws would depend on how work is spread over threads.
Here the caller passes the state, and a kernel draws the same numbers on any thread.

References
----------
D. Blackman and S. Vigna (2021). Scrambled linear pseudorandom number generators. ACM TOMS 47(4).
"""

import math
from typing import Any

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST

_PLAIN: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
_TO_UNIT = 1.0 / 9007199254740992.0  # 2^-53


@nb.njit(inline="always", **_PLAIN)
def mix_bits(x):  # type: ignore[no-untyped-def]
    """Return the hash of a 64-bit integer: the finaliser of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(**_PLAIN)
def seed_state(seed, state):  # type: ignore[no-untyped-def]
    """Fill the state of a generator from one 64-bit seed."""
    x = np.uint64(seed)
    for j in range(4):
        x += np.uint64(0x9E3779B97F4A7C15)
        state[j] = mix_bits(x)


@nb.njit(inline="always", **_PLAIN)
def next_unit(state):  # type: ignore[no-untyped-def]
    """Return a uniform number in [0, 1) and advance the state."""
    result = state[0] + state[3]
    t = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= t
    state[3] = (state[3] << np.uint64(45)) | (state[3] >> np.uint64(19))
    return np.float64(result >> np.uint64(11)) * _TO_UNIT


@nb.njit(**_PLAIN)
def draw_tables(n, a, state):  # type: ignore[no-untyped-def]
    """Draw the number of tables of n customers in a Chinese restaurant process with concentration a.

    It is the sum of independent Bernoulli(a / (a + j)), j = 0, ..., n - 1; the first of them is always 1.
    """
    count = 1 if n > 0 else 0
    for j in range(1, n):
        if next_unit(state) * (a + j) < a:
            count += 1
    return count


@nb.njit(**_PLAIN)
def draw_index(log_weights, state):  # type: ignore[no-untyped-def]
    """Draw an index with probability proportional to exp(log_weights), which become the probabilities."""
    top = log_weights[0]
    for k in range(1, len(log_weights)):
        top = max(top, log_weights[k])
    total = 0.0
    for k in range(len(log_weights)):
        log_weights[k] = math.exp(log_weights[k] - top)
        total += log_weights[k]
    u, chosen = next_unit(state) * total, -1
    for k in range(len(log_weights)):
        if log_weights[k] > 0.0 and u >= 0.0:
            chosen = k
        u -= log_weights[k]
        log_weights[k] /= total
    return chosen


# --- Random permutations inside kernels, the same on every machine and for any number of threads ------------


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
