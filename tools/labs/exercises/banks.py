"""Lab 4: bank conflicts.

KERNEL transposes 32 by 32 numbers by way of shared memory, so that rows of global memory are read and written
whole. The numbers are right, and it is slow: the 32 threads of a warp read a column of the tile, whose words
all lie in one of the 32 banks. Change the tile so that they do not. The check counts.

    python -m hcq.tools.labs check 4
"""

KERNEL = """
extern "C" __global__ void transpose(int *out, const int *in) {
    __shared__ int tile[32][32];
    unsigned x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = in[y * 32 + x];
    __syncthreads();
    out[y * 32 + x] = tile[x][y];
}
"""
