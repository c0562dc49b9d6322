// Workgroups that wait for each other, memory that kernels allocate, and a graph of work that is launched twice.
#include "check.h"

#include <hip/hip_cooperative_groups.h>  // needs what check.h includes

#include <vector>

namespace groups = cooperative_groups;

__global__ void rounds(int *data, int n) {
    groups::grid_group grid = groups::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < 4; round++) {
        int next = data[(i + 64) % n];  // of another workgroup
        grid.sync();
        data[i] += next;
        grid.sync();
    }
}

__global__ void add(int *data, int what) { data[blockIdx.x * blockDim.x + threadIdx.x] += what; }

int main() {
    int n = 256, wrong = 0, *data;
    std::vector<int> host(n), expected(n), next(n);
    for (int i = 0; i < n; i++) host[i] = expected[i] = i % 10;
    CHECK(hipMalloc(&data, n * sizeof(int)));
    CHECK(hipMemcpy(data, host.data(), n * sizeof(int), hipMemcpyHostToDevice));
    void *arguments[] = {&data, &n};
    CHECK(hipLaunchCooperativeKernel((void *)rounds, dim3(n / 64), dim3(64), arguments, 0, 0));
    CHECK(hipMemcpy(host.data(), data, n * sizeof(int), hipMemcpyDeviceToHost));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < n; i++) next[i] = expected[i] + expected[(i + 64) % n];
        expected = next;
    }
    for (int i = 0; i < n; i++) wrong += host[i] != expected[i];
    std::printf("cooperative: %d wrong\n", wrong);

    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t ready;
    CHECK(hipStreamCreate(&stream));
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    CHECK(hipMemsetAsync(data, 0, n * sizeof(int), stream));
    add<<<n / 64, 64, 0, stream>>>(data, 5);
    add<<<n / 64, 64, 0, stream>>>(data, 7);
    CHECK(hipStreamEndCapture(stream, &graph));
    CHECK(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
    for (int k = 0; k < 2; k++) CHECK(hipGraphLaunch(ready, stream));
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipMemcpy(host.data(), data, n * sizeof(int), hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) wrong += host[i] != 12;
    return finish("cooperative", wrong);
}
