"""`hcq emulate` obeys the switches that are about the emulation, and leaves the others to the program."""

from __future__ import annotations

import pytest

from hcq.config import SWITCHES
from hcq.emu.supervisor import command


@pytest.mark.parametrize("name", [name for name in SWITCHES if name.startswith("HCQ_EMU_")])
def test_switches_of_emulated_gpus_are_read_by_the_supervisor(name: str) -> None:
    assert name in command.READ_HERE
