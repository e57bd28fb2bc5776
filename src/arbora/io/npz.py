"""npz files whose arrays are used without a copy.

The file is an ordinary uncompressed npz, readable by ``numpy.load``. Every array starts at a multiple of 64 bytes
(padding is in the extra field of the zip headers), so that all arrays are views of one buffer: the file in memory, or
the mapped file. Arrays of objects, which numpy would unpickle, are refused.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from arbora.arrays import Matrix
from arbora.core.files import HashingWriter
from arbora.io.encode import ARRAY_KINDS, ModelFileError

_ALIGNMENT = 64
_LOCAL_HEADER = 30  # bytes of the fixed part of a local header
_ZIP64_FIELD = 20  # bytes of the 64-bit sizes that zipfile appends to the extra field
_PADDING_FIELD = 0xD935  # identifier of alignment padding
_LONGEST_NPY_HEADER = 1 << 16


def _padding(offset: int, name: str) -> bytes:
    """Return an extra field that aligns the data of a member to 64 bytes."""
    begin = offset + _LOCAL_HEADER + len(name.encode()) + 6 + _ZIP64_FIELD
    padding = -begin % _ALIGNMENT
    return struct.pack("<HHH", _PADDING_FIELD, 2 + padding, _ALIGNMENT) + bytes(padding)


def write_npz(writer: HashingWriter, arrays: Mapping[str, Matrix]) -> None:
    """Write named arrays; equal arrays give equal bytes."""
    with zipfile.ZipFile(cast(IO[bytes], writer), "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.extra = _padding(writer.n_bytes, info.filename)
            with archive.open(info, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def view_npz(path: Path, buffer: NDArray[np.uint8]) -> dict[str, Matrix]:
    """Return the arrays of an npz file as views of `buffer`, the bytes of the file in memory or mapped.

    The table of contents is read from the file. An array that is not aligned is copied (never in a file of
    `write_npz`).
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        return {member.filename.removesuffix(".npy"): _view(buffer, member) for member in members}
    except Exception as error:  # zipfile, struct and numpy raise many kinds for damaged files
        raise ModelFileError(f"{path} is damaged: {error}") from error


def _view(buffer: NDArray[np.uint8], member: zipfile.ZipInfo) -> Matrix:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    # The lengths in the table of contents can differ from those in the local header.
    lengths = struct.unpack_from("<HH", buffer.data, member.header_offset + 26)
    begin = member.header_offset + _LOCAL_HEADER + sum(lengths)
    head = io.BytesIO(buffer[begin : begin + _LONGEST_NPY_HEADER].tobytes())
    version = npy.read_magic(head)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran_order, dtype = read_header(head)
    if dtype.hasobject:
        raise ValueError(f"{member.filename} contains pickled objects, which are never read")
    if dtype.kind not in ARRAY_KINDS or (dtype.itemsize == 0 and 0 not in shape):
        raise ValueError(f"{member.filename} has dtype {dtype}, which no model contains")
    order: Literal["C", "F"] = "F" if fortran_order else "C"
    n_bytes = math.prod(shape) * dtype.itemsize
    if member.file_size != head.tell() + n_bytes:
        raise ValueError(f"{member.filename} has {member.file_size} bytes, which differs from its header")
    if min(shape, default=0) < 0:
        raise ValueError(f"{member.filename} has the shape {shape}")
    if n_bytes == 0:
        return np.empty(shape, dtype, order)
    begin += head.tell()
    array: Matrix = buffer[begin : begin + n_bytes].view(dtype).reshape(shape, order=order)
    return np.require(array, requirements="A")
