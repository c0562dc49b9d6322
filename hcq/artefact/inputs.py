"""Inputs of a program from files: raw bytes, .npy arrays, tensors of .safetensors files; or zeros, or random numbers.

In       what a program takes (a `Spec`), a word of the command line
Out      the bytes of that input
Next     command.py (`python -m hcq run`), hcq/code/safetensors.py
Source   the .npy format: NumPy Enhancement Proposal 1

A file's header is checked before its data is read, and no more is read than the program takes.
"""

from __future__ import annotations

import ast
import os
import random
import struct
from collections.abc import Callable
from math import prod
from typing import Any, BinaryIO

from hcq.artefact.file import ITEM_BYTES, Spec, open_plain
from hcq.code.safetensors import read_header
from hcq.errors import UsageError

LETTERS = {
    "float16": "e", "float32": "f", "float64": "d", "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
}  # fmt: skip
MAX_NPY_HEADER = 1 << 16
_NPY = {"f": "float", "i": "int", "u": "uint", "b": "bool"}  # kinds of numbers


def from_file(spec: Spec, word: str) -> bytes:
    """An input's bytes from a file: X.npy; X.safetensors, its tensor of the input's name, or X.safetensors:TENSOR;
    else raw bytes, row-major and little endian.

    Raises  UsageError, one sentence, when it cannot be read, is damaged, or holds something else than the input
    """
    path, _, tensor = word.rpartition(":") if ".safetensors:" in word else (word, "", "")
    try:
        with open_plain(path) as file:
            if path.endswith(".npy"):
                return _npy(file, path, spec)
            if path.endswith(".safetensors"):
                return _safetensors(file, path, tensor or spec.name, spec)
            size = os.fstat(file.fileno()).st_size
            if size != spec.size_bytes:
                raise _other(spec, path, f"has {size} bytes, not {spec.size_bytes}")
            return file.read(spec.size_bytes)
    except OSError as error:
        raise UsageError(f"[run] input {spec.name}: {path} cannot be read ({error.strerror}).") from None


def _other(spec: Spec, path: str, why: str) -> UsageError:
    return UsageError(f"[run] input {spec}: {path} {why}. Give a file of that format and shape.")


def _safetensors(file: BinaryIO, path: str, name: str, spec: Spec) -> bytes:
    entries = {entry.name: entry for entry in read_header(file, path, "run").entries}
    entry = entries.get(name)
    if entry is None:
        known = ", ".join(list(entries)[:8]) or "none"
        raise _other(spec, path, f"has no tensor {name!r}; of its tensors ({known}) name one as {path}:NAME")
    if (entry.dtype, entry.shape) != (spec.dtype, spec.shape):
        raise _other(spec, path, f"has {name!r} as {entry.dtype}{list(entry.shape)}")
    file.seek(entry.begin)
    return file.read(spec.size_bytes)


def _npy(file: BinaryIO, path: str, spec: Spec) -> bytes:
    head = file.read(8)
    wide = head[6:7] in (b"\2", b"\3")
    if head[:6] != b"\x93NUMPY" or head[6:7] not in (b"\1", b"\2", b"\3"):
        raise _other(spec, path, "is no .npy file of version 1 to 3")
    length = int.from_bytes(file.read(4 if wide else 2), "little")
    try:
        if length > MAX_NPY_HEADER:
            raise ValueError
        table = ast.literal_eval(file.read(length).decode("utf-8"))
        descr, order, shape = table["descr"], table["fortran_order"], table["shape"]
        is_little = descr[0] in "<|="
        dtype = "bool" if descr[1:] == "b1" else f"{_NPY[descr[1]]}{8 * int(descr[2:])}"
        if type(shape) is not tuple or not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, RecursionError, MemoryError):
        raise _other(spec, path, "has a header that says no plain format and shape") from None
    if (dtype, shape) != (spec.dtype, spec.shape) or not is_little:
        raise _other(spec, path, f"has {descr}{list(shape)}")
    if order and sum(side > 1 for side in shape) > 1:
        raise _other(spec, path, "is stored column by column; save numpy.ascontiguousarray of it")
    data = file.read(spec.size_bytes)
    if len(data) != spec.size_bytes:
        raise _other(spec, path, f"is cut off after {len(data)} bytes of data")
    return data


def zeros(spec: Spec) -> bytes:
    """Nothing but zeros."""
    return bytes(spec.size_bytes)


def drawn(spec: Spec, seed: int) -> bytes:
    """Random numbers: floats uniform from 0 to 1, whole numbers 0 and 1, which any index or count may be.

    Raises  UsageError for a number format that Python has no numbers for
    """
    rng = random.Random(f"{seed} {spec.name}")
    count = prod(spec.shape)
    if spec.dtype == "bfloat16":
        return b"".join(struct.pack("<f", rng.random())[2:] for _ in range(count))
    if spec.dtype not in LETTERS:
        raise UsageError(
            f"[run] input {spec}: no random numbers of this format. Give a file: --input {spec.name}=FILE."
        )
    letter = LETTERS[spec.dtype]
    draw: Callable[[], Any] = rng.random if letter in "efd" else lambda: rng.getrandbits(1)
    return struct.pack(f"<{count}{letter}", *(draw() for _ in range(count)))


def numbers(spec: Spec, data: bytes, most: int) -> list[Any]:
    """The first numbers of a result, for people."""
    size = ITEM_BYTES[spec.dtype]
    count = min(most, len(data) // size)
    if spec.dtype == "bfloat16":
        return [struct.unpack("<f", b"\0\0" + data[2 * i : 2 * i + 2])[0] for i in range(count)]
    if spec.dtype in LETTERS:
        return list(struct.unpack_from(f"<{count}{LETTERS[spec.dtype]}", data))
    return [f"0x{byte:02x}" for byte in data[:count]]
