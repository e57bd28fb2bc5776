"""The limits on the security page are those of the code."""

import re
from pathlib import Path

import h11._connection

from arbora.datasets import base
from arbora.datasets.readers import files, svmlight
from arbora.explore.guard import Limits
from arbora.structure import build as read

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def numbers_of(row: str) -> list[int]:
    """Numbers in the second column of a row of the table of limits, in bytes and seconds."""
    (cells,) = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith(f"| {row}")]
    sizes = {"GiB": 1 << 30, "MB": 10**6, "kB": 1 << 10}
    numbers = re.findall(r"([\d,]*\d)(?: (GiB|MB|kB))?", cells[2])
    return [int(number.replace(",", "")) * sizes.get(unit, 1) for number, unit in numbers]


def test_the_limits_of_files_are_those_of_the_code():
    assert numbers_of("unpacked size of a compressed file") == [files.MAX_UNPACKED]
    assert numbers_of("unpacked size of a compressed hierarchy") == [read.MAX_UNPACKED]
    assert numbers_of("characters of one number in svmlight") == [svmlight._MAX_VALUE]
    assert numbers_of("levels of a class path") == [base._MAX_LEVELS]


def test_the_limits_of_the_server_are_those_of_the_code():
    limits = Limits()
    head = h11._connection.DEFAULT_MAX_INCOMPLETE_EVENT_SIZE
    assert numbers_of("head of a request") == [head, limits.header_seconds]
    assert numbers_of("document, batch") == [limits.document, limits.batch, limits.lines]
    assert numbers_of("batches at a time") == [limits.batches, limits.waiting, limits.connections]
    assert numbers_of("requests per second") == [limits.rate, 2 * limits.rate]
    assert numbers_of("pause within a request") == [limits.idle_seconds, limits.request_seconds]
