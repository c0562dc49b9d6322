"""How many registers a kernel is said to need, of its PTX alone, is near what ptxas gives it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.register_estimate import LEAST, MOST, estimate
from tests.hcq.emu.nv.shader.running import HEADER, needs_nvrtc

if TYPE_CHECKING:
    from hcq.nv.toolchain.nvrtc import Compiled

FREE = 32  # of those every warp of an SM has so many anyway


@functools.cache
def products() -> Compiled:
    from hcq.nv.toolchain.nvrtc import compile_cuda
    from hcq.tools.bench.model.cuda_products import SOURCE

    return compile_cuda(SOURCE, "sm_86")


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
