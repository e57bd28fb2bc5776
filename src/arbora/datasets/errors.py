"""Errors of the readers and the loader; each names the file and, if possible, the line."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class DataFormatError(ValueError):
    """A data file violates its format. `DataFileError` is the same class, named like `arbora.io.ModelFileError`.

    Attributes
    ----------
    path : Path
        The file.
    line : int or None
        Line number, from 1; ``None`` for an error of the whole file.
    problem : str
        What is wrong, and what to do.
    reason : str
        The kind of problem, without names and numbers of this record; by default the problem.

    Examples
    --------
    >>> from arbora.datasets import DataFormatError
    >>> print(DataFormatError("train.svm", 3, "no feature index before ':'"))
    train.svm, line 3: no feature index before ':'
    """

    def __init__(self, path: str | Path, line: int | None, problem: str, reason: str | None = None) -> None:
        self.path = Path(path)
        self.line = line
        self.problem = problem
        self.reason = problem if reason is None else reason
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")

    def __reduce__(self) -> tuple[type["DataFormatError"], tuple[Path, int | None, str, str]]:
        return DataFormatError, (self.path, self.line, self.problem, self.reason)


DataFileError = DataFormatError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the most similar known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
