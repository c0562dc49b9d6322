"""tcgen05 of sparse matrices, of weights that stay, and what moves in tensor memory."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader import tcgen05_sparse
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.shader.small_floats import E2M1
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx
from tests.hcq.emu.nv.shader.test_sparse_matrix_ops import ORDERED, sparse_of
from tests.hcq.emu.nv.shader.test_tcgen05 import (
    F32,
    S32,
    descriptor,
    instruction,
    kernel,
    lanes_of,
    matrix_at,
)
from tests.hcq.emu.nv.shader.test_warpgroup_ops import BYTES, Layout, encoded

KINDS = {
    "f16": ("f16", "f16", (0, 0), F32),
    "bf16": ("bf16", "f16", (1, 1), F32),
    "tf32": ("tf32", "tf32", (2, 2), F32),
    "e4m3": ("e4m3", "f8f6f4", (0, 0), F32),
    "s8": ("s8", "i8", (1, 1), S32),
}
SPARSE = 1 << 2
COLUMNS = 64


def whole_of(bits: int, stored: np.ndarray, codes: np.ndarray) -> np.ndarray:
    parts = [slice(row, row + 16) for row in range(0, len(stored), 16)]
    return np.concatenate([sparse_of(bits, stored[part], codes[part]) for part in parts])


def metadata_of(codes: np.ndarray, bits: int, selector: int, lane_of_row: list[int]) -> np.ndarray:
    """(128, 4) words of tensor memory. Of 16 bits and more as JAX formats metadata: (8, 2, 8, ...) of rows, halves."""
    words = np.zeros((128, 4), np.uint32)
    rows, chunks = codes.shape
    for row in range(rows):
        for chunk in range(chunks):
            if bits >= 16:
                lane = lane_of_row[row // 16 * 16] + row % 8 + 8 * (chunk // 4)
                column, shift = selector, 16 * (row // 8 % 2) + 4 * (chunk % 4)
            else:
                lane, column, shift = lane_of_row[row], chunk // 8, 4 * (chunk % 8)
            words[lane, column] |= np.uint32(int(codes[row, chunk]) << shift)
    return words


def sparse_kernel(mma: str, sizes: tuple[int, ...]) -> str:
    """D in columns 0 to 63, metadata in 64 to 67."""
    return kernel(mma, sizes, columns=72)


def product(
    kind: str, rows: int, selector: int, word: str = "sp", lanes: list[int] | None = None, swizzle="128B"
):
    """(what tensor memory has, what D should be): random matrices."""
    rng = np.random.default_rng(rows + selector)
    name, mma_kind, codes_of, result = KINDS[kind]
    bits = 8 * BYTES[name]
    depth = 64 // BYTES[name]
    stored, b = rng.integers(-4, 5, (rows, depth // 2)), rng.integers(-4, 5, (COLUMNS, depth))
    chunks = depth // (2 if bits == 32 else 4)
    codes = rng.choice((0b0100, 0b1110) if bits == 32 else ORDERED, (rows, chunks))
    layouts = [Layout(rows, name, "k", swizzle), Layout(COLUMNS, name, "k", swizzle, 64)]
    images = [layout.image(encoded(x, name)) for layout, x in zip(layouts, (stored, b))]
    lanes = lanes_of(rows) if lanes is None else lanes
    out = rng.integers(-50, 50, (128, 72)).astype(np.int32 if result == S32 else np.float32)
    c = out[:, :COLUMNS].copy()
    out[:, 64:68] = metadata_of(codes, bits, selector, lanes).view(out.dtype)
    number = instruction(rows, COLUMNS, codes_of, result, more=SPARSE | selector)
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], swizzle)) + matrix_at(1, 1, descriptor(layouts[1], swizzle))
        + f"mov.u32 %d, {number:#x}; add.u32 %c, %t, 64;"
        + f"tcgen05.mma.{word}.cta_group::1.kind::{mma_kind} [%t], %m0, %m1, [%c], %d, %one;"
    )  # fmt: skip
    run_ptx(sparse_kernel(mma, tuple(map(len, images))), "k", 1, 128, *images, out)
    return out[:, :COLUMNS], c, whole_of(bits, stored, codes) @ b.T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows, selector", [(128, 0), (64, 0), (128, 3)])
def test_a_sparse_product_is_that_of_the_whole_matrix(kind, rows, selector):
    selector = selector if BYTES[KINDS[kind][0]] > 1 else 0
    out, c, wanted = product(kind, rows, selector)
    c[lanes_of(rows)] += wanted.astype(c.dtype)
    assert np.array_equal(out, c)


@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_sparse_matrices_have_other_swizzles(swizzle):
    out, c, wanted = product("f16", 128, 1, swizzle=swizzle)
    assert np.array_equal(out, c + wanted.astype(np.float32))


def test_pairs_of_four_bits_may_be_sparse_with_scales():
    """Of mxf4 a chunk has eight numbers; all scales are 2 and 1/2."""
    rng = np.random.default_rng(5)
    values = E2M1.values.astype(np.float64)
    stored, b = rng.integers(0, 16, (128, 64)), rng.integers(0, 16, (COLUMNS, 128))
    codes = rng.choice(ORDERED, (128, 16))
    layouts = [Layout(128, "u8", "k", "128B"), Layout(COLUMNS, "u8", "k", "128B", 64)]
    images = [
        layout.image((x[:, ::2] | x[:, 1::2] << 4).astype(np.uint8))
        for layout, x in zip(layouts, (stored, b))
    ]
    out = np.zeros((128, 80), np.float32)
    out[:, 64:68] = metadata_of(codes, 4, 0, list(range(128))).view(np.float32)
    out[:, 68:72] = np.full((128, 4), 0x80808080, np.uint32).view(np.float32)
    out[:, 72:76] = np.full((128, 4), 0x7E7E7E7E, np.uint32).view(np.float32)
    number = instruction(128, COLUMNS, (1, 1), 0, more=SPARSE | 1 << 23)
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], "128B")) + matrix_at(1, 1, descriptor(layouts[1], "128B"))
        + f"mov.u32 %d, {number:#x}; add.u32 %c, %t, 64; add.u32 %w0, %t, 68; add.u32 %w1, %t, 72;"
        + "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%t], %m0, %m1, [%c], %d,"
        + " [%w0], [%w1], %zero;"
    )  # fmt: skip
    run_ptx(kernel(mma, tuple(map(len, images)), columns=80), "k", 1, 128, *images, out)
    assert np.array_equal(out[:, :COLUMNS], whole_of(4, values[stored], codes) @ values[b].T)


def test_metadata_without_a_meaning_are_reported():
    with pytest.raises(KernelFault, match="the metadata of row 0 and chunk 0 of A are 0b0000"):
        layouts = [Layout(128, "f16", "k", "128B"), Layout(COLUMNS, "f16", "k", "128B", 64)]
        number = instruction(128, COLUMNS, (0, 0), F32, more=SPARSE)
        mma = (
            matrix_at(0, 0, descriptor(layouts[0], "128B")) + matrix_at(1, 1, descriptor(layouts[1], "128B"))
            + f"mov.u32 %d, {number:#x}; add.u32 %c, %t, 64;"
            + "tcgen05.mma.sp.cta_group::1.kind::f16 [%t], %m0, %m1, [%c], %d, %zero;"
        )  # fmt: skip
        images = [np.zeros(layout.size_bytes, np.uint8) for layout in layouts]
        run_ptx(
            sparse_kernel(mma, tuple(map(len, images))), "k", 1, 128, *images, np.zeros((128, 72), np.float32)
        )


def weights(
    rows: int, columns: int, mask: int | None = None, adds: bool = True, more: int = 0, extra: int = 0
):
    """(D before, D after, A, B) of tcgen05.mma.ws of halves."""
    rng = np.random.default_rng(rows)
    a, b = rng.integers(-4, 5, (rows, 16)), rng.integers(-4, 5, (columns + extra, 16))
    layouts = [Layout(len(x), "f16", "k", "128B") for x in (a, b)]
    images = [layout.image(encoded(x, "f16")) for layout, x in zip(layouts, (a, b))]
    width = columns * rows // 128
    c = rng.integers(-50, 50, (128, width)).astype(np.float32)
    number = instruction(rows, columns, (0, 0), F32, more=more)
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], "128B")) + matrix_at(1, 1, descriptor(layouts[1], "128B"))
        + f"mov.u32 %d, {number:#x}; mov.b64 %m2, {mask or 0:#x};"
        + "tcgen05.mma.ws.cta_group::1.kind::f16.collector::b0::fill [%t], %m0, %m1, %d, "
        + f"{'%one' if adds else '%zero'}{'' if mask is None else ', %m2'};"
    )  # fmt: skip
    out = c.copy()
    run_ptx(kernel(mma, tuple(map(len, images)), columns=width), "k", 1, 128, *images, out)
    return c, out, a, b


def folded(d: np.ndarray) -> np.ndarray:
    """Parts of columns, one below the other, in all 128 lanes."""
    return np.concatenate(np.split(d, 128 // len(d), axis=1))


@pytest.mark.parametrize("rows, columns", [(128, 64), (64, 128), (32, 256), (32, 64)])
@pytest.mark.parametrize("adds", [False, True])
def test_products_of_weights_that_stay_fill_all_lanes(rows, columns, adds):
    c, out, a, b = weights(rows, columns, adds=adds)
    assert np.array_equal(out, folded(a @ b.T) + c * adds)


def test_a_mask_makes_columns_zero_and_moves_the_first_one():
    """The fourth example of the manual."""
    mask = 0 | 1 << 8 | 2 << 16 | 1 << 24 | 0b0011 << 32 | 1 << 39 | 2 << 40 | 3 << 48 | 2 << 56
    c, out, a, b = weights(32, 128, mask, more=1 << 30, extra=8)
    first = ["", "110000", "00", "000"]  # of the columns of each part, before it repeats itself
    parts = [(one + "1110000" * 5)[:32] for one in first]
    zeros = np.array([digit == "1" for digit in "".join(parts)])
    shifted = np.where(zeros[:, None], 0, b[2:130])
    assert np.array_equal(out, folded(a @ shifted.T) + c)


@pytest.mark.parametrize(
    "bits, why", [(1 << 36, "reserved"), (17 << 56, "shifts by 17"), (9 << 56, "allows 8")]
)
def test_masks_of_columns_that_have_no_meaning_are_refused(bits, why):
    with pytest.raises(KernelFault, match=why):
        weights(32, 64, bits, more=1 << 30)


def test_sparse_weights_that_stay_have_their_metadata_from_the_first_lane_on():
    out, c, wanted = product("f16", 64, 2, "ws.sp", lanes=list(range(64)))
    assert np.array_equal(out[:, :32], folded(wanted.astype(np.float32)) + c[:, :32])


def test_examples_of_masks_in_the_manual():
    def text(mask: int, rows: int, columns: int) -> str:
        return "".join(
            str(int(not keep)) for keep in reversed(tcgen05_sparse.columns_of(mask, rows, columns)[1])
        )

    spans = 1 << 39 | 2 << 40 | 3 << 48
    assert text(0, 128, 64) == "0" * 64
    assert text(spans, 128, 64).endswith("11100001110000")
    assert text(spans | 1 << 32, 64, 64)[32:].endswith("11100001110000111")
    assert text(spans | 1 << 32, 64, 64)[:32].endswith("000011100001110000")


# -- what moves


def moved(
    lines: str, columns: int = 16, images: tuple[np.ndarray, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    before = rng.integers(0, 1 << 32, (128, columns), np.uint32)
    after = before.copy()
    run_ptx(kernel(lines, tuple(map(len, images)), columns=columns), "k", 1, 128, *images, after)
    return before, after


def test_a_shift_moves_eight_words_of_each_lane_to_the_next_one():
    before, after = moved("add.u32 %c, %t, 0x200004; tcgen05.shift.cta_group::1.down [%c];")
    wanted = before.copy()
    wanted[33:64, 4:12] = before[32:63, 4:12]
    assert np.array_equal(after, wanted)


def test_a_shift_begins_at_the_first_lane_of_a_warp():
    with pytest.raises(KernelFault, match="no multiple of 32"):
        moved("add.u32 %c, %t, 0x100000; tcgen05.shift.cta_group::1.down [%c];")


def plain(rows: int, depth_bytes: int = 16) -> tuple[np.ndarray, int, np.ndarray]:
    """(image, descriptor, rows of bytes) without a swizzle."""
    layout = Layout(rows, "u8", "k", "none")
    matrix = np.random.default_rng(1).integers(0, 256, (rows, 32), np.uint8)
    return layout.image(matrix), descriptor(layout, "none"), matrix[:, :depth_bytes]


@pytest.mark.parametrize("word, warps", [("warpx2::02_13", [0, 1, 0, 1]), ("warpx2::01_23", [0, 0, 1, 1])])
def test_64_rows_are_copied_to_two_warps_each(word, warps):
    image, bits, rows = plain(64)
    _, after = moved(
        matrix_at(0, 0, bits) + f"tcgen05.cp.cta_group::1.64x128b.{word} [%t], %m0;", images=(image,)
    )
    parts = rows.view(np.uint32).reshape(2, 32, 4)
    assert np.array_equal(after[:, :4], np.concatenate([parts[half] for half in warps]))


@pytest.mark.parametrize("format_, width", [("b4x16_p64", 4), ("b6x16_p32", 6)])
@pytest.mark.parametrize("shape, size", [("128x128b", 16), ("128x256b", 32)])
def test_copies_unpack_numbers_of_fewer_bits(format_, width, shape, size):
    image, bits, rows = plain(128, size)
    _, after = moved(
        matrix_at(0, 0, bits) + f"tcgen05.cp.cta_group::1.{shape}.b8x16.{format_} [%t], %m0;", images=(image,)
    )
    found = after[:, : size // 4].copy().view(np.uint8)
    for row in range(0, 128, 17):
        for piece in range(size // 16):
            whole = int.from_bytes(rows[row, 16 * piece : 16 * piece + 16].tobytes(), "little")
            wanted = [whole >> width * i & (1 << width) - 1 for i in range(16)]
            assert list(found[row, 16 * piece : 16 * piece + 16]) == wanted


REDUCED = """DONE: tcgen05.ld.red.sync.aligned.32x32b.x4.{word} {{%v0, %v1, %v2, %v3}}, %d, [%row];
    tcgen05.wait::ld.sync.aligned; st.global.u32 [%o], %d;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 512; ret; }}"""


@pytest.mark.parametrize(
    "word, fold",
    [
        ("min.f32", np.fmin), ("max.f32", np.fmax), ("f32.max.abs", lambda x, y: np.fmax(abs(x), abs(y))),
        ("min.abs.NaN.f32", lambda x, y: np.minimum(abs(x), abs(y))), ("u32.max", np.maximum), ("s32.min", np.minimum),
    ],
)  # fmt: skip
def test_a_load_that_reduces_gives_each_thread_the_least_or_largest(word, fold):
    text = kernel("", (), columns=8)
    head, tail = text.split("tcgen05.commit")[0], REDUCED.format(word=word)
    text = head + tail.replace("tcgen05.dealloc", "bar.sync 0; @%p tcgen05.dealloc", 1)
    type_ = np.uint32 if "u32" in word else np.int32 if "s32" in word else np.float32
    rng = np.random.default_rng(6)
    data = rng.integers(-99, 99, (128, 8)).astype(np.int32).view(np.uint32)
    if type_ is np.float32:
        floats = rng.integers(-99, 99, (128, 8)).astype(np.float32)
        floats[3, 1], floats[5, :4] = np.nan, np.nan
        data = floats.view(np.uint32)
    out = data.copy()
    run_ptx(text, "k", 1, 128, out)
    values = data.view(type_)[:, :4]
    wanted = values[:, 0]
    for column in range(1, 4):
        wanted = fold(wanted, values[:, column])
    assert np.array_equal(out.view(type_)[:, 0], wanted, equal_nan=type_ is np.float32)


@needs_nvjitlink
def test_the_vendors_assembler_takes_these_forms():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    lines = (
        "tcgen05.mma.sp.cta_group::1.kind::f16 [%t], %m0, %m1, [%c], %d, %one;"
        "tcgen05.mma.ws.cta_group::1.kind::f16.collector::b0::fill [%t], %m0, %m1, %d, %one, %m2;"
        "tcgen05.shift.cta_group::1.down [%t]; tcgen05.cp.cta_group::1.64x128b.warpx2::02_13 [%t], %m0;"
        "tcgen05.cp.cta_group::1.128x256b.b8x16.b6x16_p32 [%t], %m0;"
        "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%t], %m0, %m1, [%c], %d, [%w0], [%w1], %one;"
    )
    assert link_ptx(kernel(lines, (), columns=8), "sm_100a")
