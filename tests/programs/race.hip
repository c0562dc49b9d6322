// A kernel with a race in LDS, and its twin that has none: race wrong|right|sometimes STATUS ends with the status.
#include <cstring>

#include "check.h"

template <bool waits>
__global__ void turn(int *out) {
    __shared__ int tile[256];
    tile[threadIdx.x] = threadIdx.x;
    if (waits) __syncthreads();
    out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}

// Whichever wave comes first fills the table; the first wave reads it, and waits for nobody.
__global__ void first_fills(int *out) {
    __shared__ int came, table[64];
    if (threadIdx.x == 0) came = 0;
    __syncthreads();
    int before = threadIdx.x % 64 ? 1 : atomicAdd(&came, 1);
    if (before == 0) table[0] = 7;
    if (threadIdx.x == 0) out[0] = table[0];
}

int main(int count, char **words) {
    if (count != 3) return 2;
    int *out;
    CHECK(hipMalloc(&out, 512 * sizeof(int)));
    if (!strcmp(words[1], "wrong")) turn<false><<<2, 256>>>(out);
    if (!strcmp(words[1], "right")) turn<true><<<2, 256>>>(out);
    if (!strcmp(words[1], "sometimes")) first_fills<<<1, 256>>>(out);
    CHECK(hipDeviceSynchronize());
    return atoi(words[2]);
}
