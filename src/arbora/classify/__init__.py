"""Classifiers that file items into an existing taxonomy, DAG or label graph.

A name is imported when it is first used, with the modules that it needs only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbora.classify.bayes.correlated import CorrelatedMultinomialLogit
    from arbora.classify.bayes.hierarchical import HierarchicalBayesClassifier
    from arbora.classify.cost import HierarchicalCostClassifier
    from arbora.classify.explanation import Word, deciding_words, explain, words_of_nodes
    from arbora.classify.hierarchical_svm import HierarchicalSVM
    from arbora.classify.multinomial import MultinomialLogistic
    from arbora.classify.one_vs_rest import OneVsRestLogistic, OneVsRestSVC
    from arbora.classify.orthogonal import OrthogonalTransfer
    from arbora.classify.recursive.estimators import RecursiveLogisticRegression, RecursiveSVC
    from arbora.classify.semi_supervised import SemiSupervisedSVC
    from arbora.classify.top_down import TopDownSVC

_MODULES = {
    "CorrelatedMultinomialLogit": "arbora.classify.bayes.correlated",
    "HierarchicalBayesClassifier": "arbora.classify.bayes.hierarchical",
    "HierarchicalCostClassifier": "arbora.classify.cost",
    "HierarchicalSVM": "arbora.classify.hierarchical_svm",
    "MultinomialLogistic": "arbora.classify.multinomial",
    "OneVsRestLogistic": "arbora.classify.one_vs_rest",
    "OneVsRestSVC": "arbora.classify.one_vs_rest",
    "OrthogonalTransfer": "arbora.classify.orthogonal",
    "RecursiveLogisticRegression": "arbora.classify.recursive.estimators",
    "RecursiveSVC": "arbora.classify.recursive.estimators",
    "SemiSupervisedSVC": "arbora.classify.semi_supervised",
    "TopDownSVC": "arbora.classify.top_down",
    "Word": "arbora.classify.explanation",
    "deciding_words": "arbora.classify.explanation",
    "explain": "arbora.classify.explanation",
    "words_of_nodes": "arbora.classify.explanation",
}


def __getattr__(name: str) -> Any:
    if name == "thresholds":
        return import_module("arbora.classify.thresholds")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


__all__ = [
    "CorrelatedMultinomialLogit",
    "HierarchicalBayesClassifier",
    "HierarchicalCostClassifier",
    "HierarchicalSVM",
    "MultinomialLogistic",
    "OneVsRestLogistic",
    "OneVsRestSVC",
    "OrthogonalTransfer",
    "RecursiveLogisticRegression",
    "RecursiveSVC",
    "SemiSupervisedSVC",
    "TopDownSVC",
    "Word",
    "deciding_words",
    "explain",
    "words_of_nodes",
]
