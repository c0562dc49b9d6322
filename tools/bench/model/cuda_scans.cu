// Prefix sums in CUDA C: tiles and their totals in several launches, and in one launch that looks back.
//
// Next     ladders.py (which launches of them were measured, and by whom), count.py (runs them)
// Source   written after descriptions: github.com/yencal/gpu-scan-optimization; D. Merrill, M. Garland, Single-pass
//          Parallel Prefix Scan with Decoupled Look-back (2016)
//
// A tile's word says how far it is: in its upper half 1 for its own total, 2 for that of everything up to its end, in the
// lower half the total.

#define INDEX (blockIdx.x * (size_t)blockDim.x + threadIdx.x)
#define DEVICE __device__ __forceinline__
typedef unsigned long long u64;
DEVICE int warp_scan(int v) {
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(~0u, v, step);
        if (threadIdx.x % 32 >= step) v += other;
    }
    return v;
}
DEVICE int block_scan(int v, int *part) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_scan(v);
    if (lane == 31) part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int all = warp_scan(lane < blockDim.x / 32 ? part[lane] : 0);
        if (lane < blockDim.x / 32) part[lane] = all;
    }
    __syncthreads();
    return warp ? v + part[warp - 1] : v;
}
extern "C" {
__global__ void tiles_shared(const int *in, int *out, int *totals) {
    __shared__ int part[2][512];
    int t = threadIdx.x, now = 0;
    part[0][t] = in[INDEX];
    __syncthreads();
    for (int step = 1; step < 512; step *= 2) {
        part[1 - now][t] = part[now][t] + (t >= step ? part[now][t - step] : 0);
        now = 1 - now;
        __syncthreads();
    }
    out[INDEX] = part[now][t];
    if (t == 511) totals[blockIdx.x] = part[now][t];
}
__global__ void tiles_shuffle(const int *in, int *out, int *totals) {
    __shared__ int part[32];
    int v = block_scan(in[INDEX], part);
    out[INDEX] = v;
    if (threadIdx.x == 511) totals[blockIdx.x] = v;
}
__global__ void tiles_add(int *out, const int *totals) {
    if (blockIdx.x) out[INDEX] += totals[blockIdx.x - 1];
}
}
template <int ITEMS> DEVICE void look_back(const int *in, int *out, volatile u64 *tiles, unsigned *next) {
    __shared__ int part[32], before;
    __shared__ unsigned mine;
    int t = threadIdx.x, v[ITEMS];
    if (t == 0) mine = atomicAdd(next, 1);
    __syncthreads();
    unsigned tile = mine;
    size_t at = (size_t)tile * 512 * ITEMS + t * ITEMS;
    if (ITEMS % 4) v[0] = in[at];
    else
        #pragma unroll
        for (int i = 0; i < ITEMS; i += 4) *(int4 *)(v + i) = *(const int4 *)(in + at + i);
    #pragma unroll
    for (int i = 1; i < ITEMS; i++) v[i] += v[i - 1];
    int own = v[ITEMS - 1], sum = block_scan(own, part), total = part[15];
    if (t < 32) {
        if (t == 0) {
            tiles[tile] = (tile ? 1ull : 2ull) << 32 | (unsigned)total;
            __threadfence();
        }
        int all = 0;
        for (int from = (int)tile - 1; from >= 0; from -= 32) {
            int place = from - t;
            u64 word = 2ull << 32;
            if (place >= 0)
                do word = tiles[place];
                while (!(word >> 32));
            unsigned whole = __ballot_sync(~0u, word >> 32 == 2);
            int last = whole ? __ffs(whole) - 1 : 31, piece = t <= last ? (int)word : 0;
            for (int step = 16; step; step /= 2) piece += __shfl_xor_sync(~0u, piece, step);
            all += piece;
            if (whole) break;
        }
        if (t == 0) {
            before = all;
            __threadfence();
            if (tile) tiles[tile] = 2ull << 32 | (unsigned)(all + total);
        }
    }
    __syncthreads();
    int add = before + sum - own;
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) v[i] += add;
    if (ITEMS % 4) out[at] = v[0];
    else
        #pragma unroll
        for (int i = 0; i < ITEMS; i += 4) *(int4 *)(out + at + i) = *(int4 *)(v + i);
}
#define LOOK_BACK(items) extern "C" __global__ void look_back_##items( \
    const int *in, int *out, u64 *tiles, unsigned *next) { look_back<items>(in, out, tiles, next); }
LOOK_BACK(1)
LOOK_BACK(4)
LOOK_BACK(8)
LOOK_BACK(12)
