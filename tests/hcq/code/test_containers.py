"""Containers of code objects: opened where something in them is for the device, and named otherwise."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import hcq
from hcq.code import containers, lz4
from hcq.errors import UsageError
from hcq.nv import fatbin
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.amd.kernels import image as amd_image
from tests.hcq.nv.conftest import open_nv as open_nv

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [out];
    st.global.u32 [%d1], 7;
    ret;
}
"""
FIRST_BYTES = {
    b"CCOB\3\0\0\0": "compressed clang offload bundle",
    b"__CLANG_OFFLOAD_BUNDLE__": "clang offload bundle",
    b"\x10\xff\x10\xad\x01\0\0\0": "LLVM offload binary",
    b"\x50\xed\x55\xba\x01\0\x10\0": "NVIDIA fat binary",
    b"\xb1\x43\x62\x46": "wrapper of an NVIDIA fat binary",
    b"MTLB": "Metal library",
    b"!<arch>\n": "archive of ar",
    b"!<thin>\n": "thin archive",
    b"BC\xc0\xde": "LLVM bitcode",
    b"\xde\xc0\x17\x0b": "LLVM bitcode in a wrapper",
    b"\x03\x02\x23\x07": "SPIR-V module",
}


def bundle(parts: dict[str, bytes]) -> bytes:
    """As clang-offload-bundler writes one."""
    head = sum(24 + len(name) for name in parts) + 32
    table, data = struct.pack("<Q", len(parts)), b""
    for name, part in parts.items():
        table += struct.pack("<QQQ", head + len(data), len(part), len(name)) + name.encode()
        data += part
    return b"__CLANG_OFFLOAD_BUNDLE__" + table + data


def compressed(whole: bytes, version: int) -> bytes:
    """CCOB by zlib."""
    data = zlib.compress(whole)
    head = {1: 20, 2: 24, 3: 32}[version]
    sizes = {1: "<I", 2: "<II", 3: "<QQ"}[version]
    numbers = (len(whole),) if version == 1 else (head + len(data), len(whole))
    return b"CCOB" + struct.pack("<HH", version, 0) + struct.pack(sizes, *numbers) + bytes(8) + data


def package(parts: dict[str, bytes]) -> bytes:
    """As clang-offload-packager writes it: a binary for each part."""
    made = b""
    for arch, part in parts.items():
        text = b"triple\0amdgcn-amd-amdhsa\0arch\0" + arch.encode() + b"\0"
        strings = struct.pack("<4Q", 104, 111, 104 + 25, 104 + 30)
        image_at = -(-(104 + len(text)) // 8) * 8
        size = -(-(image_at + len(part)) // 8) * 8
        entry = struct.pack("<HHIQQQQ", 1, 2, 0, 72, 2, image_at, len(part))
        head = b"\x10\xff\x10\xad" + struct.pack("<IQQQ", 1, size, 32, 40)
        made += ((head + entry + strings + text).ljust(image_at, b"\0") + part).ljust(size, b"\0")
    return made


def archive(parts: dict[str, bytes]) -> bytes:
    """As ar writes it, long names in a member of their own."""
    names = "".join(f"{name}/\n" for name in parts)
    made = b"!<arch>\n" + _member("//", names.encode())
    at = 0
    for name, part in parts.items():
        made += _member(f"/{at}", part)
        at += len(name) + 2
    return made


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) & 1)


def fat(parts: list[tuple[int, int, bytes, int]]) -> bytes:
    """(kind, sm, data, flags) as nvcc -fatbin writes them. Flags 0x2000: LZ4, here as one run of literals."""
    body = b""
    for kind, sm, part, flags in parts:
        data = literals(part) if flags & fatbin.LZ4 else part
        padded = data.ljust(-(-len(data) // 8) * 8, b"\0")
        packed = len(data) if flags else 0
        numbers = (kind, 0x101, 64, len(padded), packed, 0, 0, 1, sm, 0, 0, flags | 0x11, 0, len(part))
        body += fatbin._ENTRY.pack(*numbers) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def literals(data: bytes) -> bytes:
    """An LZ4 block without a match."""
    left = len(data) - 15
    return b"\xf0" + b"\xff" * (left // 255) + bytes([left % 255]) + data


def forms(parts: dict[str, bytes]) -> dict[str, bytes]:
    """The same objects in every container of LLVM."""
    plain = bundle(parts)
    return {
        "bundle": plain,
        **{f"ccob {version}": compressed(plain, version) for version in (1, 2, 3)},
        "package": package(parts),
        "archive": archive(parts),
        "archive of a package": archive({"a.o": package(parts)}),
    }


PARTS = {
    "host-x86_64-unknown-linux-gnu-": b"",
    "hipv4-amdgcn-amd-amdhsa--gfx942": amd_image("gfx942"),
    "hipv4-amdgcn-amd-amdhsa--gfx1100": amd_image("gfx1100"),
}


@pytest.mark.parametrize("form", forms({}))
def test_the_object_for_a_gpu_is_taken_out_of_a_container(form: str, open_amd: Callable[..., Any]):
    device = open_amd("gfx1100")
    out = device.alloc(256)
    out.write(bytes(256))
    device.run(device.load(forms(PARTS)[form], "increment"), [out], block=(64, 1, 1))
    assert out.read() == struct.pack("<I", 1) * 64
    assert "increment" in device.module(forms(PARTS)[form]).entries


@pytest.mark.parametrize("form", forms({}))
def test_a_container_with_nothing_for_the_gpu_says_what_it_holds(form: str, open_amd: Callable[..., Any]):
    parts = {"hipv4-amdgcn-amd-amdhsa--gfx942": amd_image("gfx942")}
    with pytest.raises(UsageError, match=r"nothing in it is for gfx1201: it holds .*gfx942") as refused:
        open_amd("gfx1201").load(forms(parts)[form], "increment")
    assert "whole ELF" not in str(refused.value)


@pytest.mark.parametrize("flags", [0, fatbin.LZ4])
def test_ptx_is_taken_out_of_a_fat_binary(flags: int, open_nv: Callable[..., Any]):
    device = open_nv("sm_90")
    late = PTX.replace("sm_80", "sm_120").encode()
    parts = [(fatbin.PTX, 120, late, 0), (fatbin.PTX, 80, PTX.encode() + b"\0", flags)]
    for whole in (fat(parts), archive({"k.fatbin": fat(parts)})):
        out = device.alloc(64)
        device.run(device.load(whole, "k"), [out])
        assert out.read(0, 4) == struct.pack("<I", 7)
    with pytest.raises(UsageError, match="nothing in it is for sm_90: it holds PTX for sm_120"):
        device.load(fat(parts[:1]), "k")


@pytest.mark.parametrize("first", FIRST_BYTES, ids=FIRST_BYTES.get)
def test_every_device_names_a_container_by_its_first_bytes(
    first: bytes, open_amd: Callable[..., Any], open_nv: Callable[..., Any]
):
    for device in (hcq.open("CPU"), open_amd("gfx1100"), open_nv("sm_90")):
        with pytest.raises(UsageError, match=FIRST_BYTES[first]) as refused:
            device.load(first + bytes(64), "k")
        assert "whole ELF" not in str(refused.value)


def test_several_objects_that_fit_are_told_apart_by_the_kernel_or_refused(open_amd: Callable[..., Any]):
    device = open_amd("gfx1100")
    from tests.hcq.amd.kernels import compile_ir

    def one(name: str) -> bytes:
        text = f'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @{name}() {{\n  ret void\n}}'
        return compile_ir(text, "gfx1100")

    whole = archive({"first.o": one("first"), "second.o": one("second")})
    assert device.load(whole, "second").name == "second"
    with pytest.raises(UsageError, match=r"2 objects that fit gfx1100 \(first.o, second.o\)"):
        device.module(whole)


def test_a_damaged_container_is_one_sentence_and_little_memory():
    draw = random.Random(17)
    whole = [*forms(PARTS).values(), fat([(fatbin.PTX, 80, PTX.encode(), fatbin.LZ4)])]
    outcomes = set()
    for _ in range(1500):
        damaged = bytearray(draw.choice(whole))
        high = min(len(damaged), 200)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(8, high)] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
        if draw.random() < 0.2:
            del damaged[draw.randrange(8, len(damaged)) :]
        try:
            containers.taken_out(
                bytes(damaged), "k", "gfx1100", len, more={containers.FATBIN: fatbin.members}
            )
            outcomes.add("taken")
        except UsageError as error:
            assert str(error).startswith("load('k'): ")
            assert len(str(error)) < 2000
            outcomes.add("refused")
    assert outcomes == {"taken", "refused"}


def test_a_size_that_a_container_claims_is_not_believed():
    huge = b"CCOB" + struct.pack("<HHQQQ", 3, 0, 64, 1 << 40, 0) + bytes(32)
    with pytest.raises(UsageError, match=r"a part would have 1099511627776 bytes; 536870912 at most"):
        containers.taken_out(huge, "k", "gfx1100", len)
    bomb = zlib.compress(bytes(1 << 24))
    small = b"CCOB" + struct.pack("<HHIQ", 1, 0, 1000, 0) + bomb
    with pytest.raises(UsageError, match=r"a part has 1001 bytes, not the 1000 that it says"):
        containers.taken_out(small, "k", "gfx1100", len)


def test_lz4_blocks_are_read_as_the_format_says():
    assert lz4.decompress(b"\x15a\x01\x00\x50bcdef", 1 + 9 + 5, "k") == b"a" * 10 + b"bcdef"
    assert lz4.decompress(b"\x42abcd\x02\x00\x10x", 11, "k") == b"abcd" + b"cdcdcd" + b"x"
    assert lz4.decompress(literals(b"x" * 1000), 1000, "k") == b"x" * 1000
    draw = random.Random(3)
    for _ in range(3000):
        block = bytes(draw.randrange(256) for _ in range(draw.randrange(40)))
        try:
            assert len(lz4.decompress(block, draw.randrange(100), "k")) < 100
        except UsageError as error:
            assert "damaged" in str(error) or "not the" in str(error)
