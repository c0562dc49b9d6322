// Records the memory of a HIP program after each of its kernels: loaded into it by LD_PRELOAD, on a GPU or an emulator.
//
//     cc -O2 -shared -fPIC -o watch_hip.so watch_hip.c -ldl
//     HCQ_KERNEL_MEMORY=run.hcqmem LD_PRELOAD=./watch_hip.so ./program
//
// It stands before the calls of HIP that allocate memory, name kernels and launch them. After a launch it waits for the
// device, reads every live allocation, and writes the lines of 64 bytes that are not what they were. A program whose kernels
// wait for each other on several streams would wait for ever here. The layout of the file is in ../trace/kernel_memory.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Error;  // hipError_t
typedef struct {
    uint32_t x, y, z;
} Dim3;
enum { DEVICE_TO_HOST = 2, LINE = 64, NAMES = 65536 };

typedef struct Allocation {
    struct Allocation *next;
    uint64_t number, size;
    unsigned char *address, *before;
} Allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation *live;
static uint64_t allocations, runs;
static FILE *file;
static struct {
    const void *function;
    char *name;
} names[NAMES];
static unsigned named;

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) fprintf(stderr, "watch_hip: the program's HIP runtime has no %s\n", name), _exit(127);
    return found;
}
#define REAL(name, ...) ((Error(*)(__VA_ARGS__))real(name))

static void give_up(const char *what) {
    fprintf(stderr, "watch_hip: %s: %s; the rest of this run is not recorded\n", what, strerror(errno));
    if (file) fclose(file);
    file = NULL;
}

static void write_bytes(const void *bytes, size_t size) {
    if (file && size && fwrite(bytes, 1, size, file) != size) give_up("the record of kernel memory cannot be written");
}

static void write_head(const char *kind, uint64_t size) {
    write_bytes(kind, 4);
    write_bytes(&size, sizeof size);
}

static void write_end(void) {
    pthread_mutex_lock(&lock);
    if (file) {
        write_head("ENDS", sizeof runs);
        write_bytes(&runs, sizeof runs);
    }
    if (file && fclose(file)) fprintf(stderr, "watch_hip: the record of kernel memory is incomplete: %s\n", strerror(errno));
    file = NULL;
    pthread_mutex_unlock(&lock);
}

// a process that forks keeps its record to itself: both would write into one file
static void in_child(void) { file = NULL; }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HCQ_KERNEL_MEMORY");
    if (!path) return;
    file = fopen(path, "wbx");  // the first process: one that it starts must not write over its record
    if (!file) {
        const char *why = errno == EEXIST ? "it is there already, from an earlier run or another process" : strerror(errno);
        fprintf(stderr, "watch_hip: this process is not recorded: HCQ_KERNEL_MEMORY=%s: %s\n", path, why);
        return;
    }
    write_bytes("hcq kernel memory 1\n", 20);
    pthread_atfork(NULL, NULL, in_child);
    atexit(write_end);
}

static Error read_device(void *to, const void *from, size_t size) {
    return REAL("hipMemcpy", void *, const void *, size_t, int)(to, from, size, DEVICE_TO_HOST);
}

// Lines of an allocation that differ from what was there before, as one record for each stretch of them.
static void write_changes(const Allocation *one, const unsigned char *now, const char *kind) {
    for (uint64_t at = 0; at < one->size;) {
        uint64_t end = at;
        while (end < one->size) {
            uint64_t length = one->size - end < LINE ? one->size - end : LINE;
            if (!memcmp(now + end, one->before + end, length)) break;
            end += length;
        }
        if (end == at) {
            at += LINE;
            continue;
        }
        uint64_t place[2] = {one->number, at};
        write_head(kind, sizeof place + end - at);
        write_bytes(place, sizeof place);
        write_bytes(now + at, end - at);
        at = end;
    }
}

static void look(Allocation *one, const char *kind) {
    unsigned char *now = malloc(one->size);
    if (!now) {
        give_up("a copy of an allocation");
        return;
    }
    if (read_device(now, one->address, one->size) == 0) {
        write_changes(one, now, kind);
        free(one->before);
        one->before = now;
    } else {
        free(now);
    }
}

static void allocated(void *address, uint64_t size) {
    pthread_mutex_lock(&lock);
    if (file && address && size) {
        Allocation *one = malloc(sizeof *one);
        unsigned char *before = calloc(1, size);
        if (one && before) {
            *one = (Allocation){live, allocations++, size, address, before};
            live = one;
            uint64_t facts[3] = {one->number, (uint64_t)address, size};
            write_head("MADE", sizeof facts);
            write_bytes(facts, sizeof facts);
            look(one, "HELD");  // what nobody has written yet
        } else {
            free(one), free(before);
            give_up("a copy of an allocation");
        }
    }
    pthread_mutex_unlock(&lock);
}

static void freed(void *address) {
    pthread_mutex_lock(&lock);
    for (Allocation **at = &live; *at; at = &(*at)->next) {
        if ((*at)->address != address) continue;
        Allocation *one = *at;
        *at = one->next;
        write_head("GONE", sizeof one->number);
        write_bytes(&one->number, sizeof one->number);
        free(one->before), free(one);
        break;
    }
    pthread_mutex_unlock(&lock);
}

static void remember(const void *function, const char *name) {
    pthread_mutex_lock(&lock);
    if (named < NAMES) names[named].function = function, names[named++].name = strdup(name);
    pthread_mutex_unlock(&lock);
}

static int is_captured(void *stream) {
    int status = 0;
    Error (*ask)(void *, int *) = (Error(*)(void *, int *))dlsym(RTLD_NEXT, "hipStreamIsCapturing");
    return ask && ask(stream, &status) == 0 && status;
}

static void ran(const void *function, const char *name, Dim3 grid, Dim3 block, uint32_t shared, void *stream, Error error) {
    if (!file || error || is_captured(stream)) return;
    int32_t status = REAL("hipDeviceSynchronize", void)();
    pthread_mutex_lock(&lock);
    for (unsigned at = named; !name && at--;)
        if (names[at].function == function) name = names[at].name;
    if (!name) name = "?";
    uint32_t facts[8] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, (uint32_t)status};
    write_head("RUNS", sizeof facts + strlen(name));
    write_bytes(facts, sizeof facts);
    write_bytes(name, strlen(name));
    runs++;
    if (!status)
        for (Allocation *one = live; one; one = one->next) look(one, "DATA");
    if (file && fflush(file)) give_up("the record of kernel memory cannot be written");
    pthread_mutex_unlock(&lock);
}

// ------------------------------------------------------------------------------------------------- the calls of HIP

Error hipMalloc(void **made, size_t size) {
    Error error = REAL("hipMalloc", void **, size_t)(made, size);
    if (!error) allocated(*made, size);
    return error;
}

Error hipExtMallocWithFlags(void **made, size_t size, unsigned flags) {
    Error error = REAL("hipExtMallocWithFlags", void **, size_t, unsigned)(made, size, flags);
    if (!error) allocated(*made, size);
    return error;
}

Error hipMallocManaged(void **made, size_t size, unsigned flags) {
    Error error = REAL("hipMallocManaged", void **, size_t, unsigned)(made, size, flags);
    if (!error) allocated(*made, size);
    return error;
}

Error hipMallocPitch(void **made, size_t *pitch, size_t width, size_t height) {
    Error error = REAL("hipMallocPitch", void **, size_t *, size_t, size_t)(made, pitch, width, height);
    if (!error) allocated(*made, *pitch * height);
    return error;
}

Error hipMallocAsync(void **made, size_t size, void *stream) {
    Error error = REAL("hipMallocAsync", void **, size_t, void *)(made, size, stream);
    if (!error && !is_captured(stream)) {
        REAL("hipStreamSynchronize", void *)(stream);
        allocated(*made, size);
    }
    return error;
}

Error hipFree(void *address) {
    freed(address);
    return REAL("hipFree", void *)(address);
}

Error hipFreeAsync(void *address, void *stream) {
    freed(address);
    return REAL("hipFreeAsync", void *, void *)(address, stream);
}

void __hipRegisterFunction(void *modules, const void *host, char *device, const char *name, unsigned limit, void *tid,
                           void *bid, void *block, void *grid, int *size) {
    remember(host, name);
    ((void (*)(void *, const void *, char *, const char *, unsigned, void *, void *, void *, void *, int *))real(
        "__hipRegisterFunction"))(modules, host, device, name, limit, tid, bid, block, grid, size);
}

Error hipModuleGetFunction(void **function, void *module, const char *name) {
    Error error = REAL("hipModuleGetFunction", void **, void *, const char *)(function, module, name);
    if (!error) remember(*function, name);
    return error;
}

Error hipLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **args, size_t shared, void *stream) {
    Error error = REAL("hipLaunchKernel", const void *, Dim3, Dim3, void **, size_t, void *)(function, grid, block, args,
                                                                                            shared, stream);
    ran(function, NULL, grid, block, shared, stream, error);
    return error;
}

Error hipLaunchCooperativeKernel(const void *function, Dim3 grid, Dim3 block, void **args, unsigned shared, void *stream) {
    Error error = REAL("hipLaunchCooperativeKernel", const void *, Dim3, Dim3, void **, unsigned, void *)(
        function, grid, block, args, shared, stream);
    ran(function, NULL, grid, block, shared, stream, error);
    return error;
}

Error hipExtLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **args, size_t shared, void *stream, void *start,
                         void *stop, int flags) {
    Error error = REAL("hipExtLaunchKernel", const void *, Dim3, Dim3, void **, size_t, void *, void *, void *, int)(
        function, grid, block, args, shared, stream, start, stop, flags);
    ran(function, NULL, grid, block, shared, stream, error);
    return error;
}

Error hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, void *stream, void **args, void **extra) {
    Error error = REAL("hipModuleLaunchKernel", void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void *, void **, void **)(function, gx, gy, gz, bx, by, bz, shared, stream, args, extra);
    ran(function, NULL, (Dim3){gx, gy, gz}, (Dim3){bx, by, bz}, shared, stream, error);
    return error;
}

// its grid is in work-items
Error hipExtModuleLaunchKernel(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
                               size_t shared, void *stream, void **args, void **extra, void *start, void *stop,
                               uint32_t flags) {
    Error error = REAL("hipExtModuleLaunchKernel", void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t,
                       void *, void **, void **, void *, void *, uint32_t)(function, gx, gy, gz, bx, by, bz, shared, stream,
                                                                           args, extra, start, stop, flags);
    Dim3 groups = {bx ? gx / bx : 0, by ? gy / by : 0, bz ? gz / bz : 0};
    ran(function, NULL, groups, (Dim3){bx, by, bz}, shared, stream, error);
    return error;
}

Error hipGraphLaunch(void *graph, void *stream) {
    Error error = REAL("hipGraphLaunch", void *, void *)(graph, stream);
    ran(NULL, "(a graph)", (Dim3){1, 1, 1}, (Dim3){1, 1, 1}, 0, stream, error);
    return error;
}
