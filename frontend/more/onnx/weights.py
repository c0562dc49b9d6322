"""Weights: the numbers of a tensor in a file, checked against its shape, read when they are asked for.

In       a TensorRecord, and the folder that the model lies in
Out      NumPy arrays, views of the file where it has them as they are
Changes  nothing; files of external data are mapped into memory, not read
Next     proto.py (TensorRecord), values.py (arrays and tensors)
Source   onnx.proto3: TensorProto.DataType, and which field holds which dtype; ExternalData.md

bfloat16 and the 8-bit floats, which NumPy has not, are arrays of their bits: uint16 and uint8.
"""

from __future__ import annotations

import mmap
import os
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcq.frontend.io.mapped import opened
from hcq.frontend.more.onnx.proto import TensorRecord
from hcq.frontend.more.onnx.wire import Damaged, packed_varints
from hcq.ir.dtype import DType, dtypes

# TensorProto.DataType -> ours
DTYPES: dict[int, DType] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    16: dtypes.bfloat16,
    17: dtypes.fp8e4m3,
    19: dtypes.fp8e5m2,
}
KINDS = {dtype: kind for kind, dtype in DTYPES.items()}
NAMES = (
    "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 "
    "COMPLEX128 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ UINT4 INT4 FLOAT4E2M1 FLOAT8E8M0 "
    "UINT2 INT2 FLOAT6E2M3 FLOAT6E3M2"
).split()
_BITS = {dtypes.bfloat16: np.uint16, dtypes.fp8e4m3: np.uint8, dtypes.fp8e5m2: np.uint8}
FLOATS, INT32S, INT64S, DOUBLES, UINT64S = 4, 5, 7, 10, 11  # fields of numbers


class Numbers(NamedTuple):
    """An array with the dtype that its bits mean."""

    array: np.ndarray[Any, Any]
    dtype: DType


def kind_name(kind: int) -> str:
    """A DataType in words."""
    return NAMES[kind] if 0 <= kind < len(NAMES) else f"data type {kind}"


def bits_of(dtype: DType) -> Any:
    """The NumPy dtype whose arrays hold this one."""
    return np.dtype(_BITS[dtype] if dtype in _BITS else dtype.name)


def check(record: TensorRecord) -> DType:
    """The dtype of a tensor whose facts make sense. Raises Damaged."""
    dtype = DTYPES.get(record.kind)
    if dtype is None:
        raise Damaged(f"tensor {record.name!r} is of {kind_name(record.kind)}, which is no dtype here")
    size = prod(record.dims) * dtype.itemsize
    if record.raw is not None and not record.is_external and len(record.raw) != size:
        raise Damaged(
            f"tensor {record.name!r}, {dtype.name} of shape {record.dims}, has {len(record.raw)} bytes, not {size}"
        )
    return dtype


def read(record: TensorRecord, folder: Path | None) -> Numbers:
    """The numbers of a tensor. Raises Damaged."""
    dtype = check(record)
    bits = bits_of(dtype)
    if record.is_external:
        array = np.frombuffer(_external(record, dtype, folder), bits.newbyteorder("<"))
    elif record.raw is not None:
        array = np.frombuffer(record.raw, bits.newbyteorder("<"))
    else:
        array = _typed(record, dtype, bits)
    return Numbers(array.reshape(record.dims), dtype)


def _typed(record: TensorRecord, dtype: DType, bits: Any) -> np.ndarray[Any, Any]:
    """Numbers in the field of their dtype."""
    count = prod(record.dims)
    what = f"tensor {record.name!r}"
    wide = {dtypes.float32: (FLOATS, 4), dtypes.float64: (DOUBLES, 8)}.get(dtype)
    if wide:
        place, size = wide
        raw = record.numbers.get(place, [])
        if any(not isinstance(piece, memoryview) for piece in raw):
            raise Damaged(f"{what}: a number stands where bytes belong")
        found = sum(map(len, raw))
        if found != count * size:
            raise Damaged(f"{what} of shape {record.dims} has {found} bytes, not {count * size}")
        pieces = [np.frombuffer(piece, bits.newbyteorder("<")) for piece in raw]
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, np.zeros(0, bits)])
    place = {dtypes.int64: INT64S, dtypes.uint64: UINT64S, dtypes.uint32: UINT64S}.get(dtype, INT32S)
    pieces = record.numbers.get(place, [])
    values = packed_varints(pieces, count, what)
    if dtype is dtypes.float16:  # its bits, as a number
        return values.astype(np.uint16).view(np.float16)
    return values.astype(bits) if dtype is not dtypes.bool else values != 0


def _external(record: TensorRecord, dtype: DType, folder: Path | None) -> memoryview:
    """The bytes of a tensor that lie in a file beside the model."""
    what, words = f"tensor {record.name!r}", record.external
    location = words.get("location", "")
    if folder is None:
        raise Damaged(f"{what} lies in the file {location!r}, and a model of bytes has no folder")
    try:
        path = (folder / location).resolve()
    # a link to itself is a RuntimeError before Python 3.13
    except (OSError, RuntimeError, ValueError) as error:
        raise Damaged(f"{what} lies in {location!r}, which leads nowhere: {error}") from None
    if not location or not path.is_relative_to(folder.resolve()):
        raise Damaged(f"{what} lies in {location!r}, which is outside of the model's folder")
    want = prod(record.dims) * dtype.itemsize
    try:
        begin, length = int(words.get("offset", "0")), int(words.get("length", str(want)))
        size = path.stat().st_size
        if not path.is_file():
            raise Damaged(f"{what} lies in {location!r}, which is no file")
    except ValueError:
        raise Damaged(f"{what} has the place {words}") from None
    except OSError as error:
        raise Damaged(f"{what} lies in {location!r}: {error.strerror}") from None
    if length != want or begin < 0 or begin + length > size:
        raise Damaged(
            f"{what} of shape {record.dims} wants bytes {begin} to {begin + want} of {location!r}, which has {size}, "
            f"and says {length}"
        )
    return map_file(path)[begin : begin + length] if length else memoryview(b"")


def map_file(path: Path) -> memoryview:
    """A file as memory; empty for an empty one."""
    with opened(path, "OnnxModel") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
