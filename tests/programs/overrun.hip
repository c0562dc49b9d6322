// A kernel that writes to memory which is not its buffer's: overrun right|neighbour|behind|freed.
#include <cstring>

#include "check.h"

__global__ void fill(int *out, int first) { out[first + threadIdx.x] = threadIdx.x; }

int main(int count, char **words) {
    if (count != 2) return 2;
    int *one, *other;
    CHECK(hipMalloc(&one, 4096));
    CHECK(hipMalloc(&other, 4096));
    int first = 0;
    if (!strcmp(words[1], "neighbour")) first = (int)(other - one);
    if (!strcmp(words[1], "behind")) first = 1024;
    if (!strcmp(words[1], "freed")) CHECK(hipFree(one));
    fill<<<1, 64>>>(one, first);
    hipError_t done = hipDeviceSynchronize();
    return done == hipSuccess ? 0 : 3;
}
