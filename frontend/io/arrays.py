"""Arrays: NumPy's files of one array (.npy) and of several (.npz), read and written without NumPy and without pickle.

In       a path; names and tensors
Out      `Weights`; a file
Changes  a file that is written appears whole or not at all
Next     zipped.py (the members of an .npz), weights.py (what reading gives)
Source   numpy.lib.format: versions 1 to 3 of the .npy format

A member of a compressed .npz is unpacked when its tensor is asked for, and never beyond the size that it declares.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.mapped import BYTES_OF_A_TENSOR, Mapped
from hcq.frontend.io.safetensors import contents
from hcq.frontend.io.weights import Entry, Weights, uploaded
from hcq.frontend.io.zipped import Member, members
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Shape
from hcq.system.atomic_files import replaced

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 16
DTYPES: dict[str, DType] = {
    "b1": dtypes.bool, "u1": dtypes.uint8, "u2": dtypes.uint16, "u4": dtypes.uint32, "u8": dtypes.uint64,
    "i1": dtypes.int8, "i2": dtypes.int16, "i4": dtypes.int32, "i8": dtypes.int64,
    "f2": dtypes.float16, "f4": dtypes.float32, "f8": dtypes.float64,
}  # fmt: skip
_WORDS = {dtype: word for word, dtype in DTYPES.items()}
_FIELDS = re.compile(
    r"""\s*['"](descr|fortran_order|shape)['"]\s*:\s*('[^']*'|"[^"]*"|True|False|\([\d,\s]*\))\s*(?:,|$)"""
)


def read_npy(path: str | os.PathLike[str], device: str | None = None, call: str = "load") -> Weights:
    """What is in an .npy file: one tensor, under the name "array"."""
    file = Mapped(path, "npy", call)
    entry = _entry(
        "array",
        file,
        file.view(0, min(file.size, MAX_HEADER_BYTES)),
        file.size,
        lambda: file.view(0, file.size),
    )
    return Weights(path, "npy", [entry], {}, device)


def read_npz(path: str | os.PathLike[str], device: str | None = None, call: str = "load") -> Weights:
    """What is in an .npz file: a tensor for each member, under its name without .npy."""
    file = Mapped(path, "npz", call)
    found = []
    for member in members(file):
        file.charge(BYTES_OF_A_TENSOR)
        if not member.name.endswith(".npy"):
            raise UsageError(
                f"[{call}] {file.path}: its member {shown(member.name)} is no .npy file. Leave only arrays in it."
            )
        found.append(_member(file, member))
    return Weights(path, "npz", found, {}, device)


def _member(file: Mapped, member: Member) -> Entry:
    return _entry(member.name[:-4], file, member.read(MAX_HEADER_BYTES), member.size, member.read)


def _entry(name: str, file: Mapped, head: Any, size: int, whole: Callable[[], Any]) -> Entry:
    """The tensor of an .npy of `size` bytes that begins with `head`."""
    word, is_columns, shape, begin = _header(name, file, bytes(head))
    order, kind = word[:1], word[1:]
    if order not in "<>|=" or kind not in DTYPES:
        why = (
            "objects are read by unpickling, which this does not do"
            if "O" in word
            else "there is no such dtype here"
        )
        raise UsageError(
            f"[{file.call}] {file.path}: {name!r} is of dtype {word!r}: {why}. Save it as numbers."
        )
    dtype = DTYPES[kind]
    wanted = prod(shape) * dtype.itemsize
    if begin + wanted != size:
        raise file.damaged(f"{name!r}, {dtype.name} of shape {shape}, has {size - begin} bytes")

    def raw() -> Any:
        data = memoryview(whole())[begin:]
        if order == ">" and dtype.itemsize > 1:
            data = memoryview(_swapped(bytes(data), dtype.itemsize))
        return data

    def place(device: str) -> Tensor:
        if is_columns and len(shape) > 1:
            turned = uploaded(raw(), device, dtype, shape[::-1], name)
            return turned.permute(*reversed(range(len(shape))))
        return uploaded(raw(), device, dtype, shape, name)

    return Entry(name, word, dtype, shape, wanted, place, raw)


def _swapped(data: bytes, width: int) -> bytearray:
    """Numbers with their bytes the other way around."""
    found = bytearray(len(data))
    for at in range(width):
        found[at::width] = data[width - 1 - at :: width]
    return found


def _header(name: str, file: Mapped, head: bytes) -> tuple[str, bool, Shape, int]:
    """dtype, whether columns come first, shape, and where the data begins."""
    if head[:6] != MAGIC or len(head) < 12 or head[6] not in (1, 2, 3):
        raise file.damaged(f"{name!r} does not begin as an .npy file of version 1 to 3 does")
    width = 2 if head[6] == 1 else 4
    length = int.from_bytes(head[8 : 8 + width], "little")
    begin = 8 + width + length
    if begin > len(head):
        raise file.damaged(f"{name!r} has a header of {length} bytes")
    text = head[8 + width : begin].decode("latin-1").strip()
    fields: dict[str, str] = {}
    if text[:1] == "{" and text[-1:] == "}":
        inside, at = text[1:-1].strip(), 0
        while at < len(inside):
            found = _FIELDS.match(inside, at)
            if found is None or found[1] in fields:
                break
            fields[found[1]] = found[2]
            at = found.end()
        else:
            if len(fields) == 3 and _are_of_their_kinds(fields):
                sizes = [int(size) for size in fields["shape"][1:-1].replace(" ", "").split(",") if size]
                if all(size < 1 << 62 for size in sizes) and len(sizes) <= 32:
                    return fields["descr"][1:-1], fields["fortran_order"] == "True", tuple(sizes), begin
    if "descr" in text and "[" in text:
        raise UsageError(
            f"[{file.call}] {file.path}: {name!r} has records, of several fields. Save each as an array."
        )
    raise file.damaged(f"{name!r} has the header {shown(text)}")


def _are_of_their_kinds(fields: Mapping[str, str]) -> bool:
    return (
        fields["descr"][0] in "'\""
        and fields["fortran_order"] in ("True", "False")
        and fields["shape"][0] == "("
        and not re.search(r"\d{20}|\d\s+\d|,\s*,", fields["shape"])
    )


def npy_header(dtype: DType, shape: Shape) -> bytes:
    """What stands before the numbers of an array in an .npy file."""
    order = "|" if dtype.itemsize == 1 else "<"
    text = f"{{'descr': '{order}{_WORDS[dtype]}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    size = len(MAGIC) + 4 + len(text) + 1
    text += " " * (-size % 64) + "\n"
    return MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def save_npz(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Write tensors under their names, as numpy.savez does.

    Raises  UsageError for dtypes that NumPy has not; OSError as the system gives it
    """
    import zipfile

    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.dtype not in _WORDS:
            what = tensor.dtype.name if isinstance(tensor, Tensor) else shown(tensor)
            raise UsageError(
                f"[save] {name!r}: {what} has no place in .npz. Cast it, or save as .safetensors."
            )
    realize(tensors.values())
    with replaced(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, tensor in tensors.items():
            data = npy_header(tensor.dtype, tensor.shape) + contents(tensor)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data)


def save_npy(tensor: Tensor, path: str | os.PathLike[str]) -> None:
    """Write one tensor, as numpy.save does. Raises as `save_npz`."""
    if tensor.dtype not in _WORDS:
        raise UsageError(
            f"[save] {tensor.dtype.name} has no place in .npy. Cast it, or save as .safetensors."
        )
    realize([tensor])
    with replaced(path) as file:
        file.write(npy_header(tensor.dtype, tensor.shape) + contents(tensor))
