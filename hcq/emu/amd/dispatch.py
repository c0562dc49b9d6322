"""Dispatches: registers or an AQL packet, understood as the launch of a kernel.

In       compute registers and a DISPATCH_DIRECT, or a KernelDispatch and the descriptor it points at
Out      a Dispatch; or what is wrong with it
Next     launch.py (the shader core), pm4_processor.py and aql_processor.py (who launch), shader/wave_start.py
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from hcq.amd.abi import aql, pm4, registers
from hcq.amd.abi.descriptor import SIZE_BYTES, KernelDescriptor
from hcq.amd.abi.registers import Register, Rsrc1, Rsrc2, TmpringSize
from hcq.emu.amd.memory import GpuVm
from hcq.emu.amd.shader.wave_start import asked_sgprs
from hcq.emu.amd.spec import MAX_BLOCK, Chip

NEEDED = (
    Register.COMPUTE_PGM_LO,
    Register.COMPUTE_PGM_HI,
    Register.COMPUTE_PGM_RSRC1,
    Register.COMPUTE_PGM_RSRC2,
)
USER_DATA = tuple(
    range(Register.COMPUTE_USER_DATA_0, Register.COMPUTE_USER_DATA_0 + registers.USER_DATA_WORDS)
)
NO_DATA = (0,) * len(USER_DATA)


@dataclass(frozen=True)
class Dispatch:
    """Everything the shader core needs to know.

    entry             address of the code
    user_sgprs        the first scalar registers, by number
    grid, block       workgroups, and work-items in each
    lds_bytes         of each workgroup
    scratch_base      where scratch memory is; wave_scratch_bytes for each wave
    items             work-items in all, where the last workgroups may be partial; None: whole ones
    scratch_waves     as the register counts them
    is_privileged     waves that are saved when the kernel driver takes the queue off the GPU can be restored
    xccs              the dies that it runs on, whose scratch memory is xcc_scratch_bytes apart
    """

    entry: int
    rsrc1: Rsrc1
    rsrc2: Rsrc2
    rsrc3: int
    wave_size: int
    user_sgprs: tuple[int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds_bytes: int
    scratch_base: int
    wave_scratch_bytes: int
    scratch_waves: int
    items: tuple[int, int, int] | None = None
    is_privileged: bool = True
    xccs: int = 1
    xcc_scratch_bytes: int = 0

    @functools.cached_property
    def words(self) -> tuple[int, int]:
        """RSRC1 and RSRC2 as numbers."""
        return self.rsrc1.words[0], self.rsrc2.words[0]

    def with_sgprs(self, user_sgprs: tuple[int, ...]) -> Dispatch:
        """The same with other user SGPRs: one for each launch, so nothing is worked out again."""
        new = object.__new__(Dispatch)
        vars(new).update(vars(self), words=self.words, user_sgprs=user_sgprs)
        return new


@functools.cache
def _numbers(rsrc3: int) -> tuple[int, ...]:
    """The registers that say what a launch is like, in the order in which _described() takes them."""
    threads, restart = Register.COMPUTE_NUM_THREAD_X, Register.COMPUTE_RESTART_X
    return (
        *NEEDED,
        *(threads + axis for axis in range(3)),
        *(restart + axis for axis in range(3)),
        Register.COMPUTE_TMPRING_SIZE,
        Register.COMPUTE_DISPATCH_SCRATCH_BASE_LO,
        Register.COMPUTE_DISPATCH_SCRATCH_BASE_LO + 1,
        rsrc3,
    )


def dispatch_from_registers(chip: Chip, at: dict[int, int], packet: pm4.DispatchDirect) -> Dispatch | str:
    """A launch from the registers as they are; a sentence when hardware would hang on it."""
    found = _described(chip, tuple(map(at.get, _numbers(chip.rsrc3))), tuple(packet.values.values()))
    if isinstance(found, str):
        return found
    return found.with_sgprs(tuple(map(at.get, USER_DATA, NO_DATA)))


@functools.lru_cache(512)
def _described(chip: Chip, values: tuple[int | None, ...], fields: tuple[int, ...]) -> Dispatch | str:
    """The same without user data; most launches of a program are alike. fields: of the DISPATCH_DIRECT."""
    missing = [registers.name_of(number) for number, value in zip(NEEDED, values) if value is None]
    if missing:
        return f"{', '.join(missing)} never written"
    known = [value or 0 for value in values]
    (low, high, word1, word2), threads, restart, (tmpring, base, base_high, rsrc3) = (
        known[:4],
        known[4:7],
        known[7:10],
        known[10:],
    )
    packet = dict(zip(pm4.DispatchDirect.fields, fields))
    block = threads[0] & 0xFFFF, threads[1] & 0xFFFF, threads[2] & 0xFFFF
    grid = (packet["dim_x"], packet["dim_y"], packet["dim_z"])
    count = block[0] * block[1] * block[2]
    if not count or count > MAX_BLOCK or not all(grid):
        return f"grid {grid} or block {block} is empty or too large"
    if not packet["compute_shader_en"]:
        return "compute_shader_en is not set"
    if any(restart):
        return "COMPUTE_RESTART is not zero"
    if packet["partial_tg_en"]:
        return "partial_tg_en is not emulated"
    if packet["use_thread_dimensions"]:
        if any(extent % width for extent, width in zip(grid, block)):
            return f"{grid} threads are not whole groups of {block}, and partial_tg_en is not set"
        grid = (grid[0] // block[0], grid[1] // block[1], grid[2] // block[2])
    rsrc1, rsrc2, size = Rsrc1.decode([word1]), Rsrc2.decode([word2]), TmpringSize.decode([tmpring])
    return Dispatch(
        entry=(low | high << 32) << 8,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        wave_size=32 if packet["cs_w32_en"] else 64,
        user_sgprs=(),
        grid=grid,
        block=block,
        lds_bytes=rsrc2.lds_size // Rsrc2.lds_size.unit * chip.lds_granule,
        scratch_base=(base | base_high << 32) << 8,
        wave_scratch_bytes=size.wavesize * chip.wave_bytes_unit,
        scratch_waves=size.waves,
        is_privileged=bool(rsrc1.priv) or not chip.needs_privilege,
    )


def dispatch_from_aql(
    chip: Chip, vm: GpuVm, queue: aql.AmdQueue, queue_va: int, packet: aql.KernelDispatch, packet_va: int
) -> Dispatch | int:
    """A launch from an AQL packet, doing what the packet processor's firmware does; an error code when it refuses."""
    if not packet.kernel_object or packet.kernel_object % SIZE_BYTES:
        return 0x8
    kernel = _of_kernel(tuple(vm.load_words(packet.kernel_object, SIZE_BYTES // 4)))
    descriptor = kernel.descriptor
    block = (packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z)
    size = (packet.grid_size_x, packet.grid_size_y, packet.grid_size_z)
    if not all(block) or not all(size):
        return 0x2
    if block[0] * block[1] * block[2] > MAX_BLOCK:
        return 0x40
    if packet.group_segment_size > chip.lds_bytes:
        return 0x4
    is_wave32 = bool(descriptor.enable_wavefront_size32)
    lanes = 32 if is_wave32 else 64
    if packet.private_segment_size * lanes > queue.scratch_wave64_lane_byte_size * 64:
        return 0x400 if is_wave32 else 0x1
    values: dict[str, list[int]] = {
        "private_segment_buffer": [
            queue.scratch_resource_descriptor_0,
            queue.scratch_resource_descriptor_1,
            queue.scratch_resource_descriptor_2,
            queue.scratch_resource_descriptor_3 | _index_stride(chip, is_wave32),
        ],
        "dispatch_ptr": _halves(packet_va),
        "queue_ptr": _halves(queue_va),
        "kernarg_segment_ptr": _halves(packet.kernarg_address),
        "dispatch_id": [0, 0],
        "flat_scratch_init": _halves(queue.scratch_backing_memory_location),
        "private_segment_size": [packet.private_segment_size],
    }
    words = [word for name in kernel.sgprs for word in values[name]]
    if count := descriptor.kernarg_preload_spec_length:
        words += vm.load_words(packet.kernarg_address + 4 * descriptor.kernarg_preload_spec_offset, count)
    wave_bytes = packet.private_segment_size * lanes
    unit = chip.wave_bytes_unit
    found = Dispatch(
        entry=packet.kernel_object + descriptor.start_offset,
        rsrc1=kernel.rsrc1,
        rsrc2=kernel.rsrc2,
        rsrc3=descriptor.compute_pgm_rsrc3,
        wave_size=lanes,
        user_sgprs=tuple((words + [0] * 16)[:16]),
        grid=(-(-size[0] // block[0]), -(-size[1] // block[1]), -(-size[2] // block[2])),
        block=block,
        lds_bytes=packet.group_segment_size,
        scratch_base=queue.scratch_backing_memory_location,
        wave_scratch_bytes=-(-wave_bytes // unit) * unit,
        scratch_waves=_waves_of(queue.compute_tmpring_size),
        items=size,
        xccs=chip.xccs,
        xcc_scratch_bytes=queue.scratch_backing_memory_byte_size,
    )
    vars(found).update(words=kernel.words)
    return found


class _Kernel(NamedTuple):
    """What a descriptor says. sgprs: names of what goes into the first scalar registers; words: as Dispatch.words."""

    descriptor: KernelDescriptor
    sgprs: tuple[str, ...]
    rsrc1: Rsrc1
    rsrc2: Rsrc2
    words: tuple[int, int]


@functools.lru_cache(512)
def _of_kernel(words: tuple[int, ...]) -> _Kernel:
    """A descriptor, read once: most launches are of kernels that ran before."""
    descriptor = KernelDescriptor.decode(words)
    rsrc1, rsrc2 = Rsrc1.decode([descriptor.compute_pgm_rsrc1]), descriptor.rsrc2
    return _Kernel(descriptor, asked_sgprs(descriptor), rsrc1, rsrc2, (rsrc1.words[0], rsrc2.words[0]))


@functools.lru_cache(64)
def _waves_of(tmpring_size: int) -> int:
    """How many waves scratch memory is for."""
    return TmpringSize.decode([tmpring_size]).waves


def _index_stride(chip: Chip, is_wave32: bool) -> int:
    """What gfx10's processor fills into the last word of the descriptor of scratch memory: 32 or 64 lanes.

    Source: ROCr, FillBufRsrcWord3_Gfx10, which leaves it 0 for the processor.
    """
    return (2 if is_wave32 else 3) << 21 if chip.family == 10 else 0


def _halves(address: int) -> list[int]:
    return [address & 0xFFFFFFFF, address >> 32]
