"""CUDA C of which further instructions become: vector atomics, 16 bytes at once, policies, matrices of doubles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import compile_cuda, needs_header, needs_nvrtc, run_cuda, run_ptx


@needs_nvrtc
@pytest.mark.parametrize("kind, parts", [("float2", 2), ("float4", 4)])
def test_atomic_sums_of_vectors(kind: str, parts: int) -> None:
    fields = ", ".join(f"x[{parts} * threadIdx.x + {i}]" for i in range(parts))
    source = f"""
    extern "C" __global__ void k({kind} *sums, const float *x, float *old) {{
        {kind} mine = make_{kind}({fields});
        {kind} seen = atomicAdd(sums + threadIdx.x % 3, mine);
        atomicAdd(sums + 3, mine);
        old[threadIdx.x] = seen.x;
    }}"""
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, (50, parts)).astype(np.float32)
    sums, old = np.zeros((4, parts), np.float32), np.zeros(50, np.float32)
    run_cuda(source, "k", 1, 50, sums, x, old)
    for cell in range(3):
        mine = x[cell::3]
        assert (sums[cell] == mine.sum(axis=0)).all()
        assert (old[cell::3] == np.cumsum(mine[:, 0]) - mine[:, 0]).all()
    assert (sums[3] == x.sum(axis=0)).all()


@needs_nvrtc
def test_sixteen_bytes_are_exchanged_at_once() -> None:
    """A lock-free stack: its head, a place and a count in 16 bytes, is swapped by every thread; then all are taken."""
    source = r"""
    struct Head { unsigned long long top, count; };
    __device__ Head swap(Head *at, Head expected, Head wanted) {
        Head seen;
        asm volatile("{ .reg .b128 e, w, s; mov.b128 e, {%3, %4}; mov.b128 w, {%5, %6};"
                     " atom.global.cas.b128 s, [%2], e, w; mov.b128 {%0, %1}, s; }"
                     : "=l"(seen.top), "=l"(seen.count)
                     : "l"(at), "l"(expected.top), "l"(expected.count), "l"(wanted.top), "l"(wanted.count) : "memory");
        return seen;
    }
    extern "C" __global__ void k(Head *head, unsigned long long *next) {
        unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
        Head seen = *head;
        while (true) {
            next[me] = seen.top;
            Head found = swap(head, seen, Head{me + 1, seen.count + 1});
            if (found.top == seen.top && found.count == seen.count) break;
            seen = found;
        }
    }"""
    head, following = np.zeros(2, np.uint64), np.zeros(96, np.uint64)
    run_cuda(source, "k", 3, 32, head, following)
    assert head[1] == 96
    at, found = int(head[0]), []
    while at:
        found.append(at - 1)
        at = int(following[at - 1])
    assert sorted(found) == list(range(96))


@needs_nvrtc
def test_loads_and_stores_with_cache_policies() -> None:
    source = r"""
    extern "C" __global__ void k(float *x) {
        unsigned long long keep, drop;
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
        asm("createpolicy.range.global.L2::evict_first.L2::evict_unchanged.b64 %0, [%1], 4096, 8192;"
            : "=l"(drop) : "l"(x));
        float a, b;
        asm volatile("ld.global.L2::cache_hint.v2.f32 {%0, %1}, [%2], %3;"
                     : "=f"(a), "=f"(b) : "l"(x + 2 * threadIdx.x), "l"(keep));
        asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;"
                     : : "l"(x + 2 * threadIdx.x), "f"(a + b), "f"(a - b), "l"(drop) : "memory");
    }"""
    x = np.arange(64, dtype=np.float32)
    run_cuda(source, "k", 1, 32, x)
    even, odd = np.arange(0, 64, 2), np.arange(1, 64, 2)
    assert (x.reshape(-1, 2) == np.stack((even + odd, even - odd), axis=1)).all()


@needs_nvrtc
def test_video_instructions_of_inline_assembly() -> None:
    """A sum of absolute differences of pixels, and brightness clamped to a byte."""
    source = r"""
    extern "C" __global__ void k(const unsigned *a, const unsigned *b, unsigned *sad, unsigned *lit) {
        unsigned x = a[threadIdx.x], y = b[threadIdx.x], total = 5, out = 0;
        asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %0;" : "+r"(total) : "r"(x), "r"(y));
        asm("vadd.u32.u32.s32.sat %0.b1, %1.b2, %2, %3;" : "=r"(out) : "r"(x), "r"(100), "r"(y));
        sad[threadIdx.x] = total;
        lit[threadIdx.x] = out;
    }"""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 2**32, 64).astype(np.uint32) for _ in range(2))
    sad, lit = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    run_cuda(source, "k", 1, 64, a, b, sad, lit)
    octets = [x.view(np.uint8).reshape(-1, 4).astype(np.int64) for x in (a, b)]
    assert (sad == 5 + np.abs(octets[0] - octets[1]).sum(axis=1)).all()
    bright = np.minimum(octets[0][:, 2] + 100, 255).astype(np.uint32)
    assert (lit == ((b & np.uint32(0xFFFF00FF)) | (bright << np.uint32(8)))).all()


@needs_nvrtc
def test_mixed_sums_of_inline_assembly() -> None:
    source = r"""
    extern "C" __global__ void k(const unsigned short *h, float *x) {
        float sum, less, both;
        unsigned short mine = h[threadIdx.x];
        asm("add.rn.f32.f16 %0, %1, %2;" : "=f"(sum) : "h"(mine), "f"(x[threadIdx.x]));
        asm("sub.rz.f32.bf16 %0, %1, %2;" : "=f"(less) : "h"((unsigned short)0x3F80), "f"(sum));
        asm("fma.rn.f32.f16 %0, %1, %1, %2;" : "=f"(both) : "h"(mine), "f"(less));
        x[threadIdx.x] = both;
    }"""
    h, x = np.arange(32).astype(np.float16), np.arange(32, dtype=np.float32) * 64
    found = x.copy()
    run_ptx(compile_cuda(source, "compute_100"), "k", 1, 32, h.view(np.uint16), found)
    assert (found == 1 - (h.astype(np.float32) + x) + h.astype(np.float32) ** 2).all()


@needs_header("crt/mma.h")
@pytest.mark.parametrize("layout", ["row_major", "col_major"])
def test_the_toolkits_wmma_multiplies_doubles(layout: str) -> None:
    source = f"""
    #include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const double *a, const double *b, double *c) {{
        wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::{layout}> x;
        wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::{layout}> y;
        wmma::fragment<wmma::accumulator, 8, 8, 4, double> z;
        wmma::load_matrix_sync(x, a, {4 if layout == "row_major" else 8});
        wmma::load_matrix_sync(y, b, {8 if layout == "row_major" else 4});
        wmma::load_matrix_sync(z, c, 8, wmma::mem_row_major);
        wmma::mma_sync(z, x, y, z);
        wmma::store_matrix_sync(c, z, 8, wmma::mem_row_major);
    }}"""
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-99, 99, size).astype(np.float64) for size in ((8, 4), (4, 8), (8, 8)))
    x, y = (np.ascontiguousarray(one if layout == "row_major" else one.T) for one in (a, b))
    found = c.copy()
    run_cuda(source, "k", 1, 32, x, y, found)
    assert (found == a @ b + c).all()


@needs_nvrtc
def test_bits_are_multiplied_by_inline_assembly() -> None:
    source = r"""
    extern "C" __global__ void k(const unsigned *a, const unsigned *b, int *c) {
        int x = 0, y = 0;
        asm volatile("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+r"(x), "+r"(y) : "r"(a[threadIdx.x]), "r"(b[threadIdx.x]));
        c[2 * threadIdx.x] = x;
        c[2 * threadIdx.x + 1] = y;
    }"""
    rng = np.random.default_rng(4)
    rows, columns = (rng.integers(0, 2**32, (8, 4)).astype(np.uint32) for _ in range(2))
    c = np.zeros((8, 8), np.int32)
    run_cuda(source, "k", 1, 32, rows, columns, c)
    for i in range(8):
        for j in range(8):
            assert c[i, j] == sum(int(word).bit_count() for word in (rows[i] ^ columns[j]).tolist())
