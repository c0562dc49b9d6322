"""Chips: the figures that heuristics weigh tiles by are the datasheets'."""

from __future__ import annotations

import pytest

from hcq.compiler.chips import CHIPS, PORT_BYTES, chip_of, spread
from hcq.compiler.target import AMD_ARCHS, NV_ARCHS, amd_target, nv_target
from hcq.performance import datasheets
from hcq.performance.roofline import PORT_BYTES_PER_CLOCK

# of sm_86 and Apple's the heuristics know the largest chips, of which no datasheet is here
WITH_DATASHEET = sorted(
    {chip.arch for chip in datasheets.CHIPS.values() if chip.arch.startswith(("sm_", "gfx"))} - {"sm_86"}
)


@pytest.mark.parametrize("arch", WITH_DATASHEET)
def test_figures_are_the_datasheet_s(arch: str) -> None:
    ours, sheet = CHIPS[arch], datasheets.for_arch(arch)
    assert sheet is not None
    assert (ours.cores, ours.sector_bytes, ours.issued) == (sheet.units, sheet.sector_bytes, sheet.schedulers)
    assert ours.l2s == sheet.l2s
    clock = sheet.clock_hz
    assert ours.l2_bytes == pytest.approx(sheet.l2_bytes_s / clock, rel=0.01)
    flops = (sheet.matrix_flops or sheet.vector_flops)["f16"]
    assert ours.matrix_flops == pytest.approx(flops / sheet.units / clock, rel=0.02)
    assert PORT_BYTES == PORT_BYTES_PER_CLOCK


@pytest.mark.parametrize("arch", [*AMD_ARCHS, *NV_ARCHS])
def test_every_gpu_has_cores(arch: str) -> None:
    target = amd_target(arch) if arch in AMD_ARCHS else nv_target(arch)
    assert target.cores == chip_of(arch).cores > 1


def test_blocks_that_fill_every_round_are_spread_best() -> None:
    assert spread(216, 108) == 1.0
    assert spread(217, 108) == pytest.approx(217 / 324)
    assert spread(27, 108) == 0.25
