"""tcgen05: matrices laid out by the canonical layouts, products by NumPy, results through tensor memory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx
from tests.hcq.emu.nv.shader.test_warpgroup_ops import BYTES, Layout, encoded

HEADER = ".version 8.6\n.target sm_100a\n.address_size 64\n"
SWIZZLES = {"none": 0, "128B": 2, "64B": 4, "32B": 6}
F16, F32, S32 = 0, 1, 2


def descriptor(layout: Layout, swizzle: str) -> int:
    """Of a layout, without its start: bit 46 is set, the swizzle is in bits 63:61."""
    strides = layout.descriptor & ((1 << 46) - 1)
    return strides | 1 << 46 | SWIZZLES[swizzle] << 61


def instruction(
    rows: int,
    columns: int,
    codes: tuple[int, int],
    result: int,
    turned: tuple[int, int] = (0, 0),
    more: int = 0,
) -> int:
    """An instruction descriptor."""
    formats = result << 4 | codes[0] << 7 | codes[1] << 10
    return formats | turned[0] << 15 | turned[1] << 16 | columns >> 3 << 17 | rows >> 4 << 24 | more


def kernel(mma: str, sizes: tuple[int, ...], before: str = "", columns: int = 256, wait: bool = True) -> str:
    """Copies X[i] to shared memory, one after the other, runs `mma` in one thread, and stores D from tensor memory.

    %s0, %s1, ... are where they are; %t is tensor memory; D is in its columns from 0 on, and was loaded from O first.
    """
    starts = list(itertools.accumulate((0, *sizes)))
    params = "".join(f".param .u64 X{i}, " for i in range(len(sizes)))
    text = [
        HEADER,
        f".visible .entry k({params}.param .u64 O) {{ .shared .align 1024 .b8 tile[{starts[-1] + 64}];",
        ".shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[4];",
        ".reg .b32 %i, %at, %t, %row, %c, %w<4>, %d, %bar; .reg .b32 %s<8>; .reg .b64 %o, %l, %x<8>, %m<8>;",
        ".reg .pred %q, %p, %one, %zero;",
        "mov.u32 %i, %tid.x; ld.param.u64 %o, [O]; setp.eq.u32 %one, %i, %i; setp.ne.u32 %zero, %i, %i;",
        "mov.u32 %bar, bar; setp.lt.u32 %p, %i, 32;",
        "@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;",
        "setp.eq.u32 %q, %i, 0; @%q mbarrier.init.shared.b64 [%bar], 1;",
    ]
    for number, size in enumerate(sizes):
        text += [
            f"ld.param.u64 %x{number}, [X{number}]; mov.u32 %s{number}, tile;",
            f"add.u32 %s{number}, %s{number}, {starts[number]};",
            f"mul.lo.u32 %at, %i, 16; L{number}: setp.ge.u32 %q, %at, {size}; @%q bra E{number};",
            f"cvt.u64.u32 %l, %at; add.u64 %l, %l, %x{number}; ld.global.v4.u32 {{%w0, %w1, %w2, %w3}}, [%l];",
            f"add.u32 %c, %s{number}, %at; st.shared.v4.u32 [%c], {{%w0, %w1, %w2, %w3}};",
            f"add.u32 %at, %at, 2048; bra L{number}; E{number}:",
        ]
    text += [
        "bar.sync 0; fence.proxy.async.shared::cta; ld.shared.u32 %t, [slot];",
        "shr.u32 %row, %i, 5; shl.b32 %row, %row, 21; add.u32 %row, %row, %t;",
        f"mul.wide.u32 %l, %i, {4 * columns}; add.u64 %o, %o, %l;",
    ]
    for column in range(0, columns, 8):
        words = ", ".join(f"%v{column + k}" for k in range(8))
        text += [f".reg .b32 {words};"]
        text += [f"ld.global.u32 %v{column + k}, [%o+{4 * (column + k)}];" for k in range(8)]
        text += [f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%row+{column}], {{{words}}};"]
    text += [
        "tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;",
        f"{before} setp.ne.u32 %q, %i, 0; @%q bra DONE;",
        mma,
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];",
        "DONE:",
    ]
    if wait:
        text += [
            "W: mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0; @!%q bra W; tcgen05.fence::after_thread_sync;"
        ]
    for column in range(0, columns, 8):
        words = ", ".join(f"%v{column + k}" for k in range(8))
        text += [
            f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{words}}}, [%row+{column}]; tcgen05.wait::ld.sync.aligned;"
        ]
        text += [f"st.global.u32 [%o+{4 * (column + k)}], %v{column + k};" for k in range(8)]
    text += ["bar.sync 0; @%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 512; ret; }"]
    return "\n".join(text)


def matrix_at(number: int, of: int, bits: int) -> str:
    """Lines that make %m{number} the descriptor of what begins at %s{of}."""
    return f"shr.u32 %c, %s{of}, 4; cvt.u64.u32 %l, %c; or.b64 %m{number}, %l, {bits:#x};"


KINDS = {
    ("f16", "f16"): ("f16", (0, 0), F32),
    ("bf16", "f16"): ("f16", (1, 0), F32),
    ("tf32", "tf32"): ("tf32", (2, 2), F32),
    ("e4m3", "e5m2"): ("f8f6f4", (0, 1), F32),
    ("u8", "s8"): ("i8", (0, 1), S32),
}


def lanes_of(rows: int) -> list[int]:
    return list(range(128)) if rows == 128 else [row // 16 * 32 + row % 16 for row in range(64)]


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("rows, adds", [(64, True), (128, False)])
def test_products_are_those_of_the_matrices_that_descriptors_name(swizzle, kinds, rows, adds):
    kind, codes, result = KINDS[kinds]
    columns = 64
    depth = 32 // BYTES[kinds[0]]
    rng = np.random.default_rng(1)
    low = 0 if "u8" in kinds else -4
    a, b = rng.integers(low, 5, (rows, depth)), rng.integers(low, 5, (columns, depth))
    dtype = np.int32 if result == S32 else np.float32
    c = rng.integers(-50, 50, (128, columns)).astype(dtype)
    layouts = [Layout(n, one, "k", swizzle) for n, one in zip((rows, columns), kinds)]
    images = [layout.image(encoded(x, one)) for layout, x, one in zip(layouts, (a, b), kinds)]
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], swizzle))
        + matrix_at(1, 1, descriptor(layouts[1], swizzle))
        + f"mov.u32 %d, {instruction(rows, columns, codes, result):#x};"
        + f"tcgen05.mma.cta_group::1.kind::{kind} [%t], %m0, %m1, %d, {'%one' if adds else '%zero'};"
    )
    out = c.copy()
    run_ptx(kernel(mma, tuple(map(len, images)), columns=columns), "k", 1, 128, *images, out)
    wanted = c.copy()
    wanted[lanes_of(rows)] = a @ b.T + (c[lanes_of(rows)] if adds else 0)
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("majors", list(itertools.product("km", "kn")))
def test_halves_may_lie_with_rows_side_by_side(swizzle, majors):
    rng = np.random.default_rng(2)
    a, b = rng.integers(-4, 5, (128, 16)), rng.integers(-4, 5, (64, 16))
    layouts = [Layout(n, "f16", major, swizzle) for n, major in zip((128, 64), majors)]
    images = [layout.image(encoded(x, "f16")) for layout, x in zip(layouts, (a, b))]
    turned = (int(majors[0] != "k"), int(majors[1] != "k"))
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], swizzle))
        + matrix_at(1, 1, descriptor(layouts[1], swizzle))
        + f"mov.u32 %d, {instruction(128, 64, (0, 0), F32, turned):#x};"
        + "tcgen05.mma.cta_group::1.kind::f16 [%t], %m0, %m1, %d, %zero;"
    )
    out = np.zeros((128, 64), np.float32)
    run_ptx(kernel(mma, tuple(map(len, images)), columns=64), "k", 1, 128, *images, out)
    assert np.array_equal(out, a @ b.T)


def test_a_may_be_in_tensor_memory_and_lanes_may_be_left_as_they_are():
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (128, 16)), rng.integers(-4, 5, (64, 16))
    layout = Layout(64, "f16", "k", "128B")
    image = layout.image(encoded(b, "f16"))
    out = np.zeros((128, 128), np.float32)
    out.view(np.uint32)[:, 64:72] = encoded(a, "f16").view(np.uint32)
    before = out.copy()
    mma = (
        matrix_at(1, 0, descriptor(layout, "128B"))
        + f"mov.u32 %d, {instruction(128, 64, (0, 0), F32):#x}; mov.u32 %w0, 0xff; mov.u32 %w1, 0;"
        + "tcgen05.mma.cta_group::1.kind::f16 [%t], [%t+64], %m1, %d, {%w0, %w1, %w1, %w1}, %zero;"
    )
    run_ptx(kernel(mma, (len(image),), columns=128), "k", 1, 128, image, out)
    assert np.array_equal(out[8:, :64], (a @ b.T)[8:]) and np.array_equal(out[:8], before[:8])


def test_the_accumulator_is_divided_by_a_power_of_two_and_halves_are_results():
    rng = np.random.default_rng(4)
    a, b = rng.integers(-4, 5, (128, 16)), rng.integers(-4, 5, (64, 16))
    layouts = [Layout(n, "f16", "k", "none") for n in (128, 64)]
    images = [layout.image(encoded(x, "f16")) for layout, x in zip(layouts, (a, b))]
    c = rng.integers(-50, 50, (128, 64))
    out = c.astype(np.float16).view(np.uint16).astype(np.uint32)
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], "none"))
        + matrix_at(1, 1, descriptor(layouts[1], "none"))
        + f"mov.u32 %d, {instruction(128, 64, (0, 0), F16, more=1 << 13):#x};"
        + "tcgen05.mma.cta_group::1.kind::f16 [%t], %m0, %m1, %d, %one, 2;"
    )
    run_ptx(kernel(mma, tuple(map(len, images)), columns=64), "k", 1, 128, *images, out)
    assert np.array_equal(out.astype(np.uint16).view(np.float16), (c / 4 - a @ b.T).astype(np.float16))


SMALL = {  # kind's code, bits, mantissa bits, bias, codes without sign that are used
    "e4m3": (0, 8, 3, 7, 80),
    "e5m2": (1, 8, 2, 15, 70),
    "e2m3": (3, 6, 3, 1, 32),
    "e3m2": (4, 6, 2, 3, 32),
    "e2m1": (5, 4, 1, 1, 8),
}


def small_value(kind: str, code: int) -> float:
    _, bits, mantissa, bias, _ = SMALL[kind]
    size = code & (1 << bits - 1) - 1
    exponent, low = size >> mantissa, size & (1 << mantissa) - 1
    whole = low + (1 << mantissa if exponent else 0)
    number = math.ldexp(whole, max(exponent, 1) - bias - mantissa)
    return -number if code >> bits - 1 else number


def small_image(codes: np.ndarray, bits: int, dense: bool) -> np.ndarray:
    """K-major without a swizzle: pieces of 8 rows of 16 bytes; 128 bytes apart along k, then the next 8 rows."""
    rows = len(codes)
    per_piece = 128 // bits if dense else 16
    found = np.zeros((rows // 8, 2, 8, 16), np.uint8)
    for row, piece in itertools.product(range(rows), range(2)):
        whole = sum(int(codes[row, per_piece * piece + i]) << bits * i for i in range(per_piece))
        found[row // 8, piece, row % 8] = np.frombuffer(whole.to_bytes(16, "little"), np.uint8)
    return found.reshape(-1)


PLAIN = 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46  # 128 bytes along k, 256 to the next eight rows


@pytest.mark.parametrize(("left", "right"), list(itertools.product(SMALL, SMALL)))
def test_small_floats_are_padded_to_sixteen_bytes_and_may_have_scales(left, right):
    rng = np.random.default_rng(5)
    codes = [
        rng.integers(0, SMALL[kind][4], (rows, 32)) | rng.integers(0, 2, (rows, 32)) << SMALL[kind][1] - 1
        for kind, rows in ((left, 128), (right, 64))
    ]
    images = [small_image(one, SMALL[kind][1], False) for kind, one in zip((left, right), codes)]
    values = [
        np.vectorize(lambda c, kind=kind: small_value(kind, int(c)))(one)
        for kind, one in zip((left, right), codes)
    ]
    numbers = (SMALL[left][0], SMALL[right][0])
    matrices = matrix_at(0, 0, PLAIN) + matrix_at(1, 1, PLAIN)
    out = np.zeros((128, 128), np.float32)
    exponents = rng.integers(124, 131, (2, 128))
    for index, (first, rows) in enumerate(((64, 128), (72, 64))):
        for row, warp in itertools.product(range(rows), range(4)):
            word = out.view(np.uint32)[32 * warp + row % 32 :, first + row // 32]
            word[0] = 0x11223344 & ~(0xFF << 8 * (index + 1)) | int(exponents[index, row]) << 8 * (index + 1)
    start = out.copy()
    plain = (
        f"mov.u32 %d, {instruction(128, 64, numbers, F32):#x};"
        "tcgen05.mma.cta_group::1.kind::f8f6f4 [%t], %m0, %m1, %d, %zero;"
    )
    run_ptx(kernel(matrices + plain, tuple(map(len, images)), columns=128), "k", 1, 128, *images, out)
    assert np.array_equal(out[:, :64], (values[0] @ values[1].T).astype(np.float32))
    out = start.copy()
    scaled = (
        f"mov.u32 %d, {instruction(128, 64, numbers, 2, more=1 << 23 | 1 << 29):#x};"
        "add.u32 %w0, %t, 64; add.u32 %w1, %t, 72;"
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%t], %m0, %m1, %d, [%w0], [%w1], %zero;"
    )
    run_ptx(kernel(matrices + scaled, tuple(map(len, images)), columns=128), "k", 1, 128, *images, out)
    scales = 2.0 ** (exponents - 127.0)
    wanted = (values[0] * scales[0][:, None]) @ (values[1] * scales[1][:64, None]).T
    assert np.array_equal(out[:, :64], wanted.astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "blocks", "powers"), [("mxf4", 2, True), ("mxf4nvf4", 4, False), ("mxf4nvf4", 4, True)]
)
def test_four_bits_are_dense_and_have_two_or_four_scales(kind, blocks, powers):
    rng = np.random.default_rng(6)
    codes = [rng.integers(0, 16, (rows, 64)) for rows in (128, 64)]
    images = [small_image(one, 4, True) for one in codes]
    values = [np.vectorize(lambda c: small_value("e2m1", int(c)))(one) for one in codes]
    out = np.zeros((128, 128), np.float32)
    marks = rng.integers(124, 131, (2, 128, blocks)) if powers else rng.integers(0x30, 0x48, (2, 128, blocks))
    for index, (first, rows) in enumerate(((64, 128), (72, 64))):
        for row, warp in itertools.product(range(rows), range(4)):
            word = sum(int(mark) << 8 * block for block, mark in enumerate(marks[index, row]))
            out.view(np.uint32)[32 * warp + row % 32, first + row // 32] = word
    size = "scale_vec::2X" if blocks == 2 else "scale_vec::4X"
    mma = (
        matrix_at(0, 0, PLAIN)
        + matrix_at(1, 1, PLAIN)
        + (
            f"mov.u32 %d, {instruction(128, 64, (1, 1), 0, more=int(powers) << 23):#x};"
            "add.u32 %w0, %t, 64; add.u32 %w1, %t, 72;"
            f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{size} [%t], %m0, %m1, %d, [%w0], [%w1], %zero;"
        )
    )
    run_ptx(kernel(mma, tuple(map(len, images)), columns=128), "k", 1, 128, *images, out)
    scales = 2.0 ** (marks - 127.0) if powers else np.vectorize(lambda c: small_value("e4m3", int(c)))(marks)
    scaled = [
        value.reshape(len(value), blocks, -1) * scales[n][: len(value), :, None]
        for n, value in enumerate(values)
    ]
    wanted = scaled[0].reshape(128, 64) @ scaled[1].reshape(64, 64).T
    assert np.array_equal(out[:, :64], wanted.astype(np.float32))


def test_who_does_not_wait_for_the_commit_reads_what_was_there_before():
    images = [np.full(4096, 0x3C, np.uint8), np.full(2048, 0x3C, np.uint8)]
    mma = (
        matrix_at(0, 0, PLAIN)
        + matrix_at(1, 1, PLAIN)
        + (
            f"mov.u32 %d, {instruction(128, 64, (0, 0), F32):#x};"
            "tcgen05.mma.cta_group::1.kind::f16 [%t], %m0, %m1, %d, %zero;"
        )
    )
    before = np.full((128, 64), 7, np.float32)
    for wait in (True, False):
        out = before.copy()
        run_ptx(kernel(mma, (4096, 2048), columns=64, wait=wait), "k", 1, 128, *images, out)
        assert np.array_equal(out, before) is not wait


@pytest.mark.parametrize("shape", ["128x128b", "128x256b", "32x128b.warpx4", "4x256b"])
def test_shared_memory_is_copied_to_tensor_memory_by_a_descriptor(shape):
    rows, wide = int(shape.split("x")[0]), "256b" in shape
    words = np.random.default_rng(7).integers(0, 1 << 32, (rows, 8 if wide else 4), np.uint32)
    image = np.zeros((-(-rows // 8), 2, 8, 4), np.uint32)
    for row, word in itertools.product(range(rows), range(words.shape[1])):
        image[row // 8, word // 4, row % 8, word % 4] = words[row, word]
    data = image.reshape(-1).view(np.uint8)
    out = np.zeros((128, 16), np.uint32)
    cp = matrix_at(0, 0, PLAIN) + f"tcgen05.cp.cta_group::1.{shape} [%t], %m0;"
    run_ptx(kernel(cp, (len(data),), columns=16), "k", 1, 128, data, out)
    wanted = np.zeros((128, 16), np.uint32)
    for part in range(4 if "warpx4" in shape else 1):
        wanted[32 * part : 32 * part + rows, : words.shape[1]] = words
    assert np.array_equal(out, wanted)


PLACES = {  # register, thread -> (lane, column), of one repeat
    "16x64b": lambda r, t: (8 * (t % 2) + t // 4, t // 2 % 2),
    "16x128b": lambda r, t: (t // 4 + 8 * r, t % 4),
    "16x256b": lambda r, t: (t // 4 + 8 * (r // 2), 2 * (t % 4) + r % 2),
}


@pytest.mark.parametrize("shape", PLACES)
@pytest.mark.parametrize("half", [0, 16])
@pytest.mark.parametrize("pack", [False, True])
def test_loads_of_sixteen_lanes_give_each_thread_its_words(shape, half, pack):
    registers = {"16x64b": 1, "16x128b": 2, "16x256b": 4}[shape]
    width = {"16x64b": 2, "16x128b": 4, "16x256b": 8}[shape]
    count = 2 * registers
    words = ", ".join(f"%r{i}" for i in range(count))
    packed = ".pack::16b" if pack else ""
    load = f".reg .b32 {words}; add.u32 %c, %row, {half << 16};"
    load += f"tcgen05.ld.sync.aligned.{shape}.x2{packed}.b32 {{{words}}}, [%c];"
    load += "".join(
        f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%row+{64 + i}], {{%r{i}}};" for i in range(count)
    )
    out = np.random.default_rng(8).integers(0, 1 << 32, (128, 72), np.uint32)
    before = out.copy()
    run_ptx(kernel("", (), before=load, columns=72), "k", 1, 128, out)
    for thread, number in itertools.product(range(128), range(count)):
        lane, column = PLACES[shape](number % registers, thread % 32)
        row, column = 32 * (thread // 32) + half + lane, column + width * (number // registers)
        wanted = before[row, column]
        if pack:
            wanted = before[row, 2 * column] & 0xFFFF | (before[row, 2 * column + 1] & 0xFFFF) << 16
        assert out[thread, 64 + number] == wanted


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("apart", [3, 16])
def test_halves_of_a_warp_may_load_the_same_lanes_of_columns_that_are_apart(apart, pack):
    """And store them: what is loaded is stored some columns further on."""
    packed, unpacked = (".pack::16b", ".unpack::16b") if pack else ("", "")
    load = ".reg .b32 %r0, %r1; add.u32 %c, %row, 0x100000;"
    load += f"tcgen05.ld.sync.aligned.16x32bx2.x2{packed}.b32 {{%r0, %r1}}, [%c], {apart};"
    load += f"tcgen05.st.sync.aligned.16x32bx2.x2{unpacked}.b32 [%c+32], {apart}, {{%r0, %r1}};"
    load += "".join(f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%row+{64 + i}], {{%r{i}}};" for i in range(2))
    out = np.random.default_rng(9).integers(0, 1 << 32, (128, 72), np.uint32)
    before = out.copy()
    run_ptx(kernel("", (), before=load, columns=72), "k", 1, 128, out)
    for thread, number in itertools.product(range(128), range(2)):
        row = 32 * (thread // 32) + 16 + thread % 16
        first = apart * (thread % 32 // 16) + number * (2 if pack else 1)
        words = before[row, first : first + 2]
        assert out[thread, 64 + number] == (
            words[0] & 0xFFFF | (words[1] & 0xFFFF) << 16 if pack else words[0]
        )
        assert out[row, 32 + first] == (words[0] & 0xFFFF if pack else words[0])


GOOD = f"mov.u32 %d, {instruction(128, 64, (0, 0), F32):#x};"
PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [%t], %m0, %m1, %d, %one;"


@pytest.mark.parametrize(
    "lines, why",
    [
        (f"mov.u32 %d, 0; {PRODUCT}", "no product of 0 rows"),
        (f"mov.u32 %d, 4; {PRODUCT}", "sparse"),
        (f"{GOOD} mov.b64 %m0, 0; {PRODUCT}", "bits 48:46"),
        (f"{GOOD} add.u32 %t, %t, 500; {PRODUCT}", "not all allocated"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(lines, why):
    text = kernel(matrix_at(0, 0, PLAIN) + matrix_at(1, 1, PLAIN) + lines, (4096, 2048), columns=8)
    with pytest.raises(KernelFault, match=why):
        run_ptx(
            text,
            "k",
            1,
            128,
            np.zeros(4096, np.uint8),
            np.zeros(2048, np.uint8),
            np.zeros((128, 8), np.uint32),
        )


@pytest.mark.parametrize(
    "line, why",
    [
        ("tcgen05.mma.ws.cta_group::1.kind::mxf4 [%t], %m0, %m1, %d, %one;", ".ws is for one block"),
        (
            "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%d}, [%t], %c;",
            "how far both halves are apart is a number",
        ),
        ("tcgen05.shift.cta_group::1.up [%t];", "expected tcgen05.shift"),
        ("tcgen05.cp.cta_group::1.64x128b.warpx4 [%t], %m0;", "to two with .warpx2"),
        ("tcgen05.mma.cta_group::1.kind::f64 [%t], %m0, %m1, %d, %one;", "the kind is one of"),
    ],
)
def test_what_is_not_emulated_is_refused_when_it_is_loaded(line, why):
    with pytest.raises(PtxError, match=why):
        run_ptx(kernel(line, (), columns=8), "k", 1, 128, np.zeros((128, 8), np.uint32))


def test_a_warp_reaches_its_own_lanes_alone():
    wrong = "add.u32 %c, %t, 0x200000; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d}, [%c];"
    with pytest.raises(KernelFault, match="warp 0 of a warpgroup reaches lanes 0 to 31"):
        run_ptx(kernel("", (), before=wrong, columns=8), "k", 1, 128, np.zeros((128, 8), np.uint32))


def test_columns_are_given_back_as_they_were_taken():
    wrong = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 64;"
    with pytest.raises(KernelFault, match="no allocation of this block"):
        run_ptx(kernel("", (), before=wrong, columns=8), "k", 1, 128, np.zeros((128, 8), np.uint32))


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_text_of_these_tests():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    matrices = matrix_at(0, 0, PLAIN) + matrix_at(1, 1, PLAIN) + GOOD
    for product in (
        PRODUCT,
        "tcgen05.mma.cta_group::1.kind::tf32 [%t], %m0, %m1, %d, {%w0, %w0, %w0, %w0}, %one;",
        "tcgen05.mma.cta_group::1.kind::f16 [%t], [%t+64], %m1, %d, %one, 2;",
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%t], %m0, %m1, %d, [%w0], [%w1], %one;",
        "tcgen05.cp.cta_group::1.32x128b.warpx4 [%t], %m0;",
    ):
        assert link_ptx(kernel(matrices + product, (4096, 2048), columns=8), "sm_100a")


def of_pair(mma: str, sizes: tuple[int, ...], columns: int) -> str:
    """The same kernel for a pair of blocks: each has its halves of X and of O, and the one of even rank multiplies."""
    text = kernel(mma, sizes, "barrier.cluster.arrive; barrier.cluster.wait;", columns)
    text = text.replace("cta_group::1", "cta_group::2").replace(
        ".reg .pred",
        ".reg .b32 %rank; .reg .b16 %mask; mov.u32 %rank, %cluster_ctarank; mov.u16 %mask, 3; .reg .pred",
        1,
    )
    for number, size in enumerate(sizes):
        load = f"ld.param.u64 %x{number}, [X{number}];"
        text = text.replace(load, f"{load} mad.wide.u32 %x{number}, %rank, {size}, %x{number};")
    text = text.replace(
        "ld.param.u64 %o, [O];", f"ld.param.u64 %o, [O]; mad.wide.u32 %o, %rank, {512 * columns}, %o;"
    )
    text = text.replace("setp.ne.u32 %q, %i, 0; @%q", "or.b32 %c, %i, %rank; setp.ne.u32 %q, %c, 0; @%q")
    one = "shared::cluster.b64 [%bar];"
    assert one in text
    return text.replace(one, "shared::cluster.multicast::cluster.b64 [%bar], %mask;")


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("rows, columns", [(256, 64), (128, 64), (256, 128)])
def test_a_pair_of_blocks_has_halves_of_both_matrices_and_of_the_product(rows, columns, adds):
    rng = np.random.default_rng(5)
    a, b = rng.integers(-4, 5, (rows, 16)), rng.integers(-4, 5, (columns, 16))
    c = rng.integers(-50, 50, (2, 128, columns)).astype(np.float32)
    layouts = [Layout(n // 2, "f16", "k", "128B") for n in (rows, columns)]
    images = [
        np.concatenate([layout.image(encoded(half, "f16")) for half in np.split(x, 2)])
        for layout, x in zip(layouts, (a, b))
    ]
    mma = (
        matrix_at(0, 0, descriptor(layouts[0], "128B"))
        + matrix_at(1, 1, descriptor(layouts[1], "128B"))
        + f"mov.u32 %d, {instruction(rows, columns, (0, 0), F32):#x};"
        + f"tcgen05.mma.cta_group::2.kind::f16 [%t], %m0, %m1, %d, {'%one' if adds else '%zero'};"
    )
    sizes = tuple(len(image) // 2 for image in images)
    out = c.copy()
    run_ptx(of_pair(mma, sizes, columns), "k", 2, 128, *images, out, cluster=(2, 1, 1))
    product = (a @ b.T).reshape(2, rows // 2, columns)
    wanted = c.copy()
    if rows == 128:
        left, right = product[..., : columns // 2], product[..., columns // 2 :]
        product = np.concatenate((left, right), axis=1)
    part = wanted[..., : product.shape[2]]
    part[:] = product + (part if adds else 0)
    assert np.array_equal(out, wanted)


def test_a_pair_needs_a_cluster_and_its_own_sizes():
    layouts = [Layout(64, "f16", "k", "128B"), Layout(32, "f16", "k", "128B")]
    images = [
        np.zeros(2 * len(layout.image(encoded(np.zeros((n, 16), int), "f16"))), np.uint8)
        for layout, n in zip(layouts, (64, 32))
    ]
    for rows, cluster, why in (
        (128, 1, "a pair of blocks needs a cluster"),
        (64, 2, "no product of 64 rows"),
    ):
        mma = (
            matrix_at(0, 0, descriptor(layouts[0], "128B")) + matrix_at(1, 1, descriptor(layouts[1], "128B"))
            + f"mov.u32 %d, {instruction(rows, 64, (0, 0), F32):#x};"
            + "tcgen05.mma.cta_group::2.kind::f16 [%t], %m0, %m1, %d, %zero;"
        )  # fmt: skip
        text = of_pair(mma, tuple(len(image) // 2 for image in images), 64)
        with pytest.raises(KernelFault, match=why):
            run_ptx(text, "k", 2, 128, *images, np.zeros((2, 128, 64), np.float32), cluster=(cluster, 1, 1))


def test_each_block_of_a_pair_has_the_scales_of_its_rows_and_of_all_columns():
    rng = np.random.default_rng(8)
    codes = [rng.integers(0, 0x70, (rows, 32)) for rows in (256, 64)]
    images = [np.concatenate([small_image(half, 8, False) for half in np.split(one, 2)]) for one in codes]
    values = [np.vectorize(lambda c: small_value("e4m3", int(c)))(one) for one in codes]
    exponents = [rng.integers(124, 131, rows) for rows in (256, 64)]
    out = np.zeros((2, 128, 128), np.float32)
    for block, row, warp in itertools.product(range(2), range(128), range(4)):
        place = out.view(np.uint32)[block, 32 * warp + row % 32]
        place[64 + row // 32] = exponents[0][128 * block + row]
        if row < 64:
            place[72 + row // 32] = exponents[1][row]
    mma = (
        matrix_at(0, 0, PLAIN)
        + matrix_at(1, 1, PLAIN)
        + f"mov.u32 %d, {instruction(256, 64, (0, 0), 0, more=1 << 23):#x};"
        + "add.u32 %w0, %t, 64; add.u32 %w1, %t, 72;"
        + "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.scale_vec::1X [%t], %m0, %m1, %d, [%w0], [%w1], %zero;"
    )
    sizes = tuple(len(image) // 2 for image in images)
    run_ptx(of_pair(mma, sizes, 128), "k", 2, 128, *images, out, cluster=(2, 1, 1))
    a, b = (value * 2.0 ** (marks - 127.0)[:, None] for value, marks in zip(values, exponents))
    assert np.array_equal(out[..., :64], (a @ b.T).astype(np.float32).reshape(2, 128, 64))


def test_a_pair_copies_in_both_blocks():
    data = np.arange(2 * 128 * 8, dtype=np.uint32).reshape(2, 128, 8)
    pieces = np.ascontiguousarray(data.reshape(2, 16, 8, 2, 4).transpose(0, 3, 1, 2, 4)).view(np.uint8)
    bits = 1 << 46 | 2048 >> 4 << 16 | 128 >> 4 << 32
    copy = matrix_at(0, 0, bits) + "tcgen05.cp.cta_group::2.128x256b [%t], %m0;"
    out = np.zeros((2, 128, 8), np.uint32)
    run_ptx(of_pair(copy, (4096,), 8), "k", 2, 128, pieces.reshape(-1), out, cluster=(2, 1, 1))
    assert np.array_equal(out, data)


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_kernels_of_pairs():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    mma = "tcgen05.mma.cta_group::2.kind::f16 [%t], %m0, %m1, %d, %zero;tcgen05.cp.cta_group::2.128x256b [%t], %m0;"
    assert link_ptx(of_pair(mma, (64, 64), 64), "sm_100a")
