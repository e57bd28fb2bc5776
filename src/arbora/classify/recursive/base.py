"""The fit of the recursive classifiers: search, joint training, weights of any node, growth by new documents."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from arbora.classify._common.coupling import Coupling, couple
from arbora.classify._common.held_out import held_out_share, most_scores
from arbora.classify._common.labels import Targets, encode_targets
from arbora.classify._common.linear_classifier import refuse_overflow, without_weightless
from arbora.classify._common.linear_model import LinearModel, PartsModel, as_csr, full_weights, linear_scores
from arbora.classify._common.one_vs_rest import Options, Training
from arbora.classify.baselines import OneVsRest
from arbora.classify.recursive.coupled_training import (
    Fitted,
    build_model,
    check_joint_memory,
    multiplier_memory,
    pack,
    size_of,
    train_joint,
    unpack,
    warn_unless_closed,
    weight_memory,
)
from arbora.classify.recursive.partial_fit import (
    as_parts,
    encode_more,
    mixed,
    mixing_of,
    moved,
    offset_of,
    refuse_new_meaning,
    refuse_unannounced,
    with_classes,
)
from arbora.classify.recursive.search import (
    SCORES,
    Plan,
    best_of,
    check_costs,
    check_search_memory,
    refuse_splits_of_other_rows,
    search,
    splits,
    warn_of_open_gaps,
)
from arbora.classify.thresholds import make_threshold
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import require_shared_memory
from arbora.core.memory import require_memory
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.core.validation import check_features
from arbora.infer.linear.layout import lay_out
from arbora.structure import Hierarchy, LabelGraph


class Recursive(OneVsRest):
    """The fit that the recursive classifiers share."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **OneVsRest._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"cv"})],
        "coupling": [Interval(Real, 0, None, closed="left"), StrOptions({"cv"}), "array-like", dict],
        "fade": [Interval(Real, 0, None, closed="neither"), None],
        "Cs": ["array-like"],
        "couplings": ["array-like"],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set(SCORES))],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train all classes together.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label a row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C, and on the likelihood of the calibration. F1, of the cross-validation and of thresholds,
            counts every row once; rows of weight 0 are in no fold, and only say which classes there are.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, self._loss_name)

    @property
    def _loss_name(self) -> str:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any, sample_weight: Any, loss: str) -> Any:
        everything = self._check_all(X, y, sample_weight, loss)
        self._refuse_elsewhere()
        training = without_weightless(everything)
        positive_weight = self._positive_weight(training)
        training = training._replace(positive_weight=positive_weight)
        everything = everything._replace(positive_weight=positive_weight)
        self.structure_ = self.structure
        plan = self._plan(everything)
        checkpoint = self._checkpoint(everything, cv=plan.splits or None)
        self._check_memory(training, plan)
        coupling = self._select(everything, plan, checkpoint)
        if self.C == "cv":
            training = training._replace(row_cost=training.row_cost * self.C_)
        # In a method of its own: nothing of this fit but its weights is there when the held-out ones come.
        self._train_and_keep(training, coupling, checkpoint)
        self._learn_decisions(
            training,
            lambda seen, key: self._model(
                self._train(seen, coupling, checkpoint=checkpoint, key=key), keep=False
            ),
        )
        if checkpoint is not None:
            checkpoint.clear()
        return self

    def _refuse_elsewhere(self) -> None:
        """Refuse what shards elsewhere cannot be given, before anything is trained."""
        for name, value in (("warm_start", self.warm_start), ("checkpoint", self.checkpoint)):
            if value:
                advice = (
                    "use engine=None; RayEngine(folder=..., resume=True) resumes a fit that was interrupted"
                )
                require_shared_memory(self._training_engine(), f"{name}={value!r}", advice)

    def _train_and_keep(self, training: Training, coupling: Coupling, checkpoint: Checkpoint | None) -> None:
        """Leave weights and certificate of all rows, and the multipliers if another fit may start from them."""
        start = self._start(training, coupling, checkpoint)
        with Progress(None, "rounds", self.verbose) as progress:
            fitted = self._train(training, coupling, start=start, checkpoint=checkpoint, progress=progress)
        self._keep_joint(fitted, self._model(fitted))
        multipliers = fitted.solution.multipliers
        self._last = (training.positives, coupling.order, multipliers) if self.warm_start else None

    def _check_memory(self, training: Training, plan: Plan) -> None:
        """Refuse, before anything is trained, what would not fit later: a search, a fit, a held-out fit beside it."""
        options, n_classes = training.options, training.positives.shape[1]
        layouts = [lay_out(coupling.factor) for coupling in plan.coupled]
        if not self._training_engine().shares_memory and not plan.splits:
            return  # the memory of others, who know what they have
        common = options.loss, self.prune_below is None, self._engine().n_workers
        if plan.splits:
            check_search_memory(training, layouts, plan, common[-1])
        whole = size_of(training.X, options.dtype)
        learns = self._multilabel and make_threshold(self.threshold).learns
        how = "holdout" if learns and self.calibration is None else self.calibration
        n_seen = int(held_out_share(training, how) * whole.n_samples)
        seen = size_of(training.X, options.dtype, n_seen)
        beside = weight_memory(whole, n_classes, common[1]) + (whole.n_bytes + seen.n_bytes)
        beside += min(most_scores(learns), whole.n_samples * n_classes) * options.dtype.itemsize
        if self.warm_start:
            beside += multiplier_memory(whole, n_classes, options.loss)
        for layout in layouts if self._training_engine().shares_memory else []:
            check_joint_memory(whole, layout, *common)
            if n_seen:
                why = ", beside the weights of all rows, to calibrate (calibration=None needs no such fit),"
                check_joint_memory(seen, layout, *common, beside, why)

    def _couple(self, value: Any) -> Coupling:
        return couple(self.structure_ or self.hierarchy_, self.class_nodes_, value, self.fade)

    def _train(self, training: Training, coupling: Coupling, **more: Any) -> Fitted:
        engine = self._engine() if "offset" in more else self._training_engine()
        return train_joint(training, coupling, engine, dense=self.prune_below is None, **more)

    def _model(self, fitted: Fitted, keep: bool = True) -> LinearModel | PartsModel:
        return build_model(fitted, self.prune_below, keep)

    def _select(self, training: Training, plan: Plan, checkpoint: Checkpoint | None) -> Coupling:
        """Leave `C_` and `coupling_`, by cross-validation where a parameter asks for it; return what it means."""
        self.C_, self.coupling_ = self.C, self.coupling
        for name in ("cv_results_", "cv_splits_", "cv_n_samples_"):
            self.__dict__.pop(name, None)
        if not plan.splits:
            return plan.coupled[0]
        with Progress(None, "candidates", self.verbose) as progress:
            results = search(training, plan, self._engine(), checkpoint, progress)
        given = 1.0 if self.C == "cv" else self.C  # in the costs already, where Cs would multiply them
        self.cv_results_ = {**results, "C": results["C"] * given}
        if not isinstance(self.cv, Integral | None):
            self.cv_splits_, self.cv_n_samples_ = plan.splits, training.X.shape[0]
        self._split_by = self.cv
        warn_of_open_gaps(self.cv_results_, self.max_iter)
        C, self.coupling_ = best_of(results)
        if self.C == "cv":
            self.C_ = C
        return plan.meaning(self.coupling_)

    def _plan(self, training: Training) -> Plan:
        """Check what the cross-validation is to try; without one, the plan is the coupling alone.

        All couplings are worked out here, so that a bad one is refused before anything is trained. A number given as
        C is in the costs already.
        """
        of_coupling = isinstance(self.coupling, str)
        if self.C != "cv" and not of_coupling:
            return Plan([], [self.coupling], [self._couple(self.coupling)], [], "", None, None)
        Cs = check_costs(self.Cs) if self.C == "cv" else [1.0]
        couplings = list(self.couplings) if of_coupling else [self.coupling]
        if not couplings:
            raise ValueError("couplings is empty: give at least one, for instance 0.0, flat training.")
        threshold = self.threshold if self._multilabel else None
        if hasattr(self, "cv_splits_") and not hasattr(self, "_split_by"):  # a loaded model
            refuse_splits_of_other_rows(self.cv, self.cv_splits_, self.cv_n_samples_, training.X.shape[0])
        parts = splits(training, self.cv)
        return Plan(
            Cs,
            couplings,
            [self._couple(value) for value in couplings],
            parts,
            self.scoring,
            threshold,
            self.prune_below,
        )

    def __arbora_params__(self) -> dict[str, Any]:
        """Parameters as `arbora.io.save` keeps them: a splitter by what it split, or else by its number of folds."""
        params = self.get_params(deep=False)
        if hasattr(self, "cv_splits_") and getattr(self, "_split_by", None) is self.cv:
            params["cv"] = self.cv_splits_
        elif hasattr(self.cv, "get_n_splits"):
            with suppress(TypeError, ValueError):  # some cannot tell without the rows
                params["cv"] = int(self.cv.get_n_splits())
        return params

    def _start(self, training: Training, coupling: Coupling, checkpoint: Checkpoint | None) -> Any:
        """Multipliers of the fit before, if it was of the same documents with the same labels.

        A fit that is taken up again has to start from where it did, also in a process that knows of no fit before.
        """
        if not self.warm_start:
            return None
        piece = checkpoint.load("start") if checkpoint is not None else None
        if piece is not None:
            return unpack(piece.arrays)
        positives, order, multipliers = getattr(self, "_last", None) or (None, None, None)
        same = (
            positives is not None
            and positives.shape == training.positives.shape
            and np.array_equal(order, coupling.order)
            and (positives != training.positives).nnz == 0
        )
        start = multipliers if same else None
        if checkpoint is not None:
            checkpoint.save("start", pack(start))
        return start

    def _keep_joint(self, fitted: Fitted, model: LinearModel | PartsModel) -> None:
        """Leave the weights, their certificate and the way to them; warn if the gap stayed open."""
        for name in ("coef_", "differences_", "sharing_"):
            self.__dict__.pop(name, None)
        if isinstance(model, PartsModel):
            self.differences_, self.intercept_, self.sharing_ = model
        else:
            self.coef_, self.intercept_ = model
        self.n_iter_ = len(fitted.solution.trace)
        self.trace_ = fitted.solution.trace
        self.duality_gap_ = fitted.relative_gap
        warn_unless_closed(fitted, self.tol, self.max_iter)

    def __getattr__(self, name: str) -> Any:
        # A pruned model has differences; its full weights are made when they are asked for.
        if name == "coef_" and "differences_" in self.__dict__:
            return full_weights(self.differences_, self.sharing_)
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
        ids, dtype = self._node_ids(nodes), np.dtype(self.dtype)
        require_memory(
            2 * len(ids) * (self.n_features_in_ + 1) * dtype.itemsize,
            f"The weights of {len(ids)} nodes and {self.n_features_in_} features",
            "Ask for fewer nodes at a time.",
        )
        structure = self.structure_ or self.hierarchy_
        mixing = mixing_of(structure, self.class_nodes_, ids, self.coupling_, self.fade)
        return tuple(mixed(self._linear_model(), mixing, dtype))

    def _node_ids(self, names: Any) -> NDArray[np.int64]:
        if self.structure_ is not None:
            return np.asarray(self.structure_.encode(list(names)))
        place = {name: i for i, name in enumerate(self.nodes_.tolist())}
        unknown = [name for name in names if name not in place]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a class of the model, which has no structure.")
        return np.array([place[name] for name in names], np.int64)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        structure: Hierarchy | LabelGraph | None = None,
    ) -> Self:
        """Go on learning from new documents, also of new classes, without the old documents.

        The weights move from where they are as little as the new documents allow: deviations from them are
        what is regularised. A new class begins where the structure expects it, near its parent.

        Parameters count as they are now: a `C` or a `coupling` that was set since the last call holds for the new
        documents, and is left in `C_` and `coupling_`. "cv" means what `fit` chose; nothing is searched here. The
        calibration stays that of `fit`, and a learned threshold of new classes is that of the others.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels in the form in which they were given to `fit`
            One document is enough, but for the first call, which is a `fit`.
        classes : array-like, optional
            Classes of which documents may come, if others are to be refused. Unlike in scikit-learn, the first call
            need not announce them, new ones may come at any time, and one that is announced is no class before its
            first document.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C.
        structure : Hierarchy or LabelGraph, optional
            A grown structure, in which all classes so far are still to be found; by default the one there is.

        Returns
        -------
        self
        """
        if not hasattr(self, "classes_"):
            if structure is not None:
                raise ValueError("the first call of partial_fit takes the structure of the constructor.")
            if classes is not None:
                refuse_unannounced(encode_targets(y, self.structure), classes)
            return self.fit(X, y, sample_weight)
        with all_or_nothing(self):
            self._validate_params()
            if isinstance(self.class_weight, str):
                raise ValueError(
                    "class_weight='balanced' means the sizes of all classes, and partial_fit sees a batch: give a "
                    "dict."
                )
            X = check_features(self, X, reset=False)
            check_consistent_length(X, y)
            refuse_overflow(as_csr(X), np.dtype(self.dtype))
            structure = self.structure_ if structure is None else structure
            targets = encode_more(y, structure, self.classes_, self.label_kind_)
            if classes is not None:
                refuse_unannounced(targets, classes)
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            self.C_ = self.C_ if isinstance(self.C, str) else self.C
            self.coupling_ = self.coupling_ if isinstance(self.coupling, str) else self.coupling
            self._grow(as_csr(X), targets, structure, self.C_ * weight)
        return self

    def _grow(self, X: sp.csr_array, targets: Targets, structure: Any, cost: NDArray[Any]) -> None:
        """Learn from checked documents, beginning from the weights there are."""
        n_before, before = len(self.classes_), self._linear_model()
        targets, columns = with_classes(targets, self.classes_.tolist())
        within = targets.hierarchy if structure is None else structure
        old = targets.class_nodes[columns]
        if structure is not None:
            refuse_new_meaning(self.nodes_[self.class_nodes_], targets.nodes[old], self.classes_)
        mixing = mixing_of(within, old, targets.class_nodes, self.coupling_, self.fade)
        self._remember_targets(targets)
        self.structure_ = structure
        bias = self.intercept_scaling if self.fit_intercept else 0.0
        if not bias:
            before = before._replace(intercept=np.zeros_like(before.intercept))
        options = Options(self._loss_name, self.tol, self.max_iter, bias, np.dtype(self.dtype), self._seed())
        training = Training(X, targets.indicator, cost, np.ones(len(targets.classes)), options)
        training = training._replace(positive_weight=self._positive_weight(training))
        offset = offset_of(before, mixing, bias, options.dtype)
        fitted = self._train(training, self._couple(self.coupling_), offset=offset)
        model = self._model(fitted)
        if isinstance(model, PartsModel):  # of the change alone
            parts = as_parts(before, self.prune_below)
            model = moved(parts, model, mixing, columns, self.prune_below)
        self._keep_joint(fitted, model)
        if n_before < len(self.classes_) and hasattr(self.threshold_, "n_classes_"):
            self.threshold_ = copy(self.threshold_)
            self.threshold_.n_classes_ = len(self.classes_)
            if hasattr(self.threshold_, "thresholds_"):  # a new class is cut where half of the others are
                cuts = np.full(len(self.classes_), np.median(self.threshold_.thresholds_))
                cuts[columns] = self.threshold_.thresholds_
                self.threshold_.thresholds_ = cuts
