"""File items into a taxonomy, DAG or label graph that exists."""

from arbora.classify._explain import Word, deciding_words, explain, words_of_nodes
from arbora.classify.baselines import OneVsRestLogistic, OneVsRestSVC
from arbora.classify.bayes import HierarchicalBayesClassifier
from arbora.classify.correlated import CorrelatedMultinomialLogit
from arbora.classify.cost import HierarchicalCostClassifier
from arbora.classify.multinomial import MultinomialLogistic
from arbora.classify.orthogonal import OrthogonalTransfer
from arbora.classify.path_margin import HierarchicalSVM
from arbora.classify.recursive import RecursiveLogisticRegression, RecursiveSVC
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
    "TopDownSVC",
    "Word",
    "deciding_words",
    "explain",
    "words_of_nodes",
]
