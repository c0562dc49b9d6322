"""Kernels in MSL that touch memory which is not theirs, each beside a twin that does not.

In       nothing
Out      `CASES`: what a kernel does wrong, the rule that it breaks, its body and that of its twin
Next     test_sanitizer_memory.py (runs them), straying_kernels.py (the other vendors)

A kernel has two buffers of 100 floats, a and b, and 64 threads, t.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """Bodies of a kernel."""

    rule: str
    wrong: str
    right: str


CASES = {
    "a load behind the end": Case("buffer-overrun", "b[t] = a[t + 37];", "b[t] = a[t + 36];"),
    "a store behind the end": Case("buffer-overrun", "b[t + 37] = 1.0f;", "b[t + 36] = 1.0f;"),
    "before its beginning": Case("buffer-overrun", "b[t] = a[(int)t - 1];", "b[t] = a[(int)t];"),
    "far behind it": Case("buffer-overrun", "a[t + 1000] = 1.0f;", "a[t] = 1.0f;"),
    "a row too long": Case(
        "buffer-overrun",
        "for (int i = 0; i < 101; ++i) { if (t == 0u) { b[i] = a[i]; } }",
        "for (int i = 0; i < 100; ++i) { if (t == 0u) { b[i] = a[i]; } }",
    ),
    "beyond threadgroup memory": Case(
        "shared-beyond",
        "threadgroup float tile[64]; tile[t + 1] = 1.0f; b[t] = 0.0f;",
        "threadgroup float tile[64]; tile[t] = 1.0f; b[t] = 0.0f;",
    ),
}


def msl(body: str) -> bytes:
    """The kernel `kernel_`."""
    return f"""#include <metal_stdlib>
using namespace metal;
kernel void kernel_(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
                    uint t [[thread_position_in_grid]]) {{
    {body}
}}
""".encode()
