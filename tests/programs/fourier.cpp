// rocFFT, which compiles its kernels when it runs: complex transforms of five lengths against sums of double precision.
#include <hip/hip_runtime.h>
#include <rocfft/rocfft.h>

#include <cmath>
#include <complex>
#include <vector>

#include "check.h"

#define ROCFFT(call)                                                                         \
    do {                                                                                     \
        rocfft_status status = (call);                                                       \
        if (status != rocfft_status_success) {                                               \
            std::printf("%s -> %d\n", #call, int(status));                                   \
            std::exit(2);                                                                    \
        }                                                                                    \
    } while (0)

static int transform(size_t length) {
    std::vector<std::complex<float>> x(length), y(length);
    for (size_t i = 0; i < length; i++) x[i] = {std::sin(i * 1.7f), std::cos(i * 0.3f)};
    void *data, *work = nullptr;
    CHECK(hipMalloc(&data, length * sizeof x[0]));
    CHECK(hipMemcpy(data, x.data(), length * sizeof x[0], hipMemcpyHostToDevice));
    rocfft_plan plan;
    ROCFFT(rocfft_plan_create(&plan, rocfft_placement_inplace, rocfft_transform_type_complex_forward,
                              rocfft_precision_single, 1, &length, 1, nullptr));
    rocfft_execution_info info;
    ROCFFT(rocfft_execution_info_create(&info));
    size_t work_bytes = 0;
    ROCFFT(rocfft_plan_get_work_buffer_size(plan, &work_bytes));
    if (work_bytes) {
        CHECK(hipMalloc(&work, work_bytes));
        ROCFFT(rocfft_execution_info_set_work_buffer(info, work, work_bytes));
    }
    ROCFFT(rocfft_execute(plan, &data, nullptr, info));
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(y.data(), data, length * sizeof y[0], hipMemcpyDeviceToHost));
    int wrong = 0;
    for (size_t k = 0; k < length; k += 1 + length / 97) {
        std::complex<double> sum = 0;
        for (size_t i = 0; i < length; i++)
            sum += std::complex<double>(x[i]) * std::polar(1.0, -2 * M_PI * double(i * k % length) / length);
        wrong += std::abs(sum - std::complex<double>(y[k])) > 1e-5 * length;
    }
    return wrong;
}

int main() {
    ROCFFT(rocfft_setup());
    int wrong = 0;
    for (size_t length : {8, 100, 243, 1024, 4096}) wrong += transform(length);
    return finish("fourier", wrong);
}
