// Adds vectors: memory of the GPU, copies both ways, a grid whose last workgroup is partial.
#include <cstdio>
#include <vector>

#include "check.h"

__global__ void add(float *out, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

int main() {
    const int n = 10007;
    std::vector<float> a(n), b(n), out(n);
    for (int i = 0; i < n; i++) a[i] = i * 0.5f, b[i] = n - i;
    float *da, *db, *dout;
    CHECK(hipMalloc(&da, n * sizeof(float)));
    CHECK(hipMalloc(&db, n * sizeof(float)));
    CHECK(hipMalloc(&dout, n * sizeof(float)));
    CHECK(hipMemcpy(da, a.data(), n * sizeof(float), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(db, b.data(), n * sizeof(float), hipMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(dout, da, db, n);
    CHECK(hipGetLastError());
    CHECK(hipMemcpy(out.data(), dout, n * sizeof(float), hipMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < n; i++) wrong += out[i] != a[i] + b[i];
    CHECK(hipFree(da));
    CHECK(hipFree(db));
    CHECK(hipFree(dout));
    return finish("vector_add", wrong);
}
