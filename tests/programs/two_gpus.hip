// Two GPUs in one process: each has its own memory and queues; data goes from one to the other.
#include <vector>

#include "check.h"

__global__ void fill(int *data, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = what + i;
}

int main() {
    const int n = 5000;
    int count = 0, wrong = 0, *data[2];
    CHECK(hipGetDeviceCount(&count));
    if (count != 2) return finish("two_gpus", 1);
    for (int gpu = 0; gpu < 2; gpu++) {
        CHECK(hipSetDevice(gpu));
        CHECK(hipMalloc(&data[gpu], n * sizeof(int)));
        fill<<<(n + 63) / 64, 64>>>(data[gpu], n, 1000 * gpu);
        CHECK(hipDeviceSynchronize());
    }
    std::vector<int> found(n);
    for (int gpu = 0; gpu < 2; gpu++) {
        CHECK(hipMemcpy(found.data(), data[gpu], n * sizeof(int), hipMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) wrong += found[i] != 1000 * gpu + i;
    }
    CHECK(hipMemcpyPeer(data[0], 0, data[1], 1, n * sizeof(int)));
    CHECK(hipMemcpy(found.data(), data[0], n * sizeof(int), hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) wrong += found[i] != 1000 + i;
    return finish("two_gpus", wrong);
}
