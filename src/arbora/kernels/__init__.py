"""Numba kernels: arrays in and out, cached on disk, without the GIL; each has a NumPy twin in the tests.

The kernels check nothing: callers pass arrays of the right shapes. With ``ARBORA_CHECK=1`` in the environment, an
index out of range raises an `IndexError` (`arbora.checked_kernels`). They are untyped, since numba compiles them for
the types of their arguments. numba is imported at the first call (`arbora.kernels.deferred`), but for `bottleneck`,
which defines an instruction of its own.
"""

from arbora.kernels.linear.coordinate import LOSSES, certify_block, sweep_active, sweep_block
from arbora.kernels.linear.path_margin import certify_paths, sweep_listed, sweep_paths
from arbora.kernels.products import put_block

__all__ = [
    "LOSSES",
    "certify_block",
    "certify_paths",
    "put_block",
    "sweep_active",
    "sweep_block",
    "sweep_listed",
    "sweep_paths",
]
