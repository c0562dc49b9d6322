"""Rows of chips: what LLVM makes for each of them loads, and what is known of it fits its hardware's fields."""

from __future__ import annotations

import pytest

from hcq.amd.abi import pm4
from hcq.amd.abi.registers import Register, Rsrc2
from hcq.amd.chip import CHIPS, arch_of, chip_of
from hcq.amd.doctor import DOCTOR
from hcq.amd.launch import Launcher
from hcq.amd.link import Linked
from hcq.compiler.target import AMD_ARCHS, amd_target
from hcq.errors import UsageError
from tests.hcq.amd.kernels import image


def test_the_compiler_knows_every_chip_of_the_driver() -> None:
    assert set(AMD_ARCHS) == set(CHIPS)
    assert all(amd_target(arch).arch == arch for arch in CHIPS)


@pytest.mark.parametrize("arch", CHIPS)
def test_objects_of_its_architecture_load(arch: str) -> None:
    chip = CHIPS[arch]
    assert arch_of(chip.gfx_target_version) == arch and chip_of(chip.gfx_target_version) is chip
    assert set(Linked(image(arch), chip, "tests").kernels) >= {"increment", "scratch"}


@pytest.mark.parametrize("arch", CHIPS)
def test_the_doctor_has_its_kernel(arch: str) -> None:
    tiny = DOCTOR.kernel(arch)
    assert tiny is not None
    assert set(Linked(tiny.image, CHIPS[arch], "doctor").kernels) == {"triple_plus_index"}


def test_a_chip_without_a_row_is_named_with_those_that_have_one() -> None:
    with pytest.raises(UsageError, match=r"gfx906 is not a GPU this driver knows. Known: gfx90a, .*gfx1201"):
        chip_of(90006)


@pytest.mark.parametrize(("arch", "granule"), [("gfx942", 512), ("gfx950", 1280), ("gfx1030", 512)])
def test_the_size_of_lds_is_told_in_the_chips_granules(arch: str, granule: int) -> None:
    linked = Linked(image(arch), CHIPS[arch], "reverse")
    kernel = linked.kernels["reverse"]
    launch = Launcher(CHIPS[arch], False, kernel, 0x10000, None, 0).dispatch(
        bytes(16), (1, 1, 1), (256, 1, 1)
    )
    packets = pm4.decode(memoryview(bytes(launch)).cast("I"), CHIPS[arch].packets)
    (rsrc2,) = (
        Rsrc2.decode([packet.tail_words[1]])
        for packet in packets
        if isinstance(packet, pm4.SetShReg) and packet.reg_offset == Register.COMPUTE_PGM_RSRC1
    )
    assert kernel.descriptor.group_segment_fixed_size == 1024
    assert rsrc2.lds_size // 512 == -(-1024 // granule)
