"""Records of Parquet files, through pandas."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.texts.records import NO_COLUMN, Fields, Found, Reading, read_record, unknown_name


def parquet_rows(path: str | Path, fields: Fields, how: Reading) -> Iterator[Found]:
    """Yield the rows of a Parquet file, or for each that cannot be read its error."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        pandas = import_module("pandas")
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            f"{path}: Parquet files need pandas and pyarrow: pip install pandas pyarrow, or save the file as CSV"
        ) from error
    except Exception as error:  # each engine has its own errors
        problem = str(error).partition("\n")[0][:200]
        raise DataFormatError(
            path, None, f"cannot be read as Parquet: {problem}", "the file is damaged"
        ) from error
    columns = [str(name) for name in frame.columns]
    needed = [*fields.text, *fields.extra, *([] if fields.label is None else [fields.label])]
    for name in needed:
        if name not in columns and name not in fields.optional:
            raise DataFormatError(path, None, unknown_name("column", name, columns), f"{NO_COLUMN}: {name!r}")
    wanted = {name for name in (*needed, *fields.optional) if name in columns}
    frame.columns = columns
    values = [[_plain(value) for value in frame[name].tolist()] for name in sorted(wanted)]
    if not len(frame):
        raise DataFormatError(path, None, "the file has no record")
    for number, cells in enumerate(zip(*values, strict=True), start=1):
        record = dict(zip(sorted(wanted), cells, strict=True))
        try:
            yield read_record(record, fields, how, path, None, number)
        except DataFormatError as error:
            yield error


def _plain(value: Any) -> Any:
    """Missing values are None, arrays are lists, dates are strings."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat()  # NaT is not equal to itself
    return None if isinstance(value, float) and value != value else value
