// Managed, pinned and registered memory: what the GPU and the host both change.
#include <vector>

#include "check.h"

__device__ int counter;

__global__ void scale(int *data, int n, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] *= factor;
        atomicAdd(&counter, 1);
    }
}

int main() {
    const int n = 3000;
    int wrong = 0, *managed, *pinned, *seen, zero = 0, count = 0;
    CHECK(hipMallocManaged(&managed, n * sizeof(int)));
    CHECK(hipHostMalloc(&pinned, n * sizeof(int)));
    std::vector<int> plain(n);
    for (int i = 0; i < n; i++) managed[i] = i, pinned[i] = 2 * i, plain[i] = 3 * i;
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(counter), &zero, sizeof(int)));
    scale<<<(n + 127) / 128, 128>>>(managed, n, 5);
    scale<<<(n + 127) / 128, 128>>>(pinned, n, 7);
    CHECK(hipHostRegister(plain.data(), n * sizeof(int), hipHostRegisterDefault));
    CHECK(hipHostGetDevicePointer((void **)&seen, plain.data(), 0));
    scale<<<(n + 127) / 128, 128>>>(seen, n, 11);
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpyFromSymbol(&count, HIP_SYMBOL(counter), sizeof(int)));
    wrong += count != 3 * n;
    for (int i = 0; i < n; i++) wrong += (managed[i] != 5 * i) + (pinned[i] != 14 * i) + (plain[i] != 33 * i);
    for (int i = 0; i < n; i++) plain[i] += 1;  // the host again, after the GPU
    scale<<<(n + 127) / 128, 128>>>(seen, n, 2);
    CHECK(hipDeviceSynchronize());
    for (int i = 0; i < n; i++) wrong += plain[i] != 2 * (33 * i + 1);
    CHECK(hipHostUnregister(plain.data()));
    CHECK(hipHostFree(pinned));
    CHECK(hipFree(managed));
    return finish("managed", wrong);
}
