"""What goes wrong is told in words, never hangs beyond its deadline, and leaves a device that works."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.errors import DeviceFault, DriverError, HcqError, UsageError, WaitTimeout
from hcq.layout import Ioctl
from hcq.nv import rings
from hcq.nv.abi import ioctls as calls
from hcq.nv.device import NvDevice
from hcq.nv.encode import Piece
from hcq.port import FaultyPort, refused
from tests.hcq.nv.conftest import fresh_port, settings_with
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


def works(nv: NvDevice) -> None:
    """The device computes and copies."""
    a, b = nv.alloc(256), nv.alloc(256)
    a.write(bytes(256))
    program = nv.load(image(nv.arch), "increment")
    nv.queue().dispatch(program, [a], block=(64, 1, 1)).copy(b, a).submit().wait(timeout_ms=50_000)
    assert struct.unpack("<64I", b.read()) == (1,) * 64


# ------------------------------------------------------------ opening


def calls_of_opening(kind: str) -> int:
    port = FaultyPort(fresh_port("nv:sm_90"), {})
    device = NvDevice("NV", port, settings_with())
    count = port.calls[kind]
    device.close()
    return count


@pytest.mark.parametrize("kind", ["open", "ioctl", "mmap", "read_file"])
def test_each_call_that_fails_while_opening_names_its_step_and_what_to_do(kind: str, open_nv: Open):
    steps = set()
    for allowed in range(calls_of_opening(kind)):
        inner = fresh_port("nv:sm_90")
        try:
            NvDevice("NV", FaultyPort(inner, {kind: (allowed, errno.EIO)}), settings_with()).close()
        except HcqError as error:
            text = str(error)
            assert text.startswith("open nvidia device: step "), text
            assert "EIO" in text
            assert "failed: " in text
            if kind == "ioctl":
                assert "NV_ESC_" in text or "UVM_" in text
            steps.add(text.split('"')[1])
        works(open_nv(port=inner))  # what was left behind does not stand in the way
    assert steps


class OneFault(FaultyPort):
    """Refuses one ioctl: the one with this number, counted from `arm`."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, {})
        self.count, self.refused = 0, -1

    def arm(self, number: int) -> None:
        self.count, self.refused = 0, number

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        self.count += 1
        if self.count - 1 == self.refused:
            raise refused(f"ioctl(fd={fd}, request={request:#x})", errno.EIO)
        return super().ioctl(fd, request, argument)


def busy_day(nv: NvDevice) -> None:
    """Whatever makes a device call its kernel driver: memory, local memory, long reads, a fault and what follows it."""
    a, b = nv.alloc(3 << 20, "a"), nv.alloc(3 << 20, "b")
    a.write(bytes(3 << 20))
    nv.run(nv.load(image(nv.arch), "local"), [a, 3], block=(64, 1, 1))
    nv.queue().copy(b, a).submit().wait(timeout_ms=50_000)
    assert b.read() == a.read()
    a.free()
    b.free()
    nv.memory.trim(0)
    # the address, or where RM does not say it the number
    with pytest.raises(DeviceFault, match=r"page fault|MMU fault"):
        nv.run(nv.load(image(nv.arch), "store_at"), [nv.alloc(64), 1 << 36])
    nv.queue().barrier().submit().wait(timeout_ms=50_000)


def test_each_ioctl_that_fails_while_a_device_works_is_named_and_it_can_be_opened_again(open_nv: Open):
    port = OneFault(fresh_port("nv:sm_90"))
    device = NvDevice("NV", port, settings_with())
    port.arm(-1)
    busy_day(device)
    device.close()
    count = port.count
    told = 0
    for number in range(count):
        port = OneFault(fresh_port("nv:sm_90"))
        device = NvDevice("NV", port, settings_with())
        port.arm(number)
        try:
            busy_day(device)
        except HcqError as error:
            told += 1
            assert "EIO" in str(error), str(error)
            assert "NV_ESC_" in str(error) or "UVM_" in str(error), str(error)
        device.close(timeout_ms=1000)
        port.arm(-1)  # how many calls a run makes may differ: this one may not have come so far
        again = open_nv(port=port)
        works(again)
        again.close()
    assert told > 5


def test_a_close_that_fails_is_told_and_does_not_stand_in_the_way(
    open_nv: Open, capsys: pytest.CaptureFixture[str]
):
    inner = fresh_port("nv:sm_90")
    port = FaultyPort(inner, {})
    device = NvDevice("NV", port, settings_with())
    port.plan = {"ioctl": (port.calls["ioctl"], errno.EIO)}
    device.close()
    assert "closing NV: UVM_UNREGISTER_CHANNEL(hchannel=0x" in capsys.readouterr().err
    works(open_nv(port=inner))


class Answering(FaultyPort):
    """A kernel driver that answers one call with a status."""

    def __init__(self, inner: Any, call: Ioctl, status: int, after: int = 0) -> None:
        super().__init__(inner, {})
        self.call, self.status, self.after = call, status, after

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        assert self.call.layout is not None
        layout: Any = self.call.layout
        if request == self.call.request:
            self.after -= 1
            if self.after < 0:
                name = "status" if "status" in layout.fields else "rmstatus"
                argument[: layout.size_bytes] = layout(
                    **{**layout.from_bytes(bytes(argument)).values, name: self.status}
                ).to_bytes()
                return 0
        return super().ioctl(fd, request, argument)


@pytest.mark.parametrize(
    ("call", "after", "says"),
    [
        (
            calls.RM_ALLOC,
            0,
            r'step 2/14 "create a client" failed: NV_ESC_RM_ALLOC\(hclass=0x41 NV01_ROOT_CLIENT',
        ),
        (calls.RM_ALLOC, 1, r'"create the device" failed: NV_ESC_RM_ALLOC\(hclass=0x80 NV01_DEVICE_0'),
        (calls.RM_CONTROL, 4, r'"ask for UUID and sizes" failed: FbGetInfoV2: NV_ESC_RM_CONTROL'),
        (
            calls.RM_MAP_MEMORY,
            0,
            r'"map the doorbell" failed: NV_ESC_RM_MAP_MEMORY\(hmemory=.*length=0x10000',
        ),
        (calls.UVM_REGISTER_GPU, 0, r'"register with UVM" failed: UVM_REGISTER_GPU'),
        (calls.UVM_REGISTER_GPU_VASPACE, 0, r'"create the address space" failed: UVM_REGISTER_GPU_VASPACE'),
        (
            calls.UVM_MAP_EXTERNAL_ALLOCATION,
            0,
            r'"make signals" failed: UVM_MAP_EXTERNAL_ALLOCATION\(base=0x',
        ),
        (calls.UVM_REGISTER_CHANNEL, 0, r'"create the channel" failed: UVM_REGISTER_CHANNEL\(hchannel=0x'),
    ],
)
def test_a_status_is_told_with_its_step_its_call_and_the_usual_cause(
    open_nv: Open, call: Ioctl, after: int, says: str
):
    inner = fresh_port("nv:sm_90")
    with pytest.raises(DriverError, match=says + r".* -> NV_ERR_INVALID_CLIENT \(0x23: .*Driver 580\.142"):
        NvDevice("NV", Answering(inner, call, 0x23, after), settings_with())
    works(open_nv(port=inner))


def test_full_clocks_are_asked_for_and_a_refusal_is_among_the_facts(open_nv: Open):
    class NoBoost(FaultyPort):
        def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
            if request == calls.RM_CONTROL.request and argument[8:12] == (0x2080200A).to_bytes(4, "little"):
                raise refused("ioctl", errno.EPERM)
            return super().ioctl(fd, request, argument)

    nv = open_nv(port=NoBoost(fresh_port("nv:sm_90"), {}))
    assert "EPERM" in nv.facts()["why_no_boost"]
    works(nv)


def test_without_the_kernel_driver_the_error_says_so():
    port = FaultyPort(fresh_port("nv:sm_90"), {"read_file": (0, errno.ENOENT)})
    with pytest.raises(
        DriverError, match=r"step 1/14 \"read the driver's version\" failed: .*ENOENT.*not loaded"
    ):
        NvDevice("NV", port)


def test_a_gpu_that_is_not_there_is_named(open_nv: Open):
    with pytest.raises(UsageError, match=r"NV:3: the driver shows 1 GPUs \(0x100\)"):
        open_nv(name="NV:3")


# ------------------------------------------------------------ running


def test_a_store_beyond_a_buffer_names_address_buffer_and_kernel(nv: NvDevice):
    out = nv.alloc(1 << 20, "result")
    bad = nv.load(image(nv.arch), "store_at")
    size = 1 << 20
    with pytest.raises(DeviceFault) as error:
        nv.run(bad, [out, size + 32])
    text = str(error.value)
    assert "the GPU took a page fault:" in text
    assert f"32 bytes after the end of buffer 'result' at {out.address:#x}" in text
    assert "store_at" in text
    assert "block (0, 0, 0)" in text  # what the emulated GPU adds
    with pytest.raises(DeviceFault, match="holds no result"):
        out.read()
    works(nv)


def test_a_kernel_that_never_ends_is_a_timeout_and_a_reset_ends_it(nv: NvDevice):
    out = nv.alloc(64, "counter")
    program = nv.load(image(nv.arch), "forever")
    with pytest.raises(
        WaitTimeout, match=r"waited 200 ms .*dispatch forever\(.*GPFIFO: the GPU has read up to"
    ):
        nv.queue().dispatch(program, [out]).submit().wait(timeout_ms=200)
    nv.reset()
    works(nv)


def test_a_kernel_that_the_driver_ends_is_a_fault_that_names_it(open_nv: Open):
    nv = open_nv("sm_90", options=":steps=2000")
    out = nv.alloc(64, "counter")
    with pytest.raises(DeviceFault, match=r"Xid \d+ .*forever.*dispatch forever\(0x"):
        nv.run(nv.load(image("sm_90"), "forever"), [out])
    works(nv)


def test_a_lost_doorbell_is_a_timeout_that_shows_how_far_the_gpu_has_read(open_nv: Open):
    nv = open_nv()
    works(nv)
    nv.channel.fifo._doorbell = memoryview(bytearray(4)).cast("I")  # stores go nowhere
    with pytest.raises(WaitTimeout, match=r"GPFIFO: the GPU has read up to \d+ of \d+ segments"):
        nv.queue().barrier().submit().wait(timeout_ms=50)
    nv.reset()
    works(nv)


def test_a_full_ring_is_a_timeout_that_names_it(open_nv: Open, small_ring: None):
    nv = open_nv(timeout_ms=300)
    never = nv.signal("never")
    nv.queue().wait(never, 1).submit()
    with pytest.raises(WaitTimeout, match=r"waited 300 ms for room. GPFIFO: the GPU has read up to"):
        for _ in range(64):
            nv.queue().barrier().submit()
    nv.reset()
    works(nv)


def test_a_kernel_that_wants_more_shared_memory_than_there_is_is_refused_when_it_is_loaded(nv: NvDevice):
    ptx = image(nv.arch).replace(b".shared .align 4 .b8 _tile[1024]", b".shared .align 4 .b8 _tile[300000]")
    ptx = ptx.replace(b".b8 tile[1024]", b".b8 tile[300000]")
    with pytest.raises(UsageError, match=r"load\('reverse'\): 30\d+ bytes of shared memory; sm_\d+ has \d+"):
        nv.load(ptx, "reverse")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            (0x2005_0000, 1, 2),
            r"Xid 32 \(ROBUST_CHANNEL_PBDMA_ERROR",
        ),  # a count of five with two words behind it
        ((0x2001_A000 | 0x2B4 >> 2, 0), "Xid"),  # a method of a subchannel that no class is bound to
        ((0x2001_2000 | 0xFFC >> 2, 0), "Xid"),  # a method that the class has not
        (
            (0x2001_2000 | 0x2B4 >> 2, 0x4000, 0x8000_2000 | 3 << 16 | 0x2C0 >> 2),
            "page fault",
        ),  # a QMD at nowhere
    ],
    ids=["count", "subchannel", "method", "qmd"],
)
def test_words_that_make_no_sense_stop_the_channel_and_a_new_one_takes_its_place(
    open_nv: Open, words: tuple[int, ...], says: str
):
    nv = open_nv(validate=False)
    works(nv)
    what = Piece(struct.pack(f"<{len(words)}I", *words))
    segment = nv.pushbuffer.take(4 * len(words), 0, 0, lambda value: value)
    nv.pushbuffer.bytes[segment : segment + len(what)] = what
    nv.channel.fifo.write([rings.segment(nv.pushbuffer.va + segment, len(words))], nv._wait_for_room)
    with pytest.raises(DeviceFault, match=says):
        nv.queue().barrier().submit().wait(timeout_ms=50_000)
    works(nv)


def test_running_out_of_memory_names_the_owners(open_nv: Open):
    nv = open_nv()
    held = [nv.alloc(3 << 30, f"weights {i}") for i in range(5)]
    with pytest.raises(
        DriverError, match=r"alloc\(3221225472\) on NV: out of memory. .*weights 0 3221225472 bytes"
    ):
        nv.alloc(3 << 30)
    del held
    works(nv)


def test_many_threads_open_use_and_close_devices(open_nv: Open):
    from concurrent.futures import ThreadPoolExecutor

    port = fresh_port("nv:sm_90")

    def session(number: int) -> None:
        device = NvDevice("NV", port, settings_with())
        try:
            works(device)
        finally:
            device.close()

    image("sm_90")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(session, range(12)))
