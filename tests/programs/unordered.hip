// Launches and copies of several streams at one place:
// unordered event|early|memcpy|memset|null|graph|behind wrong|right.
#include <cstring>

#include "check.h"

static const int N = 4096, BLOCK = 256;

__global__ void fill(int *out, int value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void copy(int *out, const int *in) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = in[at];
}

int main(int count, char **words) {
    if (count != 3) return 2;
    const char *what = words[1];
    bool right = !strcmp(words[2], "right");
    hipStream_t one, other, blocking;
    hipEvent_t event;
    int *data, *more, *host;
    CHECK(hipSetDevice(0));  // the runtime does not log a program's first call
    CHECK(hipStreamCreateWithFlags(&one, hipStreamNonBlocking));
    CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
    CHECK(hipStreamCreate(&blocking));
    CHECK(hipEventCreate(&event));
    CHECK(hipMalloc(&data, N * sizeof(int)));
    CHECK(hipMalloc(&more, N * sizeof(int)));
    CHECK(hipHostMalloc(&host, N * sizeof(int), 0));
    CHECK(hipDeviceSynchronize());
    if (!strcmp(what, "null")) {
        fill<<<N / BLOCK, BLOCK, 0, right ? blocking : one>>>(data, 1);
        copy<<<N / BLOCK, BLOCK>>>(more, data);  // the default stream waits for blocking streams alone
        CHECK(hipDeviceSynchronize());
        return 0;
    }
    if (!strcmp(what, "graph")) {  // what a graph writes is read on another stream
        hipGraph_t graph;
        hipGraphExec_t made;
        CHECK(hipStreamBeginCapture(one, hipStreamCaptureModeGlobal));
        fill<<<N / BLOCK, BLOCK, 0, one>>>(data, 1);
        copy<<<N / BLOCK, BLOCK, 0, one>>>(more, data);
        CHECK(hipStreamEndCapture(one, &graph));
        CHECK(hipGraphInstantiate(&made, graph, nullptr, nullptr, 0));
        CHECK(hipGraphLaunch(made, one));
        if (right) CHECK(hipStreamSynchronize(one));
        CHECK(hipMemcpyAsync(host, data, N * sizeof(int), hipMemcpyDeviceToHost, other));
        CHECK(hipDeviceSynchronize());
        return 0;
    }
    if (!strcmp(what, "behind")) {  // what comes behind a callback
        int called = 0;
        CHECK(hipStreamAddCallback(one, [](hipStream_t, hipError_t, void *at) { *(int *)at = 1; }, &called, 0));
        fill<<<N / BLOCK, BLOCK, 0, one>>>(data, 1);
        if (right) CHECK(hipStreamSynchronize(one));
        copy<<<N / BLOCK, BLOCK, 0, other>>>(more, data);
        CHECK(hipDeviceSynchronize());
        return called == 1 ? 0 : 4;
    }
    fill<<<N / BLOCK, BLOCK, 0, one>>>(data, 1);
    if (!strcmp(what, "event")) {
        if (right) {
            CHECK(hipEventRecord(event, one));
            CHECK(hipStreamWaitEvent(other, event, 0));
        }
        copy<<<N / BLOCK, BLOCK, 0, other>>>(more, data);
    }
    if (!strcmp(what, "early")) {  // the event has what its stream had when it was recorded
        if (!right) CHECK(hipEventRecord(event, one));
        fill<<<N / BLOCK, BLOCK, 0, one>>>(data, 2);
        if (right) CHECK(hipEventRecord(event, one));
        CHECK(hipStreamWaitEvent(other, event, 0));
        copy<<<N / BLOCK, BLOCK, 0, other>>>(more, data);
    }
    if (!strcmp(what, "memcpy")) {
        if (right) CHECK(hipStreamSynchronize(one));
        CHECK(hipMemcpyAsync(host, data, N * sizeof(int), hipMemcpyDeviceToHost, other));
    }
    if (!strcmp(what, "memset")) {
        if (right) CHECK(hipStreamSynchronize(one));
        CHECK(hipMemsetAsync(data, 0, N * sizeof(int), other));
    }
    CHECK(hipDeviceSynchronize());
    return 0;
}
