// What the programs here share: every call is checked, and the result is one line.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        hipError_t error = (call);                                                           \
        if (error != hipSuccess) {                                                           \
            std::printf("%s -> %s\n", #call, hipGetErrorString(error));                      \
            std::exit(2);                                                                    \
        }                                                                                    \
    } while (0)

static int finish(const char *name, int wrong) {
    std::printf("%s: %d wrong\n", name, wrong);
    return wrong != 0;
}
