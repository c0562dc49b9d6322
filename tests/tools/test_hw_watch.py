"""Watching a vendor's runtime: its calls are seen, its rings found in them and read, and put beside ours.

The runtime here is our own driver on an emulated GPU, or AMD's on one that a supervisor shows it. NVIDIA's library is
never run on emulated hardware: its licence does not allow it.
"""

from __future__ import annotations

import array
import ctypes.util
import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hcq import backends, config
from hcq.amd.abi import kfd
from hcq.config import Config
from hcq.doctor.check import Failure, Skip, Status
from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import AroundPort
from hcq.tools import hcq_trace
from hcq.tools.hw import child, compare, driver_api, hsa_api, interpose, kernels, seen, watch
from hcq.tools.hw.bench import Bench
from hcq.tools.hw.memory_map import MemoryOfProcess
from hcq.tools.hw.plan import items, of_vendor
from hcq.trace.file import Trace

FIONREAD = 0x541B
WORDS = {"NV": "nv:sm_90", "AMD": "amd:gfx1100"}
ARCHS = {"NV": "sm_90", "AMD": "gfx1100"}


# -- interposing


def test_what_a_library_imports_is_called_through_the_hook_and_put_back():
    heard: list[tuple[Any, ...]] = []

    def wrap(original: Callable[..., int]) -> Callable[..., int]:
        def call(*given: Any) -> int:
            heard.append(given)
            return original(*given)

        return call

    reader, writer = os.pipe()
    os.write(writer, b"abc")
    count = array.array("i", [0])
    interposer = interpose.Interposer({"ioctl": (seen.IOCTL, wrap)})
    if not interposer.install(lambda name: "fcntl" in name):
        pytest.skip("this Python has fcntl built in")
    try:
        fcntl.ioctl(reader, FIONREAD, count)
        assert (count[0], heard[0][:2]) == (3, (reader, FIONREAD))
        with pytest.raises(OSError, match="Inappropriate"):  # the errno of the call is the caller's
            fcntl.ioctl(reader, 0x1234567, count)
        assert interposer.install(lambda name: "fcntl" in name) == 0
    finally:
        interposer.remove()
    fcntl.ioctl(reader, FIONREAD, count)
    assert len(heard) == 2


def test_memory_that_is_not_there_is_no_bytes():
    data = bytearray(b"0123456789")
    assert MemoryOfProcess().read(native.address_of(data), 10) == b"0123456789"
    assert MemoryOfProcess().read(16, 10) == b""
    assert MemoryOfProcess().read(2**63, 10) == b""


# -- a runtime that is our own driver


class SeenPort(AroundPort):
    """Hands ioctls and mappings to a Seen as a hooked library would."""

    def __init__(self, inner: EmulatedPort, watcher: seen.Seen, paths: dict[int, str]) -> None:
        super().__init__(inner)
        self.watcher, self.paths = watcher, paths

    def through(self, call: str, *arguments: Any) -> Any:
        if call == "open":
            fd = super().through(call, *arguments)
            self.paths[fd] = arguments[0]
            return fd
        if call == "mmap":
            va, size, prot, flags, fd, offset = arguments
            inner = super().through
            return self.watcher.mmap(lambda *given: inner("mmap", *given), va, size, prot, flags, fd, offset)
        if call != "ioctl":
            return super().through(call, *arguments)
        fd, request, argument = arguments
        refusal: list[DriverError] = []

        def original(fd: int, request: int, at: int) -> int:
            try:
                return int(AroundPort.through(self, "ioctl", fd, request, argument))
            except DriverError as error:
                refusal.append(error)
                return -1

        found = self.watcher.ioctl(original, fd, request, native.address_of(argument) if argument else None)
        if refusal:
            raise refusal[0]
        return found


@pytest.fixture
def watched(monkeypatch, tmp_path) -> Callable[[str], tuple[Any, seen.Seen]]:
    """An open device whose calls are seen."""
    opened: list[Any] = []

    def make(kind: str) -> tuple[Any, seen.Seen]:
        paths: dict[int, str] = {}
        monkeypatch.setattr(seen, "path_of", lambda fd: paths.get(fd, ""))
        (tmp_path / "watch").mkdir(exist_ok=True)
        watcher = seen.Seen(kind, tmp_path / watch.TRACE)
        machine = EmulatedPort([backends.load(backends.of(kind).emulation)([WORDS[kind]])])
        port = SeenPort(machine, watcher, paths)
        device = backends.load(backends.of(kind).device)(kind, port, Config.read({}))
        watcher.describe(device.arch, {"driver": "580.142"})
        opened.append(device)
        return device, watcher

    yield make
    for device in opened:
        device.close()


def launched(device: Any) -> None:
    x = device.alloc(1024, "x")
    x.write(bytes(1024))
    program = device.load(kernels.image(device.arch), "step")
    queue = device.queue().dispatch(program, [x, 256], block=(256, 1, 1))
    queue.copy(device.alloc(1024, "y"), x).submit().wait()


def test_nvidias_rings_are_found_in_the_calls_and_read_with_their_launches(watched):
    device, watcher = watched("NV")
    launched(device)
    found = of_vendor("NV", "rings_seen").rings(watcher, "sm_90", "580.142")
    (channel,) = found["channels"]
    fifo = device.channel.fifo
    assert channel["parameters"]["gpfifooffset"] == hex(fifo.va)
    assert channel["is_visible"]
    assert (channel["gp_put"], channel["slots_used"]) == (fifo.put, fifo.put)
    launches = [launch for slot in channel["slots"] for launch in slot.get("launches", ())]
    assert len(launches) == 1
    assert "QmdV4(" in launches[0]["qmd"]
    assert "cta_thread_dimension0=256" in launches[0]["qmd"]
    assert len(bytes.fromhex(launches[0]["bank"])) == 0x400
    assert {"SEND_PCAS_A", "SEM_EXECUTE", "LAUNCH_DMA"} <= set(found["methods"])


def test_amds_rings_are_found_in_the_calls_and_read_with_their_packets(watched):
    device, watcher = watched("AMD")
    launched(device)
    found = of_vendor("AMD", "rings_seen").rings(watcher, "gfx1100", "")
    by_type = {queue["parameters"]["queue_type"]: queue for queue in found["queues"]}
    assert set(by_type) == {"0x0", "0x1"}
    assert all(queue["is_visible"] for queue in by_type.values())
    assert {"DispatchDirect", "ReleaseMem", "CopyLinear"} <= set(found["packets"])
    assert by_type["0x0"]["write"] == device.rings["compute"].put


@pytest.mark.parametrize("kind", WORDS)
def test_the_trace_of_what_was_seen_reads_as_any_other(watched, tmp_path, capsys, kind):
    device, watcher = watched(kind)
    device.close()
    watcher.writer.flush()
    trace = Trace.read(str(tmp_path / watch.TRACE))
    assert len(compare.calls_of(trace)) == len(watcher.calls) > 10
    assert trace.devices[0].arch == ARCHS[kind]
    assert hcq_trace.main(["show", str(tmp_path / watch.TRACE), "--ioctls"]) == 0
    page = capsys.readouterr().out
    assert ("ChannelAlloc(" if kind == "NV" else "ProcessDeviceApertures(") in page


@pytest.mark.parametrize("kind", WORDS)
def test_a_driver_beside_itself_differs_in_nothing_and_an_other_call_is_told(watched, tmp_path, kind):
    device, watcher = watched(kind)
    device.close()
    watcher.writer.flush()
    trace = Trace.read(str(tmp_path / watch.TRACE))
    assert list(compare.differences(kind, [trace], trace)) == []
    less = Trace(trace.records[:8])
    lines = list(compare.differences(kind, [less], trace))
    assert any(line.startswith("the vendor alone: ") for line in lines)
    assert any("FERMI_VASPACE_A" in line or "CREATE_QUEUE" in line for line in lines)


@pytest.mark.parametrize("kind", WORDS)
def test_an_emulated_gpu_of_this_process_is_not_shown_to_a_vendors_runtime(monkeypatch, tmp_path, kind):
    monkeypatch.setenv("HCQ_EMULATE", WORDS[kind])
    config.use(None)
    item = next(one for one in items(kind) if one.name == "watch")
    try:
        with pytest.raises(Skip, match="emulated"):
            watch.watch(Bench(kind, tmp_path, item))
        assert child.run(item, Bench(kind, tmp_path, item)).status == Status.SKIPPED
    finally:
        config.use(None)


# -- AMD's runtime, on a GPU that a supervisor shows it


def supervised(*words: str) -> str:
    """What a Python program prints that sees an emulated gfx90a. Skips where programs cannot be supervised."""
    command = [sys.executable, "-m", "hcq", "emulate", "amd:gfx90a", "--", sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    if "HCQ_EMULATE" in done.stderr or "seccomp" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    return done.stdout


@pytest.mark.deadline(90)
@pytest.mark.skipif(not ctypes.util.find_library("amdhip64"), reason="libamdhip64 is not installed")
def test_amds_runtime_is_watched_launching_and_copying(tmp_path):
    folder = tmp_path / "report"
    supervised(
        "-m", "hcq.tools.hw_check", "-o", str(folder), "--device", "AMD", "--only", "watch,opening,compare"
    )
    data = json.loads((folder / "report.json").read_text())
    found = {one["name"]: one for one in data["checks"]}
    if "error" in found["watch"]["text"] and "HIP" in found["watch"]["text"]:
        pytest.skip(f"this HIP does not know the GPU: {found['watch']['text']}")
    assert {name: one["status"] for name, one in found.items()} == {
        "watch": "ok",
        "opening": "ok",
        "compare": "ok",
    }
    assert found["watch"]["figures"]["calls"] > 50
    packets = (folder / watch.PACKETS).read_text()
    for name in ("KernelDispatch(", "kernarg:", "BarrierAnd(", "Pm4Ib(", "CopyLinear"):
        assert name in packets, name
    differences = (folder / compare.DIFFERENCES).read_text()
    assert "the vendor alone: SET_MEMORY_POLICY (1 times)" in differences
    trace = Trace.read(str(folder / watch.TRACE))
    nested = {block.name for call in compare.calls_of(trace) for block in call.nested}
    assert {"device_ids_array_ptr", "kfd_process_device_apertures_ptr", "return_pointer"} <= nested


WITHOUT_HIP = """
import sys
from hcq.tools.hw import child, driver_api
driver_api.API["AMD"] = driver_api.API["AMD"]._replace(libraries=("libnothing.so.1",))
sys.exit(child.main(["watch", "AMD", sys.argv[1], "60"]))
"""


@pytest.mark.deadline(90)
@pytest.mark.skipif(not ctypes.util.find_library("hsa-runtime64"), reason="libhsa-runtime64 is not installed")
def test_where_hip_is_missing_the_runtime_below_it_is_watched(tmp_path):
    said = json.loads(supervised("-c", WITHOUT_HIP, str(tmp_path)).splitlines()[-1])
    if "HSA lists" in said["text"]:
        pytest.skip(f"this HSA does not know the GPU: {said['text']}")
    assert said["status"] == "ok", said["text"]
    assert said["text"].startswith("HSA 1.")
    rings = json.loads((tmp_path / watch.RINGS).read_text())
    assert list(rings) == ["copy in", "launch", "copy out"]
    assert rings["launch"]["packets"]["KernelDispatch"] == rings["copy in"]["packets"]["KernelDispatch"] + 1
    assert rings["copy out"]["packets"]["CopyLinearV4"] > rings["copy in"]["packets"]["CopyLinearV4"]
    requests = {call.request & 0xFFFF for call in compare.calls_of(Trace.read(str(tmp_path / watch.TRACE)))}
    assert kfd.CREATE_QUEUE.request & 0xFFFF in requests


def test_arguments_of_hsa_stand_at_multiples_of_their_sizes():
    given = ctypes.c_uint8(1), ctypes.c_void_p(2), ctypes.c_uint32(3), ctypes.c_uint16(4)
    assert hsa_api.pack(given) == struct.pack("<B7xQIH", 1, 2, 3, 4)


def test_a_call_of_hsa_that_is_refused_is_named_with_what_hsa_says_of_it(monkeypatch):
    def status_string(status: int, into: Any) -> int:
        ctypes.cast(into, ctypes.POINTER(ctypes.c_char_p))[0] = b"HSA_STATUS_ERROR_OUT_OF_RESOURCES"
        return 0

    library = SimpleNamespace(hsa_init=lambda: 0x1008, hsa_status_string=status_string)
    monkeypatch.setattr(hsa_api, "_library", lambda: library)
    with pytest.raises(Failure, match=r"hsa_init -> HSA status 0x1008[.] HSA_STATUS_ERROR_OUT_OF_RESOURCES"):
        hsa_api.HsaApi().open(0)


def test_without_hip_and_hsa_both_are_named_and_nvidias_side_asks_for_neither(monkeypatch):
    monkeypatch.setattr(hsa_api, "LIBRARIES", ("libnothing.so.2",))
    for kind in WORDS:
        monkeypatch.setitem(
            driver_api.API, kind, driver_api.API[kind]._replace(libraries=("libnothing.so.1",))
        )
    with pytest.raises(Skip, match=r"libnothing\.so\.1 is not .* libnothing\.so\.2 is not"):
        watch.runtime_of("AMD")
    with pytest.raises(Skip, match=r"libnothing\.so\.1 is not installed: what CUDA does is left out$"):
        watch.runtime_of("NV")


def test_the_trace_is_where_the_page_says():
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text()
    for name in (watch.TRACE, watch.RINGS, watch.PACKETS, compare.DIFFERENCES):
        assert Path(name).name in page
