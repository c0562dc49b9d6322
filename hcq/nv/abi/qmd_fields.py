"""What versions of the QMD share: the base class, the names of values, groups of fields, the shared memory carve-out.

In       nothing
Out      Qmd (base of qmd_v3.py, qmd_v4.py, qmd_v5.py), enums, groups of fields, sm_config
Changes  nothing
Next     qmd.py (which version a GPU takes)
Source   clc6c0qmd.h, clcbc0qmd.h, clcec0qmd.h
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from hcq.layout import SparsePacket, bits
from hcq.nv.abi.compute_methods import ReductionFormat, ReductionOp, StructureSize, TrapType

Q = TypeVar("Q", bound="Qmd")

ALIGNMENT_BYTES = 256  # SEND_PCAS_A and dependent QMDs carry the address in units of these, in 32 bits


class QmdType(IntEnum):
    QUEUE = 0
    GRID_NULL = 1
    GRID_CTA = 2
    GRID_GPC_CGA = 3
    GRID_GPU_CGA = 4
    GRID_GPU_GPC_CGA = 5


class MembarType(IntEnum):
    FE_NONE = 0
    FE_SYSMEMBAR = 1


class DependentAction(IntEnum):
    QMD_INCREMENT_PUT = 0
    QMD_SCHEDULE = 1
    QMD_INVALIDATE_COPY_SCHEDULE = 3
    QMD_DECREMENT_DEPENDENCE = 4


class ConstantBufferPrefetch(IntEnum):
    PREFETCH_NONE = 0
    PREFETCH_PRE = 1
    PREFETCH_POST = 2


class ApiVisibleCallLimit(IntEnum):
    LIMIT_32 = 0
    NO_CHECK = 1


class SamplerIndex(IntEnum):
    INDEPENDENTLY = 0
    VIA_HEADER_INDEX = 1


class CwdMembarType(IntEnum):
    L1_NONE = 0
    L1_SYSMEMBAR = 1
    L1_MEMBAR = 3


class ProgramPrefetchType(IntEnum):
    PREFETCH_LAUNCH = 0
    PREFTECH_POST = 1


class CgaCtaDistributionMode(IntEnum):
    LOAD_BALANCING = 0
    MULTI_CAST = 1


# fields that move together from version to version, from their first bit on
INVALIDATE = {
    "invalidate_texture_header_cache": bits(0),
    "invalidate_texture_sampler_cache": bits(1),
    "invalidate_texture_data_cache": bits(2),
    "invalidate_shader_data_cache": bits(3),
    "invalidate_instruction_cache": bits(4),
    "invalidate_shader_constant_cache": bits(5),
}
DEPENDENT_QMD = {
    "dependent_qmd{i}_enable": bits(0),
    "dependent_qmd{i}_action": bits(3, 1, enum=DependentAction),
    "dependent_qmd{i}_prefetch": bits(4),
}
# versions 4 and 5
RELEASE = {
    "release{i}_enable": bits(0),
    "release{i}_structure_size": bits(2, 1, enum=StructureSize),
    "release{i}_membar_type": bits(3, enum=MembarType),
    "release{i}_reduction_enable": bits(4),
    "release{i}_reduction_op": bits(7, 5, enum=ReductionOp),
    "release{i}_reduction_format": bits(9, 8, enum=ReductionFormat),
    "release{i}_trap_type": bits(11, 10, enum=TrapType),
    "release{i}_payload64b": bits(12),
    "release{i}_reserved_info": bits(15, 13),
}
RELEASE_SEMAPHORE = {"release_semaphore{i}_addr": bits(56, 0), "release_semaphore{i}_payload": bits(127, 64)}
CONSTANT_BUFFER = {
    "constant_buffer_addr_{i}": bits(50, 0, unit=64),
    "constant_buffer_size_{i}": bits(63, 51, unit=16),
}
CONSTANT_BUFFER_STATE = {
    "constant_buffer_valid_{i}": bits(0),
    "constant_buffer_prefetch_{i}": bits(2, 1, enum=ConstantBufferPrefetch),
    "constant_buffer_invalidate_{i}": bits(3),
}


class Qmd(SparsePacket, words=0):
    """The launch description of one grid. Names are the vendor's; `renamed` maps shared names to a version's own."""

    version: ClassVar[int] = 0
    renamed: ClassVar[dict[str, str]] = {}

    @classmethod
    def launch(cls: type[Q], **values: Any) -> Q:
        """A QMD from names that all versions understand: grid_width, register_count, release0_address, ...

        Raises  UsageError for a name that this version has not, or a value that does not fit
        """
        return cls(**{cls.renamed.get(name, name): value for name, value in values.items()})

    def value(self, name: str) -> int:
        """The value of a field by its shared or its own name."""
        return self.values[self.renamed.get(name, name)]


def sm_config(kibibytes: int) -> int:
    """The *_SM_CONFIG_SHARED_MEM_SIZE value of a carve-out of the L1 cache for shared memory.

    Inferred from values that were seen: 3 is 8 KiB, 0x1a 100 KiB, 0x3a 228 KiB. No header says how they are made.
    """
    return kibibytes // 4 + 1
