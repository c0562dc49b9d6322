"""Copies and fills that a blit encoder does not do: any alignment, any pattern.

In       nothing
Out      the source of two kernels, one byte for each thread; when a blit encoder can do it
Next     commands.py (who launches them)
Source   Apple's documentation of MTLBlitCommandEncoder: on macOS offsets and sizes of copies and ranges of fills are
         multiples of four bytes
"""

from __future__ import annotations

from hcq.metal.abi.messages import COPY_ALIGNMENT

BLOCK = 256
SOURCE = f"""\
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup({BLOCK})]] kernel void hcq_copy(
    device uchar *dst [[buffer(0)]], device const uchar *src [[buffer(1)]], constant ulong &count [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]], uint thread_ [[thread_position_in_threadgroup]]) {{
  const ulong at = (ulong)group * {BLOCK} + (ulong)thread_;
  if (at < count) dst[at] = src[at];
}}

[[max_total_threads_per_threadgroup({BLOCK})]] kernel void hcq_fill(
    device uchar *dst [[buffer(0)]], constant ulong &pattern [[buffer(1)]], constant ulong &count [[buffer(2)]],
    uint group [[threadgroup_position_in_grid]], uint thread_ [[thread_position_in_threadgroup]]) {{
  const ulong at = (ulong)group * {BLOCK} + (ulong)thread_;
  if (at < count) dst[at] = (uchar)(pattern >> (8 * (at & 7)));
}}
"""


def is_aligned(*numbers: int) -> bool:
    """Whether a blit encoder takes these offsets and sizes."""
    return not any(number % COPY_ALIGNMENT for number in numbers)


def repeated_byte(pattern: int) -> int | None:
    """The byte that 8 bytes repeat; None where they are not all the same."""
    byte = pattern & 0xFF
    return byte if pattern == byte * 0x0101010101010101 else None
