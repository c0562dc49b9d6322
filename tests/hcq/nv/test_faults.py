"""What goes wrong is told in words, never hangs beyond its deadline, and leaves a device that works."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.errors import DeviceFault, DriverError, UsageError
from hcq.layout import Ioctl
from hcq.nv import rings
from hcq.nv.abi import ioctls as calls
from hcq.nv.device import NvDevice
from hcq.nv.encode import Piece
from hcq.system.port import FaultyPort, refused
from tests.hcq.gpu.kernels import works
from tests.hcq.nv.conftest import fresh_port, settings_with
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


# ------------------------------------------------------------ opening


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


# ------------------------------------------------------------ running


def test_a_kernel_that_the_driver_ends_is_a_fault_that_names_it(open_nv: Open):
    nv = open_nv("sm_90", options=":steps=2000")
    out = nv.alloc(64, "counter")
    with pytest.raises(DeviceFault, match=r"Xid \d+ .*forever.*dispatch forever\(0x"):
        nv.run(nv.load(image("sm_90"), "forever"), [out])
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
    segment = nv.uploads.take(4 * len(words), 0, 0, lambda value: value)
    nv.uploads.bytes[segment : segment + len(what)] = what
    nv.channel.fifo.write([rings.segment(nv.uploads.va + segment, len(words))], nv._wait_for_room)
    with pytest.raises(DeviceFault, match=says):
        nv.queue().barrier().submit().wait(timeout_ms=50_000)
    works(nv)
