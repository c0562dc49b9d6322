"""HCQ_SANITIZE=sync on AMD: a barrier that nobody can open is a finding, besides the error."""

from __future__ import annotations

import pytest

from hcq.emu.amd.shader.errors import OutOfBudget
from hcq.emu.shader.checks import Checks
from tests.hcq.emu.amd.shader.kernels import ISAS, Loaded
from tests.hcq.emu.amd.shader.waiting_kernels import KERNELS, arguments


def test_waves_that_wait_for_a_barrier_without_having_come_to_it_are_named() -> None:
    loaded, checks = Loaded(KERNELS["a tile"], "gfx1201"), Checks(frozenset({"sync"}))
    loaded.run("k", arguments(), block=(128, 1, 1), checks=checks)
    assert not checks.found
    (program,) = loaded.core.programs.values()
    (signal,) = (one for one in program.instructions.values() if one.name == "s_barrier_signal")
    loaded.replace(signal.pc, ISAS["gfx1201"].encode("s_nop"))
    with pytest.raises(OutOfBudget, match="4 waves wait at a barrier"):
        loaded.run("k", arguments(), block=(128, 1, 1), checks=checks)
    (fault,) = checks.found.values()
    assert fault.rule == "barrier-not-reached" and "no wave can go on" in fault.why
    assert fault.sites[0].who == "workgroup (0, 0, 0), work-item (0, 0, 0)"
