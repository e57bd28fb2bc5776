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

    Examples
    --------
    >>> from arbora.datasets import DataFormatError
    >>> print(DataFormatError("train.svm", 3, "no feature index before ':'"))
    train.svm, line 3: no feature index before ':'
    """

    def __init__(self, path: str | Path, line: int | None, problem: str) -> None:
        self.path = Path(path)
        self.line = line
        self.problem = problem
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")

    def __reduce__(self) -> tuple[type["DataFormatError"], tuple[Path, int | None, str]]:
        return DataFormatError, (self.path, self.line, self.problem)


DataFileError = DataFormatError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the most similar known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
