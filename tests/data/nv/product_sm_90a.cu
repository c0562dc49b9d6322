// a product by TMA and wgmma, tiles loaded by a warp of their own; test_tensor_map.py says what ACCUMULATORS, OUTPUTS are
struct alignas(64) Map { unsigned long long words[16]; };
__device__ unsigned shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(const void *bar, int parity) {
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }"
               :: "r"(shared(bar)), "r"(parity) : "memory");
}
__device__ void load(void *to, const Map *map, void *bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4}], [%2];" :: "r"(shared(to)), "l"(map), "r"(shared(bar)), "r"(x), "r"(y) : "memory");
}
__device__ unsigned long long descriptor(const void *tile) {
  return (shared(tile) >> 4 & 0x3fff) | 1ull << 16 | 1024ull / 16 << 32 | 1ull << 62;
}
constexpr int STAGES = 3, DEPTH = 64;
// C[m][n] = sum of A[m][k] * B[n][k]: a warpgroup multiplies 64x64 tiles, a warp beside it loads them
extern "C" __global__ void __launch_bounds__(160)
product(const __grid_constant__ Map a, float *c, const __grid_constant__ Map b, const __grid_constant__ Map out, int depth) {
  __shared__ alignas(1024) unsigned short x[STAGES][64 * DEPTH], y[STAGES][64 * DEPTH];
  __shared__ alignas(1024) float tile[64 * 64];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  int steps = depth / DEPTH;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(&full[i])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(shared(&empty[i])));
    }
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;");
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 128)
      for (int i = 0; i < steps; i++) {
        int stage = i % STAGES;
        if (i >= STAGES) wait(&empty[stage], i / STAGES + 1 & 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(shared(&full[stage])), "r"(2 * 64 * DEPTH * 2));
        load(x[stage], &a, &full[stage], i * DEPTH, blockIdx.y * 64);
        load(y[stage], &b, &full[stage], i * DEPTH, blockIdx.x * 64);
      }
    return;
  }
  float d[32];
  for (int i = 0; i < 32; i++) d[i] = 0;
  for (int i = 0; i < steps; i++) {
    int stage = i % STAGES;
    wait(&full[stage], i / STAGES & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < DEPTH; k += 16) {
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
                   " {" ACCUMULATORS "}, %32, %33, p, 1, 1, 0, 0; }"
                   : OUTPUTS : "l"(descriptor(x[stage] + k)), "l"(descriptor(y[stage] + k)), "r"(1));
    }
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared(&empty[stage])));
  }
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 32; i++) tile[(row + (i & 2 ? 8 : 0)) * 64 + i / 4 * 8 + column + (i & 1)] = d[i];
  asm volatile("fence.proxy.async.shared::cta; bar.sync 1, 128;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(&out), "r"(shared(tile)), "r"(blockIdx.x * 64), "r"(blockIdx.y * 64) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    c[blockIdx.y * gridDim.x + blockIdx.x] = d[0];
  }
}
