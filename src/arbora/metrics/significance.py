r"""Significance of the difference between two systems on the same test rows.

* **Sign test** for micro-averaged measures (the micro s-test of Yang and Liu 1999). Cases on which both
  systems are equally right are dropped. Of the ``n`` others, system A wins ``k``, which is binomial(n, 1/2)
  under the null hypothesis. With one label per row a case is a row, since a wrong row contains two wrong
  decisions and would count twice. With several labels a case is a (row, class) decision; where the systems
  decide differently, exactly one of them is right. Decisions of one row are not independent, so
  ``unit="instance"``, which counts rows (the system with fewer wrong decisions wins), is more conservative.
* **Wilcoxon signed-rank test** for macro-averages: the pairs are the F1 scores of each class.
* **Paired t-test** on any paired scores, such as those of the same folds or restarts.

Gopal's thesis (2.7.1, 3.5.1) uses the first two and marks a p-value below 5% by ``*`` and below 1% by ``†``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse, stats

from arbora.arrays import Matrix
from arbora.core.chunks import split_entries
from arbora.metrics.classification import (
    ClassCounts,
    choose_baseline,
    class_f1,
    count_classes,
    macro_average,
    macro_f1,
    micro_average,
    micro_f1,
    named_arguments,
)
from arbora.metrics.labels import Indicators, object_array, to_indicators
from arbora.metrics.table import Marked, Table

# --- Bootstrap confidence intervals of a measure, or of its difference between two systems ------------------
#
# Rows are drawn with replacement. The percentile interval contains the middle of the resampled values. The basic
# interval reflects it about the measured value, ``2 value - high`` to ``2 value - low``, which corrects a bias of
# the resampling. Macro-F1 over many classes with one or two test rows has such a bias: a resample omits some of
# these classes and doubles others. With a baseline, both systems are measured on the same draws, so most of the
# bias and of the variance due to hard rows cancels.
#
# Micro- and macro-F1 depend only on class counts. The counts of many resamples are one product of row
# multiplicities with the sparse indicators, so the labels are read once. Any other measure is called once for
# each resample.


Metric = Callable[[Any, Any], float]


class Interval(NamedTuple):
    """Value of a measure (or of a difference), its confidence interval and the resampled values."""

    value: float
    low: float
    high: float
    samples: Matrix


def bootstrap_interval(
    metric: Metric,
    y_true: Any,
    y_pred: Any,
    *,
    baseline: Any = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Literal["percentile", "basic"] = "percentile",
    random_state: int | np.random.Generator | None = None,
) -> Interval:
    """Confidence interval of a measure, or of its difference between two systems.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred) -> float``. :func:`micro_f1` and :func:`macro_f1` use a fast path. Use
        ``functools.partial`` to set the options of a measure.
    y_true, y_pred : array, list or sparse matrix of n_samples rows
        Any form that ``metric`` accepts.
    baseline : same form as ``y_pred``, optional
        Predictions of another system. The interval is then that of ``metric(y_true, y_pred) -
        metric(y_true, baseline)`` on the same resamples; the systems differ if it does not contain zero.
    n_resamples : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Coverage, between 0 and 1.
    method : {"percentile", "basic"}, default="percentile"
        How the interval is computed from the resampled values. Use ``"basic"`` for macro-averages over many
        rare classes.
    random_state : int, Generator or None, default=None
        Seed of the draws.

    Returns
    -------
    Interval
        Named tuple ``value, low, high, samples``.

    Examples
    --------
    >>> truth = ["cat", "dog"] * 50
    >>> guess = ["cat"] * 60 + ["dog"] * 40
    >>> interval = bootstrap_interval(micro_f1, truth, guess, random_state=0)
    >>> interval.low < interval.value < interval.high
    True
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if method not in ("percentile", "basic"):
        raise ValueError(f"method must be 'percentile' or 'basic', got {method!r}")
    rng = np.random.default_rng(random_state)
    systems = [y_pred] if baseline is None else [y_pred, baseline]
    value = [float(metric(y_true, system)) for system in systems]
    resample = _resample_f1 if metric in (micro_f1, macro_f1) else _resample_any
    samples = resample(metric, y_true, systems, n_resamples, rng)
    if baseline is None:
        point, draws = value[0], samples[0]
    else:
        point, draws = value[0] - value[1], samples[0] - samples[1]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    if method == "basic":
        low, high = 2 * point - high, 2 * point - low
    return Interval(point, float(low), float(high), draws)


def _draw(rng: np.random.Generator, n_samples: int) -> Matrix:
    return rng.integers(n_samples, size=n_samples)


def _resample_any(
    metric: Metric, y_true: Any, systems: list[Any], n_resamples: int, rng: np.random.Generator
) -> Matrix:
    """Values of each system (rows) on each resample (columns); calls the measure once for each value."""
    truth, *predictions = (_indexable(y) for y in (y_true, *systems))
    samples = np.empty((len(systems), n_resamples))
    for column in range(n_resamples):
        rows = _draw(rng, truth.shape[0])
        samples[:, column] = [metric(truth[rows], y[rows]) for y in predictions]
    return samples


def _indexable(y: Any) -> Any:
    """Return y in a form that an integer array can index: an array or CSR matrix."""
    as_csr: Any = getattr(y, "tocsr", None)
    if as_csr is not None:
        return as_csr()
    return y if isinstance(y, np.ndarray) else object_array(y)


def _resample_f1(
    metric: Metric, y_true: Any, systems: list[Any], n_resamples: int, rng: np.random.Generator
) -> Matrix:
    """Compute the values of `_resample_any` from class counts, many resamples at a time."""
    pairs = [to_indicators({"y_true": y_true, "y_pred": system}) for system in systems]
    n_samples = pairs[0].matrices[0].shape[0]
    samples = np.empty((len(systems), n_resamples))
    for chunk in split_entries(n_resamples, max(n_samples, *(pair.matrices[0].shape[1] for pair in pairs))):
        draws = [_draw(rng, n_samples) for _ in range(chunk.stop - chunk.start)]
        weights = np.array([np.bincount(rows, minlength=n_samples) for rows in draws], np.float64)
        for row, pair in enumerate(pairs):
            samples[row, chunk] = _weighted_f1(metric, pair, weights)
    return samples


def _weighted_f1(metric: Metric, pair: Indicators, weights: Matrix) -> Matrix:
    true, pred = pair.matrices
    hits: Any = true.multiply(pred)
    counts = ClassCounts(*(weights @ matrix.astype(np.float64) for matrix in (hits, true, pred)))
    if metric is micro_f1:
        return micro_average(counts)
    # A named class that does not occur in a resample is not averaged; a column of an indicator matrix is.
    return macro_average(class_f1(counts, np.nan if pair.named else 0.0))


# --- Significance of the difference between two systems on the same test rows -------------------------------


Alternative = Literal["two-sided", "greater", "less"]
_ALTERNATIVES = ("two-sided", "greater", "less")


class Significance(NamedTuple):
    """Result of a test: its statistic, the number of pairs that are not ties, and the p-value."""

    statistic: float
    n_pairs: int
    p_value: float

    @property
    def mark(self) -> str:
        """``"†"`` for p < 1%, ``"*"`` for p < 5%, else an empty string."""
        return significance_mark(self.p_value)


def significance_mark(p_value: float) -> str:
    """Mark a p-value as the thesis does: ``"†"`` below 1%, ``"*"`` below 5%."""
    return "†" if p_value < 0.01 else "*" if p_value < 0.05 else ""


def _check_alternative(alternative: str) -> None:
    if alternative not in _ALTERNATIVES:
        raise ValueError(f"alternative must be one of {_ALTERNATIVES}, got {alternative!r}")


def _count_wins(
    true: sparse.csr_array, a: sparse.csr_array, b: sparse.csr_array, by_row: bool
) -> tuple[int, int]:
    """Count the cases that only A gets right and those that only B does (less wrong, if cases are rows)."""
    a_only, b_only = a > b, b > a
    # Where only A predicts a class, A is right when the class is true, and B is right when it is not.
    a_hits, b_hits = (only.multiply(true).sum(axis=1) for only in (a_only, b_only))
    wins = a_hits + b_only.sum(axis=1) - b_hits
    losses = b_hits + a_only.sum(axis=1) - a_hits
    if by_row:
        return int((wins > losses).sum()), int((wins < losses).sum())
    return int(wins.sum()), int(losses.sum())


def _sign(
    true: sparse.csr_array, a: sparse.csr_array, b: sparse.csr_array, by_row: bool, alternative: Alternative
) -> Significance:
    wins, losses = _count_wins(true, a, b, by_row)
    n_pairs = wins + losses
    p_value = stats.binomtest(wins, n_pairs, 0.5, alternative).pvalue if n_pairs else 1.0
    return Significance(float(wins), n_pairs, float(p_value))


def _wilcoxon(f1_a: Matrix, f1_b: Matrix, alternative: Alternative) -> Significance:
    # F1 scores are ratios of small integers; rounding makes equal differences tie in spite of floating point.
    difference = np.round(f1_a - f1_b, 12)
    difference = difference[difference != 0]
    if not len(difference):
        return Significance(0.0, 0, 1.0)
    outcome = stats.wilcoxon(difference, alternative=alternative)
    return Significance(float(outcome.statistic), len(difference), float(outcome.pvalue))


def _by_row(read: Indicators, unit: str) -> bool:
    if unit not in ("auto", "instance", "decision"):
        raise ValueError(f"unit must be 'auto', 'instance' or 'decision', got {unit!r}")
    return unit == "instance" or (unit == "auto" and read.single)


def sign_test(
    y_true: Any,
    pred_a: Any,
    pred_b: Any,
    *,
    labels: Iterable[Any] | None = None,
    unit: Literal["auto", "instance", "decision"] = "auto",
    alternative: Alternative = "two-sided",
) -> Significance:
    """Exact test of whether one of two systems is right more often where they differ.

    Parameters
    ----------
    y_true, pred_a, pred_b : 1-d array of labels, list of label lists, or 0/1 indicator matrix
        Truth and the predictions of both systems, row by row.
    labels : iterable, optional
        Classes whose decisions count; by default all.
    unit : {"auto", "instance", "decision"}, default="auto"
        Count rows (the system with fewer wrong decisions wins) or all (row, class) decisions. ``"auto"``
        counts rows if there is one label per row, and decisions otherwise.
    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        ``"greater"``: A is better than B.

    Returns
    -------
    Significance
        Named tuple ``statistic`` (cases that A wins), ``n_pairs`` (cases that are not ties), ``p_value``.

    Examples
    --------
    >>> truth = [0, 0, 0, 0, 0, 1]
    >>> sign_test(truth, [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0])
    Significance(statistic=5.0, n_pairs=5, p_value=0.0625)
    """
    _check_alternative(alternative)
    read = to_indicators({"y_true": y_true, "pred_a": pred_a, "pred_b": pred_b}, labels)
    true, a, b = read.matrices
    return _sign(true, a, b, _by_row(read, unit), alternative)


def wilcoxon_test(
    y_true: Any,
    pred_a: Any,
    pred_b: Any,
    *,
    labels: Iterable[Any] | None = None,
    alternative: Alternative = "two-sided",
) -> Significance:
    """Wilcoxon signed-rank test on the F1 scores of each class.

    Classes are those that occur in the truth or in either prediction, or ``labels``; classes with the same F1
    under both systems are dropped. The p-value is exact up to 50 pairs without ties, else by the normal
    approximation (``scipy.stats.wilcoxon``).

    Parameters
    ----------
    y_true, pred_a, pred_b, labels, alternative
        As in :func:`sign_test`.

    Returns
    -------
    Significance
        Named tuple ``statistic``, ``n_pairs`` (classes whose F1 differs), ``p_value``.

    Examples
    --------
    >>> truth = ["a", "a", "a", "b", "b", "c"]
    >>> better, worse = ["a", "a", "a", "b", "b", "b"], ["a", "b", "c", "b", "a", "a"]
    >>> wilcoxon_test(truth, better, worse).p_value
    0.5
    """
    _check_alternative(alternative)
    read = to_indicators({"y_true": y_true, "pred_a": pred_a, "pred_b": pred_b}, labels)
    true, a, b = read.matrices
    return _wilcoxon(class_f1(count_classes(true, a)), class_f1(count_classes(true, b)), alternative)


def paired_t_test(
    scores_a: ArrayLike, scores_b: ArrayLike, *, alternative: Alternative = "two-sided"
) -> Significance:
    """Student's t-test on paired scores, for example of the same folds, restarts or data sets.

    Parameters
    ----------
    scores_a, scores_b : arrays of shape (n_pairs,)
        Scores of both systems, in the same order.
    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        ``"greater"``: scores of A are larger.

    Returns
    -------
    Significance
        Named tuple ``statistic`` (t), ``n_pairs``, ``p_value``.

    Examples
    --------
    >>> paired_t_test([0.81, 0.83, 0.80], [0.78, 0.81, 0.79]).p_value
    0.074...
    """
    _check_alternative(alternative)
    a, b = np.asarray(scores_a, dtype=float), np.asarray(scores_b, dtype=float)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"scores must be two 1-d arrays of one length, got shapes {a.shape} and {b.shape}")
    if len(a) < 2:
        raise ValueError(f"a paired t-test needs at least 2 pairs, got {len(a)}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("scores must be finite: drop the pairs in which either is NaN")
    difference = a - b
    error = difference.std(ddof=1) / np.sqrt(len(a))
    if error == 0:  # the limit of t as the variance of the differences goes to zero
        statistic = 0.0 if difference[0] == 0 else float(np.copysign(np.inf, difference[0]))
    else:
        statistic = float(difference.mean() / error)
    tails = {"greater": stats.t.sf(statistic, len(a) - 1), "less": stats.t.cdf(statistic, len(a) - 1)}
    p_value = 2 * min(tails.values()) if alternative == "two-sided" else tails[alternative]
    return Significance(statistic, len(a), float(p_value))


def compare(
    y_true: Any,
    predictions: Mapping[str, Any],
    *,
    baseline: str | None = None,
    labels: Iterable[Any] | None = None,
) -> Table:
    """Micro- and macro-F1 of several systems, with marks of significance.

    Without ``baseline``, each system is compared with the best one of the column by a one-sided test, as in
    Table 2.2 of the thesis; a mark means that the system is significantly worse. The best system is chosen on
    the same data, so these p-values are descriptive. With ``baseline``, each system is compared with it by a
    two-sided test; a mark means that it differs. P-values are not corrected for the number of systems.

    Parameters
    ----------
    y_true : 1-d array of labels, list of label lists, or 0/1 indicator matrix
        Truth.
    predictions : mapping of str to labels
        Name of each system and its predictions, in the same form as ``y_true``.
    baseline : str, optional
        Name of the system to compare the others with.
    labels : iterable, optional
        Fixed set of classes; by default all that occur in the truth or in any prediction, the same for all
        systems.

    Returns
    -------
    Table
        One row per system: micro-F1 with the p-value of the sign test, macro-F1 with that of the Wilcoxon
        test.

    Examples
    --------
    >>> truth = ["a", "b"] * 10
    >>> print(compare(truth, {"good": truth, "constant": ["a"] * 20}, baseline="constant"))
    Model     Micro-F1  p (sign)  Macro-F1  p (Wilcoxon)
    --------  --------  --------  --------  ------------
    good       100.00†     0.002    100.00           0.5
    constant    50.00          -     33.33             -
    * p < 5%, † p < 1% against constant (two-sided)
    """
    choose_baseline(predictions, baseline)
    names = list(predictions)
    read = to_indicators(named_arguments(y_true, predictions), labels)
    true, systems = read.matrices[0], read.matrices[1:]
    counts = [count_classes(true, system) for system in systems]
    f1 = [class_f1(count) for count in counts]
    micro = np.array([float(micro_average(count)) for count in counts])
    macro = np.array([float(macro_average(values)) for values in f1])
    by_row = _by_row(read, "auto")
    alternative: Alternative = "greater" if baseline is None else "two-sided"

    def against(scores: Matrix) -> int:
        return int(scores.argmax()) if baseline is None else names.index(baseline)

    ref_micro, ref_macro = against(micro), against(macro)
    rows = []
    for i, name in enumerate(names):
        sign = _sign(true, systems[ref_micro], systems[i], by_row, alternative)
        rank = _wilcoxon(f1[ref_macro], f1[i], alternative)
        p_micro = None if i == ref_micro else sign.p_value
        p_macro = None if i == ref_macro else rank.p_value
        rows.append((name, Marked(micro[i], sign.mark), p_micro, Marked(macro[i], rank.mark), p_macro))
    return Table(
        ("Model", "Micro-F1", "p (sign)", "Macro-F1", "p (Wilcoxon)"),
        tuple(rows),
        ("", "percent", ".2g", "percent", ".2g"),
        note="* p < 5%, † p < 1% against "
        + ("the best of the column (one-sided)" if baseline is None else f"{baseline} (two-sided)"),
    )
