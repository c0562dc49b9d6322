"""Saving waves: what the trap handler and the packet processor store when a queue is taken off in the middle of a
kernel.

In       where a queue's area is, the Machine of the kernel that it runs or that a fault ended
Out      Saved: how much of each XCC's slice is used
Changes  the queue's context save area
Next     hcq/amd/abi/save_area.py (the layout and its sources), process_gpu.py (who takes queues off), shader/machine.py
         (the waves), hcq/amd/saved_waves.py (who reads this: a second opinion, for it counts from the other end)

Workgroups go to the XCCs in turn. A wave at a barrier stands at the barrier's instruction. What an area has no room
for is left out, the last workgroups first: these waves would not have been resident on such a GPU.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hcq.amd.abi import save_area as abi
from hcq.emu.amd.memory import GpuVm
from hcq.emu.amd.saved import Area, Saved
from hcq.emu.amd.shader.errors import IllegalOperation, PageFault, UnknownInstruction
from hcq.emu.amd.shader.standing import BARRIER_BYTES
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.amd.spec import Chip

if TYPE_CHECKING:
    from hcq.emu.amd.shader.machine import Machine

NOP = 0xFFFF1000  # a packet of one word
HEADER_BYTES, WORD_BYTES = 40, 4
TTMP0, SCALARS = 108, 108  # the number of the first trap temporary; scalar registers below it
SCC, EXECZ, VCCZ, IN_GROUP, IN_BARRIER, HALT, VALID = 1, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 16
MEMORY, ILLEGAL = 1 << 8, 1 << 11  # of TRAPSTS
GFX12_SCC, GFX12_HALT, GFX12_WAVE64 = 1 << 9, 1 << 14, 1 << 29
GFX12_MEMORY, GFX12_ILLEGAL, YZ_VALID = 1 << 4, 1 << 6, 1 << 30


class _One(NamedTuple):
    """A wave: which of its batch, where it stands, and what is the matter with it."""

    batch: Batch
    number: int
    pc: int
    at_barrier: bool
    is_stopped: bool


def save(vm: GpuVm, chip: Chip, area: Area, machine: Machine) -> list[Saved]:
    """Store all waves of the kernel."""
    layout = abi.layout_of(chip.arch)
    if layout is None:
        return [Saved()] * chip.xccs
    residents = machine.residents
    groups: dict[int, list[_One]] = {}
    for one in _standing(machine):
        groups.setdefault(int(residents.group_of[one.batch.ids[one.number]]), []).append(one)
    found = []
    for xcc in range(chip.xccs):
        state = _state(layout, machine)
        words: list[int] = []
        images: list[bytes] = []
        room = area.save_bytes - area.ctl_stack_bytes
        most_words = (area.ctl_stack_bytes - HEADER_BYTES) // WORD_BYTES - len(state) - abi.PACKET_WORDS
        for group in sorted(
            one for one in groups if int(residents.group_ids[_first(machine, one)]) % chip.xccs == xcc
        ):
            waves = sorted(groups[group], key=lambda one: int(one.batch.ids[one.number]))
            bodies = [_image(layout, machine, one, group, is_first=not at) for at, one in enumerate(waves)]
            size = sum(map(len, bodies))
            if size > room or len(words) + len(waves) > most_words:
                break
            room -= size
            images += bodies
            words += [
                layout.wave(scratch_slot=at, first_wave=not at, last_wave=at == len(waves) - 1).words[0]
                for at in range(len(waves))
            ]
        found.append(_store(vm, area, xcc, [NOP] * abi.PACKET_WORDS + state + words[::-1], b"".join(images)))
    return found


def _first(machine: Machine, group: int) -> int:
    return int(np.flatnonzero(machine.residents.group_of == group)[0])


def _standing(machine: Machine) -> list[_One]:
    """All waves that have not ended."""
    fault = machine.fault
    found = []
    for b in dict.fromkeys([*([machine.stepping] if machine.stepping else []), *machine.ready]):
        is_stopped = fault is not None and b is machine.stepping
        pc = fault.pc if fault is not None and is_stopped else b.pc
        found += [_One(b, number, pc, False, is_stopped) for number in range(b.waves)]
    for b in machine.waiting:
        found += [_One(b, number, b.pc - BARRIER_BYTES, True, False) for number in range(b.waves)]
    return found


def _store(vm: GpuVm, area: Area, xcc: int, stack: list[int], waves: bytes) -> Saved:
    """The stack ends where the waves begin."""
    if not waves:
        return Saved()
    middle = area.va + xcc * area.save_bytes + area.ctl_stack_bytes
    data = struct.pack(f"<{len(stack)}I", *stack) + waves
    at = middle - WORD_BYTES * len(stack)
    vm.bytes_at(at, len(data), "write")[:] = np.frombuffer(data, np.uint8)
    return Saved(WORD_BYTES * len(stack), len(waves))


def _state(layout: abi.Layout, machine: Machine) -> list[int]:
    launch = machine.residents.launch
    lds = -(-launch.lds_bytes // abi.LDS_UNIT_BYTES)
    if layout.family >= 10:
        block = 256 // launch.wave_size
        fields = {"vgprs": launch.vgprs // block - 1, "lds_size": lds, "w32_en": int(launch.wave_size == 32)}
        return list(abi.RelaunchState10(**fields).words)
    fields = {"vgprs": launch.vgprs // 8 - 1, "sgprs": 7, "lds_size": lds}
    return list(abi.RelaunchState90a(**fields, accum_offset=launch.acc_offset // 4 - 1).words)


def _image(layout: abi.Layout, machine: Machine, one: _One, group: int, *, is_first: bool) -> bytes:
    residents, b = machine.residents, one.batch
    wave = int(b.ids[one.number])
    scalars = b.s[one.number]
    kept = np.zeros(112 if layout.family == 9 else 128, np.uint32)
    kept[:SCALARS] = scalars[:SCALARS]
    hwregs = np.zeros(abi.HWREGS, np.uint32)
    for name, value in _registers(layout, machine, one, scalars).items():
        hwregs[layout.registers[name]] = value & 0xFFFFFFFF
    parts = [b.u32[:, one.number], kept, hwregs, _ttmps(layout, machine, scalars, wave)]
    body = b"".join(part.tobytes() for part in parts)
    if is_first:
        start, size = group * residents.lds_stride, residents.lds_size
        lds = residents.lds.data[start : start + size].tobytes()
        body += lds.ljust(-(-size // abi.LDS_UNIT_BYTES) * abi.LDS_UNIT_BYTES, b"\0")
    return body + bytes(layout.gap_bytes)


def _registers(layout: abi.Layout, machine: Machine, one: _One, scalars: Any) -> dict[str, int]:
    b, fault = one.batch, machine.fault
    size = b.residents.wave_size
    lanes = int(scalars[126]) | (int(scalars[127]) << 32 if size == 64 else 0)
    vcc = int(scalars[106]) | (int(scalars[107]) << 32 if size == 64 else 0)
    status = VALID | (0 if lanes else EXECZ) | (0 if vcc else VCCZ)
    status |= IN_GROUP if b.residents.waves_per_group > 1 else 0
    is_new = layout.family >= 12
    is_memory = one.is_stopped and isinstance(fault, PageFault)
    is_illegal = one.is_stopped and isinstance(fault, (UnknownInstruction, IllegalOperation))
    found = {
        "m0": int(scalars[124 if layout.family <= 10 else 125]),
        "pc_lo": one.pc & 0xFFFFFFFF,
        "pc_hi": one.pc >> 32,
        "exec_lo": lanes & 0xFFFFFFFF,
        "exec_hi": lanes >> 32,
        "mode": b.mode,
    }
    scc = bool(b.scc[one.number])
    if is_new:
        found["status"] = status | (GFX12_WAVE64 if size == 64 else 0)
        found["state_priv"] = (GFX12_SCC if scc else 0) | (GFX12_HALT if one.is_stopped else 0)
        found["excp_flag_priv"] = (GFX12_MEMORY if is_memory else 0) | (GFX12_ILLEGAL if is_illegal else 0)
        return found
    found["status"] = status | (SCC if scc else 0) | (IN_BARRIER if one.at_barrier else 0)
    found["status"] |= HALT if one.is_stopped else 0
    found["trapsts"] = (MEMORY if is_memory else 0) | (ILLEGAL if is_illegal else 0)
    return found


def _ttmps(layout: abi.Layout, machine: Machine, scalars: Any, wave: int) -> Any:
    residents = machine.residents
    found = np.array(scalars[TTMP0 : TTMP0 + abi.TTMPS], np.uint32)
    x, y, z = (
        int(number) for number in residents.items.group_coordinates(residents.group_ids[wave : wave + 1])[0]
    )
    place = int(residents.place_in_group[wave])
    if layout.family >= 12:
        found[7], found[8], found[9] = y | z << 16, place << 25 | YZ_VALID, x
    else:
        found[8:12] = x, y, z, place
    return found
