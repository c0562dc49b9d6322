// Reductions in CUDA C: sums of rows and of everything, histograms, softmax, layer norm.
//
// Next     ladders.py (which launches of them were measured, and by whom), count.py (runs them)
// Source   written after descriptions: github.com/gau-nernst/learn-cuda (sums, softmax), github.com/yencal/gpu-histogram-
//          optimization, github.com/Pupking/03_parallel_reduction, Triton's tutorial 05 (layer norm)

#define INDEX (blockIdx.x * (size_t)blockDim.x + threadIdx.x)
__device__ __forceinline__ float warp_sum(float v) {
    for (int step = 16; step; step /= 2) v += __shfl_down_sync(~0u, v, step);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
    for (int step = 16; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
    return v;
}
__device__ __forceinline__ void softmax_out(const float4 *in, float4 *out, int n, float most, float factor) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float4 v = in[i];
        out[i] = make_float4(__expf(v.x - most) * factor, __expf(v.y - most) * factor, __expf(v.z - most) * factor,
                             __expf(v.w - most) * factor);
    }
}
extern "C" {
__global__ void rows_thread(const float *in, float *out, int m, int n) {
    int row = INDEX;
    if (row >= m) return;
    float sum = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        float y = in[(size_t)row * n + i] - lost, t = sum + y;
        lost = (t - sum) - y;
        sum = t;
    }
    out[row] = sum;
}
__global__ void rows_tree(const float *in, float *out, int m, int n) {
    __shared__ float part[256];
    int t = threadIdx.x, column = blockIdx.x * 256 + t;
    part[t] = column < n ? in[(size_t)blockIdx.y * n + column] : 0;
    for (int left = 128; left > 0; left /= 2) {
        __syncthreads();
        if (t < left) part[t] += part[t + left];
    }
    if (t == 0) atomicAdd(out + blockIdx.y, part[0]);
}
__global__ void rows_coarse(const float *in, float *out, int m, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        int column = (blockIdx.x * 4 + i) * 256 + t;
        if (column < n) sum += in[(size_t)blockIdx.y * n + column];
    }
    part[t] = sum;
    for (int left = 128; left > 0; left /= 2) {
        __syncthreads();
        if (t < left) part[t] += part[t + left];
    }
    if (t == 0) atomicAdd(out + blockIdx.y, part[0]);
}
__global__ void rows_shuffle(const float *in, float *out, int m, int n) {
    __shared__ float part[8];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        int column = (blockIdx.x * 4 + i) * 256 + t;
        if (column < n) sum += in[(size_t)blockIdx.y * n + column];
    }
    sum = warp_sum(sum);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = warp_sum(t < 8 ? part[t] : 0);
        if (t == 0) atomicAdd(out + blockIdx.y, sum);
    }
}
__global__ void rows_wide(const float *in, float *out, int m, int n) {
    __shared__ float part[8];
    int t = threadIdx.x, column = (blockIdx.x * 256 + t) * 4;
    float sum = 0;
    if (column < n) {
        float4 v = *(const float4 *)(in + (size_t)blockIdx.y * n + column);
        sum = v.x + v.y + v.z + v.w;
    }
    sum = warp_sum(sum);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = warp_sum(t < 8 ? part[t] : 0);
        if (t == 0) atomicAdd(out + blockIdx.y, sum);
    }
}
__global__ void histogram_global(const unsigned char *in, unsigned *bins, int n) {
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) atomicAdd(bins + in[i], 1);
}
__global__ void histogram_shared(const unsigned char *in, unsigned *bins, int n) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) atomicAdd(own + in[i], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(bins + i, own[i]);
}
__global__ void histogram_wide(const uint4 *in, unsigned *bins, int n) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) {
        uint4 v = in[i];
        unsigned words[4] = {v.x, v.y, v.z, v.w};
        for (int w = 0; w < 4; w++)
            for (int s = 0; s < 32; s += 8) atomicAdd(own + (words[w] >> s & 255), 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(bins + i, own[i]);
}
__global__ void sum_interleaved(const float *in, float *out) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = in[INDEX];
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        if (t % (2 * s) == 0) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}
__global__ void sum_sequential(const float *in, float *out) {
    __shared__ float part[256];
    int t = threadIdx.x;
    size_t i = blockIdx.x * 512 + t;
    part[t] = in[i] + in[i + 256];
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}
__global__ void sum_shuffle(const float *in, float *out) {
    __shared__ float part[256];
    int t = threadIdx.x;
    size_t i = blockIdx.x * 512 + t;
    part[t] = in[i] + in[i + 256];
    __syncthreads();
    for (int s = 128; s > 16; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t < 32) {
        float sum = warp_sum(part[t]);
        if (t == 0) out[blockIdx.x] = sum;
    }
}
__global__ void sum_strided(const float *in, float *out, int n) {
    __shared__ float part[8];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sum = warp_sum(sum);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = warp_sum(t < 8 ? part[t] : 0);
        if (t == 0) out[blockIdx.x] = sum;
    }
}
__global__ void softmax_naive(const float *in, float *out, int n) {
    __shared__ float part[32];
    int t = threadIdx.x;
    const float4 *from = (const float4 *)(in + (size_t)blockIdx.x * n);
    float4 *to = (float4 *)(out + (size_t)blockIdx.x * n);
    n /= 4;
    float most = -1e30f, sum = 0;
    for (int i = t; i < n; i += blockDim.x) {
        float4 v = from[i];
        most = fmaxf(fmaxf(fmaxf(most, v.x), fmaxf(v.y, v.z)), v.w);
    }
    most = warp_max(most);
    if (t % 32 == 0) part[t / 32] = most;
    __syncthreads();
    most = warp_max(t % 32 < blockDim.x / 32 ? part[t % 32] : -1e30f);
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) {
        float4 v = from[i];
        sum += __expf(v.x - most) + __expf(v.y - most) + __expf(v.z - most) + __expf(v.w - most);
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    sum = t % 32 < blockDim.x / 32 ? part[t % 32] : 0;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    softmax_out(from, to, n, most, 1.0f / sum);
}
__global__ void softmax_online(const float *in, float *out, int n) {
    __shared__ float highest[32], sums[32];
    int t = threadIdx.x;
    const float4 *from = (const float4 *)(in + (size_t)blockIdx.x * n);
    float4 *to = (float4 *)(out + (size_t)blockIdx.x * n);
    n /= 4;
    float most = -1e30f, sum = 0;
    for (int i = t; i < n; i += blockDim.x) {
        float4 four = from[i];
        float v[4] = {four.x, four.y, four.z, four.w};
        #pragma unroll
        for (int e = 0; e < 4; e++) {
            float higher = fmaxf(most, v[e]);
            sum = sum * __expf(most - higher) + __expf(v[e] - higher);
            most = higher;
        }
    }
    float all = warp_max(most);
    sum *= __expf(most - all);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (t % 32 == 0) highest[t / 32] = all, sums[t / 32] = sum;
    __syncthreads();
    most = t % 32 < blockDim.x / 32 ? highest[t % 32] : -1e30f;
    sum = t % 32 < blockDim.x / 32 ? sums[t % 32] : 0;
    all = warp_max(most);
    sum *= __expf(most - all);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    softmax_out(from, to, n, all, 1.0f / sum);
}
}

// a block a row of halves, read three times: for the mean, the variance, the result; by 16 bytes
__device__ __forceinline__ void opened(uint4 v, float *to) {
    unsigned words[4] = {v.x, v.y, v.z, v.w};
    #pragma unroll
    for (int i = 0; i < 4; i++)
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(to[2 * i]), "=f"(to[2 * i + 1]) : "r"(words[i]));
}
__device__ __forceinline__ uint4 closed(const float *from) {
    unsigned words[4];
    #pragma unroll
    for (int i = 0; i < 4; i++)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
    return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ float block_sum(float v, float *part) {
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[threadIdx.x % 8];
    for (int step = 4; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    __syncthreads();
    return v;
}
template <int PIECES, bool AFFINE>
__device__ __forceinline__ void norm(const uint4 *in, uint4 *out, const uint4 *weight, const uint4 *bias) {
    __shared__ float part[8];
    int t = threadIdx.x;
    in += (size_t)blockIdx.x * PIECES * 256;
    out += (size_t)blockIdx.x * PIECES * 256;
    float sum = 0, squares = 0, v[8], w[8], b[8];
    #pragma unroll
    for (int i = 0; i < PIECES; i++) {
        opened(in[i * 256 + t], v);
        for (int e = 0; e < 8; e++) sum += v[e];
    }
    float mean = block_sum(sum, part) / (PIECES * 2048);
    #pragma unroll
    for (int i = 0; i < PIECES; i++) {
        opened(in[i * 256 + t], v);
        for (int e = 0; e < 8; e++) squares += (v[e] - mean) * (v[e] - mean);
    }
    float factor = rsqrtf(block_sum(squares, part) / (PIECES * 2048) + 1e-5f);
    #pragma unroll
    for (int i = 0; i < PIECES; i++) {
        opened(in[i * 256 + t], v);
        if (AFFINE) {
            opened(weight[i * 256 + t], w);
            opened(bias[i * 256 + t], b);
        }
        for (int e = 0; e < 8; e++) {
            v[e] = (v[e] - mean) * factor;
            if (AFFINE) v[e] = v[e] * w[e] + b[e];
        }
        out[i * 256 + t] = closed(v);
    }
}
#define NORM(name, pieces, affine) extern "C" __global__ void name( \
    const uint4 *in, uint4 *out, const uint4 *weight, const uint4 *bias) { \
    norm<pieces, affine>(in, out, weight, bias); \
}
NORM(norm_4096, 2, true)
NORM(norm_8192, 4, true)
NORM(norm_plain_4096, 2, false)
NORM(norm_plain_8192, 4, false)
