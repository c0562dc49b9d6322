"""Uses of new buffers that nobody wrote: sums, counters, tables, flags, in C for CUDA and for HIP, and in MSL.

In       nothing
Out      `ROWS`
Next     row.py, init_c.py (shared memory, registers), languages.py
"""

from __future__ import annotations

from tests.hcq.gpu.sanitizer_corpus.faults_c import CUDA, HIP
from tests.hcq.gpu.sanitizer_corpus.row import Row

NEW, RULE = "init", "uninitialised-read"
C = {
    "added to a buffer that nobody set to zero": """(float *out, const float *in) {
  - out[T] += in[T];
  + out[T] = in[T];
}""",
    "a counter that nobody set to zero": """(int *count, int *out) {
  + if (T == 0) *count = 0;
  + BAR();
  int before = ADD(count, 1);
  if (before < 16) out[before] = 1;
}""",
    "bins that nobody set to zero": """(int *bins, const int *in) {
  + bins[T] = 0;
  + BAR();
  ADD(&bins[(in[T] + 5 * T) & 63], 1);
}""",
    "a table that nobody wrote": """(int *table, int *out) {
  + table[T] = 63 - T;
  out[table[T] & 63] = 1;
}""",
    "a count of rows that nobody wrote": """(int *rows, int *out) {
  + *rows = 2;
  + BAR();
  for (int k = 0; k < *rows && k < 4; k++) out[k * 64 + T] = k;
}""",
    "the last row of a sum": """(float *a, float *out) {
  - for (int k = 0; k < 3; k++) a[k * 64 + T] = k;
  + for (int k = 0; k < 4; k++) a[k * 64 + T] = k;
  BAR();
  float sum = 0;
  for (int k = 0; k < 4; k++) sum += a[k * 64 + 63 - T];
  out[T] = sum;
}""",
    "bins in shared memory": """(int *out, const int *in) {
  SHARED int bins[64];
  + bins[T] = 0;
  + BAR();
  ADD(&bins[(in[T] + 5 * T) & 63], 1);
  BAR();
  if (T == 0) out[0] = 1;
}""",
}
MSL = """#include <metal_stdlib>
using namespace metal;
kernel void kernel_(device int *out [[buffer(0)]], device int *in [[buffer(1)]],
                    uint t [[thread_position_in_threadgroup]]) {"""
METAL = {
    "added to a buffer that nobody set to zero": """
  - out[t] += in[t];
  + out[t] = in[t];
}""",
    "a counter in a new buffer": """
  device atomic_int *count = (device atomic_int *) out;
  + if (t == 0) atomic_store_explicit(count, 0, memory_order_relaxed);
  + threadgroup_barrier(mem_flags::mem_device);
  int before = atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
  if (before < 16) in[before] = 1;
}""",
}
SECOND = {"bins in shared memory": ()}  # whose buffers are written
ROWS = (
    *(
        Row(
            name,
            language,
            NEW,
            RULE,
            head + text,
            block=64,
            buffers=(1024, 1024),
            fresh=SECOND.get(name, (0,)),
        )
        for name, text in C.items()
        for language, head in (("whole cuda", CUDA), ("whole hip", HIP))
    ),
    *(
        Row(name, "whole msl", NEW, RULE, MSL + text, block=64, buffers=(1024, 1024), fresh=(0,))
        for name, text in METAL.items()
    ),
)
