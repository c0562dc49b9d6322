"""Lab 3: a race.

KERNEL adds 256 numbers in halves, and gives the sum to all threads. The sum is right, most of the time. The
check looks at every load and store of every thread, in four orders of the warps, and names two instructions
that nothing orders. Mend it with as few barriers as are needed.

    python -m hcq.tools.labs check 3
"""

KERNEL = """
extern "C" __global__ void sum(int *out, const int *in) {
    __shared__ int part[256];
    unsigned t = threadIdx.x;
    part[t] = in[t];
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    out[t] = part[0];
}
"""
