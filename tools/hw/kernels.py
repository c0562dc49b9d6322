"""Kernels of the hardware check, in CUDA C: what each does is in its name, and what it must give is beside it.

In       the device
Out      programs by name, compiled with nvrtc for the device's architecture; expected results as Python numbers
Changes  memory of the device, where the code is loaded
Next     checks.py (who launches them)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

HEAD = """\
typedef unsigned int u32;
typedef unsigned long long u64;
struct Pair { double first; char letter; };
__constant__ u32 primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
"""

# by name, so that what is loaded, and recorded, is what a check needs
KERNELS = {
    "nothing": """
extern "C" __global__ void nothing() {}
""",
    "step": """
/* each launch needs the one before it: a launch that is lost, doubled or out of order shows in the result */
extern "C" __global__ void step(u32 *x, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 1664525u + 1013904223u;
}
""",
    "arguments": """
extern "C" __global__ void arguments(
    double *out, signed char a, short b, int c, long long d, float e, double f, Pair p) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = (double)d; out[4] = e; out[5] = f; out[6] = p.first; out[7] = p.letter;
}
""",
    "block_sums": """
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
""",
    "warp_total": """
/* shuffles within a warp, then one atomic for each warp */
extern "C" __global__ void warp_total(u32 *total, const u32 *x) {
  u32 v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int distance = 16; distance; distance /= 2) v += __shfl_xor_sync(~0u, v, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(total, v);
}
""",
    "collatz": """
/* threads of a warp go different ways: steps of the 3n+1 sequence */
extern "C" __global__ void collatz(u32 *out, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = i + 1, steps = 0;
  if (i >= n) return;
  while (x != 1) { x = x & 1 ? 3 * x + 1 : x / 2; ++steps; }
  out[i] = steps;
}
""",
    "local_memory": """
/* local memory: an array that is indexed by data, and constant memory of the module */
extern "C" __global__ void local_memory(u32 *out, const u32 *x) {
  u32 mine[64], i = blockIdx.x * blockDim.x + threadIdx.x;
  for (u32 k = 0; k < 64; ++k) mine[k] = k * primes[(k + i) & 7];
  u32 sum = 0;
  for (u32 k = 0; k < 64; ++k) { mine[(x[i] + k) & 63] ^= k; sum += mine[(x[i] * 7 + k * 5) & 63]; }
  out[i] = sum;
}
""",
    "precise": """
extern "C" __global__ void precise(double *out, const double *x) {
  u32 i = threadIdx.x;
  out[i] = fma(x[i], x[i], -2.0) / 3.0;
}
""",
    "stream": """
extern "C" __global__ void stream(uint4 *out, const uint4 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
""",
    "stray": """
extern "C" __global__ void stray(u32 *x, long long far) { x[far] = 1; }
""",
    "trap": """
extern "C" __global__ void trap() { __trap(); }
""",
    "forever": """
extern "C" __global__ void forever(volatile u32 *x) { while (!*x) {} }
""",
}
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
M32 = 0xFFFFFFFF


def image(arch: str, names: Sequence[str]) -> bytes:
    """Some of them, for one architecture. Raises UsageError that says how to get nvrtc."""
    from hcq.nv.toolchain import images

    return images.of_cuda("\n".join([HEAD, *(KERNELS[name] for name in names)]), arch, "hw_check")


def programs(device: Any, names: Sequence[str]) -> dict[str, Any]:
    """Some of them, loaded."""
    code = image(device.arch, names)
    return {name: device.load(code, name) for name in names}


# ------------------------------------------------------------ what they must give


def words(count: int, seed: int = 1) -> list[int]:
    """Numbers without a pattern that a wrong address would repeat."""
    return [(index * 2654435761 + seed * 40503) & M32 for index in range(count)]


def pack(numbers: Sequence[int]) -> bytes:
    """Numbers as little-endian words of 32 bits."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack(data: bytes) -> list[int]:
    """Little-endian words of 32 bits as numbers."""
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def stepped(times: int, start: int = 0) -> int:
    """What `step` leaves after so many launches: the steps are composed by squaring, x -> a x + c."""
    a, c, result = 1664525, 1013904223, start
    while times:
        if times & 1:
            result = (a * result + c) & M32
        a, c = a * a & M32, (a * c + c) & M32
        times //= 2
    return result


def collatz_steps(count: int) -> list[int]:
    """What the kernel `collatz` must give for 1 .. count."""
    found = []
    for start in range(1, count + 1):
        x, steps = start, 0
        while x != 1:
            x = 3 * x + 1 & M32 if x & 1 else x // 2
            steps += 1
        found.append(steps)
    return found


def local_results(x: Sequence[int]) -> list[int]:
    """What the kernel with an array of its own for each thread must give."""
    found = []
    for i, value in enumerate(x):
        mine = [k * PRIMES[(k + i) & 7] & M32 for k in range(64)]
        total = 0
        for k in range(64):
            mine[(value + k) & 63] ^= k
            total += mine[(value * 7 + k * 5) & 63]
        found.append(total & M32)
    return found
