"""Data sets of the benchmarks of `arbora.expand`, with the features of the thesis (section 6.6.2).

Images become histograms of oriented gradients (HOG), sequences the leading Fourier coefficients of their channels,
texts ltc weights. Rows with more than 200 features are reduced to 30 dimensions by a truncated SVD of all rows, which
does not see labels. At most `MOST_ROWS` rows are kept, drawn at random. The result is stored beside the cells.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize

from arbora.datasets import load
from arbora.text import LtcTransformer

MOST_ROWS = 4000
MAX_DIMS, REDUCED_DIMS = 200, 30
_LONGEST = 500  # frames of a sequence; one sequence of Auslan is ten times as long as all others
_FEWEST_ROWS = 5  # of a class


class Source(NamedTuple):
    """A data set: domain, name in the thesis (None if another set), how its rows are read."""

    domain: str
    published: str | None
    read: Callable[[], tuple[Any, Any]]
    unit: bool = False  # whether reduced rows are divided by their lengths
    note: str = ""


class Rows(NamedTuple):
    """Rows of a set: reduced features, class codes, and the features before the SVD (None if not kept)."""

    X: Any
    y: np.ndarray
    full: Any = None


def plain(name: str) -> tuple[Any, Any]:
    data = load(name)
    return data.X, data.y


def standardized(name: str) -> tuple[Any, Any]:
    """Features of different kinds, each divided by its deviation; constant ones are dropped."""
    data = load(name)
    X = np.asarray(data.X, np.float64)
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0))[:, deviation > 0] / deviation[deviation > 0], data.y


def counts(name: str, **options: Any) -> tuple[Any, Any]:
    data = load(name, **options)
    ltc = sp.csr_matrix(LtcTransformer().fit_transform(sp.csr_matrix(data.X, dtype=np.float64)))
    filled = np.flatnonzero(np.diff(ltc.indptr))
    return ltc[filled], np.asarray(data.y)[filled]


def images(name: str, shape: tuple[int, int], cell: int, *, transpose: bool = False) -> tuple[Any, Any]:
    """HOG with 9 orientations and blocks of 2 x 2 cells."""
    data = load(name)
    X = np.asarray(data.X, np.float64)
    ids = draw(len(X), MOST_ROWS)
    return hog_features(X[ids], shape, cell, transpose), np.asarray(data.y)[ids]


def hog_features(X: Any, shape: tuple[int, int], cell: int, transpose: bool) -> np.ndarray:
    from skimage.feature import hog

    result = []
    for row in X:
        image = row.reshape(shape).T if transpose else row.reshape(shape)
        result.append(
            hog(
                image,
                orientations=9,
                pixels_per_cell=(cell, cell),
                cells_per_block=(2, 2),
                block_norm="L2-Hys",
            )
        )
    return np.array(result)


def spectra(name: str, n_frequencies: int) -> tuple[Any, Any]:
    """Magnitudes of the leading Fourier coefficients of each channel, channels of unit deviation."""
    data = load(name)
    sequences = [np.nan_to_num(np.asarray(first, np.float64))[:_LONGEST] for first in data.X]
    frames = np.vstack(sequences)
    mean, deviation = frames.mean(axis=0), np.maximum(frames.std(axis=0), 1e-9)
    rows = []
    for sequence in sequences:
        spectrum = np.fft.rfft((sequence - mean) / deviation, n=2 * _LONGEST, axis=0)[: n_frequencies // 2]
        rows.append(np.concatenate([spectrum.real, spectrum.imag]).ravel() / _LONGEST)
    return np.array(rows), data.y


def draw(n: int, most: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def texts(domain_name: str | None, name: str, note: str = "") -> tuple[Source, Source]:
    """Return a text set as in Table 6.3, and with rows of unit length after the SVD as in Table 6.7."""
    unit_name = None if domain_name is None else f"{domain_name}, unit rows"
    read = lambda: counts(name)  # noqa: E731
    return Source("text", domain_name, read, note=note), Source(
        "unit text", unit_name, read, unit=True, note=note
    )


_CNAE, _K9, _TDT = (
    texts("CNAE", "cnae9"),
    texts("K9", "k9_k1a_k1b"),
    texts("TDT4", "tdt2_30", "TDT2 for TDT4"),
)
# Small sets first: an interrupted run has whole lines of the table.
SOURCES: dict[str, Source] = {
    "chartraj": Source(
        "time series", "Char", lambda: spectra("chartraj_subset100", 64), note="100 of 2,858 rows"
    ),
    "libras": Source("time series", "Libras", lambda: plain("libras")),
    "vowel": Source("other", "Vowel", lambda: plain("vowel")),
    "segment": Source("other", "Image", lambda: standardized("segment")),
    "leaves100": Source("other", "Leaves", lambda: standardized("leaves100")),
    "orl": Source("faces", "AT&T", lambda: images("orl_112x92", (112, 92), 16)),
    "umist": Source("faces", "Umist", lambda: images("umist_32x32", (32, 32), 4, transpose=True)),
    "binalpha": Source(
        "characters", "Binalpha", lambda: images("binaryalphadigs", (16, 20), 4, transpose=True)
    ),
    "cnae9": _CNAE[0],
    "k9": _K9[0],
    "cnae9 unit": _CNAE[1],
    "k9 unit": _K9[1],
    "lfw": Source("faces", "LFW", lambda: images("lfw_min20_62x47", (62, 47), 8), note="62 of 158 people"),
    "isolet": Source("speech", "Isolet", lambda: plain("isolet")),
    "letter": Source("characters", "Letter", lambda: plain("letter")),
    "pendigits": Source("characters", "Penbased", lambda: plain("pendigits")),
    "optdigits": Source("characters", "Optrec", lambda: images("optdigits", (8, 8), 2)),
    "usps": Source("characters", "USPS", lambda: images("usps", (16, 16), 4)),
    "mnist": Source("characters", "MNIST", lambda: images("mnist", (28, 28), 4)),
    "auslan": Source("time series", "Aussign", lambda: spectra("auslan", 16), note="another recording"),
    "tdt2": _TDT[0],
    "tdt2 unit": _TDT[1],
}


def reduced(X: Any, unit: bool) -> Any:
    """Reduce more than 200 features by a truncated SVD, dense rows centred first; divide by lengths on request."""
    if X.shape[1] > MAX_DIMS:
        X = X if sp.issparse(X) else X - X.mean(axis=0)
        X = TruncatedSVD(REDUCED_DIMS, random_state=0).fit_transform(X)
    return normalize(X) if unit else X


def rows_of(name: str, cache: Path, *, full: bool = False) -> Rows:
    """Read a set, or the stored copy of its features."""
    path = cache / "expand_rows" / f"{name.replace(' ', '_')}.npz"
    source = SOURCES[name]
    if full or not path.exists():
        X, y = source.read()
        ids = draw(X.shape[0], MOST_ROWS)
        X, codes = X[ids], np.unique(np.asarray(y).astype(str), return_inverse=True)[1][ids]
        often = np.bincount(codes)[codes] >= _FEWEST_ROWS
        X, codes = X[often], np.unique(codes[often], return_inverse=True)[1]
        Z = np.asarray(reduced(X, source.unit), np.float64)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, X=Z, y=codes)
        partial.replace(path)
        return Rows(Z, codes, X if full else None)
    with np.load(path) as stored:
        return Rows(stored["X"], stored["y"])
