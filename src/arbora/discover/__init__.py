"""Find structure where there is none: clusters of directions and of counts, as mixtures with true densities."""

from arbora.discover.bayesian_vmf import BayesianVMFMixture
from arbora.discover.dp_vmf import DirichletProcessVMFMixture
from arbora.discover.hierarchical_vmf import HierarchicalVMFMixture
from arbora.discover.kmeans import SphericalKMeans
from arbora.discover.multinomial import MultinomialMixture
from arbora.discover.temporal_vmf import TemporalVMFMixture
from arbora.discover.vmf import VMFMixture

__all__ = [
    "BayesianVMFMixture",
    "DirichletProcessVMFMixture",
    "HierarchicalVMFMixture",
    "MultinomialMixture",
    "SphericalKMeans",
    "TemporalVMFMixture",
    "VMFMixture",
]
