"""What the driver does because the kernel module or the hardware is so, where an easier way would have worked here."""

from __future__ import annotations

import dataclasses
import errno
import random
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hcq.doctor.kernels import ENTRY
from hcq.errors import DeviceFault, UsageError
from hcq.nv import rings
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import USERMODE_BYTES
from hcq.nv.bundle import Bundle
from hcq.nv.channel import WINDOW_BYTES
from hcq.nv.chip import CHIPS
from hcq.nv.device import NvDevice
from hcq.nv.doctor import DOCTOR
from hcq.nv.link import STACK_RESERVE_BYTES, Linked
from hcq.nv.rings import GpFifo
from hcq.nv.toolchain import library, nvjitlink
from hcq.system import native
from hcq.system.port import AroundPort, Port, refused
from tests.hcq.emu.nv.shader.running import needs_nvjitlink
from tests.hcq.nv.conftest import fresh_port
from tests.turns import seeds

Open = Callable[..., NvDevice]
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_sms_are_counted_by_the_masks_of_what_is_there(open_nv: Open):
    """LITTER values multiply to the design's: 144 on an H200, which has 132. Local memory is the design's."""
    device = open_nv("sm_90")
    assert (device.gpu.sm_count, device.gpu.tpc_count) == (6, 4)
    assert device.facts()["threads"] == 6


def without(control: int, *words: str) -> Port:
    """A machine whose sandbox does not let this control through."""
    port = fresh_port(*words)
    del port.kernels[0].replies[control]
    return port


def test_where_the_masks_are_not_told_sms_are_those_of_the_design(open_nv: Open):
    device = open_nv(port=without(ControlId.NV2080_CTRL_CMD_GR_GET_TPC_MASK, "nv:sm_90"))
    assert device.gpu.sm_count == 8


@pytest.mark.parametrize("arch", ["sm_86", "sm_90"])
def test_the_window_for_context_buffers_is_as_large_as_rm_says(open_nv: Open, arch: str):
    device = open_nv(arch)
    told = device.rm.control(
        device.gpu.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, hchannel=device.channel.handle
    ).values["totalbuffersize"]
    assert told <= device.channel.window_bytes < told + (5 << 20)


def test_where_rm_does_not_say_the_window_is_large(open_nv: Open):
    device = open_nv(port=without(ControlId.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, "nv:sm_90"))
    assert device.channel.window_bytes == WINDOW_BYTES == 512 << 20


class Onlooker(AroundPort):
    """Looks at the device after each call that unregisters a channel, as a thread that waits would."""

    device: NvDevice

    def __init__(self, inner: Port) -> None:
        super().__init__(inner)
        self.seen: list[tuple[int, bool, str]] = []

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        result = super().ioctl(fd, request, argument)
        if request == abi.UVM_UNREGISTER_CHANNEL.request:
            xid = int.from_bytes(self.device.channel.notifier[8:12], "little")
            self.seen.append((xid, self.device.has_event(), self.device.stopped_on()))
        return result


def test_a_channel_that_is_torn_down_has_not_failed_although_its_notifier_says_45(open_nv: Open):
    port = Onlooker(fresh_port("nv:sm_90"))
    device = open_nv(port=port)
    port.device = device
    a, b = device.alloc(64), device.alloc(64)
    a.write(bytes(64))
    device.queue().copy(b, a).submit()
    device.reset()
    device.queue().copy(b, a).submit().wait()
    assert "45" not in str(device.failures)
    device.close()
    assert port.seen == [(45, False, "")] * len(port.seen) and port.seen


class Counted:
    """GP_GET, of which reads are counted."""

    def __init__(self, inner: memoryview) -> None:
        self.inner, self.reads = inner, 0

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.inner[index]


def copy_again_and_again(device: NvDevice, times: int) -> None:
    a, b = device.alloc(64), device.alloc(64)
    for number in range(times):
        a.write(struct.pack("<16I", *[number] * 16))
        device.queue().copy(b, a).submit().wait()
        assert b.read(0, 4) == struct.pack("<I", number)


def test_gp_get_is_read_only_when_the_ring_seems_full(open_nv: Open, small_ring: None):
    """Each read goes over BAR1, about a microsecond; what the timeline has passed needs none."""
    device = open_nv("sm_90")
    fifo: Any = device.channel.fifo
    fifo._get = counted = Counted(fifo._get)
    copy_again_and_again(device, 200)
    assert counted.reads == 0


def test_where_gp_get_is_written_when_a_channel_stops_alone_the_ring_never_seems_full(
    open_nv: Open, small_ring: None
):
    """CONFIG_USERD_WRITEBACK (dev_pbdma.ref): GP_GET can be as old as the channel."""
    device = open_nv("sm_90", options=":late-get", timeout_ms=2000)
    copy_again_and_again(device, 200)
    assert device.channel.fifo._get[0] == 0
    assert [(ring.get, ring.packet) for ring in device.ring_states()] == [
        (device.channel.fifo.put, "nothing: all segments are read")
    ]


@pytest.mark.parametrize("options", ["", ":late-get", ":seed=3", ":seed=5:late-get"])
def test_no_entry_is_overwritten_before_it_was_read(open_nv: Open, small_ring: None, options: str):
    """The GPU waits while the host fills the ring; then everything that was submitted happens, in order."""
    device = open_nv("sm_90", options=options, timeout_ms=20_000)
    copy_again_and_again(device, 45)  # the ring is somewhere in its second turn
    go, x = device.signal("go"), device.alloc(64)
    x.write(bytes(64))
    device.queue().wait(go, 1).submit()
    releasing = threading.Timer(0.3, lambda: go.set(1))
    releasing.start()
    for number in range(1, 100):
        device.queue().fill(x, number, value_bytes=4).submit()
    device.synchronize()
    releasing.join()
    assert x.read(0, 4) == struct.pack("<I", 99)


class OwnFifo(GpFifo):
    """A ring in memory of the test's own, whose GPU is the test."""

    def __init__(self) -> None:
        self.memory = bytearray(GpFifo.size_bytes())
        super().__init__(native.address_of(self.memory), memoryview(bytearray(USERMODE_BYTES)))


def wait_never(count: int) -> None:
    raise AssertionError(f"no room for {count}")


@pytest.mark.parametrize("seed", seeds(10, of=40))
def test_whatever_gp_get_says_and_however_late_no_entry_is_taken_for_read_that_was_not(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Of a GP_GET that is a turn old, the place in the ring says nothing of which turn it is."""
    draw = random.Random(seed)
    monkeypatch.setattr(rings, "ENTRIES", 16)
    fifo = OwnFifo()
    done = read = value = 0
    ends: list[int] = []  # `put` behind each submission
    fifo.passed = lambda: done
    userd = fifo._get
    for _ in range(2000):
        what = draw.random()
        if what < 0.4:
            count = draw.randint(1, 4)
            if fifo.has_room(count):
                assert fifo.put + count - read < fifo.entries
                fifo.write([0] * count, wait_never)
                value += 1
                ends.append(fifo.put)
                fifo.mark(value)
        elif what < 0.7:
            read = min(fifo.put, read + draw.randint(0, 9))
        elif what < 0.9:
            done = sum(end <= read for end in ends)
        elif draw.random() < seed / 40:
            userd[0] = read % fifo.entries
    assert value > 100


def test_what_is_taken_back_from_the_ring_is_not_taken_for_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rings, "ENTRIES", 16)
    fifo = OwnFifo()
    fifo.write([0] * 3, wait_never)
    fifo.mark(1)
    fifo.write([0] * 9, wait_never)
    fifo.mark(2)
    fifo.take_back(3)
    fifo.write([0], wait_never)
    fifo.mark(2)
    fifo.passed = lambda: 2
    assert fifo.get == 4


def test_gp_put_is_read_back_where_the_doorbell_may_overtake_it(open_nv: Open):
    """kbusFlushPcieForBar0Doorbell_GH100: GH100 and later, where the doorbell is in BAR0 and not in BAR1."""
    assert not open_nv("sm_90").channel.fifo.reads_put_back
    assert not open_nv("sm_80").channel.fifo.reads_put_back
    fresh = fresh_port("nv:sm_90")
    device = open_nv(port=WithoutClass(fresh, ClassId.HOPPER_USERMODE_A))
    assert device.channel.fifo.reads_put_back
    copy_again_and_again(device, 3)


class WithoutClass(AroundPort):
    """A sandbox that does not let objects of a class be made."""

    def __init__(self, inner: Port, class_id: int) -> None:
        super().__init__(inner)
        self.class_id = class_id

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        is_allocation = request & 0xFFFF == abi.RM_ALLOC.request & 0xFFFF
        if is_allocation and int.from_bytes(argument[12:16], "little") == self.class_id:
            raise refused("ioctl", errno.EINVAL)
        return super().ioctl(fd, request, argument)


@pytest.mark.parametrize("arch, sass", [("sm_80", 0x80), ("sm_86", 0x86), ("sm_90", 0x90), ("sm_120", 0xA4)])
def test_the_sass_version_of_launches_is_that_of_the_sms_as_rm_tells_it(open_nv: Open, arch: str, sass: int):
    """sm_120 counts on from sm_100: its SM_VERSION is 0xa04, whatever its architecture is called."""
    device = open_nv(arch)
    assert (device.chip.sass_version, device.facts()["sass_version"]) == (sass, f"{sass:#x}")


def test_a_row_of_chips_takes_the_sass_version_that_rm_tells(open_nv: Open):
    assert CHIPS["sm_90"].with_sms(0xC03).sass_version == 0xC3
    assert CHIPS["sm_90"].with_sms(0) is CHIPS["sm_90"]


def test_a_launch_of_another_sass_version_is_refused(open_nv: Open, monkeypatch: pytest.MonkeyPatch):
    device = open_nv("sm_120", timeout_ms=5000)
    device.chip = dataclasses.replace(device.chip, sass_version=0xC0)
    out, a = device.alloc(256), device.alloc(256)
    program = device.load(DOCTOR.kernel(device.arch).image, ENTRY)
    with pytest.raises(DeviceFault, match="SASS_VERSION is 0xc0; the SMs are of 0xa4"):
        device.run(program, [out, a], block=(64, 1, 1))


SPILL = """.visible .entry k(.param .u64 out, .param .u32 n)
{ .reg .b32 %r<4>; .reg .b64 %rd<5>; .local .align 16 .b8 own[64];
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n]; cvt.u64.u32 %rd2, %r1; mov.u64 %rd3, own; add.u64 %rd3, %rd3, %rd2;
  st.local.u32 [%rd3], %r1; ld.local.u32 %r2, [own+8]; st.global.u32 [%rd1], %r2; ret; }
"""
ALLOCA = """.visible .entry k(.param .u64 out, .param .u32 n)
{ .reg .b32 %r<4>; .reg .b64 %rd<5>; ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
  alloca.u32 %r2, %r1; st.local.u32 [%r2], %r1; ld.local.u32 %r3, [%r2+4]; st.global.u32 [%rd1], %r3; ret; }
"""


def linked(ptx: str, arch: str = "sm_80", **fields: Any) -> Linked:

    return Linked(Bundle(nvjitlink.link_ptx(ptx, arch), ptx.encode()), "k", CHIPS[arch], "k", **fields)


@needs_nvjitlink
@pytest.mark.parametrize("arch", list(CHIPS))
def test_only_what_a_cubin_cannot_count_has_a_reserve_of_stack(arch: str):
    """A KiB for every thread of an H200 is 264 MiB."""
    assert linked(HEAD + SPILL, arch).kernel.stack_bytes == 64
    assert linked(HEAD.replace("8.0", "8.3") + ALLOCA, arch).kernel.stack_bytes == STACK_RESERVE_BYTES


@needs_nvjitlink
def test_the_ptx_is_not_uploaded_to_a_gpu_that_runs_machine_code():
    ptx = HEAD + SPILL
    emulated, real = linked(ptx), linked(ptx, keeps_ptx=False)
    assert ptx.encode() in emulated.place(0x6_0000_0000)
    image = real.place(0x6_0000_0000)
    assert b".entry" not in image and b"HCQPTX" not in image
    assert len(image) <= real.size_bytes < emulated.size_bytes - len(ptx)
    assert real.kernel == emulated.kernel


VARIABLE = """.visible .global .align 4 .u32 table[4] = {7, 8, 9, 10};
.visible .entry k(.param .u64 out)
{ .reg .b64 %rd<3>; .reg .b32 %r<2>; ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [table+8];
  st.global.u32 [%rd1], %r1; ret; }
"""


@needs_nvjitlink
def test_ptx_with_variables_is_linked_when_it_is_loaded(open_nv: Open):
    device = open_nv("sm_90")
    out = device.alloc(64)
    device.run(device.load((HEAD + VARIABLE).encode(), "k"), [out], grid=(1, 1, 1), block=(1, 1, 1))
    assert out.read()[:4] == (9).to_bytes(4, "little")


def test_without_nvjitlink_ptx_with_variables_is_refused_with_what_to_install(
    open_nv: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(library, "candidates", lambda name: [])
    nvjitlink.library.cache_clear()
    device = open_nv("sm_90")
    with pytest.raises(UsageError, match=r"nvJitLink is not installed.* pip install 'hcq\[nv\]'"):
        device.load((HEAD + VARIABLE).encode(), "k")
    nvjitlink.library.cache_clear()
