"""Waves of a real GPU: the compute queue is taken off it, its waves are read from the save area, and it goes on.

In       an open device; its programs, by where their code begins
Out      `kernels`: Kernels with their waves, those that are alike together, for reports
Changes  the queue stands still meanwhile. One that a fault evicted stays off
Next     saved_waves.py (who reads the area), hcq/observe/report_waves.py (who asks), docs/reports.md (when)
Source   kfd_ioctl_update_queue, kfd_ioctl_get_queue_wave_state of kfd_chardev.c; get_wave_state of
         kfd_device_queue_manager.c: a compute queue that is not active. ROCdbgapi: src/queue.cpp. No hardware has run
         this

UPDATE_QUEUE with a percentage of 0 returns once the waves are saved. A wave that refuses makes the kernel driver give
up after some seconds, and reset the GPU. That is why reports do it only for a wait that timed out or a device that
stopped.
"""

from __future__ import annotations

import contextlib
import errno
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hcq import backends
from hcq.amd.abi import kfd
from hcq.amd.encode import COMPUTE
from hcq.amd.ioctl import call
from hcq.amd.link import Linked
from hcq.amd.rings import RING_BYTES, Ring
from hcq.amd.saved_waves import SavedWave, waves_of
from hcq.backend import load
from hcq.errors import DriverError, HcqError
from hcq.events.waves import Kernel, Wave, active_text, groups_text
from hcq.system import native

PRIORITY = 7  # what CREATE_QUEUE is called with
SHOWN_SCALARS, SHOWN_VECTORS, SHOWN_LANES, SHOWN_LDS = 8, 4, 4, 16
SHOWN_GROUPS = 6
BARRIER = "the barrier of its workgroup"


def kernels(device: Any, programs: Mapping[int, Any]) -> list[Kernel]:
    """What runs on an AMD device, or stopped there.

    programs  those that it may be, by the address of their code
    Raises    DriverError when the kernel driver refuses, or the area cannot be read; the queue goes on all the same
    """
    ring = device.rings.get(COMPUTE)
    if ring is None or ring.save_area is None:
        raise DriverError(f"{device.name}: it has no compute queue now.")
    with _off(device, ring):
        found = [wave for xcc in range(device.node.xccs) for wave in _slice(device.arch, ring, xcc)]
    return list(_kernels(device, found, programs))


@contextlib.contextmanager
def _off(device: Any, ring: Ring) -> Iterator[None]:
    """The queue is off the GPU, and its area's headers say what is in it."""
    where = {"queue_id": ring.queue_id, "ctl_stack_address": ring.save_area.va if ring.save_area else 0}
    try:
        call(device.port, device.kfd_fd, kfd.GET_QUEUE_WAVE_STATE, **where)  # after a fault it is off already
        yield
        return
    except DriverError as refusal:
        if refusal.errno != errno.EINVAL:
            raise
    if ring.kind == "AQL" and device.chip.needs_privilege:
        raise DriverError(
            f"{device.arch} restores waves only of kernels that ask for it, which packets of AQL queues cannot: the "
            "queue stays where it is. HCQ_AMD_QUEUE=pm4 can be looked into."
        )
    _set(device, ring, 0)
    try:
        call(device.port, device.kfd_fd, kfd.GET_QUEUE_WAVE_STATE, **where)
        yield
    finally:
        _set(device, ring, 100)


def _set(device: Any, ring: Ring, percentage: int) -> None:
    call(
        device.port,
        device.kfd_fd,
        kfd.UPDATE_QUEUE,
        queue_id=ring.queue_id,
        ring_base_address=ring.ring.va,
        ring_size=RING_BYTES,
        queue_percentage=percentage,
        queue_priority=PRIORITY,
    )


def _slice(arch: str, ring: Ring, xcc: int) -> list[SavedWave]:
    """The waves of one XCC, with copies of their registers: the queue goes on, and its area is used again."""
    assert ring.save_area is not None
    size = ring.save_bytes
    area = memoryview(native.view(ring.save_area.va + xcc * size, size))
    header = kfd.ContextSaveAreaHeader.decode(area[:40].cast("I"))
    return list(waves_of(memoryview(bytes(area[: min(size, header.wave_state_offset)])), arch))


# ------------------------------------------------------------ as reports have it


def _kernels(device: Any, found: Sequence[SavedWave], programs: Mapping[int, Any]) -> Iterator[Kernel]:
    by_entry: dict[int, list[SavedWave]] = defaultdict(list)
    entries = sorted(programs)
    for wave in found:
        below = [entry for entry in entries if entry <= wave.pc < _end(programs[entry])]
        by_entry[below[-1] if below else 0].append(wave)
    for entry, those in by_entry.items():
        texts = _instructions(device, programs[entry]) if entry else {}
        alike: dict[tuple[Any, ...], list[SavedWave]] = defaultdict(list)
        for wave in those:
            alike[wave.pc, wave.exec, wave.is_at_barrier, wave.stopped_by].append(wave)
        groups = sorted(alike.values(), key=len, reverse=True)
        shown = tuple(_alike(same, texts.get(same[0].pc - entry, "")) for same in groups)
        yield Kernel(entry, "" if entry else "of code that this device did not load", shown)


def _end(program: Any) -> int:
    return int(program.code.address + program.code.size_bytes)


def _instructions(device: Any, program: Any) -> dict[int, str]:
    """The instructions of a kernel by their offsets, as far as somebody here can read them; else words."""
    entry, image = program.origin
    with contextlib.suppress(HcqError):
        lines = load(backends.of("AMD").disassembler)(
            image, device.arch, program.kernel.name or entry, program.name
        )
        return {line.offset: line.text for line in lines}
    with contextlib.suppress(HcqError):
        linked = Linked(image, device.chip, program.name, device.node.has_sramecc)
        code = linked.place(program.code_va - program.kernel.start_offset)[program.kernel.start_offset :]
        words = memoryview(code[: len(code) // 4 * 4]).cast("I")
        return {4 * at: f"the word {word:08x}" for at, word in enumerate(words)}
    return {}


def _alike(same: Sequence[SavedWave], instruction: str) -> Wave:
    one = same[0]
    waits = BARRIER if one.is_at_barrier or instruction.startswith("s_barrier") else ""
    return Wave(
        "wave",
        len(same),
        _groups(same),
        one.pc,
        "",
        instruction or "an instruction that is not known",
        active_text(one.exec, one.shape.lanes, "exec"),
        waits,
        stopped_by=one.stopped_by,
        registers=tuple(_registers(one)),
    )


def _groups(same: Sequence[SavedWave]) -> str:
    """Workgroups in words, as far as they are known."""
    found = sorted({wave.group for wave in same if wave.group is not None})
    if not found:
        return "groups that are not known"
    if not any(y or z for _, y, z in found):
        return groups_text(x for x, _, _ in found)
    more = ", ..." if len(found) > SHOWN_GROUPS else ""
    return f"group{'s' * (len(found) > 1)} {', '.join(str(one) for one in found[:SHOWN_GROUPS])}{more}"


def _registers(wave: SavedWave) -> Iterator[str]:
    """Registers of one wave, as many as fit a few lines."""
    hardware = {"vcc": wave.vcc, **wave.registers}
    yield " ".join(f"{name}={value:#x}" for name, value in hardware.items())
    yield "s0.. " + " ".join(f"{value:08x}" for value in wave.scalars[:SHOWN_SCALARS])
    if not wave.has_vectors:
        yield "its vector registers were given back before its end"
        return
    lanes = [lane for lane in range(wave.shape.lanes) if wave.exec >> lane & 1][:SHOWN_LANES]
    for number in range(min(SHOWN_VECTORS, wave.shape.vgprs)):
        value = wave.vector(number)
        if lanes:
            yield f"v{number} of lanes {lanes[0]}.. " + " ".join(f"{value[lane]:08x}" for lane in lanes)
    if lds := wave.lds:
        words = memoryview(lds[: 4 * SHOWN_LDS]).cast("I")
        yield f"LDS of its workgroup, {len(lds)} bytes: " + " ".join(f"{word:08x}" for word in words)
