// Streams in CUDA C: copies, sums and the like, which memory bounds, and the way from memory to arithmetic.
//
// Next     ladders.py (which launches of them were measured, and by whom), count.py (runs them)
// Source   written after descriptions: BabelStream (github.com/UoB-HPC/BabelStream), gpu-benches
//          (github.com/te42kyfo/gpu-benches), github.com/yencal's texts on copies by width

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned long long u64;
#define INDEX (blockIdx.x * (size_t)blockDim.x + threadIdx.x)
#define COPY(name, type) extern "C" __global__ void name(const type *a, type *b) { b[INDEX] = a[INDEX]; }
COPY(copy_u8, u8)
COPY(copy_u16, u16)
COPY(copy_u32, unsigned)
COPY(copy_u64, u64)
COPY(copy_u128, uint4)
extern "C" {
__global__ void stream_copy(const double *a, double *b, double *c) { c[INDEX] = a[INDEX]; }
__global__ void stream_mul(double *a, double *b, const double *c) { b[INDEX] = 0.4 * c[INDEX]; }
__global__ void stream_add(const double *a, const double *b, double *c) { c[INDEX] = a[INDEX] + b[INDEX]; }
__global__ void stream_triad(double *a, const double *b, const double *c) { a[INDEX] = b[INDEX] + 0.4 * c[INDEX]; }
__global__ void stream_dot(const double *a, const double *b, double *sums, int n) {
    __shared__ double part[1024];
    int t = threadIdx.x;
    double sum = 0;
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
    part[t] = sum;
    for (int left = blockDim.x / 2; left > 0; left /= 2) {
        __syncthreads();
        if (t < left) part[t] += part[t + left];
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
__global__ void read(double *a, const double *b) {
    double v = b[INDEX];
    if (v == 123.0) a[INDEX] = v;
}
__global__ void scale(double *a, const double *b) { a[INDEX] = b[INDEX] * 1.2; }
__global__ void triad(double *a, const double *b, const double *c) { a[INDEX] = b[INDEX] + c[INDEX] * 1.2; }
__global__ void small(double *a, const double *b, int n) {
    if (INDEX < n) a[INDEX] = b[INDEX] * 0.25;
}
}
template <int STEPS> __device__ __forceinline__ void intensity(const float *a, float *out, int n) {
    float sum = 0;
    for (size_t i = INDEX; i < n / 2; i += gridDim.x * blockDim.x) {
        float x = a[i], y = a[i + n / 2];
        #pragma unroll
        for (int s = 0; s < STEPS / 2; s++) {
            x = x * 0.5f + 1.1f;
            y = y * 0.5f + 1.1f;
        }
        sum += x + y;
    }
    if (sum == 123.0f) out[INDEX] = sum;
}
#define INTENSITY(steps) extern "C" __global__ void intensity_##steps(const float *a, float *out, int n) \
    { intensity<steps>(a, out, n); }
INTENSITY(0)
INTENSITY(24)
INTENSITY(48)
INTENSITY(96)
INTENSITY(208)
INTENSITY(344)
#define SUM(name, type, add) extern "C" __global__ void name(const type *in, int *out, int n) { \
    int sum = 0; \
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) { type v = in[i]; sum += add; } \
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step); \
    __shared__ int part[32]; \
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum; \
    __syncthreads(); \
    if (threadIdx.x < 32) { \
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0; \
        for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step); \
        if (threadIdx.x == 0) atomicAdd(out, sum); \
    } \
}
SUM(sum_int, int, v)
SUM(sum_int2, int2, v.x + v.y)
SUM(sum_int4, int4, v.x + v.y + v.z + v.w)
