"""The driver on emulated kernel drivers of every release that has a table, and of some that have none."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from hcq.errors import DriverError
from hcq.nv.abi.ioctls import RELEASES, abi_for
from hcq.nv.device import NvDevice
from tests.hcq.nv.conftest import fresh_port

Open = Callable[..., NvDevice]


def works(device: NvDevice) -> bool:
    """Bytes go in, across and out."""
    data = struct.pack("<1024I", *range(1024))
    a, b = device.alloc(4096), device.alloc(4096)
    a.write(data)
    device.queue().copy(b, a).submit().wait()
    return b.read() == data


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_with_a_table_opens_and_works(
    open_nv: Open, release: int, capsys: pytest.CaptureFixture[str]
):
    device = open_nv("sm_90", f":driver={release}.86.10")
    assert device.abi.release == release
    assert works(device)
    text = capsys.readouterr().err
    assert ("may not fit" in text) == (release == 610)


def test_a_newer_release_than_all_says_which_table_it_takes(
    open_nv: Open, capsys: pytest.CaptureFixture[str]
):
    device = open_nv("sm_90", ":driver=777.10")
    assert works(device)
    assert "Driver 777.10 has no table of its own: the one of 610 is taken" in capsys.readouterr().err


@pytest.mark.parametrize("really", ["550.163.01", "570.211.01", "595.45.04"])
def test_a_release_without_a_table_that_takes_older_structures_is_found_out(open_nv: Open, really: str):
    """It calls itself 777 and refuses every structure that is not the one of another release."""
    port = fresh_port("nv:sm_90:driver=777.10")
    port.kernels[0].layouts = abi_for(really).layouts
    device = open_nv(port=port)
    assert device.abi.layout("ChannelAlloc") is abi_for(really).layout("ChannelAlloc")
    assert works(device)


def test_a_release_with_a_table_is_not_guessed_at(open_nv: Open):
    port = fresh_port("nv:sm_90:driver=580.142")
    port.kernels[0].layouts = abi_for("550.163.01").layouts
    with pytest.raises(DriverError, match="NV_ERR_INVALID_PARAM_STRUCT"):
        open_nv(port=port)


def test_a_release_that_is_too_old_is_refused_before_anything_is_opened(open_nv: Open):
    with pytest.raises(DriverError, match=r"535\.54\.03 is older than 550, the oldest known"):
        open_nv(port=_old())


def _old() -> object:
    port = fresh_port("nv:sm_90")
    inner = port.read_file

    def read_file(path: str) -> bytes:
        return inner(path).replace(b"580.142", b"535.54.03")

    port.read_file = read_file
    return port
