"""Quantised tensors: bytes on a device, and the numbers they mean as a lazy tensor over them.

In       the bytes of a quantised tensor, its format and shape
Out      a float32 tensor whose graph reads these bytes: whoever uses it takes them apart inside of the same kernel
Changes  device memory for the bytes, as many as in the file
Next     blocks.py (sizes), block_parts.py, dequantise.py, dequantise_k.py, dequantise_grids.py (what a block means)

The bytes are one piece of memory under two leaves of the graph: as uint8, and as uint16 where blocks have an even size,
so that a scale in float16 is one load. Nothing writes to either.
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.storage import Storage
from hcq.frontend.io import dequantise, dequantise_grids, dequantise_k
from hcq.frontend.io.block_parts import Blocks, Meaning
from hcq.frontend.io.blocks import BY_NAME, Format
from hcq.frontend.io.weights import uploaded
from hcq.frontend.run.realize import storage_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Shape


def placed(raw: Any, device: str, form: Format, shape: Shape, name: str = "weights") -> Tensor:
    """The bytes of a quantised tensor, put on a device; its numbers are computed where they are used."""
    first = devices.members(device)[0]
    found = of_bytes(uploaded(raw, first, dtypes.uint8, (len(raw),), name), form.name, shape)
    return found if first == device else found.to(device)


def of_bytes(raw: Tensor, form: str, shape: Shape) -> Tensor:
    """The numbers that the bytes of a tensor in memory mean, lazily.

    raw    uint8, all bytes of the tensor's blocks; they must not be written to while this is used
    form   "Q4_K", ...
    shape  of the result, whose last axis is a whole number of blocks
    """
    known = BY_NAME.get(form)
    if known is None or known.dtype is not None:
        raise UsageError(f"[of_bytes] {form!r} is no quantised format of GGUF.")
    row = shape[-1] // known.elements
    rows = raw.numel() // max(1, row * known.size_bytes)
    if rows * row * known.size_bytes != raw.numel() or 0 in shape:
        raise UsageError(f"[of_bytes] {raw.numel()} bytes are no {form} of shape {shape}.")
    raw = raw.realize()
    storage = storage_of(raw)
    halves = None
    if known.size_bytes % 2 == 0:
        words = Storage(storage.device, dtypes.uint16, (rows, row, known.size_bytes // 2), storage.buffer)
        halves = Tensor._of(words.node(), storage.device)
    bytes_ = Tensor._of(
        Storage(storage.device, dtypes.uint8, (rows, row, known.size_bytes), storage.buffer).node(),
        raw.device,
    )
    return meaning_of(form)(Blocks(bytes_, halves)).reshape(shape)


def meaning_of(form: str) -> Meaning:
    """The function that takes blocks of a format apart."""
    return {**dequantise.MEANINGS, **dequantise_k.MEANINGS, **dequantise_grids.MEANINGS}[form]
