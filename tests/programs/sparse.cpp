// rocSPARSE: a sparse matrix, with rows of very different lengths, times a vector.
#include <hip/hip_runtime.h>
#include <rocsparse/rocsparse.h>

#include <cmath>
#include <vector>

#include "check.h"

#define ROCSPARSE(call)                                                                      \
    do {                                                                                     \
        rocsparse_status status = (call);                                                    \
        if (status != rocsparse_status_success) {                                            \
            std::printf("%s -> %d\n", #call, int(status));                                   \
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

int main() {
    const int size = 1000;
    const float alpha = 2, beta = 3;
    std::vector<int> rows{0}, columns;
    std::vector<float> values, x(size), y(size, 7), expected(size);
    for (int i = 0; i < size; i++) {
        for (int j = i % 7; j < size; j += 13 + i % 50) {
            columns.push_back(j);
            values.push_back((i * 31 + j) % 17 - 8);
        }
        rows.push_back(int(columns.size()));
        x[i] = i % 23 - 11;
    }
    for (int i = 0; i < size; i++) {
        double sum = 0;
        for (int k = rows[i]; k < rows[i + 1]; k++) sum += values[k] * x[columns[k]];
        expected[i] = float(alpha * sum + beta * y[i]);
    }
    int *gpu_rows = on_gpu(rows), *gpu_columns = on_gpu(columns);
    float *gpu_values = on_gpu(values), *gpu_x = on_gpu(x), *gpu_y = on_gpu(y);
    rocsparse_handle handle;
    rocsparse_mat_descr matrix;
    rocsparse_mat_info info;
    ROCSPARSE(rocsparse_create_handle(&handle));
    ROCSPARSE(rocsparse_create_mat_descr(&matrix));
    ROCSPARSE(rocsparse_create_mat_info(&info));
    const int count = int(values.size());
    ROCSPARSE(rocsparse_scsrmv_analysis(handle, rocsparse_operation_none, size, size, count, matrix, gpu_values,
                                        gpu_rows, gpu_columns, info));
    ROCSPARSE(rocsparse_scsrmv(handle, rocsparse_operation_none, size, size, count, &alpha, matrix, gpu_values,
                               gpu_rows, gpu_columns, info, gpu_x, &beta, gpu_y));
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(y.data(), gpu_y, size * sizeof(float), hipMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < size; i++) wrong += std::fabs(y[i] - expected[i]) > 1e-3f * std::fabs(expected[i]) + 1e-3f;
    return finish("sparse", wrong);
}
