// Streams and events: work of two streams in an order that an event demands, its time, and rows of an array copied;
// a stream that may use two compute units.
#include <vector>

#include "check.h"

__global__ void add(int *data, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = 3 * data[i] + what;
}

int main() {
    const int n = 4096, width = 100, height = 17, pitch = 192;
    int wrong = 0, *data;
    hipStream_t first, second;
    hipEvent_t start, middle, end;
    CHECK(hipStreamCreate(&first));
    CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
    CHECK(hipEventCreate(&start));
    CHECK(hipEventCreate(&middle));
    CHECK(hipEventCreate(&end));
    CHECK(hipMalloc(&data, n * sizeof(int)));
    CHECK(hipMemsetAsync(data, 0, n * sizeof(int), first));
    CHECK(hipEventRecord(start, first));
    add<<<n / 256, 256, 0, first>>>(data, n, 1);
    CHECK(hipEventRecord(middle, first));
    CHECK(hipStreamWaitEvent(second, middle, 0));
    add<<<n / 256, 256, 0, second>>>(data, n, 2);
    CHECK(hipEventRecord(end, second));
    CHECK(hipEventSynchronize(end));
    float milliseconds = -1;
    CHECK(hipEventElapsedTime(&milliseconds, start, end));
    wrong += !(milliseconds > 0);
    std::vector<int> found(n);
    CHECK(hipMemcpyAsync(found.data(), data, n * sizeof(int), hipMemcpyDeviceToHost, second));
    CHECK(hipStreamSynchronize(second));
    for (int i = 0; i < n; i++) wrong += found[i] != 5;

    const uint32_t two_units[] = {3};
    hipStream_t few;
    CHECK(hipExtStreamCreateWithCUMask(&few, 1, two_units));
    add<<<n / 256, 256, 0, few>>>(data, n, 3);
    CHECK(hipMemcpyAsync(found.data(), data, n * sizeof(int), hipMemcpyDeviceToHost, few));
    CHECK(hipStreamSynchronize(few));
    for (int i = 0; i < n; i++) wrong += found[i] != 18;

    std::vector<char> host(height * width), back(height * width);
    for (size_t i = 0; i < host.size(); i++) host[i] = char(i * 7);
    char *box;
    CHECK(hipMalloc(&box, height * pitch));
    CHECK(hipMemset(box, 0x55, height * pitch));
    CHECK(hipMemcpy2D(box, pitch, host.data(), width, width, height, hipMemcpyHostToDevice));
    CHECK(hipMemcpy2D(back.data(), width, box, pitch, width, height, hipMemcpyDeviceToHost));
    for (size_t i = 0; i < host.size(); i++) wrong += host[i] != back[i];
    std::vector<char> whole(height * pitch);
    CHECK(hipMemcpy(whole.data(), box, whole.size(), hipMemcpyDeviceToHost));
    for (int y = 0; y < height; y++)
        for (int x = width; x < pitch; x++) wrong += whole[y * pitch + x] != 0x55;
    return finish("streams", wrong);
}
