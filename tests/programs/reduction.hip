// Sums rows in LDS with a tree of barriers, and everything with atomics: dynamic shared memory, scratch memory.
#include <vector>

#include "check.h"

__global__ void sums(float *rows, float *total, const float *data, int width) {
    extern __shared__ float held[];
    float own = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) own += data[blockIdx.x * width + i];
    held[threadIdx.x] = own;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x) {
        rows[blockIdx.x] = held[0];
        atomicAdd(total, held[0]);
    }
}

__global__ void reversed(int *out, const int *order, int n) {
    int kept[64];  // indexed by what is only known at run time: scratch memory
    for (int i = 0; i < 64; i++) kept[order[i]] = i * (threadIdx.x + 1);
    int sum = 0;
    for (int i = 0; i < 64; i++) sum = 3 * sum + kept[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main() {
    const int height = 40, width = 1000;
    std::vector<float> data(height * width);
    for (size_t i = 0; i < data.size(); i++) data[i] = int(i % 7) - 3;
    float *rows, *total, *on_gpu;
    CHECK(hipMalloc(&rows, height * sizeof(float)));
    CHECK(hipMalloc(&total, sizeof(float)));
    CHECK(hipMalloc(&on_gpu, data.size() * sizeof(float)));
    CHECK(hipMemset(total, 0, sizeof(float)));
    CHECK(hipMemcpy(on_gpu, data.data(), data.size() * sizeof(float), hipMemcpyHostToDevice));
    sums<<<height, 128, 128 * sizeof(float)>>>(rows, total, on_gpu, width);
    std::vector<float> found(height);
    float all = 0, expected_all = 0;
    CHECK(hipMemcpy(found.data(), rows, height * sizeof(float), hipMemcpyDeviceToHost));
    CHECK(hipMemcpy(&all, total, sizeof(float), hipMemcpyDeviceToHost));
    int wrong = 0;
    for (int row = 0; row < height; row++) {
        float expected = 0;
        for (int i = 0; i < width; i++) expected += data[row * width + i];
        wrong += expected != found[row];
        expected_all += expected;
    }
    wrong += all != expected_all;

    int *out, *order, indices[64], result[256];
    for (int i = 0; i < 64; i++) indices[i] = (i * 29 + 5) % 64;
    CHECK(hipMalloc(&out, sizeof(result)));
    CHECK(hipMalloc(&order, sizeof(indices)));
    CHECK(hipMemcpy(order, indices, sizeof(indices), hipMemcpyHostToDevice));
    reversed<<<4, 64>>>(out, order, 256);
    CHECK(hipMemcpy(result, out, sizeof(result), hipMemcpyDeviceToHost));
    for (int t = 0; t < 256; t++) {
        int kept[64], sum = 0;
        for (int i = 0; i < 64; i++) kept[indices[i]] = i * (t % 64 + 1);
        for (int i = 0; i < 64; i++) sum = int(3u * sum + kept[i]);
        wrong += sum != result[t];
    }
    return finish("reduction", wrong);
}
