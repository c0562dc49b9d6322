// Functions of the device library against the host's: floats of three widths, integers, lanes of a wave, atomics.
#include <hip/hip_fp16.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"

const int N = 256;

__global__ void floats(float *out, const float *a, const float *b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    float found[] = {sinf(x), cosf(x), tanf(y), expf(y), logf(fabsf(x) + 1), sqrtf(fabsf(x)), rsqrtf(fabsf(x) + 1), powf(fabsf(x), y),
                     atan2f(x, y), fmodf(x, y + 3), floorf(x), rintf(x), erff(y), cbrtf(x), hypotf(x, y), exp2f(y),
                     log2f(fabsf(x) + 1), fmaf(x, y, 1), x / y, ldexpf(x, 3), copysignf(x, y), fminf(x, y), tanhf(y), tgammaf(fabsf(y) + 1)};
    for (int k = 0; k < 24; k++) out[24 * i + k] = found[k];
}

__global__ void doubles(double *out, const float *a, const float *b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i];
    double found[] = {sin(x), exp(y), log(fabs(x) + 1), sqrt(fabs(x)), pow(fabs(x), y), x / y, fma(x, y, 1.0), floor(x)};
    for (int k = 0; k < 8; k++) out[8 * i + k] = found[k];
}

__global__ void halves(__half *out, const float *a, const float *b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half x = __float2half(a[i]), y = __float2half(b[i]);
    __half2 both = __hadd2(__halves2half2(x, y), __halves2half2(y, y));
    out[4 * i] = __hadd(x, y), out[4 * i + 1] = __hmul(x, y), out[4 * i + 2] = __low2half(both), out[4 * i + 3] = hexp(y);
}

__global__ void integers(unsigned long long *out, const unsigned *a, const unsigned *b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = a[i], y = b[i] | 1;
    unsigned long long wide = (unsigned long long)x << 32 | y;
    unsigned long long found[] = {x / y, x % y, wide / x, wide % (x | 1), __umulhi(x, y), (unsigned)__popc(x), (unsigned)__popcll(wide), (unsigned)__clz(x),
                                  (unsigned)__ffs(x), __brev(x), __brevll(wide), __byte_perm(x, y, 0x6240), wide * wide, (unsigned)((int)x >> 5),
                                  (unsigned)min((int)x, (int)y), (unsigned)__umul24(x & 0xFFFFF, y & 0xFFF), __umul64hi(wide, wide), (unsigned)abs((int)x)};
    for (int k = 0; k < 18; k++) out[18 * i + k] = found[k];
}

__global__ void lanes(int *out) {
    int t = threadIdx.x, width = 32, lane = t % width;
    int down = __shfl_down(t, 3, width), up = __shfl_up(t, 2, width), other = __shfl_xor(t, 5, width), first = __shfl(t, 7, width);
    unsigned long long mask = __ballot(t % 3 == 0);
    out[8 * t] = down, out[8 * t + 1] = up, out[8 * t + 2] = other, out[8 * t + 3] = first;
    out[8 * t + 4] = __any(t == 40), out[8 * t + 5] = __all(t < 1000), out[8 * t + 6] = mask >> (t % warpSize) & 1, out[8 * t + 7] = lane;
}

__global__ void atomics(int *i, unsigned *u, float *f, double *d, unsigned long long *w) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&i[0], t), atomicSub(&i[1], 2), atomicMax(&i[2], t * 7 % 1000), atomicMin(&i[3], -(t * 5 % 999)), atomicExch(&i[4], 77);
    atomicOr(&u[0], 1u << t % 32), atomicAnd(&u[1], ~(1u << t % 8)), atomicXor(&u[2], t), atomicInc(&u[3], 99), atomicDec(&u[4], 50);
    atomicAdd(f, 0.5f), atomicAdd(d, 0.25), atomicAdd(&w[0], 1ull << 33), atomicMax(&w[1], (unsigned long long)t << 20);
    for (int k = 0; k < 3; k++) {  // a lock-free increment
        unsigned long long old = w[2], seen;
        do seen = old, old = atomicCAS(&w[2], seen, seen + 1);
        while (old != seen);
    }
}

template <typename T>
T *on_gpu(const std::vector<T> &data) {
    T *memory;
    CHECK(hipMalloc(&memory, data.size() * sizeof(T)));
    CHECK(hipMemcpy(memory, data.data(), data.size() * sizeof(T), hipMemcpyHostToDevice));
    return memory;
}

template <typename T>
std::vector<T> back(const T *memory, size_t count) {
    std::vector<T> data(count);
    CHECK(hipMemcpy(data.data(), memory, count * sizeof(T), hipMemcpyDeviceToHost));
    return data;
}

static int told = 0;

static int differs(const char *what, int k, double found, double expected, double tolerance) {
    if (std::fabs(found - expected) <= tolerance * std::fmax(1, std::fabs(expected)) || (std::isnan(found) && std::isnan(expected))) return 0;
    if (told++ < 20) std::printf("%s %d: %.9g instead of %.9g\n", what, k, found, expected);
    return 1;
}

int main() {
    int wrong = 0;
    std::vector<float> a(N), b(N);
    std::vector<unsigned> x(N), y(N);
    for (int i = 0; i < N; i++) {
        a[i] = (i * 37 % 401 - 200) / 16.0f, b[i] = (i * 53 % 97 + 1) / 32.0f;
        x[i] = (i + 1) * 2654435761u, y[i] = (i * 40503u + 12345u) * 97u;
    }
    float *da = on_gpu(a), *db = on_gpu(b);
    unsigned *dx = on_gpu(x), *dy = on_gpu(y);

    float *df = on_gpu(std::vector<float>(24 * N));
    floats<<<N / 64, 64>>>(df, da, db);
    std::vector<float> f = back(df, 24 * N);
    double *dd = on_gpu(std::vector<double>(8 * N));
    doubles<<<N / 64, 64>>>(dd, da, db);
    std::vector<double> d = back(dd, 8 * N);
    __half *dh = on_gpu(std::vector<__half>(4 * N));
    halves<<<N / 64, 64>>>(dh, da, db);
    std::vector<__half> h = back(dh, 4 * N);
    unsigned long long *di = on_gpu(std::vector<unsigned long long>(18 * N));
    integers<<<N / 64, 64>>>(di, dx, dy);
    std::vector<unsigned long long> n = back(di, 18 * N);
    for (int i = 0; i < N; i++) {
        double p = a[i], q = b[i];
        double singles[] = {sin(p), cos(p), tan(q), exp(q), log(fabs(p) + 1), sqrt(fabs(p)), 1 / sqrt(fabs(p) + 1), pow(fabs(p), q),
                            atan2(p, q), fmod(p, q + 3), floor(p), rint(p), erf(q), cbrt(p), hypot(p, q), exp2(q),
                            log2(fabs(p) + 1), p * q + 1, p / q, ldexp(p, 3), copysign(p, q), fmin(p, q), tanh(q), tgamma(fabs(q) + 1)};
        for (int k = 0; k < 24; k++) wrong += differs("float", k, f[24 * i + k], singles[k], 4e-6);
        double exact[] = {sin(p), exp(q), log(fabs(p) + 1), sqrt(fabs(p)), pow(fabs(p), q), p / q, fma(p, q, 1.0), floor(p)};
        for (int k = 0; k < 8; k++) wrong += differs("double", k, d[8 * i + k], exact[k], 1e-14);
        double small[] = {p + q, p * q, p + q, exp(q)};
        for (int k = 0; k < 4; k++) wrong += differs("half", k, (float)h[4 * i + k], small[k], 4e-3);
        unsigned u = x[i], v = y[i] | 1;
        unsigned long long wide = (unsigned long long)u << 32 | v, reversed = 0, reversed32 = 0;
        for (int bit = 0; bit < 64; bit++) reversed |= (wide >> bit & 1) << (63 - bit);
        for (int bit = 0; bit < 32; bit++) reversed32 |= (u >> bit & 1ull) << (31 - bit);
        unsigned permuted = (u & 0xFF) | (v & 0xFF) << 8 | (u >> 16 & 0xFF) << 16 | (v >> 16 & 0xFF) << 24;
        unsigned long long whole[] = {u / v, u % v, wide / u, wide % (u | 1), (unsigned long long)u * v >> 32, (unsigned)__builtin_popcount(u),
                                      (unsigned)__builtin_popcountll(wide), (unsigned)__builtin_clz(u), (unsigned)__builtin_ffs(u), reversed32, reversed,
                                      permuted, wide * wide, (unsigned)((int)u >> 5), (unsigned)((int)u < (int)v ? (int)u : (int)v),
                                      (unsigned)((unsigned long long)(u & 0xFFFFF) * (v & 0xFFF)),
                                      (unsigned long long)((unsigned __int128)wide * wide >> 64), (unsigned)std::abs((int)u)};
        for (int k = 0; k < 18; k++)
            if (n[18 * i + k] != whole[k]) {
                wrong++;
                if (told++ < 20) std::printf("integer %d: %llx instead of %llx\n", k, n[18 * i + k], whole[k]);
            }
    }

    int *dl = on_gpu(std::vector<int>(8 * 128));
    lanes<<<1, 128>>>(dl);
    std::vector<int> l = back(dl, 8 * 128);
    int warp = 0;
    CHECK(hipDeviceGetAttribute(&warp, hipDeviceAttributeWarpSize, 0));
    for (int t = 0; t < 128; t++) {
        int lane = t % 32;
        int expected[] = {lane + 3 < 32 ? t + 3 : t, lane >= 2 ? t - 2 : t, t ^ 5, t - lane + 7, t / warp == 40 / warp, 1, t % 3 == 0, lane};
        for (int k = 0; k < 8; k++) wrong += differs("lanes", k, l[8 * t + k], expected[k], 0);
    }

    const int threads = 1024;
    int *ai = on_gpu(std::vector<int>{0, 0, 0, 0, 0});
    unsigned *au = on_gpu(std::vector<unsigned>{0, 0xFFFFFFFF, 0, 0, 0});
    float *af = on_gpu(std::vector<float>{0});
    double *ad = on_gpu(std::vector<double>{0});
    unsigned long long *aw = on_gpu(std::vector<unsigned long long>{0, 0, 0});
    atomics<<<threads / 128, 128>>>(ai, au, af, ad, aw);
    int least = 0, most = 0;
    unsigned mixed = 0;
    for (int t = 0; t < threads; t++) {
        most = std::max(most, t * 7 % 1000), least = std::min(least, -(t * 5 % 999)), mixed ^= t;
    }
    std::vector<int> gi = back(ai, 5);
    std::vector<unsigned> gu = back(au, 5);
    std::vector<unsigned long long> gw = back(aw, 3);
    int expected_i[] = {threads * (threads - 1) / 2, -2 * threads, most, least, 77};
    for (int k = 0; k < 5; k++) wrong += differs("atomic", k, gi[k], expected_i[k], 0);
    unsigned expected_u[] = {0xFFFFFFFF, 0xFFFFFF00, mixed, threads % 100, gu[4]};
    for (int k = 0; k < 5; k++) wrong += differs("atomic unsigned", k, gu[k], expected_u[k], 0);
    wrong += gu[4] > 50;
    wrong += differs("atomic float", 0, back(af, 1)[0], threads * 0.5, 0) + differs("atomic double", 0, back(ad, 1)[0], threads * 0.25, 0);
    wrong += gw[0] != (1ull << 33) * threads || gw[1] != (unsigned long long)(threads - 1) << 20 || gw[2] != 3 * threads;
    return finish("arithmetic", wrong);
}
