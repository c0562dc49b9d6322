// Products by matrix units in CUDA C: mma.sync on tiles in shared memory, from plain loads to a pipeline of copies.
//
// Next     ladders.py (which launches of them were measured, and by whom), cuda_attention.py (uses the same pieces),
//          count.py (runs them)
// Source   written after descriptions: github.com/spatters/mma-matmul, github.com/gau-nernst/learn-cuda (sizes of tiles,
//          warps, stages are theirs); fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16"

#include "cuda_pieces.cuh"
// shared memory of the kernel, or what its launch asks for where that is more than the 48 KB which a kernel may have
template <int BYTES> DEVICE u16 *room_of() {
    if constexpr (BYTES > 49152) {
        extern __shared__ __align__(128) u16 asked[];
        return asked;
    } else {
        __shared__ __align__(128) u16 own[BYTES / 2];
        return own;
    }
}
// C (m, n) = A (m, k) B^T, B (n, k). AGAIN: A's fragments are read anew for each column of fragments
template <int BM, int BN, int BK, int WM, int WN, int STAGES, int HOW, int PAD, bool SWIZZLED, bool WIDER, bool AGAIN,
          bool BRAIN>
DEVICE void tiles(const u16 *a, const u16 *b, void *c, int n) {
    constexpr int PITCH = BK + PAD, THREADS = WM * WN * 32, M = BM / WM / 16, N = BN / WN / 8;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / WN * (BM / WM), wn = warp % WN * (BN / WN);
    constexpr u32 STAGE = (BM + BN) * PITCH * 2;
    u32 x = shared_at(room_of<STAGES * STAGE>()), y = x + BM * PITCH * 2;
    a += (size_t)blockIdx.y * BM * n;
    b += (size_t)blockIdx.x * BN * n;
    float sum[M][N][4] = {};
    int steps = n / BK;
    if (STAGES > 1)
        for (int s = 0; s < STAGES - 1; s++) {
            fetch<COPIES, BM, BK, PITCH, SWIZZLED, THREADS>(x + s * STAGE, a + s * BK, n);
            fetch<COPIES, BN, BK, PITCH, SWIZZLED, THREADS>(y + s * STAGE, b + s * BK, n);
            commit();
        }
    for (int step = 0; step < steps; step++) {
        u32 at = 0;
        if (STAGES > 1) {
            copied<STAGES - 2>();
            __syncthreads();
            int next = step + STAGES - 1;
            if (next < steps) {
                u32 to = next % STAGES * STAGE;
                fetch<COPIES, BM, BK, PITCH, SWIZZLED, THREADS>(x + to, a + next * BK, n);
                fetch<COPIES, BN, BK, PITCH, SWIZZLED, THREADS>(y + to, b + next * BK, n);
            }
            commit();
            at = step % STAGES * STAGE;
        } else {
            fetch<HOW, BM, BK, PITCH, SWIZZLED, THREADS>(x, a + step * BK, n);
            fetch<HOW, BN, BK, PITCH, SWIZZLED, THREADS>(y, b + step * BK, n);
            if (HOW == COPIES) {
                commit();
                copied<0>();
            }
            __syncthreads();
        }
        #pragma unroll
        for (int k = 0; k < BK / 16; k++) {
            u32 right[N][2];
            #pragma unroll
            for (int j = 0; j < N; j += WIDER ? 2 : 1) {
                int row = wn + j * 8 + lane % 8 + (WIDER ? lane / 16 * 8 : 0);
                u32 from = y + at + place<BK, PITCH, SWIZZLED>(row, k * 2 + lane / 8 % 2);
                if (WIDER) four(right[j], from);
                else two(right[j], from);
            }
            #pragma unroll
            for (int i = 0; i < M; i++) {
                u32 left[4], from = x + at + place<BK, PITCH, SWIZZLED>(wm + i * 16 + lane % 16, k * 2 + lane / 16);
                four(left, from);
                #pragma unroll
                for (int j = 0; j < N; j++) {
                    if (AGAIN && j) {
                        four(left, from);
                        two(right[j], y + at + place<BK, PITCH, SWIZZLED>(wn + j * 8 + lane % 8, k * 2 + lane / 8 % 2));
                    }
                    product<BRAIN>(sum[i][j], left, right[j]);
                }
            }
        }
        if (STAGES == 1) __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < M; i++)
        #pragma unroll
        for (int j = 0; j < N; j++)
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                size_t row = blockIdx.y * BM + wm + i * 16 + half * 8 + lane / 4;
                size_t at = row * n + blockIdx.x * BN + wn + j * 8 + lane % 4 * 2;
                float *v = sum[i][j] + 2 * half;
                if (BRAIN) *(u32 *)((u16 *)c + at) = brains(v[0], v[1]);
                else *(float2 *)((float *)c + at) = make_float2(v[0], v[1]);
            }
}
// fragments element by element, from tiles that are 32 T rows and columns large; B (k, n)
template <int T> DEVICE void plain(const u16 *a, const u16 *b, float *c, int n) {
    __shared__ u16 x[T * 32][16], y[16][T * 32];
    int t = threadIdx.x, column = t % 16, row = t / 16, lane = t % 32, warp = t / 32;
    int wm = warp / 4 * 16, wn = warp % 4 * 8, group = lane / 4, pair = lane % 4 * 2;
    float sum[T][T][4] = {};
    a += (size_t)blockIdx.y * T * 32 * n;
    b += blockIdx.x * T * 32;
    for (int k = 0; k < n; k += 16) {
        #pragma unroll
        for (int i = 0; i < 2 * T; i++) x[i * 16 + row][column] = a[(size_t)(i * 16 + row) * n + k + column];
        #pragma unroll
        for (int i = 0; i < 2 * T; i++) y[row][i * 16 + column] = b[(size_t)(k + row) * n + i * 16 + column];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < T; i++) {
            u32 left[4], right[2];
            #pragma unroll
            for (int e = 0; e < 4; e++) left[e] = *(u32 *)&x[i * 32 + wm + group + e % 2 * 8][pair + e / 2 * 8];
            #pragma unroll
            for (int j = 0; j < T; j++) {
                #pragma unroll
                for (int e = 0; e < 2; e++)
                    right[e] = y[pair + e * 8][j * 32 + wn + group] | y[pair + e * 8 + 1][j * 32 + wn + group] << 16;
                product<false>(sum[i][j], left, right);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < T; i++)
        #pragma unroll
        for (int j = 0; j < T; j++)
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                size_t to = blockIdx.y * T * 32 + i * 32 + wm + group + e / 2 * 8;
                c[to * n + blockIdx.x * T * 32 + j * 32 + wn + pair + e % 2] = sum[i][j][e];
            }
}
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define GIVEN (const u16 *a, const u16 *b, void *c, int n)
KERNEL(256) plain_1 GIVEN { plain<1>(a, b, (float *)c, n); }
KERNEL(256) plain_2 GIVEN { plain<2>(a, b, (float *)c, n); }
KERNEL(256) permuted GIVEN { tiles<64, 64, 32, 2, 4, 1, LOADS, 0, true, false, true, false>(a, b, c, n); }
KERNEL(256) kept GIVEN { tiles<64, 64, 32, 2, 4, 1, LOADS, 0, true, false, false, false>(a, b, c, n); }
KERNEL(256) staged GIVEN { tiles<64, 64, 32, 2, 4, 3, COPIES, 0, true, false, false, false>(a, b, c, n); }
KERNEL(256) staged_4 GIVEN { tiles<128, 128, 32, 2, 4, 3, COPIES, 0, true, false, false, false>(a, b, c, n); }
KERNEL(128) loads GIVEN { tiles<128, 128, 64, 2, 2, 1, LOADS, 0, false, false, false, true>(a, b, c, n); }
KERNEL(128) copies GIVEN { tiles<128, 128, 64, 2, 2, 1, COPIES, 0, false, false, false, true>(a, b, c, n); }
KERNEL(128) padded GIVEN { tiles<128, 128, 64, 2, 2, 1, COPIES, 8, false, false, false, true>(a, b, c, n); }
KERNEL(128) swizzled GIVEN { tiles<128, 128, 64, 2, 2, 1, COPIES, 0, true, false, false, true>(a, b, c, n); }
KERNEL(128) wider GIVEN { tiles<128, 128, 64, 2, 2, 1, COPIES, 0, true, true, false, true>(a, b, c, n); }
KERNEL(128) pipelined GIVEN { tiles<128, 128, 64, 2, 2, 2, COPIES, 0, true, true, false, true>(a, b, c, n); }
