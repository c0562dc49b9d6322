"""Hostile objects: whatever the bytes, loading succeeds or is a UsageError; nothing is executed here."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.code import elf
from hcq.cpu import relocations
from hcq.cpu.device import CpuDevice
from hcq.cpu.link import link
from hcq.errors import UsageError
from hcq.system import native
from hcq.system.port import LinuxPort, RecordingPort
from tests.hcq.conftest import IR, assemble

SMALL = r"""
@table = internal constant [3 x i64] [i64 1, i64 2, i64 3]
@data = global i64 5
@zero = internal global [100 x i8] zeroinitializer
declare double @exp(double)
define void @k(ptr %out, i64 %i, double %x) {
  %p = getelementptr [3 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %p
  %d = load i64, ptr @data
  %s = add i64 %v, %d
  store i64 %s, ptr %out
  %e = call double @exp(double %x)
  %q = getelementptr double, ptr %out, i64 1
  store double %e, ptr %q
  ret void
}
"""
SHARED = (
    "static int t[3] = {1, 2, 3}; int *u = t; double exp(double); double v(double x) { return exp(x) + *u; }"
)


def try_to_load(image: bytes) -> bool:
    """Whether it loads; anything but success and UsageError escapes."""
    try:
        mapping = link(image, LinuxPort(), "x86_64", "damaged")
    except UsageError as error:
        assert str(error).startswith("load('damaged'): ")
        return False
    mapping.close()
    return True


def objects(compile_c: Callable[..., bytes] | None = None) -> list[bytes]:
    found = [assemble(SMALL, "x86_64-unknown-linux-gnu")]
    if compile_c is not None:
        found.append(compile_c(SHARED, "-shared", "-fPIC", "-O2"))
    return found


def test_an_object_cut_at_any_length_is_refused() -> None:
    (image,) = objects()
    assert try_to_load(image)
    loaded = [length for length in range(len(image)) if try_to_load(image[:length])]
    assert not loaded


def test_a_shared_object_cut_anywhere_is_refused(compile_c: Callable[..., bytes]) -> None:
    image = objects(compile_c)[1]
    assert try_to_load(image)
    loaded = [length for length in range(0, len(image), 7) if try_to_load(image[:length])]
    assert not loaded


@pytest.mark.parametrize("seed", range(4))
def test_an_object_with_flipped_bits_loads_or_is_refused(seed: int) -> None:
    (image,) = objects()
    rng = random.Random(seed)
    outcomes = set()
    for _ in range(1500):
        damaged = bytearray(image)
        for _ in range(rng.choice((1, 1, 2, 8))):
            damaged[rng.randrange(len(image))] ^= 1 << rng.randrange(8)
        outcomes.add(try_to_load(bytes(damaged)))
    assert outcomes == {True, False}


def test_a_shared_object_with_flipped_bits_loads_or_is_refused(compile_c: Callable[..., bytes]) -> None:
    image = objects(compile_c)[1]
    rng = random.Random(5)
    hot = list(range(0x400)) + list(range(len(image) - 0x1000, len(image)))  # the tables
    outcomes = set()
    for _ in range(2500):
        damaged = bytearray(image)
        for _ in range(rng.choice((1, 2, 8))):
            damaged[rng.choice(hot)] ^= 1 << rng.randrange(8)
        outcomes.add(try_to_load(bytes(damaged)))
    assert outcomes == {True, False}


@pytest.mark.parametrize("field", range(64))
@pytest.mark.parametrize("value", [0, 0xFF, 0x7F, 0x80])
def test_any_byte_of_the_header_may_be_wrong(field: int, value: int) -> None:
    damaged = bytearray(objects()[0])
    damaged[field] = value
    try_to_load(bytes(damaged))


def test_extreme_numbers_in_section_headers_are_refused_or_harmless() -> None:
    (image,) = objects()
    header = struct.unpack_from("<16sHHIQQQIHHHHHH", image)
    table, count = header[6], header[12]
    for section in range(count):
        for field in range(0, 64, 4):
            for value in (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0):
                damaged = bytearray(image)
                struct.pack_into("<I", damaged, table + 64 * section + field, value)
                try_to_load(bytes(damaged))


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (b"", "0 bytes are fewer than an ELF header's 64"),
        (b"MZ" + bytes(100), "it starts with 4d5a0000, not with 7f454c46"),
        (b"\x7fELF\x01\x01\x01" + bytes(100), "not a 64-bit little-endian ELF"),
        (b"\x7fELF\x02\x02\x01" + bytes(100), "not a 64-bit little-endian ELF"),
    ],
)
def test_what_is_no_object_is_refused_with_a_sentence(cpu: CpuDevice, image: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        cpu.load(image, "k")


def test_an_object_for_another_processor_is_refused(cpu: CpuDevice) -> None:
    other = "aarch64" if cpu.arch == "x86_64" else "x86_64"
    with pytest.raises(UsageError, match=f"it is for {other}, and this device runs {cpu.arch}"):
        cpu.load(assemble(SMALL, f"{other}-unknown-linux-gnu"), "k")


def test_no_page_is_ever_writable_and_executable(cpu: CpuDevice, llvm_object: bytes, tmp_path: Path) -> None:
    (tmp_path / "k.o").write_bytes(llvm_object)
    script = f"""
import hcq
dev = hcq.open("CPU")
program = dev.load(open({str(tmp_path / "k.o")!r}, "rb").read(), "static_data")
out = dev.alloc(16)
dev.run(program, [out])
for line in open("/proc/self/maps"):
    span, mode = line.split()[:2]
    assert not ("w" in mode and "x" in mode), line
    start, end = (int(word, 16) for word in span.split("-"))
    if start <= program.entry < end or start <= dev.code.functions["processor_main"] < end:
        print(mode)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.stdout.split(), done.stderr) == (["r-xp", "r-xp"], "")


def test_loading_takes_a_handful_of_system_calls() -> None:
    image = assemble(IR, "x86_64-unknown-linux-gnu")
    calls: list[str] = []
    link(image, RecordingPort(LinuxPort(), lambda call, *_: calls.append(call)), "x86_64", "counted").close()
    assert len(calls) <= 6, calls


def test_an_aarch64_object_is_linked_as_its_instructions_say() -> None:
    """A second opinion: a disassembler follows the relocated code to the table, the callee and the GOT."""
    capstone = pytest.importorskip("capstone")
    mapping = link(assemble(IR, "aarch64-unknown-linux-gnu"), LinuxPort(), "aarch64", "arm")
    reader = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)

    def code(name: str) -> list[tuple[str, str]]:
        found = []
        at = mapping.functions[name]
        for instruction in reader.disasm(native.read(at, 400), at):
            found.append((instruction.mnemonic, instruction.op_str))
            if instruction.mnemonic == "ret":
                break
        return found

    pages: dict[str, int] = {}
    addresses = []
    for mnemonic, operands in code("constants"):
        names = operands.split(", ")
        if mnemonic == "adrp":
            pages[names[0]] = int(names[1].strip("#"), 16)
        if mnemonic == "add" and names[1] in pages and names[2].startswith("#"):
            addresses.append(pages[names[1]] + int(names[2].strip("#"), 16))
    assert [struct.unpack("<4q", native.read(address, 32)) for address in addresses] == [(10, 20, 30, 40)]
    calls = [
        int(operands.strip("#"), 16) for mnemonic, operands in code("functions") if mnemonic in ("bl", "b")
    ]
    assert calls == [mapping.functions["twice"]] * 2
    (stub,) = {int(operands.strip("#"), 16) for mnemonic, operands in code("math") if mnemonic in ("bl", "b")}
    load, jump = list(reader.disasm(native.read(stub, 8), stub))
    assert (load.mnemonic, jump.mnemonic) == ("ldr", "br")
    (callee,) = struct.unpack("<Q", native.read(int(load.op_str.split("#")[1], 16), 8))
    assert callee == native.math_symbol("sinf")
    mapping.close()


def test_every_known_relocation_type_is_named_after_its_abi() -> None:
    for machine, prefix in ((elf.EM_X86_64, "R_X86_64_"), (elf.EM_AARCH64, "R_AARCH64_")):
        assert all(kind.name.startswith(prefix) for kind in relocations.KINDS[machine].values())
