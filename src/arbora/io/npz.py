"""Arrays in an npz file that can be used where they lie.

The file is an ordinary uncompressed npz, readable by ``numpy.load``. Every array starts at a multiple of 64
bytes (padding goes into the extra field of the zip headers), so that arrays are views of one buffer: the
file read into memory, or the file mapped into memory. Reading never unpickles: arrays of objects are
refused.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from arbora.core.files import HashingWriter
from arbora.io.errors import ModelFileError

_ALIGNMENT = 64
_LOCAL_HEADER = 30  # fixed part of the header before a member
_ZIP64_FIELD = 20  # sizes of 64 bits, which zipfile appends to our extra field
_PADDING_FIELD = 0xD935  # the customary identifier of alignment padding
_LONGEST_NPY_HEADER = 1 << 16


def _padding(offset: int, name: str) -> bytes:
    """Extra field that makes the data of a member begin at a multiple of 64 bytes."""
    begin = offset + _LOCAL_HEADER + len(name.encode()) + 6 + _ZIP64_FIELD
    padding = -begin % _ALIGNMENT
    return struct.pack("<HHH", _PADDING_FIELD, 2 + padding, _ALIGNMENT) + bytes(padding)


def write_npz(writer: HashingWriter, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays; the same arrays always give the same bytes.

    Examples
    --------
    >>> import hashlib, io
    >>> import numpy as np
    >>> from arbora.core.files import HashingWriter
    >>> from arbora.io.npz import write_npz
    >>> file = io.BytesIO()
    >>> write_npz(HashingWriter(file, hashlib.sha256()), {"x": np.arange(3)})
    >>> np.load(io.BytesIO(file.getvalue()))["x"]
    array([0, 1, 2])
    """
    with zipfile.ZipFile(cast(IO[bytes], writer), "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.extra = _padding(writer.n_bytes, info.filename)
            with archive.open(info, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def view_npz(path: Path, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file as views of the buffer that holds (or maps) the file.

    Parameters
    ----------
    path : Path
        The file, for its table of contents.
    buffer : ndarray of uint8
        Its bytes.

    Returns
    -------
    dict of str to ndarray
        Arrays without copies; only an array that is not aligned (never in a file of :func:`write_npz`) is
        copied.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        return {member.filename.removesuffix(".npy"): _view(buffer, member) for member in members}
    except (zipfile.BadZipFile, ValueError, struct.error, EOFError, SyntaxError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error


def _view(buffer: NDArray[np.uint8], member: zipfile.ZipInfo) -> NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    # The lengths in the table of contents may differ from those of the header in front of the data.
    lengths = struct.unpack_from("<HH", buffer.data, member.header_offset + 26)
    begin = member.header_offset + _LOCAL_HEADER + sum(lengths)
    head = io.BytesIO(buffer[begin : begin + _LONGEST_NPY_HEADER].tobytes())
    version = npy.read_magic(head)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran_order, dtype = read_header(head)
    if dtype.hasobject:
        raise ValueError(f"{member.filename} holds pickled objects, which are never read")
    order: Literal["C", "F"] = "F" if fortran_order else "C"
    n_bytes = math.prod(shape) * dtype.itemsize
    if member.file_size != head.tell() + n_bytes:
        raise ValueError(f"{member.filename} has {member.file_size} bytes, its header says another number")
    if n_bytes == 0:
        return np.empty(shape, dtype, order)
    begin += head.tell()
    array: NDArray[Any] = buffer[begin : begin + n_bytes].view(dtype).reshape(shape, order=order)
    return np.require(array, requirements="A")
