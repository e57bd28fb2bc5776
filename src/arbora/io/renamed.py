"""Names that changed since older model files were written.

Format 2 is the current format. Its layout is that of format 1; the formats differ only in names. A file of format 1
is decoded with the tables below: `CLASSES` for classes, `SINCE_FORMAT_1` for parameters, learned attributes and trace
columns. A change of name adds a row here, together with a test that loads a model saved under the old name.

A parameter that a file of any format does not have was added after the file was written. `ADDED` has the value with
which the model predicts as it did then, where this is not the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from arbora.core.trace import Trace

Columns = Mapping[str, str]


class Renamed(NamedTuple):
    """What changed in one class. All renames of a class apply at once, so two names can be exchanged.

    Attributes
    ----------
    parameters : mapping of str to str or None
        Old parameter name to new one; None removes the parameter.
    values : mapping of str to callable
        Old parameter name to a function from its old value to its new one.
    attributes : mapping of str to str or None
        Old name of a learned attribute to the new one; None removes the attribute.
    trace_columns : mapping of str to str, or callable
        Old name of a column of ``trace_`` to the new one; or a function of the parameters that returns the mapping.
    """

    parameters: Mapping[str, str | None] = {}
    values: Mapping[str, Callable[[Any], Any]] = {}
    attributes: Mapping[str, str | None] = {}
    trace_columns: Columns | Callable[[Mapping[str, Any]], Columns] = MappingProxyType({})


# Old class name in files -> current one.
CLASSES: dict[str, str] = {
    "arbora.infer.Trace": "arbora.core.trace.Trace",
}

# Current class name in files -> what changed in the class since format 1.
_BAYESIAN_VMF = Renamed(
    parameters={"concentration": "concentration_posterior", "shared_concentration": "concentration"},
    values={"shared_concentration": lambda shared: "shared" if shared else "own"},
    trace_columns={"gap": "gain"},
)
SINCE_FORMAT_1: dict[str, Renamed] = {
    "arbora.classify.HierarchicalBayesClassifier": Renamed(
        trace_columns=lambda params: {"gap": "gain" if params["inference"] == "variational" else "change"}
    ),
    "arbora.discover.SphericalKMeans": Renamed(trace_columns={"gap": "gain"}),
    "arbora.discover.MultinomialMixture": Renamed(trace_columns={"gap": "gain"}),
    "arbora.discover.VMFMixture": Renamed(trace_columns={"gap": "gain"}),
    "arbora.discover.BayesianVMFMixture": _BAYESIAN_VMF,
    "arbora.discover.DirichletProcessVMFMixture": _BAYESIAN_VMF,
    "arbora.discover.TemporalVMFMixture": _BAYESIAN_VMF,
    "arbora.discover.HierarchicalVMFMixture": Renamed(
        parameters={"concentration": "concentration_posterior"}, trace_columns={"gap": "gain"}
    ),
}

# Current class name in files -> parameters added since, with the value that keeps the predictions of older models.
ADDED: dict[str, Mapping[str, Any]] = {
    "arbora.classify.RecursiveLogisticRegression": {"close_calls": "class"},
    "arbora.classify.RecursiveSVC": {"close_calls": "class"},
}


def current_class(name: str) -> str:
    """Return the current name of a class.

    Examples
    --------
    >>> current_class("arbora.infer.Trace")
    'arbora.core.trace.Trace'
    """
    return CLASSES.get(name, name)


def current_names(
    class_name: str, params: Mapping[str, Any], fitted: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translate the decoded parameters and learned attributes of an estimator of format 1.

    Parameters
    ----------
    class_name : str
        The current name of the class.
    params, fitted : mapping of str to object
        As the file has them.

    Returns
    -------
    params, fitted : dict of str to object
        Under their current names.

    Examples
    --------
    >>> current_names("arbora.classify.RecursiveSVC", {"C": 1.0}, {"n_iter_": 3})
    ({'C': 1.0}, {'n_iter_': 3})
    """
    renamed = SINCE_FORMAT_1.get(class_name, Renamed())
    values = {name: renamed.values.get(name, _unchanged)(value) for name, value in params.items()}
    new_fitted = _rename(fitted, renamed.attributes)
    trace = new_fitted.get("trace_")
    columns = renamed.trace_columns(params) if callable(renamed.trace_columns) else renamed.trace_columns
    if columns and isinstance(trace, Trace):
        new_fitted["trace_"] = _rename_columns(trace, columns)
    return _rename(values, renamed.parameters), new_fitted


def _unchanged(value: Any) -> Any:
    return value


def _rename(members: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    renamed = ((names.get(name, name), member) for name, member in members.items())
    return {name: member for name, member in renamed if name is not None}


def _rename_columns(trace: Trace, names: Mapping[str, str]) -> Trace:
    state = trace.to_state()
    state["columns"] = [names.get(column, column) for column in state["columns"]]
    return Trace.from_state(state)
