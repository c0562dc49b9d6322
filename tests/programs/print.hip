// printf on the GPU: the host's thread answers while the kernel waits.
#include "check.h"

__global__ void greet(float what) {
    if (threadIdx.x % 3 == 0) printf("work-item %d of group %d: %.3f\n", int(threadIdx.x), int(blockIdx.x), threadIdx.x * what);
}

int main() {
    greet<<<2, 7>>>(0.125f);
    CHECK(hipDeviceSynchronize());
    return finish("print", 0);
}
