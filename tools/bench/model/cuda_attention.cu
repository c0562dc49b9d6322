// Attention in CUDA C: scores, softmax and their product with V in one pass over the keys, by mma.sync.
//
// Next     cuda_matrix.py (the pieces), ladders.py (which launches of it were measured, and by whom), count.py (runs it)
// Source   T. Dao, FlashAttention-2 (arXiv 2307.08691); steps and tiles after github.com/gau-nernst/learn-cuda and
//          github.com/sonnyli/flash_attention_from_scratch
//
// Four warps share a block's queries, each has rows of its own, and all of them read the tiles of K and V.

#include "cuda_pieces.cuh"
constexpr int D = 128;
// AHEAD: K's next tile is copied while this one is used. WIDER: four matrices at once, of K and V
template <int BQ, int BK, bool SWIZZLED, bool AHEAD, bool WIDER>
DEVICE void attention(const u16 *q, const u16 *k, const u16 *v, u16 *o, int queries, int keys, float scale) {
    constexpr int M = BQ / 64, N = BK / 8, TILE = BK * D * 2;
    constexpr int WHOLE = (AHEAD ? 3 : 2) * TILE > BQ * D * 2 ? (AHEAD ? 3 : 2) * TILE : BQ * D * 2;
    __shared__ __align__(128) u16 room[WHOLE / 2];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 base = shared_at(room), values = base + (AHEAD ? 2 : 1) * TILE;
    size_t mine = ((size_t)blockIdx.y * queries + blockIdx.x * BQ) * D;
    q += mine;
    o += mine;
    k += (size_t)blockIdx.y * keys * D;
    v += (size_t)blockIdx.y * keys * D;
    fetch<COPIES, BQ, D, D, SWIZZLED, 128>(base, q, D);
    commit();
    copied<0>();
    __syncthreads();
    u32 asked[M][D / 16][4];
    #pragma unroll
    for (int i = 0; i < M; i++)
        #pragma unroll
        for (int d = 0; d < D / 16; d++)
            four(asked[i][d], base + place<D, D, SWIZZLED>((warp * M + i) * 16 + lane % 16, d * 2 + lane / 16));
    __syncthreads();
    float out[M][D / 8][4] = {}, most[M][2], total[M][2] = {};
    for (int i = 0; i < M; i++) most[i][0] = most[i][1] = -1e30f;
    if (AHEAD) {
        fetch<COPIES, BK, D, D, SWIZZLED, 128>(base, k, D);
        commit();
    }
    for (int step = 0; step < keys / BK; step++) {
        u32 here = base + (AHEAD ? step % 2 * TILE : 0);
        if (!AHEAD) {
            fetch<COPIES, BK, D, D, SWIZZLED, 128>(here, k + (size_t)step * BK * D, D);
            commit();
        }
        copied<0>();
        __syncthreads();
        if (AHEAD) {
            fetch<COPIES, BK, D, D, SWIZZLED, 128>(values, v + (size_t)step * BK * D, D);
            commit();
            if (step + 1 < keys / BK) {
                u32 next = base + (step + 1) % 2 * TILE;
                fetch<COPIES, BK, D, D, SWIZZLED, 128>(next, k + (size_t)(step + 1) * BK * D, D);
            }
            commit();
        }
        float score[M][N][4] = {};
        #pragma unroll
        for (int d = 0; d < D / 16; d++)
            #pragma unroll
            for (int j = 0; j < N; j += WIDER ? 2 : 1) {
                u32 key[4];
                int row = j * 8 + lane % 8 + (WIDER ? lane / 16 * 8 : 0);
                u32 from = here + place<D, D, SWIZZLED>(row, d * 2 + lane / 8 % 2);
                if (WIDER) four(key, from);
                else two(key, from);
                #pragma unroll
                for (int i = 0; i < M; i++) {
                    product<true>(score[i][j], asked[i][d], key);
                    if (WIDER) product<true>(score[i][j + 1], asked[i][d], key + 2);
                }
            }
        if (!AHEAD) {
            fetch<COPIES, BK, D, D, SWIZZLED, 128>(values, v + (size_t)step * BK * D, D);
            commit();
        }
        u32 share[M][N / 2][4];
        #pragma unroll
        for (int i = 0; i < M; i++)
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                float high = most[i][half], sum = 0;
                #pragma unroll
                for (int j = 0; j < N; j++) {
                    score[i][j][2 * half] *= scale;
                    score[i][j][2 * half + 1] *= scale;
                    high = fmaxf(high, fmaxf(score[i][j][2 * half], score[i][j][2 * half + 1]));
                }
                high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
                high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
                float shrink = __expf(most[i][half] - high);
                most[i][half] = high;
                #pragma unroll
                for (int d = 0; d < D / 8; d++) {
                    out[i][d][2 * half] *= shrink;
                    out[i][d][2 * half + 1] *= shrink;
                }
                #pragma unroll
                for (int j = 0; j < N; j++) {
                    float first = __expf(score[i][j][2 * half] - high);
                    float second = __expf(score[i][j][2 * half + 1] - high);
                    sum += first + second;
                    share[i][j / 2][j % 2 * 2 + half] = brains(first, second);
                }
                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
                total[i][half] = total[i][half] * shrink + sum;
            }
        copied<AHEAD ? 1 : 0>();
        __syncthreads();
        #pragma unroll
        for (int j = 0; j < N / 2; j++)
            #pragma unroll
            for (int d = 0; d < D / 8; d += WIDER ? 2 : 1) {
                u32 value[4], from = values + place<D, D, SWIZZLED>(j * 16 + lane % 16, d + (WIDER ? lane / 16 : 0));
                if (WIDER) four_turned(value, from);
                else two_turned(value, from);
                #pragma unroll
                for (int i = 0; i < M; i++) {
                    product<true>(out[i][d], share[i][j], value);
                    if (WIDER) product<true>(out[i][d + 1], share[i][j], value + 2);
                }
            }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < M; i++)
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            float part = 1.0f / total[i][half];
            int row = (warp * M + i) * 16 + half * 8 + lane / 4;
            #pragma unroll
            for (int d = 0; d < D / 8; d++)
                *(u32 *)(o + row * D + d * 8 + lane % 4 * 2) =
                    brains(out[i][d][2 * half] * part, out[i][d][2 * half + 1] * part);
        }
}
#define ATTENTION(name, ...) extern "C" __global__ void __launch_bounds__(128) name( \
    const u16 *q, const u16 *k, const u16 *v, u16 *o, int queries, int keys, float scale) { \
    attention<__VA_ARGS__>(q, k, v, o, queries, keys, scale); \
}
ATTENTION(rows_128, 128, 64, false, false, false)
ATTENTION(swizzled_128, 128, 64, true, false, false)
ATTENTION(ahead_128, 128, 64, true, true, false)
ATTENTION(wider_128, 128, 64, true, true, true)
ATTENTION(rows_64, 64, 64, false, false, true)
ATTENTION(swizzled_64, 64, 64, true, false, true)
ATTENTION(ahead_64, 64, 64, true, true, true)
