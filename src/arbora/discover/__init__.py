"""Find structure where there is none: clusters of directions and of counts, as mixtures with true densities."""

from arbora.discover.gaussian.max_margin import MaxMarginGaussianMixture
from arbora.discover.gaussian.mixture import DirichletProcessGaussianMixture
from arbora.discover.kmeans import SphericalKMeans
from arbora.discover.multinomial import MultinomialMixture
from arbora.discover.topics.max_margin import MaxMarginClusterTopicModel
from arbora.discover.topics.model import ClusterTopicModel
from arbora.discover.vmf.bayesian import BayesianVMFMixture
from arbora.discover.vmf.dirichlet_process import DirichletProcessVMFMixture
from arbora.discover.vmf.hierarchical import HierarchicalVMFMixture
from arbora.discover.vmf.mixture import VMFMixture
from arbora.discover.vmf.temporal import TemporalVMFMixture

__all__ = [
    "BayesianVMFMixture",
    "ClusterTopicModel",
    "DirichletProcessGaussianMixture",
    "DirichletProcessVMFMixture",
    "HierarchicalVMFMixture",
    "MaxMarginClusterTopicModel",
    "MaxMarginGaussianMixture",
    "MultinomialMixture",
    "SphericalKMeans",
    "TemporalVMFMixture",
    "VMFMixture",
]
