"""Calls in words: an ioctl as it was seen, by name with its fields and its status, and what its argument pointed to.

In       the file, the request, the argument before and after where they were recorded, the driver's release
Out      `DecodedCall`: the call's name, what was asked of whom, the fields that have a value, the status; nested_texts
Next     hcq/trace/ioctl_log.py (reads logs), decode.py (prints), hcq/nv/abi/names.py (of numbers),
         hcq/nv/abi/ioctls.py (layouts)
Source   nv-ioctl.h, uvm_ioctl.h: escapes are _IOWR('F', number, structure), UVM's requests are plain numbers

For people: what is not known is shown as numbers, and nothing raises. A call of another size than its release's
structure is named and not decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from hcq.layout import Ioctl, Packet
from hcq.nv.abi import ioctls as declared
from hcq.nv.abi import names
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.ioctls import Abi, abi_for
from hcq.nv.abi.status import BENIGN, describe_status
from hcq.system.ioctl_pointers import Pointer, named
from hcq.trace.calls import Call

MAGIC = ord("F")
UVM_NODE = "nvidia-uvm"
CLASS_FIELDS = ("hclass",)
SHOWN_ENTRIES = 8  # of an array behind a pointer
# UVM_INITIALIZE, UVM_DEINITIALIZE: the only ones with a form of their own
UVM_STARTS = (0x30000001, 0x30000002)
_CALLS: dict[int, Ioctl] = {one.request: one for one in vars(declared).values() if isinstance(one, Ioctl)}


@dataclass
class DecodedCall:
    """A call in words. `status` is None where the argument after the call was not recorded."""

    name: str
    what: str = ""  # the class that was allocated, the control that was asked
    fields: list[tuple[str, str]] = field(default_factory=list)
    status: int | None = None
    note: str = ""

    def line(self, release: int = 580) -> str:
        """One line: name, what, fields, status."""
        parts = [self.what] if self.what else []
        parts += [f"{name}={value}" for name, value in self.fields]
        text = f"{self.name}({', '.join(parts)})" if parts else self.name
        if self.status is not None:
            text += f" -> {describe_status(self.status, release) if self.status not in BENIGN else 'ok'}"
        return f"{text}  [{self.note}]" if self.note else text


def is_uvm(path: str, request: int) -> bool:
    """Whether a request is UVM's, by its file, or, where that was not recorded, by its form."""
    if path:
        return UVM_NODE in path
    return request in UVM_STARTS


def is_nvidia(path: str, request: int) -> bool:
    """Whether a call goes to NVIDIA's drivers: by its file, else by its form."""
    if path:
        return "/nvidia" in path and "nvidia-modeset" not in path and "nvidia-caps" not in path
    return request >> 8 & 0xFF == MAGIC or request in UVM_STARTS


def decode_call(
    abi: Abi, path: str, request: int, before: bytes = b"", after: bytes = b"", params: bytes = b""
) -> DecodedCall:
    """A call in words.

    before, after  the argument as it went in and came out; empty where it was not recorded
    params         what a control's or an allocation's pointer led to
    """
    if is_uvm(path, request):
        decoded = DecodedCall(names.uvm_name(request))
        return _fill(decoded, abi, _CALLS.get(request), 0, before, after, params)
    number, size = request & 0xFF, request >> 16 & 0x3FFF
    decoded = DecodedCall(names.escape_name(number))
    if request >> 8 & 0xFF != MAGIC:
        decoded.name = f"request {request:#010x}"
        return decoded
    same = [one for one in _CALLS.values() if one.request & 0xFFFF == request & 0xFFFF]
    return _fill(decoded, abi, same[0] if same else None, size, before, after, params)


def _fill(
    decoded: DecodedCall, abi: Abi, call: Ioctl | None, size: int, before: bytes, after: bytes, params: bytes
) -> DecodedCall:
    if call is None:
        decoded.note = f"{size} bytes, no layout here" if size else "no layout here"
        return decoded
    layout = abi.of(call)
    if size and size % layout.size_bytes:
        decoded.note = f"{size} bytes; release {abi.release} has {layout.size_bytes}: not decoded"
        return decoded
    given = layout.from_bytes(before or after) if before or after else None
    if given is None:
        return decoded
    _name_what(decoded, given)
    decoded.fields += _fields(given, skip=("status", "rmstatus", "cmd", "hclass"))
    if after:
        got = layout.from_bytes(after)
        decoded.status = got.values.get("rmstatus", got.values.get("status"))
        decoded.fields += [
            (f"{name} out", _value(name, value))
            for name, value in got.values.items()
            if before and name not in ("status", "rmstatus") and value != given.values[name]
        ]
    if params:
        decoded.fields += _params(abi, given, params)
    return decoded


def nested_texts(call: Call, pointers: Sequence[Pointer], release: str) -> list[str]:
    """What an ioctl's argument pointed to, a line for each block: its fields, and those that came back changed.

    pointers  as the vendor declares them for this call
    release   of NVIDIA's driver, whose structures differ from one to the next
    """
    found = []
    for block in call.nested:
        layout = _layout_of(call, block.name, pointers, release)
        text = _entries(layout, block.before, block.after)
        found.append(f"{block.name} ({len(block.before)} bytes at {block.va:#x}): {text}")
    return found


def _layout_of(call: Call, name: str, pointers: Sequence[Pointer], release: str) -> type[Packet] | None:
    """The structure behind a pointer: declared with it, or that of the control or class in this release."""
    pointer = named(pointers, name)
    if pointer is not None and pointer.layout is not None:
        return pointer.layout
    if name not in ("params", "pallocparms") or call.request >> 8 & 0xFF != MAGIC:
        return None
    abi = abi_for(release)
    declared_as = abi.of(declared.RM_CONTROL if name == "params" else declared.RM_ALLOC)
    structure = _params_name(declared_as.from_bytes(call.before))
    layout = abi.layout(structure) if structure else None
    # the caller's size decides: a structure of another one is shown as words
    sizes = [len(block.before) for block in call.nested if block.name == name]
    return layout if layout is not None and sizes[:1] == [layout.size_bytes] else None


def _entries(layout: type[Packet] | None, before: bytes, after: bytes) -> str:
    if layout is None:
        return _words(before) + (f" -> {_words(after)}" if after != before else "")
    size = layout.size_bytes if issubclass(layout, Args) else 4 * layout.length_words
    parts = []
    for at in range(0, max(len(before), 1), size):
        given, got = (_decoded(layout, data[at : at + size]) for data in (before, after))
        fields = [f"{name}={_value(name, value)}" for name, value in given.values.items() if value]
        changed = [
            f"{name}={_value(name, value)}"
            for name, value in got.values.items()
            if value != given.values[name]
        ]
        text = f"{layout.__name__}({', '.join(fields)})"
        parts.append(f"{text} -> {', '.join(changed)}" if changed else text)
    more = len(parts) - SHOWN_ENTRIES
    return "; ".join(parts[:SHOWN_ENTRIES]) + (f"; and {more} more" if more > 0 else "")


def _decoded(layout: type[Packet], data: bytes) -> Packet:
    whole = data.ljust(4 * layout.length_words, b"\0")
    return layout.decode(struct.unpack(f"<{layout.length_words}I", whole[: 4 * layout.length_words]))


def _name_what(decoded: DecodedCall, given: Args) -> None:
    if "cmd" in given.fields and "hobject" in given.fields:
        decoded.what = names.control_name(given.values["cmd"])
    elif "hclass" in given.fields:
        decoded.what = names.class_name(given.values["hclass"])


def _params(abi: Abi, given: Args, params: bytes) -> list[tuple[str, str]]:
    """The fields behind the pointer of a control or an allocation."""
    name = _params_name(given)
    if not name:
        return [("params", _words(params))]
    layout = abi.layout(name)
    if len(params) < layout.size_bytes:
        return [("params", _words(params))]
    return [(f"params.{field_}", value) for field_, value in _fields(layout.from_bytes(params))]


def _params_name(given: Args) -> str:
    """The structure that a control or an allocation takes; "" where nobody declared it."""
    if "cmd" in given.fields:
        return declared.CONTROLS.get(given.values["cmd"], "")
    number = given.values.get("hclass", 0)
    return declared.ALLOCATIONS.get(ClassId(number), "") if number in ClassId._value2member_map_ else ""


def _fields(args: Args, skip: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(name, _value(name, value)) for name, value in args.values.items() if value and name not in skip]


def _value(name: str, value: int) -> str:
    if name in CLASS_FIELDS:
        return names.class_name(value)
    if value.bit_length() > 64:
        text = value.to_bytes((value.bit_length() + 7) // 8, "little")
        printable = text.rstrip(b"\0")
        if printable and all(32 <= byte < 127 for byte in printable):
            return repr(printable.decode())
        return f"{text[:32].hex()}{'...' if len(text) > 32 else ''}"
    return f"{value:#x}"


def _words(data: bytes) -> str:
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, min(len(data), 64), 4)]
    return " ".join(f"{word:08x}" for word in words) + (" ..." if len(data) > 64 else "")
