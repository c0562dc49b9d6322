// A kernel that goes too far, or comes too late, in memory of each of HIP's allocators: allocators WHERE WHAT.
// WHERE: device pitch managed host async pool array; WHAT: right, behind, and of async and pool: freed, synchronised
// (freed, and the stream waited for), again (freed, and allocated again).
#include <cstring>

#include "check.h"

__global__ void fill(int *out, int first) { out[first + threadIdx.x] = threadIdx.x; }

static hipStream_t stream;
static hipMemPool_t pool;
static const size_t BYTES = 4096;

static void *allocated(const char *where) {
    void *found = nullptr;
    size_t pitch = 0;
    if (!strcmp(where, "device")) CHECK(hipMalloc(&found, BYTES));
    if (!strcmp(where, "pitch")) CHECK(hipMallocPitch(&found, &pitch, 256, BYTES / 256));
    if (!strcmp(where, "managed")) CHECK(hipMallocManaged(&found, BYTES, hipMemAttachGlobal));
    if (!strcmp(where, "host")) CHECK(hipHostMalloc(&found, BYTES, hipHostMallocDefault));
    if (!strcmp(where, "async")) CHECK(hipMallocAsync(&found, BYTES, stream));
    if (!strcmp(where, "pool")) CHECK(hipMallocFromPoolAsync(&found, BYTES, pool, stream));
    return found;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    const char *what = words[2];
    CHECK(hipStreamCreate(&stream));
    if (!strcmp(words[1], "pool")) {
        hipMemPoolProps props = {};
        props.allocType = hipMemAllocationTypePinned;
        props.location.type = hipMemLocationTypeDevice;
        CHECK(hipMemPoolCreate(&pool, &props));
    }
    int *out = (int *)allocated(words[1]);
    if (!out) return 2;
    int first = strcmp(what, "behind") ? 0 : BYTES / 4 - 63;
    if (!strcmp(what, "freed") || !strcmp(what, "synchronised") || !strcmp(what, "again")) {
        fill<<<1, 64, 0, stream>>>(out, 0);
        CHECK(hipFreeAsync(out, stream));
    }
    if (!strcmp(what, "synchronised")) CHECK(hipStreamSynchronize(stream));
    if (!strcmp(what, "again")) out = (int *)allocated(words[1]);
    fill<<<1, 64, 0, stream>>>(out, first);
    hipError_t done = hipStreamSynchronize(stream);
    return done == hipSuccess ? 0 : 3;
}
