"""Metadata: what a code object's note says of its kernels, in MessagePack, read trusting no length in it.

In       the bytes of an AMDGPU note
Out      KernelMetadata by the kernel's symbol: the arguments with their offsets, sizes and kinds
Next     link.py (who finds the note), program.py (who packs arguments by this)
Source   LLVM AMDGPUUsage, "Code Object V3+ Metadata"; the MessagePack specification
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hcq.code.elf import Object
from hcq.errors import UsageError

NOTE_OWNER, NOTE_TYPE = b"AMDGPU\0", 32
MAX_DEPTH = 16
MAX_NUMBER = (1 << 32) - 1
FIRST_KEYS = (b"\xab.agpr_count", b"\xa5.args", b"\xb9.group_segment_fixed_size")  # of a kernel's table

_FIXED = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_LENGTHS = {
    0xC4: (">B", bytes),
    0xC5: (">H", bytes),
    0xC6: (">I", bytes),
    0xD9: (">B", str),
    0xDA: (">H", str),
    0xDB: (">I", str),
    0xDC: (">H", list),
    0xDD: (">I", list),
    0xDE: (">H", dict),
    0xDF: (">I", dict),
}


# what follows a kernel's own arguments from code object version 5 on, whether a table says so or not: offset, size
IMPLICIT_BYTES = 256
_IMPLICIT = {
    "block_count_x": (0, 4),
    "block_count_y": (4, 4),
    "block_count_z": (8, 4),
    "group_size_x": (12, 2),
    "group_size_y": (14, 2),
    "group_size_z": (16, 2),
    "grid_dims": (64, 2),
    "hostcall_buffer": (80, 8),
    "dynamic_lds_size": (120, 4),
    "private_base": (192, 4),
    "shared_base": (196, 4),
    "queue_ptr": (200, 8),
}


class BadMessage(ValueError):
    """The bytes are no MessagePack, or are cut off."""


@dataclass(frozen=True)
class Argument:
    """One parameter: where it is in the argument segment, and what it is."""

    name: str
    offset: int
    size_bytes: int
    value_kind: str  # by_value, global_buffer, hidden_block_count_x, ...
    type_name: str

    @property
    def is_hidden(self) -> bool:
        """Whether the runtime gives it, not the caller."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True)
class KernelMetadata:
    """What an object's notes say of one kernel, beyond its descriptor.

    symbol          of its descriptor; `name` is for people, and may be another
    max_threads     in a workgroup
    required_block  the one size of workgroup that it was compiled for, or None
    most_groups     of a grid, in each direction
    """

    name: str
    symbol: str
    args: tuple[Argument, ...]
    kernarg_bytes: int
    max_threads: int
    required_block: tuple[int, int, int] | None = None
    most_groups: tuple[int, int, int] = (MAX_NUMBER,) * 3


def unpack(data: bytes) -> Any:
    """The one value that these bytes hold. Raises BadMessage."""
    value, _ = _value(data, 0, 0)
    return value


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise BadMessage(f"nested more than {MAX_DEPTH} deep")
    tag = _take(data, at, 1)[0]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag < 0x90:
        return _map(data, at, tag & 15, depth)
    if tag < 0xA0:
        return _array(data, at, tag & 15, depth)
    if tag < 0xC0:
        return _text(data, at, tag & 31), at + (tag & 31)
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in _FIXED:
        size = struct.calcsize(_FIXED[tag])
        return struct.unpack(_FIXED[tag], _take(data, at, size))[0], at + size
    if tag in _LENGTHS:
        text, kind = _LENGTHS[tag]
        size = struct.calcsize(text)
        count = struct.unpack(text, _take(data, at, size))[0]
        at += size
        if kind is dict:
            return _map(data, at, count, depth)
        if kind is list:
            return _array(data, at, count, depth)
        return (_text(data, at, count) if kind is str else _take(data, at, count)), at + count
    raise BadMessage(f"byte {at - 1} is {tag:#x}, which starts nothing known")


def _take(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise BadMessage(f"a value would end at byte {at + size} of {len(data)}")
    return data[at : at + size]


def _text(data: bytes, at: int, size: int) -> str:
    return _take(data, at, size).decode("utf-8", "replace")


def _array(data: bytes, at: int, count: int, depth: int) -> tuple[list[Any], int]:
    found = []
    for _ in range(count):
        value, at = _value(data, at, depth + 1)
        found.append(value)
    return found, at


def _map(data: bytes, at: int, count: int, depth: int) -> tuple[dict[str, Any], int]:
    found = {}
    for _ in range(count):
        key, at = _value(data, at, depth + 1)
        found[str(key)], at = _value(data, at, depth + 1)
    return found, at


def kernels_of(image: Object) -> dict[str, KernelMetadata]:
    """The kernels that an object's AMDGPU note describes, by their symbols without .kd; none when it has no note."""
    for data in image.notes():
        for owner, kind, content in _notes(image, data):
            if owner == NOTE_OWNER and kind == NOTE_TYPE:
                return _kernels(image, content)
    return {}


def kernel_of(image: Object, name: str) -> KernelMetadata | None:
    """One kernel of an object that may have thousands, read alone: its table is found by its symbol.

    None where there is no such kernel, or what is said of it makes no sense.
    """
    symbol = f"{name}.kd".encode()
    try:
        for data in image.notes():
            for owner, kind, content in _notes(image, data):
                if owner == NOTE_OWNER and kind == NOTE_TYPE:
                    return _one_kernel(content, symbol) or _kernels(image, content).get(name)
    except UsageError:
        return None
    return None


def _one_kernel(content: bytes, symbol: bytes) -> KernelMetadata | None:
    """The table of a symbol: keys are sorted, as LLVM writes them, so it begins right before the last first key."""
    end = content.find(symbol)
    while end >= 0:
        for first in FIRST_KEYS:
            at = content.rfind(first, 0, end)
            for back in (1, 3) if at >= 0 else ():  # a table of up to 15 keys, and a larger one
                try:
                    entry, _ = _value(content, max(at - back, 0), 0)
                    if isinstance(entry, dict) and entry.get(".symbol") == symbol.decode():
                        return _kernel(entry)
                except (BadMessage, TypeError, ValueError, AttributeError, KeyError):
                    continue
        end = content.find(symbol, end + 1)
    return None


def _notes(image: Object, data: bytes) -> list[tuple[bytes, int, bytes]]:
    found = []
    at = 0
    while at + 12 <= len(data):
        name_size, content_size, kind = struct.unpack_from("<III", data, at)
        at += 12
        end = at + (name_size + 3 & ~3) + content_size
        if end > len(data):
            raise image.refuse(f"a note would end at byte {end} of {len(data)}")
        found.append((data[at : at + name_size], kind, data[end - content_size : end]))
        at = end + 3 & ~3
    return found


def _kernels(image: Object, content: bytes) -> dict[str, KernelMetadata]:
    try:
        top = unpack(content)
        listed = top.get("amdhsa.kernels", []) if isinstance(top, dict) else []
        found = [_kernel(entry) for entry in listed]
    except (BadMessage, TypeError, ValueError, AttributeError, KeyError) as error:
        raise image.refuse(f"its metadata makes no sense ({error})") from None
    return {kernel.symbol.removesuffix(".kd") or kernel.name: kernel for kernel in found}


def implicit_arguments(start: int) -> tuple[Argument, ...]:
    """The hidden arguments that we can give, where no table says which of them a kernel has."""
    return tuple(
        Argument("", start + at, size, f"hidden_{kind}", "") for kind, (at, size) in _IMPLICIT.items()
    )


def _kernel(entry: dict[str, Any]) -> KernelMetadata:
    args = tuple(_argument(arg) for arg in entry.get(".args", []))
    size = _number(entry, ".kernarg_segment_size", 0)
    name = str(entry[".name"])
    _check_places(name, args, size)
    return KernelMetadata(
        name=name,
        symbol=str(entry.get(".symbol", "")),
        args=args,
        kernarg_bytes=size,
        max_threads=_number(entry, ".max_flat_workgroup_size", 1024),
        required_block=_required_block(entry),
        most_groups=(
            _number(entry, ".max_num_workgroups_x", MAX_NUMBER),
            _number(entry, ".max_num_workgroups_y", MAX_NUMBER),
            _number(entry, ".max_num_workgroups_z", MAX_NUMBER),
        ),
    )


def _check_places(kernel: str, args: Sequence[Argument], size_bytes: int) -> None:
    """Each argument has bytes of the segment, and none of another's. Raises ValueError."""
    before, end = "", 0
    for number, arg in sorted(enumerate(args), key=lambda each: each[1].offset):
        text = f"argument {number}{f' ({arg.name})' if arg.name else ''} of {kernel!r}"
        if arg.offset < end:
            raise ValueError(f"{text} at {arg.offset} overlaps {before}, which ends at {end}")
        before, end = f"argument {number}", arg.offset + arg.size_bytes
        if end > size_bytes:
            raise ValueError(f"{text} ends at {end} of {size_bytes} bytes")


def _required_block(entry: dict[str, Any]) -> tuple[int, int, int] | None:
    value = entry.get(".reqd_workgroup_size")
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) != 3
        or not all(type(n) is int and 0 < n <= MAX_NUMBER for n in value)
    ):
        raise ValueError(f".reqd_workgroup_size is {value!r}")
    return value[0], value[1], value[2]


def _argument(entry: dict[str, Any]) -> Argument:
    return Argument(
        name=str(entry.get(".name", "")),
        offset=_number(entry, ".offset", None),
        size_bytes=_number(entry, ".size", None),
        value_kind=str(entry[".value_kind"]),
        type_name=str(entry.get(".type_name", "")),
    )


def _number(entry: dict[str, Any], key: str, default: int | None) -> int:
    value = entry.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise ValueError(f"{key} is {value!r}")
    return value
