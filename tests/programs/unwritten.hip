// A sum of two buffers, one of which nobody has written, but where the first argument is "right".
#include <cstring>
#include <vector>

#include "check.h"

__global__ void sum(const int *a, const int *b, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i] + b[i];
}

int main(int, char **arguments) {
    const int count = 4096;
    std::vector<int> host(count, 3);
    int *a, *b, *out;
    CHECK(hipMalloc(&a, 4 * count));
    CHECK(hipMalloc(&b, 4 * count));
    CHECK(hipMalloc(&out, 4 * count));
    CHECK(hipMemcpy(a, host.data(), 4 * count, hipMemcpyHostToDevice));
    if (!strcmp(arguments[1], "right")) CHECK(hipMemset(b, 0, 4 * count));
    if (!strcmp(arguments[1], "part")) CHECK(hipMemset(b, 0, 4 * count - 4));
    sum<<<count / 256, 256>>>(a, b, out);
    CHECK(hipMemcpy(host.data(), out, 4 * count, hipMemcpyDeviceToHost));
    return 0;
}
