"""Learn a metric from a few labelled groups, and find the other groups.

Transformers learn a linear map from the labelled groups; `ExpandClusters` clusters the other rows in the space of the
map, keeps the known groups by name and says how many new ones there are.
"""

from arbora.expand.bottleneck import InformationBottleneck
from arbora.expand.clusters import ExpandClusters
from arbora.expand.components import InformativeComponents
from arbora.expand.discriminative import DiscriminativeClustering
from arbora.expand.fisher import FisherTransform, PairwiseFisherTransform
from arbora.expand.fisher_metric import FisherMetric
from arbora.expand.gamma import GammaTransform
from arbora.expand.gaussian import GaussianTransform
from arbora.expand.large_margin import LargeMarginTransform
from arbora.expand.margin import MaxMarginTransform
from arbora.expand.mixture_discriminant import MixtureDiscriminantClustering
from arbora.expand.pairwise import PairwiseConstraintTransform
from arbora.expand.prior_mixture import BayesianPriorMixture
from arbora.expand.self_organizing_map import SelfOrganizingMap
from arbora.expand.separability import SeparabilityTransform
from arbora.expand.spherical import SphericalTransform
from arbora.expand.within_class import WithinClassTransform

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
