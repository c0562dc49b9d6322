"""Whole kernels from CUDA C, compiled by nvrtc in the test, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import compile_cuda, needs_header, needs_nvrtc, run_cuda, run_ptx

pytestmark = needs_nvrtc
rng = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def test_a_block_reduction_with_shared_memory_and_barriers():
    source = """
    extern "C" __global__ void sum(const float *in, float *out, int n) {
      __shared__ float part[256];
      int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
      part[t] = i < n ? in[i] : 0.0f;
      __syncthreads();
      for (int s = blockDim.x / 2; s > 0; s >>= 1) { if (t < s) part[t] += part[t + s]; __syncthreads(); }
      if (t == 0) out[blockIdx.x] = part[0];
    }"""
    n = 10_000
    x, out = rng.integers(-50, 50, n).astype(np.float32), np.zeros(40, np.float32)
    run_cuda(source, "sum", 40, 256, x, out, n)
    assert (out == np.pad(x, (0, 240)).reshape(40, 256).sum(axis=1)).all()


def test_loops_of_different_lengths_in_every_thread():
    source = """
    extern "C" __global__ void collatz(const unsigned *in, unsigned *out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      unsigned x = in[i], steps = 0;
      while (x != 1) {
        if (x & 1) { x = 3 * x + 1; if (steps == 100000) break; } else x /= 2;
        steps++;
        if (steps > 60) { if (x % 7 == 0) continue; steps += 0; }
      }
      out[i] = steps;
    }"""
    n = 3000
    x, out = np.arange(1, n + 1, dtype=np.uint32), np.zeros(n, np.uint32)
    run_cuda(source, "collatz", 12, 256, x, out, n)

    def steps(x):
        count = 0
        while x != 1:
            x = 3 * x + 1 if x & 1 else x // 2
            count += 1
        return count

    assert out.tolist() == [steps(int(v)) for v in x]


def test_a_histogram_by_atomics_in_shared_and_global_memory():
    source = """
    extern "C" __global__ void histogram(const unsigned char *in, unsigned *out, int n) {
      __shared__ unsigned bins[256];
      for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
      __syncthreads();
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(&bins[in[i]], 1);
      __syncthreads();
      for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
    }"""
    x = (rng.standard_normal(20_000) * 20 + 128).clip(0, 255).astype(np.uint8)
    out = np.zeros(256, np.uint32)
    run_cuda(source, "histogram", 7, 96, x, out, len(x))
    assert (out == np.bincount(x, minlength=256)).all()


def test_a_scan_by_warp_shuffles():
    source = """
    extern "C" __global__ void scan(const int *in, int *out) {
      __shared__ int sums[32];
      int t = threadIdx.x, lane = t & 31, warp = t >> 5;
      int v = in[blockIdx.x * blockDim.x + t];
      for (int d = 1; d < 32; d <<= 1) { int o = __shfl_up_sync(~0u, v, d); if (lane >= d) v += o; }
      if (lane == 31) sums[warp] = v;
      __syncthreads();
      if (warp == 0) {
        int s = lane < (blockDim.x >> 5) ? sums[lane] : 0;
        for (int d = 1; d < 32; d <<= 1) { int o = __shfl_up_sync(~0u, s, d); if (lane >= d) s += o; }
        sums[lane] = s;
      }
      __syncthreads();
      if (warp > 0) v += sums[warp - 1];
      out[blockIdx.x * blockDim.x + t] = v;
    }"""
    x, out = rng.integers(-9, 9, 5 * 512).astype(np.int32), np.zeros(5 * 512, np.int32)
    run_cuda(source, "scan", 5, 512, x, out)
    assert (out.reshape(5, 512) == x.reshape(5, 512).cumsum(axis=1)).all()


def test_a_tiled_matrix_product():
    source = """
    extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
      __shared__ float x[16][17], y[16][17];
      int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
      float sum = 0;
      for (int p = 0; p < k; p += 16) {
        x[threadIdx.y][threadIdx.x] = r < m && p + threadIdx.x < k ? a[r * k + p + threadIdx.x] : 0;
        y[threadIdx.y][threadIdx.x] = q < n && p + threadIdx.y < k ? b[(p + threadIdx.y) * n + q] : 0;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += x[threadIdx.y][i] * y[i][threadIdx.x];
        __syncthreads();
      }
      if (r < m && q < n) c[r * n + q] = sum;
    }"""
    m, n, k = 50, 37, 61
    a, b, c = floats(m, k), floats(k, n), np.zeros((m, n), np.float32)
    run_cuda(source, "matmul", (3, 4), (16, 16), a, b, c, m, n, k)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


MMA = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void half_mma(const __half *a, const __half *b, float *c) {
  unsigned lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const unsigned *A = (const unsigned *)a;
  unsigned a0 = A[g * 8 + t], a1 = A[(g + 8) * 8 + t], a2 = A[g * 8 + t + 4], a3 = A[(g + 8) * 8 + t + 4];
  __half2 h0 = __halves2half2(b[(2 * t) * 8 + g], b[(2 * t + 1) * 8 + g]);
  __half2 h1 = __halves2half2(b[(2 * t + 8) * 8 + g], b[(2 * t + 9) * 8 + g]);
  unsigned b0 = *(unsigned *)&h0, b1 = *(unsigned *)&h1;
  float d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1], d2 = c[(g + 8) * 8 + 2 * t], d3 = c[(g + 8) * 8 + 2 * t + 1];
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  c[g * 8 + 2 * t] = d0; c[g * 8 + 2 * t + 1] = d1; c[(g + 8) * 8 + 2 * t] = d2; c[(g + 8) * 8 + 2 * t + 1] = d3;
}
"""


@needs_header("cuda_fp16.h")
def test_a_warp_matrix_product_of_halves():
    a, b, c = (
        rng.integers(-8, 8, (16, 16)).astype(np.float16),
        rng.integers(-8, 8, (16, 8)).astype(np.float16),
        floats(16, 8),
    )
    expected = a.astype(np.float32) @ b.astype(np.float32) + c
    run_cuda(MMA, "half_mma", 1, 32, a, b, c)
    np.testing.assert_allclose(c, expected, rtol=1e-6)


def test_matrices_of_halfwords_load_straight_and_transposed():
    source = """
    extern "C" __global__ void fragment(const unsigned short *in, unsigned *out) {
      __shared__ __align__(16) unsigned short tile[8 * 8 * 4];
      int t = threadIdx.x;
      for (int i = t; i < 256; i += 32) tile[i] = in[i];
      __syncthreads();
      unsigned at = (unsigned)__cvta_generic_to_shared(tile + t * 8), r0, r1, r2, r3;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(at));
      out[t] = r0; out[t + 32] = r1; out[t + 64] = r2; out[t + 96] = r3;
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(at));
      out[t + 128] = r0;
    }"""
    x, out = np.arange(256, dtype=np.uint16), np.zeros(160, np.uint32)
    run_cuda(source, "fragment", 1, 32, x, out)
    assert (out[:128] == x.view(np.uint32)).all()
    assert (out[128:].view(np.uint16).reshape(8, 8) == x[:64].reshape(8, 8).T).all()


def test_functions_are_called_with_structs_and_recursion():
    source = """
    struct Pair { int a; double b; char c[5]; };
    __device__ __noinline__ Pair twist(Pair p, int k) { p.a += k; p.b *= 2; p.c[k % 5] = k; return p; }
    __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    extern "C" __global__ void f(const int *in, int *out, double *d, Pair base) {
      int i = threadIdx.x;
      Pair p = twist(base, in[i]);
      for (int k = 0; k < (i & 3); k++) p = twist(p, k);
      out[i] = fib(in[i] % 11) + p.c[in[i] % 5];
      d[i] = p.b + p.a;
    }"""
    x = rng.integers(0, 100, 96).astype(np.int32)
    out, d = np.zeros(96, np.int32), np.zeros(96)
    base = np.zeros(1, np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S5")], align=True))
    base["a"], base["b"] = 3, 1.25
    run_cuda(source, "f", 1, 96, x, out, d, base.tobytes())
    fib = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
    for i, v in enumerate(x.tolist()):
        c = [0] * 5
        c[v % 5] = v
        for k in range(i & 3):
            c[k % 5] = k
        assert out[i] == fib[v % 11] + c[v % 5]
        assert d[i] == 1.25 * 2 ** (1 + (i & 3)) + 3 + v + sum(range(i & 3))


def test_pointers_into_every_space_are_generic():
    source = """
    __device__ int table[4] = {10, 20, 30, 40};
    __constant__ int fixed[3] = {5, 6, 7};
    __device__ int *where = &table[2];
    __device__ __noinline__ int read(const int *p, int i) { return p[i]; }
    extern "C" __global__ void g(int *out, int pick) {
      __shared__ int sh[64];
      int mine[8];
      int t = threadIdx.x;
      sh[t] = t * 3;
      for (int i = 0; i < 8; i++) mine[i] = t + i;
      __syncthreads();
      const int *p = pick == 0 || t % 4 == 0 ? sh : t % 4 == 1 ? mine : t % 4 == 2 ? table : fixed;
      out[t] = read(p, t % 3) + *where + __isShared(p) * 1000;
      atomicAdd(&table[0], 1);
      atomicMax(t % 2 ? &sh[5] : &table[1], t + 100);
      __syncthreads();
      out[64 + t] = sh[5];
    }"""
    out = np.zeros(128, np.int32)
    launch = run_cuda(source, "g", 1, 64, out, 1)
    table = [10, 20, 30, 40]
    for t in range(64):
        value = [(t % 3) * 3, t + t % 3, table[t % 3], [5, 6, 7][t % 3]][t % 4]
        assert out[t] == value + 30 + (1000 if t % 4 == 0 else 0)
    assert (out[64:] == 163).all()
    assert launch.variables["table"].view(np.int32).tolist() == [74, 162, 30, 40]


def test_tables_of_function_pointers_are_initial_data():
    source = """
    __device__ __noinline__ int twice(int x) { return 2 * x; }
    __device__ __noinline__ int square(int x) { return x * x; }
    __device__ int (*table[2])(int) = {twice, square};
    extern "C" __global__ void apply(int *x) { x[threadIdx.x] = table[threadIdx.x & 1](x[threadIdx.x]); }"""
    x = np.arange(40, dtype=np.int32)
    run_cuda(source, "apply", 1, 40, x)
    assert x.tolist() == [t * t if t & 1 else 2 * t for t in range(40)]


def test_blocks_with_much_shared_memory_run_a_few_at_a_time():
    source = """
    extern "C" __global__ void big(int *x) {
      extern __shared__ int tile[];
      tile[40000] = blockIdx.x;
      x[blockIdx.x] = tile[40000];
    }"""
    x = np.zeros(5000, np.int32)
    run_cuda(source, "big", 5000, 1, x, shared=200_000)
    assert (x == np.arange(5000)).all()


def test_dynamic_shared_memory_comes_after_static():
    source = """
    extern __shared__ float dynamic[];
    extern "C" __global__ void reverse(float *x, int n) {
      __shared__ float fixed[32];
      int t = threadIdx.x;
      fixed[t & 31] = 1.0f; dynamic[t] = x[blockIdx.x * n + t];
      __syncthreads();
      x[blockIdx.x * n + t] = dynamic[n - 1 - t] + fixed[t & 31];
    }"""
    x = floats(3, 100)
    expected = x[:, ::-1] + np.float32(1)
    run_cuda(source, "reverse", 3, 100, x, 100, shared=400)
    assert (x == expected).all()


def test_a_switch_becomes_a_jump_table():
    cases = "".join(
        f"case {i}: v = v * {i + 3} + {i * i}; if (v % 3 == 0) v ^= {i + 7}; break;" for i in range(12)
    )
    source = f"""
    extern "C" __global__ void pick(const int *in, int *out) {{
      int i = threadIdx.x, v = in[i + 64];
      switch (in[i]) {{ {cases} default: v = -v; }}
      out[i] = v;
    }}"""
    x, out = rng.integers(0, 14, 128).astype(np.int32), np.zeros(64, np.int32)
    run_cuda(source, "pick", 1, 64, x, out)
    for i in range(64):
        k, v = int(x[i]), int(x[i + 64])
        if k < 12:
            v = v * (k + 3) + k * k
            v = v ^ (k + 7) if v % 3 == 0 else v
        else:
            v = -v
        assert out[i] == v


def test_math_functions_of_the_device_library():
    source = """
    extern "C" __global__ void math(const float *x, float *y, const double *u, double *v) {
      int i = threadIdx.x;
      float a = x[i]; double b = u[i];
      float *p = y + i * 12; double *q = v + i * 8;
      p[0] = sinf(a); p[1] = cosf(a * 1000); p[2] = expf(a); p[3] = logf(fabsf(a));
      p[4] = powf(fabsf(a), 1.7f); p[5] = tanhf(a);
      p[6] = erff(a); p[7] = fmodf(a, 0.3f); p[8] = atan2f(a, 0.7f); p[9] = cbrtf(a);
      p[10] = rintf(a * 10); p[11] = a / 3.7f;
      q[0] = sin(b); q[1] = exp(b); q[2] = log(fabs(b)); q[3] = pow(fabs(b), 2.3);
      q[4] = sqrt(fabs(b)); q[5] = b / 7.0; q[6] = tanh(b);
      q[7] = lgamma(fabs(b) + 0.1);
    }"""
    import math

    x, y = floats(128), np.zeros((128, 12), np.float32)
    u, v = rng.standard_normal(128), np.zeros((128, 8))
    run_cuda(source, "math", 1, 128, x, y, u, v)
    wide = x.astype(np.float64)
    expected = [
        np.sin(wide), np.cos((x * np.float32(1000)).astype(np.float64)), np.exp(wide), np.log(np.abs(wide)),
        np.abs(wide) ** 1.7,
        np.tanh(wide), [math.erf(a) for a in wide], np.fmod(wide, float(np.float32(0.3))),
        np.arctan2(wide, 0.7), np.cbrt(wide),
        np.rint(x * np.float32(10)), wide / 3.7,
    ]  # fmt: skip
    np.testing.assert_allclose(y, np.stack(expected, axis=1), rtol=1e-6, atol=1e-6)
    expected = [
        np.sin(u),
        np.exp(u),
        np.log(np.abs(u)),
        np.abs(u) ** 2.3,
        np.sqrt(np.abs(u)),
        u / 7.0,
        np.tanh(u),
    ]
    expected.append([math.lgamma(abs(a) + 0.1) for a in u])
    np.testing.assert_allclose(v, np.stack(expected, axis=1), rtol=3e-15, atol=3e-15)


@needs_header("cuda_fp16.h")
def test_half_precision_kernels():
    source = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void halves(const __half *x, __half *y, const __nv_bfloat16 *u,
                                      __nv_bfloat16 *v, __half2 *w) {
      int i = threadIdx.x;
      y[i] = __hfma(x[i], x[i], __float2half(0.5f)) - hexp(x[i]);
      v[i] = u[i] * u[i] + __float2bfloat16(1.0f);
      w[i] = __hmax2(__hmul2(w[i], w[i]), h2sqrt(__habs2(w[i])));
    }"""
    x, y = rng.standard_normal(64).astype(np.float16), np.zeros(64, np.float16)
    u = (rng.standard_normal(64).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    v, w = np.zeros(64, np.uint16), rng.standard_normal((64, 2)).astype(np.float16)
    before = w.astype(np.float32)
    run_cuda(source, "halves", 1, 64, x, y, u, v, w)
    wide = x.astype(np.float32)
    np.testing.assert_allclose(y, wide * wide + 0.5 - np.exp(wide), rtol=4e-3, atol=4e-3)
    a = (u.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose((v.astype(np.uint32) << 16).view(np.float32), a * a + 1, rtol=2e-2)
    np.testing.assert_allclose(w, np.maximum(before * before, np.sqrt(np.abs(before))), rtol=2e-3)


def test_votes_matches_and_reductions_of_a_warp():
    source = """
    extern "C" __global__ void warp(const int *in, unsigned *out) {
      int i = threadIdx.x, v = in[i];
      unsigned *p = out + i * 10;
      p[0] = __ballot_sync(~0u, v > 2); p[1] = __any_sync(~0u, v == 7); p[2] = __all_sync(~0u, v < 100);
      p[3] = __match_any_sync(~0u, v); p[4] = __reduce_add_sync(~0u, v); p[5] = __reduce_max_sync(~0u, v);
      p[6] = __reduce_xor_sync(~0u, (unsigned)v); p[7] = __shfl_sync(~0u, v, 5, 8); p[8] = __shfl_xor_sync(~0u, v, 3);
      p[9] = 0;
      if (v & 1) { p[9] = __popc(__activemask()) + __shfl_down_sync(__activemask(), v, 1) * 0; }
    }"""
    x, out = rng.integers(0, 6, 64).astype(np.int32), np.zeros((64, 10), np.uint32)
    run_cuda(source, "warp", 1, 64, x, out)
    for i in range(64):
        lanes = x[i & 32 : (i & 32) + 32].tolist()
        v = int(x[i])
        assert out[i, 0] == sum((a > 2) << j for j, a in enumerate(lanes))
        assert out[i, 1] == any(a == 7 for a in lanes)
        assert out[i, 2] == 1
        assert out[i, 3] == sum((a == v) << j for j, a in enumerate(lanes))
        assert out[i, 4] == sum(lanes)
        assert out[i, 5] == max(lanes)
        assert out[i, 6] == np.bitwise_xor.reduce(lanes)
        assert out[i, 7] == lanes[(i & 24) + 5]
        assert out[i, 8] == lanes[(i & 31) ^ 3]
        assert out[i, 9] == (sum(a & 1 for a in lanes) if v & 1 else 0)


def test_a_lock_that_threads_of_one_warp_contend_for_makes_progress():
    source = """
    __device__ int lock = 0; __device__ int shared_count = 0;
    extern "C" __global__ void locked(int *out) {
      while (atomicCAS(&lock, 0, 1) != 0) ;
      __threadfence();
      volatile int *c = &shared_count;
      *c = *c + 1;
      __threadfence();
      atomicExch(&lock, 0);
      out[threadIdx.x] = 1;
    }"""
    out = np.zeros(40, np.int32)
    launch = run_cuda(source, "locked", 1, 40, out)
    assert launch.variables["shared_count"].view(np.int32)[0] == 40


def test_producers_and_consumers_meet_at_named_barriers():
    source = """
    extern "C" __global__ void pipe(const int *in, int *out, int rounds) {
      __shared__ int slot[2][32];
      int lane = threadIdx.x & 31;
      if (threadIdx.x < 32) {
        for (int r = 0; r < rounds; r++) {
          if (r >= 2) asm volatile("bar.sync %0, 64;" :: "r"(3 + (r & 1)));
          slot[r & 1][lane] = in[r * 32 + lane] * 2;
          asm volatile("bar.arrive %0, 64;" :: "r"(1 + (r & 1)));
        }
      } else {
        for (int r = 0; r < rounds; r++) {
          asm volatile("bar.sync %0, 64;" :: "r"(1 + (r & 1)));
          out[r * 32 + lane] = slot[r & 1][lane] + 1;
          if (r + 2 < rounds) asm volatile("bar.arrive %0, 64;" :: "r"(3 + (r & 1)));
        }
      }
    }"""
    x, out = rng.integers(0, 99, 10 * 32).astype(np.int32), np.zeros(320, np.int32)
    run_cuda(source, "pipe", 1, 64, x, out, 10)
    assert (out == x * 2 + 1).all()


def test_barriers_that_count():
    source = """
    extern "C" __global__ void count(const int *in, int *out) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      out[i] = __syncthreads_count(in[i] > 5) * 4 + __syncthreads_and(in[i] >= 0) * 2 + __syncthreads_or(in[i] == 9);
    }"""
    x, out = rng.integers(0, 10, 4 * 96).astype(np.int32), np.zeros(4 * 96, np.int32)
    run_cuda(source, "count", 4, 96, x, out)
    rows = x.reshape(4, 96)
    expected = (rows > 5).sum(axis=1) * 4 + 2 + (rows == 9).any(axis=1)
    assert (out.reshape(4, 96) == expected[:, None]).all()


def test_asynchronous_copies_to_shared_memory():
    source = """
    extern "C" __global__ void async(const float4 *in, float4 *out) {
      __shared__ float4 tile[64];
      unsigned at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(in + threadIdx.x));
      asm volatile("cp.async.commit_group;"); asm volatile("cp.async.wait_group 0;");
      __syncthreads();
      float4 v = tile[63 - threadIdx.x]; v.x += 1; out[threadIdx.x] = v;
    }"""
    x, out = floats(64, 4), np.zeros((64, 4), np.float32)
    run_cuda(source, "async", 1, 64, x, out)
    assert (out == x[::-1] + np.array([1, 0, 0, 0], np.float32)).all()


def test_thread_and_block_numbers_in_three_dimensions():
    source = """
    extern "C" __global__ void where(unsigned *out) {
      unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      unsigned *p = out + (b * blockDim.x * blockDim.y * blockDim.z + t) * 3;
      unsigned lane, warp; asm("mov.u32 %0, %laneid;" : "=r"(lane)); asm volatile("mov.u32 %0, %warpid;" : "=r"(warp));
      p[0] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16; p[1] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
      p[2] = lane | warp << 8;
    }"""
    out = np.zeros((2, 3, 2, 3, 5, 7, 3), np.uint32)
    run_cuda(source, "where", (2, 3, 2), (7, 5, 3), out, batch_lanes=300)
    for index in np.ndindex(out.shape[:-1]):
        bz, by, bx, tz, ty, tx = index
        t = (tz * 5 + ty) * 7 + tx
        assert out[index].tolist() == [
            bx | by << 8 | bz << 16,
            tx | ty << 8 | tz << 16,
            t % 32 | t // 32 << 8,
        ]


@pytest.mark.parametrize(
    "arch", ["compute_80", "compute_86", "compute_89", "compute_90", "compute_100", "compute_120"]
)
def test_every_architecture_gives_ptx_that_runs(arch):
    source = """
    extern "C" __global__ void k(const float *a, float *b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) b[i] = a[i] * 2.0f + __shfl_xor_sync(__activemask(), a[i], 1);
    }"""
    a, b = floats(128), np.zeros(128, np.float32)
    run_ptx(compile_cuda(source, arch), "k", 2, 64, a, b, 128)
    assert (b == a * 2 + a.reshape(-1, 2)[:, ::-1].reshape(-1)).all()
