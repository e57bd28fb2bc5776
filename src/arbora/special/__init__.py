"""Exact directional statistics on the unit sphere.

The von Mises-Fisher distribution in any dimension from 2 to a million and any concentration from 0 to 1e8: today
its exact sampler.
"""

from arbora.special.sampling import sample_vmf

__all__ = ["sample_vmf"]
