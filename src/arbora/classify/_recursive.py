"""The fit of the recursive classifiers: search, joint training, weights of any node, growth by new documents."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from arbora.classify._coupling import Coupling, couple, expected_weights
from arbora.classify._features import check_features
from arbora.classify._grow import moved, with_classes
from arbora.classify._joint import (
    Fitted,
    dense_model,
    joint_trace,
    parts_model,
    train_joint,
    warn_unless_closed,
)
from arbora.classify._linear import LinearModel, PartsModel, as_csr, linear_scores
from arbora.classify._search import SCORES, Plan, search
from arbora.classify._targets import Targets, encode_targets
from arbora.classify._train import Options, Training
from arbora.classify.baselines import OneVsRest
from arbora.infer import Checkpoint, Progress
from arbora.infer.memory import require_memory


class Recursive(OneVsRest):
    """The fit that the recursive classifiers share."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **OneVsRest._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"cv"})],
        "coupling": [Interval(Real, 0, None, closed="left"), StrOptions({"cv"}), "array-like", dict],
        "Cs": ["array-like"],
        "couplings": ["array-like"],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "scoring": [StrOptions(set(SCORES))],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
    }

    def _fit(self, X: Any, y: Any, sample_weight: Any, loss: str) -> Any:
        training = self._check_fit(X, y, sample_weight, loss)
        training = training._replace(positive_weight=self._positive_weight(training))
        self.structure_ = self.hierarchy_ if self.structure is None else self.structure
        checkpoint = self._checkpoint(training)
        self._select(training, checkpoint)
        if self.C == "cv":
            training = training._replace(row_cost=training.row_cost * self.C_)
        coupling = self._couple(self.coupling_)
        start = self._start(training)
        with Progress(None, "rounds", self.verbose) as progress:
            fitted = self._train(training, coupling, start=start, checkpoint=checkpoint, progress=progress)
        self._keep_joint(fitted, self._model(fitted))
        self._learn_decisions(training, lambda seen: self._model(self._train(seen, coupling)))
        self._last = (training.positives, fitted.solution.multipliers) if self.warm_start else None
        if checkpoint is not None:
            checkpoint.clear()
        return self

    def _couple(self, value: Any) -> Coupling:
        return couple(self.structure_, self.class_nodes_, value)

    def _train(self, training: Training, coupling: Coupling, **more: Any) -> Fitted:
        return train_joint(training, coupling, self._engine(), dense=self.prune_below is None, **more)

    def _model(self, fitted: Fitted) -> LinearModel | PartsModel:
        return dense_model(fitted) if self.prune_below is None else parts_model(fitted, self.prune_below)

    def _select(self, training: Training, checkpoint: Checkpoint | None) -> None:
        """Leave `C_` and `coupling_`, by cross-validation where a parameter asks for it."""
        self.C_, self.coupling_ = self.C, self.coupling
        self.__dict__.pop("cv_results_", None)
        if self.C != "cv" and not (isinstance(self.coupling, str) and self.coupling == "cv"):
            return
        piece = checkpoint.load("search") if checkpoint is not None else None
        if piece is None:
            plan = Plan(
                Cs=self.Cs if self.C == "cv" else [1.0],  # a number given is in the costs already
                couplings=list(self.couplings) if isinstance(self.coupling, str) else [self.coupling],
                n_folds=self.cv,
                scoring=self.scoring,
                threshold=self.threshold if self._multilabel else None,
                prune_below=self.prune_below,
            )
            if training.X.shape[0] < self.cv:
                raise ValueError(f"cv={self.cv} folds need at least as many rows, got {training.X.shape[0]}.")
            with Progress(None, "candidates", self.verbose) as progress:
                found = search(training, self._couple, plan, self._engine(), progress)
            C, coupling, self.cv_results_ = found
            if checkpoint is not None:
                table = {
                    name: np.asarray(values) for name, values in found.results.items() if name != "coupling"
                }
                meta = {"C": C, "coupling": coupling, "couplings": found.results["coupling"]}
                checkpoint.save("search", table, meta)
        else:
            C, coupling = piece.meta["C"], piece.meta["coupling"]
            self.cv_results_ = {**piece.arrays, "coupling": piece.meta["couplings"]}
        self.C_ = C if self.C == "cv" else self.C
        self.coupling_ = coupling

    def _start(self, training: Training) -> Any:
        """Multipliers of the fit before, if it was of the same documents with the same labels."""
        last = getattr(self, "_last", None)
        if not self.warm_start or last is None or last[0].shape != training.positives.shape:
            return None
        return last[1] if (last[0] != training.positives).nnz == 0 else None

    def _keep_joint(self, fitted: Fitted, model: LinearModel | PartsModel) -> None:
        """Leave the weights, their certificate and the way to them; warn if the gap stayed open."""
        for name in ("coef_", "differences_", "sharing_"):
            self.__dict__.pop(name, None)
        if isinstance(model, PartsModel):
            self.differences_, self.intercept_, self.sharing_ = model
        else:
            self.coef_, self.intercept_ = model
        self.n_iter_ = len(fitted.solution.history)
        self.trace_ = joint_trace(fitted)
        self.duality_gap_ = fitted.relative_gap
        warn_unless_closed(fitted, self.tol, self.max_iter)

    def __getattr__(self, name: str) -> Any:
        # A pruned model has differences; its full weights are made when they are asked for.
        if name == "coef_" and "differences_" in self.__dict__:
            n_classes, n_features = self.sharing_.shape[1], self.differences_.shape[1]
            require_memory(
                n_classes * n_features * self.differences_.dtype.itemsize,
                f"coef_ of {n_classes} classes and {n_features} features",
                "Use differences_ and sharing_, whose product it is.",
            )
            return (self.differences_.T @ self.sharing_).toarray().T
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _linear_model(self) -> LinearModel | PartsModel:
        if "differences_" in self.__dict__:
            return PartsModel(self.differences_, self.intercept_, self.sharing_)
        return LinearModel(self.coef_, self.intercept_)

    def _linear_scores(self, X: Any) -> NDArray[Any]:
        return linear_scores(X, self._linear_model(), self._engine())

    def node_weights(self, nodes: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights of any nodes, inner ones too: where the regulariser puts them, given those of the classes.

        Parameters
        ----------
        nodes : sequence of names

        Returns
        -------
        coef : ndarray of shape (n_nodes, n_features)
        intercept : ndarray of shape (n_nodes,)
        """
        check_is_fitted(self)
        ids = self.structure_.encode(list(nodes))
        return self._expected(self.structure_, self.class_nodes_, ids)

    def _expected(
        self, structure: Any, class_nodes: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights of nodes of a structure in which the classes of the model are `class_nodes`."""
        mixing = np.zeros((len(wanted), len(class_nodes)))
        position = {node: column for column, node in enumerate(class_nodes.tolist())}
        known = np.array([position.get(node, -1) for node in wanted.tolist()], dtype=np.int64)
        mixing[known >= 0, known[known >= 0]] = 1.0
        if (known < 0).any():
            other = np.unique(wanted[known < 0])
            rows = expected_weights(structure, class_nodes, other, self.coupling_)
            mixing[known < 0] = rows[np.searchsorted(other, wanted[known < 0])]
        model = self._linear_model()
        if isinstance(model, LinearModel):
            return (mixing @ model.coef).astype(model.coef.dtype), mixing @ model.intercept
        shares = sp.csr_array(model.sharing @ mixing.T)
        return (model.parts.T @ shares).toarray().T, mixing @ model.intercept

    def _partial_fit(self, X: Any, y: Any, structure: Any, sample_weight: Any, loss: str) -> Any:
        if not hasattr(self, "classes_"):
            if structure is not None:
                raise ValueError("the first call of partial_fit takes the structure of the constructor.")
            return self._fit(X, y, sample_weight, loss)
        self._validate_params()
        X = check_features(self, X, reset=False)
        check_consistent_length(X, y)
        if structure is None and self.structure is not None:
            structure = self.structure_
        targets = encode_targets(y, structure)
        if targets.kind != self.label_kind_:
            raise ValueError(
                f"the labels of fit were of the kind {self.label_kind_!r}, these are {targets.kind!r}."
            )
        old = self.classes_.tolist()
        targets, columns = with_classes(targets, old)
        offset = self._offset(targets, structure, columns)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        options = Options(
            loss, self.tol, self.max_iter, self.intercept_scaling if self.fit_intercept else 0.0,
            np.dtype(self.dtype), self._seed(),
        )  # fmt: skip
        training = Training(
            as_csr(X), targets.indicator, self.C_ * weight, np.ones(len(targets.classes)), options
        )
        before = self._linear_model()
        self._remember_targets(targets)
        self.structure_ = targets.hierarchy if structure is None else structure
        fitted = self._train(training, self._couple(self.coupling_), offset=offset)
        if self.prune_below is None:
            model = dense_model(fitted)
        else:
            model = moved(before, parts_model(fitted, self.prune_below), offset, columns, self.prune_below)
        self._keep_joint(fitted, model)
        if len(old) < len(self.classes_) and hasattr(self.threshold_, "thresholds_"):
            cuts = np.full(len(self.classes_), np.median(self.threshold_.thresholds_))
            cuts[columns] = self.threshold_.thresholds_
            self.threshold_.thresholds_ = cuts
            self.threshold_.n_classes_ = len(cuts)
        return self

    def _offset(self, targets: Targets, structure: Any, columns: NDArray[np.int64]) -> NDArray[Any]:
        """Weights to start from: a class that is known keeps its own, a new one gets what its place suggests."""
        n_classes, n_features = len(targets.classes), self.n_features_in_
        dtype = np.dtype(self.dtype)
        require_memory(
            2 * n_classes * (n_features + 1) * dtype.itemsize,
            f"The weights of {n_classes} classes and {n_features} features, before and after",
            "Fit from the beginning with prune_below instead.",
        )
        structure = targets.hierarchy if structure is None else structure
        coef, intercept = self._expected(structure, targets.class_nodes[columns], targets.class_nodes)
        bias = self.intercept_scaling if self.fit_intercept else 1.0
        return np.vstack([coef.T, intercept / bias]).astype(dtype)
