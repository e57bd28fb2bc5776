"""State the problem of hierarchical Bayesian logistic regression from the parameters and data of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import _check_sample_weight

from arbora.classify.bayes.priors import check_gamma, check_scale, constant_prior, fisher_prior, model_tree
from arbora.classify.linear import as_csr
from arbora.classify.training import check_labelled_rows
from arbora.core.engine import require_shared_memory
from arbora.engine import choose_engine
from arbora.infer.tree.gaussian import Root, share_precisions
from arbora.infer.tree.problem import TreeProblem
from arbora.structure import LabelGraph


def refuse_options(estimator: Any) -> None:
    """Refuse models that cannot be fitted in the dual if the engine is remote or weights are pruned."""
    inference, likelihood, covariance = estimator.inference, estimator.likelihood, estimator.covariance
    if inference == "map" and likelihood == "logistic" and covariance != "M2":
        return
    if estimator.prune_below is not None:
        raise ValueError(
            f"prune_below={estimator.prune_below:g} needs inference='map', likelihood='logistic' and covariance 'M1' "
            f"or 'M3': got inference={inference!r}, likelihood={likelihood!r}, covariance={covariance!r}. Change "
            "these, or use prune_below=None."
        )
    option = f"inference={inference!r} with likelihood={likelihood!r} and covariance={covariance!r}"
    advice = "use inference='map', likelihood='logistic' and covariance 'M1' or 'M3', or engine=None"
    require_shared_memory(choose_engine(estimator.engine, estimator.n_jobs), option, advice)


def state_problem(estimator: Any, X: Any, y: Any, sample_weight: Any) -> TreeProblem:
    """Check parameters and data, store the labels and the tree in the classifier, and state the problem."""
    if isinstance(estimator.structure, LabelGraph):
        raise ValueError(
            "structure is a LabelGraph, but the model needs parents: give a Hierarchy that is a tree, or use "
            "RecursiveLogisticRegression, which accepts graphs."
        )
    X, targets = check_labelled_rows(estimator, X, y)
    refuse_options(estimator)
    check_scale(X)
    likelihood = estimator.likelihood
    if targets.multilabel and likelihood == "softmax":
        raise ValueError(
            "y holds label sets or an indicator, but likelihood='softmax' needs exactly one class per row: "
            "give one label per row, or use likelihood='logistic'."
        )
    estimator.tree_, tree = model_tree(targets.hierarchy, targets.class_nodes)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    X = as_csr(X) if sp.issparse(X) or estimator.prune_below is not None else np.asarray(X, np.float64)
    Y = targets.indicator.astype(np.float64)
    bias = 1.0 if estimator.fit_intercept else 0.0
    sharing = share_precisions(tree, estimator.covariance)
    if isinstance(estimator.prior, str):
        prior = fisher_prior(X, Y, weight, bias, tree, sharing, same_rate=likelihood == "logistic")
    else:
        prior = constant_prior(*check_gamma(estimator.prior), sharing, X.shape[1] + bool(bias))
    root = Root(0.0, 1 / estimator.root_variance)
    return TreeProblem(X, Y, weight, tree, sharing, prior, root, likelihood, bias)
