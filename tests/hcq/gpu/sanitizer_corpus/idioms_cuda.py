"""What people write in CUDA, and what goes wrong in it: whole kernels, in the order of the words.

In       nothing
Out      `ROWS`
Next     row.py, idioms_hip.py, idioms_msl.py (the same in other languages), languages.py
"""

from __future__ import annotations

from typing import Any

from tests.hcq.gpu.sanitizer_corpus.row import Row

HEAD = """
#define SHARED_AT(p) ((unsigned) __cvta_generic_to_shared(p))
#define COPY4(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory")
extern "C" __global__ void kernel"""


def _row(name: str, word: str, rule: str, text: str, **options: Any) -> Row:
    return Row(name, "whole cuda", word, rule, HEAD + text, **options)


# fmt: off
ROWS = (
    _row(
        "tree reduction", "race", "shared-race", """(float *out, const float *in) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = in[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 128; d > 0; d >>= 1) {
    if (t < d) s[t] += s[t + d];
    + __syncthreads();
  }
  + __syncthreads();
  if (t == 0) out[blockIdx.x] = s[0];
}""",
        grid=4, buffers=(4096, 4096)
    ),
    _row(
        "tree reduction, barrier only for large steps", "race", "lane-race", """(float *out, const float *in) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  for (int d = 128; d >= 32; d >>= 1) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t < 32) {
    #pragma unroll 1
    for (int d = 16; d > 0; d >>= 1) {
      float x = s[t] + s[t + d];
      + __syncwarp();
      s[t] = x;
      + __syncwarp();
    }
  }
  if (t == 0) out[0] = s[0];
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "double buffer", "race", "shared-race", """(float *out, const float *in) {
  __shared__ float a[2][256];
  int t = threadIdx.x; float sum = 0;
  a[0][t] = in[t];
  __syncthreads();
  #pragma unroll 1
  for (int k = 0; k < 4; k++) {
    if (k < 3) a[(k + 1) & 1][t] = in[(k + 1) * 256 + t];
    sum += a[k & 1][255 - t];
    + __syncthreads();
  }
  out[t] = sum;
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "matmul tile second barrier", "race", "shared-race", """(float *out, const float *x, const float *y) {
  __shared__ float a[16][16], b[16][16];
  int i = threadIdx.x / 16, j = threadIdx.x % 16; float sum = 0;
  for (int k = 0; k < 32; k += 16) {
    a[i][j] = x[i * 32 + k + j]; b[i][j] = y[(k + i) * 32 + j];
    __syncthreads();
    for (int q = 0; q < 16; q++) sum += a[i][q] * b[q][j];
    + __syncthreads();
  }
  out[i * 16 + j] = sum;
}""",
        buffers=(4096, 4096, 4096)
    ),
    _row(
        "split k", "race", "global-race", """(float *out, float *part, unsigned *count) {
  int t = threadIdx.x, b = blockIdx.x; __shared__ bool last;
  part[b * 256 + t] = b + t;
  + __threadfence();
  __syncthreads();
  if (t == 0) last = atomicAdd(count, 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  float sum = 0;
  for (int k = 0; k < gridDim.x; k++) sum += part[k * 256 + t];
  out[t] = sum;
}""",
        grid=4, buffers=(4096, 4096, 64)
    ),
    _row(
        "split k count before the partial", "race", "global-race", """(float *out, float *part, unsigned *count) {
  int t = threadIdx.x, b = blockIdx.x; __shared__ bool last;
  + part[b * 256 + t] = b + t; __threadfence(); __syncthreads();
  if (t == 0) last = atomicAdd(count, 1) == gridDim.x - 1;
  - part[b * 256 + t] = b + t; __threadfence();
  __syncthreads();
  if (!last) return;
  __threadfence();
  float sum = 0;
  for (int k = 0; k < gridDim.x; k++) sum += part[k * 256 + t];
  out[t] = sum;
}""",
        grid=4, buffers=(4096, 4096, 64)
    ),
    _row(
        "lookback", "race", "global-race", """(int *out, int *sums, volatile int *flags) {
  int b = blockIdx.x;
  if (threadIdx.x == 0) {
    int before = 0;
    if (b > 0) {
      while (flags[b - 1] == 0) ;
      + __threadfence();
      before = sums[b - 1];
    }
    sums[b] = before + b;
    + __threadfence();
    flags[b] = 1;
    out[b] = before;
  }
}""",
        block=32, grid=4, buffers=(4096, 256, 256)
    ),
    _row(
        "lookback, packed word is right", "race", "global-race", """(int *out, unsigned long long *state, int *sums) {
  int b = blockIdx.x;
  if (threadIdx.x == 0) {
    unsigned long long before = 0;
    if (b > 0) {
      unsigned long long s;
      do { s = atomicAdd(&state[b - 1], 0ull); } while (!(s >> 32));
      before = s & 0xffffffffu;
      - before = sums[b - 1];
    }
    sums[b] = (int) before + b;
    atomicExch(&state[b], (1ull << 32) | (before + b));
    out[b] = before;
  }
}""",
        block=32, grid=4, buffers=(4096, 256, 256)
    ),
    _row(
        "grid barrier by hand", "race", "global-race", """(int *out, int *data, int *arrived) {
  int t = threadIdx.x, b = blockIdx.x;
  data[b * 64 + t] = t;
  + __threadfence();
  __syncthreads();
  if (t == 0) { atomicAdd(arrived, 1); while (atomicAdd(arrived, 0) < gridDim.x) ;
    __threadfence(); }
  __syncthreads();
  out[b * 64 + t] = data[((b + 1) % gridDim.x) * 64 + t];
}""",
        block=64, grid=4, buffers=(4096, 4096, 64)
    ),
    _row(
        "spin lock without fences", "race", "global-race", """(int *lock, int *value) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) ;
    + __threadfence();
    *value += 1;
    + __threadfence();
    atomicExch(lock, 0);
  }
}""",
        block=32, grid=6, buffers=(64, 64)
    ),
    _row(
        "lock released by a plain store", "race", "global-race", """(int *lock, int *value) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) ;
    __threadfence();
    *value += 1;
    __threadfence();
    - *lock = 0;
    + atomicExch(lock, 0);
  }
}""",
        block=32, grid=6, buffers=(64, 64)
    ),
    _row(
        "fence of the block for another block", "race", "global-race", """(int *out, int *data, int *flag) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) { data[0] = 5;
    - __threadfence_block();
    + __threadfence();
    atomicExch(flag, 1); }
  else { while (atomicAdd(flag, 0) == 0) ;
    __threadfence(); out[0] = data[0]; }
}""",
        block=32, grid=2, buffers=(64, 64, 64)
    ),
    _row(
        "atomics of the block for several blocks", "race", "global-race", """(int *bins) {
  - atomicAdd_block(&bins[threadIdx.x & 7], 1);
  + atomicAdd(&bins[threadIdx.x & 7], 1);
}""",
        grid=3, buffers=(64,)
    ),
    _row(
        "private histogram merged too early", "race", "shared-race", """(int *out, const int *in) {
  __shared__ int h[64];
  int t = threadIdx.x;
  if (t < 64) h[t] = 0;
  __syncthreads();
  atomicAdd(&h[(in[t] + t) & 63], 1);
  + __syncthreads();
  if (t < 64) atomicAdd(&out[t], h[t]);
}""",
        grid=2, buffers=(256, 1024)
    ),
    _row(
        "halo is not loaded", "init", "uninitialised-read", """(float *out, const float *in) {
  __shared__ float s[258];
  int t = threadIdx.x;
  s[t + 1] = in[t];
  if (t == 0) s[0] = 0;
  + if (t == 255) s[257] = 0;
  __syncthreads();
  out[t] = s[t] + s[t + 1] + s[t + 2];
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "running maximum starts nowhere", "init", "uninitialised-read", """(int *out, const int *in, int n) {
  int best;
  + best = -1;
  for (int k = 0; k < n; k++) if (in[k] > 3) best = in[k];
  out[threadIdx.x] = best;
}""",
        buffers=(4096, 4096), numbers=(3,)
    ),
    _row(
        "padding of a shared tile", "memory", "shared-beyond", """(float *out, const float *in) {
  - __shared__ float s[32][7];
  + __shared__ float s[32][9];
  int i = threadIdx.x / 8, j = threadIdx.x % 8;
  s[i][j + 1] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[31 - i][j + 1];
}""",
        buffers=(4096, 4096)
    ),
    _row(
        "no guard for the tail", "memory", "buffer-overrun", """(float *out, const float *in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  + if (i < n)
  out[i] = in[i] * 2;
}""",
        grid=2, buffers=(1200, 1200), numbers=(300,)
    ),
    _row(
        "one element before the row", "memory", "buffer-overrun", """(float *out, const float *in) {
  int t = threadIdx.x;
  + if (t > 0)
  out[t] = in[t] - in[t - 1];
}""",
        buffers=(1024, 1024)
    ),
    _row(
        "vector load at an odd place", "memory", "misaligned-access", """(float *out, const float *in, int n) {
  - float4 v = *(const float4 *)(in + threadIdx.x * 4 + 1);
  + float4 v = *(const float4 *)(in + threadIdx.x * 4);
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}""",
        block=32, buffers=(4096, 4096), numbers=(0,)
    ),
    _row(
        "index taken from data", "memory", "buffer-overrun", """(int *out, const int *in, int n) {
  int where = in[threadIdx.x] + n;
  - out[where + 1000] = 1;
  + out[(where + 1000) % 256] = 1;
}""",
        buffers=(1024, 1024), numbers=(50,)
    ),
    _row(
        "stack array", "memory", "local-overrun", """(int *out, int n) {
  volatile int a[8];
  for (int k = 0; k < 8; k++) a[k] = k;
  - out[threadIdx.x] = a[n + 4000000];
  + out[threadIdx.x] = a[n & 7];
}""",
        block=32, numbers=(5,)
    ),
    _row(
        "barrier in one branch", "sync", "barrier-divergent", """(int *out, int n) {
  int t = threadIdx.x;
  if (t % 2 == n) { out[t] = 1;
    - __syncthreads();
  } else out[t] = 2;
  __syncthreads();
}""",
        block=64, numbers=(0,)
    ),
    _row(
        "shuffle names absent lanes", "sync", "mask-names-absent", """(int *out) {
  int t = threadIdx.x, x = t;
  if (t < 16) {
    - x += __shfl_down_sync(0xffffffffu, x, 8);
    + x += __shfl_down_sync(0x0000ffffu, x, 8);
    out[t] = x;
  } else out[t] = 0;
  __syncthreads();
  out[t] += 1;
}""",
        block=32
    ),
    _row(
        "ballot mask from activemask is of others", "sync", "mask-names-absent", """(int *out) {
  int t = threadIdx.x;
  unsigned m = 0;
  if (t < 20) m = __ballot_sync(
    - 0xffffffffu, t & 1);
    + 0x000fffffu, t & 1);
  __syncthreads();
  out[t] = m;
}""",
        block=32
    ),
    _row(
        "cp.async depth", "wait", "async-copy-not-waited", """(float *out, const float *in) {
  __shared__ float s[3][64];
  int t = threadIdx.x; float sum = 0;
  unsigned base = SHARED_AT(s);
  #pragma unroll 1
  for (int k = 0; k < 2; k++) {
    COPY4(base + (k % 3) * 256 + t * 4, in + k * 64 + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  #pragma unroll 1
  for (int k = 0; k < 4; k++) {
    if (k + 2 < 6) COPY4(base + ((k + 2) % 3) * 256 + t * 4, in + (k + 2) * 64 + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
    - asm volatile("cp.async.wait_group 3;" ::: "memory");
    + asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();
    sum += s[k % 3][63 - t];
    __syncthreads();
  }
  out[t] = sum;
}""",
        block=64, buffers=(4096, 4096)
    ),
    _row(
        "cp.async waited, barrier missing", "race", "shared-race", """(float *out, const float *in) {
  __shared__ float s[128];
  int t = threadIdx.x;
  unsigned base = SHARED_AT(s);
  COPY4(base + t * 4, in + t);
  asm volatile("cp.async.wait_all;" ::: "memory");
  + __syncthreads();
  out[t] = s[127 - t];
}""",
        block=128, buffers=(4096, 4096)
    ),
    _row(
        "mbarrier phase flipped", "wait", "barrier-not-reached", """(float *out, const float *in) {
  __shared__ __align__(16) float s[64]; __shared__ __align__(8) unsigned long long bar;
  int t = threadIdx.x;
  unsigned b = SHARED_AT(&bar), d = SHARED_AT(s);
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" :: "r"(b) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                 :: "r"(d), "l"(in), "r"(b) : "memory");
  }
  int ok = 0;
  - int phase = 1;
  + int phase = 0;
  while (!ok)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(ok) : "r"(b), "r"(phase) : "memory");
  out[t] = s[t];
}""",
        block=64, buffers=(4096, 4096)
    ),
    _row(
        "float cas loop", "race", "global-race", """(float *out) {
  int *p = (int *) out;
  - int old = *(int *) p, seen;
  + int old = atomicAdd(p, 0), seen;
  do { seen = old; old = atomicCAS(p, seen, __float_as_int(__int_as_float(seen) + 1.0f)); } while (old != seen);
}""",
        block=64, grid=3, buffers=(64,)
    ),
    _row(
        "flag polled by a plain load", "race", "global-race", """(int *out, int *data, int *flag) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) { data[0] = 5; __threadfence(); atomicExch(flag, 1); }
  else {
    - if (*flag) { __threadfence(); out[0] = data[0]; }
    + if (*(volatile int *) flag) { __threadfence(); out[0] = data[0]; }
  }
}""",
        block=32, grid=2, buffers=(64, 64, 64)
    ),
    _row(
        "neighbour block's edge in place", "race", "global-race", """(float *out, float *in) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float x = in[(i + 1) % 256];
  - in[i] = x;
  + out[i] = x;
}""",
        block=64, grid=4, buffers=(1024, 1024)
    ),
    _row(
        "winner writes, reader of the same block reads", "race", "shared-race", """(int *out) {
  __shared__ int won;
  int t = threadIdx.x;
  if (t == 0) won = -1;
  __syncthreads();
  if (t % 64 == 3) atomicCAS(&won, -1, t);
  + __syncthreads();
  out[t] = won;
}""",

    ),
    _row(
        "producers and consumers by named barriers", "race", "shared-race", """(int *out) {
  __shared__ int s[64];
  int t = threadIdx.x;
  #pragma unroll 1
  for (int k = 0; k < 3; k++) {
    if (t < 64) {
      asm volatile("bar.sync 2, 128;" ::: "memory");
      s[t] = k * t;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
      asm volatile("bar.arrive 2, 128;" ::: "memory");
      + asm volatile("bar.sync 1, 128;" ::: "memory");
      out[k * 64 + t - 64] = s[127 - t];
    }
  }
}""",
        block=128
    ),
    _row(
        "mask of a reduction", "sync", "mask-names-absent", """(int *out) {
  int t = threadIdx.x; int r = 0;
  if (t & 1) r = __reduce_add_sync(
     - 0xffffffffu, t);
     + 0xaaaaaaaau, t);
  __syncwarp();
  out[t] = r;
}""",
        block=32
    ),
    _row(
        "a value from a lane that is not there", "init", "uninitialised-read", """(int *out) {
  int t = threadIdx.x, x = 0;
  if (t < 24) {
    - x = __shfl_sync(0x00ffffffu, t, 30);
    + x = __shfl_sync(0x00ffffffu, t, 20);
  }
  __syncwarp();
  out[t] = x;
}""",
        block=32
    ),
    _row(
        "struct padding is compared", "init", "uninitialised-read", """(int *out, const int *in, int n) {
  int a[4];
  a[0] = in[0]; a[1] = in[1]; a[2] = in[2];
  + a[3] = 0;
  int s = 0;
  #pragma unroll 1
  for (int k = 0; k < n; k++) s += a[k & 3];
  out[threadIdx.x] = s;
}""",
        block=32, buffers=(1024, 1024), numbers=(4,)
    ),
)
