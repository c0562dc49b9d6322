"""The full fence: which instructions stand in it on each machine, and that they are what runs.

Next     hcq/gpu/fence.py
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.gpu import fence
from hcq.system import native
from hcq.system.machine_code import as_function
from hcq.system.port import PAGE_BYTES, LinuxPort

capstone = pytest.importorskip("capstone")
BASE = 0x400000
# mov x0, #42; mov x8, #93 (exit); svc #0
EXIT_42 = bytes.fromhex("400580d2 a80b80d2 010000d4")


def instructions(code: bytes) -> list[str]:
    """aarch64 code as capstone reads it."""
    reader = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    return [f"{one.mnemonic} {one.op_str}".strip() for one in reader.disasm(code, 0)]


def program(function: bytes) -> bytes:
    """A static aarch64 program that calls a function and then exits with 42."""
    call = struct.pack("<I", 0x94000000 | (4 + len(EXIT_42)) // 4)  # bl: to what follows the exit
    code = call + EXIT_42 + function
    start = 64 + 56
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 2, 183, 1, BASE + start, 64, 0, 0, 64, 56, 1, 64, 0, 0,
    )  # fmt: skip
    size = start + len(code)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x1000)
    return header + segment + code


def test_the_fence_of_aarch64_is_a_barrier_of_the_whole_system_and_a_return() -> None:
    assert instructions(fence.AARCH64_CODE) == ["dsb sy", "ret"]


def test_each_machine_has_its_own_fence_and_this_one_uses_it() -> None:
    assert fence.fence_of("aarch64") is fence.barrier_instruction
    assert fence.fence_of("x86_64") is fence.locked_instruction
    fence.full_fence()


def test_what_a_fence_calls_is_the_barrier_in_a_page_that_nobody_can_write() -> None:
    va = native.address(as_function(fence.AARCH64_CODE, LinuxPort()))
    try:
        assert instructions(native.read(va, len(fence.AARCH64_CODE))) == ["dsb sy", "ret"]
        (line,) = (one for one in Path("/proc/self/maps").read_text().splitlines() if covers(one, va))
        assert line.split()[1] == "r-xp"
    finally:
        LinuxPort().munmap(va, PAGE_BYTES)


def covers(line: str, va: int) -> bool:
    """Whether a line of /proc/self/maps is about an address."""
    start, end = (int(number, 16) for number in line.split()[0].split("-"))
    return start <= va < end


@pytest.mark.skipif(
    fence.platform.machine() not in ("x86_64", "aarch64"), reason="no code of this machine here"
)
def test_machine_code_in_a_page_of_its_own_is_called_and_returns() -> None:
    code = {"x86_64": bytes.fromhex("0faef0 c3"), "aarch64": fence.AARCH64_CODE}  # mfence; ret
    call = as_function(code[fence.platform.machine()], LinuxPort())
    call()
    call()
    LinuxPort().munmap(native.address(call), PAGE_BYTES)


def test_under_qemu_the_barrier_is_among_the_instructions_that_run(tmp_path: Path) -> None:
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None or sys.platform != "linux":
        pytest.skip("no qemu-aarch64 here: apt install qemu-user-static")
    path, log = tmp_path / "fence", tmp_path / "log"
    path.write_bytes(program(fence.AARCH64_CODE))
    path.chmod(0o755)
    done = subprocess.run([qemu, "-d", "in_asm", "-D", log, path], timeout=60, check=False)
    assert done.returncode == 42
    # every line is an address, the instruction's word, and its text where this QEMU has a disassembler
    words = re.findall(r"^(?:0x[0-9a-f]+:  ([0-9a-f]{8})|OBJD-T: ([0-9a-f]+))", log.read_text(), re.M)
    ran = [word for plain, dump in words for word in ([plain] if plain else swapped(dump))]
    assert "d5033f9f" in ran, "dsb sy"


def swapped(dump: str) -> list[str]:
    """Words of a dump of bytes."""
    return [f"{word:08x}" for (word,) in struct.iter_unpack("<I", bytes.fromhex(dump))]
