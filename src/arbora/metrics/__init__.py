"""Measures of classifiers, rankings and clusterings, tables that report them, and tests of significance.

Labels are a 1-d array of names or ids, a list of label lists, or a 0/1 indicator matrix (dense or sparse).
Where scikit-learn has the same measure, the values are equal; its measures of clusterings are used from
`sklearn.metrics`.
"""

from arbora.metrics.calibration import (
    ReliabilityCurve,
    calibration_by_level,
    expected_calibration_error,
    reliability_curve,
)
from arbora.metrics.classification import (
    THESIS_BINS,
    ClassScores,
    compare_by_class_size,
    f1_by_class_size,
    f1_report,
    macro_f1,
    micro_f1,
    precision_recall_f1,
)
from arbora.metrics.clustering import (
    ClusteringScores,
    ExpansionScores,
    clustering_macro_f1,
    clustering_report,
    discriminative_cost,
    expansion_accuracy,
    hungarian_accuracy,
    purity,
)
from arbora.metrics.hierarchical import (
    HierarchicalScores,
    compare_by_level,
    f1_by_level,
    hierarchical_f1,
    hierarchical_precision_recall_f1,
    tree_induced_error,
)
from arbora.metrics.ranking import precision_at_k, r_precision_at_k
from arbora.metrics.significance import (
    Interval,
    Significance,
    bootstrap_interval,
    compare,
    paired_t_test,
    sign_test,
    wilcoxon_test,
)
from arbora.metrics.table import Table

__all__ = [
    "THESIS_BINS",
    "ClassScores",
    "ClusteringScores",
    "ExpansionScores",
    "HierarchicalScores",
    "Interval",
    "ReliabilityCurve",
    "Significance",
    "Table",
    "bootstrap_interval",
    "calibration_by_level",
    "clustering_macro_f1",
    "clustering_report",
    "compare",
    "compare_by_class_size",
    "compare_by_level",
    "discriminative_cost",
    "expansion_accuracy",
    "expected_calibration_error",
    "f1_by_class_size",
    "f1_by_level",
    "f1_report",
    "hierarchical_f1",
    "hierarchical_precision_recall_f1",
    "hungarian_accuracy",
    "macro_f1",
    "micro_f1",
    "paired_t_test",
    "precision_at_k",
    "precision_recall_f1",
    "purity",
    "r_precision_at_k",
    "reliability_curve",
    "sign_test",
    "tree_induced_error",
    "wilcoxon_test",
]
