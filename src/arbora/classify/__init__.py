"""File items into a taxonomy, DAG or label graph that exists."""

from arbora.classify.baselines import OneVsRestLogistic, OneVsRestSVC

__all__ = ["OneVsRestLogistic", "OneVsRestSVC"]
