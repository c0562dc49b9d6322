"""What people write in MSL, and what goes wrong in it: whole kernels.

In       nothing
Out      `ROWS`
Next     row.py, idioms_cuda.py, idioms_hip.py (the same in other languages), languages.py
"""

from __future__ import annotations

from typing import Any

from tests.hcq.gpu.sanitizer_corpus.row import Row

HEAD = """
#include <metal_stdlib>
using namespace metal;
"""


def _row(name: str, word: str, rule: str, text: str, **options: Any) -> Row:
    return Row(name, "whole msl", word, rule, HEAD + text, **options)


# fmt: off
ROWS = (
    _row(
        "barrier with mem_none", "race", "shared-race", """
kernel void kernel_(
    device int *out [[buffer(0)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup int s[256];
  s[t] = int(t);
  - threadgroup_barrier(mem_flags::mem_none);
  + threadgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = s[255 - t];
}""",

    ),
    _row(
        "device memory behind a barrier for threadgroup memory", "race", "global-race", """
kernel void kernel_(
    device int *out [[buffer(0)]],
    device int *tmp [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  tmp[t] = int(t);
  - threadgroup_barrier(mem_flags::mem_threadgroup);
  + threadgroup_barrier(mem_flags::mem_device);
  out[t] = tmp[255 - t];
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "no guard", "memory", "buffer-overrun", """
kernel void kernel_(
    device float *out [[buffer(0)]],
    device const float *in [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint b [[threadgroup_position_in_grid]]) {
  uint i = b * 256 + t;
  + if (i < 300)
  out[i] = in[i] * 2.0f;
}""",
        grid=2, buffers=(1200, 1200)
    ),
    _row(
        "halo", "init", "uninitialised-read", """
kernel void kernel_(
    device float *out [[buffer(0)]],
    device const float *in [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float s[258];
  s[t + 1] = in[t];
  if (t == 0) s[0] = 0.0f;
  + if (t == 255) s[257] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[t] = s[t] + s[t + 1] + s[t + 2];
}""",
        buffers=(4096, 4096)
    ),
)
