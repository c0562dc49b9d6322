// rocBLAS: matrix products in three types against the host's own, and a vector operation.
#include <hip/hip_runtime.h>
#include <rocblas/rocblas.h>

#include <cmath>
#include <vector>

#include "check.h"

#define ROCBLAS(call)                                                                        \
    do {                                                                                     \
        rocblas_status status = (call);                                                      \
        if (status != rocblas_status_success) {                                              \
            std::printf("%s -> %s\n", #call, rocblas_status_to_string(status));              \
            std::exit(2);                                                                    \
        }                                                                                    \
    } while (0)

template <typename Number>
static Number *on_gpu(const std::vector<Number> &data) {
    Number *memory;
    CHECK(hipMalloc(&memory, data.size() * sizeof(Number)));
    CHECK(hipMemcpy(memory, data.data(), data.size() * sizeof(Number), hipMemcpyHostToDevice));
    return memory;
}

template <typename Number, typename Gemm>
static int product(Gemm gemm, int m, int n, int k, double tolerance) {
    std::vector<Number> a(m * k), b(k * n), c(m * n);
    for (size_t i = 0; i < a.size(); i++) a[i] = Number(int(i * 7 % 13) - 6) / 4;
    for (size_t i = 0; i < b.size(); i++) b[i] = Number(int(i * 5 % 11) - 5) / 8;
    Number *da = on_gpu(a), *db = on_gpu(b), *dc = on_gpu(c);
    gemm(m, n, k, da, db, dc);
    CHECK(hipMemcpy(c.data(), dc, c.size() * sizeof(Number), hipMemcpyDeviceToHost));
    int wrong = 0;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double expected = 0;
            for (int l = 0; l < k; l++) expected += double(a[l * m + i]) * double(b[j * k + l]);
            wrong += !(std::fabs(double(c[j * m + i]) - expected) <= tolerance);
        }
    std::printf("%d x %d x %d: %d wrong\n", m, n, k, wrong);
    return wrong;
}

int main() {
    rocblas_handle handle;
    ROCBLAS(rocblas_create_handle(&handle));
    int wrong = 0;
    auto transposed = rocblas_operation_none;
    wrong += product<float>(
        [&](int m, int n, int k, float *a, float *b, float *c) {
            float one = 1, zero = 0;
            ROCBLAS(rocblas_sgemm(handle, transposed, transposed, m, n, k, &one, a, m, b, k, &zero, c, m));
        },
        65, 40, 33, 1e-4);
    wrong += product<double>(
        [&](int m, int n, int k, double *a, double *b, double *c) {
            double one = 1, zero = 0;
            ROCBLAS(rocblas_dgemm(handle, transposed, transposed, m, n, k, &one, a, m, b, k, &zero, c, m));
        },
        32, 48, 20, 1e-9);
    std::vector<float> x(1000), y(1000);
    for (int i = 0; i < 1000; i++) x[i] = i, y[i] = 1000 - 2 * i;
    float *dx = on_gpu(x), *dy = on_gpu(y), three = 3;
    ROCBLAS(rocblas_saxpy(handle, 1000, &three, dx, 1, dy, 1));
    CHECK(hipMemcpy(y.data(), dy, 4000, hipMemcpyDeviceToHost));
    for (int i = 0; i < 1000; i++) wrong += y[i] != 3.0f * i + 1000 - 2 * i;
    ROCBLAS(rocblas_destroy_handle(handle));
    return finish("gemm", wrong);
}
