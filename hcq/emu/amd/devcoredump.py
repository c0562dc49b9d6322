"""Devcoredumps of emulated GPUs: what hung, in the text that amdgpu writes after a hang.

In       a GPU as one process has it, the queue that hangs, and the page fault, if that was it
Out      Hang, a copy of everything that the text says, taken at once; `text`, the dump, made when somebody reads it
Changes  `keep` changes what /sys/class/drm/card<n>/device/devcoredump/data holds, and writes a file where
         HCQ_DUMP_DIR names a folder
Next     process_gpu.py (who knows of hangs), kfd.py (who has this called), sysfs.py (the file),
         tools/trace/devcoredump/ (the reader, which shares nothing with this)
Source   amdgpu_dev_coredump.c (the sections), amdgpu_ring.h (types of rings), gfx_v11_0.c, gfx_v12_0.c, gfx_v9_4_3.c,
         sdma_v6_0.c (names of registers), of Linux

The queues of processes are not among the rings of a real dump, which has the kernel's own. Here they are, under names
that say so: kfd_pm4_<me>.<pipe>.<queue>, kfd_aql_..., kfd_sdma<engine>.<queue>. What an emulated GPU does not have
(firmware, video, graphics) is left out. CP_HQD_IB_... are of the innermost indirect buffer that runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hcq import config
from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.abi.page_fault import NO_READ, NO_WRITE, NOT_VALID, PAGE_BYTES, ProtectionFaultStatus
from hcq.emu.amd import ip_discovery
from hcq.emu.amd.aql_processor import AqlQueue
from hcq.emu.amd.kfd_topology import VRAM_BYTES
from hcq.emu.amd.pm4_processor import Pm4Queue
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.pages import HOST_BYTES
from hcq.system import private_files

if TYPE_CHECKING:
    from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu

COMPUTE, COPY = 1, 2  # AMDGPU_RING_TYPE_COMPUTE, AMDGPU_RING_TYPE_SDMA
VMID = 8  # the first one that amdgpu gives to processes of the KFD
PIPES = 4  # of a MEC
MAX_IBS, MAX_IB_WORDS, MAX_RING_BYTES = 64, 1 << 20, 1 << 26
OLD_REGISTERS = ("gfx90a", "gfx1030")  # their names begin with mm, those of later parts with reg
_COPY_QUEUES = {
    "gfx90a": "SDMA0_RLC",
    "gfx1030": "SDMA0_RLC",
    "gfx942": "SDMA_RLC",
    "gfx950": "SDMA_RLC",
}  # what the registers of one are called; others: QUEUE
HEADERS = 8  # of CP_MEC_ME1_HEADER_DUMP
CLIENT_CPC, CLIENT_TCP, CLIENT_SDMA0 = 5, 8, 0xD  # of the gfxhub, as page_fault.py names them


class Ring(NamedTuple):
    """A ring as it is in memory. Pointers and `words` count words; pointers only rise."""

    name: str
    rptr: int
    wptr: int
    words: tuple[int, ...]


class Indirect(NamedTuple):
    """An indirect buffer."""

    va: int
    words: tuple[int, ...]


class Block(NamedTuple):
    """Registers of one block of the GPU: lines that stand before them, then names with values."""

    name: str
    heads: tuple[str, ...]
    registers: tuple[tuple[str, int], ...]


class Hang(NamedTuple):
    """Everything that the text says.

    fault  the address of the page and the status word; zeros when there was none
    """

    arch: str
    device_id: int
    time_ns: int
    process: str
    pid: int
    ring: str
    ring_type: int
    fault: tuple[int, int]
    blocks: tuple[Block, ...]
    rings: tuple[Ring, ...]
    buffers: tuple[Indirect, ...]


# ------------------------------------------------------------ what is


def take(gpu: ProcessGpu, queue: EmulatedQueue, fault: PageFault | None = None) -> Hang:
    """All of it as it is now. Memory that is no longer mapped is left out."""
    process = ""
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{gpu.pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    address, status = 0, 0
    if fault is not None:
        address = fault.address & -PAGE_BYTES
        status = _status(gpu, queue, fault)
    queues = [queue, *(other for other in gpu.queues.values() if other is not queue)]
    return Hang(
        gpu.chip.arch,
        gpu.node.spec.size.device_id,
        time.time_ns(),
        process if gpu.pid else "",
        gpu.pid,
        _name(queue),
        COPY if isinstance(queue, SdmaQueue) else COMPUTE,
        (address, status),
        tuple(_blocks(gpu, queues, status)),
        tuple(_ring(gpu, one) for one in queues),
        tuple(_buffers(gpu, queue)),
    )


def keep(gpu: ProcessGpu, queue: EmulatedQueue, fault: PageFault | None = None) -> None:
    """Take it, as what sysfs shows from now on, and write it where HCQ_DUMP_DIR says; a full disk is only logged."""
    hang = take(gpu, queue, fault)
    gpu.gpu.dump = functools.partial(text, hang)
    folder = config.current().dump_dir
    if folder is None:
        return
    name = f"{hang.arch}-{hang.pid}-{hang.time_ns}.devcoredump"
    try:
        opened = private_files.open_folder(folder, make=True)
        try:
            private_files.write(opened, name, lambda file: file.write(text(hang)))
        finally:
            os.close(opened)
    except (OSError, private_files.Unsafe) as problem:
        gpu.log(f"the devcoredump could not be written in {folder}: {problem}")
        return
    gpu.log(f"AMDGPU device coredump file has been created: {folder / name}")


def _status(gpu: ProcessGpu, queue: EmulatedQueue, fault: PageFault) -> int:
    is_write = "read" not in fault.kind or "read-only" in fault.why
    refused = NO_WRITE if is_write else NO_READ
    client = CLIENT_SDMA0 if isinstance(queue, SdmaQueue) else CLIENT_TCP if fault.pc else CLIENT_CPC
    return ProtectionFaultStatus(
        permission_faults=refused if "read-only" in fault.why else refused | NOT_VALID,
        walker_error=0,
        cid=client,
        rw=is_write,
        vmid=VMID,
    ).words[0]


def _place(queue: EmulatedQueue) -> tuple[int, int]:
    """The pipe and the place there of a compute queue."""
    return queue.number % PIPES, queue.number // PIPES


def _name(queue: EmulatedQueue) -> str:
    if isinstance(queue, SdmaQueue):
        return f"kfd_sdma0.{queue.number}"
    pipe, place = _place(queue)
    return f"kfd_{queue.kind.lower()}_1.{pipe}.{place}"


def _words_of(queue: EmulatedQueue) -> tuple[int, int]:
    """The read and the write pointer, in words."""
    put = queue.rptr if queue.doorbell == 2**64 - 1 else queue.doorbell + isinstance(queue, AqlQueue)
    return queue.rptr * queue.unit_bytes // 4, max(put, queue.rptr) * queue.unit_bytes // 4


def _read(gpu: ProcessGpu, va: int, words: int) -> tuple[int, ...]:
    """Words of memory; none where some of it is not mapped, or where there are too many."""
    with contextlib.suppress(PageFault):
        return tuple(gpu.vm.load_words(va, words)) if 0 < words <= MAX_RING_BYTES // 4 else ()
    return ()


def _ring(gpu: ProcessGpu, queue: EmulatedQueue) -> Ring:
    return Ring(_name(queue), *_words_of(queue), _read(gpu, queue.ring, queue.ring_bytes // 4))


def _running(queue: EmulatedQueue) -> tuple[int, int, int]:
    """The indirect buffer that runs: where, how many words are behind it, and how many it has; zeros for none."""
    if isinstance(queue, SdmaQueue):
        if queue.indirect_at < len(queue.indirect_words):
            return queue.indirect_va, queue.indirect_at, len(queue.indirect_words)
    elif isinstance(queue, (Pm4Queue, AqlQueue)):
        for frame in reversed(queue.engine.frames):
            if frame.at < len(frame.words):
                return frame.va, frame.at, len(frame.words)
    return 0, 0, 0


def _buffers(gpu: ProcessGpu, queue: EmulatedQueue) -> Iterator[Indirect]:
    """What runs now, and what the packets run that are not done."""
    rptr, wptr = _words_of(queue)
    ring = _read(gpu, queue.ring, queue.ring_bytes // 4)
    count = min(wptr - rptr, len(ring))
    words = [ring[(rptr + at) % len(ring)] for at in range(count)]
    wanted: dict[int, int] = {}
    if isinstance(queue, SdmaQueue):
        found: list[object] = list(sdma.decode(words, gpu.chip.copies))
    elif isinstance(queue, AqlQueue):
        found = list(aql.decode(words))
    else:
        found = list(pm4.decode(words, pm4.GFX9 if gpu.chip.family == 9 else pm4.GFX11))
    if isinstance(queue, (Pm4Queue, AqlQueue)):
        wanted.update((frame.va, len(frame.words)) for frame in queue.engine.frames)
    running, _, size = _running(queue)
    if size:
        wanted[running] = size
    for packet in found:
        if isinstance(packet, (pm4.IndirectBuffer, aql.Pm4Ib, sdma.Indirect)):
            wanted.setdefault(packet.ib_base, packet.ib_size)
    for va, size in list(wanted.items())[:MAX_IBS]:
        yield Indirect(va, _read(gpu, va, min(size, MAX_IB_WORDS)))


# ------------------------------------------------------------ registers


def _blocks(gpu: ProcessGpu, queues: list[EmulatedQueue], status: int) -> Iterator[Block]:
    graphics, copies, _ = ip_discovery.VERSIONS[gpu.chip.arch]
    prefix = "mm" if gpu.chip.arch in OLD_REGISTERS else "reg"
    name = f"gfx_v{graphics[0]}_0" if graphics[0] > 9 else "gfx_v9_4_3" if prefix == "reg" else "gfx_v9_0"
    hub = "VM" if graphics[0] == 9 else "GCVM"
    yield Block(name, (), ((f"{prefix}{hub}_L2_PROTECTION_FAULT_STATUS", status),))
    for number, queue in enumerate(one for one in queues if not isinstance(one, SdmaQueue)):
        pipe, place = _place(queue)
        head = [] if number else [f"num_mec: 1 num_pipe: {PIPES} num_queue: 8"]
        yield Block("", (*head, f"mec 0, pipe {pipe}, queue {place}"), tuple(_compute(queue, prefix)))
    others = [one for one in queues if isinstance(one, SdmaQueue)]
    version = "_".join(map(str, copies)) if copies[0] == 4 else f"{copies[0]}_{2 if copies[0] == 5 else 0}"
    yield Block(f"sdma_v{version}", ("num_instances:1",), ())
    yield Block("", ("Instance:0",), tuple(one for queue in others for one in _copies(queue, prefix)))


def _halves(prefix: str, low: str, high: str, value: int) -> Iterator[tuple[str, int]]:
    yield prefix + low, value & 0xFFFFFFFF
    yield prefix + high, value >> 32


def _compute(queue: EmulatedQueue, prefix: str) -> Iterator[tuple[str, int]]:
    rptr, wptr = _words_of(queue)
    ib, at, size = _running(queue)
    hqd = f"{prefix}CP_HQD_"
    yield f"{hqd}VMID", VMID
    yield from _halves(hqd, "PQ_BASE", "PQ_BASE_HI", queue.ring >> 8)
    yield f"{hqd}PQ_RPTR", rptr % (queue.ring_bytes // 4)
    yield from _halves(hqd, "PQ_WPTR_POLL_ADDR", "PQ_WPTR_POLL_ADDR_HI", queue.wptr_va)
    yield from _halves(hqd, "IB_BASE_ADDR", "IB_BASE_ADDR_HI", ib)
    yield f"{hqd}IB_RPTR", at
    yield f"{hqd}IB_CONTROL", size
    yield from _halves(hqd, "EOP_BASE_ADDR", "EOP_BASE_ADDR_HI", queue.eop_va >> 8)
    yield from _halves(hqd, "CTX_SAVE_BASE_ADDR_LO", "CTX_SAVE_BASE_ADDR_HI", queue.save_area)
    yield f"{hqd}CTX_SAVE_SIZE", queue.save_bytes
    yield from _halves(hqd, "PQ_WPTR_LO", "PQ_WPTR_HI", wptr)
    if isinstance(queue, (Pm4Queue, AqlQueue)):
        headers = list(queue.engine.headers)
        for header in [0] * (HEADERS - len(headers)) + headers:
            yield f"{prefix}CP_MEC_ME1_HEADER_DUMP", header


def _copies(queue: SdmaQueue, prefix: str) -> Iterator[tuple[str, int]]:
    rptr, wptr = _words_of(queue)
    ib, at, size = _running(queue)
    name = f"{prefix}{_COPY_QUEUES.get(queue.gpu.chip.arch, 'SDMA0_QUEUE')}{queue.number}_"
    yield from _halves(name, "RB_BASE", "RB_BASE_HI", queue.ring >> 8)
    yield from _halves(name, "RB_RPTR", "RB_RPTR_HI", 4 * rptr)
    yield from _halves(name, "RB_WPTR", "RB_WPTR_HI", 4 * wptr)
    yield f"{name}IB_OFFSET", 4 * at
    yield from _halves(name, "IB_BASE_LO", "IB_BASE_HI", ib)
    yield f"{name}IB_SIZE", size


# ------------------------------------------------------------ the text


def text(hang: Hang) -> bytes:
    """The dump as amdgpu writes it."""
    return "".join(f"{line}\n" for line in _lines(hang)).encode()


def _lines(hang: Hang) -> Iterator[str]:
    yield from ("**** AMDGPU Device Coredump ****", "version: 1", "kernel: emulated", "module: amdgpu")
    yield f"time: {hang.time_ns // 10**9}.{hang.time_ns % 10**9:09d}"
    if hang.process:
        yield f"process_name: {hang.process} PID: {hang.pid}"
    yield from ("", "SOC Information", f"SOC Device id: {hang.device_id}", "SOC PCI Revision id: 0")
    yield from ("", "SOC Memory Information", f"real vram size: {VRAM_BYTES}")
    yield from (f"visible vram size: {VRAM_BYTES}", f"gtt size: {HOST_BYTES}")
    yield from ("", "HW IP Version Information")
    for number, (name, version) in enumerate(zip(("GC", "SDMA0", "NBIO"), ip_discovery.VERSIONS[hang.arch])):
        yield f"HWIP: {name}[{number}][0]: v{'.'.join(map(str, version))}.0.0"
    yield from ("", "VBIOS Information: NA")
    yield from ("", "Ring timed out details", f"IP Type: {hang.ring_type} Ring Name: {hang.ring}")
    address, status = hang.fault
    yield from ("", "[gfxhub] Page fault observed", f"Faulty page starting at address: 0x{address:016x}")
    yield f"Protection fault status register: {status:#x}"
    yield from ("", "IP Dump")
    for block in hang.blocks:
        if block.name:
            yield f"IP: {block.name}"
        yield from block.heads
        for register, value in block.registers:
            yield f"{register:<50} \t 0x{value:08x}"
        yield ""
    yield "Ring buffer information"
    for ring in hang.rings:
        mask = len(ring.words) - 1 if ring.words else 0
        yield f"ring name: {ring.name}"
        yield f"Rptr: 0x{ring.rptr:x} Wptr: 0x{ring.wptr:x} RB mask: {mask:x}"
        yield f"Ring size in dwords: {len(ring.words)}"
        yield from ("Ring contents", "Offset \t Value")
        for at, word in enumerate(ring.words):
            yield f"0x{4 * at:x} \t 0x{word:x}"
    yield "VRAM lost check is skipped!"
    for number, buffer in enumerate(hang.buffers):
        yield from ("", f"IB #{number} 0x{buffer.va:x} {len(buffer.words)} dw")
        for word in buffer.words:
            yield f"0x{word:08x}"
