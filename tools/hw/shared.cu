// Kernels with no shared memory, with as much as a kernel can declare, and with as much as a launch asks for: every word
// of it is written by one thread and read by another, and nv/shared_memory.py knows the sums.

typedef unsigned int u32;

// == shared_none
extern "C" __global__ void shared_none(u32 *out, u32 words) { out[threadIdx.x] = threadIdx.x * 2654435761u + words; }

/* word k of thread t of 256 lies at 256 k + t; thread t then sums words / 256 words that follow one another */
__device__ void through(u32 *part, u32 *out, u32 words) {
  u32 t = threadIdx.x, each = words / 256, sum = 0;
  for (u32 k = 0; k < each; ++k) part[256 * k + t] = (256 * k + t) * 2654435761u;
  __syncthreads();
  for (u32 k = 0; k < each; ++k) sum += part[each * t + k];
  out[t] = sum;
}

// == shared_static
extern "C" __global__ void shared_static(u32 *out, u32 words) {
  __shared__ u32 part[12288];
  through(part, out, words);
}

// == shared_dynamic
extern "C" __global__ void shared_dynamic(u32 *out, u32 words) {
  extern __shared__ u32 asked[];
  through(asked, out, words);
}
