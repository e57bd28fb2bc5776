"""Cross-validated scores of candidates of a `TextClassifier`, and whether one is better beyond noise.

A candidate b replaces a candidate a if it is better beyond noise. With s_i the score of text i (1 if its label is
found, or the F1 of its set of labels), and weights w_i that count texts, and by a quarter classes,

    gain = sum_i w_i (s_i(b) - s_i(a)),    error^2 = sum_i w_i^2 (s_i(b) - s_i(a))^2,    gain > z error.

Candidates race: one that is worse in the first fold, or better by far, is not tested in the other folds. Models are
trained to a coarse precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.app.classifiers import ClassifierOptions, make_classifier
from arbora.app.text_classifier.labels import Labels
from arbora.app.text_classifier.recipes import Recipe
from arbora.app.text_classifier.work import Whole, Work
from arbora.core.folds import deal_folds
from arbora.structure import Hierarchy

FOLDS = 3
MOST_WORK = 3.0  # of the search, in plain fits
_COARSE = 0.05  # duality gap of the fits
_SURE = 2.5  # errors of a gain that needs no further fold
_HOPELESS = 0.5  # errors of a loss that needs no further fold
_BY_CLASS = 0.25  # share of the weight that is divided by classes instead of texts


class Candidate(NamedTuple):
    """Features, a model and its parameters; `features` is None if they are given."""

    features: Recipe | None
    model: str
    C: float
    coupling: float | None


class Search:
    """Candidates, trained and scored once each.

    Parameters
    ----------
    make_rows : callable
        Makes the rows of a recipe, for the sampled texts; None stands for given features.
    labels : Labels
        Of the sampled texts.
    structure : Hierarchy or None
    n_jobs, random_state : see `TextClassifier`
    whole : Whole, optional
        The training set of which the texts are a sample; it limits the work.
    """

    def __init__(
        self,
        make_rows: Callable[[Recipe | None], Any],
        labels: Labels,
        structure: Hierarchy | None,
        n_jobs: int | None,
        random_state: Any,
        whole: Whole | None = None,
    ) -> None:
        self.work = Work(whole, MOST_WORK)
        self._last: dict[Recipe | None, float] = {}  # work of the last fit with these features
        self.make_rows, self.labels, self.structure = make_rows, labels, structure
        self.n_jobs, self.random_state = n_jobs, random_state
        groups = labels.groups()
        self.fold_of = deal_folds(groups, FOLDS, np.random.default_rng(0))
        sizes = np.bincount(groups)
        n_classes = np.count_nonzero(sizes)
        self.weights = (1 - _BY_CLASS) / len(groups) + _BY_CLASS / (n_classes * sizes[groups])
        self.scores: dict[Candidate, NDArray[np.float64]] = {}
        self.untried: list[Candidate] = []  # for want of work
        self._rows: dict[Recipe | None, Any] = {}  # of the last two recipes: two candidates race

    def test(self, one: Candidate, n_folds: int = 1) -> NDArray[np.float64]:
        """Test a candidate on the first folds; return the scores of the texts, NaN in other folds."""
        scores = self.scores.setdefault(one, np.full(len(self.fold_of), np.nan))
        options = ClassifierOptions(one.model, one.C, one.coupling, self.n_jobs, self.random_state)
        for fold in range(n_folds):
            out, train = np.flatnonzero(self.fold_of == fold), np.flatnonzero(self.fold_of != fold)
            if not np.isnan(scores[out]).any():
                continue
            X = self._rows_of(one.features)
            model = make_classifier(options, self.structure, self.labels.several)
            known = model.get_params()
            model.set_params(**{k: v for k, v in {"tol": _COARSE, "calibration": None}.items() if k in known})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # coarse fits may not converge
                found = model.fit(X[train], self.labels.take(train)).predict(X[out])
            passes = int(np.max(getattr(model, "n_iter_", 1)))
            self._last[one.features] = self.work.fit(
                (len(train), X.shape[1]), X[train].nnz, len(model.nodes_), passes
            )
            scores[out] = self.labels.scores(out, found)
        return scores

    def _rows_of(self, recipe: Recipe | None) -> Any:
        found = self._rows.pop(recipe, None)
        if found is None:
            found = self.make_rows(recipe)
            self.work.rows(found.shape[1], found.nnz)
        self._rows = {**dict(list(self._rows.items())[-1:]), recipe: found}
        return found

    def score(self, one: Candidate) -> float:
        """Return the weighted mean score of the texts in the folds of a candidate."""
        scores = self.scores[one]
        known = ~np.isnan(scores)
        return float(self.weights[known] @ scores[known] / self.weights[known].sum())

    def gain(self, a: Candidate, b: Candidate) -> tuple[float, float]:
        """Return how much better b is than a in their common folds, and the standard error."""
        change = self.scores[b] - self.scores[a]
        known = ~np.isnan(change)
        w, change = self.weights[known] / self.weights[known].sum(), change[known]
        return float(w @ change), float(np.sqrt(np.sum((w * change) ** 2)))

    def better(self, a: Candidate, b: Candidate, noise: float, folds: int = FOLDS) -> bool:
        """Return whether b is better than a by more than `noise` errors; stop at a fold that decides.

        Without work left, no further fold is tested; a candidate without any fold is not better.
        """
        gain = error = 0.0
        for n_folds in range(1, folds + 1):
            if not self.work.left(self._last.get(b.features, 0.0)):
                self.untried += [b] * (b not in self.scores)
                break
            self.test(a, n_folds)
            self.test(b, n_folds)
            gain, error = self.gain(a, b)
            if gain <= -_HOPELESS * error or gain > _SURE * error:
                break
        return gain > noise * error
