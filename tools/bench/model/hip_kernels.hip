// Kernels for AMD's GPUs, in C with the attributes that HIP's header would give: products, stencils, streams and more.
//
// Next     ladders.py (which launches of them were measured, and by whom), count.py (compiles them with clang, runs them)
// Source   written after descriptions: github.com/seb-v/seb-v.github.io (products), github.com/amd/HPCTrainingExamples
//          (transpose, y A x), github.com/ROCm/rocm-blogs (stencils), BabelStream (streams)

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
KERNEL(1024) transpose_read(const double *in, double *out, int n) {
    int column = BX * 32 + TX, row = BY * 32 + TY;
    out[(long)column * n + row] = in[(long)row * n + column];
}
KERNEL(1024) transpose_write(const double *in, double *out, int n) {
    int column = BX * 32 + TX, row = BY * 32 + TY;
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
#define AT (BX * (unsigned long)1024 + TX)
KERNEL(1024) stream_copy(const double *a, double *b, double *c) { c[AT] = a[AT]; }
KERNEL(1024) stream_mul(double *a, double *b, const double *c) { b[AT] = 0.4 * c[AT]; }
KERNEL(1024) stream_add(const double *a, const double *b, double *c) { c[AT] = a[AT] + b[AT]; }
KERNEL(1024) stream_triad(double *a, const double *b, const double *c) { a[AT] = b[AT] + 0.4 * c[AT]; }
KERNEL(1024) stream_dot(const double *a, const double *b, double *sums, int n, int blocks) {
    static SHARED double part[1024];
    int t = TX;
    double sum = 0;
    for (int i = AT; i < n; i += blocks * 1024) sum += a[i] * b[i];
    part[t] = sum;
    for (int left = 512; left > 0; left /= 2) {
        barrier();
        if (t < left) part[t] += part[t + left];
    }
    if (t == 0) sums[BX] = part[0];
}
KERNEL(256) small(double *a, const double *b, int n) {
    int i = BX * 256 + TX;
    if (i < n) a[i] = b[i] * 0.25;
}
#define BZ __builtin_amdgcn_workgroup_id_z()
constexpr int RADIUS = 4;
template <int WIDE, int HIGH>
DEVICE inline void stencil(float *out, const float *in, int line, int slice, int step, int n) {
    int i = RADIUS + BX * WIDE + TX, j = RADIUS + BY * HIGH + TY, k = RADIUS + BZ;
    if (i >= n + RADIUS || j >= n + RADIUS || k >= n + RADIUS) return;
    unsigned long at = i + line * j + slice * k;
    const float weights[9] = {-0.0018f, 0.0254f, -0.2f, 1.6f, -2.8472f, 1.6f, -0.2f, 0.0254f, -0.0018f};
    float sum = 0;
    #pragma unroll
    for (int r = 0; r <= 2 * RADIUS; r++) sum += in[at + (long)(r - RADIUS) * step] * weights[r];
    out[at] = sum;
}
// begin: where the arrays begin, in elements
#define STENCIL(name, wide, high, step) KERNEL(wide * high) name( \
    float *__restrict out, const float *__restrict in, int begin, int line, int slice, int n \
) { stencil<wide, high>(out + begin, in + begin, line, slice, step, n); }
STENCIL(stencil_x, 256, 1, 1)
STENCIL(stencil_y, 64, 4, line)
STENCIL(stencil_z, 64, 8, slice)
