"""Encode objects as JSON values and arrays, and decode them.

None, booleans, integers, finite floats, strings, lists and dicts with string keys are JSON values. Everything else is
a JSON object whose key ``"$"`` names its kind. An object with two references (a hierarchy that is a parameter and an
attribute) is written once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from arbora.arrays import Matrix
from arbora.core.validation import structure_problem

# --- The exception for model files --------------------------------------------------------------------------


class ModelFileError(ValueError):
    """A folder is not a model, is damaged, or cannot be read by this version of Arbora.

    Examples
    --------
    >>> import tempfile
    >>> from arbora.io import ModelFileError, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         load(folder)
    ...     except ModelFileError as error:
    ...         print("manifest.json" in str(error))
    True
    """


# --- The classes that model files may use -------------------------------------------------------------------
#
# A file cannot make Arbora import a module or call a class that is not listed here; therefore models from untrusted
# sources are safe to open. Classes are listed as text and imported when they are first needed, so that this package
# imports no model.


Class = TypeVar("Class", bound=type)

# Name in files -> "module:class" to import, or the class itself if a user registered it.
_registry: dict[str, str | type] = {
    target.replace(":", "."): target
    for target in (
        "arbora.structure:Hierarchy",
        "arbora.structure:LabelGraph",
        "arbora.core.trace:Trace",
        "arbora.engine:ThreadEngine",
        "arbora.engine:RayEngine",
        "arbora.app.text_classifier:TextClassifier",
        "arbora.app.text_classifier:Recipe",
        "arbora.app.topic_model:TopicModel",
        "arbora.app.topic_edits:EditedTopics",
        "arbora.app.topic_edits:Merge",
        "arbora.app.topic_edits:Split",
        "arbora.app.contents.words:GroupForms",
        "arbora.app.text_rows:TextOptions",
        "arbora.classify:OneVsRestSVC",
        "arbora.classify:OneVsRestLogistic",
        "arbora.classify:TopDownSVC",
        "arbora.classify:RecursiveSVC",
        "arbora.classify:RecursiveLogisticRegression",
        "arbora.classify:HierarchicalBayesClassifier",
        "arbora.classify:HierarchicalCostClassifier",
        "arbora.classify:HierarchicalSVM",
        "arbora.classify:OrthogonalTransfer",
        "arbora.classify:CorrelatedMultinomialLogit",
        "arbora.classify:MultinomialLogistic",
        "arbora.classify:SemiSupervisedSVC",
        "arbora.classify.thresholds:ZeroThreshold",
        "arbora.classify.thresholds:GlobalCut",
        "arbora.classify.thresholds:RCut",
        "arbora.classify.thresholds:SCut",
        "arbora.classify.thresholds:InstanceCut",
        "arbora.discover:BayesianVMFMixture",
        "arbora.discover:DirichletProcessGaussianMixture",
        "arbora.discover:DirichletProcessVMFMixture",
        "arbora.discover:HierarchicalVMFMixture",
        "arbora.discover:MaxMarginGaussianMixture",
        "arbora.discover:ClusterTopicModel",
        "arbora.discover:MaxMarginClusterTopicModel",
        "arbora.discover:MultinomialMixture",
        "arbora.discover:SphericalKMeans",
        "arbora.discover:TemporalVMFMixture",
        "arbora.discover:VMFMixture",
        "arbora.discover.topics.model:TopicParameters",
        "arbora.expand:BayesianPriorMixture",
        "arbora.expand:DiscriminativeClustering",
        "arbora.expand:ExpandClusters",
        "arbora.expand:FisherMetric",
        "arbora.expand:FisherTransform",
        "arbora.expand:GammaTransform",
        "arbora.expand:GaussianTransform",
        "arbora.expand:InformationBottleneck",
        "arbora.expand:InformativeComponents",
        "arbora.expand:LargeMarginTransform",
        "arbora.expand:MaxMarginTransform",
        "arbora.expand:MixtureDiscriminantClustering",
        "arbora.expand:PairwiseConstraintTransform",
        "arbora.expand:PairwiseFisherTransform",
        "arbora.expand:SelfOrganizingMap",
        "arbora.expand:SeparabilityTransform",
        "arbora.expand:SphericalTransform",
        "arbora.expand:WithinClassTransform",
        "arbora.expand.prior_mixture:PriorMixture",
        "arbora.expand.groups:FeatureSpace",
        "arbora.expand.clusters.group_model:GroupModel",
        "arbora.expand.mixture_discriminant:DiscriminantMixture",
        "arbora.expand.clusters.clusterers:KMeansClustering",
        "arbora.expand.clusters.clusterers:GaussianClustering",
        "arbora.expand.clusters.clusterers:SphericalClustering",
        "arbora.expand.clusters.group_model:RunningSums",
        "arbora.expand.clusters.neighbours:NeighbourClustering",
        "arbora.expand.clusters.n_new:NumberOfGroups",
        "arbora.expand.clusters.estimator:NewGroup",
        "arbora.text:LtcTransformer",
        "arbora.text:LtcVectorizer",
        "sklearn.pipeline:Pipeline",
        "sklearn.preprocessing:StandardScaler",
        "sklearn.preprocessing:MaxAbsScaler",
        "sklearn.preprocessing:Normalizer",
        "sklearn.feature_extraction.text:TfidfTransformer",
        "sklearn.decomposition:TruncatedSVD",
    )
}


def kind_of(cls: type) -> str | None:
    """Return how objects of a class are saved: "state", "tuple", "estimator"; None if they cannot be saved."""
    if hasattr(cls, "to_state") and hasattr(cls, "from_state"):
        return "state"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "tuple"
    if hasattr(cls, "get_params"):
        return "estimator"
    return None


def full_name(cls: type) -> str:
    """Return the module and the name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def register(cls: Class) -> Class:
    """Register a class for model files; usable as a decorator.

    Parameters
    ----------
    cls : type
        A scikit-learn estimator with its parameters in ``get_params`` and learned attributes that end with ``_`` (and
        do not begin with it); or a named tuple; or a class with ``to_state()`` and a class method
        ``from_state(state)``. An estimator with parameters that cannot be saved can define ``__arbora_params__()``,
        which returns all parameters as values that can be saved.

    Returns
    -------
    type
        The class. A program that loads the model must register the class too, from the same module.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> from arbora.io import register
    >>> @register
    ... class Constant(BaseEstimator):
    ...     def __init__(self, value=0.0):
    ...         self.value = value
    """
    if not isinstance(cls, type) or kind_of(cls) is None:
        raise TypeError(
            f"{cls!r} cannot be registered: it must be an estimator (get_params), a named tuple, or a "
            "class with to_state and from_state"
        )
    # A class that is defined again (a notebook cell run twice) replaces the old one, but never a listed class.
    if isinstance(_registry.get(full_name(cls)), str) and class_of(full_name(cls)) is not cls:
        raise ValueError(f"the name {full_name(cls)} is used by another class of the registry")
    if name_of(cls) is None:
        _registry[full_name(cls)] = cls
    return cls


def name_of(cls: type) -> str | None:
    """Return the registered name of a class, or None."""
    for name, target in list(_registry.items()):
        if target is cls:
            return name
        # Importing a class of this name is free: an object of it exists.
        same_name = isinstance(target, str) and target.endswith(f":{cls.__name__}")
        if same_name and _imported(target) is cls:
            return name
    return None


def class_of(name: Any) -> type:
    """Return the class with a registered name."""
    target = _registry.get(name) if isinstance(name, str) else None
    if target is None:
        near = get_close_matches(str(name), _registry, n=1)
        hint = f" (the nearest known class is {near[0]})" if near else ""
        raise ModelFileError(
            f"the model needs the class {name!r}, which is not registered{hint}: if you trust it, import "
            "it and call arbora.io.register(...) on it before load"
        )
    cls = _imported(target)
    if cls is None:
        raise ModelFileError(f"the model needs the class {name!r}, which this installation does not have")
    return cls


def _imported(target: str | type) -> type | None:
    if isinstance(target, type):
        return target
    module, _, attribute = target.partition(":")
    try:
        cls = getattr(import_module(module), attribute, None)
    except ImportError:
        return None
    return cls if isinstance(cls, type) else None


# --- Encode objects as JSON values and arrays ---------------------------------------------------------------


SCALAR_KINDS = "biufcMm"
ARRAY_KINDS = "biufcMmUS"
SPARSE_PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr")}

_MAX_DEPTH = 100
_PLAIN = frozenset({type(None), bool, int, str})
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]]{0,99}")


def is_fitted_name(name: str) -> bool:
    """Return whether an attribute of an estimator is learned (or is its output format)."""
    return (name.endswith("_") and not name.startswith("_")) or name == "_sklearn_output_config"


def _all_plain(values: Iterable[Any]) -> bool:
    return _PLAIN.issuperset(map(type, values))


class Encoder:
    """Encoder of one model; the arrays of the model are collected in ``arrays``."""

    def __init__(self) -> None:
        self.arrays: dict[str, Matrix] = {}
        # Keys are identities; the objects are kept, so that no identity is reused during the encoding.
        self._array_names: dict[int, tuple[object, str]] = {}
        self._object_numbers: dict[int, tuple[object, int]] = {}
        self._open: set[int] = set()
        self._depth = 0

    def encode(self, value: Any, where: str) -> Any:
        """Encode a value; error messages call it ``where``."""
        if self._depth > _MAX_DEPTH:
            raise TypeError(f"cannot save {where[:60]}...: it is nested too deeply, or contains itself")
        self._depth += 1
        try:
            return self._encode(value, where)
        finally:
            self._depth -= 1

    def _encode(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
        if kind is list:
            return self._members(value, where)
        if kind in (tuple, set, frozenset):
            return {"$": kind.__name__, "values": self._members(_in_order(value), where)}
        if kind is dict:
            return self._dict(value, where)
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if kind in (np.ndarray, np.memmap):
            return self._array(value, where)
        if sparse.issparse(value):
            return self._sparse(value, where)
        if isinstance(value, np.dtype):
            return {"$": "dtype", "value": self._dtype(value, where)}
        if isinstance(value, type) and issubclass(value, np.generic):
            return {"$": "numpy type", "value": np.dtype(value).str}
        return self._object(value, where)

    def _members(self, values: Any, where: str) -> list[Any]:
        if _all_plain(values):  # fast path for hundreds of thousands of names
            return list(values)
        return [self.encode(member, f"{where}[{index}]") for index, member in enumerate(values)]

    def _dict(self, value: dict[Any, Any], where: str) -> dict[str, Any]:
        if set(map(type, value)) <= {str} and "$" not in value:
            if _all_plain(value.values()):
                return value
            return {key: self.encode(member, f"{where}[{key!r}]") for key, member in value.items()}
        return {
            "$": "dict",
            "keys": self._members(list(value), f"the keys of {where}"),
            "values": self._members(list(value.values()), where),
        }

    def _dtype(self, dtype: np.dtype[Any], where: str) -> str:
        if dtype.kind not in ARRAY_KINDS + "O":
            raise TypeError(f"cannot save {where}: its dtype is {dtype}; use numbers, booleans or strings")
        return dtype.str

    def _scalar(self, value: np.generic, where: str) -> dict[str, str]:
        if isinstance(value, np.str_):
            return {"$": "numpy str", "value": str(value)}
        if value.dtype.kind not in SCALAR_KINDS:
            raise TypeError(f"cannot save {where}: it is a numpy scalar of dtype {value.dtype}")
        return {"$": "scalar", "dtype": value.dtype.str, "hex": value.tobytes().hex()}

    def _array(self, value: Matrix, where: str) -> dict[str, Any]:
        if value.dtype.kind == "O":
            members = self._members(value.ravel().tolist(), where)
            return {"$": "object array", "shape": list(value.shape), "values": members}
        self._dtype(value.dtype, where)
        if id(value) not in self._array_names:
            name = where.removeprefix("model.")
            if name in self.arrays or not _PLAIN_NAME.fullmatch(name):
                name = f"array-{len(self.arrays)}"
            self.arrays[name] = value
            self._array_names[id(value)] = (value, name)
        return {"$": "array", "name": self._array_names[id(value)][1]}

    def _sparse(self, value: Any, where: str) -> dict[str, Any]:
        if value.dtype.kind == "O":  # older versions of scipy allow it
            raise TypeError(f"cannot save {where}: a sparse matrix of objects")
        if value.format == "coo":
            parts = {"data": value.data} | {f"coords{axis}": part for axis, part in enumerate(value.coords)}
        elif value.format in SPARSE_PARTS:
            parts = {name: getattr(value, name) for name in SPARSE_PARTS[value.format]}
        else:
            raise TypeError(f"cannot save {where}: sparse format {value.format}; convert it with .tocsr()")
        return {
            "$": "sparse",
            "format": value.format,
            "container": "array" if isinstance(value, sparse.sparray) else "matrix",
            "shape": [int(length) for length in value.shape],
            "parts": {name: self._array(part, f"{where}.{name}") for name, part in parts.items()},
        }

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        name = name_of(type(value))
        if name is None:
            raise TypeError(f"cannot save {where}: {_why_not(value)}")
        if id(value) in self._open:
            raise TypeError(f"cannot save {where}: it contains itself")
        if id(value) in self._object_numbers:
            return {"$": "same", "number": self._object_numbers[id(value)][1]}
        self._open.add(id(value))
        try:
            content = self._content(value, where)
        finally:
            self._open.discard(id(value))
        number = len(self._object_numbers)
        self._object_numbers[id(value)] = (value, number)
        return {"$": kind_of(type(value)), "class": name, "number": number, **content}

    def _content(self, value: Any, where: str) -> dict[str, Any]:
        kind = kind_of(type(value))
        if kind == "state":
            return {"state": self.encode(value.to_state(), where)}
        if kind == "tuple":
            fields = zip(value._fields, value, strict=True)
            return {"values": [self.encode(member, f"{where}.{name}") for name, member in fields]}
        # An estimator can replace parameters that cannot be saved by values that can.
        params = getattr(value, "__arbora_params__", lambda: value.get_params(deep=False))()
        fitted = {name: member for name, member in vars(value).items() if is_fitted_name(name)}
        return {
            part: {name: self.encode(member, f"{where}.{name}") for name, member in members.items()}
            for part, members in (("params", params), ("fitted", fitted))
        }


def _in_order(values: Any) -> list[Any]:
    """List a tuple in its order, and a set in an order that is the same in every process."""
    if isinstance(values, tuple):
        return list(values)
    return sorted(values, key=lambda member: (str(type(member)), repr(member)))


def _why_not(value: Any) -> str:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return "a random generator is not a seed; make the estimator with random_state=None or an integer"
    name = full_name(type(value))
    if callable(value) and hasattr(value, "__qualname__"):
        return f"it is {value.__qualname__!r}, and model files never contain code"
    if kind_of(type(value)) is not None:
        return f"its class {name} is not registered; call arbora.io.register({type(value).__name__}) first"
    return (
        f"it is a {name}; model files can contain None, numbers, strings, lists, tuples, sets, dicts, arrays, CSR, "
        "CSC and COO matrices, and objects of registered classes"
    )


# --- Decode JSON values and arrays into objects -------------------------------------------------------------


_CONTAINERS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_FLOATS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def _dtype(text: str, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in kinds:
        raise ModelFileError(f"dtype {text!r} is not expected here")
    return dtype


def _check_lengths(format: str, shape: tuple[int, ...], parts: Mapping[str, Matrix]) -> None:
    """Refuse a shape that its index pointers do not have, before anything of that length is allocated."""
    if min(shape, default=0) < 0 or (format != "coo" and len(shape) != 2):
        raise ModelFileError(f"a sparse matrix has the shape {shape}")
    if format != "coo" and len(parts["indptr"]) != shape[0 if format == "csr" else 1] + 1:
        raise ModelFileError(
            f"a sparse matrix of shape {shape} has {len(parts['indptr'])} entries in its indptr"
        )


class Decoder:
    """Decoder of one model, from its arrays by name."""

    def __init__(self, arrays: Mapping[str, Matrix]) -> None:
        self._arrays = arrays
        self._objects: dict[int, Any] = {}
        self._decoders: dict[str, Callable[[Any], Any]] = {
            "float": lambda node: _FLOATS[node["value"]],
            "dict": self._dict,
            "numpy str": lambda node: np.str_(node["value"]),
            "scalar": self._scalar,
            "dtype": lambda node: _dtype(node["value"], ARRAY_KINDS + "O"),
            "numpy type": lambda node: _dtype(node["value"], ARRAY_KINDS + "O").type,
            "array": self._array,
            "object array": self._object_array,
            "sparse": self._sparse,
            "same": lambda node: self._objects[node["number"]],
            **dict.fromkeys(_CONTAINERS, self._container),
            **dict.fromkeys(("state", "estimator"), self._object),
        }

    def decode(self, node: Any) -> Any:
        """Decode a JSON value."""
        if isinstance(node, list):
            return [self.decode(member) if isinstance(member, list | dict) else member for member in node]
        if not isinstance(node, dict):
            return node
        if "$" not in node:
            return {key: self.decode(member) for key, member in node.items()}
        kind = node["$"]
        if kind == "tuple" and "class" in node:
            return self._object(node)
        if kind not in self._decoders:
            raise ModelFileError(f"unknown kind of value {kind!r}")
        return self._decoders[kind](node)

    def _container(self, node: dict[str, Any]) -> Any:
        return _CONTAINERS[node["$"]](self.decode(node["values"]))

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        return dict(zip(self.decode(node["keys"]), self.decode(node["values"]), strict=True))

    def _scalar(self, node: dict[str, Any]) -> Any:
        return np.frombuffer(bytes.fromhex(node["hex"]), _dtype(node["dtype"], SCALAR_KINDS))[0]

    def _array(self, node: dict[str, Any]) -> Matrix:
        if node["name"] not in self._arrays:
            raise ModelFileError(f"the array {node['name']!r} is missing")
        return self._arrays[node["name"]]

    def _object_array(self, node: dict[str, Any]) -> Matrix:
        values = self.decode(node["values"])
        array = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):  # one by one: assigned at once, lists would become rows
            array[index] = value
        return array.reshape([int(length) for length in node["shape"]])

    def _sparse(self, node: dict[str, Any]) -> Any:
        if node["format"] not in ("coo", *SPARSE_PARTS) or node["container"] not in ("array", "matrix"):
            raise ModelFileError(f"unknown sparse {node['container']} of format {node['format']!r}")
        parts = {name: self._array(part) for name, part in node["parts"].items()}
        shape = tuple(int(length) for length in node["shape"])
        _check_lengths(node["format"], shape, parts)
        # Set the arrays directly: the constructor would copy the indices to another integer type.
        matrix = getattr(sparse, f"{node['format']}_{node['container']}")(shape, dtype=parts["data"].dtype)
        matrix.data = parts["data"]
        if node["format"] == "coo":
            matrix.coords = tuple(parts[f"coords{axis}"] for axis in range(len(shape)))
            matrix.has_canonical_format = False
        else:
            matrix.indices, matrix.indptr = parts["indices"], parts["indptr"]
        problem = structure_problem(matrix)  # always: compiled code trusts the indices
        if problem is not None:
            raise ModelFileError(f"a sparse matrix is damaged: {problem}")
        return matrix

    def _object(self, node: dict[str, Any]) -> Any:
        cls = class_of(node["class"])
        if kind_of(cls) != node["$"]:
            raise ModelFileError(f"{node['class']} is not saved as {node['$']!r} in this version")
        if node["$"] == "state":
            value = cls.from_state(self.decode(node["state"]))  # type: ignore[attr-defined]
        elif node["$"] == "tuple":
            value = cls(*self.decode(node["values"]))
        else:
            value = self._estimator(cls, node)
        self._objects[node["number"]] = value
        return value

    def _estimator(self, cls: type, node: dict[str, Any]) -> Any:
        value = cls(**{name: self.decode(member) for name, member in node["params"].items()})
        for name, member in node["fitted"].items():
            if not is_fitted_name(name):  # a file must not replace a method
                raise ModelFileError(f"{node['class']} cannot have learned an attribute {name!r}")
            setattr(value, name, self.decode(member))
        return value
