"""How many registers a kernel is said to need, of its PTX alone, is near what ptxas gives it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.register_estimate import LEAST, MOST, estimate
from tests.hcq.emu.nv.shader.running import HEADER, needs_nvjitlink, needs_nvrtc

if TYPE_CHECKING:
    from hcq.nv.toolchain.nvrtc import Compiled

FREE = 32  # of those every warp of an SM has so many anyway


@functools.cache
def products() -> Compiled:
    from hcq.nv.toolchain.nvrtc import compile_cuda
    from hcq.tools.bench.model.count import source_of

    return compile_cuda(source_of("cuda_products"), "sm_86")


@needs_nvrtc
@pytest.mark.parametrize(
    "entry", ["naive", "shared", "tile_1d", "tile_2d", "wide", "padded", "deep", "warps"]
)
def test_registers_of_products_are_within_a_half_of_ptxas_s(entry: str) -> None:
    from hcq.nv.cubin import Cubin

    function = parse(products().ptx).functions[entry]
    ours = estimate(flow.blocks_of(function), function.registers)
    theirs = Cubin(products().cubin, "k").kernels[entry].registers
    assert 1 / 1.5 <= max(ours, FREE) / max(theirs, FREE) <= 1.5, (ours, theirs)


def sums(count: int) -> str:
    """A kernel that keeps so many sums at once."""
    loads = "\n".join(f"ld.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(count))
    adds = "\n".join(f"add.f32 %f{i}, %f{i}, %f{i + 1};" for i in range(count - 1))
    stores = "\n".join(f"st.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(count))
    return (
        HEADER + f".visible .entry k(.param .u64 p) {{ .reg .b64 %rd<2>; .reg .f32 %f<{count + 1}>;"
        f"ld.param.u64 %rd1, [p]; {loads} {adds} {stores} ret; }}"
    )


def test_more_values_at_once_never_need_fewer_registers() -> None:
    found = []
    for count in (2, 8, 30, 60, 120, 240, 400):
        function = parse(sums(count)).functions["k"]
        found.append(estimate(flow.blocks_of(function), function.registers))
    assert found == sorted(found)
    assert LEAST <= found[0] < found[3] and found[3] >= 60
    assert found[-1] == MOST


def rounds(copies: int) -> str:
    """A loop whose rounds add up copies of two registers, which they write."""
    moves = "\n".join(f"mov.f32 %f{i + 2}, %f{i % 2}; add.f32 %f0, %f0, %f{i + 2};" for i in range(copies))
    return (
        HEADER
        + f".visible .entry k(.param .u64 p) {{ .reg .b64 %rd<2>; .reg .pred %p; .reg .f32 %f<{copies + 2}>;"
        "ld.param.u64 %rd1, [p]; ld.global.f32 %f0, [%rd1]; ld.global.f32 %f1, [%rd1+4];"
        f"L: {moves} add.f32 %f1, %f1, %f0; setp.lt.f32 %p, %f0, 0f42000000; @%p bra L;"
        "st.global.f32 [%rd1], %f0; st.global.f32 [%rd1+4], %f1; ret; }"
    )


def test_what_a_round_of_a_loop_copies_is_kept_no_longer_than_it_is_read() -> None:
    found = []
    for count in (2, 64):
        function = parse(rounds(count)).functions["k"]
        found.append(estimate(flow.blocks_of(function), function.registers))
    assert found == [LEAST, LEAST]


def of_programs(programs: list[str], arch: str) -> dict[str, float]:
    """Kernel of a tensor program -> registers, estimated over ptxas's."""
    from hcq.compiler.pipeline import build
    from hcq.frontend.core.structure import structure_of
    from hcq.frontend.schedule.schedule import schedule
    from hcq.nv.cubin import Cubin
    from hcq.nv.toolchain import nvjitlink
    from hcq.tools import golden_text
    from hcq.tools.golden_programs import PROGRAMS

    target, found = golden_text.TARGETS[arch](), {}
    for name in programs:
        wanted = PROGRAMS[name]().node
        storages = structure_of([wanted]).storages
        formats = golden_text.narrow_formats(arch), target.most_arguments, golden_text.scaled_formats(arch)
        made = schedule([wanted], storages, target.threads, *formats)
        for kernel in made.kernels:
            code = build(kernel.sink, target)
            ptx = code.image.decode().rstrip("\0")
            function = parse(ptx).functions[code.entry]
            ours = estimate(flow.blocks_of(function), function.registers)
            theirs = Cubin(nvjitlink.link_ptx(ptx, arch), "k").kernels[code.entry].registers
            found[f"{name} {code.entry}"] = max(ours, FREE) / max(theirs, FREE)
    return found


@needs_nvjitlink
@pytest.mark.parametrize(
    ("program", "arch"),
    [("matmul_float16", "sm_80"), ("attention", "sm_80"), ("softmax", "sm_90"), ("layer_norm", "sm_90")],
)
def test_registers_of_tensor_programs_are_near_ptxas_s(program: str, arch: str) -> None:
    found = of_programs([program], arch)
    assert found and all(1 / 1.25 <= ratio <= 1.25 for ratio in found.values()), found


@needs_nvjitlink
@pytest.mark.thorough
def test_registers_of_nine_of_ten_golden_kernels_are_within_a_half_of_ptxas_s() -> None:
    from hcq.tools.golden_programs import PROGRAMS

    found = [ratio for arch in ("sm_80", "sm_90") for ratio in of_programs(list(PROGRAMS), arch).values()]
    assert sum(1 / 1.5 <= ratio <= 1.5 for ratio in found) >= 0.9 * len(found), found
    assert min(found) > 0.4 and max(found) < 2, found
