"""GGUF writer: tensors and metadata into a file that llama.cpp's tools read, too.

In       names and tensors, or the bytes of quantised blocks; metadata
Out      one file of version 3
Changes  the file, which appears whole or not at all
Next     gguf.py (reading, and the layout), blocks.py (formats)
Source   the GGUF specification
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.blocks import BY_DTYPE, BY_NAME
from hcq.frontend.io.gguf import ARRAY, MAGIC, STRING
from hcq.frontend.io.safetensors import contents
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Shape
from hcq.system.atomic_files import replaced

ALIGNMENT = 32


class Packed(NamedTuple):
    """A tensor that is quantised already: its format's name, its shape, and its blocks' bytes."""

    format: str
    shape: Shape
    raw: bytes


def save_gguf(
    tensors: Mapping[str, Tensor | Packed],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write tensors and metadata under their names.

    tensors   of float64, 32, 16, bfloat16 and signed integers; or `Packed`
    metadata  bool, int, float, str, and lists of one of them; ints are kept in 32 bits where they fit, floats in 32
    Raises    UsageError for what the format cannot hold; OSError as the system gives it
    """
    words = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(metadata or {}))]
    for key, value in (metadata or {}).items():
        kind, raw = _value(key, value)
        words += [_text(key), struct.pack("<I", kind), raw]
    realize([tensor for tensor in tensors.values() if isinstance(tensor, Tensor)])
    at = 0
    for name, tensor in tensors.items():
        number, size = _checked(name, tensor)
        axes = tuple(reversed(tensor.shape))
        words += [_text(name), struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, number, at)]
        at += size + -size % ALIGNMENT
    head = b"".join(words)
    with replaced(path) as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for tensor in tensors.values():
            raw = contents(tensor) if isinstance(tensor, Tensor) else tensor.raw
            file.write(raw)
            file.write(bytes(-len(raw) % ALIGNMENT))


def _checked(name: str, tensor: Any) -> tuple[int, int]:
    """The number of a tensor's format, and its bytes."""
    if isinstance(tensor, Packed):
        form = BY_NAME.get(tensor.format)
        count = 1
        for size in tensor.shape:
            count *= size
        if form is None or count // form.elements * form.size_bytes != len(tensor.raw):
            raise UsageError(
                f"[save] {name!r}: {len(tensor.raw)} bytes are no {tensor.format} of shape {tensor.shape}."
            )
        return form.number, len(tensor.raw)
    if not isinstance(tensor, Tensor) or tensor.dtype not in BY_DTYPE or len(tensor.shape) > 4:
        what = f"{tensor.dtype.name} {tensor.shape}" if isinstance(tensor, Tensor) else shown(tensor)
        known = ", ".join(dtype.name for dtype in BY_DTYPE if dtype is not None)
        raise UsageError(
            f"[save] {name!r}: {what} has no place in GGUF. Give tensors of {known}, of up to 4 axes."
        )
    return BY_DTYPE[tensor.dtype].number, tensor.nbytes


def _text(text: Any) -> bytes:
    if not isinstance(text, str):
        raise UsageError(f"[save] {shown(text)}: names and keys are strings.")
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any) -> tuple[int, bytes]:
    """The type of a value, and its bytes."""
    if isinstance(value, str):
        return STRING, _text(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)) and len(value):
        kind, _ = _value(key, value[0])
        if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            kind = 5 if all(-(2**31) <= item < 2**31 for item in value) else 11
        letter = {7: "?", 4: "I", 5: "i", 6: "f", 11: "q"}.get(kind)
        try:
            raw = (
                b"".join(map(_text, value))
                if kind == STRING
                else struct.pack(f"<{len(value)}{letter}", *value)
            )
        except struct.error:
            raise UsageError(f"[save] metadata {key!r}: {shown(value)} is no list of one kind.") from None
        return ARRAY, struct.pack("<IQ", kind, len(value)) + raw
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return (4, struct.pack("<I", value)) if 0 <= value < 2**32 else (11, struct.pack("<q", value))
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    raise UsageError(
        f"[save] metadata {key!r}: {shown(value)}. Give bool, int, float, str, or a list of one of them."
    )
