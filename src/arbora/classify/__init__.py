"""File items into a taxonomy, DAG or label graph that exists."""

from arbora.classify.baselines import OneVsRestLogistic, OneVsRestSVC
from arbora.classify.cost import HierarchicalCostClassifier
from arbora.classify.top_down import TopDownSVC

__all__ = ["HierarchicalCostClassifier", "OneVsRestLogistic", "OneVsRestSVC", "TopDownSVC"]
