"""Learn a metric from a few labelled groups, and find the other groups.

Transformers learn a linear map from the labelled groups; `ExpandClusters` clusters the other rows in the space of the
map, keeps the known groups by name and says how many new ones there are.
"""

from arbora.expand.bottleneck import InformationBottleneck
from arbora.expand.clusters.estimator import ExpandClusters
from arbora.expand.components import InformativeComponents
from arbora.expand.discriminative.estimator import DiscriminativeClustering
from arbora.expand.fisher_metric import FisherMetric
from arbora.expand.mixture_discriminant import MixtureDiscriminantClustering
from arbora.expand.prior_mixture import BayesianPriorMixture
from arbora.expand.self_organizing_map import SelfOrganizingMap
from arbora.expand.transforms.fisher import FisherTransform, PairwiseFisherTransform
from arbora.expand.transforms.gamma import GammaTransform
from arbora.expand.transforms.gaussian import GaussianTransform
from arbora.expand.transforms.large_margin import LargeMarginTransform
from arbora.expand.transforms.margin import MaxMarginTransform
from arbora.expand.transforms.pairwise import PairwiseConstraintTransform
from arbora.expand.transforms.separability import SeparabilityTransform
from arbora.expand.transforms.spherical import SphericalTransform
from arbora.expand.transforms.within_class import WithinClassTransform

__all__ = [
    "BayesianPriorMixture",
    "DiscriminativeClustering",
    "ExpandClusters",
    "FisherMetric",
    "FisherTransform",
    "GammaTransform",
    "GaussianTransform",
    "InformationBottleneck",
    "InformativeComponents",
    "LargeMarginTransform",
    "MaxMarginTransform",
    "MixtureDiscriminantClustering",
    "PairwiseConstraintTransform",
    "PairwiseFisherTransform",
    "SelfOrganizingMap",
    "SeparabilityTransform",
    "SphericalTransform",
    "WithinClassTransform",
]
