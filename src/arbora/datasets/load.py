"""The sets of the shared data folder by name, in their official splits, values as they were measured.

The folder is ``$ARBORA_DATA``, or ``../shared/data`` beside the checkout. Labels become node names, integer
features float32; weighting and standardising are left to the caller.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arbora.datasets import collections_classify as classify
from arbora.datasets import collections_cluster as cluster
from arbora.datasets.base import Dataset
from arbora.datasets.errors import did_you_mean

VARIABLE = "ARBORA_DATA"
_YEAST = "yeast_funcat_go"  # a folder of sets
_MATRICES = ("_X.npz", ".npz")  # how the file of a plain sparse or dense set ends

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "imclef07a": classify.load_svmlight_set,
    "imclef07d": classify.load_svmlight_set,
    "enron_hmc": classify.load_multilabel_set,
    "rcv1_dev2316": classify.load_multilabel_set,
    "bibtex": classify.load_multilabel_set,
    "delicious": classify.load_multilabel_set,
    "news20": classify.load_news20,
    "lshtc_small": classify.load_lshtc_small,
    "eurlex57k": classify.load_eurlex57k,
    "wordnet_gloss": classify.load_wordnet_gloss,
    "auslan": cluster.load_auslan,
    "chartraj_subset100": cluster.load_chartraj,
    "k9_k1a_k1b": cluster.load_k9,
    "reuters21578": cluster.load_reuters21578,
    "nips_1987_1999": cluster.load_nips,
    "sotu": cluster.load_sotu,
}


def data_folder() -> Path:
    """Folder of the real data sets.

    Returns
    -------
    Path
        ``$ARBORA_DATA`` if set, else ``shared/data`` beside the checkout.

    Raises
    ------
    FileNotFoundError
        When there is no such folder; the message says how to name one.

    Examples
    --------
    >>> import os, tempfile
    >>> from arbora.datasets import data_folder
    >>> before = os.environ.get("ARBORA_DATA")
    >>> os.environ["ARBORA_DATA"] = tempfile.gettempdir()
    >>> str(data_folder()) == tempfile.gettempdir()
    True
    >>> del os.environ["ARBORA_DATA"]
    >>> if before is not None:
    ...     os.environ["ARBORA_DATA"] = before
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named).expanduser() if named else Path(__file__).resolve().parents[4] / "shared" / "data"
    if not folder.is_dir():
        how = f"set the environment variable {VARIABLE} to the folder of classification/ and clustering/"
        raise FileNotFoundError(
            f"the real data sets are not in {folder}: {how}; load_python_docs() needs none"
        )
    return folder


def _find(folder: Path) -> dict[str, Path]:
    """Folder of each set that is there, by name; folders that no loader knows are passed over."""
    found = {}
    for group in ("classification", "clustering"):
        for path in sorted((folder / group).glob("*/")):
            if path.name == _YEAST:
                found.update({f"{_YEAST}/{part.name}": part for part in sorted(path.glob("*/"))})
            elif path.name in _LOADERS or any((path / f"{path.name}{end}").exists() for end in _MATRICES):
                found[path.name] = path
    return found


def available() -> list[str]:
    """Names that :func:`load` knows and finds in the data folder.

    Returns
    -------
    list of str
        Sorted names.

    Examples
    --------
    >>> from arbora.datasets import available
    >>> try:
    ...     found = "iris" in available()
    ... except FileNotFoundError:  # no data on this machine
    ...     found = True
    >>> found
    True
    """
    return sorted(_find(data_folder()))


def _loader(name: str, path: Path) -> Callable[..., Dataset]:
    if name in _LOADERS:
        return _LOADERS[name]
    if name.startswith(f"{_YEAST}/"):
        return classify.load_yeast
    sparse, _ = _MATRICES
    return cluster.load_sparse if (path / f"{path.name}{sparse}").exists() else cluster.load_dense


def load(name: str, **options: Any) -> Dataset:
    """Load one of the real data sets by name.

    Parameters
    ----------
    name : str
        One of :func:`available`.
    **options
        What the set offers: ``news20`` ``hierarchy="dotted"/"2level"`` and ``texts=True/False``;
        ``lshtc_small`` ``task=1/2``; ``reuters21578`` ``subset="modapte"/"r8"/"r52"``; ``k9_k1a_k1b``
        ``labels="k1a"/"k1b"``.

    Returns
    -------
    Dataset
        Rows in the official split, labels as names, and the label structure where there is one.

    Examples
    --------
    >>> from arbora.datasets import load
    >>> try:
    ...     shape = load("iris").X_train.shape
    ... except FileNotFoundError:  # no data on this machine
    ...     shape = (150, 4)
    >>> shape
    (150, 4)
    """
    found = _find(data_folder())
    if name not in found:
        hint = did_you_mean(name, found) or did_you_mean(f"{_YEAST}/{name}", found)
        raise ValueError(
            f"unknown data set {name!r}{hint}; available() lists the {len(found)} that are there"
        )
    path = found[name]
    loader = _loader(name, path)
    known = list(inspect.signature(loader).parameters)[2:]
    for option in options:
        if option not in known:
            offered = f"it offers {', '.join(known)}" if known else "it has no options"
            raise TypeError(
                f"data set {name!r} has no option {option!r}{did_you_mean(option, known)}: {offered}"
            )
    return loader(name, path, **options)
