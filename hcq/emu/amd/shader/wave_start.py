"""How a kernel starts: the registers and resources that a descriptor, or a queue's register values, ask for.

In       a 64-byte kernel descriptor, or COMPUTE_PGM_RSRC1..3 and user data; grid and block sizes
Out      Launch (one per kernel start), WorkItems (which lane is which work-item)
Changes  the first registers of new waves
Next     run.py, waves.py, hcq/amd/abi/descriptor.py and hcq/amd/abi/registers.py (the layouts)
Source   AMDGPU code object format: kernel descriptor, initial kernel execution state
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hcq.amd.abi.descriptor import KernelDescriptor
from hcq.amd.abi.registers import Rsrc1, Rsrc2, ScratchResource
from hcq.emu.amd.shader.arrays import Array
from hcq.errors import UsageError

TTMP7, TTMP8, TTMP9 = 115, 116, 117  # as scalar registers
DX10_CLAMP = 1 << 8
PRELOAD_PROLOGUE_BYTES = 256  # code that loads what newer firmware has preloaded


def vgpr_count(arch: str, granulated: int, wave_size: int) -> int:
    """How many VGPRs (on gfx9 with the accumulation file after them) a wave has."""
    block = 8 if wave_size == 32 or arch.startswith("gfx9") else 4
    return (granulated + 1) * block


class Scratch(NamedTuple):
    """Scratch memory for kernels that ask where it is (gfx90a): room for `waves`, `lane_bytes` for each lane."""

    va: int
    size_bytes: int
    lane_bytes: int
    waves: int


@dataclass(frozen=True)
class Launch:
    """One kernel start. `user_sgprs` are the words of s0, s1, ...; workgroup ids follow at `user_sgpr_count`."""

    entry: int
    wave_size: int
    vgprs: int
    user_sgprs: tuple[int, ...] = ()
    user_sgpr_count: int = 0
    group_ids: tuple[bool, bool, bool] = (True, False, False)
    id_dimensions: int = 0  # work-item ids in v0: 0 x, 1 xy, 2 xyz
    lds_bytes: int = 0
    scratch_bytes: int = 0  # per work-item
    mode: int = 0x3F0  # round to nearest, denormals kept, dx10_clamp, ieee
    acc_offset: int = 0  # gfx90a and gfx942: where a0 lies
    scratch_waves: int = (
        0  # gfx90a: for so many waves there is scratch memory; 0: no wave asks where its own is
    )
    wave_scratch_bytes: int = 0
    ids_in_ttmp: bool = (
        False  # gfx12: workgroup ids in TTMP9 and TTMP7, the wave's place in its group in TTMP8
    )

    @classmethod
    def from_registers(
        cls,
        arch: str,
        entry: int,
        rsrc1: int,
        rsrc2: int,
        rsrc3: int,
        user_sgprs: tuple[int, ...],
        *,
        wave32: bool,
        lds_bytes: int | None = None,
        scratch_bytes: int = 0,
        scratch_waves: int = 0,
    ) -> Launch:
        """From what a PM4 queue holds. `lds_bytes` of None takes the size in RSRC2."""
        one, two = Rsrc1.decode([rsrc1]), Rsrc2.decode([rsrc2])
        wave_size = 32 if wave32 else 64
        is_gfx12 = arch.startswith("gfx12")  # there RSRC1 has other flags in the places of these two
        flags = DX10_CLAMP if is_gfx12 else one.dx10_clamp << 8 | one.ieee_mode << 9
        return cls(
            entry=entry,
            wave_size=wave_size,
            vgprs=vgpr_count(arch, one.granulated_vgpr_count, wave_size),
            user_sgprs=user_sgprs,
            user_sgpr_count=two.user_sgpr,
            group_ids=(bool(two.tgid_x_en), bool(two.tgid_y_en), bool(two.tgid_z_en)),
            id_dimensions=two.tidig_comp_cnt,
            lds_bytes=two.lds_size if lds_bytes is None else lds_bytes,
            scratch_bytes=scratch_bytes,
            scratch_waves=scratch_waves if arch == "gfx90a" and two.scratch_en else 0,
            wave_scratch_bytes=scratch_bytes * wave_size,
            mode=rsrc1 >> 12 & 0xFF | flags,
            ids_in_ttmp=is_gfx12,
            acc_offset=4 * ((rsrc3 & 63) + 1) if arch.startswith("gfx9") else 0,
        )

    @classmethod
    def from_descriptor(
        cls,
        arch: str,
        descriptor: bytes,
        address: int,
        kernarg: int,
        *,
        dynamic_lds_bytes: int = 0,
        dispatch_ptr: int = 0,
        queue_ptr: int = 0,
        dispatch_id: int = 0,
        preloaded: bytes = b"",
        scratch: Scratch | None = None,
    ) -> Launch:
        """From a descriptor at `address`, as an AQL packet starts it. `preloaded` is the start of kernarg memory."""
        if len(descriptor) < 64:
            raise UsageError(f"Launch.from_descriptor: {len(descriptor)} bytes; a kernel descriptor has 64.")
        kd = KernelDescriptor.decode(np.frombuffer(descriptor[:64], np.uint32).tolist())
        words: list[int] = []
        if (kd.enable_sgpr_private_segment_buffer or kd.enable_sgpr_flat_scratch_init) and scratch is None:
            raise UsageError(
                "Launch.from_descriptor: the kernel asks where scratch memory is. Pass scratch=Scratch(...)."
            )
        if kd.enable_sgpr_private_segment_buffer:
            assert scratch is not None
            words += ScratchResource.of(scratch.va, scratch.size_bytes).words
        for enabled, value in (
            (kd.enable_sgpr_dispatch_ptr, dispatch_ptr),
            (kd.enable_sgpr_queue_ptr, queue_ptr),
            (kd.enable_sgpr_kernarg_segment_ptr, kernarg),
            (kd.enable_sgpr_dispatch_id, dispatch_id),
        ):
            if enabled:
                words += [value & 0xFFFFFFFF, value >> 32]
        if kd.enable_sgpr_flat_scratch_init:
            assert scratch is not None
            words += [scratch.va & 0xFFFFFFFF, scratch.va >> 32]
        if kd.enable_sgpr_private_segment_size:
            words.append(kd.private_segment_fixed_size)
        entry = (address + kd.entry_offset) & 0xFFFFFFFFFFFFFFFF
        if kd.kernarg_preload_spec_length:
            first, size = 4 * kd.kernarg_preload_spec_offset, 4 * kd.kernarg_preload_spec_length
            words += np.frombuffer(preloaded[first : first + size].ljust(size, b"\0"), np.uint32).tolist()
            entry += PRELOAD_PROLOGUE_BYTES
        return cls.from_registers(
            arch,
            entry,
            kd.compute_pgm_rsrc1,
            kd.compute_pgm_rsrc2,
            kd.compute_pgm_rsrc3,
            tuple(words),
            wave32=bool(kd.enable_wavefront_size32),
            lds_bytes=kd.group_segment_fixed_size + dynamic_lds_bytes,
            scratch_bytes=kd.private_segment_fixed_size if scratch is None else scratch.lane_bytes,
            scratch_waves=0 if scratch is None else scratch.waves,
        )

    def set_scalars(self, s: Array, groups: Array, places: Array) -> None:
        """User SGPRs, then the workgroup ids. `groups` is (wave, 3); `places`: which wave of its group each is."""
        s[:, : len(self.user_sgprs)] = np.array(self.user_sgprs, np.uint32)
        if self.ids_in_ttmp:
            s[:, TTMP9] = groups[:, 0]
            s[:, TTMP7] = groups[:, 1] | groups[:, 2] << 16
            s[:, TTMP8] = places << 25
            return
        at = self.user_sgpr_count
        for axis, enabled in enumerate(self.group_ids):
            if enabled:
                s[:, at] = groups[:, axis]
                at += 1
        if self.scratch_waves:  # the offset of the wave's own scratch memory comes last
            s[:, at] = np.arange(len(s)) * self.wave_scratch_bytes


@dataclass(frozen=True)
class WorkItems:
    """The shape of a dispatch, x fastest."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    items: tuple[int, int, int]

    @property
    def groups(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def waves_per_group(self, wave_size: int) -> int:
        return -(-self.block[0] * self.block[1] * self.block[2] // wave_size)

    def group_coordinates(self, groups: Array) -> Array:
        """(n,) group numbers -> (n, 3)."""
        x, y = self.grid[0], self.grid[1]
        return np.stack([groups % x, groups // x % y, groups // (x * y)], axis=1)

    def group_sizes(self, groups: Array) -> Array:
        """(n, 3) work-items of each group; the last ones of a dimension may be smaller."""
        left = np.array(self.items) - self.group_coordinates(groups) * np.array(self.block)
        return np.clip(left, 0, np.array(self.block))

    def coordinates_in_block(self, linear: int) -> tuple[int, int, int]:
        x, y, _ = self.block
        return linear % x, linear // x % y, linear // (x * y)

    def waves(self, groups: Array, wave_size: int) -> tuple[Array, Array, Array]:
        """(group index, place in its group, active lanes) of every wave that has work."""
        per_group = self.waves_per_group(wave_size)
        index = np.repeat(np.arange(len(groups)), per_group)
        place = np.tile(np.arange(per_group), len(groups))
        count = self.group_sizes(groups).prod(axis=1)[index]
        linear = place[:, None] * wave_size + np.arange(wave_size)
        active = linear < count[:, None]
        useful = active.any(axis=1)
        return index[useful], place[useful], active[useful]

    def packed_ids(self, groups: Array, place: Array, wave_size: int, dimensions: int) -> Array:
        """v0: work-item ids, x in bits 9:0, y in 19:10, z in 29:20."""
        linear = place[:, None] * wave_size + np.arange(wave_size)
        sizes = np.maximum(self.group_sizes(groups), 1)
        x, y = sizes[:, :1], sizes[:, 1:2]
        packed = linear % x
        if dimensions >= 1:
            packed = packed | (linear // x % y) << 10
        if dimensions >= 2:
            packed = packed | (linear // (x * y)) << 20
        return packed.astype(np.uint32)
