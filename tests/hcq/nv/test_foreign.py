"""A program that is none of ours is watched below NVIDIA's kernel driver; our own driver is compared with."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hcq.command import Copy
from hcq.errors import DeviceFault
from hcq.events.kernel_observer import Call, Client
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import Args
from hcq.nv.abi.gpfifo import GpEntry
from hcq.nv.abi.structures import history, structure
from hcq.nv.bundle import Bundle
from hcq.nv.cubin import Cubin
from hcq.nv.device import NvDevice
from hcq.nv.foreign.copied import CopiedMemory
from hcq.nv.foreign.kernels import Kernels
from hcq.nv.foreign.pushes import PushReader
from hcq.nv.foreign.ranges import Mapped, Ranges, Unmapped
from hcq.nv.rings import GpFifo
from hcq.observe.lint import lint
from hcq.system import native
from hcq.trace.file import Trace
from tests.hcq.nv.conftest import ARCHS, fresh_port
from tests.hcq.nv.kernels import image
from tests.hcq.nv.test_cubin import cubin_of
from tests.hcq.watched import WatchedDevice, meant

Open = Callable[..., NvDevice]


class Watched(WatchedDevice):
    def __init__(self, open_nv: Open, folder: Path, arch: str, options: str = "", **settings: Any) -> None:
        port = fresh_port(f"nv:{arch}{options}")
        super().__init__(folder, port, **settings)
        self.device: NvDevice = open_nv(arch, port=port, trace=str(self.above))


@pytest.fixture
def ringed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The words of all segments that our driver puts into a ring, in its order."""
    found: list[bytes] = []
    write = GpFifo.write

    def noted(self: GpFifo, entries: Sequence[int], wait: Callable[[int], None]) -> None:
        write(self, entries, wait)
        for entry in entries:
            shown = GpEntry.decode([entry & 0xFFFFFFFF, entry >> 32])
            found.append(native.read(shown.get, 4 * shown.length))

    monkeypatch.setattr(GpFifo, "write", noted)
    return found


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("options", ["", ":seed=3"])
def test_what_is_seen_below_is_what_the_driver_submitted_nothing_missing_and_nothing_added(
    open_nv: Open, tmp_path: Path, ringed: list[bytes], arch: str, options: str
) -> None:
    watched = Watched(open_nv, tmp_path, arch, options)
    watched.do_everything(image(arch))
    above, below = watched.close()
    launches = [one for one in meant(above.submissions) if one[0] == "scale"]
    assert [one for one in meant(below.submissions) if one[0] == "scale"] == launches
    assert len(launches) == 5
    stamps = watched.device.encoder.stamp_va + 8  # a time is written there and copied to its place
    others = [one for one in meant(below.submissions) if one[:1] + one[2:] != ("copy", stamps, 8)]
    assert others == list(meant(above.submissions))
    seen = [struct.pack(f"<{len(made.words)}I", *made.words) for made in below.submissions]
    assert b"".join(seen) == b"".join(ringed)
    assert not watched.said
    assert not lint(below)


def test_arguments_are_read_where_the_kernel_finds_them(open_nv: Open, tmp_path: Path) -> None:
    watched = Watched(open_nv, tmp_path, "sm_89")
    device = watched.device
    a, b = device.alloc(1024, "a"), device.alloc(1024, "b")
    program = device.load(image("sm_89"), "scale", args=("buffer", "buffer", "int", "float", "float"))
    device.run(program, [b, a, 200, 3.0, 0.5], grid=(4, 1, 1), block=(64, 1, 1))
    _, below = watched.close()
    (launch,) = [
        command
        for made in below.submissions
        for command in made.all_commands()
        if command["verb"] == "dispatch"
    ]
    assert [arg["value"] for arg in launch["args"]] == [b.va, a.va, 200, 3.0, 0.5]
    (code,) = [code for code in below.code if code.name == "scale"]
    assert b".entry scale" in code.image


def test_a_page_fault_is_reported_with_the_launch(open_nv: Open, tmp_path: Path) -> None:
    watched = Watched(open_nv, tmp_path, "sm_89")
    device = watched.device
    a = device.alloc(1024, "a")
    program = device.load(image("sm_89"), "scale")
    with pytest.raises(DeviceFault):
        device.run(program, [0xDEAD_0000, a, 64, 1.0, 0.0], grid=(1, 1, 1), block=(64, 1, 1))
    watched.session.close()
    page = next(text for text in watched.said if text.startswith("---- hcq report: page fault"))
    assert "Xid 31" in page and "\nkernel    scale\n" in page
    assert "argument  0 is 0xdead0000 (not mapped): the very address" in page
    assert Trace.read(str(watched.below)).faults


def test_a_kernel_that_the_gpu_gave_up_is_reported_with_its_name(open_nv: Open, tmp_path: Path) -> None:
    watched = Watched(open_nv, tmp_path, "sm_89", ":steps=3")
    device = watched.device
    a = device.alloc(1024, "a")
    program = device.load(image("sm_89"), "scale")
    with pytest.raises(DeviceFault):
        device.run(program, [a, a, 64, 1.0, 0.0], grid=(1, 1, 1), block=(64, 1, 1))
    watched.session.close()
    page = next(text for text in watched.said if text.startswith("---- hcq report: a kernel did not end"))
    assert "Xid 109" in page and "\nkernel    scale\nlaunch    kernel scale(" in page


def test_work_that_does_not_end_is_reported_once_it_is_late(open_nv: Open, tmp_path: Path) -> None:
    watched = Watched(open_nv, tmp_path, "sm_89", timeout_ms=1)
    device = watched.device
    gate, a = device.signal("gate"), device.alloc(1024, "a")
    done = device.queue().wait(gate, 1).fill(a, 1).submit()
    end = time.monotonic() + 50
    while not watched.said and time.monotonic() < end:
        time.sleep(0.002)
        watched.session.look()
    gate.set(1)
    done.wait(timeout_ms=30_000)
    assert "has run for" in watched.said[0] and "next to finish" in watched.said[0]
    watched.close()


@pytest.mark.parametrize("arch", ARCHS)
def test_words_that_make_no_sense_are_read_without_an_error(arch: str) -> None:
    import random

    rng = random.Random(arch)
    reader = PushReader(arch, lambda va, read: pytest.fail("no launch can be read"))
    for _ in range(200):
        words = struct.unpack("<40I", rng.randbytes(160))
        list(reader.read(words, lambda va, size_bytes: b""))


class OtherProcess(Client):
    """A process of which only the memory is searched."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def pid(self) -> int:
        return self._pid

    def read(self, va: int, size_bytes: int) -> bytes:
        raise NotImplementedError


@contextmanager
def keeper_of(data: bytes) -> Iterator[Client]:
    """A process that has these bytes in its memory."""
    program = f"import sys; data = sys.stdin.buffer.read({len(data)}); print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(data)
        child.stdin.flush()
        child.stdout.readline()
        yield OtherProcess(child.pid)


@pytest.mark.parametrize("arch", ARCHS)
def test_machine_code_is_named_by_the_cubin_that_the_process_still_has(arch: str) -> None:
    image = cubin_of(arch)
    cubin = Cubin(image)
    layout = cubin.layout()
    base = 0x7_0000_0000
    memory = cubin.link(layout, base)

    def read(va: int, size_bytes: int) -> bytes:
        at = va - base
        return memory[at : at + size_bytes] if 0 <= at <= len(memory) - size_bytes else b""

    with keeper_of(image) as keeper:  # in this process other tests have left kernels with the same code
        kernels = Kernels(keeper)
        for name, kernel in cubin.kernels.items():
            found = kernels.at(base + layout.places[kernel.code].offset, arch, read)
            assert (found.program.name, found.param_base) == (name, kernel.param_base)
            assert sum(one.size_bytes for one in found.program.parameters or ()) <= kernel.param_bytes
            assert len(found.program.parameters or ()) == len(kernel.parameters)
            assert Bundle.of(found.program.image).cubin == image
        somewhere = base + layout.places[kernel.code].offset + 16
        assert kernels.at(somewhere, arch, read).program.name == f"kernel at {somewhere:#x}"
        other = "sm_75" if arch != "sm_90" else "sm_100"  # of another generation
        assert not Kernels(keeper).at(base + layout.places[kernel.code].offset, other, read).program.is_found


def test_which_addresses_are_mapped_is_what_calls_say_that_were_not_refused() -> None:
    ranges = Ranges()
    uuid = bytes(range(1, 17))

    def said(ioctl: Any, layout: type[Args], error: int = 0, **fields: int) -> Mapped | Unmapped | None:
        raw = layout(**fields).to_bytes()
        return ranges.change(Call("/dev/nvidia-uvm", ioctl.request, raw, raw, error, []))

    made = {"base": 0x1000, "length": 0x4000}
    gpu = int.from_bytes(uuid, "little")
    mapped = {"base": 0x2000, "length": 0x1000, "hclient": 5, "hmemory": 6, "offset": 0x3000}
    first = {**mapped, "gpuattributescount": 1, "pergpuattributes_0_gpuuuid": gpu}
    assert said(abi.UVM_CREATE_EXTERNAL_RANGE, structure("UvmCreateExternalRange"), **made) is None
    assert (
        said(abi.UVM_MAP_EXTERNAL_ALLOCATION, structure("UvmMapExternalAllocation"), **first, rmstatus=1)
        is None
    )
    assert (
        said(abi.UVM_MAP_EXTERNAL_ALLOCATION, structure("UvmMapExternalAllocation"), error=22, **first)
        is None
    )
    assert said(abi.UVM_MAP_EXTERNAL_ALLOCATION, structure("UvmMapExternalAllocation"), **first) == Mapped(
        0x2000, 0x1000, (5, 6), 0x3000, (uuid,)
    )
    one = {"base": 0x2000, "length": 0x1000, "gpuuuid": gpu}
    assert said(abi.UVM_UNMAP_EXTERNAL, structure("UvmUnmapExternal"), **one) == Unmapped(
        0x2000, 0x3000, uuid
    )
    for layout in history("UvmFree"):
        said(abi.UVM_CREATE_EXTERNAL_RANGE, structure("UvmCreateExternalRange"), **made)
        assert said(abi.UVM_FREE, layout, base=0x1000, rmstatus=1) is None
        assert said(abi.UVM_FREE, layout, base=0x1000) == Unmapped(0x1000, 0x5000, None)


def test_memory_that_cannot_be_read_is_what_was_copied_there() -> None:
    here = bytes(range(256))

    def read(va: int, size_bytes: int) -> bytes:
        return here[va : va + size_bytes] if va + size_bytes <= len(here) else b""

    memory = CopiedMemory()
    known = memory.over(read)
    for copy in (Copy(0x1000, 0, 100), Copy(0x1010, 200, 4), Copy(0x2000, 0x1000, 20), Copy(5, 200, 4)):
        memory.note(copy, read)
    assert known(0x1000, 100) == here[:16] + here[200:204] + here[20:100]
    assert known(0x2000, 20) == here[:16] + here[200:204]  # copied on from where it cannot be read, either
    assert known(5, 4) == here[5:9]  # what can be read is as it is
    assert known(0x1000, 101) == known(0x3000, 1) == b""  # half of it is not enough
    memory.forget(0x1000, 0x1010)
    assert known(0x1000, 16) == b"" and known(0x1010, 4) == here[200:204]
    for number in range(2000):
        memory.note(Copy(0x10000 + 0x1000 * number, 0, 256), read)
    assert (
        known(0x10000, 1) == b"" and known(0x10000 + 0x1000 * 1999, 1) == here[:1]
    )  # the oldest are forgotten
    assert memory.size_bytes == sum(map(len, memory.pieces.values()))
