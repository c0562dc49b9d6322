"""The command processor's IR: one text for each machine, assembled for a baseline, linked by our own loader."""

from __future__ import annotations

import struct

import pytest

from hcq import native
from hcq.cpu import processor
from hcq.cpu.encode import argument_shape
from hcq.cpu.link import link
from hcq.errors import UsageError
from hcq.port import LinuxPort

ENTRIES = {
    "processor_main",
    "worker_main",
    "doorbell_ring",
    "signal_set",
    "signal_wait",
    "fault_clear",
    "stop_all",
}


@pytest.mark.parametrize("machine", processor.MACHINES.values(), ids=lambda machine: machine.name)
def test_the_processor_assembles_and_links_for_every_machine(machine: processor.Machine) -> None:
    extra = {name: native.symbol(name) for name in ("syscall", "clock_gettime")}
    mapping = link(processor.build(machine), LinuxPort(), machine.name, "processor", extra)
    assert set(mapping.functions) >= ENTRIES
    mapping.close()


def test_two_builds_are_the_same_bytes() -> None:
    assert processor.ir_text(processor.X86_64) == processor.ir_text(processor.X86_64)
    assert processor.build(processor.X86_64) == processor.build(processor.X86_64)


@pytest.mark.parametrize("machine", processor.MACHINES.values(), ids=lambda machine: machine.name)
def test_every_layout_offset_in_the_ir_is_filled_in(machine: processor.Machine) -> None:
    assert "$" not in processor.ir_text(machine)


def test_aarch64_passes_eight_integers_and_eight_floats_in_registers() -> None:
    shape = argument_shape(processor.AARCH64, "i" * 9 + "f" * 9)
    assert shape.slots == (*range(8), 16, *range(8, 16), 17)
    assert shape.head[3:] == (3, 18)  # stack: an integer, a float, the group
    packed = shape.pack(*shape.head, 0, 1, 1, 1, 1, 0, 0, *shape.gather([*range(9), *map(float, range(9))]))
    assert struct.unpack_from("<9q", packed, 48)[:8] == tuple(range(8))


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"this is 'riscv64'; the CPU device runs on x86_64 and aarch64"):
        processor.machine_named("riscv64")
