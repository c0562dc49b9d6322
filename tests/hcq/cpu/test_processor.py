"""The command processor's IR: one text for each machine, assembled for a baseline, linked by our own loader."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hcq.cpu import native_processor, processor
from hcq.cpu.encode import argument_shape
from hcq.cpu.link import link
from hcq.errors import DriverError, UsageError
from hcq.system import native
from hcq.system.port import LinuxPort

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
def test_the_package_has_an_object_of_todays_text_for_every_machine(machine: processor.Machine) -> None:
    extra = {name: native.symbol(name) for name in ("syscall", "clock_gettime")}
    image = native_processor.image_of(machine)  # missing? python tools/processor_objects.py
    mapping = link(image, LinuxPort(), machine.name, "processor", extra)
    assert set(mapping.functions) >= ENTRIES
    mapping.close()


def test_no_object_of_an_older_text_is_left() -> None:
    wanted = {native_processor.object_path(machine) for machine in processor.MACHINES.values()}
    assert {*native_processor.FOLDER.iterdir()} == wanted


@pytest.fixture
def without_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_processor, "FOLDER", tmp_path)
    monkeypatch.setattr(native_processor, "_offered", {})


def test_a_missing_object_is_an_error_that_says_how_it_is_made(without_objects: None) -> None:
    with pytest.raises(DriverError, match=r"processor-x86_64-\w+\.o is missing.*tools/processor_objects\.py"):
        native_processor.image_of(processor.X86_64)


def test_an_object_that_a_file_holds_is_taken_if_it_was_made_from_the_same_text(
    without_objects: None,
) -> None:
    native_processor.offer("0" * 64, b"of another text")
    native_processor.offer(native_processor.key_of(processor.X86_64), b"of this text")
    assert native_processor.image_of(processor.X86_64) == b"of this text"


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
