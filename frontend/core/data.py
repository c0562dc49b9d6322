"""Data: Python numbers, lists and arrays to the bytes of a tensor, and back.

In       scalars, nested lists and tuples, bytes-like objects, arrays; or bytes of a dtype and shape
Out      (shape, dtype, bytes), or nested lists
Next     tensor.py (who puts the bytes in memory), ir/dtype.py (what the bits mean)

NumPy is used only when an array is given: a tensor made of lists needs no import.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.ir.dtype import NAMED, DType, Scalar, dtypes, element, from_bits, struct_code, to_bits, truncate
from hcq.ir.node import Shape

MAX_DEPTH = 64  # of lists in lists: axes of a tensor


def from_python(data: Any, dtype: DType | None) -> tuple[Shape, DType, bytes]:
    """Nested lists of numbers. Without a dtype: bool, int64 or float32, the first that holds them all."""
    flat: list[Any] = []
    shape = _flatten(data, flat, 0)
    if dtype is None:
        dtype = _dtype_of(flat)
    return shape, dtype, pack(flat, dtype)


def is_whole(data: Sequence[Any]) -> bool:
    """Whether nested lists hold ints and bools alone, and at least one."""
    if isinstance(data, (str, bytes, bytearray, memoryview)):
        return False
    first: Any = data
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
        if first is data:
            break
    if type(first) is float:
        return False
    flat: list[Any] = []
    try:
        _flatten(data, flat, 0)
    except (NotReal, UsageError):  # who reads them says what is wrong
        return False
    return bool(flat) and not any(issubclass(kind, float) for kind in set(map(type, flat)))


def _flatten(data: Any, flat: list[Any], depth: int) -> Shape:
    """Append the numbers in row-major order and return the shape; UsageError where rows differ."""
    if type(data) is float or type(data) is int or type(data) is bool:
        flat.append(data)
        return ()
    if depth > MAX_DEPTH:
        raise UsageError(
            f"[Tensor] lists deeper than {MAX_DEPTH}, or a list that holds itself. Give an array."
        )
    if not isinstance(data, (list, tuple)):
        if hasattr(data, "tolist") and not isinstance(data, type):  # a NumPy number or array, a tensor
            return _flatten(data.tolist(), flat, depth + 1)
        if isinstance(data, (bool, int, float)):
            flat.append(data)
            return ()
        if isinstance(data, complex):
            raise NotReal(f"[Tensor] {shown(data)} is complex. Take a complex dtype, or none.")
        if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):  # a deque, a range
            return _flatten(list(data), flat, depth + 1)
        raise UsageError(
            f"[Tensor] {shown(data)} ({type(data).__name__}) is not a number. Give numbers, or lists of them."
        )
    kinds = set(map(type, data))
    if kinds <= {float, int, bool}:  # the usual innermost row
        flat.extend(data)
        return (len(data),)
    inner: Shape | None = None
    for place, item in enumerate(data):
        shape = _flatten(item, flat, depth + 1)
        if inner is not None and shape != inner:
            raise UsageError(
                f"[Tensor] the list is ragged: at depth {depth}, item 0 has shape {inner} and item {place} has shape "
                f"{shape}. Make all items one shape."
            )
        inner = shape
    return (len(data), *(inner or ()))


def _dtype_of(flat: list[Any]) -> DType:
    kinds = set(map(type, flat))
    if not kinds or any(issubclass(kind, float) for kind in kinds):
        return dtypes.float32
    return dtypes.bool if all(issubclass(kind, bool) for kind in kinds) else dtypes.int64


def pack(flat: list[Any], dtype: DType) -> bytes:
    """Numbers as the bytes of a dtype. Floats become whole towards zero; what does not fit an integer is refused.

    A negative whole number is what an unsigned format counts from its end: -1 in uint8 is 255.
    """
    code = struct_code(dtype)
    if code is None or dtype is dtypes.float16:
        width = dtype.itemsize
        return b"".join([to_bits(value, dtype).to_bytes(width, "little") for value in flat])
    if dtype.is_bool:
        return bytes([1 if value else 0 for value in flat])
    if dtype.is_integer and not set(map(type, flat)) <= {int, bool}:
        flat = [_whole(value, dtype) for value in flat]
    try:
        return struct.pack(f"<{len(flat)}{code}", *flat)
    except OverflowError:
        if dtype.is_integer:
            raise UsageError(_no_room(flat, dtype)) from None
        return struct.pack(f"<{len(flat)}{code}", *[truncate(value, dtype) for value in flat])
    except struct.error:
        kept = [element(value, dtype) for value in flat]
        if kept == flat:
            raise UsageError(_no_room(flat, dtype)) from None
        return pack(kept, dtype)


def _whole(value: Any, dtype: DType) -> int:
    try:
        whole = int(value)
    except (ValueError, OverflowError):
        raise UsageError(f"[Tensor] {value} is no {dtype.name}. Use a floating-point dtype.") from None
    if whole < 0 and dtype.is_unsigned and not isinstance(value, int):
        raise UsageError(_no_room([value], dtype))
    return whole


def _no_room(flat: list[Any], dtype: DType) -> str:
    bad = next((value for value in flat if not dtype.min <= value <= dtype.max), flat[0] if flat else None)
    return f"[Tensor] {bad} does not fit in {dtype.name} ({dtype.min} to {dtype.max}). Use a wider dtype."


def is_of_numbers(data: Any, depth: int = 0) -> bool:
    """Whether it is a list, or lists in lists, of Python's numbers."""
    if isinstance(data, (list, tuple)):
        return depth <= MAX_DEPTH and all(is_of_numbers(each, depth + 1) for each in data)
    return type(data) in (int, float, bool, complex)


def from_buffer(data: Any, dtype: DType) -> tuple[Shape, DType, bytes]:
    """The bytes of a bytes-like object, as a vector."""
    raw = memoryview(data).cast("B") if memoryview(data).c_contiguous else memoryview(bytes(data))
    if raw.nbytes % dtype.itemsize:
        raise UsageError(
            f"[Tensor] {raw.nbytes} bytes are no whole number of {dtype.name} elements of {dtype.itemsize} bytes. "
            f"Check the dtype."
        )
    return (raw.nbytes // dtype.itemsize,), dtype, bytes(raw)


def from_array(data: Any, dtype: DType | None) -> tuple[Shape, DType, Any]:
    """A NumPy array, or anything that becomes one by `__array__`."""
    import numpy as np

    array = np.asarray(data)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    have = NAMED.get(array.dtype.name)
    if have is None and array.dtype.kind == "c":
        raise NotReal(f"[Tensor] an array of {array.dtype.name}. Take a complex dtype, or none.")
    if have is None:
        raise UsageError(
            f"[Tensor] arrays of {array.dtype.name} have no dtype here. Convert the array first, as "
            "with .astype('float32')."
        )
    if dtype is not None and dtype is not have and struct_code(dtype) is not None and not _loses(have, dtype):
        array, have = array.astype(dtype.name), dtype
    shape = tuple(int(size) for size in array.shape)
    return shape, have, np.ascontiguousarray(array).data.cast("B") if array.size else b""


def _loses(have: DType, want: DType) -> bool:
    """True where NumPy's conversion is not the graph's (floats to integers): the graph does it then."""
    return have.is_float and want.is_integer


def unpack(data: Any, dtype: DType) -> list[Scalar]:
    """Bytes of a dtype as Python numbers."""
    count, code = len(data) // dtype.itemsize, struct_code(dtype)
    if code is not None:
        return list(struct.unpack(f"<{count}{code}", data))
    width = dtype.itemsize
    return [
        from_bits(int.from_bytes(data[i : i + width], "little"), dtype) for i in range(0, len(data), width)
    ]


def nested(flat: list[Scalar], shape: Shape) -> Any:
    """A flat list as nested lists of that shape; the number itself for shape ()."""
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = prod(shape[1:])
    return [nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def cut(raw: Any, room: tuple[int, ...], shape: tuple[int, ...], itemsize: int) -> bytes:
    """The first elements along each axis, of row-major elements that fill `room`."""
    if room == shape:
        return bytes(raw)
    if 0 in shape:
        return b""
    inner = itemsize
    for size in room[1:]:
        inner *= size
    view = memoryview(raw)
    rows = [view[at * inner : (at + 1) * inner] for at in range(shape[0])]
    return b"".join([cut(row, room[1:], shape[1:], itemsize) for row in rows])
