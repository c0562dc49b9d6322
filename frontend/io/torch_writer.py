"""PyTorch's files, written: what torch.load reads, with weights_only, too.

In       tensors and plain data, in dicts, lists and tuples; a path
Out      a zip file: data.pkl, a pickle written opcode by opcode, and a member for each memory that tensors have
Changes  replaces the file in one step
Next     torch_file.py (the same, read), files.py (hcq.save)
Source   torch.serialization and torch._utils: names in pickles, members of the zip file; pickletools: the opcodes

Tensors that are one object are one storage in the file. Modules are not written: state_dict() is.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.torch_file import DTYPES, STORAGES
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.system.atomic_files import replaced

_STORAGE_OF = {dtype: word for word, dtype in STORAGES.items() if word != "UntypedStorage"}
_WORD_OF = {dtype: word for word, dtype in DTYPES.items()}
MAX_DEPTH = 64


def save_torch(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write tensors and plain data.

    Raises  UsageError for what is neither, which names where it is
    """
    writer = _Writer()
    writer.put(obj, "")
    folder = Path(path).stem or "archive"
    with replaced(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{folder}/data.pkl", b"\x80\x02" + bytes(writer.out) + b".")
        archive.writestr(f"{folder}/byteorder", b"little")
        for number, tensor in enumerate(writer.tensors):
            archive.writestr(f"{folder}/data/{number}", tensor._bytes("save"))
        archive.writestr(f"{folder}/version", b"3\n")


class _Writer:
    """The pickle so far, and the tensors whose numbers stand beside it."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}

    def put(self, value: Any, where: str, depth: int = 0) -> None:
        """Write the opcodes that make a value."""
        if depth > MAX_DEPTH:
            raise UsageError(f"[save] {where[:60]}...: what is saved is too deep, or holds itself.")
        kind = type(value)
        if value is None:
            self.out += b"N"
        elif kind is bool:
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, Tensor):
            self._tensor(value, where)
        elif isinstance(value, str):
            text = str(value).encode("utf-8", "surrogatepass")
            self.out += b"X" + struct.pack("<I", len(text)) + text
        elif isinstance(value, int):
            self._int(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, Mapping):
            self.out += b"}("
            for key, item in value.items():
                self.put(key, f"{where}[key {shown(key)}]", depth + 1)
                self.put(item, f"{where}[{shown(key)}]", depth + 1)
            self.out += b"u"
        elif isinstance(value, (list, tuple)):
            self.out += b"](" if isinstance(value, list) else b"("
            for place, item in enumerate(value):
                self.put(item, f"{where}[{place}]", depth + 1)
            self.out += b"e" if isinstance(value, list) else b"t"
        elif isinstance(value, DType) and value in _WORD_OF:
            self._name("torch", _WORD_OF[value])
        elif hasattr(value, "item") and getattr(value, "shape", None) == ():
            self.put(value.item(), where, depth + 1)  # a NumPy number counts as a Python one
        elif hasattr(value, "state_dict"):
            raise UsageError(
                f"[save] {where or 'it'} is {kind.__name__}: save its state_dict(), and make it anew to load it."
            )
        else:
            raise UsageError(
                f"[save] {where or 'it'} is {shown(value)}: a PyTorch file holds tensors, numbers, strings, None, and "
                "dicts, lists and tuples of them. Use pickle for other things."
            )

    def _int(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self.out += b"J" + struct.pack("<i", value)
            return
        raw = int(value).to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        self.out += b"\x8a" + bytes([len(raw)]) + raw

    def _name(self, module: str, name: str) -> None:
        self.out += f"c{module}\n{name}\n".encode()

    def _tensor(self, tensor: Any, where: str) -> None:
        if tensor.is_complex() or tensor.dtype not in _WORD_OF:
            raise UsageError(
                f"[save] {where or 'it'} is {tensor.dtype.name}: PyTorch's files hold no such tensor here."
            )
        if tensor._is_parameter:
            self._name("torch._utils", "_rebuild_parameter")
            self.out += b"("
            self._numbers(tensor, False)
            self.out += b"\x88" if tensor._requires_grad else b"\x89"
            self._nothing()
            self.out += b"tR"
            return
        self._numbers(tensor, tensor._requires_grad)

    def _numbers(self, tensor: Any, requires_grad: bool) -> None:
        dtype, shape = tensor.dtype, tensor._shape_now()
        word = _STORAGE_OF.get(dtype)
        count = prod(shape)
        place = self._places.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
        self._name("torch._utils", "_rebuild_tensor_v2" if word else "_rebuild_tensor_v3")
        self.out += b"(("
        self.put("storage", "")
        self._name("torch", word) if word else self._name("torch.storage", "UntypedStorage")
        self.put(str(place), "")
        self.put("cpu", "")
        self._int(count if word else count * dtype.itemsize)
        self.out += b"tQ"  # a reference to the storage
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= max(1, size)
        self.put(0, "")
        self.put(tuple(shape), "")
        self.put(tuple(reversed(strides)), "")
        self.out += b"\x88" if requires_grad else b"\x89"
        self._nothing()
        if not word:
            self._name("torch", _WORD_OF[dtype])
        self.out += b"tR"

    def _nothing(self) -> None:
        """An OrderedDict without hooks."""
        self._name("collections", "OrderedDict")
        self.out += b")R"
