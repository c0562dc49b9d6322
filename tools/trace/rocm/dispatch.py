"""The packet of a queue that stopped, as HIP prints it: kernel, sizes, queue, pointers, put together to one event.

In       lines of text, one after the other
Out      an Event for each packet
Next     dump.py (who reads lines), faults.py (what is said of the queue), ../kernel_log/show.py (who prints events)
Source   texts of ROCm 6 and 7 in public reports; hsa.h (type and scopes of a packet's header)
"""

from __future__ import annotations

import re

from hcq.amd.abi.aql import PacketType
from hcq.tools.trace.color import counted
from hcq.tools.trace.kernel_log.event import Event

SPAN = 12  # lines from the first of a packet to its last
MARK = b"Dispatch Header =0x"
MOST_LANES = 1024  # of a workgroup
LDS_BYTES = 64 << 10  # of a workgroup, on most GPUs
SCOPES = {0: "none", 1: "GPU", 2: "system"}

_N, _X = r"(\d{1,20})", r"(0x[0-9a-fA-F]{1,16})"
_LIST = r"\[(\d{1,10}), ?(\d{1,10}), ?(\d{1,10})\]"
# Each line: its form, the names of its numbers.
_LINES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"Kernel Name: ?(\S.{0,300})"), ("kernel",)),
    (re.compile(rf"VGPU={_X} SWq={_X},? HWq={_X}, id={_N}"), ("", "software_queue", "queue", "queue_id")),
    (
        re.compile(
            rf"Dispatch Header ?={_X}(?: \(type={_N}, barrier={_N}, acquire={_N}, release={_N}\))?(?:, setup={_N})?"
        ),
        ("header", "type", "barrier", "acquire", "release", "setup"),
    ),
    (
        re.compile(rf"grid=(?:{_LIST}), workgroup=(?:{_LIST})"),
        ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    ),
    (re.compile(rf"private_seg_size={_N}, group_seg_size={_N}"), ("private_bytes", "lds_bytes")),
    (re.compile(rf"kernel_obj={_X}, kernarg_address=(?:0x)?{_X}"), ("kernel_object", "arguments")),
    (re.compile(rf"completion_signal=(?:0x)?{_X}, correlation_id={_N}"), ("signal", "")),
    (re.compile(rf"rptr={_N}, wptr={_N}"), ("read", "write")),
)
_FIRST = 3  # so many of these lines can be the first of a packet


class Dispatches:
    """The packets of a text, line by line."""

    def __init__(self) -> None:
        self.last: Event | None = None

    def take(self, number: int, line: str) -> tuple[bool, Event | None]:
        """Whether a line is one of a packet, and the event where it begins one."""
        if "=" not in line and "Kernel Name:" not in line:
            return False, None
        for at, (form, names) in enumerate(_LINES):
            if found := form.match(line):
                named = {
                    name: value.strip() if name == "kernel" else _number(value)
                    for name, value in zip(names, found.groups())
                    if name and value
                }
                return self._add(number, named, at < _FIRST, is_new=not at)
        return False, None

    def _add(
        self, number: int, named: dict[str, int | str], may_begin: bool, *, is_new: bool
    ) -> tuple[bool, Event | None]:
        last = None if is_new else self.last
        if last is not None and number - last.line < SPAN and not named.keys() & last.fields.keys():
            last.fields.update(named)
            last.lines.append(number)
            return True, None
        if not may_begin:
            return False, None
        self.last = Event("packet", number, "notice", fields=dict(named), lines=[number])
        return True, self.last


def finish(event: Event) -> None:
    """The sentence, once all lines of a packet are there; numbers in words."""
    known = event.fields
    said = f"the queue {known['queue']:#x}" if "queue" in known else "a queue"
    event.sentence = (
        f"{said} stood at a packet of {known.get('kernel', 'a kernel whose name is not printed')}"
    )
    if "grid_x" in known:
        grid, block = ([known.pop(f"{what}_{axis}") for axis in "xyz"] for what in ("grid", "block"))
        known["grid"], known["workgroup"] = grid, block
        event.sentence += f", {_by(grid)} work-items in workgroups of {_by(block)}"
        lanes = block[0] * block[1] * block[2]
        if not 0 < lanes <= MOST_LANES:
            event.notes.append(f"a workgroup of {lanes} work-items: a GPU has 1 to {MOST_LANES} in one")
    if known.get("lds_bytes"):
        event.sentence += f", {known['lds_bytes']} bytes of LDS"
        if known["lds_bytes"] > LDS_BYTES:
            event.notes.append(f"most GPUs have {LDS_BYTES} bytes of LDS for a workgroup; gfx950 has 163840")
    if known.get("private_bytes"):
        event.sentence += f", {known['private_bytes']} bytes of scratch a work-item"
    if "read" in known and "write" in known:
        left = known["write"] - known["read"]
        event.sentence += f"; {counted(left, 'packet')} not done, from it on" if left >= 0 else ""
    if "type" in known:
        number = known["type"]
        known["type"] = PacketType(number).name if number in list(PacketType) else f"unknown type {number}"
        for name in ("acquire", "release"):
            known[name] = SCOPES.get(known[name], f"unknown scope {known[name]}")
    event.fields = {name: _shown(name, value) for name, value in known.items()}
    event.meaning = (
        "what the runtime found at the queue's read pointer when it stopped: the kernel that failed, mostly"
    )
    event.advice = (
        "with AMD_SERIALIZE_KERNEL=3 one kernel runs at a time: this one then. Look at sizes and arguments"
    )


def _by(sizes: list[int]) -> str:
    return "x".join(str(size) for size in sizes)


def _number(text: str) -> int:
    return int(text, 16 if text.startswith("0x") else 10)


def _shown(name: str, value: object) -> object:
    is_hex = name in ("software_queue", "queue", "header", "kernel_object", "arguments", "signal")
    return f"{value:#x}" if is_hex and isinstance(value, int) else value
