// Kernels that go wrong, as the first argument says: a bad pointer, an assertion, an instruction that there is not,
// an endless loop.
#include <cstring>

#include "check.h"

__global__ void stores(int *where) { where[threadIdx.x] = 1; }

__global__ void gives_up(int *flag) {
    if (flag) __builtin_trap();
}

__global__ void strays(int *flag) {
    if (flag) asm volatile(".long 0xffffffff");
}

__global__ void spins(volatile int *flag) {
    while (!*flag) __builtin_amdgcn_s_sleep(1);
}

int main(int, char **arguments) {
    int *flag;
    CHECK(hipMalloc(&flag, sizeof(int)));
    CHECK(hipMemset(flag, 0, sizeof(int)));
    if (!strcmp(arguments[1], "pointer")) stores<<<1, 64>>>((int *)0x123456000);
    if (!strcmp(arguments[1], "trap")) gives_up<<<1, 64>>>(flag);
    if (!strcmp(arguments[1], "illegal")) strays<<<1, 64>>>(flag);
    if (!strcmp(arguments[1], "endless")) spins<<<1, 64>>>(flag);
    std::printf("%s: launched\n", arguments[1]);
    std::fflush(stdout);
    CHECK(hipDeviceSynchronize());
    return finish("faults", 0);
}
