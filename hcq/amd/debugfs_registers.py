"""Registers of an AMD GPU: whether it is busy, and its hardware queues, as umr reads them.

In       a port; where the GPU is in debugfs, its render node, its place on the bus, its generation
Out      registers and hardware queues as plain data; notes that say what was not read, and why
Changes  nothing that a program sees. The kernel driver wakes a GPU that is suspended
Next     debugfs.py and inspection.py (who ask), abi/gpu_registers.py (the numbers), debugfs_waves.py (waves)
Source   amdgpu_debugfs.c: amdgpu_debugfs_regs2_op, amdgpu_debugfs_gfxoff_read; amdgpu_kms.c: amdgpu_info_ioctl;
         amdgpu_gfx.c: amdgpu_gfx_off_ctrl; amdgpu_discovery.c: base_addr; Documentation/gpu/amdgpu/thermal.rst. Not
         tried on hardware

GFXOFF is the state in which the graphics engine has no power while no work is there. Its registers must not be touched
then, and amdgpu_regs2 does not keep the engine on while it reads.

- Registers of DRM_AMDGPU_INFO, READ_MMR_REG, are safe at any time: the kernel driver keeps GFXOFF away meanwhile.
- Hardware queues are read only while amdgpu_gfxoff says that GFXOFF is not allowed, asked anew before each queue. After
  somebody allows it again the driver waits 100 ms before it lets the engine sleep; a queue is one read. It is
  never forbidden here: a process that dies would leave it so.

What is selected belongs to the open file. The driver selects it under its own lock for each read, and takes it back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from hcq.amd.abi import drm, mqd
from hcq.amd.abi import gpu_registers as abi
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import Port

GFXOFF, REGS2 = "amdgpu_gfxoff", "amdgpu_regs2"
ALL_ONES = 0xFFFFFFFF
MOST_XCCS = 16
GC = 11  # the hardware id of the graphics and compute block
ALLOW = "GFXOFF is allowed"


def view(
    port: Port, folder: str, render: str, pci: str, xccs: int, family: int
) -> tuple[dict[str, Any], list[str]]:
    """Both: {"registers": ..., "hardware_queues": ...}, and notes."""
    begins = bases(port, pci, family, xccs)
    found, notes = status(port, render, begins[0], family)
    queues, more = hardware_queues(port, folder, begins, family)
    return {"registers": found, "hardware_queues": queues}, notes + more


def gfxoff(port: Port, folder: str) -> str:
    """Why registers must not be read now; "" where GFXOFF cannot begin. The file is the driver's own note: reading it
    asks no firmware."""
    path = f"{folder}/{GFXOFF}"
    try:
        word = _read(port, path, 0, 1)[0]
    except DriverError as refusal:
        return f"whether {ALLOW} is not known, so no register is read: {refusal}"
    if not word:
        return ""
    return (
        f"{ALLOW} ({path}): the engine may lose its power at any moment, so no register is read through debugfs. While "
        f'a read is wanted, forbid it as root: python3 -c \'open("{path}", "wb", 0).write(bytes(4))\'; allow it again '
        "with bytes([1, 0, 0, 0]). Each takes back one of the other."
    )


def status(port: Port, render: str, base: int, family: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Registers that the kernel driver reads for everybody, with GFXOFF kept away meanwhile.

    render   the render node
    """
    found, notes = [], []
    try:
        fd = port.open(render, os.O_RDWR)
    except DriverError as refusal:
        return [], [str(refusal)]
    try:
        for name, number in abi.NUMBERS[family].status.items():
            answer = bytearray(4)
            asked = drm.Info(
                return_pointer=native.address_of(answer),
                return_size=len(answer),
                query=drm.READ_MMR_REG,
                mmr_offset=base + number,
                mmr_count=1,
                mmr_instance=ALL_ONES,
            )
            try:
                port.ioctl(fd, drm.INFO_REQUEST, bytearray(asked.to_bytes()))
            except DriverError as refusal:
                notes.append(f"{name}: {refusal}")
                continue
            value = int.from_bytes(answer, "little")
            named = abi.BITS.get(name, {})
            found.append(
                {
                    "name": name,
                    "number": base + number,
                    "value": value,
                    "set": [text for bit, text in named.items() if value >> bit & 1 and value != ALL_ONES],
                }
            )
    finally:
        port.close(fd)
    return found, notes


def hardware_queues(
    port: Port, folder: str, bases: Mapping[int, int], family: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compute queues that are mapped to the hardware now.

    folder   of the GPU in debugfs
    bases    XCC -> where its registers begin, in words
    """
    numbers = abi.NUMBERS[family]
    places = [
        (xcc, base, pipe, queue)
        for xcc, base in bases.items()
        for pipe in range(numbers.pipes)
        for queue in range(numbers.queues_per_pipe)
    ]
    found: list[dict[str, Any]] = []
    path = f"{folder}/{REGS2}"
    try:
        fd = port.open(path, os.O_RDWR)  # an ioctl is all that is written
    except DriverError as refusal:
        return [], [
            f"{refusal} It is for root, and lockdown hides it. Kernels before 2023 do not have it in this form."
        ]
    try:
        for xcc, base, pipe, queue in places:
            why = gfxoff(port, folder)
            if why:
                return found, [why]
            state = abi.Regs2State(use_srbm=1, me=abi.MICRO_ENGINE, pipe=pipe, queue=queue, xcc_id=xcc)
            port.ioctl(fd, abi.SET_STATE_V2, bytearray(state.to_bytes()))
            words = _words(port, fd, 4 * (base + numbers.queues), abi.COUNT)
            if all(word == ALL_ONES for word in words):
                return found, ["registers read as all ones: the GPU is off the bus, or asleep"]
            what = abi.queue_of(words, family)
            if what.cp_hqd_active & 1:
                found.append(
                    _queue(what, f"me {abi.MICRO_ENGINE}, pipe {pipe}, queue {queue}", xcc, len(bases))
                )
    except DriverError as refusal:
        return found, [f"{path}: {refusal}"]
    finally:
        port.close(fd)
    notes = [f"{len(places)} hardware queues of compute were read, {len(found)} are in use"]
    return found, notes


def _queue(what: Any, place: str, xcc: int, xccs: int) -> dict[str, Any]:
    where = f"xcc {xcc}, {place}" if xccs > 1 else place
    vmid = f"address space {what.cp_hqd_vmid} (VMID)"
    return {
        "name": f"hardware queue {where}",
        "kind": "HQD",
        "xcc": xcc,
        "notes": [vmid, *compute_notes(what)],
        "fields": {name: int(value) for name, value in what.values.items() if value},
    }


def bases(port: Port, pci: str, family: int, xccs: int) -> dict[int, int]:
    """XCC -> where its registers begin, in words: as ip_discovery says it, else where the generation has them."""
    found: dict[int, int] = {}
    for xcc in range(min(max(xccs, 1), MOST_XCCS)):
        path = f"/sys/bus/pci/devices/{pci}/ip_discovery/die/0/{GC}/{xcc}/base_addr"
        try:
            found[xcc] = int(port.read_file(path).split()[0], 16)
        except (DriverError, ValueError, IndexError):
            if xcc == 0:
                found[xcc] = abi.NUMBERS[family].base
    return found


def compute_notes(found: mqd.ComputeMqd) -> Iterator[str]:
    """What the registers of a compute queue say: its ring, how far that is, its doorbell, why it stopped."""
    size = 4 << (found.cp_hqd_pq_control & 0x3F) + 1
    packets = "AQL" if found.cp_hqd_aql_control else "PM4"
    yield (
        f"{packets} ring of {size} bytes at {found.cp_hqd_pq_base:#x}, read to word {found.cp_hqd_pq_rptr}, written to "
        f"{found.cp_hqd_pq_wptr}, doorbell {found.cp_hqd_pq_doorbell_control >> 2 & 0x3FFFFFF}"
    )
    if not found.cp_hqd_active:
        yield "no hardware queue had it when this was stored"
    if found.cp_hqd_error:
        yield f"CP_HQD_ERROR {found.cp_hqd_error:#x}: it stopped"


def _read(port: Port, path: str, offset: int, count: int) -> list[int]:
    fd = port.open(path, os.O_RDONLY)
    try:
        return _words(port, fd, offset, count)
    finally:
        port.close(fd)


def _words(port: Port, fd: int, offset: int, count: int) -> list[int]:
    data = port.pread(fd, 4 * count, offset)
    if len(data) != 4 * count:
        raise DriverError(f"{len(data)} bytes at {offset:#x}, and not {4 * count}: the file ends there.")
    return list(memoryview(data).cast("I"))
