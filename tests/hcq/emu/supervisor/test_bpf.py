"""The filter asks about the calls that it names and lets all others run, on both machines: it is interpreted here."""

from __future__ import annotations

import errno
import struct

import pytest

from hcq.emu.supervisor.bpf import ABIS, IOCTL_TYPES, RET_ALLOW, RET_USER_NOTIF, program
from hcq.emu.supervisor.listener import refused_install


def verdict(code: bytes, number: int, arch: int, request: int = 0) -> int:
    """What the kernel's interpreter of classic BPF makes of a call."""
    data = struct.pack("<iIQ6Q", number, arch, 0, 3, request, 0, 0, 0, 0)
    at = accumulator = 0
    while True:
        operation, if_true, if_false, k = struct.unpack_from("<HBBI", code, 8 * at)
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif operation == 0x15:
            at += if_true if accumulator == k else if_false
        elif operation == 0x74:
            accumulator >>= k
        elif operation == 0x54:
            accumulator &= k
        else:
            assert operation == 0x06
            return int(k)


@pytest.mark.parametrize("name", ABIS)
def test_only_what_is_named_is_asked_about(name: str) -> None:
    abi = ABIS[name]
    code = program(abi)
    for number in range(600):
        known = abi.calls.get(number)
        expected = RET_USER_NOTIF if known not in (None, "ioctl") else RET_ALLOW
        assert verdict(code, number, abi.audit_arch, 0x5401) == expected, (number, known)  # of ioctls: TCGETS
        assert verdict(code, number, 0x40000003) == RET_ALLOW  # 32-bit programs have other numbers


@pytest.mark.parametrize("name", ABIS)
def test_of_ioctls_only_those_of_gpus_types_are_asked_about(name: str) -> None:
    abi = ABIS[name]
    code = program(abi)
    (ioctl,) = (number for number, call in abi.calls.items() if call == "ioctl")
    for kind in range(256):
        expected = RET_USER_NOTIF if kind in IOCTL_TYPES else RET_ALLOW
        assert verdict(code, ioctl, abi.audit_arch, 0xC0184B18 & ~0xFF00 | kind << 8) == expected


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_a_system_that_forbids_it_is_told_with_the_way_out(number: int) -> None:
    text = str(refused_install(number))
    assert errno.errorcode[number] in text
    assert "hcq.emu.attach" in text
