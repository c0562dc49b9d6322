// printf on the GPU: the host's thread answers while the kernel waits.
#include "check.h"

__global__ void greet(const char *whom) {
    if (threadIdx.x % 3 == 0) printf("work-item %d of group %d, %s: %.3f\n", threadIdx.x, blockIdx.x, "a GPU", threadIdx.x / 8.0);
}

int main() {
    greet<<<2, 7>>>(nullptr);
    CHECK(hipDeviceSynchronize());
    return finish("print", 0);
}
