"""Tensor maps for kernels with TMA copies: a tensor in memory and the box that each copy moves.

In       a buffer or an address, sizes in elements, strides in bytes, the box, how it lies in shared memory
Out      128 bytes: the argument for a `const __grid_constant__ CUtensorMap` parameter of a dispatch
Next     hcq/nv/abi/tensor_map.py (the layout, and what of it is inferred), program.py (bytes as an argument)
Source   CUDA Driver API, "Tensor Map Object Management": cuTensorMapEncodeTiled, whose requirements are checked here

>>> from hcq.nv.abi.tensor_map import ElementType, Swizzle
>>> made = tiled(0x10000, ElementType.F16, (512, 256), (1024,), (64, 128), swizzle=Swizzle.B128)
>>> len(made)
128
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

from hcq import checks
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.nv.abi.tensor_map import (
    ELEMENT_BYTES,
    FLOATS,
    MAX_RANK,
    STRIDE_UNIT,
    ElementType,
    Fill,
    Swizzle,
    TensorMap,
)

E = TypeVar("E", bound=IntEnum)
MAX_DIM = 1 << 32
MAX_STRIDE = 1 << 40
MAX_BOX = 256
MAX_STEP = 8
ADDRESS_ALIGNMENT = 16
ADDRESS_BYTES = 8  # at the start of a map
BY_DTYPE = {"float16": ElementType.F16, "bfloat16": ElementType.BF16}
SPAN_BYTES = {Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}


def tiled(
    tensor: Buffer | int,
    element: ElementType,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    steps: Sequence[int] = (),
    swizzle: Swizzle = Swizzle.NONE,
    fill: Fill = Fill.ZERO,
    is_tf32: bool = False,
) -> bytes:
    """A tensor map of tiles, without interleaving. Dimension 0 is the contiguous one.

    tensor    where the tensor begins, a multiple of 16
    dims      elements along each of 1 to 5 dimensions
    strides   bytes to the next along each dimension but the first: multiples of 16
    box       elements that a copy spans, 1 to 256 along each dimension; a row of it is a multiple of 16 bytes
    steps     every how many elements one is copied, 1 to 8; left out, all are
    swizzle   how 16-byte pieces of the box change places in shared memory; a row of the box fits its span
    fill      what elements outside of the tensor read as
    is_tf32   whether F32 elements are meant as tf32
    Raises    UsageError for what cuTensorMapEncodeTiled refuses, and for a tensor that is longer than its buffer
    """
    call = "tensor_map.tiled"
    element = _member(call, "element", ElementType, element)
    swizzle = _member(call, "swizzle", Swizzle, swizzle)
    fill = _member(call, "fill", Fill, fill)
    rank = len(dims)
    if not 1 <= rank <= MAX_RANK:
        raise UsageError(f"{call}(dims={tuple(dims)!r}): a tensor map has 1 to {MAX_RANK} dimensions.")
    dims = _sizes(call, "dims", dims, rank, MAX_DIM)
    box = _sizes(call, "box", box, rank, MAX_BOX)
    steps = _sizes(call, "steps", steps or (1,) * rank, rank, MAX_STEP)
    strides = _sizes(call, "strides", strides, rank - 1, MAX_STRIDE - 1)
    size = ELEMENT_BYTES[element]
    row = box[0] * size
    _check(call, "box", box, row % STRIDE_UNIT == 0, f"a row has {row} bytes, no multiple of {STRIDE_UNIT}")
    span = SPAN_BYTES.get(swizzle, row)
    _check(call, "box", box, row <= span, f"a row has {row} bytes, more than the swizzle's span of {span}")
    for stride in strides:
        _check(
            call, "strides", strides, stride % STRIDE_UNIT == 0, f"{stride} is no multiple of {STRIDE_UNIT}"
        )
    _check(call, "fill", fill, fill != Fill.NAN or element in FLOATS, f"{element.name} has no NaN")
    is_float32 = element in (ElementType.F32, ElementType.F32_FTZ)
    _check(call, "is_tf32", is_tf32, not is_tf32 or is_float32, f"{element.name} is no F32")
    address = tensor.address if isinstance(tensor, Buffer) else checks.whole(call, "tensor", tensor)
    _check(
        call, "tensor", hex(address), address % ADDRESS_ALIGNMENT == 0, f"no multiple of {ADDRESS_ALIGNMENT}"
    )
    end = size * dims[0] + sum((dim - 1) * stride for dim, stride in zip(dims[1:], strides))
    if isinstance(tensor, Buffer) and end > tensor.size_bytes:
        raise UsageError(
            f"{call}(dims={dims!r}, strides={strides!r}): the tensor ends at byte {end} of a buffer of "
            f"{tensor.size_bytes}."
        )
    return TensorMap.tiled(
        address,
        dims,
        strides,
        box,
        steps,
        element_type=element,
        swizzle=swizzle,
        fill=fill,
        is_tf32=int(is_tf32),
    ).to_bytes()


def without_address(words: str) -> bytes:
    """What follows the address in the map of a tensor that a compiler wrote down, swizzled in 128 bytes.

    words    "TYPE DIMS STRIDES BOX", such as "float16 4096x512 8192 64x128": as for `tiled`, numbers joined by an x
    Raises   UsageError for other words, and for what `tiled` refuses
    """
    element, sizes = _parsed(words)
    return tiled(0, element, *sizes, swizzle=Swizzle.B128)[ADDRESS_BYTES:]


def _parsed(words: str) -> tuple[ElementType, list[list[int]]]:
    name, *parts = words.split() or [""]
    sizes = [part.split("x") for part in parts]
    is_right = (
        name in BY_DTYPE and len(parts) == 3 and all(size.isdecimal() for part in sizes for size in part)
    )
    if not is_right:
        raise UsageError(
            f"tensor_map({words!r}): expected a type of {', '.join(BY_DTYPE)}, then sizes, strides in bytes and a box, "
            "each with an x between its numbers."
        )
    return BY_DTYPE[name], [[int(size) for size in part] for part in sizes]


def tile_bytes(box: Sequence[int], element: ElementType, steps: Sequence[int] = ()) -> int:
    """Bytes that a copy brings to shared memory, also at the tensor's edge: what mbarrier.expect_tx is to be told."""
    counts = (-(-size // step) for size, step in zip(box, steps or (1,) * len(box)))
    return math.prod(counts) * ELEMENT_BYTES[element]


def _member(call: str, name: str, kind: type[E], value: int) -> E:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(kind.__members__)
        raise UsageError(f"{call}({name}={value!r}): expected one of {kind.__name__}: {names}.") from None


def _sizes(call: str, name: str, sizes: Sequence[int], count: int, largest: int) -> tuple[int, ...]:
    found = tuple(checks.whole(call, name, size) for size in sizes)
    if len(found) != count or any(not 0 < size <= largest for size in found):
        raise UsageError(f"{call}({name}={found!r}): expected {count} numbers from 1 to {largest}.")
    return found


def _check(call: str, name: str, value: object, is_right: bool, why: str) -> None:
    if not is_right:
        raise UsageError(f"{call}({name}={value!r}): {why}.")
