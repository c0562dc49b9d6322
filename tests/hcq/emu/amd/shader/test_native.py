"""Compiled shader cores leave the bits that the interpreter leaves, and stop where it stops.

In       random machine code; kernels of LLVM's
Out      registers, LDS, memory, faults and counts that are alike
Changes  nothing outside of its own arrays
Next     random_code.py (the code), tests/campaigns/compiled_cores.py (for longer)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hcq import config
from hcq.emu.amd.shader import native
from hcq.emu.amd.shader.errors import OutOfBudget, PageFault
from hcq.emu.amd.shader.machine import Report
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.native_text import Translator
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.ways import COMPILED, ways
from hcq.emu.compiled import assemble
from hcq.emu.shader.traffic import Tally
from tests.hcq.emu.amd.shader import random_code
from tests.hcq.emu.amd.shader.kernels import ISAS, Loaded

KERNEL = """
define amdgpu_kernel void @sums(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %count) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr float, ptr addrspace(1) %in, i32 %t
  %x = load float, ptr addrspace(1) %a
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%k1, %loop]
  %v = phi float [%x, %entry], [%w1, %loop]
  %w0 = call float @llvm.fma.f32(float %v, float %x, float 0.5)
  %w1 = call float @llvm.fma.f32(float %w0, float %v, float -0.25)
  %k1 = add i32 %k, 1
  %more = icmp ne i32 %k1, %count
  br i1 %more, label %loop, label %done
done:
  %s = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %w1, ptr addrspace(1) %s
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.fma.f32(float, float, float)
"""


PARTS = 8  # of the tables of instructions, for tests that are run beside each other


EXCHANGES = """
@room = internal addrspace(3) global [256 x i32] undef
define amdgpu_kernel void @exchanges(ptr addrspace(1) %out, i32 %count) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %mine = getelementptr [256 x i32], ptr addrspace(3) @room, i32 0, i32 %t
  %far = sub i32 255, %t
  %other = getelementptr [256 x i32], ptr addrspace(3) @room, i32 0, i32 %far
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%k1, %loop]
  %v = phi i32 [%t, %entry], [%w, %loop]
  store i32 %v, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %x = load i32, ptr addrspace(3) %other
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %y = mul i32 %x, 5
  %w = add i32 %y, %k
  %k1 = add i32 %k, 1
  %more = icmp ne i32 %k1, %count
  br i1 %more, label %loop, label %done
done:
  %s = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %w, ptr addrspace(1) %s
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
"""


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """HCQ_EMU_COMPILED as the test's parameter says."""
    before = config.current()
    config.use(dataclasses.replace(before, emu_compiled=request.param))
    yield
    config.use(before)


compiled = pytest.mark.parametrize("way", ["always"], indirect=True)
both = pytest.mark.parametrize("way", ["0", "always"], indirect=True)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("arch", ISAS)
def test_random_instructions_leave_the_same_bits(arch: str, seed: int) -> None:
    mode = random_code.MODES[seed % len(random_code.MODES)]
    words, names = random_code.code(arch, seed, mode, 12)
    interpreted, by_machine, left = random_code.run(arch, words, seed, mode)
    assert len(names) == 12 and not random_code.differences(interpreted, by_machine), names
    assert set(left) <= {"s_endpgm"}


def instructions(arch: str, part: int) -> list[list[str]]:
    """All names of a part of the tables, a few for each program."""
    every = sorted(
        f"{form.name}:{opcode.name}"
        for form in ISAS[arch].formats
        if form.name in random_code.FORMATS
        for opcode in form.table.values()
    )
    own = every[part::PARTS]
    return [own[at : at + 6] for at in range(0, len(own), 6)]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("arch", ISAS)
def test_every_instruction_leaves_the_same_bits(arch: str, part: int) -> None:
    for number, names in enumerate(instructions(arch, part)):
        mode = random_code.MODES[number % len(random_code.MODES)]
        words, made = random_code.code(arch, number, mode, len(names), names)
        if made:
            interpreted, by_machine, _ = random_code.run(arch, words, number, mode)
            assert not random_code.differences(interpreted, by_machine), (number, made)


def test_lanes_of_integers_are_chosen_as_floats() -> None:
    # LLVM 22 makes vpternlogd under a mask of logic and a selection of integers, and exchanges its operands wrongly
    words, names = random_code.code("gfx1100", 1, 0x3F0, 1, ["VOP3:v_bfi_b32"])
    assert names
    memory = AddressSpace()
    memory.map(0x1000, np.array([*words, *ISAS["gfx1100"].encode("s_endpgm")], np.uint32), name="code")
    text = Translator(Program(ISAS["gfx1100"], memory, 0x1000, 32, 0), 0x3F0, 256).translate().ir
    chosen = [line for line in text.splitlines() if "= select <16 x i1>" in line]
    assert any("<16 x float>" in line for line in chosen)
    assert not any("<16 x i32>" in line or "<16 x i64>" in line for line in chosen)


def numbers() -> np.ndarray:
    found: np.ndarray = np.linspace(-1, 1, 64, dtype=np.float32)
    return found


def run(count: int, arch: str = "gfx1100", **options: object) -> tuple[np.ndarray, Report, Loaded]:
    kernel = Loaded(KERNEL, arch)
    out = np.zeros(64, np.float32)
    kernel.run("sums", [numbers(), out, np.uint32(count)], **options)
    return out, kernel.report, kernel


def is_compiled(kernel: Loaded) -> bool:
    return any(program.native for program in kernel.core.programs.values())


@pytest.mark.parametrize("arch", ISAS)
def test_a_loop_has_the_same_results_and_counts(arch: str) -> None:
    before, found = config.current(), []
    try:
        for way in ("0", "always"):
            config.use(dataclasses.replace(before, emu_compiled=way))
            out, report, kernel = run(1000, arch)
            assert is_compiled(kernel) == (way == "always")
            found.append((out.tobytes(), report.instructions, report.lane_instructions))
    finally:
        config.use(before)
    assert found[0] == found[1]


SPILLS = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @spills(ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %own = alloca [16 x i32], addrspace(5)
  br label %fill
fill:
  %k = phi i32 [0, %0], [%k1, %fill]
  %x = mul i32 %k, %t
  %p = getelementptr i32, ptr addrspace(5) %own, i32 %k
  store i32 %x, ptr addrspace(5) %p
  %b = getelementptr i8, ptr addrspace(5) %p, i32 1
  store i8 7, ptr addrspace(5) %b
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, 16
  br i1 %more, label %fill, label %take
take:
  %i = and i32 %t, 15
  %q = getelementptr i32, ptr addrspace(5) %own, i32 %i
  %v = load volatile i32, ptr addrspace(5) %q
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %to
  ret void
}
"""


@both
@pytest.mark.parametrize("arch", ["gfx90a", "gfx1030", "gfx1030-wave64"])
def test_scratch_memory_through_descriptors_has_the_same_results(arch: str, way: None) -> None:
    arch, _, wide = arch.partition("-")
    kernel, out = Loaded(SPILLS, arch, "+wavefrontsize64" if wide else ""), np.zeros(128, np.uint32)
    kernel.run("spills", [out], block=(128, 1, 1))
    t = np.arange(128, dtype=np.uint32)
    assert (out == ((t & 15) * t & np.uint32(0xFFFF00FF) | np.uint32(0x700))).all()
    (program,) = kernel.core.programs.values()
    used = {one.name for one in program.instructions.values() if one.format == "MUBUF"}
    assert {"buffer_store_dword", "buffer_store_byte", "buffer_load_dword"} <= used
    assert {ways(ISAS[arch])[name] for name in used} == {COMPILED}
    assert is_compiled(kernel) == (config.current().emu_compiled == "always")


@pytest.mark.parametrize("arch", ISAS)
def test_waves_that_exchange_numbers_at_barriers_have_the_same_results_and_counts(arch: str) -> None:
    before, found = config.current(), []
    try:
        for way in ("0", "always"):
            config.use(dataclasses.replace(before, emu_compiled=way))
            kernel, out = Loaded(EXCHANGES, arch), np.zeros(256, np.uint32)
            kernel.run("exchanges", [out, np.uint32(9)], block=(256, 1, 1))
            assert is_compiled(kernel) == (way == "always")
            found.append((out.tobytes(), kernel.report.instructions))
    finally:
        config.use(before)
    assert found[0] == found[1]


@compiled
def test_a_fault_is_reported_as_by_the_interpreter(way: None) -> None:
    texts = []
    for again in (way, None):
        if again is None and texts:
            config.use(dataclasses.replace(config.current(), emu_compiled="0"))
        kernel = Loaded(KERNEL, "gfx1100")
        with pytest.raises(PageFault, match=r"write of 4 bytes .*work-item \(32, 0, 0\)") as info:
            kernel.run("sums", [numbers(), np.zeros(32, np.float32), np.uint32(3)])
        assert any("global_store_b32" in wave.instruction for wave in info.value.waves)
        texts.append(str(info.value))
    assert texts[0] == texts[1]


@both
def test_an_endless_loop_runs_out_of_its_budget(way: None) -> None:
    with pytest.raises(OutOfBudget, match="the budget of 5000 instructions is spent"):
        run(0, budget=5000)


@both
def test_an_endless_loop_is_interrupted(way: None) -> None:
    asked = []

    def interrupted() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(OutOfBudget, match="interrupted"):
        run(0, interrupted=interrupted)


@compiled
def test_what_counts_is_interpreted(way: None) -> None:
    tally = Tally("gfx1100", 0, "", (1, 1, 1), (64, 1, 1), 32, 8, 0, 0, 0)
    assert not is_compiled(run(10, tally=tally)[2])


@compiled
def test_without_llvm_kernels_are_interpreted(way: None, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(10)[0]
    monkeypatch.setattr(assemble, "is_installed", lambda: False)
    out, _, kernel = run(10)
    assert not is_compiled(kernel) and out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("way", ["", "1"], indirect=True)
def test_a_kernel_is_compiled_once_it_has_cost_as_much_or_is_kept_on_disk(
    way: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_made", {})
    config.use(dataclasses.replace(config.current(), cache_dir=tmp_path))
    assert not is_compiled(run(2)[2])
    assert is_compiled(run(20_000)[2])
    native._made.clear()  # as in another process
    monkeypatch.setattr(Translator, "translate", None)  # nothing is traced a second time
    monkeypatch.setattr(assemble, "_passes", None)
    assert is_compiled(run(2)[2])


@pytest.mark.parametrize("way", ["", "1"], indirect=True)
def test_what_a_kernel_has_cost_in_processes_before_counts(
    way: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_made", {})
    config.use(dataclasses.replace(config.current(), cache_dir=tmp_path))
    in_turn = [is_compiled(run(150)[2]) for _ in range(60)]  # none of them runs it for long enough
    first = in_turn.index(True)
    assert 2 < first and all(in_turn[first:])


def test_machine_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = config.current()
    config.use(dataclasses.replace(before, cache_dir=tmp_path))
    try:
        text = "define i32 @run(ptr %t) {\n store i64 7, ptr %t\n ret i32 0\n}"
        table = np.zeros(1, np.int64)
        assemble.Assembled(text).run(table.ctypes.data)
        assert table[0] == 7 and list((tmp_path / assemble.KIND).rglob("*"))
        monkeypatch.setattr(assemble, "_passes", None)  # nothing is compiled a second time
        table[0] = 0
        assemble.Assembled(text).run(table.ctypes.data)
        assert table[0] == 7
    finally:
        config.use(before)
