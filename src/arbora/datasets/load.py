"""Real data sets by name, from the folder ``$ARBORA_DATA``.

Rows keep their official split and their raw values. Labels become node names and integer features become
float32. Weighting and standardising are left to the caller.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arbora.datasets import collections_classify as classify
from arbora.datasets import collections_cluster as cluster
from arbora.datasets.base import Dataset, did_you_mean

VARIABLE = "ARBORA_DATA"
_YEAST = "yeast_funcat_go"  # a folder that holds several sets
_MATRICES = ("_X.npz", ".npz")  # endings of the matrix file of a sparse set and of a dense set

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
    """Folder of the real data sets: the value of ``$ARBORA_DATA``.

    Returns
    -------
    Path
        A folder with the sub-folders ``classification`` and ``clustering``.

    Raises
    ------
    FileNotFoundError
        If the variable is not set, or names no folder.

    Examples
    --------
    >>> import os, tempfile
    >>> from unittest.mock import patch
    >>> from arbora.datasets import data_folder
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ARBORA_DATA=folder):
    ...     str(data_folder()) == folder
    True
    """
    named = os.environ.get(VARIABLE)
    if named and Path(named).expanduser().is_dir():
        return Path(named).expanduser()
    problem = f"{VARIABLE} names {named!r}, which is not a folder" if named else f"{VARIABLE} is not set"
    raise FileNotFoundError(
        f"the environment variable {problem}: set it to the folder that holds classification/ and clustering/; "
        "load_python_docs() needs no such folder"
    )


def _find(folder: Path) -> dict[str, Path]:
    """Folder of each set present, by name; folders without a loader are ignored."""
    found = {}
    for group in ("classification", "clustering"):
        for path in sorted((folder / group).glob("*/")):
            if path.name == _YEAST:
                found.update({f"{_YEAST}/{part.name}": part for part in sorted(path.glob("*/"))})
            elif path.name in _LOADERS or any((path / f"{path.name}{end}").exists() for end in _MATRICES):
                found[path.name] = path
    return found


def available() -> list[str]:
    """Names of the sets that :func:`load` can read from the data folder.

    Returns
    -------
    list of str
        Sorted names.

    Examples
    --------
    >>> import os, pathlib, tempfile
    >>> from unittest.mock import patch
    >>> import numpy as np
    >>> from arbora.datasets import available
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ARBORA_DATA=folder):
    ...     pathlib.Path(folder, "clustering", "tiny").mkdir(parents=True)
    ...     np.savez(pathlib.Path(folder, "clustering", "tiny", "tiny.npz"), X=np.eye(3), y=[0, 1, 0])
    ...     available()
    ['tiny']
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
        Options of the set: ``news20`` ``hierarchy="dotted"/"2level"`` and ``texts=True/False``;
        ``lshtc_small`` ``task=1/2``; ``reuters21578`` ``subset="modapte"/"r8"/"r52"``; ``k9_k1a_k1b``
        ``labels="k1a"/"k1b"``.

    Returns
    -------
    Dataset
        Rows in the official split, labels as names, and the label structure where there is one.

    Examples
    --------
    >>> import os, pathlib, tempfile
    >>> from unittest.mock import patch
    >>> import numpy as np
    >>> from arbora.datasets import load
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ARBORA_DATA=folder):
    ...     pathlib.Path(folder, "clustering", "tiny").mkdir(parents=True)
    ...     np.savez(pathlib.Path(folder, "clustering", "tiny", "tiny.npz"), X=np.eye(3), y=[0, 1, 0])
    ...     load("tiny")
    Dataset 'tiny': 3 train, 0 test, 3 features, 2 labels
    """
    found = _find(data_folder())
    if name not in found:
        hint = did_you_mean(name, found) or did_you_mean(f"{_YEAST}/{name}", found)
        raise ValueError(f"unknown data set {name!r}{hint}; available() lists the {len(found)} names")
    path = found[name]
    loader = _loader(name, path)
    known = list(inspect.signature(loader).parameters)[2:]
    for option in options:
        if option not in known:
            offered = f"its options are {', '.join(known)}" if known else "it has no options"
            raise TypeError(
                f"data set {name!r} has no option {option!r}{did_you_mean(option, known)}: {offered}"
            )
    return loader(name, path, **options)
