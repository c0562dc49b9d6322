// Float32 products in CUDA C, from one result a thread to tiles of warps.
//
// Next     ladders.py (which launches of them were measured, and by whom), count.py (runs them)
// Source   written after the descriptions of S. Boehm's worklog (siboehm.com/articles/22/CUDA-MMM): names of steps are his
//
// TILED has its sizes as parameters of a template: a block computes BM x BN results, BK columns at a time.

template <int BM, int BN, int BK, int TM, int TN, bool VECTOR, int PAD>
__device__ __forceinline__ void tiled(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    constexpr int THREADS = BM / TM * (BN / TN);
    __shared__ float x[VECTOR ? BK * BM : BM * BK];
    __shared__ float y[BK * (BN + PAD)];
    int t = threadIdx.x, tx = t % (BN / TN), ty = t / (BN / TN);
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    float sum[TM][TN] = {}, left[TM], right[TN];
    for (int k0 = 0; k0 < n; k0 += BK) {
        if (VECTOR) {
            for (int i = t; i < BM * BK / 4; i += THREADS) {
                int row = i / (BK / 4), column = i % (BK / 4) * 4;
                float4 v = *(const float4 *)(a + row * n + column);
                x[(column + 0) * BM + row] = v.x;
                x[(column + 1) * BM + row] = v.y;
                x[(column + 2) * BM + row] = v.z;
                x[(column + 3) * BM + row] = v.w;
            }
            for (int i = t; i < BK * BN / 4; i += THREADS) {
                int row = i / (BN / 4), column = i % (BN / 4) * 4;
                float4 v = *(const float4 *)(b + row * n + column);
                if (PAD % 4 == 0) *(float4 *)(y + row * (BN + PAD) + column) = v;
                else {
                    float *to = y + row * (BN + PAD) + column;
                    to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
                }
            }
        } else {
            for (int i = t; i < BM * BK; i += THREADS) x[i] = a[i / BK * n + i % BK];
            for (int i = t; i < BK * BN; i += THREADS) y[i / BN * (BN + PAD) + i % BN] = b[i / BN * n + i % BN];
        }
        __syncthreads();
        a += BK;
        b += BK * n;
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            #pragma unroll
            for (int i = 0; i < TM; i++) left[i] = VECTOR ? x[k * BM + ty * TM + i] : x[(ty * TM + i) * BK + k];
            #pragma unroll
            for (int j = 0; j < TN; j++) right[j] = y[k * (BN + PAD) + tx * TN + j];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < TM; i++) {
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            float *at = c + (ty * TM + i) * n + tx * TN + j;
            if (TN % 4 == 0 && VECTOR) {
                float4 v = *(float4 *)at;
                v.x = alpha * sum[i][j] + beta * v.x;
                v.y = alpha * sum[i][j + 1] + beta * v.y;
                v.z = alpha * sum[i][j + 2] + beta * v.z;
                v.w = alpha * sum[i][j + 3] + beta * v.w;
                *(float4 *)at = v;
            } else
                for (int s = 0; s < 4 && j + s < TN; s++) at[s] = alpha * sum[i][j + s] + beta * at[s];
        }
    }
}

extern "C" {
__global__ void naive(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 32 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
__global__ void coalesced(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    int row = blockIdx.x * 32 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
__global__ void shared(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    __shared__ float x[32 * 32], y[32 * 32];
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    a += blockIdx.x * 32 * n;
    b += blockIdx.y * 32;
    c += blockIdx.x * 32 * n + blockIdx.y * 32;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        x[ty * 32 + tx] = a[ty * n + tx];
        y[ty * 32 + tx] = b[ty * n + tx];
        __syncthreads();
        a += 32;
        b += 32 * n;
        for (int j = 0; j < 32; j++) sum += x[ty * 32 + j] * y[j * 32 + tx];
        __syncthreads();
    }
    c[ty * n + tx] = alpha * sum + beta * c[ty * n + tx];
}
__global__ void tile_1d(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    __shared__ float x[64 * 8], y[8 * 64];
    int t = threadIdx.x, tx = t % 64, ty = t / 64;
    a += blockIdx.y * 64 * n;
    b += blockIdx.x * 64;
    c += blockIdx.y * 64 * n + blockIdx.x * 64;
    float sum[8] = {};
    for (int k0 = 0; k0 < n; k0 += 8) {
        x[t] = a[t / 8 * n + t % 8];
        y[t] = b[t / 64 * n + t % 64];
        __syncthreads();
        a += 8;
        b += 8 * n;
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            float right = y[k * 64 + tx];
            #pragma unroll
            for (int i = 0; i < 8; i++) sum[i] += x[(ty * 8 + i) * 8 + k] * right;
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; i++) c[(ty * 8 + i) * n + tx] = alpha * sum[i] + beta * c[(ty * 8 + i) * n + tx];
}
// warps' tiles of 32 x 32, single words, the matrices' edges looked at
__global__ void __launch_bounds__(256) warps_checked(const float *a, const float *b, float *c, int n, float alpha,
float beta) {
    constexpr int BM = 128, BN = 64, BK = 64, TM = 8, TN = 4;
    extern __shared__ float x[];
    float *y = x + BM * BK;
    int t = threadIdx.x, warp = t / 32, lane = t % 32, top = blockIdx.y * BM, left0 = blockIdx.x * BN;
    int row0 = warp / 2 * 32 + lane / 8 * TM, column0 = warp % 2 * 32 + lane % 8 * TN;
    float sum[TM][TN] = {}, left[TM], right[TN];
    for (int k0 = 0; k0 < n; k0 += BK) {
        for (int i = t; i < BM * BK; i += 256) {
            int row = top + i / BK, column = k0 + i % BK;
            x[i] = row < n && column < n ? a[row * n + column] : 0;
        }
        for (int i = t; i < BK * BN; i += 256) {
            int row = k0 + i / BN, column = left0 + i % BN;
            y[i] = row < n && column < n ? b[row * n + column] : 0;
        }
        __syncthreads();
        for (int k = 0; k < BK; k++) {
            #pragma unroll
            for (int i = 0; i < TM; i++) left[i] = x[(row0 + i) * BK + k];
            #pragma unroll
            for (int j = 0; j < TN; j++) right[j] = y[k * BN + column0 + j];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            int row = top + row0 + i, column = left0 + column0 + j;
            if (row < n && column < n) c[row * n + column] = alpha * sum[i][j] + beta * c[row * n + column];
        }
}
// a thread has 64 results of its column, in an array that a loop goes through
__global__ void __launch_bounds__(256) coarsened(const float *a, const float *b, float *c, int n, float alpha,
float beta) {
    __shared__ float x[128][32], y[32][128];
    int t = threadIdx.x;
    a += blockIdx.y * 128 * n;
    b += blockIdx.x * 128;
    c += blockIdx.y * 128 * n + blockIdx.x * 128;
    float sum[64] = {};
    for (int k0 = 0; k0 < n; k0 += 32) {
        for (int i = t; i < 128 * 32; i += 256) x[i / 32][i % 32] = a[i / 32 * n + i % 32];
        for (int i = t; i < 32 * 128; i += 256) y[i / 128][i % 128] = b[i / 128 * n + i % 128];
        __syncthreads();
        for (int i = t; i < 128 * 128; i += 256)
            for (int k = 0; k < 32; k++) sum[i / 256] += x[i / 128][k] * y[k][i % 128];
        __syncthreads();
        a += 32;
        b += 32 * n;
    }
    for (int i = t; i < 128 * 128; i += 256) {
        float *at = c + i / 128 * n + i % 128;
        *at = alpha * sum[i / 256] + beta * *at;
    }
}
__global__ void __launch_bounds__(256) tile_2d(const float *a, const float *b, float *c, int n, float alpha, float
beta) {
    tiled<128, 128, 8, 8, 8, false, 0>(a, b, c, n, alpha, beta);
}
__global__ void __launch_bounds__(256) wide(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    tiled<128, 128, 8, 8, 8, true, 0>(a, b, c, n, alpha, beta);
}
__global__ void __launch_bounds__(256) padded(const float *a, const float *b, float *c, int n, float alpha, float
beta) {
    tiled<128, 128, 8, 8, 8, true, 5>(a, b, c, n, alpha, beta);
}
__global__ void __launch_bounds__(256) deep(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    tiled<128, 128, 16, 8, 8, true, 0>(a, b, c, n, alpha, beta);
}
__global__ void __launch_bounds__(128) warps(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    constexpr int BM = 128, BN = 128, BK = 16, TM = 8, TN = 4, STEPS = 4;
    __shared__ float x[BK * BM], y[BK * BN];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    int row0 = warp / 2 * 64 + lane / 4 * TM, column0 = warp % 2 * 64 + lane % 4 * TN;
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    float sum[TM][STEPS * TN] = {}, left[TM], right[STEPS * TN];
    for (int k0 = 0; k0 < n; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < BM * BK / 4 / 128; i++) {
            int row = (t + 128 * i) / 4, column = t % 4 * 4;
            float4 v = *(const float4 *)(a + row * n + column);
            x[(column + 0) * BM + row] = v.x;
            x[(column + 1) * BM + row] = v.y;
            x[(column + 2) * BM + row] = v.z;
            x[(column + 3) * BM + row] = v.w;
        }
        #pragma unroll
        for (int i = 0; i < BK * BN / 4 / 128; i++) {
            int row = (t + 128 * i) / 32, column = t % 32 * 4;
            *(float4 *)(y + row * BN + column) = *(const float4 *)(b + row * n + column);
        }
        __syncthreads();
        a += BK;
        b += BK * n;
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            #pragma unroll
            for (int i = 0; i < TM; i++) left[i] = x[k * BM + row0 + i];
            #pragma unroll
            for (int s = 0; s < STEPS; s++)
                #pragma unroll
                for (int j = 0; j < TN; j++) right[s * TN + j] = y[k * BN + column0 + 16 * s + j];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < STEPS * TN; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < TM; i++) {
            float4 *at = (float4 *)(c + (row0 + i) * n + column0 + 16 * s), v = *at;
            v.x = alpha * sum[i][s * TN] + beta * v.x;
            v.y = alpha * sum[i][s * TN + 1] + beta * v.y;
            v.z = alpha * sum[i][s * TN + 2] + beta * v.z;
            v.w = alpha * sum[i][s * TN + 3] + beta * v.w;
            *at = v;
        }
}
}
