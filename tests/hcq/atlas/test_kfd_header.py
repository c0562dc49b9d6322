"""The KFD's atlas against the kernel's own header, at the version of the one that is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hcq.atlas.command import atlases
from hcq.system.abi_atlas import Interface

HEADER = Path("/usr/include/linux/kfd_ioctl.h")
KINDS = {"__u64": "uint64_t", "uint64_t": "uint64_t", "__u32": "uint32_t", "uint32_t": "uint32_t"}
ATLAS = atlases()["kfd"]

pytestmark = pytest.mark.skipif(
    not HEADER.is_file(), reason="linux/kfd_ioctl.h is not installed (linux-libc-dev)"
)


@pytest.fixture(scope="module")
def text() -> str:
    """The header without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text(), flags=re.S)


@pytest.fixture(scope="module")
def interface(text: str) -> Interface:
    """The atlas at the header's version."""
    (minor,) = re.findall(r"#define KFD_IOCTL_MINOR_VERSION\s+(\d+)", text)
    if int(minor) < 11:
        pytest.skip(f"this header is of 1.{minor}, older than the atlas")
    return ATLAS.at(ATLAS.resolve(f"1.{minor}").name)


def test_calls_are_those_of_the_header(text: str, interface: Interface) -> None:
    pattern = r"#define AMDKFD_IOC_(\w+)\s*\\?\s*AMDKFD_IO[WR]*\((0x[0-9A-Fa-f]+)(?:,[\s\\]*struct (\w+))?\)"
    found = {name: (int(number, 0), struct) for name, number, struct in re.findall(pattern, text)}
    end = int(re.findall(r"#define AMDKFD_COMMAND_END\s+(0x\w+)", text)[0], 0)
    ours = {
        call.name: (call.number, interface.structures[call.structure].header_name if call.structure else "")
        for call in interface.calls.values()
    }
    known = {
        name: one for name, one in found.items() if one[0] < end
    }  # others are of modules out of the tree
    assert known.keys() == ours.keys()
    unread = {call.name for call in interface.calls.values() if call.remark}
    for name, one in known.items():
        assert ours[name][0] == one[0]
        assert name in unread or ours[name] == one


def test_structures_are_laid_out_as_the_header_has_them(text: str, interface: Interface) -> None:
    cffi = pytest.importorskip("cffi", reason="lays structures out by the rules of C")
    compared = 0
    for name, body in re.findall(r"struct (kfd_\w+) \{([^{}]*)\};", text):
        members = re.findall(r"(\w+)\s+(\w+)\s*;", body)
        ours = [one for one in interface.structures.values() if one.header_name == name]
        if not ours or any(kind not in KINDS for kind, _ in members) or "[" in body.replace("attrs[]", ""):
            continue
        ffi = cffi.FFI()
        ffi.cdef(f"struct x {{ {' '.join(f'{KINDS[kind]} {member};' for kind, member in members)} }};")
        assert ffi.sizeof("struct x") == ours[0].size_bytes, name
        wanted = {member: ffi.offsetof("struct x", member) for _, member in members}
        assert {field.name: field.offset for field in ours[0].fields} == wanted, name
        compared += 1
    assert compared > 30
