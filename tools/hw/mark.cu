// One kernel in objects of its own: which of them runs is what it stores. Code that was loaded where other code lay, and that
// the GPU still had in its instruction cache, stores the other's mark.
extern "C" __global__ void mark(unsigned int *x) { x[threadIdx.x] = MARK; }
