"""The choice of features, cost and model of a `TextClassifier`, by cross-validation on some of the training texts.

The texts are split into tokens once; all recipes are made of these tokens. A sample of the texts (`sample_size`) is
taken: whole classes if there are many, so that a class has as many texts as in the full data. Candidates are trained
on two of three folds and predict the third (`search`); one replaces another if it is better beyond noise.

The search is greedy: a cost for plain words; kinds of features, each beside those that are chosen; the cost again;
and other models, with plain words, which are the cheapest features, and the best one with the chosen features. It
ends when its work (`Work`) reaches a limit in plain fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.app.classifiers import FLAT, ClassifierOptions, fit_coarse, make_classifier
from arbora.arrays import Array, Ints
from arbora.core.folds import deal_folds, take_per_group
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer
from arbora.text.languages import is_one_letter, without_spaces
from arbora.text.tokens import ALL_PATTERN, AUTO_PATTERN, drop_words, take_documents, tokenize

# --- Labels of texts, of any kind: one per text, lists of labels, or an indicator matrix --------------------


class Labels:
    """Labels of any kind: selection of rows, groups, and scores of predictions."""

    def __init__(self, y: Any) -> None:
        self.y: Any
        self.matrix = getattr(y, "ndim", 1) == 2
        if self.matrix:
            self.sets = False
            self.y = sp.csr_array(y) if hasattr(y, "tocsr") else np.asarray(y)
        else:
            values = y.tolist() if hasattr(y, "tolist") else list(y)
            self.sets = any(isinstance(label, list | tuple | set) for label in values)
            self.y = [list(names) for names in values] if self.sets else np.asarray(y)
        self.several = self.matrix or self.sets

    def take(self, rows: Ints) -> Any:
        """Return the labels of rows, in the form of y."""
        return [self.y[row] for row in rows.tolist()] if not self.matrix and self.sets else self.y[rows]

    def groups(self) -> Ints:
        """Return the class of each row as a number, in the order of `classes`; 0 for several labels."""
        if self.several:
            n_rows = self.y.shape[0] if self.matrix else len(self.y)
            return np.zeros(n_rows, np.int64)
        return np.asarray(np.unique(self.y.astype(str), return_inverse=True)[1], np.int64)

    def classes(self) -> list[Any]:
        """Return the names of the groups; one for several labels."""
        return [None] if self.several else np.unique(self.y.astype(str)).tolist()

    def scores(self, rows: Ints, predicted: Any) -> Array:
        """Return the score of each prediction: 1 for the right label, or the F1 of the sets of labels."""
        if not self.several:
            return np.asarray(self.y[rows] == predicted, np.float64)
        if self.matrix:
            truth, guess = (sp.csr_array(y, dtype=np.float64) for y in (self.y[rows], predicted))
            both = np.asarray(truth.multiply(guess).sum(axis=1)).ravel()
            total = np.asarray(truth.sum(axis=1) + guess.sum(axis=1)).ravel()
        else:
            pairs = [
                (set(self.y[row]), set(names)) for row, names in zip(rows.tolist(), predicted, strict=True)
            ]
            both = np.array([len(a & b) for a, b in pairs])
            total = np.array([len(a) + len(b) for a, b in pairs])
        return np.where(total > 0, 2 * both / np.maximum(total, 1), 1.0)


# --- The work of a choice, in counts, beside that of one plain fit; it does not depend on clocks or threads ---
#
# All counts are in the units of one multiplication in the training of a linear model. With z nonzeros, n rows, d
# columns, k classes and p passes over the rows, a fit takes k p (z + 10 n + 3 d) of them, a row matrix 130 z + 1,100
# d, a token of the texts 600, and a text 5,000 more. These numbers are estimates; they need not be exact.


_ROW = 10  # work of a row in a pass, besides that of its nonzeros
_WEIGHT = 3  # of a column in a pass: weights that are far apart in memory
_NONZERO = 130  # to make a nonzero of a row matrix
_COLUMN = 1100  # to make a column of it
_TOKEN = 600  # to split, count and weigh a token
_TEXT = 5000  # to split and predict a text, besides its tokens
_MIN_WORK = 2e8  # work that is always done: a fraction of a second
_PRECISE = 2.5  # work of a precise fit with calibration, in that of a coarse fit


class Whole(NamedTuple):
    """The training set of which a sample is searched: numbers of texts, classes and tokens."""

    n_rows: int
    n_classes: int
    n_tokens: int


class Work:
    """Counts work, up to a limit in plain fits (words, and a flat model of all texts); `whole` None: no limit.

    >>> work = Work(Whole(1000, 4, 20_000), 2.0)
    >>> work.fit((500, 2000), 10_000, 4, 5)
    420000.0
    >>> work.left(), work.left(1e9)
    (True, False)
    >>> for _ in range(5000):
    ...     _ = work.fit((500, 2000), 10_000, 4, 5)
    >>> work.left()
    False
    """

    def __init__(self, whole: Whole | None, limit: float) -> None:
        self.whole, self.limit = whole, limit
        self.spent, self.plain = 0.0, 0.0

    def rows(self, n_columns: int, n_nonzeros: int) -> None:
        """Count the making of a row matrix."""
        self.spent += _NONZERO * n_nonzeros + _COLUMN * n_columns

    def fit(self, shape: tuple[int, int], n_nonzeros: int, n_classes: int, n_passes: int) -> float:
        """Count a coarse fit; the first one is that of plain words, and tells the work of a plain fit."""
        work = _fit(shape, n_nonzeros, n_classes, n_passes)
        self.spent += work
        if self.whole is not None and not self.plain:
            nonzeros = n_nonzeros * self.whole.n_rows // max(1, shape[0])
            full = (self.whole.n_rows, shape[1])
            fine = _PRECISE * _fit(full, nonzeros, self.whole.n_classes, n_passes)
            rows = (
                _NONZERO * nonzeros
                + _COLUMN * shape[1]
                + _TOKEN * self.whole.n_tokens
                + _TEXT * self.whole.n_rows
            )
            self.plain = fine + rows
        return work

    def left(self, extra: float = 0.0) -> bool:
        """Return whether the limit is not reached with some extra work."""
        return not self.plain or self.spent + extra < max(_MIN_WORK, self.limit * self.plain)


def _fit(shape: tuple[int, int], n_nonzeros: int, n_classes: int, n_passes: int) -> float:
    return float(n_classes * max(1, n_passes)) * (n_nonzeros + _ROW * shape[0] + _WEIGHT * shape[1])


# --- Recipes: how `TextClassifier` makes rows of texts, by name ---------------------------------------------
#
# A name lists kinds of features: "words" or "stems", "bigrams" (pairs of neighbouring words) and "characters"
# (n-grams of 3 and 4 characters within words), such as "words+bigrams". "without stop words" at the end drops
# English stop words. Words of one letter count only in recipes with bigrams, where they tell "type a" from "type b":
# alone they are noise in long texts, such as papers with formulas. Plain "words" are thus those of
# ``TfidfVectorizer``.


CHARACTERS = (3, 4)  # lengths of the character n-grams
SHORT = 30  # words; most texts of this length gain by character n-grams
LONG = 150  # words; in longer texts character n-grams are not tried, since they are many and help little
_KINDS = ("words", "stems", "bigrams", "characters")
_NO_STOP_WORDS = " without stop words"


class Recipe(NamedTuple):
    """How texts become rows."""

    stems: bool = False  # instead of words
    bigrams: bool = False  # also pairs of neighbouring words
    characters: bool = False  # also character n-grams within words
    stop_words: bool = True  # keep stop words

    @property
    def name(self) -> str:
        """Name of the recipe, which `parse_recipe` reads."""
        kinds = ["stems" if self.stems else "words"]
        kinds += ["bigrams"] * self.bigrams + ["characters"] * self.characters
        return "+".join(kinds) + ("" if self.stop_words else _NO_STOP_WORDS)

    def join(self, other: Recipe) -> Recipe:
        """Return the recipe with the features of both; stop words are dropped if one of them drops them."""
        return Recipe(
            self.stems or other.stems,
            self.bigrams or other.bigrams,
            self.characters or other.characters,
            self.stop_words and other.stop_words,
        )

    def vectorizer(self, language: str) -> LtcVectorizer:
        """Make the unfitted vectorizer; in the language "none", stems are words."""
        return LtcVectorizer(
            stop_words=None if self.stop_words else "english",
            stem=language if self.stems and language != "none" else None,
            ngram_range=(1, 2 if self.bigrams else 1),
            characters=CHARACTERS if self.characters else None,
            balanced=True,
            token_pattern=ALL_PATTERN if self.bigrams else AUTO_PATTERN,
            smooth_idf=True,
        )


SAFE = Recipe()  # the words as they are: rows of TfidfVectorizer(sublinear_tf=True)
_EVERY_TOKEN = Recipe(bigrams=True)  # has the tokens of all other recipes


def parse_recipe(name: str) -> Recipe:
    """Read the name of a recipe.

    >>> parse_recipe("words+letters")
    Traceback (most recent call last):
    ...
    ValueError: features='words+letters' is unknown: use "auto", or words or stems, bigrams, characters, joined by +
    """
    kinds = name.removesuffix(_NO_STOP_WORDS).split("+")
    if not set(kinds) <= set(_KINDS) or ("words" in kinds) == ("stems" in kinds):
        raise ValueError(
            f'features={name!r} is unknown: use "auto", or words or stems, bigrams, characters, joined by +'
        )
    return Recipe(
        "stems" in kinds, "bigrams" in kinds, "characters" in kinds, not name.endswith(_NO_STOP_WORDS)
    )


class SplitTexts:
    """Texts that are split into tokens once, for the rows of any recipe; language "none": stems are words."""

    def __init__(self, texts: Sequence[str], language: str) -> None:
        self.language = language
        self.spaces = not without_spaces(texts)
        self.tokens = tokenize(texts, _EVERY_TOKEN.vectorizer(language).rules())
        self.letters = frozenset(filter(is_one_letter, self.tokens.words))

    @property
    def length(self) -> float:
        """Mean number of tokens of a text."""
        return len(self.tokens.ids) / max(1, self.n_rows)

    @property
    def short(self) -> bool:
        """Whether the texts have few words."""
        return self.length <= SHORT

    @property
    def n_rows(self) -> int:
        """Number of texts."""
        return len(self.tokens.indptr) - 1

    def fit(self, recipe: Recipe, rows: Ints | None = None) -> tuple[LtcVectorizer, Any]:
        """Return the fitted vectorizer of a recipe, and the rows of all or of some texts."""
        tokens = self.tokens if rows is None else take_documents(self.tokens, rows)
        vectorizer = recipe.vectorizer(self.language)
        dropped = vectorizer.rules().dropped | (frozenset() if recipe.bigrams else self.letters)
        return vectorizer, vectorizer.fit_tokens(drop_words(tokens, dropped))

    def candidates(self) -> list[Recipe]:
        """Return the kinds of features to try, besides plain words."""
        if not self.spaces:  # the tokens are character n-grams already
            return []
        recipes = [Recipe(bigrams=True, characters=True)] if self.short else []
        recipes.append(Recipe(bigrams=True))
        if self.language != "none":
            recipes.append(Recipe(stems=True))
        if self.language == "english":
            recipes.append(Recipe(stems=True, stop_words=False))
        if self.length <= LONG:
            recipes.append(Recipe(characters=True))
        return recipes


class GivenRows(NamedTuple):
    """Rows whose features are not chosen: of a given vectorizer, or rows of numbers without one."""

    vectorizer: LtcVectorizer | None
    X: Any

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def fit(self, recipe: Recipe | None, rows: Ints | None = None) -> tuple[LtcVectorizer | None, Any]:
        """Return the vectorizer, and all or some rows; a recipe has no effect."""
        return self.vectorizer, self.X if rows is None else self.X[rows]


Source = SplitTexts | GivenRows


# --- Cross-validated scores of candidates of a `TextClassifier`, and whether one is better beyond noise -----
#
# A candidate b replaces a candidate a if it is better beyond noise. With s_i the score of text i (1 if its label is
# found, or the F1 of its set of labels), and weights w_i that count texts, and by a quarter classes,
#
#     gain = sum_i w_i (s_i(b) - s_i(a)),    error^2 = sum_i w_i^2 (s_i(b) - s_i(a))^2,    gain > z error.
#
# Candidates race: one that is worse in the first fold, or better by far, is not tested in the other folds. Models
# are trained to a coarse precision.


FOLDS = 3
MAX_WORK = 3.0  # of the search, in plain fits
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
    """Candidates, trained and scored once each, on a sample of the texts.

    `make_rows` makes the rows of a recipe for the sampled texts; None stands for given features. `labels` are those
    of the sample. `whole` is the training set that the sample is from: it limits the work.
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
        self.work = Work(whole, MAX_WORK)
        self._last: dict[Recipe | None, float] = {}  # work of the last fit with these features
        self.make_rows, self.labels, self.structure = make_rows, labels, structure
        self.n_jobs, self.random_state = n_jobs, random_state
        groups = labels.groups()
        self.fold_of = deal_folds(groups, FOLDS, np.random.default_rng(0))
        sizes = np.bincount(groups)
        n_classes = np.count_nonzero(sizes)
        self.weights = (1 - _BY_CLASS) / len(groups) + _BY_CLASS / (n_classes * sizes[groups])
        self.scores: dict[Candidate, Array] = {}
        self.untried: list[Candidate] = []  # for want of work
        self._rows: dict[Recipe | None, Any] = {}  # of the last two recipes: two candidates race

    def test(self, candidate: Candidate, n_folds: int = 1) -> Array:
        """Test a candidate on the first folds; return the scores of the texts, NaN in other folds."""
        scores = self.scores.setdefault(candidate, np.full(len(self.fold_of), np.nan))
        _, name, C, coupling = candidate
        options = ClassifierOptions(name, C, coupling, self.n_jobs, self.random_state)
        for fold in range(n_folds):
            out, train = np.flatnonzero(self.fold_of == fold), np.flatnonzero(self.fold_of != fold)
            if not np.isnan(scores[out]).any():
                continue
            X = self._rows_of(candidate.features)
            model = make_classifier(options, self.structure, self.labels.several)
            fit_coarse(model, X[train], self.labels.take(train))
            passes = int(np.max(getattr(model, "n_iter_", 1)))
            self._last[candidate.features] = self.work.fit(
                (len(train), X.shape[1]), X[train].nnz, len(model.nodes_), passes
            )
            scores[out] = self.labels.scores(out, model.predict(X[out]))
        return scores

    def _rows_of(self, recipe: Recipe | None) -> Any:
        X = self._rows.pop(recipe, None)
        if X is None:
            X = self.make_rows(recipe)
            self.work.rows(X.shape[1], X.nnz)
        self._rows = {**dict(list(self._rows.items())[-1:]), recipe: X}
        return X

    def score(self, candidate: Candidate) -> float:
        """Return the weighted mean score of the texts in the folds of a candidate."""
        scores = self.scores[candidate]
        tested = ~np.isnan(scores)
        return float(self.weights[tested] @ scores[tested] / self.weights[tested].sum())

    def gain(self, a: Candidate, b: Candidate) -> tuple[float, float]:
        """Return how much better b is than a in their common folds, and the standard error."""
        change = self.scores[b] - self.scores[a]
        tested = ~np.isnan(change)
        w, change = self.weights[tested] / self.weights[tested].sum(), change[tested]
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


# --- The choice of features, cost and model, by cross-validation on some of the training texts ---


MAX_ROWS = 3000  # texts in the search
MAX_SHORT = 4500  # the same, of short texts, which cost less
_MAX_TOKENS = 600_000  # in the texts of the search, if these are at least
_MIN_LONG = 800  # texts
_LARGER = 2.5  # sample of large sets, in these numbers
MIN_ROWS = 30  # fewer texts are not searched
_MIN_CLASSES = 24  # in a sample of whole classes
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

    >>> [sample_size(5000, length, length <= 30) for length in (10, 100, 300, 5000)]
    [4500, 3000, 2500, 2000]
    >>> sample_size(10_000, 100, False), sample_size(10**6, 100, False)
    (5000, 7500)
    """
    base = MAX_SHORT if short else np.clip(_MAX_TOKENS / max(length, 1.0), _MIN_LONG, MAX_ROWS)
    return int(np.clip(n_rows / 2, base, _LARGER * base))


def sample_rows(groups: Ints, families: Ints, rng: np.random.Generator, max_rows: int = MAX_ROWS) -> Ints:
    """Choose the rows of the search: all; whole classes, family by family; or a share of every class.

    `groups` has the class of each row; `families` has a number for each class, and classes with the same number are
    chosen together.
    """
    n_rows, sizes = len(groups), np.bincount(groups)
    if n_rows <= max_rows:
        return np.arange(n_rows)
    rank = rng.permutation(int(families.max()) + 1)[families]
    order = np.lexsort((rng.permutation(len(sizes)), rank))
    n_whole = int(np.searchsorted(np.cumsum(sizes[order]), max_rows, side="right"))
    if n_whole >= _MIN_CLASSES:
        chosen = np.zeros(len(sizes), bool)
        chosen[order[:n_whole]] = True
        return np.flatnonzero(chosen[groups])
    wanted = np.maximum(np.round(sizes * (max_rows / n_rows)), np.minimum(sizes, 2))
    return np.flatnonzero(take_per_group(groups, wanted, rng))


def families_of(names: Iterable[Any], structure: Hierarchy | None) -> Ints:
    """Return a number for the parent of each class; without a structure each class is alone."""
    names = list(names)
    if structure is None:
        return np.arange(len(names))
    above = {str(name): structure.parents(name) for name in structure.names.tolist()}
    first = [str((list(above.get(str(name), ())) or [name])[0]) for name in names]
    return np.asarray(np.unique(first, return_inverse=True)[1], np.int64)


def choose_cost(search: Search, lead: Candidate, steps: Iterable[float], folds: int = FOLDS) -> Candidate:
    """Multiply the cost by each step, repeatedly while it helps."""
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

    `recipes` are the kinds of features to try; None: the features are given. Without `free_model` all candidates are
    flat, and only their features are of use. `C` is a given cost, or None. `n_rows` is the number of all training
    texts.
    """
    features = None if recipes is None else SAFE
    start = Candidate(features, FLAT, 1.0 if C is None else C, None)
    search.test(start)
    free_cost = free_model and C is None
    lead = plain = choose_cost(search, start, (3.0,)) if free_cost else start
    why = []
    if recipes:
        lead = choose_features(search, plain, recipes, short)
        why.append(_because(search, plain, lead, lambda candidate: (candidate.features or SAFE).name))
        if free_cost and lead is not plain:
            lead = choose_cost(search, lead, (3.0,), folds=1)
    if free_model:
        flat = lead
        model = choose_model(search, plain, free_cost)  # with plain words, which are the cheapest features
        scaled = model.C if lead.C == plain.C else model.C * lead.C / plain.C  # a given cost stays as it is
        other = model._replace(features=lead.features, C=scaled)
        if other == model or (model.model != FLAT and search.better(lead, other, _BEYOND_NOISE)):
            lead = other
        why.append(_because(search, flat, lead, lambda candidate: candidate.model))
    if free_cost and lead.C <= start.C:
        lead = choose_cost(search, lead, (1 / 3,), folds=1)
    scored = sorted(((tried, search.score(tried)) for tried in search.scores), key=lambda pair: -pair[1])
    return Choice(lead, scored, [*why, _evidence(search, lead, n_rows)], len(search.fold_of))


def _evidence(search: Search, best: Candidate, n_rows: int) -> str:
    """Return a line with the cost, the share of right predictions, and the folds that it was measured on."""
    n_sampled = len(search.fold_of)
    n_folds = len(np.unique(search.fold_of[~np.isnan(search.scores[best])]))
    texts = f"{n_sampled:,}" + (f" of the {n_rows:,}" if n_sampled < n_rows else "") + " texts"
    cost = f"C = {best.C:g}" + ("" if best.coupling is None else f", coupling = {best.coupling:g}")
    right = 100 * float(np.nanmean(search.scores[best]))  # as users count it: without the weights of classes
    return f"{cost}; {right:.1f}% right; cross-validation with {n_folds} of {FOLDS} folds of {texts}"


def _because(search: Search, lead: Candidate, best: Candidate, name: Callable[[Candidate], str]) -> str:
    """Return a sentence on a choice: what it was compared with, and what was not tried."""
    tried = [other for other in dict.fromkeys(map(name, search.scores)) if other != name(best)]
    missed = [
        other for other in dict.fromkeys(map(name, search.untried)) if other not in (*tried, name(best))
    ]
    if name(best) != name(lead):
        gain, error = search.gain(lead, best)
        text = f"{name(best)}: {100 * gain:.1f} ± {100 * error:.1f} points better than {name(lead)}"
    elif tried:
        text = f"{name(lead)}: not better beyond noise: {', '.join(tried)}"
    else:
        text = f"{name(lead)}: nothing else was tried"
    if missed:
        text += f"; not tried, since the choice would take over {MAX_WORK:g} plain fits: {', '.join(missed)}"
    return text


def choose_for_texts(
    source: Source,
    labels: Labels,
    structure: Hierarchy | None,
    recipe: Recipe,
    *,
    free_features: bool,
    free_model: bool,
    C: float | None,
    n_jobs: int | None,
    random_state: Any,
) -> dict[str, Any]:
    """Choose what is "auto" in a `TextClassifier`, on a sample of its training texts: its `choice_`.

    `free_features` and `free_model` say what to choose; otherwise the features are those of `recipe`, and `C` is a
    given cost. The result is empty if nothing is to choose, or there are too few texts or classes.
    """
    texts = source if isinstance(source, SplitTexts) else None
    free_features = free_features and texts is not None
    groups, n_rows = labels.groups(), source.n_rows
    n_classes = len(np.unique(groups))
    if not (free_model or free_features) or n_rows < MIN_ROWS or (n_classes < 2 and not labels.several):
        return {}
    rng = np.random.default_rng(int(random_state) if isinstance(random_state, Integral) else 0)
    short = texts is not None and texts.short
    max_rows = MAX_ROWS if texts is None else sample_size(n_rows, texts.length, short)
    rows = sample_rows(groups, families_of(labels.classes(), structure), rng, max_rows)

    def make_rows(features: Recipe | None) -> Any:
        return source.fit(features or recipe, rows)[1]

    whole = None if texts is None else Whole(n_rows, n_classes, len(texts.tokens.ids))
    search = Search(make_rows, Labels(labels.take(rows)), structure, n_jobs, random_state, whole)
    recipes = texts.candidates() if texts is not None and free_features else None
    choice = choose(search, recipes, free_model=free_model, C=C, n_rows=n_rows, short=short)
    chosen = choice.best._asdict() if free_model else {}
    if free_features:
        chosen["features"] = (choice.best.features or SAFE).name
    else:
        chosen.pop("features", None)
    candidates = [
        {
            **tried._asdict(),
            "features": None if tried.features is None else tried.features.name,
            "score": score,
        }
        for tried, score in choice.tried
    ]
    return {**chosen, "why": choice.why, "n_texts": choice.n_rows, "candidates": candidates}
