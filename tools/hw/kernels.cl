// Kernels of the hardware check for AMD GPUs, in OpenCL C without its library: what each does is in its name, what it must
// give is in kernels.py. They are those of kernels.cu; a block has 256 work-items where a kernel counts them.

typedef uint u32;
typedef ulong u64;
#define KERNEL __attribute__((reqd_work_group_size(256, 1, 1))) kernel
#define BLOCK __builtin_amdgcn_workgroup_id_x()
#define THREAD __builtin_amdgcn_workitem_id_x()
#define INDEX (256 * BLOCK + THREAD)
#define BARRIER() __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); __builtin_amdgcn_s_barrier()
constant u32 primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};

kernel void nothing(void) {}

/* each launch needs the one before it: a launch that is lost, doubled or out of order shows in the result */
KERNEL void step(global u32 *x, u32 n) {
  u32 i = INDEX;
  if (i < n) x[i] = x[i] * 1664525u + 1013904223u;
}

struct Pair { double first; char letter; };
kernel void arguments(global double *out, char a, short b, int c, long d, float e, double f, struct Pair p) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = (double)d; out[4] = e; out[5] = f; out[6] = p.first; out[7] = p.letter;
}

/* shared memory and barriers: the sum of a block, as a tree */
KERNEL void block_sums(global u32 *out, global const u32 *x) {
  local u32 part[256];
  u32 t = THREAD;
  part[t] = x[INDEX];
  BARRIER();
  for (u32 half_ = 128; half_; half_ /= 2) {
    if (t < half_) part[t] += part[t + half_];
    BARRIER();
  }
  if (t == 0) out[BLOCK] = part[0];
}

/* lanes read each other's registers, then one atomic for each group of 32 */
KERNEL void warp_total(global u32 *total, global const u32 *x) {
  u32 v = x[INDEX], lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  for (u32 distance = 16; distance; distance /= 2)
    v += (u32)__builtin_amdgcn_ds_bpermute((int)((lane ^ distance) * 4), (int)v);
  if (THREAD % 32 == 0) __opencl_atomic_fetch_add((volatile global atomic_uint *)total, v, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}

/* lanes of a wave go different ways: steps of the 3n+1 sequence */
KERNEL void collatz(global u32 *out, u32 n) {
  u32 i = INDEX, x = i + 1, steps = 0;
  if (i >= n) return;
  while (x != 1) { x = x & 1 ? 3 * x + 1 : x / 2; ++steps; }
  out[i] = steps;
}

/* scratch memory: an array that is indexed by data, and constants of the module */
KERNEL void local_memory(global u32 *out, global const u32 *x) {
  u32 mine[64], i = INDEX;
  for (u32 k = 0; k < 64; ++k) mine[k] = k * primes[(k + i) & 7];
  u32 sum = 0;
  for (u32 k = 0; k < 64; ++k) { mine[(x[i] + k) & 63] ^= k; sum += mine[(x[i] * 7 + k * 5) & 63]; }
  out[i] = sum;
}

kernel void precise(global double *out, global const double *x) {
  u32 i = THREAD;
  out[i] = __builtin_fma(x[i], x[i], -2.0) / 3.0;
}

KERNEL void stream(global uint4 *out, global const uint4 *in, u32 n) {
  u32 i = INDEX;
  if (i < n) out[i] = in[i];
}

kernel void stray(global u32 *x, long far) { x[far] = 1; }

kernel void trap(void) { __builtin_trap(); }

kernel void forever(global volatile u32 *x) { while (!*x) {} }

/* as long as the host wants, or `most` steps: registers and shared memory must outlive whatever else the GPU does */
KERNEL void patient(global u32 *out, global volatile u32 *flag, u32 most) {
  local u32 kept[256];
  u32 t = THREAD, i = INDEX, v = i, steps = 0;
  kept[t] = i * 2654435761u;
  BARRIER();
  do { v = v * 1664525u + 1013904223u; ++steps; } while (!*flag && steps != most);
  BARRIER();
  out[3 * i] = steps; out[3 * i + 1] = v; out[3 * i + 2] = kept[t ^ 1];
}
