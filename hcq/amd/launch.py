"""Launches: what a kernel descriptor, a grid and arguments become in registers or in an AQL packet.

In       a linked kernel at its address, scratch memory, the chip
Out      Launcher: for each block size the packets of a dispatch, with gaps for the grid and the arguments' address
Next     abi/registers.py (what is written), program.py (arguments), encode.py (pieces)
Source   LLVM AMDGPUUsage, "Initial Kernel Execution State"; PM4 launches as libhsakmt's tests make them

On a PM4 ring we do what the AQL processor's firmware does by itself: caches, LDS size, scratch, user registers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hcq.amd.abi import aql, pm4
from hcq.amd.abi.descriptor import USER_SGPRS, KernelDescriptor, user_sgprs
from hcq.amd.abi.registers import Register, Rsrc1, Rsrc2, TmpringSize
from hcq.amd.chip import Chip
from hcq.amd.encode import COMPUTE, Piece, flush, join, piece
from hcq.amd.link import Kernel
from hcq.layout import Packet

DYNAMIC_STACK_BYTES = 2048  # for each work-item, when the compiler could not say how deep calls go
MAX_SIZES = 256  # of launches whose packets are kept

Grid = tuple[int, int, int]
_DIMS = struct.Struct("<3I")


class Scratch(NamedTuple):
    """Scratch memory that all waves of the device share: a part for each XCC, one after the other.

    size_bytes    of each part
    wave_bytes    of each wave
    waves         as COMPUTE_TMPRING_SIZE counts them: of an XCC, from gfx11 on of one of its shader engines
    """

    va: int
    size_bytes: int
    wave_bytes: int
    waves: int


class Launcher:
    """One kernel at its address. `dispatch` is the hot path: joins of bytes made before."""

    def __init__(
        self, chip: Chip, is_aql: bool, kernel: Kernel, va: int, scratch: Scratch | None, queue_va: int
    ) -> None:
        self.chip, self.is_aql, self.kernel, self.va = chip, is_aql, kernel, va
        self.descriptor = kernel.descriptor
        self.scratch, self.queue_va = scratch, queue_va
        self.places = user_sgprs(self.descriptor)
        self._made: dict[tuple[Grid, int], tuple[bytes, bytes, tuple[tuple[int, int], ...]]] = {}
        self._packets: dict[tuple[Grid, Grid, int], bytes] = {}
        # where in the packets arguments are that go into registers, and in the arguments: (at, from, bytes)
        self.preload: tuple[int, int, int] | None = None
        self._arguments_bytes = -(-max(self.descriptor.kernarg_size, 1) // 64) * 64

    def dispatch(self, arguments: bytes, grid: Grid, block: Grid, dynamic_lds: int = 0) -> Piece:
        """The packets of one launch; its arguments are uploaded beside it. dynamic_lds: bytes beyond its own."""
        if self.is_aql:
            return self._dispatch_aql(arguments, grid, block, dynamic_lds)
        made = self._made.get((block, dynamic_lds))
        if made is None:
            if len(self._made) >= MAX_SIZES:
                self._made.clear()
            made = self._made[block, dynamic_lds] = self._registers(block, dynamic_lds)
        head, tail, patches = made
        if "dispatch_ptr" in self.places:
            packet = self._packet_bytes(grid, block, dynamic_lds)
            arguments = arguments.ljust(self._arguments_bytes, b"\0") + packet
        if self.preload is not None:
            at, first, size = self.preload
            head = head[:at] + arguments[first : first + size] + head[at + size :]
        launch = piece(head + _DIMS.pack(*grid) + tail, COMPUTE, arguments, patches)
        launch.dispatches = 1
        return launch

    def _dispatch_aql(self, arguments: bytes, grid: Grid, block: Grid, dynamic_lds: int) -> Piece:
        at = aql.KernelDispatch.kernarg_address.byte_offset
        made = piece(self._packet_bytes(grid, block, dynamic_lds), COMPUTE, arguments, ((at, 0),))
        made.dispatches = 1
        return made

    def _packet_bytes(self, grid: Grid, block: Grid, dynamic_lds: int) -> bytes:
        """The same packet as bytes; programs are launched with few different sizes."""
        known = self._packets.get((grid, block, dynamic_lds))
        if known is None:
            if len(self._packets) >= MAX_SIZES:
                self._packets.clear()
            made = self._packet(grid, block, dynamic_lds)
            known = self._packets[grid, block, dynamic_lds] = made.to_bytes()
        return known

    def _packet(self, grid: Grid, block: Grid, dynamic_lds: int) -> aql.KernelDispatch:
        """The AQL packet of a launch; on a PM4 ring it is what a kernel's dispatch_ptr points at."""
        return aql.KernelDispatch(
            workgroup_size_x=block[0],
            workgroup_size_y=block[1],
            workgroup_size_z=block[2],
            grid_size_x=grid[0] * block[0],
            grid_size_y=grid[1] * block[1],
            grid_size_z=grid[2] * block[2],
            private_segment_size=scratch_lane_bytes(self.descriptor),
            group_segment_size=self.descriptor.group_segment_fixed_size + dynamic_lds,
            kernel_object=self.va + self.kernel.descriptor_offset,
        )

    def _registers(self, block: Grid, dynamic_lds: int) -> tuple[bytes, bytes, tuple[tuple[int, int], ...]]:
        """(packets before the grid's size, those after it, where the arguments' address goes)."""
        descriptor = self.descriptor
        lds = -(-(descriptor.group_segment_fixed_size + dynamic_lds) // self.chip.lds_granule) * 512
        rsrc2 = Rsrc2(**{**descriptor.rsrc2.values, "lds_size": lds})
        entry = self.va + self.kernel.start_offset >> 8
        # else the trap handler cannot restore its waves after preemption; kfdtest NeedCwsrWA
        privilege = Rsrc1(priv=1).words[0] if self.chip.needs_privilege else 0
        packets: list[Packet] = [
            self.chip.acquire_next(),
            _set(Register.COMPUTE_PGM_LO, entry & 0xFFFFFFFF, entry >> 32),
            _set(Register.COMPUTE_PGM_RSRC1, descriptor.compute_pgm_rsrc1 | privilege, rsrc2.words[0]),
            _set(self.chip.rsrc3, descriptor.compute_pgm_rsrc3),
            *self._scratch_registers(),
            _set(Register.COMPUTE_RESTART_X, 0, 0, 0),
            _set(Register.COMPUTE_RESOURCE_LIMITS, 0),
        ]
        head = join(packets)
        words, patches = self._user_data()
        if words:
            at = len(head) + 8  # after the packet's header and its register number
            if "kernarg_preload" in self.places:
                first, count = descriptor.kernarg_preload_spec_offset, descriptor.kernarg_preload_spec_length
                self.preload = at + 4 * self.places["kernarg_preload"], 4 * first, 4 * count
            head += _set(Register.COMPUTE_USER_DATA_0, *words).to_bytes()
            patches = tuple((at + 4 * word, offset) for word, offset in patches)
        head += _set(Register.COMPUTE_START_X, 0, 0, 0, *block).to_bytes()
        launch = pm4.DispatchDirect(cs_w32_en=descriptor.enable_wavefront_size32).to_bytes()
        return head + launch[:4], launch[16:] + flush(), patches

    def _scratch_registers(self) -> list[Packet]:
        if self.scratch is None:
            return [_set(Register.COMPUTE_TMPRING_SIZE, 0)]
        size = TmpringSize(
            waves=self.scratch.waves, wavesize=self.scratch.wave_bytes // self.chip.wave_bytes_unit
        )
        if not self.chip.has_architected_scratch:
            return [_set(Register.COMPUTE_TMPRING_SIZE, size.words[0])]
        base = self.scratch.va >> 8
        return [
            _set(Register.COMPUTE_TMPRING_SIZE, size.words[0]),
            _set(Register.COMPUTE_DISPATCH_SCRATCH_BASE_LO, base & 0xFFFFFFFF, base >> 32),
        ]

    def _user_data(self) -> tuple[list[int], tuple[tuple[int, int], ...]]:
        """The words of the user registers, and (word, offset in the upload) of addresses that are not known yet.

        Registers for scratch memory stay zero where a kernel that has none asks for them, and on parts that hide where
        it is. Preloaded arguments come last; each launch fills them in.
        """
        words: list[int] = []
        patches: list[tuple[int, int]] = []
        for item in USER_SGPRS:
            if item.name not in self.places:
                continue
            values = [0] * item.words
            if item.name == "kernarg_segment_ptr":
                patches.append((len(words), 0))
            elif item.name == "dispatch_ptr":
                patches.append((len(words), self._arguments_bytes))
            elif item.name == "private_segment_buffer" and self.scratch is not None:
                resource = self.chip.scratch_resource.of(self.scratch.va, self.scratch.size_bytes)
                stride = 2 if self.descriptor.enable_wavefront_size32 else 3  # 32 lanes, 64
                values = list(type(resource)(**{**resource.values, "index_stride": stride}).words)
            elif item.name == "flat_scratch_init" and self.scratch is not None:
                values = [self.scratch.va & 0xFFFFFFFF, self.scratch.va >> 32]
            elif item.name == "queue_ptr":
                values = [self.queue_va & 0xFFFFFFFF, self.queue_va >> 32]
            elif item.name == "private_segment_size":
                values = [scratch_lane_bytes(self.descriptor)]
            words += values
        return words + [0] * self.descriptor.kernarg_preload_spec_length, tuple(patches)


def without_barrier(packet: bytes) -> bytes:
    """An AQL dispatch that may start while packets before it still run."""
    at, bit = divmod(aql.KernelDispatch.barrier.low, 8)
    made = bytearray(packet)
    made[at] &= ~(1 << bit)
    return bytes(made)


def scratch_lane_bytes(descriptor: KernelDescriptor) -> int:
    """Scratch memory of each work-item."""
    return descriptor.private_segment_fixed_size + DYNAMIC_STACK_BYTES * descriptor.uses_dynamic_stack


def _set(number: int, *values: int) -> pm4.SetShReg:
    return pm4.SetShReg(reg_offset=number, registers=values)
