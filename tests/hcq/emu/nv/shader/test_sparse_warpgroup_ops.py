"""Sparse and one-bit products of a warpgroup: the dense product of the whole matrix, and sums of common bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx
from tests.hcq.emu.nv.shader.test_sparse_matrix_ops import FORMS, UNORDERED, metadata, sparse_of
from tests.hcq.emu.nv.shader.test_warpgroup_ops import BYTES, Layout, a_place, encoded, fragment, kernel

DEPTHS = {"f16": 32, "bf16": 32, "tf32": 16, "e4m3": 64, "e5m2": 64, "s8": 64, "u8": 64}
LIKE = {"e5m2": "e4m3", "s8": "e4m3", "u8": "u8"}  # whose metadata lie alike


def sparse_kernel(shape, types, layouts, count, flags, a_registers=False, a_bytes=None):
    a_bytes = layouts[0].size_bytes if a_bytes is None else a_bytes
    text = kernel(
        shape, types, a_bytes, layouts[1].size_bytes, layouts[0].descriptor, layouts[1].descriptor, count, flags,
        a_registers,
    )  # fmt: skip
    text = text.replace("mma_async.sync", "mma_async.sp.sync").replace(
        ".param .u64 D)", ".param .u64 D, .param .u64 E)"
    )
    load = "ld.param.u64 %h, [E]; mad.wide.u32 %h, %i, 4, %h; ld.global.u32 %e, [%h]; bar.sync 0;"
    return text.replace(".reg .b32 %d<", ".reg .b32 %e, %d<").replace("bar.sync 0;", load)


def run(
    kind, result, columns=16, majors=("k", "k"), swizzle="128B", selector=0, a_registers=False, other=None
):
    """What the kernel makes of random matrices, and what it should."""
    rng = np.random.default_rng(columns + selector)
    depth, bits = DEPTHS[kind], 8 * BYTES[kind]
    low = 0 if "u8" in (kind, other) else -4
    stored, b = rng.integers(low, 5, (64, depth // 2)), rng.integers(low, 5, (columns, depth))
    c = rng.integers(-50, 50, (64, columns))
    chunks = depth // (2 if bits == 32 else 4)
    codes = rng.choice((0b0100, 0b1110) if bits == 32 else UNORDERED, (64, chunks))
    _, threads, places, selectors = FORMS[LIKE.get(kind, kind), depth]
    parts = [slice(16 * warp, 16 * warp + 16) for warp in range(4)]
    words = np.concatenate(
        [metadata(codes[part], threads, places, selectors, selector, rng) for part in parts]
    )
    whole = np.concatenate([sparse_of(bits, stored[part], codes[part]) for part in parts])
    layouts = [
        Layout(rows, one, major, swizzle, size)
        for rows, one, major, size in zip((64, columns), (kind, other or kind), majors, (32, 64))
    ]
    flags = f"%e, {selector}, %one"
    if result != "s32":
        flags += ", 1, 1"
    if bits == 16:
        turned = [str(int(major != "k")) for major in majors]
        flags += ", " + ", ".join(turned[1:] if a_registers else turned)
    count = columns // 2
    text = sparse_kernel(
        f"m64n{columns}k{depth}", f"{result}.{kind}.{other or kind}", layouts, count, flags, a_registers
    )
    if a_registers:
        run_length = 4 // BYTES[kind]
        a = np.zeros((128, 4 * run_length), encoded(stored, kind).dtype)
        for t, i in itertools.product(range(128), range(4 * run_length)):
            row, column = a_place(t, i, run_length)
            a[t, i] = encoded(stored, kind)[row, column]
        image = np.resize(a.reshape(-1).view(np.uint8), max(a.nbytes, layouts[0].size_bytes))
    else:
        image = layouts[0].image(encoded(stored, kind))
    type_ = np.int32 if result == "s32" else np.float32
    found = np.ascontiguousarray(fragment(c.astype(type_), count))
    run_ptx(text, "k", 1, 128, image, layouts[1].image(encoded(b, other or kind)), found, words)
    return found, fragment((whole @ b.T + c).astype(type_), count)


@pytest.mark.parametrize("kind", DEPTHS)
def test_a_sparse_product_of_a_warpgroup_is_that_of_the_whole_matrix(kind):
    found, wanted = run(kind, "s32" if kind[1] == "8" else "f32")
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("swizzle", ["none", "64B", "128B"])
@pytest.mark.parametrize("majors", list(itertools.product("km", "kn")))
def test_sparse_halves_come_from_every_canonical_layout(swizzle, majors):
    found, wanted = run("f16", "f32", 64, majors, swizzle, selector=1)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["bf16", "tf32", "s8"])
def test_what_is_stored_of_a_sparse_matrix_may_come_from_registers(kind):
    found, wanted = run(kind, "s32" if kind == "s8" else "f32", a_registers=True)
    assert np.array_equal(found, wanted)


def test_signed_and_unsigned_bytes_mix_in_sparse_products():
    found, wanted = run("s8", "s32", 32, other="u8")
    assert np.array_equal(found, wanted)


def test_one_bit_products_count_common_bits():
    """Without a swizzle: eight rows of 16 bytes, then the next 128 bits of depth, then the next eight rows."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, (64, 256)), rng.integers(0, 2, (16, 256))
    c = rng.integers(-50, 50, (64, 16)).astype(np.int32)

    def image(bits):
        octets = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").reshape(-1, 8, 2, 16)
        return np.ascontiguousarray(octets.transpose(0, 2, 1, 3)).reshape(-1)

    descriptor = 128 >> 4 << 16 | 256 >> 4 << 32
    text = kernel("m64n16k256", "s32.b1.b1.and.popc", 2048, 512, descriptor, descriptor, 8, "%one")
    found = np.ascontiguousarray(fragment(c, 8))
    run_ptx(text, "k", 1, 128, image(a), image(b), found)
    assert np.array_equal(found, fragment((a @ b.T + c).astype(np.int32), 8))


def test_metadata_of_a_warpgroup_without_a_meaning_are_reported():
    layouts = [Layout(64, "f16", "k", "128B"), Layout(8, "f16", "k", "128B", 64)]
    text = sparse_kernel("m64n8k32", "f32.f16.f16", layouts, 4, "%e, 0, %one, 1, 1, 0, 0")
    words = np.full(128, 0x44444444, np.uint32)
    words[37] = 0x44444454
    with pytest.raises(KernelFault, match=r"row 1 and chunk 5 of A, by thread \(37, 0, 0\)"):
        arrays = (np.zeros(one.size_bytes, np.uint8) for one in layouts)
        run_ptx(text, "k", 1, 128, *arrays, np.zeros((128, 4), np.float32), words)


@pytest.mark.parametrize(
    "shape, types, flags",
    [
        ("m64n8k16", "f32.f16.f16", "%e, 0, %one, 1, 1, 0, 0"),
        ("m64n8k32", "f32.f16.f16", "%e, 2, %one, 1, 1, 0, 0"),
        ("m64n8k64", "s32.s8.s8", "%e, 1, %one"),
        ("m64n8k64", "s32.s8.s8", "%one"),
    ],
)
def test_sparse_products_of_a_warpgroup_that_there_are_not_are_refused(shape, types, flags):
    layouts = [Layout(64, "f16", "k", "128B"), Layout(8, "f16", "k", "128B", 64)]
    with pytest.raises(PtxError):
        run_ptx(sparse_kernel(shape, types, layouts, 4, flags), "k", 1, 128, *[np.zeros(4096, np.uint8)] * 4)


@needs_nvjitlink
def test_the_vendors_assembler_takes_sparse_and_one_bit_products_of_a_warpgroup():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    layouts = [Layout(64, "f16", "k", "128B"), Layout(8, "f16", "k", "128B", 64)]
    for shape, types, flags in (
        ("m64n8k32", "f32.f16.f16", "%e, 1, %one, 1, 1, 0, 0"),
        ("m64n8k16", "f32.tf32.tf32", "%e, 0, %one, 1, 1"),
        ("m64n8k64", "s32.s8.u8", "%e, 0, %one"),
    ):
        assert link_ptx(sparse_kernel(shape, types, layouts, 4, flags), "sm_90a")
    assert link_ptx(kernel("m64n16k256", "s32.b1.b1.and.popc", 2048, 512, 0, 0, 8, "%one"), "sm_90a")
