"""The choice of features, cost and model of a `TextClassifier`, by cross-validation on some of the training texts.

The texts are split into tokens once; all recipes are made of these tokens. A sample of the texts (`sample_size`) is
taken: whole classes if there are many, so that a class has as many texts as in the full data. Candidates are trained
to a coarse precision on two of three folds and predict the third.

A candidate b replaces a candidate a if it is better beyond noise. With s_i the score of text i (1 if its label is
found, or the F1 of its set of labels), and weights w_i that count texts, and by a quarter classes,

    gain = sum_i w_i (s_i(b) - s_i(a)),    error^2 = sum_i w_i^2 (s_i(b) - s_i(a))^2,    gain > z error.

Candidates race: one that is worse in the first fold, or better by far, is not tested in the other folds.

The search is greedy: a cost for plain words; kinds of features, each beside those that are chosen; the cost again;
and other models, with plain words, which are the cheapest features, and the best one with the chosen features. It
ends when its work (`Work`) reaches a limit in plain fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.app.classifiers import FLAT, ClassifierOptions, make_classifier
from arbora.app.text_classifier.labels import Labels
from arbora.app.text_classifier.recipes import SAFE, Recipe
from arbora.app.text_classifier.work import Whole, Work
from arbora.core.input.folds import deal_folds, take_per_group
from arbora.structure import Hierarchy

MOST_ROWS = 3000  # texts in the search
MOST_SHORT = 4500  # the same, of short texts, which cost less
_MOST_TOKENS = 600_000  # in the texts of the search, if these are at least
_LEAST_LONG = 800  # texts
_LARGER = 2.5  # sample of large sets, in these numbers
LEAST_ROWS = 30  # fewer texts are not searched
FOLDS = 3
_LEAST_CLASSES = 24  # in a sample of whole classes
_COARSE = 0.05  # duality gap of the fits
_BEYOND_NOISE = 1.0  # errors that a gain must exceed
_COST_NOISE = 0.5  # the same, for a cost
_SURE = 2.5  # errors of a gain that needs no further fold
_HOPELESS = 0.5  # errors of a loss that needs no further fold
_COSTS = (0.3, 10.0)  # smallest and largest cost
_BY_CLASS = 0.25  # share of the weight that is divided by classes instead of texts
_COUPLINGS = (0.1, 0.3)
_MOST_WORK = 3.0  # of the search, in plain fits
_LOGISTIC = 10.0  # cost of the logistic loss, in that of the squared hinge


class Candidate(NamedTuple):
    """Features, a model and its parameters; `features` is None if they are given."""

    features: Recipe | None
    model: str
    C: float
    coupling: float | None


class Choice(NamedTuple):
    """The chosen candidate, all candidates with their scores, the reasons, and the number of texts in the search."""

    best: Candidate
    tried: list[tuple[Candidate, float]]
    why: list[str]
    n_rows: int


def sample_size(n_rows: int, length: float, short: bool) -> int:
    """Return the number of texts in the search, by their number and their mean number of tokens.

    Half of the texts of large sets, up to a limit: some features, such as bigrams, need many texts to be of use.

    Examples
    --------
    >>> [sample_size(5000, length, length <= 30) for length in (10, 100, 300, 5000)]
    [4500, 3000, 2500, 2000]
    >>> sample_size(10_000, 100, False), sample_size(10**6, 100, False)
    (5000, 7500)
    """
    base = MOST_SHORT if short else np.clip(_MOST_TOKENS / max(length, 1.0), _LEAST_LONG, MOST_ROWS)
    return int(np.clip(n_rows / 2, base, _LARGER * base))


def sample_rows(
    groups: NDArray[np.int64], families: NDArray[np.int64], rng: np.random.Generator, most: int = MOST_ROWS
) -> NDArray[np.int64]:
    """Choose the rows of the search: all; whole classes, family by family; or a share of every class.

    Parameters
    ----------
    groups : ndarray of int of shape (n_rows,)
        Class of each row.
    families : ndarray of int of shape (n_classes,)
        Classes with the same number are chosen together.
    rng : Generator
    most : int
        Number of rows.

    Examples
    --------
    >>> rows = sample_rows(np.repeat(np.arange(100), 5), np.arange(100), np.random.default_rng(0), 200)
    >>> len(rows), set(np.bincount(np.repeat(np.arange(100), 5)[rows]).tolist())
    (200, {0, 5})
    """
    n_rows, sizes = len(groups), np.bincount(groups)
    if n_rows <= most:
        return np.arange(n_rows)
    rank = rng.permutation(int(families.max()) + 1)[families]
    order = np.lexsort((rng.permutation(len(sizes)), rank))
    n_whole = int(np.searchsorted(np.cumsum(sizes[order]), most, side="right"))
    if n_whole >= _LEAST_CLASSES:
        chosen = np.zeros(len(sizes), bool)
        chosen[order[:n_whole]] = True
        return np.flatnonzero(chosen[groups])
    wanted = np.maximum(np.round(sizes * (most / n_rows)), np.minimum(sizes, 2))
    return np.flatnonzero(take_per_group(groups, wanted, rng))


def families_of(names: Iterable[Any], structure: Hierarchy | None) -> NDArray[np.int64]:
    """Return a number for the parent of each class; without a structure each class is alone."""
    names = list(names)
    if structure is None:
        return np.arange(len(names))
    above = {str(name): structure.parents(name) for name in structure.names.tolist()}
    first = [str((list(above.get(str(name), ())) or [name])[0]) for name in names]
    return np.asarray(np.unique(first, return_inverse=True)[1], np.int64)


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
        self.work = Work(whole, _MOST_WORK)
        self._last: dict[Recipe | None, float] = {}  # work of the last fit with these features
        self.make_rows, self.labels, self.structure = make_rows, labels, structure
        self.n_jobs, self.random_state = n_jobs, random_state
        groups = labels.groups()
        self.fold_of = deal_folds(groups, FOLDS, np.random.default_rng(0))
        sizes = np.bincount(groups)
        n_classes = np.count_nonzero(sizes)
        self.weights = (1 - _BY_CLASS) / len(groups) + _BY_CLASS / (n_classes * sizes[groups])
        self.scores: dict[Candidate, NDArray[np.float64]] = {}
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
                warnings.simplefilter("ignore")  # coarse fits do not converge
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
                break
            self.test(a, n_folds)
            self.test(b, n_folds)
            gain, error = self.gain(a, b)
            if gain <= -_HOPELESS * error or gain > _SURE * error:
                break
        return gain > noise * error


def choose_cost(search: Search, lead: Candidate, steps: Iterable[float], folds: int = FOLDS) -> Candidate:
    """Multiply the cost by each step, again and again while it helps."""
    best = lead
    for step in steps:
        while _COSTS[0] <= best.C * step <= _COSTS[1]:
            other = best._replace(C=best.C * step)
            if not search.better(best, other, _COST_NOISE, folds):
                break
            best = other
    return best


def choose_features(search: Search, lead: Candidate, recipes: list[Recipe], short: bool) -> Candidate:
    """Add each kind of features to those that are chosen, if it helps.

    Character n-grams, with pairs of words, help nearly all short texts: there they are the first, and any gain is
    enough. They find what words of one stem share, so that stems are not tried with them; and stems must help plain
    words first, where it is cheap to see.
    """
    best = lead
    for recipe in sorted(recipes, key=lambda recipe: (recipe.stems, recipe.characters != short)):
        chosen = best.features or SAFE
        alone, joined = lead._replace(features=recipe), lead._replace(features=chosen.join(recipe))
        if joined == best or (recipe.stems and chosen.characters):
            continue
        if recipe.stems and not search.better(lead, alone, _BEYOND_NOISE):
            continue
        if search.better(best, joined, 0.0 if short else _BEYOND_NOISE):
            best = joined
    return best


def choose_model(search: Search, lead: Candidate, free_cost: bool = True) -> Candidate:
    """Try the logistic loss and, with a structure, models that use it; a cost that is not free stays."""
    others = [lead._replace(model="logistic", C=lead.C * _LOGISTIC if free_cost else lead.C)]
    if search.structure is not None:
        others += [lead._replace(model="recursive-svm", coupling=coupling) for coupling in _COUPLINGS]
    best = lead
    for other in others:
        if search.better(best, other, _BEYOND_NOISE):
            best = other
    return best


def choose(
    search: Search,
    recipes: list[Recipe] | None,
    *,
    free_model: bool,
    C: float | None,
    n_rows: int,
    short: bool = False,
) -> Choice:
    """Choose features and model.

    Parameters
    ----------
    search : Search
    recipes : list of Recipe, or None
        Kinds of features to try; None: the features are given.
    free_model : bool
        Choose the cost and the model too; otherwise candidates are flat, and only their features are of use.
    C : float or None
        A given cost.
    n_rows : int
        Number of all training texts.
    short : bool
        Texts have few words.
    """
    features = None if recipes is None else SAFE
    start = Candidate(features, FLAT, 1.0 if C is None else C, None)
    search.test(start)
    free_cost = free_model and C is None
    lead = plain = choose_cost(search, start, (3.0,)) if free_cost else start
    why = []
    if recipes:
        lead = choose_features(search, plain, recipes, short)
        why.append(_because(search, plain, lead, lambda one: (one.features or SAFE).name))
        if free_cost and lead is not plain:
            lead = choose_cost(search, lead, (3.0,), folds=1)
    if free_model:
        model, flat = (
            choose_model(search, plain, free_cost),
            lead,
        )  # of plain words, which are the cheapest features
        other = model._replace(features=lead.features, C=model.C * lead.C / plain.C)
        if other == model or (model.model != FLAT and search.better(lead, other, _BEYOND_NOISE)):
            lead = other
        why.append(_because(search, flat, lead, lambda one: one.model))
    if free_cost and lead.C <= start.C:
        lead = choose_cost(search, lead, (1 / 3,), folds=1)
    n_sampled = len(search.fold_of)
    n_tested = len(np.unique(search.fold_of[~np.isnan(search.scores[lead])]))
    where = (
        f"{n_tested} of {FOLDS} folds of {n_sampled:,}"
        + (f" of the {n_rows:,}" if n_sampled < n_rows else "")
        + " texts"
    )
    cost = f"C = {lead.C:g}" + ("" if lead.coupling is None else f", coupling = {lead.coupling:g}")
    why.append(f"{cost}; {100 * search.score(lead):.1f}% right; cross-validation with {where}")
    tried = sorted(((one, search.score(one)) for one in search.scores), key=lambda pair: -pair[1])
    return Choice(lead, tried, why, n_sampled)


def _because(search: Search, lead: Candidate, best: Candidate, name: Callable[[Candidate], str]) -> str:
    """Return a sentence on a choice."""
    if name(best) == name(lead):
        return f"{name(lead)}: nothing else is better beyond noise"
    gain, error = search.gain(lead, best)
    return f"{name(best)}: {100 * gain:.1f} ± {100 * error:.1f} points better than {name(lead)}"


def describe_choice(choice: Choice, features: bool, model: bool) -> dict[str, Any]:
    """Return a choice as values that can be saved; `features` and `model`: what was to choose."""
    best = choice.best
    found: dict[str, Any] = {}
    if features:
        found["features"] = (best.features or SAFE).name
    if model:
        found |= {"model": best.model, "C": best.C, "coupling": best.coupling}
    rows = [
        {
            "features": None if one.features is None else one.features.name,
            "model": one.model,
            "C": one.C,
            "coupling": one.coupling,
            "score": score,
        }
        for one, score in choice.tried
    ]
    return {**found, "why": choice.why, "n_texts": choice.n_rows, "candidates": rows}
