"""GPU core files of ROCm: queues as they were, and their waves out of their context save areas.

In       the bytes of an ELF core file with a note of AMDGPU's: gpucore.PID, or the core file of a whole process
Out      Core: agents, queues, waves; lines for people, data for JSON
Next     hcq/amd/saved_waves.py (the waves of an area), ../waves.py (what is said of waves), dump.py (texts of ROCm)
Source   ROCr: amd_core_dump.cpp, amd_hsa_elf.h (NT_AMDGPU_CORE_STATE); kfd_ioctl.h: kfd_runtime_info,
         kfd_dbg_device_info_entry, kfd_queue_snapshot_entry, enum kfd_dbg_trap_exception_code. Samples are of our own
         making: no file of a real GPU was read

ROCr writes p_align of its segments as a shift, so it is not looked at. Rows of the note may grow: their length is in
it.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hcq.amd.chip import arch_of
from hcq.amd.saved_waves import SavedWave, waves_of
from hcq.errors import HcqError
from hcq.tools.trace import waves as wave_views
from hcq.tools.trace.color import Color, counted
from hcq.tools.trace.waves import MOST_WAVES, Wave, finish

ET_CORE, PT_LOAD, PT_NOTE = 4, 1, 4
NOTE_NAME, NOTE_TYPE = b"AMDGPU\0", 33
HEAD_BYTES = 40  # of the note, before its arrays
AGENT_BYTES, QUEUE_BYTES = 120, 64
MOST_SEGMENTS, MOST_ROWS = 1 << 16, 4096
MOST_NOTE_BYTES = 1 << 24
CODE_WORDS, SHOWN_VECTORS = 4, 4
QUEUE_TYPES = {0: "compute (PM4)", 1: "SDMA", 2: "compute (AQL)", 3: "SDMA of XGMI", 4: "SDMA by engine"}
EXCEPTIONS = {
    1: "a wave was aborted",
    2: "trap",
    3: "math error",
    4: "illegal instruction",
    5: "memory violation",
    6: "aperture violation",
    16: "packet: dispatch dimension invalid",
    17: "packet: group segment size invalid",
    18: "packet: code invalid",
    19: "packet reserved",
    20: "packet unsupported",
    21: "packet: workgroup size invalid",
    22: "packet: register invalid",
    23: "packet: vendor unsupported",
    30: "preemption error",
    31: "new queue",
    32: "queue deleted",
    33: "device: memory violation",
    34: "device: RAS error",
    35: "device: fatal halt",
    36: "new device",
}
_AGENT = struct.Struct("<7Q16I")
_QUEUE = struct.Struct("<5Q6I")
_AGENT_NAMES = (
    *(
        "exception_status",
        "lds_base",
        "lds_limit",
        "scratch_base",
        "scratch_limit",
        "gpuvm_base",
        "gpuvm_limit",
    ),
    *("gpu_id", "location_id", "vendor_id", "device_id", "revision_id", "subsystem_vendor_id"),
    *("subsystem_device_id", "fw_version", "gfx_target_version", "simd_count", "max_waves_per_simd"),
    *("array_count", "simd_arrays_per_engine", "num_xcc", "capability", "debug_prop"),
)
_QUEUE_NAMES = (
    *("exception_status", "ring_base_address", "write_pointer_address", "read_pointer_address"),
    *("ctx_save_restore_address", "queue_id", "gpu_id", "ring_size", "queue_type"),
    *("ctx_save_restore_area_size", "reserved"),
)


@dataclass
class Core:
    """What a core file says."""

    version: str = ""
    agents: list[dict[str, Any]] = field(default_factory=list)
    queues: list[dict[str, Any]] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)
    segments: int = 0
    notes: list[str] = field(default_factory=list)


def is_core(content: bytes) -> bool:
    """Whether it is an ELF core file of 64 bits with AMDGPU's note; what is cut off behind the note does not matter."""
    if (
        content[:6] != b"\x7fELF\x02\x01"
        or len(content) < 64
        or struct.unpack_from("<H", content, 16)[0] != ET_CORE
    ):
        return False
    return _note(content, _segments(content)) is not None


def read(content: bytes) -> Core:
    """A core file; nothing raises, whatever it is."""
    core = Core()
    segments = _segments(content)
    note = _note(content, segments) or b""
    memory = _Memory(content, segments)
    core.segments = len(memory.starts)
    if len(note) < HEAD_BYTES:
        core.notes.append(f"its note has {len(note)} bytes, and its head alone has {HEAD_BYTES}")
        return core
    version, major, minor, runtime_bytes, agents, agent_bytes, queues, queue_bytes = struct.unpack_from(
        "<QIIQ4I", note
    )
    core.version = f"{major}.{minor}"
    if version != 1:
        core.notes.append(f"its note is of version {version}; 1 is known here")
    at = HEAD_BYTES + -(-runtime_bytes // 8) * 8
    core.agents = _rows(note, at, agents, agent_bytes, _AGENT, _AGENT_NAMES, core, "agents")
    at += -(-agents * agent_bytes // 8) * 8
    core.queues = _rows(note, at, queues, queue_bytes, _QUEUE, _QUEUE_NAMES, core, "queues")
    for agent in core.agents:
        agent["arch"] = arch_of(agent["gfx_target_version"]) if agent["gfx_target_version"] else ""
    for queue in core.queues:
        _read_queue(core, queue, memory)
    return core


def _rows(
    note: bytes,
    at: int,
    count: int,
    size: int,
    form: struct.Struct,
    names: tuple[str, ...],
    core: Core,
    what: str,
) -> list[dict[str, Any]]:
    if count and size < form.size:
        core.notes.append(f"its {what} have {size} bytes each, and {form.size} are needed")
        return []
    room = max(0, len(note) - at) // max(size, 1)
    if count > min(room, MOST_ROWS):
        core.notes.append(f"it says that it has {count} {what}; {min(room, MOST_ROWS)} are there")
    number = range(min(count, room, MOST_ROWS))
    return [dict(zip(names, form.unpack_from(note, at + size * row))) for row in number]


def _read_queue(core: Core, queue: dict[str, Any], memory: _Memory) -> None:
    agent = next((one for one in core.agents if one["gpu_id"] == queue["gpu_id"]), None)
    arch = agent["arch"] if agent else ""
    name = f"queue {queue['queue_id']}"
    queue["kind"] = QUEUE_TYPES.get(queue["queue_type"], f"type {queue['queue_type']}")
    queue["exceptions"] = exceptions(queue["exception_status"])
    queue["arch"], queue["waves"] = arch, 0
    va, size = queue["ctx_save_restore_address"], queue["ctx_save_restore_area_size"]
    if not va or queue["queue_type"] not in (0, 2):
        return
    for xcc in range(min(agent["num_xcc"] or 1, 64) if agent else 1):
        area = memory.at(va + xcc * size, size)
        if len(area) < min(size, 16):
            core.notes.append(f"{name}: its context save area at {va + xcc * size:#x} is not in the file")
            return
        try:
            for saved in waves_of(area, arch):
                if len(core.waves) >= MOST_WAVES:
                    core.notes.append(f"there are more than {MOST_WAVES} waves: the rest is left out")
                    return
                core.waves.append(_wave(saved, name, xcc, arch, memory))
                queue["waves"] += 1
        except HcqError as refusal:
            core.notes.append(f"{name}: {refusal}")


def _wave(saved: SavedWave, queue: str, xcc: int, arch: str, memory: _Memory) -> Wave:
    where = f"wave {saved.number} of XCC {xcc}"
    if saved.group is not None:
        where = f"{saved.group}/{saved.place}".replace(" ", "")
    found = Wave(f"{queue} {where}", 0, saved.pc, saved.exec, saved.shape.lanes)
    found.registers = {**saved.registers, "vcc": saved.vcc}
    found.scalars = dict(enumerate(saved.scalars))
    if saved.has_vectors:
        count = min(SHOWN_VECTORS, saved.shape.vgprs)
        found.vectors = {number: list(saved.vector(number)) for number in range(count)}
    found.reason = saved.stopped_by
    code = memory.at(saved.pc, 4 * CODE_WORDS)
    found.words = list(struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4]))
    finish(found, arch)
    return found


def exceptions(status: int) -> list[str]:
    """What the bits of an exception status say."""
    return [
        EXCEPTIONS.get(bit + 1, f"exception {bit + 1}, which is not known")
        for bit in range(64)
        if status >> bit & 1
    ]


# ------------------------------------------------------------ the file


def _segments(content: bytes) -> list[tuple[int, int, int, int]]:
    """(type, offset, address, bytes in the file) of each."""
    if len(content) < 64:
        return []
    offset = struct.unpack_from("<Q", content, 32)[0]
    size, count = struct.unpack_from("<2H", content, 54)
    found = []
    for number in range(min(count, MOST_SEGMENTS)):
        at = offset + size * number
        if size < 56 or at + 56 > len(content):
            break
        kind, _, start, va, _, length = struct.unpack_from("<2I4Q", content, at)
        found.append((kind, start, va, length))
    return found


def _note(content: bytes, segments: list[tuple[int, int, int, int]]) -> bytes | None:
    """The contents of AMDGPU's note; None where there is none."""
    for kind, offset, _, size in segments:
        at, end = offset, min(offset + size, len(content), offset + MOST_NOTE_BYTES)
        while kind == PT_NOTE and at + 12 <= end:
            name_bytes, bytes_of, number = struct.unpack_from("<3I", content, at)
            data = at + 12 + -(-name_bytes // 4) * 4
            if number == NOTE_TYPE and content[at + 12 : at + 12 + name_bytes] == NOTE_NAME:
                return content[data : min(data + bytes_of, end)]
            at = data + -(-bytes_of // 4) * 4
    return None


class _Memory:
    """What the file has of memory, by address."""

    def __init__(self, content: bytes, segments: list[tuple[int, int, int, int]]) -> None:
        loads = sorted((va, offset, size) for kind, offset, va, size in segments if kind == PT_LOAD and size)
        self.starts = [va for va, _, _ in loads]
        self._loads, self._content = loads, memoryview(content)

    def at(self, va: int, size: int) -> memoryview:
        """The bytes from an address on; fewer where the file has no more of them in one piece."""
        number = bisect.bisect_right(self.starts, va) - 1
        if number < 0:
            return self._content[:0]
        start, offset, length = self._loads[number]
        inside = va - start
        if inside >= length:
            return self._content[:0]
        return self._content[offset + inside : offset + min(length, inside + size)]


# ------------------------------------------------------------ in words


def lines(core: Core, color: Color) -> Iterator[str]:
    """Queues, the stopped ones first, then waves that are alike together."""
    archs = ", ".join(dict.fromkeys(agent["arch"] or "a GPU that is not known" for agent in core.agents))
    yield color(
        f"core file of GPUs of ROCm: {archs or 'no GPU'}, KFD {core.version or 'not known'}", "heading"
    )
    for queue in sorted(core.queues, key=lambda one: not one["exceptions"]):
        why = f": {color(', '.join(queue['exceptions']), 'wrong')}" if queue["exceptions"] else ""
        yield f"  queue {queue['queue_id']}, {queue['kind']}, {counted(queue['waves'], 'wave')}{why}"
    for agent in core.agents:
        if named := exceptions(agent["exception_status"]):
            yield f"  gpu_id {agent['gpu_id']:#x}: {color(', '.join(named), 'wrong')}"
    for note in core.notes:
        yield f"  {note}"
    if core.waves:
        yield ""
        yield from wave_views.lines(core.waves, color)


def as_json(core: Core) -> dict[str, Any]:
    """The same as data."""
    return {
        "kind": "gpu core",
        "kfd": core.version,
        "agents": core.agents,
        "queues": core.queues,
        "segments": core.segments,
        "notes": core.notes,
        **wave_views.as_json(core.waves),
    }
