"""Kernel descriptors: the 64 bytes, beside a kernel's code, that say how to launch it.

In       64 bytes of a code object
Out      KernelDescriptor, `user_sgprs` (what the first scalar registers of a wave hold), sizes
Next     link.py (finds and checks it), encode.py (launches from it), hcq/emu/amd/launch.py
Source   LLVM AMDGPUUsage, "Kernel Descriptor"
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.amd.abi.registers import Rsrc2
from hcq.layout import SparsePacket, bits

SIZE_BYTES = 64
ENTRY_ALIGNMENT = 256
# of code that preloads arguments: it loads them itself, for firmware that does not; firmware that does skips it
PRELOAD_PROLOGUE_BYTES = 256
MAX_USER_SGPRS = 16


class KernelDescriptor(SparsePacket, words=16):
    """amdhsa kernel descriptor, code object version 3 and later."""

    group_segment_fixed_size = bits(31, 0)  # bytes of LDS known to the compiler
    private_segment_fixed_size = bits(63, 32)  # bytes of scratch memory for each work-item
    kernarg_size = bits(95, 64)
    kernel_code_entry_byte_offset = bits(191, 128)  # from the descriptor; signed, as two's complement
    compute_pgm_rsrc3 = bits(383, 352)
    compute_pgm_rsrc1 = bits(415, 384)
    compute_pgm_rsrc2 = bits(447, 416)
    enable_sgpr_private_segment_buffer = bits(448)
    enable_sgpr_dispatch_ptr = bits(449)
    enable_sgpr_queue_ptr = bits(450)
    enable_sgpr_kernarg_segment_ptr = bits(451)
    enable_sgpr_dispatch_id = bits(452)
    enable_sgpr_flat_scratch_init = bits(453)
    enable_sgpr_private_segment_size = bits(454)
    enable_wavefront_size32 = bits(458)
    uses_dynamic_stack = bits(459)
    kernarg_preload_spec_length = bits(470, 464)  # words
    kernarg_preload_spec_offset = bits(479, 471)  # words

    @property
    def entry_offset(self) -> int:
        """Where the code is, in bytes from the descriptor; often negative."""
        raw = self.kernel_code_entry_byte_offset
        return raw - (1 << 64) if raw >> 63 else raw

    @property
    def start_offset(self) -> int:
        """Where a kernel starts once its first arguments are in registers, as its descriptor asks; from there, too."""
        return self.entry_offset + self.prologue_bytes

    @property
    def prologue_bytes(self) -> int:
        """Of code that loads what firmware, or a driver, has put into registers, and that is skipped then."""
        return PRELOAD_PROLOGUE_BYTES if self.kernarg_preload_spec_length else 0

    @property
    def rsrc2(self) -> Rsrc2:
        """COMPUTE_PGM_RSRC2 with its fields."""
        return Rsrc2.decode([self.compute_pgm_rsrc2])


class UserSgpr(NamedTuple):
    """One item that the launch puts into scalar registers, in this order, when its bit is set."""

    name: str
    field: str
    words: int


USER_SGPRS = (
    UserSgpr("private_segment_buffer", "enable_sgpr_private_segment_buffer", 4),
    UserSgpr("dispatch_ptr", "enable_sgpr_dispatch_ptr", 2),
    UserSgpr("queue_ptr", "enable_sgpr_queue_ptr", 2),
    UserSgpr("kernarg_segment_ptr", "enable_sgpr_kernarg_segment_ptr", 2),
    UserSgpr("dispatch_id", "enable_sgpr_dispatch_id", 2),
    UserSgpr("flat_scratch_init", "enable_sgpr_flat_scratch_init", 2),
    UserSgpr("private_segment_size", "enable_sgpr_private_segment_size", 1),
)


def user_sgprs(descriptor: KernelDescriptor) -> dict[str, int]:
    """Which items the kernel asked for, and the register each starts at."""
    at, places = 0, {}
    for item in USER_SGPRS:
        if descriptor.values[item.field]:
            places[item.name] = at
            at += item.words
    if descriptor.kernarg_preload_spec_length:
        places["kernarg_preload"] = at
    return places


def user_sgpr_words(descriptor: KernelDescriptor) -> int:
    """How many scalar registers the items of a descriptor fill."""
    items = sum(item.words for item in USER_SGPRS if descriptor.values[item.field])
    return items + descriptor.kernarg_preload_spec_length
