"""multimem: an address names places in the memory of several GPUs. Also st.async and red.async to global memory."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from hcq.emu.shader.small_floats import E4M3
from tests.hcq.emu.nv.shader.running import Launch, needs_nvjitlink

VA, BYTES = 0x7000_0000, 256


def kernel(lines: str) -> str:
    """m: the address of the several places, 16 bytes for each thread; o: where its results go."""
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 M, .param .u64 O) {{
.reg .b64 m, o, w, d<4>; .reg .b32 t, r<8>; .reg .f32 f<8>; .reg .b16 h<8>; .reg .f64 e<2>;
ld.param.u64 m, [M]; ld.param.u64 o, [O]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 16; add.u64 m, m, w; add.u64 o, o, w;
{lines}
ret; }}"""


def run(lines: str, *gpus: np.ndarray, block: int = 4, at: int = VA) -> np.ndarray:
    """Returns what the threads wrote, 16 bytes each."""
    launch = Launch()
    launch.memory.multicast(VA, BYTES, [launch.buffer(gpu) for gpu in gpus])
    out = np.zeros((block, 16), np.uint8)
    launch.run(launch.load(kernel(lines), "k"), 1, block, np.uint64(at), out)
    return out


def gpus(type_: type, count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [rng.integers(-99, 99, BYTES // np.dtype(type_).itemsize).astype(type_) for _ in range(count)]


@pytest.mark.parametrize(
    "word, type_, fold",
    [
        ("add.u32", np.uint32, np.add), ("min.s32", np.int32, np.minimum), ("max.s64", np.int64, np.maximum),
        ("and.b32", np.uint32, np.bitwise_and), ("xor.b64", np.uint64, np.bitwise_xor),
        ("or.b32", np.uint32, np.bitwise_or), ("add.u64", np.uint64, np.add),
    ],
)  # fmt: skip
def test_integers_of_all_gpus_are_reduced(word, type_, fold):
    several = gpus(type_)
    size = np.dtype(type_).itemsize
    register = "r0" if size == 4 else "d0"
    out = run(
        f"multimem.ld_reduce.relaxed.sys.global.{word} {register}, [m]; st.global.b{8 * size} [o], {register};",
        *several,
    )
    per = 16 // size
    wanted = fold.reduce(np.stack([gpu[: 4 * per : per] for gpu in several]), dtype=type_)
    assert np.array_equal(out.view(type_)[:, 0], wanted)


def test_vectors_of_singles_of_all_gpus_are_added():
    several = gpus(np.float32)
    lines = "multimem.ld_reduce.acquire.gpu.global.add.v4.f32 {f0, f1, f2, f3}, [m];"
    lines += "st.global.v4.f32 [o], {f0, f1, f2, f3};"
    assert np.array_equal(run(lines, *several).view(np.float32).reshape(-1), sum(several)[:16])


def test_halves_are_rounded_after_each_sum_unless_they_are_added_in_singles():
    several = [np.full(128, x, np.float16) for x in (2048, 1, 1)]
    store = "st.global.v4.b32 [o], {r0, r1, r2, r3};"
    for word, wanted in (("", 2048), (".acc::f32", 2050)):
        lines = f"multimem.ld_reduce.add{word}.v4.f16x2 {{r0, r1, r2, r3}}, [m]; {store}"
        assert (run(lines, *several).view(np.float16) == wanted).all()


def test_bytes_of_all_gpus_are_compared_as_floats():
    codes = [np.full(BYTES, code, np.uint8) for code in (0x38, 0xB8, 0x40)]  # 1, -1, 2
    for word, wanted in (("min", -1.0), ("max", 2.0), ("add.acc::f16", 2.0)):
        lines = f"multimem.ld_reduce.{word}.v4.e4m3x4 {{r0, r1, r2, r3}}, [m];"
        lines += "st.global.v4.b32 [o], {r0, r1, r2, r3};"
        assert (E4M3.values[run(lines, *codes)] == wanted).all()


def test_a_store_reaches_all_gpus():
    several = gpus(np.uint32)
    run("mov.b32 r0, 7; add.u32 r0, r0, t; multimem.st.release.sys.global.u32 [m], r0;", *several)
    assert all(list(gpu[:16:4]) == [7, 8, 9, 10] for gpu in several)


def test_a_reduction_changes_the_memory_of_all_gpus_once_for_each_thread():
    several = gpus(np.int32)
    before = [gpu.copy() for gpu in several]
    run("ld.param.u64 m, [M]; mov.b32 r0, 5; multimem.red.relaxed.sys.global.add.s32 [m], r0;", *several)
    assert all(gpu[0] == old[0] + 20 and (gpu[1:] == old[1:]).all() for gpu, old in zip(several, before))


def test_vectors_of_halves_are_added_to_the_memory_of_all_gpus():
    several = [np.full(128, x, np.float16) for x in (1, 2)]
    run("mov.b32 r0, 0x42004000; multimem.red.add.v2.f16x2 [m], {r0, r0};", *several)
    assert [list(gpu[:4]) for gpu in several] == [[3, 4, 3, 4], [4, 5, 4, 5]]


def test_an_object_of_one_gpu_is_that_gpus_memory():
    one = gpus(np.float32, 1)
    lines = "multimem.ld_reduce.add.f32 f0, [m]; add.f32 f0, f0, 0f3F800000; multimem.st.f32 [m], f0;"
    wanted = one[0].copy()
    wanted[:16:4] += 1
    run(lines, *one)
    assert np.array_equal(one[0], wanted)


def test_an_address_of_no_object_is_reported():
    with pytest.raises(KernelFault, match="multicast object"):
        run("multimem.st.u32 [m], t;", *gpus(np.uint32), at=VA + BYTES - 32)
    with pytest.raises(KernelFault, match="multicast object"):
        run("multimem.st.u32 [m], t;", *gpus(np.uint32), at=VA - 4096)


def test_plain_accesses_to_an_object_of_several_gpus_are_reported():
    with pytest.raises(KernelFault, match="nothing is mapped there"):
        run("ld.global.u32 r0, [m];", *gpus(np.uint32))


@pytest.mark.parametrize(
    "text",
    [
        "multimem.ld_reduce.add.s64 d0, [m]", "multimem.ld_reduce.min.f32 f0, [m]",
        "multimem.red.min.v2.f16x2 [m], {r0, r0}", "multimem.ld_reduce.and.f32 f0, [m]",
        "multimem.ld_reduce.add.acc::f32.f32 f0, [m]", "multimem.st.v2.u32 [m], {r0, r1}",
    ],
)  # fmt: skip
def test_forms_that_there_are_not_are_refused(text):
    with pytest.raises(PtxError):
        run(f"{text};", *gpus(np.uint32))


@pytest.mark.parametrize("word, size", [("u32", 4), ("b64", 8), ("f32", 4)])
def test_stores_that_no_mbarrier_counts_reach_global_memory(word, size):
    launch, out = Launch(), np.zeros((4, 16), np.uint8)
    source = {"u32": "t", "b64": "w", "f32": "f0"}[word]
    lines = f"cvt.rn.f32.u32 f0, t; st.async.release.sys.global.{word} [o], {source};"
    launch.run(launch.load(kernel(lines), "k"), 1, 4, np.uint64(0), out)
    wanted = [struct.pack(*one) for one in {
        "u32": [("<I", t) for t in range(4)], "b64": [("<Q", 16 * t) for t in range(4)],
        "f32": [("<f", t) for t in range(4)],
    }[word]]  # fmt: skip
    assert [bytes(row[:size]) for row in out] == wanted


def test_reductions_that_no_mbarrier_counts_add_to_global_memory():
    launch, out = Launch(), np.zeros((4, 16), np.uint8)
    lines = "ld.param.u64 o, [O]; red.async.release.gpu.global.add.s32 [o], t;"
    lines += "red.async.mmio.release.sys.add.u64 [o+8], w;"
    launch.run(launch.load(kernel(lines), "k"), 1, 4, np.uint64(0), out)
    assert (out.view(np.int32)[0, 0], out.view(np.uint64)[0, 1]) == (6, 96)


@pytest.mark.parametrize(
    "text",
    [
        "st.async.release.cta.global.u32 [o], t",
        "red.async.release.gpu.global.min.s32 [o], t",
        "st.async.global.u32 [o], t",
    ],
)
def test_stores_without_an_mbarrier_that_there_are_not_are_refused(text):
    launch = Launch()
    with pytest.raises(PtxError):
        launch.load(kernel(f"{text};"), "k")


@needs_nvjitlink
def test_the_vendors_assembler_takes_these_forms():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    lines = (
        "multimem.ld_reduce.acquire.gpu.global.add.v4.f32 {f0, f1, f2, f3}, [m];"
        "multimem.ld_reduce.add.acc::f32.v4.f16x2 {r0, r1, r2, r3}, [m];"
        "multimem.ld_reduce.min.v4.e4m3x4 {r0, r1, r2, r3}, [m];"
        "multimem.ld_reduce.add.acc::f16.v4.e4m3x4 {r0, r1, r2, r3}, [m];"
        "multimem.red.add.v2.f16x2 [m], {r0, r1}; multimem.st.release.sys.global.u32 [m], r0;"
        "st.async.release.sys.global.u32 [o], t; red.async.release.gpu.global.add.s32 [o], t;"
        "red.async.mmio.release.sys.add.u64 [o], w;"
    )
    assert link_ptx(kernel(lines), "sm_100a")
