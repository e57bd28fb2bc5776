"""File items into a taxonomy, DAG or label graph that exists."""

from arbora.classify.baselines import OneVsRestLogistic, OneVsRestSVC
from arbora.classify.top_down import TopDownSVC

__all__ = ["OneVsRestLogistic", "OneVsRestSVC", "TopDownSVC"]
