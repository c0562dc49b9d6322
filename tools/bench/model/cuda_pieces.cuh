// Pieces: what products and attention by mma.sync share (cuda_matrix.cu, cuda_attention.cu).
//
// A piece is 16 bytes, eight elements of a row. A swizzled tile keeps piece c of a row in place c xor a number of the row,
// so that eight rows of one column lie in different banks.

typedef unsigned u32;
typedef unsigned short u16;
#define DEVICE __device__ __forceinline__
DEVICE u32 shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void four(u32 *r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
DEVICE void two(u32 *r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
DEVICE void four_turned(u32 *r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
DEVICE void two_turned(u32 *r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
DEVICE void copy(u32 to, const u16 *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
}
DEVICE void commit() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> DEVICE void copied() { asm volatile("cp.async.wait_group %0;" :: "n"(LEFT)); }
template <bool BRAIN> DEVICE void product(float *d, const u32 *a, const u32 *b) {
    if (BRAIN)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE u32 brains(float low, float high) {
    u32 made;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(high), "f"(low));
    return made;
}
// bytes from a tile's begin to a piece: rows of WIDE elements, PITCH apart
template <int WIDE, int PITCH, bool SWIZZLED> DEVICE u32 place(int row, int piece) {
    int turned = WIDE >= 64 ? piece ^ (row % 8) : piece ^ (row / 2 % 4);
    return (row * PITCH + (SWIZZLED ? turned : piece) * 8) * 2;
}
enum { LOADS, COPIES };
// a tile of ROWS rows from global memory, of which rows are `pitch` elements apart
template <int HOW, int ROWS, int WIDE, int PITCH, bool SWIZZLED, int THREADS>
DEVICE void fetch(u32 to, const u16 *from, size_t pitch) {
    #pragma unroll
    for (int i = threadIdx.x; i < ROWS * WIDE / 8; i += THREADS) {
        int row = i / (WIDE / 8), piece = i % (WIDE / 8);
        u32 at = to + place<WIDE, PITCH, SWIZZLED>(row, piece);
        const u16 *source = from + row * pitch + piece * 8;
        if (HOW == COPIES) copy(at, source);
        else {
            uint4 v = *(const uint4 *)source;
            asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" :: "r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
        }
    }
}
