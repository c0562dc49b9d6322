"""Calls of AMD's kernel drivers in other people's logs: /dev/kfd and render nodes, by name with the structure's fields.

In       a Call of hcq/trace/ioctl_log.py: the file, the request as a number or as strace's name for it, bytes where
         there are any
Out      DecodedCall: the call's name, the fields that have a value, those that came back changed
Next     decode.py (prints), hcq/amd/abi/kfd.py, hcq/amd/abi/drm.py and hcq/amd/abi/other_calls.py (the structures)
Source   linux/kfd_ioctl.h, drm/amdgpu_drm.h: _IOWR('K', number, structure), _IOWR('d', 0x40 + number, structure)

A structure of the KFD grows and keeps its old fields in front: the request's size says how much of it there is. What is
not known is shown as numbers; nothing raises.
"""

from __future__ import annotations

import re

from hcq.amd.abi import other_calls
from hcq.amd.abi.kfd import CREATE_PROCESS, KFD_IOCTLS, AllocFlags, AllocMemoryOfGpuArgs
from hcq.amd.abi.other_calls import OtherCall
from hcq.layout import Packet
from hcq.tools.trace.ioctl_decode import DecodedCall
from hcq.trace.ioctl_log import Call

KFD_NODE, RENDER_NODES = "/dev/kfd", "/dev/dri/"
KFD, DRM = ord("K"), ord("d")  # the type byte of a request
KFD_PREFIX, DRM_PREFIX, AMDGPU_PREFIX = "AMDKFD_IOC_", "DRM_IOCTL_", "DRM_IOCTL_AMDGPU_"


def is_amd(call: Call) -> bool:
    """Whether a call goes to AMD's drivers: by its file and name, else by a form that no other driver has."""
    kind, number = call.request >> 8 & 0xFF, call.request & 0xFF
    if call.path == KFD_NODE or call.name.startswith(KFD_PREFIX):
        return True
    if AMDGPU_PREFIX in call.name:
        return True
    if call.path.startswith(RENDER_NODES):
        if not call.request:
            return _named(call.name, DRM_PREFIX, other_calls.calls("DRM")) is not None
        return kind == DRM and (number in other_calls.calls("DRM") or _is_of_amdgpu(call.request))
    # a terminal's calls have the same letter; they have neither a direction nor a size
    return not call.path and kind == KFD and bool(call.request >> 30) and bool(_kfd(number).layout)


def decode_call(call: Call) -> DecodedCall:
    """The call in words; what it returned is its status."""
    decoded = _decoded(call)
    if call.result is not None and call.result >= 0 and not call.error:
        decoded.status = 0
    return decoded


def _decoded(call: Call) -> DecodedCall:
    if call.path.startswith(RENDER_NODES) or DRM_PREFIX in call.name or call.request >> 8 & 0xFF == DRM:
        return _drm_call(call)
    if not call.request:
        number = _named(
            call.name, KFD_PREFIX, {at: _kfd(at) for at in {*KFD_IOCTLS, *other_calls.calls("KFD")}}
        )
        if number is None:
            return DecodedCall(call.name or "unknown call of the KFD", note="no layout here")
        return _filled(DecodedCall(call.name), _kfd(number), 0, call)
    number = call.request & 0xFF
    known = _kfd(number)
    if call.request >> 8 & 0xFF != KFD:
        return DecodedCall(f"request {call.request:#010x}", note="none of the KFD's")
    name = f"{KFD_PREFIX}{known.name}" if known.name else f"KFD call {number:#x}"
    return _filled(DecodedCall(name), known, call.request >> 16 & 0x3FFF, call)


def layout_of(request: int) -> type[Packet] | None:
    """The argument of a request of AMD's drivers; None where it is declared nowhere here."""
    number = request & 0xFF
    if request >> 8 & 0xFF == KFD:
        return _kfd(number).layout
    return {**other_calls.calls("DRM"), **other_calls.calls("AMDGPU")}.get(number, OtherCall("")).layout


def _drm_call(call: Call) -> DecodedCall:
    number = call.request & 0xFF
    if not call.request:
        name = next((name for name in _names(call.name) if name.startswith(AMDGPU_PREFIX)), "")
        table, prefix = other_calls.calls("AMDGPU"), AMDGPU_PREFIX
        if not name:
            name, table, prefix = call.name, other_calls.calls("DRM"), DRM_PREFIX
        found = _named(name, prefix, table)
        decoded = DecodedCall(name)
        return _filled(decoded, table[found] if found is not None else OtherCall(""), 0, call)
    size = call.request >> 16 & 0x3FFF
    if other_calls.FIRST_OF_DRIVER <= number <= other_calls.LAST_OF_DRIVER:
        known = other_calls.calls("AMDGPU").get(number, OtherCall(""))
        name = f"{AMDGPU_PREFIX}{known.name}" if known.name else f"amdgpu call {number - 0x40:#x}"
    else:
        known = other_calls.calls("DRM").get(number, OtherCall(""))
        name = f"{DRM_PREFIX}{known.name}" if known.name else f"DRM call {number:#x}"
    return _filled(DecodedCall(name), known, size, call)


def _filled(decoded: DecodedCall, known: OtherCall, size: int, call: Call) -> DecodedCall:
    layout = known.layout
    if layout is None and known.name != CREATE_PROCESS.name:  # which takes no argument
        decoded.note = f"{size} bytes, no layout here" if size else "no layout here"
    elif layout is not None and size and size not in known.known_sizes:
        grown = "longer" if size > 4 * layout.length_words else "shorter"
        decoded.note = f"{size} bytes, {grown} than the {4 * layout.length_words} known here"
    if layout is None or not (call.before or call.after):
        return decoded
    given = _packet(layout, call.before or call.after, size)
    if call.before or known.answer is None:
        decoded.fields += [
            (name, _shown(layout, name, value)) for name, value in given.values.items() if value
        ]
    if call.after:
        got = _packet(known.answer or layout, call.after, size)
        is_same = known.answer is None
        decoded.fields += [
            (f"{name} out", _shown(type(got), name, value))
            for name, value in got.values.items()
            if (call.before and value != given.values[name] if is_same else value)
        ]
    return decoded


def _shown(layout: type[Packet], name: str, value: int) -> str:
    """A value as text: where the memory is, too, and how it may be used."""
    if layout is AllocMemoryOfGpuArgs and name == "flags":
        known = [flag.name or "" for flag in AllocFlags if value & flag]
        rest = value & ~sum(AllocFlags)
        return "|".join([*known, *([f"{rest:#x}"] if rest else [])])
    return layout.fields[name].show(value)


def _packet(layout: type[Packet], data: bytes, size: int) -> Packet:
    """The bytes as a structure: no more than the request says, and zeros for what is missing."""
    limit = min(4 * layout.length_words, size or 4 * layout.length_words)
    whole = data[:limit].ljust(4 * layout.length_words, b"\0")
    return layout.decode([int.from_bytes(whole[at : at + 4], "little") for at in range(0, len(whole), 4)])


def _kfd(number: int) -> OtherCall:
    """A call of the KFD by its number, one that this driver makes or another; without a name when nobody knows it."""
    ours = KFD_IOCTLS.get(number)
    if ours is not None:
        return OtherCall(ours.name, ours.layout if ours.size_bytes else None)
    return other_calls.calls("KFD").get(number, OtherCall(""))


def _is_of_amdgpu(request: int) -> bool:
    """Whether a request of a driver's own has the size that amdgpu's has: other drivers use the same numbers."""
    known = other_calls.calls("AMDGPU").get(request & 0xFF)
    return known is not None and request >> 16 & 0x3FFF in known.known_sizes


def _names(text: str) -> list[str]:
    """strace joins the names of all drivers that use a number: A or B or C."""
    return re.split(r"\s+or\s+", text)


def _named(text: str, prefix: str, table: dict[int, OtherCall]) -> int | None:
    for name in _names(text):
        for number, known in table.items():
            if name == prefix + known.name:
                return number
    return None
