"""What people write in HIP, and what goes wrong in it: whole kernels.

In       nothing
Out      `ROWS`
Next     row.py, idioms_cuda.py, idioms_msl.py (the same in other languages), languages.py
"""

from __future__ import annotations

from typing import Any

from tests.hcq.gpu.sanitizer_corpus.row import Row

HEAD = """
#define T ((int) __builtin_amdgcn_workitem_id_x())
#define B ((int) __builtin_amdgcn_workgroup_id_x())
#define SHARED __attribute__((shared))
#define BAR() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \\
               __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define FENCE() __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")
#define RELAXED __ATOMIC_RELAXED
#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define ADD(p,v) __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
extern "C" __attribute__((global)) void kernel"""


def _row(name: str, word: str, rule: str, text: str, **options: Any) -> Row:
    return Row(name, "whole hip", word, rule, HEAD + text, **options)


# fmt: off
ROWS = (
    _row(
        "tree reduction", "race", "shared-race", """(float *out, const float *in) {
  SHARED float s[256];
  s[T] = in[B * 256 + T];
  BAR();
  for (int d = 128; d > 0; d >>= 1) {
    if (T < d) s[T] += s[T + d];
    + BAR();
  }
  if (T == 0) out[B] = s[0];
}""",
        grid=4, buffers=(4096, 4096)
    ),
    _row(
        "transposed tile", "race", "shared-race", """(float *out, const float *in) {
  SHARED float s[16][17];
  int x = T % 16, y = T / 16;
  for (int k = 0; k < 2; k++) {
  s[y][x] = in[T + k * 256];
  BAR();
  out[T + k * 256] = s[x][y];
  + BAR();
  }
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "lookback", "race", "global-race", """(int *out, int *sums, int *flags) {
  if (T == 0) {
    int before = 0;
    if (B > 0) {
      while (__hip_atomic_load(&flags[B - 1], RELAXED, AGENT) == 0) ;
      + FENCE();
      before = sums[B - 1];
    }
    sums[B] = before + B;
    + FENCE();
    __hip_atomic_store(&flags[B], 1, RELAXED, AGENT);
    out[B] = before;
  }
}""",
        block=64, grid=4, buffers=(4096, 256, 256)
    ),
    _row(
        "release of the workgroup for another", "race", "global-race", """(int *out, int *data, int *flag) {
  if (T) return;
  if (B == 0) { data[0] = 5;
    - __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    + __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, AGENT);
  } else { while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) == 0) ;
    out[0] = data[0]; }
}""",
        block=64, grid=2, buffers=(64, 64, 64)
    ),
    _row(
        "lock", "race", "global-race", """(int *lock, int *value) {
  if (T == 0) {
    int no;
    do { no = 0; } while (!__hip_atomic_compare_exchange_strong(lock, &no, 1, RELAXED, RELAXED, AGENT));
    + FENCE();
    *value += 1;
    + FENCE();
    __hip_atomic_store(lock, 0, RELAXED, AGENT);
  }
}""",
        block=64, grid=6, buffers=(64, 64)
    ),
    _row(
        "in place shift", "race", "global-race", """(float *out, float *in) {
  int i = B * 64 + T;
  float x = in[(i + 64) % 256];
  - in[i] = x;
  + out[i] = x;
}""",
        block=64, grid=4, buffers=(1024, 1024)
    ),
    _row(
        "LDS beyond a tile", "memory", "shared-beyond", """(float *out, const float *in) {
  - SHARED float s[32][7];
  + SHARED float s[32][9];
  int i = T / 8, j = T % 8;
  s[i][j + 1] = in[T];
  BAR();
  out[T] = s[31 - i][j + 1];
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "no guard", "memory", "buffer-overrun", """(float *out, const float *in, int n) {
  int i = B * 256 + T;
  + if (i < n)
  out[i] = in[i] * 2;
}""",
        grid=2, buffers=(1200, 1200), numbers=(300,)
    ),
    _row(
        "one before", "memory", "buffer-overrun", """(float *out, const float *in) {
  + if (T > 0)
  out[T] = in[T] - in[T - 1];
}""",
        buffers=(1024, 1024)
    ),
    _row(
        "null", "memory", "null-access", """(int *out, int n) {
  - int *p = n ? (int *) 0 : out;
  + int *p = out;
  __hip_atomic_store(&p[T], 1, RELAXED, AGENT);
}""",
        block=64, numbers=(1,)
    ),
    _row(
        "halo", "init", "uninitialised-read", """(float *out, const float *in) {
  SHARED float s[258];
  s[T + 1] = in[T];
  if (T == 0) s[0] = 0;
  + if (T == 255) s[257] = 0;
  BAR();
  out[T] = s[T] + s[T + 1] + s[T + 2];
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "bpermute of a lane that is off", "init", "uninitialised-read", """(int *out, int n) {
  SHARED int s[64];
  - if (T < 32) s[T] = T;
  + s[T] = T;
  BAR();
  int x = s[T];
  int y = __builtin_amdgcn_ds_bpermute((T ^ 32) * 4, x);
  if (y > 3) out[T] = 1;
}""",
        block=64, numbers=(3,)
    ),
    _row(
        "double buffer", "race", "shared-race", """(float *out, const float *in) {
  SHARED float a[2][256];
  float sum = 0;
  a[0][T] = in[T];
  BAR();
  #pragma unroll 1
  for (int k = 0; k < 3; k++) {
    a[(k + 1) & 1][T] = in[(k + 1) * 256 + T];
    sum += a[k & 1][255 - T];
    + BAR();
  }
  out[T] = sum;
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "atomic beside a plain load", "race", "global-race", """(int *out, int *bins) {
  ADD(&bins[T & 7], 1);
  - if (T == 0) out[B] = bins[3];
  + if (T == 0) out[B] = __hip_atomic_load(&bins[3], RELAXED, AGENT);
}""",
        grid=3, buffers=(64, 64)
    ),
)
