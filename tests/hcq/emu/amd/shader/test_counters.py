"""What a launch of machine code does, counted: copies, strides, LDS conflicts, EXEC. Counting changes nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.classes import class_of, flops_of, matrix_of
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.shader.traffic import Tally
from hcq.performance import datasheets
from hcq.performance.counters import CLASSES, Counters
from tests.hcq.emu.amd.shader.kernels import Loaded
from tests.hcq.emu.amd.shader.test_machine import REVERSE, load

ARCHES = ["gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942", "gfx950", "gfx1100-wave64"]

COPY = """
define amdgpu_kernel void @k(ptr addrspace(1) noalias %in, ptr addrspace(1) noalias %out) {
IDS
  %s = mul i64 %i, STRIDE
  %p = getelementptr TYPE, ptr addrspace(1) %in, i64 %s
  %x = load TYPE, ptr addrspace(1) %p
  %q = getelementptr TYPE, ptr addrspace(1) %out, i64 %s
  store TYPE %x, ptr addrspace(1) %q
  ret void
}
"""
LDS = """
@tile = internal addrspace(3) global [8192 x i32] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %out) {
IDS
  %s = mul i32 %t, STRIDE
  %a = getelementptr [8192 x i32], ptr addrspace(3) @tile, i32 0, i32 %s
  store volatile i32 %t, ptr addrspace(3) %a
  %x = load volatile i32, ptr addrspace(3) %a
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %x, ptr addrspace(1) %q
  ret void
}
"""
DIVERGENT = """
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {
IDS
  %c = icmp ult i32 %t, LIMIT
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  br i1 %c, label %there, label %end
there:
  store volatile i32 7, ptr addrspace(1) %q
  br label %end
end:
  ret void
}
"""
RETRY = """
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {
entry:
IDS
  %old0 = load i32, ptr addrspace(1) %out
  br label %again
again:
  %old = phi i32 [ %old0, %entry ], [ %found, %again ]
  %new = add i32 %old, %t
  %pair = cmpxchg ptr addrspace(1) %out, i32 %old, i32 %new syncscope("agent") monotonic monotonic
  %found = extractvalue { i32, i1 } %pair, 0
  %done = extractvalue { i32, i1 } %pair, 1
  br i1 %done, label %end, label %again
end:
  ret void
}
"""
SCRATCH = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %word) {
IDS
  %a = alloca [256 x i32], align 16, addrspace(5)
  %p = getelementptr [256 x i32], ptr addrspace(5) %a, i32 0, i32 %word
  store volatile TYPE VALUE, ptr addrspace(5) %p, align 4
  %x = load volatile TYPE, ptr addrspace(5) %p, align 4
  %q = getelementptr TYPE, ptr addrspace(1) %out, i64 %i
  store TYPE %x, ptr addrspace(1) %q
  ret void
}
"""
BUFFER = (
    """
declare i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32>, i32, i32, i32)
declare void @llvm.amdgcn.raw.buffer.store.i32(i32, <4 x i32>, i32, i32, i32)
define amdgpu_kernel void @k(i64 %in, i64 %out, i32 %records) {
IDS
  %i32 = trunc i64 %i to i32
  %at = mul i32 %i32, 4
"""
    + "".join(
        f"""
  %{p}low = trunc i64 %{p} to i32
  %{p}shift = lshr i64 %{p}, 32
  %{p}high = trunc i64 %{p}shift to i32
  %{p}0 = insertelement <4 x i32> <i32 0, i32 0, i32 0, i32 CONTROL>, i32 %{p}low, i32 0
  %{p}1 = insertelement <4 x i32> %{p}0, i32 %{p}high, i32 1
  %{p}2 = insertelement <4 x i32> %{p}1, i32 %records, i32 2"""
        for p in ("in", "out")
    )
    + """
  %x = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %in2, i32 %at, i32 0, i32 0)
  call void @llvm.amdgcn.raw.buffer.store.i32(i32 %x, <4 x i32> %out2, i32 %at, i32 0, i32 0)
  ret void
}
"""
)
CONTROL = {
    "gfx1100": 0x31016000,
    "gfx1201": 0x30016000,
    "gfx90a": 0x27000,
    "gfx942": 0x27000,
    "gfx950": 0x27000,
}
TO_LDS = """
@tile = internal addrspace(3) global [256 x i32] poison, align 16
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {
IDS
  %p = getelementptr i32, ptr addrspace(1) %in, i64 %i
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %p, ptr addrspace(3) @tile, i32 4, i32 0, i32 0)
  fence syncscope("workgroup") acq_rel
  %l = getelementptr [256 x i32], ptr addrspace(3) @tile, i32 0, i32 %t
  %x = load i32, ptr addrspace(3) %l
  %q = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %x, ptr addrspace(1) %q
  ret void
}
"""


def launch(
    arch: str,
    ir: str,
    grid: int,
    block: int,
    *arrays: Any,
    name: str = "k",
    local_bytes: int = 0,
    sample: int = 0,
) -> Counters:
    wave = 64 if arch.endswith("64") or arch.startswith("gfx9") else 32
    code = load(arch, ir, block)
    tally = Tally(arch.split("-")[0], 0, name, (grid, 1, 1), (block, 1, 1), wave, 32, 0, local_bytes, sample)
    code.run(name, list(arrays), grid=(grid, 1, 1), block=(block, 1, 1), tally=tally, sample=sample)
    return tally.record


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("type_", "size"), [("i32", 4), ("<4 x i32>", 16)])
def test_a_copy_of_n_bytes_asks_for_each_line_once(arch: str, type_: str, size: int) -> None:
    line = datasheets.for_arch(arch.split("-")[0]).sector_bytes
    block, grid = 256, 4
    source = np.arange(grid * block * size // 4, dtype=np.uint32)
    goal = np.zeros_like(source)
    found = launch(arch, COPY.replace("TYPE", type_).replace("STRIDE", "1"), grid, block, source, goal)
    assert (goal == source).all()
    assert found.load_sectors == found.store_sectors == source.nbytes // line
    assert found.bytes_needed == 2 * source.nbytes
    assert found.dram_write_bytes == source.nbytes
    # the kernel's arguments come from memory, too
    assert source.nbytes <= found.dram_read_bytes <= source.nbytes + 16 * line


@pytest.mark.parametrize("arch", ARCHES)
def test_of_a_launch_only_a_sample_of_workgroups_may_run(arch: str) -> None:
    ir = COPY.replace("TYPE", "i32").replace("STRIDE", "1")
    data, out = np.arange(1, 8 * 64 + 1, dtype=np.uint32), np.zeros(8 * 64, np.uint32)
    found = launch(arch, ir, 8, 64, data, out, sample=3)
    assert (out[: 3 * 64] == data[: 3 * 64]).all()
    assert not out[3 * 64 :].any()
    assert (found.blocks, found.grid_blocks) == (3, 8)
    assert found.whole().bytes_needed == 2 * data.nbytes


@pytest.mark.parametrize("arch", ARCHES)
def test_a_strided_copy_asks_for_as_many_lines_as_there_are_lanes(arch: str) -> None:
    lanes, stride = 256, 32
    source = np.arange(lanes * stride, dtype=np.uint32)
    goal = np.zeros_like(source)
    found = launch(arch, COPY.replace("TYPE", "i32").replace("STRIDE", str(stride)), 1, lanes, source, goal)
    assert found.load_sectors == found.store_sectors == lanes


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("stride", "ways"), [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_lanes_wait_for_a_bank_of_lds_as_often_as_their_stride_says(
    arch: str, stride: int, ways: int
) -> None:
    out = np.zeros(128, np.uint32)
    found = launch(arch, LDS.replace("STRIDE", str(stride)), 1, 128, out)
    assert (out == np.arange(128)).all()
    assert found.shared_passes == 2 * 4 * ways
    assert found.bank_conflicts == 2 * 4 * (ways - 1)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("type_", "words"), [("i32", 1), ("<4 x i32>", 4)])
def test_scratch_asks_for_a_word_of_all_lanes_at_once(arch: str, type_: str, words: int) -> None:
    value = "7" if words == 1 else "<i32 7, i32 8, i32 9, i32 10>"
    ir = SCRATCH.replace("TYPE", type_).replace("VALUE", value)
    block, grid, index = 128, 3, np.uint32(5)
    out = np.zeros(grid * block * words, np.uint32)
    found = launch(arch, ir, grid, block, out, index, local_bytes=1024 + 64)
    assert (out.reshape(-1, words)[:, 0] == 7).all()
    line = found.sector_bytes
    assert found.local_sectors == 2 * out.nbytes // line
    # what was stored goes through L2 to DRAM; what is loaded is in L1 still
    assert (found.store_sectors, found.dram_write_bytes) == (out.nbytes // line, 2 * out.nbytes)
    assert found.bytes_needed == out.nbytes
    assert not found.uncounted


@pytest.mark.parametrize("arch", [arch for arch in ARCHES if arch in CONTROL])
@pytest.mark.parametrize("share", [1, 2])
def test_a_copy_through_descriptors_asks_for_what_is_in_their_range(arch: str, share: int) -> None:
    x = np.arange(512, dtype=np.uint32)
    out = np.zeros_like(x)
    records = np.uint32(x.nbytes // share)
    found = launch(arch, BUFFER.replace("CONTROL", str(CONTROL[arch])), 2, 256, x, out, records)
    assert (out == np.where(np.arange(512) < 512 // share, x, 0)).all()
    assert found.load_sectors == found.store_sectors == x.nbytes // share // found.sector_bytes
    assert found.bytes_needed == 2 * x.nbytes // share
    assert found.dram_write_bytes == x.nbytes // share
    assert not found.uncounted


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_what_goes_to_lds_at_once_is_a_load_of_memory_and_a_store_to_lds(arch: str) -> None:
    x = np.arange(3 * 64, dtype=np.uint32)
    out = np.zeros_like(x)
    found = launch(arch, TO_LDS, 3, 64, x, out)
    assert (out == x).all()
    assert found.load_sectors == found.store_sectors == x.nbytes // found.sector_bytes
    assert (found.shared_passes, found.bank_conflicts) == (2 * x.nbytes // 128, 0)
    assert not found.uncounted


@pytest.mark.parametrize(("limit", "divergent"), [(5, 1), (32, 0), (40, 1), (64, 0)])
def test_a_wave_diverges_when_some_of_its_lanes_are_taken_away(limit: int, divergent: int) -> None:
    ir = DIVERGENT.replace("LIMIT", str(limit))
    out = np.zeros(3 * 64, np.uint32)
    found = launch("gfx1100", ir, 3, 64, np.zeros(4, np.uint32), out)
    assert found.divergent_branches == 3 * divergent


@pytest.mark.parametrize("arch", ARCHES)
def test_a_program_without_branches_is_counted_as_its_text_stands_there(arch: str) -> None:
    ir = COPY.replace("TYPE", "i32").replace("STRIDE", "1")
    data = np.zeros(4 * 64, np.uint32)
    found = launch(arch, ir, 4, 64, data, np.zeros_like(data))
    body = load(arch, ir, 64).assembly.split("\nk:")[1].split("s_endpgm")[0]
    text = re.findall(r"^\t((?:s|v|global)_\w+)", body, re.MULTILINE)
    assert found.warp_instructions == (len(text) + 1) * found.warps
    assert found.thread_instructions == (len(text) + 1) * len(data)
    assert set(found.instructions) <= set(CLASSES)


@pytest.mark.parametrize("arch", ARCHES)
def test_barriers_and_lds_of_a_whole_kernel(arch: str) -> None:
    x = np.arange(256 * 3, dtype=np.uint32)
    out = np.zeros_like(x)
    found = launch(arch, REVERSE, 3, 256, out, x, name="reverse")
    assert (out == x.reshape(3, 256)[:, ::-1].reshape(-1)).all()
    assert found.barriers == found.warps
    assert (found.shared_passes, found.bank_conflicts) == (2 * 3 * 256 // 32, 0)


PRODUCTS = """
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {
IDS
  %p = getelementptr <4 x half>, ptr addrspace(1) %in, i64 %i
  %x = load <4 x half>, ptr addrspace(1) %p
  %y0 = bitcast <4 x half> %x to <2 x float>
  %sum0 = shufflevector <2 x float> %y0, <2 x float> %y0, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
STEPS
  %q = getelementptr <4 x float>, ptr addrspace(1) %out, i64 %i
  store <4 x float> %sumLAST, ptr addrspace(1) %q
  ret void
}
"""


def test_a_wave_waits_for_its_matrix_unit_as_long_as_a_product_before_keeps_it() -> None:
    def clocks(products: int) -> float:
        step = (
            "  %sum{next} = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> %x, <4 x half> %x, "
        )
        step += "<4 x float> %sum{now}, i32 0, i32 0, i32 0)"
        steps = "\n".join(step.format(now=now, next=now + 1) for now in range(products))
        ir = PRODUCTS.replace("STEPS", steps).replace("LAST", str(products))
        found = launch("gfx942", ir, 1, 64, np.zeros(64 * 4, np.float16), np.zeros(64 * 4, np.float32))
        return found.waits["clocks"] / found.warps

    chip = datasheets.chip("mi300x")
    of_one = 2 * 16**3 / (chip.matrix_flops["f16"] / (chip.units * chip.clock_hz * chip.schedulers))
    assert clocks(34) - clocks(2) == pytest.approx(32 * of_one, rel=0.1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v_mfma_f32_32x32x8_f16", ("f16", 2 * 32 * 32 * 8, 0)),
        ("v_mfma_f32_4x4x4_16b_f16", ("f16", 2 * 4 * 4 * 4, 16)),
        ("v_mfma_f32_16x16x32_fp8_bf8", ("f8", 2 * 16 * 16 * 32, 0)),
        ("v_mfma_f64_16x16x4f64", ("f64", 2 * 16 * 16 * 4, 0)),
        ("v_mfma_f32_32x32x8f16", ("f16", 2 * 32 * 32 * 8, 0)),
        ("v_mfma_f32_32x32x8bf16_1k", ("bf16", 2 * 32 * 32 * 8, 0)),
        ("v_mfma_f32_16x16x8_xf32", ("xf32", 2 * 16 * 16 * 8, 0)),
        ("v_mfma_i32_16x16x32_i8", ("i8", 2 * 16 * 16 * 32, 0)),
        ("v_wmma_f32_16x16x16_bf16", ("bf16", 2 * 16 * 16 * 16, 0)),
        ("v_wmma_i32_16x16x16_iu8", ("i8", 2 * 16 * 16 * 16, 0)),
        ("v_wmma_f32_16x16x16_fp8_fp8", ("f8", 2 * 16 * 16 * 16, 0)),
        ("v_add_f32", None),
    ],
)
def test_a_matrix_instruction_says_in_its_name_how_much_it_multiplies(name: str, expected: object) -> None:
    assert matrix_of(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v_add_f32", ("f32", 1)), ("v_fma_f64", ("f64", 2)), ("v_pk_fma_f16", ("f16", 4)), ("v_fmac_f32", ("f32", 2)),
        ("v_dual_fmac_f32", ("f32", 2)), ("v_dot2_f32_f16", ("f16", 4)), ("v_exp_f32", ("f32", 1)),
        ("v_max_num_f32", ("f32", 1)), ("v_cvt_f32_i32", None), ("v_cmp_lt_f32", None), ("v_add_nc_u32", None),
        ("v_mov_b32", None),
    ],
)  # fmt: skip
def test_a_vector_instruction_says_in_its_name_what_it_computes(name: str, expected: object) -> None:
    assert flops_of(name) == expected


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
@pytest.mark.parametrize(
    "ir", [COPY.replace("TYPE", "i32").replace("STRIDE", "3"), DIVERGENT.replace("LIMIT", "45"), RETRY]
)
def test_counting_changes_no_result(arch: str, ir: str) -> None:
    results = []
    for counts in (False, True):
        first = np.random.default_rng(3).integers(0, 1000, 4096, np.uint32)
        second = np.zeros_like(first)
        if counts:
            launch(arch, ir, 4, 128, first, second)
        else:
            load(arch, ir, 128).run("k", [first, second], grid=(4, 1, 1), block=(128, 1, 1))
        results.append((first, second))
    for plain, counted in zip(*results):
        assert (plain == counted).all()


def test_one_core_runs_a_kernel_with_and_without_counting() -> None:
    code: Loaded = load("gfx1100", COPY.replace("TYPE", "i32").replace("STRIDE", "1"), 64)
    data = np.arange(64, dtype=np.uint32)
    tally = Tally("gfx1100", 0, "k", (1, 1, 1), (64, 1, 1), 32, 32, 0, 0)
    for one in (None, tally, None):
        code.run("k", [data, np.zeros_like(data)], tally=one)
    assert tally.record.bytes_needed == 2 * data.nbytes


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx90a", "gfx942"])
def test_every_opcode_has_a_class_and_every_product_a_size(arch: str) -> None:
    for form in ISAS[arch].formats:
        for opcode in form.table.values():
            assert class_of(Instruction(form.name, opcode, {}, (), 0)) in CLASSES
            if "mfma" in opcode.name or "wmma" in opcode.name:
                assert matrix_of(opcode.name) is not None, opcode.name
