"""The objects of the command processor that come with the package are what LLVM makes of its text."""

from __future__ import annotations

import pytest

from hcq.cpu import native_processor, processor

llvm = pytest.importorskip("llvmlite.binding")

from hcq.tools import processor_objects  # noqa: E402


@pytest.mark.parametrize("machine", processor.MACHINES.values(), ids=lambda machine: machine.name)
def test_the_object_in_the_package_is_the_one_that_llvm_makes(machine: processor.Machine) -> None:
    if llvm.llvm_version_info != processor_objects.LLVM:
        pytest.skip(f"another LLVM made the objects: {processor_objects.LLVM}")
    assert processor_objects.build(machine) == native_processor.image_of(machine)


def test_two_builds_are_the_same_bytes() -> None:
    assert processor_objects.build(processor.X86_64) == processor_objects.build(processor.X86_64)
