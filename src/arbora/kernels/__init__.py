"""Numba kernels: small, typed by use, cached, free of the GIL; each has a NumPy twin in the tests."""

from arbora.kernels.coordinate import LOSSES, certify_block, sweep_active, sweep_block
from arbora.kernels.path_margin import certify_paths, sweep_listed, sweep_paths
from arbora.kernels.products import put_columns

__all__ = [
    "LOSSES",
    "certify_block",
    "certify_paths",
    "put_columns",
    "sweep_active",
    "sweep_block",
    "sweep_listed",
    "sweep_paths",
]
