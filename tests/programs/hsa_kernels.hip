// Kernels of hsa_dispatch.cpp. Sizes are arguments, so that nothing hidden has to be passed.
#include <hip/hip_runtime.h>

extern "C" __global__ void counts(unsigned *seen, unsigned n) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    atomicAdd(&seen[n], 1);  // as many as there are work-items, not as whole workgroups have
    if (i < n) seen[i] = 3 * i;
}

extern "C" __global__ void scrambles(unsigned *out, const unsigned *order) {
    unsigned kept[32];
    for (int i = 0; i < 32; i++) kept[order[i] % 32] = i + threadIdx.x;
    unsigned sum = 0;
    for (int i = 0; i < 32; i++) sum = 5 * sum + kept[i];
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
