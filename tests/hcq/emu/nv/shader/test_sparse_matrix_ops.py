"""mma.sp: the product of what is stored is the dense product of the matrix that it stands for.

Layouts are those of CUTLASS's traits of SM80 and SM120, written as shapes and strides in units of a column of 16 rows
(A, E) or 8 (B): place = k * rows + row. They are not derived from the code under test.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx

SMALL = {"e4m3": E4M3, "e5m2": E5M2, "e3m2": E3M2, "e2m3": E2M3, "e2m1": E2M1}
ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
UNORDERED = (*ORDERED, 0b0001, 0b0010, 0b0110, 0b0011, 0b0111, 0b1011)
Layout = list[tuple[int, int]]  # (size, stride), the first moves fastest
# form -> of E: threads of four, then of groups; its bits; all by (row or k in units of a chunk)
WORDS = 13


def offsets(layout: Layout) -> list[int]:
    """Of every index, in order."""
    sizes = [range(size) for size, _ in reversed(layout)]
    strides = [stride for _, stride in reversed(layout)]
    return [sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*sizes)]


# kind, depth -> bits of a number; E's layout of threads and of chunks: (row + 16 * chunk); how many selectors
FORMS: dict[tuple[str, int], tuple[int, Layout, Layout, int]] = {
    ("f16", 16): (16, [(1, 0), (8, 1)], [(4, 16), (2, 8)], 4),
    ("bf16", 16): (16, [(1, 0), (8, 1)], [(4, 16), (2, 8)], 4),
    ("f16", 32): (16, [(2, 64), (8, 1)], [(4, 16), (2, 8)], 2),
    ("bf16", 32): (16, [(2, 64), (8, 1)], [(4, 16), (2, 8)], 2),
    ("tf32", 8): (32, [(1, 0), (8, 1)], [(4, 16), (2, 8)], 4),
    ("tf32", 16): (32, [(2, 64), (8, 1)], [(4, 16), (2, 8)], 2),
    ("s8", 32): (8, [(2, 8), (8, 1)], [(8, 16)], 2),
    ("u8", 64): (8, [(2, 8), (2, 128), (8, 1)], [(8, 16)], 1),
    ("s4", 64): (4, [(2, 8), (8, 1)], [(8, 16)], 2),
    ("u4", 128): (4, [(2, 8), (2, 128), (8, 1)], [(8, 16)], 1),
    ("e4m3", 64): (8, [(2, 8), (2, 128), (8, 1)], [(8, 16)], 1),
}


def numbers_of(kind: str, rng: Any, *shape: int) -> tuple[Any, Any]:
    """(codes of numbers, the numbers)."""
    if kind in SMALL:
        values = SMALL[kind].values.astype(np.float64)
        fine = np.flatnonzero(np.isfinite(values) & (np.abs(values) <= 28))
        codes = rng.choice(fine, shape)
        return codes, values[codes]
    low, high = {"s4": (-8, 8), "u4": (0, 16), "u8": (0, 256), "s8": (-128, 128)}.get(kind, (-9, 10))
    x = rng.integers(low, high, shape)
    if kind == "f16":
        return x.astype(np.float16).view(np.uint16).astype(np.int64), x
    if kind in ("bf16", "tf32"):
        words = x.astype(np.float32).view(np.uint32).astype(np.int64)
        return words >> 16 if kind == "bf16" else words, x
    return x & ((1 << {"s4": 4, "u4": 4}.get(kind, 8)) - 1), x


def sparse_of(bits: int, stored: Any, codes: Any) -> Any:
    """(16, k / 2) stored, (16, chunks) four bits each -> (16, k)."""
    unit = 2 if bits == 4 else 1
    full = np.zeros((16, 2 * stored.shape[1]), stored.dtype)
    for row, chunk in np.ndindex(codes.shape):
        code = int(codes[row, chunk])
        if bits == 32:
            full[row, 2 * chunk + (code == 0b1110)] = stored[row, chunk]
            continue
        for number, part in enumerate((code & 3, code >> 2)):
            mine = stored[row, (2 * chunk + number) * unit :][:unit]
            full[row, (4 * chunk + part) * unit :][:unit] = mine
    return full


def packed(codes: Any, bits: int) -> int:
    return sum(int(code) << bits * i for i, code in enumerate(codes))


def fragments(stored: Any, dense: Any, bits: int) -> Any:
    """(32, 8): registers of A, four at most, and of B. stored (16, k / 2), dense (k, 8)."""
    run = 32 // bits
    found = np.zeros((32, 8), np.uint32)
    for thread in range(32):
        group, at = thread // 4, thread % 4
        for register in range(stored.shape[1] // (2 * run)):
            row, first = group + 8 * (register % 2), (register // 2 * 4 + at) * run
            found[thread, register] = packed(stored[row, first : first + run], bits)
        for register in range(dense.shape[0] // (4 * run)):
            first = (register * 4 + at) * run
            found[thread, 4 + register] = packed(dense[first : first + run, group], bits)
    return found


def metadata(codes: Any, threads: Layout, chunks: Layout, selectors: int, selector: int, rng: Any) -> Any:
    """(32,) words; those that are not selected have any bits."""
    words = rng.integers(0, 1 << 32, 32, np.uint32)
    flat = codes.T.reshape(-1)  # chunk * 16 + row
    per_group = 4 // selectors
    for number, start in enumerate(offsets(threads)):
        lane = 4 * (number // per_group) + number % per_group + per_group * selector
        words[lane] = packed([flat[start + move] for move in offsets(chunks)], 4)
    return words


def kernel(instruction: str, a: int, b: int, c: int, target: str = "sm_120a") -> str:
    """Loads 13 words: four of A, four of B, four of C, metadata. The sums go back where C was."""
    letter = "f" if ".f32." in instruction.split(" ")[0] else "r"
    lists = [", ".join(f"{name}{i}" for i in range(count)) for name, count in (("a", a), ("b", b), ("c", c))]
    text = (
        instruction.replace("A", f"{{{lists[0]}}}")
        .replace("B", f"{{{lists[1]}}}")
        .replace("C", f"{{{lists[2]}}}")
    )
    sums = ".reg .f32 c<4>;" if letter == "f" else ".reg .b32 c<4>;"
    loads = [f"ld.global.b32 a{i}, [q+{4 * i}]; ld.global.b32 b{i}, [q+{16 + 4 * i}];" for i in range(4)]
    loads += [f"ld.global.b32 c{i}, [q+{32 + 4 * i}];" for i in range(4)]
    stores = [f"st.global.b32 [q+{32 + 4 * i}], c{i};" for i in range(c)]
    return "\n".join(
        [
            f".version 8.8\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 p) {{",
            f".reg .b32 a<4>, b<4>, e, t; {sums} .reg .b64 q, w; .reg .b16 h<4>; .reg .b32 s<2>;",
            f"ld.param.u64 q, [p]; mov.u32 t, %tid.x; mul.wide.u32 w, t, {4 * WORDS}; add.u64 q, q, w;",
            *loads,
            "ld.global.b32 e, [q+48];",
            text,
            *stores,
            "ret; }",
        ]
    )


def sums_in(words: Any, kind: str) -> Any:
    """(16, 8) from the threads' accumulators, and the opposite of `sums_out`."""
    out = np.zeros((16, 8), np.float64)
    for thread in range(32):
        for i in range(4):
            at = thread // 4 + 8 * (i // 2), 2 * (thread % 4) + i % 2
            if kind == "f16":
                out[at] = words[thread, 8 + i // 2 : 9 + i // 2].view(np.float16)[i % 2]
            else:
                out[at] = words[thread, 8 + i : 9 + i].view(np.float32 if kind == "f32" else np.int32)[0]
    return out


def sums_out(c: Any, kind: str) -> Any:
    out = np.zeros((32, 4), np.uint32)
    for thread in range(32):
        mine = np.array([c[thread // 4 + 8 * (i // 2), 2 * (thread % 4) + i % 2] for i in range(4)])
        if kind == "f16":
            out[thread, :2] = mine.astype(np.float16).view(np.uint32)
        else:
            out[thread] = mine.astype(np.float32 if kind == "f32" else np.int32).view(np.uint32)
    return out


def instruction_of(kind: str, depth: int, result: str, selector: int, is_ordered: bool = False) -> str:
    word = "mma.sp::ordered_metadata" if is_ordered else "mma.sp"
    types = f"{result}.{kind}.{kind}.{result}"
    return f"{word}.sync.aligned.m16n8k{depth}.row.col.{types} C, A, B, C, e, {selector};"


def registers_of(bits: int, depth: int) -> tuple[int, int]:
    return depth * bits // 128, depth * bits // 128


CASES = [
    (kind, depth, selector, is_ordered)
    for (kind, depth), form in FORMS.items()
    for selector in range(form[3])
    for is_ordered in (False, True)
]


def result_of(kind: str) -> str:
    return "s32" if kind[0] in "su" else "f32"


@pytest.mark.parametrize("kind, depth, selector, is_ordered", CASES)
def test_a_sparse_product_is_the_product_of_the_whole_matrix(kind, depth, selector, is_ordered):
    rng = np.random.default_rng(depth + selector)
    bits, threads, chunks, selectors = FORMS[kind, depth]
    a_codes, a = numbers_of(kind, rng, 16, depth // 2)
    b_codes, b = numbers_of(kind, rng, depth, 8)
    c = rng.integers(-50, 50, (16, 8))
    count = depth // (8 if bits == 4 else 2 if bits == 32 else 4)
    codes = rng.choice((0b0100, 0b1110) if bits == 32 else ORDERED if is_ordered else UNORDERED, (16, count))
    result = result_of(kind)
    data = np.zeros((32, WORDS), np.uint32)
    data[:, :8] = fragments(a_codes, b_codes, bits)
    data[:, 8:12] = sums_out(c, result)
    data[:, 12] = metadata(codes, threads, chunks, selectors, selector, rng)
    text = instruction_of(kind, depth, result, selector, is_ordered)
    run_ptx(kernel(text, *registers_of(bits, depth), 4), "k", 1, 32, data)
    wanted = sparse_of(bits, a, codes) @ b + c
    assert np.array_equal(wanted.astype(np.float32 if result == "f32" else np.int64), sums_in(data, result))


@pytest.mark.parametrize("kind, depth", [("f16", 32), ("e4m3", 64)])
def test_sums_of_halves_are_rounded_once(kind, depth):
    rng = np.random.default_rng(depth)
    bits, threads, chunks, selectors = FORMS[kind, depth]
    a_codes, a = numbers_of(kind, rng, 16, depth // 2)
    b_codes, b = numbers_of(kind, rng, depth, 8)
    c = rng.integers(-50, 50, (16, 8))
    codes = rng.choice(ORDERED, (16, depth // 4))
    data = np.zeros((32, WORDS), np.uint32)
    data[:, :8], data[:, 8:12] = fragments(a_codes, b_codes, bits), sums_out(c, "f16")
    data[:, 12] = metadata(codes, threads, chunks, selectors, 0, rng)
    run_ptx(kernel(instruction_of(kind, depth, "f16", 0), *registers_of(bits, depth), 2), "k", 1, 32, data)
    wanted = (sparse_of(bits, a, codes) @ b + c).astype(np.float16)
    assert np.array_equal(wanted, sums_in(data, "f16").astype(np.float16))


@pytest.mark.parametrize("a_kind, b_kind", [("e5m2", "e2m3"), ("e2m1", "e3m2")])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_small_floats_may_be_sparse_with_scales_and_without(a_kind, b_kind, scaled):
    rng = np.random.default_rng(3)
    a_codes, a = numbers_of(a_kind, rng, 16, 32)
    b_codes, b = numbers_of(b_kind, rng, 64, 8)
    codes, c = rng.choice(ORDERED, (16, 16)), rng.integers(-50, 50, (16, 8))
    data = np.zeros((32, WORDS), np.uint32)
    in_bytes = (
        codes_ << (2 if name == "e2m1" else 0) for codes_, name in ((a_codes, a_kind), (b_codes, b_kind))
    )
    data[:, :8], data[:, 8:12] = fragments(*in_bytes, 8), sums_out(c, "f32")
    data[:, 12] = metadata(codes, *FORMS["e4m3", 64][1:], 0, rng)
    head, tail = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col", "C, A, B, C, e, 0"
    text = f"{head}.kind::f8f6f4.f32.{a_kind}.{b_kind}.f32 {tail};"
    if scaled:
        kind = "kind::mxf8f6f4.block_scale.scale_vec::1X"
        setting = "mov.b32 s0, 0x80808080; mov.b32 s1, 0x7e7e7e7d; mov.b16 h0, 0;"
        scales = "s0, {h0, h0}, s1, {h0, h0}"
        text = f"{setting} {head}.{kind}.f32.{a_kind}.{b_kind}.f32.ue8m0 {tail}, {scales};"
    run_ptx(kernel(text, 4, 4, 4), "k", 1, 32, data)
    factor = 2.0 ** (128 - 127) * 2.0 ** (0x7D - 127) if scaled else 1.0
    wanted = sparse_of(8, a, codes) @ b * factor + c
    assert np.array_equal(wanted.astype(np.float32), sums_in(data, "f32"))


@pytest.mark.parametrize("size, format_, count", [("2X", "ue8m0", 2), ("4X", "ue4m3", 4)])
def test_pairs_of_four_bits_may_be_sparse_and_have_scales(size, format_, count):
    rng = np.random.default_rng(count)
    a_codes, a = numbers_of("e2m1", rng, 16, 64)
    b_codes, b = numbers_of("e2m1", rng, 128, 8)
    codes, c = rng.choice(ORDERED, (16, 16)), rng.integers(-50, 50, (16, 8))
    data = np.zeros((32, WORDS), np.uint32)
    data[:, :8], data[:, 8:12] = fragments(a_codes, b_codes, 4), sums_out(c, "f32")
    data[:, 12] = metadata(codes, *FORMS["u4", 128][1:], 0, rng)
    kind = "kind::mxf4nvf4.block_scale.scale_vec::" + size
    of_a = (
        [0x7F, 0x80, 0x81, 0x7E] if format_ == "ue8m0" else [0x38, 0x40, 0x30, 0x48]
    )  # 1, 2, 4, 1/2; 1, 2, 1/2, 4
    means = [1.0, 2.0, 4.0, 0.5] if format_ == "ue8m0" else [1.0, 2.0, 0.5, 4.0]
    setting = f"mov.b32 s0, {packed(of_a, 8):#x}; mov.b32 s1, {packed(4 * of_a[:1], 8):#x}; mov.b16 h0, 0;"
    text = (
        f"{setting} mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.{kind}.f32.e2m1.e2m1.f32.{format_}"
        " C, A, B, C, e, 0, s0, {h0, h0}, s1, {h0, h0};"
    )
    run_ptx(kernel(text, 4, 4, 4), "k", 1, 32, data)
    whole = sparse_of(4, a, codes) * np.repeat(means[:count], 128 // count)
    assert np.array_equal((whole @ b + c).astype(np.float32), sums_in(data, "f32"))


def test_what_is_not_stored_does_not_multiply_infinity():
    """Columns 0 and 1 of each chunk are stored; rows 2 and 3 of B are infinite, and reach nothing."""
    data = np.zeros((32, WORDS), np.uint32)
    b = np.ones((16, 8), np.float16)
    b.reshape(4, 4, 8)[:, 2:] = np.inf
    a = np.ones((16, 8), np.float16)
    data[:, :8] = fragments(a.view(np.uint16), b.view(np.uint16), 16)
    data[:, 12] = 0x44444444
    run_ptx(kernel(instruction_of("f16", 16, "f32", 0), 2, 2, 4), "k", 1, 32, data)
    assert np.array_equal(sums_in(data, "f32"), np.full((16, 8), 8.0))


@pytest.mark.parametrize("word, code", [("mma.sp", 5), ("mma.sp::ordered_metadata", 1), ("mma.sp", 0)])
def test_metadata_without_a_meaning_are_reported(word, code):
    data = np.zeros((32, WORDS), np.uint32)
    data[:, 12] = 0x44444444
    data[9, 12] = 0x44444440 + code
    text = instruction_of("f16", 16, "f32", 1).replace("mma.sp.", word + ".")
    with pytest.raises(KernelFault, match=r"row 2 and chunk 0 of A, by thread \(9, 0, 0\)"):
        run_ptx(kernel(text, 2, 2, 4), "k", 1, 32, data)


@pytest.mark.parametrize(
    "text",
    [
        instruction_of("f16", 32, "f32", 2),
        instruction_of("s8", 64, "s32", 1),
        instruction_of("f16", 64, "f32", 0),
        instruction_of("bf16", 32, "f32", 0).replace("f32.bf16.bf16.f32", "f16.bf16.bf16.f16"),
        instruction_of("f16", 32, "f32", 0).replace("f16.f16", "f16.bf16"),
    ],
)
def test_sparse_products_that_there_are_not_are_refused(text):
    with pytest.raises(PtxError):
        run_ptx(kernel(text, 4, 4, 4), "k", 1, 32, np.zeros((32, WORDS), np.uint32))


@needs_nvjitlink
def test_the_vendors_assembler_takes_every_sparse_form():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    for kind, depth in FORMS:
        text = instruction_of(kind, depth, result_of(kind), 0, is_ordered=True)
        assert link_ptx(
            kernel(
                text, *registers_of(FORMS[kind, depth][0], depth), 4, "sm_80" if kind != "e4m3" else "sm_89"
            ),
            "sm_89",
        )
