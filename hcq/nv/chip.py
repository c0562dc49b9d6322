"""Chips: what differs between generations, as one row of data, chosen once when a device opens.

In       the compute class that a GPU lists
Out      a Chip: its classes, its launch description, its constant bank 0, its sizes and limits
Next     abi/classes.py (who has which class), abi/bank0.py, launch.py (launches by these), device.py (who chooses)
Source   CUDA C Programming Guide, "Compute Capabilities"; the class headers; ptxas output for constant bank 0
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hcq.errors import UsageError
from hcq.nv.abi.bank0 import Bank0, Bank0Sm80, Bank0Sm90, Bank0Sm100
from hcq.nv.abi.classes import ARCHITECTURES, ClassId, Engines
from hcq.nv.abi.compute_methods import SendSignalingPcas2B, SendSignalingPcas2BC6c0
from hcq.nv.abi.method import Method
from hcq.nv.abi.qmd import Qmd, qmd_for, sm_config

# of every block, for CUDA's ABI; inferred that a launch without shared memory asks for it, too, as CUDA's driver does
RESERVED_SHARED_BYTES = 1024
REGISTERS = 65536  # of one SM
FIRST_WITH_CLUSTERS = 4  # of the versions of QMDs: sm_90's
LARGE_PARAM_BYTES, LARGE_PARAM_BASE = 0x1100, 0x1A80  # before Hopper, more parameters than these begin there


@dataclass(frozen=True)
class Chip:
    """One architecture.

    engines          the classes of its channels
    carveouts        KiB of the L1 cache that may be shared memory
    shared_first     the reserved KiB of shared memory comes first, and cubins count it in their sections
    shared_window    its window is 4 GiB, of which only the high half of the address counts
    sass_version     of launch descriptions: major and minor of the SMs, which RM tells; here what it tells of GPUs
                     that are known
    """

    arch: str
    engines: Engines
    bank0: type[Bank0]
    carveouts: tuple[int, ...]
    max_shared_bytes: int
    max_warps: int  # of an SM, as are the blocks
    max_blocks: int
    shared_first: bool
    sass_version: int
    max_block: int = 1024
    sms_per_tpc: int = 2

    def with_sms(self, sm_version: int) -> Chip:
        """The row for a GPU whose SMs are of this version, as GR_GET_INFO tells it: 0xa04 is 10.4, and SASS 0xA4."""
        if not sm_version:  # an RM that does not say
            return self
        return replace(self, sass_version=sm_version >> 4 & 0xF0 | sm_version & 0xF)

    @property
    def qmd(self) -> type[Qmd]:
        """The layout of launch descriptions that its compute class reads."""
        return qmd_for(self.engines.compute)

    @property
    def launch_method(self) -> type[Method]:
        """SEND_SIGNALING_PCAS2_B of its class."""
        is_first = self.engines.compute == ClassId.AMPERE_COMPUTE_A
        method: type[Method] = SendSignalingPcas2BC6c0 if is_first else SendSignalingPcas2B
        return method

    @property
    def has_clusters(self) -> bool:
        """Whether several blocks can run as one."""
        return self.qmd.version >= FIRST_WITH_CLUSTERS

    def shared_bytes(self, static_bytes: int, dynamic_bytes: int) -> int:
        """SHARED_MEMORY_SIZE of a launch. static_bytes: what a cubin's section says."""
        if self.shared_first:
            total = max(static_bytes, RESERVED_SHARED_BYTES) + dynamic_bytes
        else:
            total = static_bytes + dynamic_bytes + RESERVED_SHARED_BYTES
        return -(-total // 256) * 256

    def param_base(self, param_bytes: int) -> int:
        """Where compilers put so many bytes of parameters in constant bank 0; a cubin says it itself."""
        is_moved = self.bank0 is Bank0Sm80 and param_bytes > LARGE_PARAM_BYTES
        return LARGE_PARAM_BASE if is_moved else self.bank0.param_base

    def sm_config(self, shared_bytes: int) -> int:
        """The smallest carve-out that holds so much shared memory, as a QMD says it."""
        return sm_config(next(size for size in self.carveouts if size << 10 >= shared_bytes))

    def target_sm_config(self, shared_bytes: int, threads: int, registers: int) -> int:
        """The smallest carve-out that holds the shared memory of all blocks that an SM can otherwise run at a time."""
        warps = -(-threads // 32)
        by_registers = REGISTERS // (-(-max(registers, 1) * 32 // 256) * 256 * warps)
        blocks = max(1, min(self.max_blocks, self.max_warps // warps, by_registers))
        most = self.carveouts[-1] << 10
        return self.sm_config(min(shared_bytes * blocks, most))

    def resident_blocks(self, shared_bytes: int, threads: int, registers: int) -> int:
        """How many blocks an SM can run at a time. shared_bytes: of each, as a launch says it."""
        warps = -(-threads // 32)
        # registers are given to warps, a quarter of them to each quarter
        warp = -(-max(registers, 1) * 32 // 256) * 256
        by_registers = REGISTERS // 4 // warp * 4 // warps
        by_shared = (self.carveouts[-1] << 10) // max(shared_bytes, 1)
        return min(self.max_blocks, self.max_warps // warps, by_registers, by_shared)

    @property
    def largest_sm_config(self) -> int:
        """The code of the largest shared memory that an SM can be configured for, as a QMD takes it."""
        return sm_config(self.carveouts[-1])

    def max_threads(self, registers: int) -> int:
        """The largest block whose registers fit an SM."""
        warp = -(-max(registers, 1) * 32 // 256) * 256
        return min(REGISTERS // warp // 4 * 4 * 32, self.max_block)


_LARGE = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)


def _chip(
    arch: str,
    bank0: type[Bank0],
    carveouts: tuple[int, ...],
    max_shared_bytes: int,
    max_warps: int,
    max_blocks: int,
    sass: int,
) -> Chip:
    return Chip(
        arch,
        ARCHITECTURES[arch],
        bank0,
        carveouts,
        max_shared_bytes,
        max_warps,
        max_blocks,
        shared_first=bank0 is not Bank0Sm80,
        sass_version=sass,
    )


CHIPS: dict[str, Chip] = {
    chip.arch: chip
    for chip in (
        _chip("sm_80", Bank0Sm80, _LARGE[:8], 166912, 64, 32, 0x80),
        _chip("sm_86", Bank0Sm80, _LARGE[:6], 101376, 48, 16, 0x86),
        _chip("sm_89", Bank0Sm80, _LARGE[:6], 101376, 48, 24, 0x89),
        _chip("sm_90", Bank0Sm90, _LARGE, 232448, 64, 32, 0x90),
        _chip("sm_100", Bank0Sm100, _LARGE, 232448, 64, 32, 0xA0),
        _chip("sm_120", Bank0Sm100, _LARGE[:6], 101376, 48, 24, 0xA4),
    )
}


def chip_of(compute_class: int) -> Chip:
    """The row of a GPU by its compute class. Raises UsageError naming the known ones."""
    for chip in CHIPS.values():
        if chip.engines.compute == compute_class:
            return chip
    raise UsageError(
        f"compute class {compute_class:#x} is not one this driver knows. Known: "
        f"{', '.join(f'{chip.engines.compute:#x} {chip.arch}' for chip in CHIPS.values())}."
    )
