"""Matrix products of a warp: fragments placed by the tables of the PTX manual, products by NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import HEADER, needs_header, run_cuda, run_ptx

Place = Callable[[int, int], tuple[int, int]]  # (thread, element) -> (row, column)


def halves_a16(t: int, i: int) -> tuple[int, int]:
    row = t >> 2 if i < 2 or 4 <= i < 6 else (t >> 2) + 8
    return row, (t & 3) * 2 + (i & 1) + (8 if i >= 4 else 0)


def halves_b16(t: int, i: int) -> tuple[int, int]:
    return (t & 3) * 2 + (i & 1) + (8 if i >= 2 else 0), t >> 2


def halves_a8(t: int, i: int) -> tuple[int, int]:
    return (t >> 2) + (8 if i >= 2 else 0), (t & 3) * 2 + (i & 1)


def tf32_a8(t: int, i: int) -> tuple[int, int]:
    return (t >> 2) + (8 if i in (1, 3) else 0), (t & 3) + (4 if i >= 2 else 0)


def tf32_b8(t: int, i: int) -> tuple[int, int]:
    return (t & 3) + (4 if i else 0), t >> 2


def bytes_a32(t: int, i: int) -> tuple[int, int]:
    row = t >> 2 if i < 4 or 8 <= i < 12 else (t >> 2) + 8
    return row, (t & 3) * 4 + (i & 3) + (16 if i >= 8 else 0)


def bytes_b32(t: int, i: int) -> tuple[int, int]:
    return (t & 3) * 4 + (i & 3) + (16 if i >= 4 else 0), t >> 2


def bytes_a16(t: int, i: int) -> tuple[int, int]:
    return (t >> 2) + (8 if i >= 4 else 0), (t & 3) * 4 + (i & 3)


def accumulator(t: int, i: int) -> tuple[int, int]:
    return (t >> 2) + (8 if i >= 2 else 0), (t & 3) * 2 + (i & 1)


def double_a(t: int, i: int) -> tuple[int, int]:
    return t >> 2, t & 3


def double_b(t: int, i: int) -> tuple[int, int]:
    return t & 3, t >> 2


def doubles_a(t: int, i: int) -> tuple[int, int]:
    return (t >> 2) + 8 * (i & 1), (t & 3) + 4 * (i >> 1)


def doubles_b(t: int, i: int) -> tuple[int, int]:
    return (t & 3) + 4 * i, t >> 2


def spread(matrix: np.ndarray, place: Place, count: int) -> np.ndarray:
    """(32, count): what each thread holds."""
    found = np.zeros((32, count), matrix.dtype)
    for t in range(32):
        for i in range(count):
            found[t, i] = matrix[place(t, i)]
    return found


def bfloat(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def minifloat(x: np.ndarray, fraction_bits: int) -> np.ndarray:
    """Small integers as 8-bit floats: of float16's bits the first, with e4m3's smaller bias."""
    if fraction_bits == 2:
        return (x.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
    half = np.abs(x).astype(np.float16).view(np.uint16)
    code = np.where(x == 0, 0, (half >> 7).astype(np.int64) - (15 - 7 << 3))
    return (code + 128 * (x < 0)).astype(np.uint8)


CASES = [
    ("m16n8k16", "f32.f16.f16.f32", np.float16, np.float32, halves_a16, 8, halves_b16, 4, 16),
    ("m16n8k16", "f16.f16.f16.f16", np.float16, np.float16, halves_a16, 8, halves_b16, 4, 16),
    ("m16n8k8", "f32.f16.f16.f32", np.float16, np.float32, halves_a8, 4, lambda t, i: ((t & 3) * 2 + i, t >> 2), 2, 8),
    ("m16n8k16", "f32.bf16.bf16.f32", "bf16", np.float32, halves_a16, 8, halves_b16, 4, 16),
    ("m16n8k8", "f32.tf32.tf32.f32", np.float32, np.float32, tf32_a8, 4, tf32_b8, 2, 8),
    ("m16n8k32", "s32.s8.s8.s32", np.int8, np.int32, bytes_a32, 16, bytes_b32, 8, 32),
    ("m16n8k16", "s32.u8.u8.s32", np.uint8, np.int32, bytes_a16, 8, lambda t, i: ((t & 3) * 4 + i, t >> 2), 4, 16),
    ("m16n8k32", "f32.e4m3.e4m3.f32", "e4m3", np.float32, bytes_a32, 16, bytes_b32, 8, 32),
    ("m16n8k32", "f32.e5m2.e5m2.f32", "e5m2", np.float32, bytes_a32, 16, bytes_b32, 8, 32),
    ("m8n8k4", "f64.f64.f64.f64", np.float64, np.float64, double_a, 1, double_b, 1, 4),
    *[(f"m16n8k{k}", "f64.f64.f64.f64", np.float64, np.float64, doubles_a, k // 2, doubles_b, k // 4, k)
      for k in (4, 8, 16)],
]  # fmt: skip


@pytest.mark.parametrize("shape, types, inputs, sums, a_place, a_count, b_place, b_count, depth", CASES)
def test_a_product_of_fragments_is_the_product(
    shape, types, inputs, sums, a_place, a_count, b_place, b_count, depth
):
    rng = np.random.default_rng(1)
    rows = 8 if shape.startswith("m8") else 16
    a, b = rng.integers(-9, 9, (rows, depth)), rng.integers(-9, 9, (depth, 8))
    c = rng.integers(-99, 99, (rows, 8))
    if inputs is np.uint8:
        a, b = np.abs(a), np.abs(b)
    if inputs in ("e4m3", "e5m2"):
        a, b = np.clip(a, -4, 4), np.clip(b, -4, 4)  # what both formats hold

    def convert(x: np.ndarray) -> np.ndarray:
        if inputs in ("e4m3", "e5m2"):
            return minifloat(x, 3 if inputs == "e4m3" else 2)
        return bfloat(x) if inputs == "bf16" else x.astype(inputs)

    wide = 8 if inputs is np.float64 else 4
    unit = "64" if wide == 8 else "32"
    parts = [
        spread(convert(a), a_place, a_count), spread(convert(b), b_place, b_count),
        spread(c.astype(sums), accumulator, rows // 4),
    ]  # fmt: skip
    counts = [part.dtype.itemsize * part.shape[1] // wide for part in parts]
    names = [[f"%{letter}{i}" for i in range(count)] for letter, count in zip("abc", counts)]
    text = [HEADER, ".visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C) {"]
    text.append(
        f".reg .b{unit} %a<9>, %b<9>, %c<9>; .reg .b64 %at, %t; .reg .b32 %i; mov.u32 %i, %tid.x; cvt.u64.u32 %t, %i;"
    )
    for letter, registers in zip("ABC", names):
        text.append(f"ld.param.u64 %at, [{letter}]; mad.lo.u64 %at, %t, {len(registers) * wide}, %at;")
        text += [f"ld.global.b{unit} {register}, [%at+{i * wide}];" for i, register in enumerate(registers)]
    fragments = ["{" + ", ".join(registers) + "}" for registers in names]
    text.append(
        f"mma.sync.aligned.{shape}.row.col.{types} {fragments[2]}, {fragments[0]}, {fragments[1]}, {fragments[2]};"
    )
    text += [f"st.global.b{unit} [%at+{i * wide}], {register};" for i, register in enumerate(names[2])]
    run_ptx("\n".join([*text, "ret; }"]), "k", 1, 32, *parts)
    assert (parts[2] == spread((a @ b + c).astype(sums), accumulator, rows // 4)).all()


WMMA = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void product(const TYPE *a, const TYPE *b, float *c, float *d) {
  __shared__ float tile[M * N];
  wmma::fragment<wmma::matrix_a, M, N, K, TYPE, wmma::ALAYOUT> x;
  wmma::fragment<wmma::matrix_b, M, N, K, TYPE, wmma::BLAYOUT> y;
  wmma::fragment<wmma::accumulator, M, N, K, float> z;
  wmma::load_matrix_sync(x, a, LDA);
  wmma::load_matrix_sync(y, b, LDB);
  wmma::load_matrix_sync(z, c, N, wmma::mem_row_major);
  wmma::mma_sync(z, x, y, z);
  for (int i = 0; i < z.num_elements; i++) z.x[i] *= 2.0f;
  wmma::store_matrix_sync(tile, z, M, wmma::mem_col_major);
  for (int i = threadIdx.x; i < M * N; i += 32) d[i] = tile[i];
}"""


@needs_header("crt/mma.h")
@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (32, 8, 16), (8, 32, 16)])
@pytest.mark.parametrize("layouts", ["row col", "col row"])
@pytest.mark.parametrize("kind", ["half", "__nv_bfloat16"])
def test_the_toolkits_wmma_multiplies(m, n, k, layouts, kind):
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(-9, 9, size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
    convert = bfloat if kind != "half" else (lambda x: x.astype(np.float16))
    first, second = layouts.split()
    x, y = (np.ascontiguousarray(v if layout == "row" else v.T) for v, layout in ((a, first), (b, second)))
    words = {
        "TYPE": kind,
        "ALAYOUT": f"{first}_major",
        "BLAYOUT": f"{second}_major",
        "LDA": x.shape[1],
        "LDB": y.shape[1],
    }
    define = "".join(f"#define {name} {value}\n" for name, value in {**words, "M": m, "N": n, "K": k}.items())
    source = "#include <mma.h>\n" + define + WMMA.replace("#include <mma.h>", "")
    d = np.zeros((n, m), np.float32)
    run_cuda(source, "product", 1, 32, convert(x), convert(y), c, d)
    assert (d.T == 2 * (a @ b + c)).all()


def test_a_transposed_matrix_of_halfwords():
    text = f"""{HEADER}.visible .entry k(.param .u64 P) {{ .reg .b32 %r<4>; .reg .b64 %d<3>;
    mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 4; ld.param.u64 %d1, [P]; add.u64 %d0, %d0, %d1;
    ld.global.u32 %r1, [%d0];
    movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1; st.global.u32 [%d0], %r1; ret; }}"""
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    moved = matrix.copy()
    run_ptx(text, "k", 1, 32, moved)
    assert (moved == matrix.T).all()


def test_matrices_are_stored_to_shared_memory():
    text = f"""{HEADER}.visible .entry k(.param .u64 P) {{ .reg .b32 %r<6>; .reg .b64 %d<3>;
    .shared .align 16 .b8 tile[256];
    mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 8; ld.param.u64 %d1, [P]; add.u64 %d0, %d0, %d1;
    ld.global.v2.u32 {{%r1, %r2}}, [%d0];
    mov.u32 %r3, tile; and.b32 %r4, %r0, 15; mad.lo.u32 %r3, %r4, 16, %r3;
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {{%r1, %r2}}; bar.sync 0;
    mov.u32 %r3, tile; mad.lo.u32 %r3, %r0, 8, %r3; ld.shared.v2.u32 {{%r1, %r2}}, [%r3];
    st.global.v2.u32 [%d0], {{%r1, %r2}}; ret; }}"""
    pairs = np.arange(64, dtype=np.uint32).reshape(32, 2)
    found = pairs.copy()
    run_ptx(text, "k", 1, 32, found)
    assert (found.reshape(2, 32) == pairs.T).all()
