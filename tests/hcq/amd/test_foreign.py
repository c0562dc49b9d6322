"""A program that is none of ours is traced, judged and reported on from below; our own driver is compared with."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcq.amd.abi import kfd
from hcq.amd.abi.descriptor import KernelDescriptor
from hcq.amd.device import AmdDevice
from hcq.amd.foreign import images
from hcq.amd.foreign.code_objects import CodeObjects
from hcq.amd.foreign.reader import KfdReader
from hcq.code import lines
from hcq.compiler.assemble import comgr
from hcq.emu.kernel import OwnProcess
from hcq.errors import DeviceFault
from hcq.events.foreign_devices import ForeignDevice
from hcq.events.kernel_observer import Call, Nested
from hcq.observe.foreign import report
from hcq.observe.lint import lint
from hcq.trace.file import Trace
from tests.hcq.amd.conftest import each_queue, fresh_port
from tests.hcq.amd.kernels import image
from tests.hcq.watched import WatchedDevice, meant

Open = Callable[..., AmdDevice]


class Watched(WatchedDevice):
    """written: what the driver put into its rings, by their kind."""

    def __init__(self, open_amd: Open, folder: Path, arch: str, queue: str = "", **settings: Any) -> None:
        port = fresh_port(f"amd:{arch}")
        super().__init__(folder, port, **settings)
        self.device: AmdDevice = open_amd(arch, queue=queue, port=port, trace=str(self.above))
        for ring in self.device.rings.values():
            ring.seen = []
        self.written: dict[str, bytes] = {}

    def close(self) -> tuple[Trace, Trace]:
        for ring in self.device.rings.values():
            self.written[ring.kind] = b"".join(ring.seen or ())
        return super().close()


@each_queue
def test_what_is_seen_below_is_what_the_driver_submitted_nothing_missing_and_nothing_added(
    open_amd: Open, tmp_path: Path, arch: str, queue: str
) -> None:
    watched = Watched(open_amd, tmp_path, arch, queue)
    watched.do_everything(image(arch))
    above, below = watched.close()
    # every byte that the driver put into a ring, in its order
    seen: dict[str, bytes] = {}
    for made in below.submissions:
        kind = made.queue.partition(" ")[0]
        seen[kind] = seen.get(kind, b"") + struct.pack(f"<{len(made.words)}I", *made.words)
    assert set(seen) == set(watched.written)
    for kind, words in watched.written.items():
        assert seen.get(kind, b"").endswith(words)  # before: what opening submits
    # kernels by name, grids, copies, fills, blocks that are run indirectly
    launches = [one for one in meant(above.submissions) if isinstance(one[0], str) and one[0] == "scale"]
    assert [one for one in meant(below.submissions) if one[0] == "scale"] == launches
    assert len(launches) == 5
    others = [one for one in meant(above.submissions) if one[0] != "scale"]
    assert [one for one in meant(below.submissions) if one[0] != "scale"] == others
    assert not watched.said
    assert not lint(below)


def test_arguments_are_read_where_the_kernel_finds_them(open_amd: Open, tmp_path: Path) -> None:
    for queue in ("pm4", "aql"):
        folder = tmp_path / queue
        folder.mkdir()
        watched = Watched(open_amd, folder, "gfx1100", queue)
        device = watched.device
        a, b = device.alloc(1024, "a"), device.alloc(1024, "b")
        program = device.load(image("gfx1100"), "scale", args=("buffer", "buffer", "int", "float", "float"))
        device.run(program, [b, a, 200, 3.0, 0.5], grid=(4, 1, 1), block=(64, 1, 1))
        _, below = watched.close()
        (launch,) = [
            command
            for made in below.submissions
            for command in made.all_commands()
            if command["verb"] == "dispatch"
        ]
        bits = (
            struct.unpack("<I", struct.pack("<f", 3.0))[0],
            struct.unpack("<Q", struct.pack("<d", 0.5))[0],
        )
        assert [arg["value"] for arg in launch["args"]] == [b.va, a.va, 200, *bits]
        assert [arg["kind"] for arg in launch["args"]] == [
            "buffer",
            "buffer",
            "unknown",
            "unknown",
            "unknown",
        ]
        (code,) = [code for code in below.code if code.name == "scale"]
        assert (code.image, code.entry) == (image("gfx1100"), "scale")


def test_memory_that_came_as_a_dma_buf_is_a_buffer_like_any_other() -> None:
    device = ForeignDevice("AMD", "AMD", "gfx1100", 7, OwnProcess(0, {}))
    reader = KfdReader(OwnProcess(0, {}), lambda gpu_id: device)

    def returned(call: Any, nested: bytes = b"", got: dict[str, int] | None = None, **given: int) -> None:
        before, after = call.layout(**given), call.layout(**{**given, **(got or {})})
        blocks = [Nested("ids", 0, nested, nested)] if nested else []
        reader.called(Call("/dev/kfd", call.request, before.to_bytes(), after.to_bytes(), nested=blocks))

    ids = (7).to_bytes(4, "little")
    returned(kfd.IMPORT_DMABUF, dmabuf_fd=9, va_addr=1 << 20, gpu_id=7, got={"handle": 5})
    returned(kfd.MAP_MEMORY_TO_GPU, ids, handle=5, n_devices=1)
    assert not device.live  # nobody knows how long it is
    returned(kfd.GET_DMABUF_INFO, dmabuf_fd=9, got={"size": 8192})
    returned(kfd.IMPORT_DMABUF, dmabuf_fd=9, va_addr=1 << 20, gpu_id=7, got={"handle": 6})
    returned(kfd.MAP_MEMORY_TO_GPU, ids, handle=6, n_devices=1)
    assert [(one.va, one.size_bytes) for one in device.live.values()] == [(1 << 20, 8192)]
    returned(kfd.EXPORT_DMABUF, handle=6, got={"dmabuf_fd": 11})
    returned(kfd.IMPORT_DMABUF, dmabuf_fd=11, va_addr=1 << 21, gpu_id=7, got={"handle": 8})
    returned(kfd.MAP_MEMORY_TO_GPU, ids, handle=8, n_devices=1)
    assert device.live[1 << 21].size_bytes == 8192


@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_a_page_fault_is_reported_with_the_kernel_and_the_argument(
    open_amd: Open, tmp_path: Path, queue: str
) -> None:
    watched = Watched(open_amd, tmp_path, "gfx1100", queue)
    device = watched.device
    a = device.alloc(1024, "a")
    program = device.load(image("gfx1100"), "scale")
    with pytest.raises(DeviceFault):
        device.run(program, [0xDEAD_0000, a, 64, 1.0, 0.0], grid=(1, 1, 1), block=(64, 1, 1))
    watched.session.close()
    page = next(text for text in watched.said if text.startswith("---- hcq report: page fault"))
    assert "kernel    scale" in page
    assert "argument  0 (out) is 0xdead0000 (not mapped" in page and "the very address" in page
    assert "global_store" in page and "0xdead0000" in page
    assert any("address-unmapped" in text and "argument 0" in text for text in watched.said)
    assert Trace.read(str(watched.below)).faults


def test_work_that_a_fault_left_behind_is_on_one_page(
    open_amd: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RAN_S", 0.0)  # whatever is in flight is old enough to tell
    watched = Watched(open_amd, tmp_path, "gfx1100", "aql")
    program = watched.device.load(image("gfx1100"), "scale")
    with pytest.raises(DeviceFault):
        watched.device.run(program, [0xDEAD_0000, 0xDEAD_0000, 64, 1.0, 0.0], block=(64, 1, 1))
    watched.session._pages(lambda reports: setattr(reports, "timeout_s", 0.0))
    watched.session.look()
    watched.session.close()
    (page,) = [text for text in watched.said if text.startswith("---- hcq report:")]
    assert "page fault" in page and "next to finish" in page


def test_work_that_does_not_end_is_reported_once_it_is_late(open_amd: Open, tmp_path: Path) -> None:
    watched = Watched(open_amd, tmp_path, "gfx1100", timeout_ms=1)
    device = watched.device
    gate, a = device.signal("gate"), device.alloc(1024, "a")
    done = device.queue().wait(gate, 1).fill(a, 1).submit()
    end = time.monotonic() + 50
    while not watched.said and time.monotonic() < end:
        time.sleep(0.002)
        watched.session.look()
    gate.set(1)
    done.wait()
    assert "has run for" in watched.said[0] and "next to finish" in watched.said[0]
    watched.close()


def test_a_kernel_whose_code_object_is_nowhere_is_called_by_its_address(
    open_amd: Open, tmp_path: Path
) -> None:
    watched = Watched(open_amd, tmp_path, "gfx1100", "aql")
    device = watched.device
    a = device.alloc(1024, "a")
    program = device.load(image("gfx1100"), "increment")
    reader = watched.session._of(device.port.inner.process).reader  # type: ignore[attr-defined]
    reader.code._objects_in_process = lambda: iter(())  # type: ignore[attr-defined]
    device.run(program, [a], grid=(1, 1, 1), block=(64, 1, 1))
    _, below = watched.close()
    assert [code.name for code in below.code] == [f"kernel at {program.entry:#x}"]
    assert not lint(below)


# ------------------------------------------------------------ code objects as a loader lays them out

SOURCE = """
#define X __builtin_amdgcn_workitem_id_x()
extern "C" __attribute__((global)) void first(int *out, int add) { out[X] += add; }
extern "C" __attribute__((global)) void second(float *out, const float *in, double by) {
  out[X] = in[X] * (float)by;
}
"""


@pytest.fixture(scope="module")
def linked() -> bytes:
    """A shared object with debug information, as hipcc makes them."""
    if not comgr.available() or "gfx90a" not in comgr.architectures():
        pytest.skip("needs AMD's comgr with gfx90a: apt install libamd-comgr2")
    return comgr.link([comgr.compile_hip(SOURCE, "gfx90a", options=("-g",))], "gfx90a")


class Loaded:
    """GPU memory that holds the segments of an object, as ROCr's loader puts them there."""

    def __init__(self, content: bytes, base: int) -> None:
        from hcq.code.elf import PT_LOAD, Object

        self.base = base
        segments = [one for one in Object(content).segments if one.type == PT_LOAD]
        self.memory = bytearray(max(one.va + one.memory_bytes for one in segments))
        for one in segments:
            self.memory[one.va : one.va + one.file_bytes] = content[one.offset : one.offset + one.file_bytes]

    def read(self, va: int, size_bytes: int) -> bytes:
        at = va - self.base
        return bytes(self.memory[at : at + size_bytes]) if 0 <= at <= len(self.memory) - size_bytes else b""


class Nobody:
    """A process that has no memory to search."""

    pid = 0

    def read(self, va: int, size_bytes: int) -> bytes:
        return b""


def descriptors(content: bytes) -> dict[str, int]:
    """Where the kernels' descriptors are, by an independent reader."""
    from io import BytesIO

    from elftools.elf.elffile import ELFFile

    table = ELFFile(BytesIO(content)).get_section_by_name(".dynsym")
    return {one.name: one["st_value"] for one in table.iter_symbols() if one.name.endswith(".kd")}


def test_a_kernel_in_gpu_memory_says_its_name_and_arguments_where_nothing_else_is_left(linked: bytes) -> None:
    gpu = Loaded(linked, 0x7F00_0000_0000)
    code = CodeObjects(Nobody())
    for symbol, offset in descriptors(linked).items():
        found = code.at_descriptor(gpu.base + offset, gpu.base, gpu.read)
        assert found is not None and found.metadata is not None
        assert f"{found.name}.kd" == symbol == found.symbol
        kinds = [arg.value_kind for arg in found.metadata.args if not arg.value_kind.startswith("hidden_")]
        assert (
            kinds
            == {
                "first": ["global_buffer", "by_value"],
                "second": ["global_buffer", "global_buffer", "by_value"],
            }[found.name]
        )
        assert found.line(found.entry) == ""  # debug information is not loaded


def test_the_source_line_comes_from_the_object_that_the_process_still_has(linked: bytes) -> None:
    gpu = Loaded(linked, 0x7F00_0000_0000)
    code = CodeObjects(Nobody())
    code._objects_in_process = lambda: iter([(b"something before" + linked, 16)])  # type: ignore[method-assign]
    for symbol, offset in descriptors(linked).items():
        found = code.at_descriptor(gpu.base + offset, gpu.base, gpu.read)
        assert found is not None and found.image == linked
        file, _, line = found.line(found.entry).rpartition(":")
        assert file.endswith("kernel.hip")
        assert SOURCE.splitlines()[int(line) - 1].startswith(
            f'extern "C" __attribute__((global)) void {found.name}'
        )
        assert symbol == f"{found.name}.kd"


def test_the_line_of_a_store_is_the_line_that_stores(linked: bytes) -> None:
    numbers = {lines.line_of(linked, at).rpartition(":")[2] for at in range(0, 1 << 16, 4)}
    assert {"3", "5"} <= numbers  # the bodies of both kernels
    assert lines.line_of(linked, 1 << 30) == ""
    assert lines.line_of(b"no object", 0) == ""


def test_damaged_objects_in_gpu_memory_are_none_and_raise_nothing(linked: bytes) -> None:
    draw = random.Random(7)
    for _ in range(200):
        gpu = Loaded(linked, 0x10_0000)
        for _ in range(draw.randrange(1, 8)):
            gpu.memory[draw.randrange(0x400)] = draw.randrange(256)
        made = images.from_memory(gpu.read, gpu.base)
        assert isinstance(made, bytes)
        for offset in descriptors(linked).values():
            CodeObjects(Nobody()).at_descriptor(gpu.base + offset, gpu.base, gpu.read)


def test_an_object_that_is_cut_off_is_none(linked: bytes) -> None:
    assert images.size_of(b"xx" + linked + b"yy", 2) == len(linked)
    for size in (0, 7, 8, 63, 64, len(linked) // 2, len(linked) - 1):
        assert images.size_of(linked[:size], 0) == 0
    assert KernelDescriptor.length_words == 16
