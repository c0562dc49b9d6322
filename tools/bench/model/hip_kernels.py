"""Kernels for AMD's GPUs, in C with the attributes that HIP's header would give: products, a transpose, y A x.

In       nothing
Out      SOURCE
Changes  nothing
Next     ladders.py (which launches of them were measured, and by whom), count.py (compiles them with clang, runs them)
Source   written after descriptions: github.com/seb-v/seb-v.github.io (products), github.com/amd/HPCTrainingExamples
         (transpose, y A x)
"""

SOURCE = r"""
#define KERNEL(threads) extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void
#define SHARED __attribute__((shared))
#define DEVICE __attribute__((device))
#define TX __builtin_amdgcn_workitem_id_x()
#define TY __builtin_amdgcn_workitem_id_y()
#define BX __builtin_amdgcn_workgroup_id_x()
#define BY __builtin_amdgcn_workgroup_id_y()
DEVICE inline void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
typedef float f4 __attribute__((ext_vector_type(4)));

KERNEL(256) naive(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    int row = BY * 16 + TY, column = BX * 16 + TX;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
KERNEL(1024) lds(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    static SHARED float x[32][32], y[32][32];
    int tx = TX, ty = TY, row = BY * 32 + ty, column = BX * 32 + tx;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        x[ty][tx] = a[row * n + k + tx];
        y[ty][tx] = b[(k + ty) * n + column];
        barrier();
        #pragma unroll
        for (int j = 0; j < 32; j++) sum += x[ty][j] * y[j][tx];
        barrier();
    }
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
KERNEL(256) tiles(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    static SHARED float x[8][128], y[8][128];
    int t = TX, wave = t / 32, lane = t % 32;
    int row0 = wave / 2 * 32 + lane / 8 * 4, column0 = wave % 2 * 64 + lane % 8 * 4;
    float sum[2][2][4][4] = {};
    a += BY * 128 * n;
    b += BX * 128;
    for (int k0 = 0; k0 < n; k0 += 8) {
        for (int i = t; i < 1024; i += 256) {
            x[i % 8][i / 8] = a[i / 8 * n + k0 + i % 8];
            y[i / 128][i % 128] = b[(k0 + i / 128) * n + i % 128];
        }
        barrier();
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            f4 left[2], right[2];
            for (int s = 0; s < 2; s++) left[s] = *(f4 *)&x[k][row0 + 16 * s];
            for (int s = 0; s < 2; s++) right[s] = *(f4 *)&y[k][column0 + 32 * s];
            for (int s = 0; s < 2; s++)
                for (int r = 0; r < 2; r++)
                    for (int i = 0; i < 4; i++)
                        for (int j = 0; j < 4; j++) sum[s][r][i][j] += left[s][i] * right[r][j];
        }
        barrier();
    }
    for (int s = 0; s < 2; s++)
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    float *at = c + (BY * 128 + row0 + 16 * s + i) * n + BX * 128 + column0 + 32 * r + j;
                    *at = alpha * sum[s][r][i][j] + beta * *at;
                }
}
KERNEL(256) transpose_read(const double *in, double *out, int n) {
    int column = BX * 64 + TX, row = BY * 4 + TY;
    out[(long)column * n + row] = in[(long)row * n + column];
}
KERNEL(256) transpose_write(const double *in, double *out, int n) {
    int column = BX * 64 + TX, row = BY * 4 + TY;
    out[(long)row * n + column] = in[(long)column * n + row];
}
KERNEL(1024) transpose_tiled(const double *in, double *out, int n) {
    static SHARED double tile[32][33];
    int tx = TX, ty = TY;
    tile[ty][tx] = in[(long)(BY * 32 + ty) * n + BX * 32 + tx];
    barrier();
    out[(long)(BX * 32 + ty) * n + BY * 32 + tx] = tile[tx][ty];
}
KERNEL(64) yax_rows(const double *a, const double *x, const double *y, double *out, int m, int n, int pitch, int step) {
    double all = 0;
    for (int row = BX * 64 + TX; row < m; row += step) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += a[(long)row * pitch + k] * x[k];
        all += y[row] * sum;
    }
    out[BX * 64 + TX] = all;
}
KERNEL(256) yax_columns(
    const double *a, const double *x, const double *y, double *out, int m, int n, int pitch, int step
) {
    static SHARED double part[256];
    double all = 0;
    int t = TX;
    for (int row = BX; row < m; row += step) {
        double sum = 0;
        for (int k = t; k < n; k += 256) sum += a[(long)row * pitch + k] * x[k];
        all += y[row] * sum;
    }
    part[t] = all;
    for (int left = 128; left > 0; left /= 2) {
        barrier();
        if (t < left) part[t] += part[t + left];
    }
    if (t == 0) out[BX] = part[0];
}
"""
