"""The choice of features, cost and model of a `TextClassifier`, by cross-validation on some of the training texts.

The texts are split into tokens once; all recipes are made of these tokens. A sample of the texts (`sample_size`) is
taken: whole classes if there are many, so that a class has as many texts as in the full data. Candidates are trained
on two of three folds and predict the third (`search`); one replaces another if it is better beyond noise.

The search is greedy: a cost for plain words; kinds of features, each beside those that are chosen; the cost again;
and other models, with plain words, which are the cheapest features, and the best one with the chosen features. It
ends when its work (`Work`) reaches a limit in plain fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.app.classifiers import FLAT
from arbora.app.text_classifier.recipes import SAFE, Recipe
from arbora.app.text_classifier.search import FOLDS, MOST_WORK, Candidate, Search
from arbora.core.folds import take_per_group
from arbora.structure import Hierarchy

MOST_ROWS = 3000  # texts in the search
MOST_SHORT = 4500  # the same, of short texts, which cost less
_MOST_TOKENS = 600_000  # in the texts of the search, if these are at least
_LEAST_LONG = 800  # texts
_LARGER = 2.5  # sample of large sets, in these numbers
LEAST_ROWS = 30  # fewer texts are not searched
_LEAST_CLASSES = 24  # in a sample of whole classes
_BEYOND_NOISE = 1.0  # errors that a gain must exceed
_COST_NOISE = 0.5  # the same, for a cost: two costs differ in few texts
_COSTS = (0.3, 10.0)  # smallest and largest cost
_COUPLINGS = (0.1, 0.3)
_LOGISTIC = 10.0  # cost of the logistic loss, in that of the squared hinge


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
        flat = lead
        model = choose_model(search, plain, free_cost)  # with plain words, which are the cheapest features
        scaled = model.C if lead.C == plain.C else model.C * lead.C / plain.C  # a given cost stays as it is
        other = model._replace(features=lead.features, C=scaled)
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
    right = 100 * float(np.nanmean(search.scores[lead]))  # as users count it: without the weights of classes
    why.append(f"{cost}; {right:.1f}% right; cross-validation with {where}")
    tried = sorted(((one, search.score(one)) for one in search.scores), key=lambda pair: -pair[1])
    return Choice(lead, tried, why, n_sampled)


def _because(search: Search, lead: Candidate, best: Candidate, name: Callable[[Candidate], str]) -> str:
    """Return a sentence on a choice: what it was compared with, and what was not tried."""
    tried = [one for one in dict.fromkeys(map(name, search.scores)) if one != name(best)]
    missed = [one for one in dict.fromkeys(map(name, search.untried)) if one not in (*tried, name(best))]
    if name(best) != name(lead):
        gain, error = search.gain(lead, best)
        text = f"{name(best)}: {100 * gain:.1f} ± {100 * error:.1f} points better than {name(lead)}"
    elif tried:
        text = f"{name(lead)}: not better beyond noise: {', '.join(tried)}"
    else:
        text = f"{name(lead)}: nothing else was tried"
    if missed:
        text += f"; not tried, since the choice would take over {MOST_WORK:g} plain fits: {', '.join(missed)}"
    return text


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
