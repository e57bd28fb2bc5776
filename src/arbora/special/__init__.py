"""Exact directional statistics on the unit sphere.

The von Mises-Fisher distribution for dimensions from 2 to a million and concentrations from 0 to 1e8, and the Bessel
functions that it needs. All functions broadcast.
"""

from arbora.special.bessel import bessel_ratio, bessel_ratio_complement, bessel_ratio_derivative, log_iv
from arbora.special.sampling import sample_vmf
from arbora.special.vmf import kappa_mle, vmf_entropy, vmf_log_normalizer, vmf_logpdf

__all__ = [
    "bessel_ratio",
    "bessel_ratio_complement",
    "bessel_ratio_derivative",
    "kappa_mle",
    "log_iv",
    "sample_vmf",
    "vmf_entropy",
    "vmf_log_normalizer",
    "vmf_logpdf",
]
