"""The classes that model files may use.

A file cannot make Arbora import a module or call a class that is not listed here; therefore models from untrusted
sources are safe to open. Classes are listed as text and imported when they are first needed, so that this package
imports no model.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

from arbora.io.errors import ModelFileError

Class = TypeVar("Class", bound=type)

# Name in files -> "module:class" to import, or the class itself if a user registered it.
_registry: dict[str, str | type] = {
    target.replace(":", "."): target
    for target in (
        "arbora.structure:Hierarchy",
        "arbora.structure:LabelGraph",
        "arbora.core.trace:Trace",
        "arbora.engine:ThreadEngine",
        "arbora.engine:RayEngine",
        "arbora.app.text_classifier:TextClassifier",
        "arbora.app.text_classifier:Recipe",
        "arbora.app.topic_model:TopicModel",
        "arbora.app.topic_model.edits:EditedTopics",
        "arbora.app.topic_model.edits:Merge",
        "arbora.app.topic_model.edits:Split",
        "arbora.app.contents.words:GroupForms",
        "arbora.app.text_rows:TextOptions",
        "arbora.classify:OneVsRestSVC",
        "arbora.classify:OneVsRestLogistic",
        "arbora.classify:TopDownSVC",
        "arbora.classify:RecursiveSVC",
        "arbora.classify:RecursiveLogisticRegression",
        "arbora.classify:HierarchicalBayesClassifier",
        "arbora.classify:HierarchicalCostClassifier",
        "arbora.classify:HierarchicalSVM",
        "arbora.classify:OrthogonalTransfer",
        "arbora.classify:CorrelatedMultinomialLogit",
        "arbora.classify:MultinomialLogistic",
        "arbora.classify:SemiSupervisedSVC",
        "arbora.classify.thresholds:ZeroThreshold",
        "arbora.classify.thresholds:GlobalCut",
        "arbora.classify.thresholds:RCut",
        "arbora.classify.thresholds:SCut",
        "arbora.classify.thresholds:InstanceCut",
        "arbora.discover:BayesianVMFMixture",
        "arbora.discover:DirichletProcessGaussianMixture",
        "arbora.discover:DirichletProcessVMFMixture",
        "arbora.discover:HierarchicalVMFMixture",
        "arbora.discover:MaxMarginGaussianMixture",
        "arbora.discover:ClusterTopicModel",
        "arbora.discover:MaxMarginClusterTopicModel",
        "arbora.discover:MultinomialMixture",
        "arbora.discover:SphericalKMeans",
        "arbora.discover:TemporalVMFMixture",
        "arbora.discover:VMFMixture",
        "arbora.discover.topics.fitting:TopicParameters",
        "arbora.expand:BayesianPriorMixture",
        "arbora.expand:DiscriminativeClustering",
        "arbora.expand:ExpandClusters",
        "arbora.expand:FisherMetric",
        "arbora.expand:FisherTransform",
        "arbora.expand:GammaTransform",
        "arbora.expand:GaussianTransform",
        "arbora.expand:InformationBottleneck",
        "arbora.expand:InformativeComponents",
        "arbora.expand:LargeMarginTransform",
        "arbora.expand:MaxMarginTransform",
        "arbora.expand:MixtureDiscriminantClustering",
        "arbora.expand:PairwiseConstraintTransform",
        "arbora.expand:PairwiseFisherTransform",
        "arbora.expand:SelfOrganizingMap",
        "arbora.expand:SeparabilityTransform",
        "arbora.expand:SphericalTransform",
        "arbora.expand:WithinClassTransform",
        "arbora.expand.prior_mixture:PriorMixture",
        "arbora.expand.groups:FeatureSpace",
        "arbora.expand.clusters.group_model:GroupModel",
        "arbora.expand.mixture_discriminant:DiscriminantMixture",
        "arbora.expand.clusters.clusterers:KMeansClustering",
        "arbora.expand.clusters.clusterers:GaussianClustering",
        "arbora.expand.clusters.clusterers:SphericalClustering",
        "arbora.expand.clusters.group_model:RunningSums",
        "arbora.expand.clusters.neighbours:NeighbourClustering",
        "arbora.expand.clusters.n_new:NumberOfGroups",
        "arbora.expand.clusters.estimator:NewGroup",
        "arbora.text:LtcTransformer",
        "arbora.text:LtcVectorizer",
        "sklearn.pipeline:Pipeline",
        "sklearn.preprocessing:StandardScaler",
        "sklearn.preprocessing:MaxAbsScaler",
        "sklearn.preprocessing:Normalizer",
        "sklearn.feature_extraction.text:TfidfTransformer",
        "sklearn.decomposition:TruncatedSVD",
    )
}


def kind_of(cls: type) -> str | None:
    """Return how objects of a class are saved: "state", "tuple", "estimator"; None if they cannot be saved."""
    if hasattr(cls, "to_state") and hasattr(cls, "from_state"):
        return "state"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "tuple"
    if hasattr(cls, "get_params"):
        return "estimator"
    return None


def full_name(cls: type) -> str:
    """Return the module and the name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def register(cls: Class) -> Class:
    """Register a class for model files; usable as a decorator.

    Parameters
    ----------
    cls : type
        A scikit-learn estimator with its parameters in ``get_params`` and learned attributes that end with ``_`` (and
        do not begin with it); or a named tuple; or a class with ``to_state()`` and a class method
        ``from_state(state)``. An estimator with parameters that cannot be saved can define ``__arbora_params__()``,
        which returns all parameters as values that can be saved.

    Returns
    -------
    type
        The class. A program that loads the model must register the class too, from the same module.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> from arbora.io import register
    >>> @register
    ... class Constant(BaseEstimator):
    ...     def __init__(self, value=0.0):
    ...         self.value = value
    """
    if not isinstance(cls, type) or kind_of(cls) is None:
        raise TypeError(
            f"{cls!r} cannot be registered: it must be an estimator (get_params), a named tuple, or a "
            "class with to_state and from_state"
        )
    # A class that is defined again (a notebook cell run twice) replaces the old one, but never a listed class.
    if isinstance(_registry.get(full_name(cls)), str) and class_of(full_name(cls)) is not cls:
        raise ValueError(f"the name {full_name(cls)} is used by another class of the registry")
    if name_of(cls) is None:
        _registry[full_name(cls)] = cls
    return cls


def name_of(cls: type) -> str | None:
    """Return the registered name of a class, or None."""
    for name, target in list(_registry.items()):
        if target is cls:
            return name
        # Importing a class of this name is free: an object of it exists.
        same_name = isinstance(target, str) and target.endswith(f":{cls.__name__}")
        if same_name and _imported(target) is cls:
            return name
    return None


def class_of(name: Any) -> type:
    """Return the class with a registered name."""
    target = _registry.get(name) if isinstance(name, str) else None
    if target is None:
        near = get_close_matches(str(name), _registry, n=1)
        hint = f" (the nearest known class is {near[0]})" if near else ""
        raise ModelFileError(
            f"the model needs the class {name!r}, which is not registered{hint}: if you trust it, import "
            "it and call arbora.io.register(...) on it before load"
        )
    cls = _imported(target)
    if cls is None:
        raise ModelFileError(f"the model needs the class {name!r}, which this installation does not have")
    return cls


def _imported(target: str | type) -> type | None:
    if isinstance(target, type):
        return target
    module, _, attribute = target.partition(":")
    try:
        cls = getattr(import_module(module), attribute, None)
    except ImportError:
        return None
    return cls if isinstance(cls, type) else None
