"""Small ONNX files, written field by field: the tests of frontend/more/onnx need no package for them.

In       nodes, tensors, names
Out      the bytes of a model
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

KINDS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


def varint(value: int) -> bytes:
    """Seven bits a byte, the least ones first."""
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: Any) -> bytes:
    """A field: a number as a varint, a float as four bytes, and else a length and bytes."""
    if isinstance(value, bool) or isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str, array: Any, **words: str) -> bytes:
    """TensorProto. words: it lies in another file, at location=, offset=, length=."""
    array = np.asarray(array)
    out = (
        b"".join(field(1, size) for size in array.shape) + field(2, KINDS[array.dtype.name]) + field(8, name)
    )
    if words:
        pairs = (field(1, key) + field(2, value) for key, value in words.items())
        return out + b"".join(field(13, pair) for pair in pairs) + field(14, 1)
    return out + field(9, array.tobytes())


def attribute(name: str, value: Any) -> bytes:
    """AttributeProto; bytes are a graph, an array is a tensor."""
    out = field(1, name)
    if isinstance(value, int):
        return out + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return out + field(2, value) + field(20, 1)
    if isinstance(value, str):
        return out + field(4, value) + field(20, 3)
    if isinstance(value, bytes):
        return out + field(6, value) + field(20, 5)
    if isinstance(value, np.ndarray):
        return out + field(5, tensor("", value)) + field(20, 4)
    if all(isinstance(one, int) for one in value):
        return out + b"".join(field(8, one) for one in value) + field(20, 7)
    return out + b"".join(field(7, struct.pack("<f", one)) for one in value) + field(20, 6)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: Any
) -> bytes:
    """NodeProto; its name is the operator's in small letters and its first output."""
    out = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs)
    out += field(4, op) + field(3, f"{op.lower()}_{outputs[0] if outputs else ''}")
    out += b"".join(field(5, attribute(name, value)) for name, value in attributes.items())
    return out + (field(7, domain) if domain else b"")


def value(name: str, dtype: str = "float32", shape: Sequence[int | str] | None = None) -> bytes:
    """ValueInfoProto of a tensor; a size that is a string is a name."""
    kind = field(1, KINDS[dtype])
    if shape is not None:
        sizes = (field(1, size) if isinstance(size, int) else field(2, size) for size in shape)
        kind += field(2, b"".join(field(1, size) for size in sizes))
    return field(1, name) + field(2, field(1, kind))


def graph(
    nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], constants: Sequence[bytes] = ()
) -> bytes:
    """GraphProto."""
    parts = [*(field(1, one) for one in nodes), field(2, "graph"), *(field(5, one) for one in constants)]
    parts += [*(field(11, one) for one in inputs), *(field(12, one) for one in outputs)]
    return b"".join(parts)


def function(
    name: str,
    domain: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[bytes],
    opset: int = 17,
) -> bytes:
    """FunctionProto."""
    parts = [field(1, name), *(field(4, one) for one in inputs), *(field(5, one) for one in outputs)]
    parts += [*(field(7, one) for one in nodes), field(9, field(2, opset)), field(10, domain)]
    return b"".join(parts)


def model(whole: bytes, opset: int = 17, functions: Sequence[bytes] = (), **domains: int) -> bytes:
    """ModelProto."""
    out = field(1, 8) + field(7, whole) + field(8, field(1, "") + field(2, opset))
    out += b"".join(field(8, field(1, name) + field(2, version)) for name, version in domains.items())
    return out + b"".join(field(25, one) for one in functions)
