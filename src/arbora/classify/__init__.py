"""Classifiers that file items into an existing taxonomy, DAG or label graph."""

from arbora.classify._common.explain import Word, deciding_words, explain, words_of_nodes
from arbora.classify.baselines import OneVsRestLogistic, OneVsRestSVC
from arbora.classify.bayes.correlated import CorrelatedMultinomialLogit
from arbora.classify.bayes.hierarchical import HierarchicalBayesClassifier
from arbora.classify.cost import HierarchicalCostClassifier
from arbora.classify.hierarchical_svm import HierarchicalSVM
from arbora.classify.multinomial import MultinomialLogistic
from arbora.classify.orthogonal import OrthogonalTransfer
from arbora.classify.recursive.estimators import RecursiveLogisticRegression, RecursiveSVC
from arbora.classify.semi_supervised import SemiSupervisedSVC
from arbora.classify.top_down import TopDownSVC

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
