"""How a kernel starts: the registers and resources that a descriptor, or a queue's register values, ask for.

In       COMPUTE_PGM_RSRC1..3, user data, a kernel descriptor; grid and block sizes
Out      Launch (one per kernel start), WorkItems (which lane is which work-item)
Changes  the first registers of new waves
Next     run.py, waves.py, hcq/amd/abi/descriptor.py and hcq/amd/abi/registers.py (the layouts)
Source   LLVM AMDGPUUsage: kernel descriptor, initial kernel execution state (the order of SGPRs)
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hcq.amd.abi.descriptor import KernelDescriptor
from hcq.amd.abi.registers import Rsrc1, Rsrc2
from hcq.emu.amd.shader.arrays import Array

TTMP7, TTMP8, TTMP9 = 115, 116, 117  # as scalar registers
DX10_CLAMP = 1 << 8
TOLD_OF_SCRATCH = ("gfx90a", "gfx10")  # waves find their scratch memory through registers
CODE_PROPERTIES = 14  # word of the descriptor whose lowest bits say what goes into the first scalar registers
USER_SGPRS = (
    *("private_segment_buffer", "dispatch_ptr", "queue_ptr", "kernarg_segment_ptr"),
    *("dispatch_id", "flat_scratch_init", "private_segment_size"),
)


def vgpr_count(arch: str, granulated: int, wave_size: int) -> int:
    """How many VGPRs (on gfx9 with the accumulation file after them) a wave has."""
    block = 8 if wave_size == 32 or arch.startswith("gfx9") else 4
    return (granulated + 1) * block


def user_sgprs(descriptor: KernelDescriptor, values: Mapping[str, Sequence[int]]) -> list[int]:
    """The words of s0, s1, ...: what the descriptor's bits ask for."""
    return [word for name in asked_sgprs(descriptor) for word in values[name]]


def asked_sgprs(descriptor: KernelDescriptor) -> tuple[str, ...]:
    """What the descriptor's bits ask for, lowest bit first."""
    asked = descriptor.words[CODE_PROPERTIES]
    return tuple(name for bit, name in enumerate(USER_SGPRS) if asked >> bit & 1)


@functools.lru_cache(256)
def _resources(rsrc1: int, rsrc2: int) -> tuple[Rsrc1, Rsrc2]:
    """Registers that most launches of a program have alike. Not to be changed."""
    return Rsrc1.decode([rsrc1]), Rsrc2.decode([rsrc2])


@dataclass(frozen=True)
class Launch:
    """One kernel start. `user_sgprs` are the words of s0, s1, ...; workgroup ids follow at `user_sgpr_count`."""

    entry: int
    wave_size: int
    vgprs: int
    user_sgprs: tuple[int, ...] = ()
    user_sgpr_count: int = 0
    group_ids: tuple[bool, bool, bool] = (True, False, False)
    id_dimensions: int = 0  # work-item ids: 0 x, 1 xy, 2 xyz
    packs_ids: bool = True  # in v0; on gfx10 each dimension's are in a register of its own
    lds_bytes: int = 0
    scratch_bytes: int = 0  # per work-item
    mode: int = 0x3F0  # round to nearest, denormals kept, dx10_clamp, ieee
    acc_offset: int = 0  # gfx90a and gfx942: where a0 lies
    scratch_waves: int = (
        0  # gfx90a, gfx10: there is scratch memory for so many; 0: no wave asks where its own is
    )
    wave_scratch_bytes: int = 0
    # gfx12: workgroup ids in TTMP9 and TTMP7, the wave's place in its group in TTMP8
    ids_in_ttmp: bool = False

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
        lds_bytes: int,
        scratch_bytes: int = 0,
        scratch_waves: int = 0,
    ) -> Launch:
        """From what a PM4 queue holds."""
        one, two = _resources(rsrc1, rsrc2)
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
            lds_bytes=lds_bytes,
            scratch_bytes=scratch_bytes,
            scratch_waves=scratch_waves if arch.startswith(TOLD_OF_SCRATCH) and two.scratch_en else 0,
            wave_scratch_bytes=scratch_bytes * wave_size,
            mode=rsrc1 >> 12 & 0xFF | flags,
            ids_in_ttmp=is_gfx12,
            packs_ids=not arch.startswith("gfx10"),
            acc_offset=4 * ((rsrc3 & 63) + 1) if arch.startswith("gfx9") else 0,
        )

    @property
    def id_registers(self) -> int:
        """How many vector registers hold the ids of work-items when a wave begins."""
        return 1 if self.packs_ids else self.id_dimensions + 1

    def unpacked(self, packed: Array) -> Array:
        """Packed ids as these registers have them."""
        if self.packs_ids:
            return packed
        return np.stack(
            [packed >> np.uint32(10 * axis) & np.uint32(0x3FF) for axis in range(self.id_registers)]
        )

    def with_sgprs(self, user_sgprs: tuple[int, ...]) -> Launch:
        """The same with other user SGPRs: one for each launch, so nothing is worked out again."""
        new = object.__new__(Launch)
        vars(new).update(vars(self), user_sgprs=user_sgprs)
        return new

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

    @functools.cached_property
    def groups(self) -> int:
        """How many workgroups there are."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @functools.cached_property
    def is_whole(self) -> bool:
        """Whether no group is smaller than the others."""
        return all(total == groups * size for total, groups, size in zip(self.items, self.grid, self.block))

    def waves_per_group(self, wave_size: int) -> int:
        """How many waves a whole workgroup takes."""
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
        """A work-item of a workgroup, by its number: (x, y, z)."""
        x, y, _ = self.block
        return linear % x, linear // x % y, linear // (x * y)

    def name_of(self, group: int, linear: int) -> str:
        """A work-item in words, by its workgroup's number and its own in that."""
        place = self.group_coordinates(np.array([group]))[0]
        item = self.coordinates_in_block(linear)
        return f"workgroup {tuple(int(x) for x in place)}, work-item {item}"

    def waves(self, groups: Array, wave_size: int) -> tuple[Array, Array, Array]:
        """(group index, place in its group, active lanes) of every wave that has work."""
        per_group = self.waves_per_group(wave_size)
        if self.is_whole and self.block[0] * self.block[1] * self.block[2] % wave_size == 0:
            return _whole_waves(len(groups), per_group, wave_size)
        index = np.repeat(np.arange(len(groups)), per_group)
        place = np.tile(np.arange(per_group), len(groups))
        sizes = self.group_sizes(groups)
        count = sizes.prod(axis=1)[index]
        linear = place[:, None] * wave_size + np.arange(wave_size)
        active = linear < count[:, None]
        useful = active.any(axis=1)
        return index[useful], place[useful], active[useful]

    def packed_ids(self, groups: Array, place: Array, wave_size: int, dimensions: int) -> Array:
        """Work-item ids, x in bits 9:0, y in 19:10, z in 29:20."""
        if self.is_whole:  # the same in every group: worked out once
            return _whole_ids(self.block, self.waves_per_group(wave_size), wave_size, dimensions)[place]
        return _packed(place, np.maximum(self.group_sizes(groups), 1), wave_size, dimensions)


@functools.lru_cache(256)
def work_items(
    grid: tuple[int, int, int], block: tuple[int, int, int], items: tuple[int, int, int] | None
) -> WorkItems:
    """The shape of a dispatch. items: None: all groups are whole."""
    return WorkItems(grid, block, items or (grid[0] * block[0], grid[1] * block[1], grid[2] * block[2]))


# a large grid is many batches of groups that are alike
@functools.lru_cache(maxsize=4)
def _whole_waves(groups: int, per_group: int, wave_size: int) -> tuple[Array, Array, Array]:
    """What WorkItems.waves() says of whole groups of whole waves. Not to be written to."""
    index = np.repeat(np.arange(groups), per_group)
    place = np.tile(np.arange(per_group), groups)
    lanes = np.ones((len(index), wave_size), np.bool_)
    for one in (index, place, lanes):
        one.flags.writeable = False
    return index, place, lanes


@functools.lru_cache(maxsize=16)
def _whole_ids(block: tuple[int, int, int], waves: int, wave_size: int, dimensions: int) -> Array:
    """The ids of the waves of a whole group."""
    ids = _packed(np.arange(waves), np.broadcast_to(np.array(block), (waves, 3)), wave_size, dimensions)
    ids.flags.writeable = False
    return ids


def _packed(place: Array, sizes: Array, wave_size: int, dimensions: int) -> Array:
    """The ids of waves at these places of groups of these sizes."""
    linear = place[:, None] * wave_size + np.arange(wave_size)
    x, y = sizes[:, :1], sizes[:, 1:2]
    packed = linear % x
    if dimensions >= 1:
        packed = packed | (linear // x % y) << 10
    if dimensions >= 2:
        packed = packed | (linear // (x * y)) << 20
    return packed.astype(np.uint32)
