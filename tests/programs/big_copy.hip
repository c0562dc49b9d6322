// Large copies from and to memory that is not pinned; as many MiB as the first argument says.
#include <chrono>
#include <cstring>

#include "check.h"

int main(int, char **arguments) {
    const size_t size = size_t(atoi(arguments[1])) << 20;
    unsigned *data = (unsigned *)malloc(size), *back = (unsigned *)calloc(size, 1);
    for (size_t i = 0; i < size / 4; i++) data[i] = unsigned(i * 2654435761u);
    void *memory;
    CHECK(hipMalloc(&memory, size));
    CHECK(hipMemcpy(memory, data, 4, hipMemcpyHostToDevice));  // the first copy makes queues
    auto start = std::chrono::steady_clock::now();
    CHECK(hipMemcpy(memory, data, size, hipMemcpyHostToDevice));
    auto middle = std::chrono::steady_clock::now();
    CHECK(hipMemcpy(back, memory, size, hipMemcpyDeviceToHost));
    auto end = std::chrono::steady_clock::now();
    std::printf("%zu MiB: to the GPU %.2f s, back %.2f s\n", size >> 20,
                std::chrono::duration<double>(middle - start).count(), std::chrono::duration<double>(end - middle).count());
    return finish("big_copy", memcmp(data, back, size) != 0);
}
