"""Every kind of device in this tree keeps the contract that a new one is held to."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hcq.command import Copy, Fill
from tests.device_contract import DeviceContract
from tests.hcq.gpu.kernels import image
from tests.hcq.gpu.vendors import AMD, NV, Vendor
from tests.hcq.metal.conftest import fresh_metal

pytestmark = [pytest.mark.own_devices, pytest.mark.deadline(240)]


class TestCpu(DeviceContract):
    name = "CPU"

    def submit_a_fault(self, device: Any) -> Any:
        return device.submit([struct.pack("<2I", 0xFF, 0)], [])


class Gpu(DeviceContract):
    """An emulated GPU of some vendor, of the architecture that `switches` say."""

    vendor: ClassVar[Vendor]

    def port(self) -> Any:
        return self.vendor.fresh_port(self.switches["HCQ_EMULATE"].partition(":")[2])

    def submit_a_fault(self, device: Any) -> Any:
        program = device.load(image(device), "store_at")
        return device.queue().dispatch(program, [device.alloc(64), 1 << 40]).submit()


class TestAmd(Gpu):
    name = "AMD"
    vendor = AMD
    switches: ClassVar[dict[str, str]] = {"HCQ_EMULATE": f"amd:{AMD.arch}"}
    survives_faults = AMD.survives_faults


class TestAmdOfServers(Gpu):
    """Several XCCs, waves of 64 threads, AQL queues."""

    name = "AMD"
    vendor = AMD
    switches: ClassVar[dict[str, str]] = {"HCQ_EMULATE": "amd:gfx942"}
    survives_faults = AMD.survives_faults


class TestNvBeforeHopper(Gpu):
    """Another class of compute, whose launches are described by another packet."""

    name = "NV"
    vendor = NV
    switches: ClassVar[dict[str, str]] = {"HCQ_EMULATE": "nv:sm_80"}
    survives_faults = NV.survives_faults


class TestNv(Gpu):
    name = "NV"
    vendor = NV
    switches: ClassVar[dict[str, str]] = {"HCQ_EMULATE": f"nv:{NV.arch}"}
    survives_faults = NV.survives_faults


class TestMetal(DeviceContract):
    name = "METAL"
    switches: ClassVar[dict[str, str]] = {"HCQ_EMULATE": "metal:m3"}

    def port(self) -> Any:
        return fresh_metal("metal:m3", "metal:m1")

    def submit_a_fault(self, device: Any) -> Any:
        store = (
            b"kernel void store(device uint *p [[buffer(0)]], constant ulong &i [[buffer(1)]]) { p[i] = 1; }"
        )
        return device.queue().dispatch(device.load(store, "store"), [device.alloc(64), 1 << 40]).submit()


# ------------------------------------------------------------ the contract finds devices that break it


def encodes(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A device that encodes another command than it was given."""

    def plant(device: Any) -> None:
        encode = device.encode
        device.encode = lambda what: encode(change(what))

    return plant


def fills_too_far(what: Any) -> Any:
    return dataclasses.replace(what, size_bytes=what.size_bytes + 1) if isinstance(what, Fill) else what


def copies_whole_words(what: Any) -> Any:
    return dataclasses.replace(what, src=what.src & -8) if isinstance(what, Copy) else what


def has_a_coarse_clock(device: Any) -> None:
    device.moment_ns = lambda ticks: ticks // 1000


def loses_a_packet(device: Any) -> None:
    decode = device.decode
    device.decode = lambda words: decode(words)[:-1]


def raises_on_unknown_words(device: Any) -> None:
    decode = device.decode

    def careless(words: Any) -> Any:
        if any(word > 1 << 16 for word in words):
            raise IndexError("no such packet")
        return decode(words)

    device.decode = careless


def is_misaligned(device: Any) -> None:
    alloc = device.alloc
    device.alloc = lambda size, name=None: alloc(size + 8, name).view(8, size)


def drops_the_last_byte(device: Any) -> None:
    write = device.write_memory
    device.write_memory = lambda va, data, size: write(va, data[: size - 1], size - 1) if size > 1 else None


def forgets_to_wait(what: Any) -> Any:
    return dataclasses.replace(what, value=0) if type(what).__name__ == "Wait" else what


@pytest.mark.parametrize(
    ("plant", "promise", "case"),
    [
        (encodes(fills_too_far), "test_a_fill_writes_its_range_and_nothing_else", (5, 9, 1)),
        (
            encodes(copies_whole_words),
            "test_a_copy_moves_its_range_whatever_its_alignment_and_overlap",
            (3, 517, 41),
        ),
        (encodes(forgets_to_wait), "test_host_and_device_wake_each_other", ()),
        (has_a_coarse_clock, "test_its_clock_rises_and_is_the_hosts", ()),
        (loses_a_packet, "test_its_packets_decode_to_the_words_they_were_made_of", ()),
        (raises_on_unknown_words, "test_whatever_words_it_is_given_to_decode_it_does_not_raise", ()),
        (is_misaligned, "test_buffers_are_aligned_and_apart", ()),
        (drops_the_last_byte, "test_memory_keeps_what_the_host_writes", (4096,)),
    ],
    ids=lambda value: getattr(value, "__name__", "") if callable(value) else "",
)
def test_a_device_that_breaks_a_promise_is_found(
    plant: Callable[[Any], None], promise: str, case: tuple[int, ...]
) -> None:
    contract = TestCpu()
    device = contract.make(validate=False)
    getattr(contract, promise)(device, *case)
    device.close()
    device = contract.make(validate=False)
    plant(device)
    with pytest.raises((AssertionError, IndexError, pytest.fail.Exception)):
        getattr(contract, promise)(device, *case)
    device.close(timeout_ms=1000)


def test_the_page_on_adding_a_device_names_every_promise() -> None:
    text = (Path(__file__).parents[1] / "docs" / "adding-a-device.md").read_text(encoding="utf-8")
    promises = {name for name in vars(DeviceContract) if name.startswith("test_")}
    assert set(re.findall(r"`(test_\w+)`", text)) == promises
