"""Ioctl numbers: those of linux/asm-generic/ioctl.h, with the package ioctl-opt and without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hcq.amd.abi import drm, kfd
from hcq.emu.supervisor import listener
from hcq.errors import UsageError
from hcq.nv.abi import ioctls as nv
from hcq.system import ioctl_numbers
from hcq.system.ioctl_numbers import NONE, READ, WRITE, ioctl_number

# as a C compiler prints them
KNOWN = {
    kfd.GET_VERSION.request: 0x80084B01,
    kfd.CREATE_QUEUE.request: 0xC0604B02,
    kfd.SET_EVENT.request: 0x40084B0A,
    kfd.CREATE_PROCESS.request: 0x00004B27,
    drm.VERSION_REQUEST: 0xC0406400,
    drm.INFO_REQUEST: 0x40206445,
    nv.RM_FREE.request: 0xC0104629,
    nv.RM_CONTROL.request: 0xC020462A,
    nv.RM_ALLOC.request: 0xC030462B,
    nv.RM_MAP_MEMORY.request: 0xC038464E,
    nv.CARD_INFO.request: 0xC90046C8,
    listener.RECV: 0xC0502100,
    listener.SEND: 0xC0182101,
    listener.ID_VALID: 0x40082102,
    listener.ADD_FD: 0x40182103,
}


def test_requests_are_those_that_a_c_compiler_computes():
    assert all(ours == known for ours, known in KNOWN.items()), {hex(a): hex(b) for a, b in KNOWN.items()}


def test_every_request_comes_apart_into_what_its_layout_says():
    for call in kfd.KFD_IOCTLS.values():
        assert call.request == ioctl_number(call.direction, "K", call.number, call.size_bytes)


def test_ioctl_opt_and_our_own_sum_agree():
    package = pytest.importorskip("ioctl_opt", reason="ioctl-opt is not installed")
    assert ioctl_numbers._compute is package.IOC
    for direction in (NONE, WRITE, READ, READ | WRITE):
        for letter, number, size in ((0, 0, 0), (0x46, 0x2A, 32), (255, 255, 16383), (1, 0, 1)):
            ours = ioctl_numbers._from_parts(direction, letter, number, size)
            assert ours == package.IOC(direction, letter, number, size)


def test_a_part_that_does_not_fit_its_bits_is_refused():
    for parts in ((4, "F", 0, 0), (-1, "F", 0, 0), (0, 256, 0, 0), (0, "F", 256, 0), (0, "F", -1, 0)):
        with pytest.raises(UsageError, match=r"ioctl_number: .*; takes a number from 0 to"):
            ioctl_number(*parts)
    with pytest.raises(UsageError, match="size_bytes=16384; an argument has at most 16383 bytes"):
        ioctl_number(READ, "F", 1, 1 << 14)


def test_the_numbers_are_the_same_where_ioctl_opt_is_not_installed(tmp_path: Path):
    (tmp_path / "ioctl_opt.py").write_text('raise ImportError("no ioctl_opt here", name="ioctl_opt")\n')
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, *{sys.path!r}]\n"
        "from hcq.system import ioctl_numbers\n"
        "from hcq.amd.abi import kfd\n"
        "from hcq.nv.abi import ioctls\n"
        "assert ioctl_numbers._compute is ioctl_numbers._from_parts\n"
        "print(hex(kfd.CREATE_QUEUE.request), hex(ioctls.RM_CONTROL.request))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("0xc0604b02 0xc020462a\n", "")
