// RCCL: sums over several GPUs, in one process. The argument says how many GPUs, and how many numbers each has.
#include <hip/hip_runtime.h>
#include <rccl/rccl.h>

#include <vector>

#include "check.h"

#define RCCL(call)                                                                           \
    do {                                                                                     \
        ncclResult_t result = (call);                                                        \
        if (result != ncclSuccess) {                                                         \
            std::printf("%s -> %s\n", #call, ncclGetErrorString(result));                    \
            std::exit(2);                                                                    \
        }                                                                                    \
    } while (0)

int main(int argc, char **argv) {
    const int gpus = argc > 1 ? std::atoi(argv[1]) : 2, count = argc > 2 ? std::atoi(argv[2]) : 1 << 16;
    const int rounds = 3;
    std::vector<ncclComm_t> ranks(gpus);
    std::vector<hipStream_t> streams(gpus);
    std::vector<int *> in(gpus), out(gpus);
    std::vector<int> host(count);
    RCCL(ncclCommInitAll(ranks.data(), gpus, nullptr));
    for (int gpu = 0; gpu < gpus; gpu++) {
        CHECK(hipSetDevice(gpu));
        CHECK(hipStreamCreate(&streams[gpu]));
        CHECK(hipMalloc(&in[gpu], count * sizeof(int)));
        CHECK(hipMalloc(&out[gpu], count * sizeof(int)));
        for (int i = 0; i < count; i++) host[i] = (gpu + 1) * 1000000 + i % 9973;
        CHECK(hipMemcpy(in[gpu], host.data(), count * sizeof(int), hipMemcpyHostToDevice));
    }
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
        for (int gpu = 0; gpu < gpus; gpu++) {
            CHECK(hipSetDevice(gpu));
            CHECK(hipMemset(out[gpu], 0xee, count * sizeof(int)));
            CHECK(hipDeviceSynchronize());
        }
        RCCL(ncclGroupStart());
        for (int gpu = 0; gpu < gpus; gpu++)
            RCCL(ncclAllReduce(in[gpu], out[gpu], count, ncclInt32, ncclSum, ranks[gpu], streams[gpu]));
        RCCL(ncclGroupEnd());
        for (int gpu = 0; gpu < gpus; gpu++) {
            CHECK(hipSetDevice(gpu));
            CHECK(hipStreamSynchronize(streams[gpu]));
            CHECK(hipMemcpy(host.data(), out[gpu], count * sizeof(int), hipMemcpyDeviceToHost));
            for (int i = 0; i < count; i++)
                wrong += host[i] != gpus * (gpus + 1) / 2 * 1000000 + gpus * (i % 9973);
        }
    }
    return finish("all_reduce", wrong);
}
