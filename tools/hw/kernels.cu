// Kernels of the hardware check: what each does is in its name; what it must give is in kernels.py, which takes those
// that a check needs by the lines that begin with their names.

typedef unsigned int u32;
typedef unsigned long long u64;
struct Pair { double first; char letter; };
__constant__ u32 primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};

// == nothing
extern "C" __global__ void nothing() {}

// == step
/* each launch needs the one before it: a launch that is lost, doubled or out of order shows in the result */
extern "C" __global__ void step(u32 *x, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 1664525u + 1013904223u;
}

// == arguments
extern "C" __global__ void arguments(
    double *out, signed char a, short b, int c, long long d, float e, double f, Pair p) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = (double)d; out[4] = e; out[5] = f; out[6] = p.first; out[7] = p.letter;
}

// == block_sums
/* shared memory and barriers: the sum of a block, as a tree */
extern "C" __global__ void block_sums(u32 *out, const u32 *x) {
  __shared__ u32 part[256];
  u32 t = threadIdx.x;
  part[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (u32 half = 128; half; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// == warp_total
/* shuffles within a warp, then one atomic for each warp */
extern "C" __global__ void warp_total(u32 *total, const u32 *x) {
  u32 v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int distance = 16; distance; distance /= 2) v += __shfl_xor_sync(~0u, v, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(total, v);
}

// == collatz
/* threads of a warp go different ways: steps of the 3n+1 sequence */
extern "C" __global__ void collatz(u32 *out, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = i + 1, steps = 0;
  if (i >= n) return;
  while (x != 1) { x = x & 1 ? 3 * x + 1 : x / 2; ++steps; }
  out[i] = steps;
}

// == local_memory
/* local memory: an array that is indexed by data, and constant memory of the module */
extern "C" __global__ void local_memory(u32 *out, const u32 *x) {
  u32 mine[64], i = blockIdx.x * blockDim.x + threadIdx.x;
  for (u32 k = 0; k < 64; ++k) mine[k] = k * primes[(k + i) & 7];
  u32 sum = 0;
  for (u32 k = 0; k < 64; ++k) { mine[(x[i] + k) & 63] ^= k; sum += mine[(x[i] * 7 + k * 5) & 63]; }
  out[i] = sum;
}

// == precise
extern "C" __global__ void precise(double *out, const double *x) {
  u32 i = threadIdx.x;
  out[i] = fma(x[i], x[i], -2.0) / 3.0;
}

// == stream
extern "C" __global__ void stream(uint4 *out, const uint4 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

// == stray
extern "C" __global__ void stray(u32 *x, long long far) { x[far] = 1; }

// == trap
extern "C" __global__ void trap() { __trap(); }

// == forever
extern "C" __global__ void forever(volatile u32 *x) { while (!*x) {} }

// == patient
/* as long as the host wants, or `most` steps: registers and shared memory must outlive whatever else the GPU does */
extern "C" __global__ void patient(u32 *out, volatile u32 *flag, u32 most) {
  __shared__ u32 kept[256];
  u32 t = threadIdx.x, i = blockIdx.x * blockDim.x + t, v = i, steps = 0;
  kept[t] = i * 2654435761u;
  __syncthreads();
  do { v = v * 1664525u + 1013904223u; ++steps; } while (!*flag && steps != most);
  __syncthreads();
  out[3 * i] = steps; out[3 * i + 1] = v; out[3 * i + 2] = kept[t ^ 1];
}
