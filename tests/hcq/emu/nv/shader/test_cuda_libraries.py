"""Kernels that lean on NVIDIA's header libraries (CUB, cooperative groups, libcu++): other people's PTX in quantity."""

from __future__ import annotations

import numpy as np

from hcq.nv.abi.tensor_map import ElementType
from hcq.nv.tensor_map import tiled
from tests.hcq.emu.nv.shader.running import Launch, compile_cuda, needs_header, run_cuda

rng = np.random.default_rng(11)


pytestmark = needs_header("cccl/cub/cub.cuh")


def test_cub_sorts_scans_and_reduces_in_a_block():
    source = """
    #include <cub/block/block_radix_sort.cuh>
    #include <cub/block/block_scan.cuh>
    #include <cub/block/block_reduce.cuh>
    extern "C" __global__ void all(unsigned *keys, int *sums, float *total) {
      using Sort = cub::BlockRadixSort<unsigned, 128, 4>;
      using Scan = cub::BlockScan<int, 128>;
      using Reduce = cub::BlockReduce<float, 128>;
      __shared__ typename Sort::TempStorage a; __shared__ typename Scan::TempStorage b;
      __shared__ typename Reduce::TempStorage c;
      unsigned mine[4];
      unsigned *place = keys + blockIdx.x * 512 + threadIdx.x * 4;
      for (int i = 0; i < 4; i++) mine[i] = place[i];
      Sort(a).Sort(mine);
      for (int i = 0; i < 4; i++) place[i] = mine[i];
      int v = mine[0] & 15;
      Scan(b).InclusiveSum(v, v);
      sums[blockIdx.x * 128 + threadIdx.x] = v;
      float r = Reduce(c).Sum((float)(mine[1] & 7));
      if (threadIdx.x == 0) total[blockIdx.x] = r;
    }"""
    keys = rng.integers(0, 2**32, (4, 512), dtype=np.uint32)
    expected = np.sort(keys, axis=1)
    sums, total = np.zeros((4, 128), np.int32), np.zeros(4, np.float32)
    run_cuda(source, "all", 4, 128, keys, sums, total)
    assert (keys == expected).all()
    by_thread = expected.reshape(4, 128, 4)
    assert (sums == (by_thread[:, :, 0] & 15).cumsum(axis=1)).all()
    assert (total == (by_thread[:, :, 1] & 7).sum(axis=1)).all()


def test_cooperative_groups_reduce_scan_and_coalesce():
    source = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    #include <cooperative_groups/scan.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void groups(const int *in, int *out) {
      auto block = cg::this_thread_block();
      auto tile = cg::tiled_partition<16>(block);
      int v = in[block.thread_rank()], sum = cg::reduce(tile, v, cg::plus<int>()), before = cg::exclusive_scan(tile, v);
      if (v & 1) { auto odd = cg::coalesced_threads(); before += odd.size() * 1000 + odd.thread_rank(); }
      block.sync();
      out[block.thread_rank()] = sum * 100 + before;
    }"""
    x, out = rng.integers(0, 5, 64).astype(np.int32), np.zeros(64, np.int32)
    run_cuda(source, "groups", 1, 64, x, out)
    for i, v in enumerate(x.tolist()):
        tile, warp = x[i // 16 * 16 :][:16], x[i // 32 * 32 :][:32]
        before = tile[: i % 16].sum()
        if v & 1:
            before += (warp & 1).sum() * 1000 + (warp[: i % 32] & 1).sum()
        assert out[i] == tile.sum() * 100 + before


def test_cooperative_groups_of_several_warps_meet_in_reserved_shared_memory():
    source = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void groups(const int *in, int *out) {
      __shared__ int own[256];
      __shared__ cg::block_tile_memory<256> memory;
      auto block = cg::this_thread_block(memory);
      auto tile = cg::tiled_partition<128>(block);
      own[block.thread_rank()] = in[block.thread_rank()];
      block.sync();
      int sum = cg::reduce(tile, in[block.thread_rank()], cg::plus<int>());
      tile.sync();
      out[block.thread_rank()] = sum * 1000 + own[255 - block.thread_rank()];
    }"""
    x, out = rng.integers(0, 9, 256).astype(np.int32), np.zeros(256, np.int32)
    run_cuda(source, "groups", 1, 256, x, out)
    assert (out == np.repeat(x.reshape(2, 128).sum(axis=1), 128) * 1000 + x[::-1]).all()


def test_barriers_of_libcuxx_are_objects_in_shared_memory():
    source = """
    #include <cuda/barrier>
    extern "C" __global__ void turn(int *x, int rounds) {
      __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
      __shared__ int tile[64];
      if (threadIdx.x == 0) init(&barrier, blockDim.x);
      __syncthreads();
      for (int i = 0; i < rounds; i++) {
        tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x] + 1;
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
        x[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
        barrier.arrive_and_wait();
      }
    }"""
    x = np.arange(192, dtype=np.int32)
    expected = x.reshape(3, 64)[:, ::-1] + 5
    run_cuda(source, "turn", 3, 64, x, 5)
    assert (x.reshape(3, 64) == expected).all()


def test_atomics_of_libcuxx():
    source = """
    #include <cuda/atomic>
    extern "C" __global__ void count(const int *in, int *out) {
      __shared__ cuda::atomic<int, cuda::thread_scope_block> sum;
      if (threadIdx.x == 0) sum.store(0);
      __syncthreads();
      sum.fetch_add(in[threadIdx.x], cuda::std::memory_order_relaxed);
      __syncthreads();
      int expected = 2016;
      bool first = sum.compare_exchange_strong(expected, 7);
      out[threadIdx.x] = expected * 2 + first;
    }"""
    out = np.zeros(64, np.int32)
    run_cuda(source, "count", 1, 64, np.arange(64, dtype=np.int32), out)
    assert sorted(out.tolist()) == [14] * 63 + [4033]


def test_blocks_may_wait_for_blocks_before_them():
    source = """
    extern "C" __global__ void look_back(const int *in, int *out, volatile int *sums) {
      int b = blockIdx.x;
      __shared__ int before;
      if (threadIdx.x == 0) {
        int p = 0;
        if (b > 0) while ((p = sums[b - 1]) == 0) ;
        before = p;
        __threadfence();
        sums[b] = p + in[b];
      }
      __syncthreads();
      if (threadIdx.x == 5) out[b] = before;
    }"""
    x, out, sums = np.arange(1, 61, dtype=np.int32), np.zeros(60, np.int32), np.zeros(60, np.int32)
    run_cuda(source, "look_back", 60, 32, x, out, sums)
    assert (out == x.cumsum() - x).all()


def test_bytes_and_halfwords_side_by_side():
    source = """
    extern "C" __global__ void simd(const unsigned *in, unsigned *out) {
      int i = threadIdx.x;
      unsigned a = in[i], b = in[i + 32], *p = out + i * 6;
      p[0] = __vadd4(a, b); p[1] = __vabsdiffu4(a, b); p[2] = __vmaxs2(a, b); p[3] = __vsetltu4(a, b);
      asm("vadd2.s32.s32.s32.sat %0, %1, %2, %3;" : "=r"(p[4]) : "r"(a), "r"(b), "r"(0));
      asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(p[5]) : "r"(a), "r"(b), "r"(9));
    }"""
    x, out = rng.integers(0, 2**32, 64, dtype=np.uint32), np.zeros((32, 6), np.uint32)
    run_cuda(source, "simd", 1, 32, x, out)
    octets = x.view(np.uint8).reshape(2, 32, 4).astype(int)
    halves = x.view(np.int16).reshape(2, 32, 2).astype(int)
    a, b = octets
    columns = [np.ascontiguousarray(column) for column in out.T]
    assert (columns[0].view(np.uint8).reshape(32, 4) == (a + b) % 256).all()
    assert (columns[1].view(np.uint8).reshape(32, 4) == abs(a - b)).all()
    assert (columns[2].view(np.int16).reshape(32, 2) == np.maximum(*halves)).all()
    assert (columns[3].view(np.uint8).reshape(32, 4) == (a < b)).all()
    assert (columns[4].view(np.int16).reshape(32, 2) == np.clip(halves.sum(axis=0), -32768, 32767)).all()
    assert (columns[5] == abs(a - b).sum(axis=1) + 9).all()


def test_tiles_come_and_go_with_the_toolkits_barrier_and_ptx_headers():
    source = """
    #include <cuda/barrier>
    #include <cuda/ptx>
    namespace ptx = cuda::ptx;
    struct alignas(64) Map { unsigned long long words[16]; };
    extern "C" __global__ void k(const __grid_constant__ Map map, int x, int y) {
      using barrier = cuda::barrier<cuda::thread_scope_block>;
      __shared__ alignas(128) int tile[8][32];
      #pragma nv_diag_suppress static_var_with_dynamic_init
      __shared__ barrier bar;
      if (threadIdx.x == 0) { init(&bar, blockDim.x); ptx::fence_proxy_async(ptx::space_shared); }
      __syncthreads();
      barrier::arrival_token token;
      int place[2] = {x, y};
      if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_shared, ptx::space_global, &tile, &map, place,
                                  cuda::device::barrier_native_handle(bar));
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
      } else token = bar.arrive();
      bar.wait(std::move(token));
      tile[0][threadIdx.x] += threadIdx.x;
      ptx::fence_proxy_async(ptx::space_shared);
      __syncthreads();
      if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, place, &tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        (&bar)->~barrier();
      }
    }"""
    tensor = np.arange(64 * 64, dtype=np.int32).reshape(64, 64)
    wanted = tensor.copy()
    wanted[16, 32:] += np.arange(32, dtype=np.int32)
    launch = Launch()
    made = tiled(launch.buffer(tensor), ElementType.S32, (64, 64), (256,), (32, 8))
    launch.run(launch.load(compile_cuda(source, "compute_90a"), "k"), 1, 32, made, 32, 16)
    assert (tensor == wanted).all()
