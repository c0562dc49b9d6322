"""The CPU device to the doctor: what a process needs to run code that it has just made, and a kernel with no compiler.

In       the host; an architecture
Out      the checks node, permission and driver; a code object with the doctor's kernel
Changes  one page, mapped, sealed and given back
Next     hcq/doctor/subject.py (what a kind of device shows), hcq/cpu/link.py (how pages are sealed)
Source   System V ABI, chapters 4 and 5; x86-64 and aarch64 calling conventions
"""

from __future__ import annotations

import errno
import platform
import struct

from hcq.code import elf
from hcq.doctor.check import Failure, Found
from hcq.doctor.host import Facts, Host
from hcq.doctor.kernels import ENTRY, Tiny
from hcq.doctor.subject import Subject
from hcq.errors import DriverError
from hcq.system.port import MAP_ANONYMOUS, MAP_PRIVATE, PAGE_BYTES, PROT_EXEC, PROT_READ, PROT_WRITE, Port

# void triple_plus_index(uint32_t *out, const uint32_t *a, int64_t n), for n > 0
CPU_CODE: dict[str, tuple[tuple[str, str], ...]] = {
    "x86_64": (
        ("31 c0", "xor eax, eax"),
        ("8b 0c 86", "mov ecx, dword ptr [rsi + rax*4]"),
        ("8d 0c 49", "lea ecx, [rcx + rcx*2]"),
        ("01 c1", "add ecx, eax"),
        ("89 0c 87", "mov dword ptr [rdi + rax*4], ecx"),
        ("48 ff c0", "inc rax"),
        ("48 39 d0", "cmp rax, rdx"),
        ("7c ed", "jl 2"),
        ("c3", "ret"),
    ),
    "aarch64": (
        ("03 00 80 d2", "mov x3, #0"),
        ("24 78 63 b8", "ldr w4, [x1, x3, lsl #2]"),
        ("84 04 04 0b", "add w4, w4, w4, lsl #1"),
        ("84 00 03 0b", "add w4, w4, w3"),
        ("04 78 23 b8", "str w4, [x0, x3, lsl #2]"),
        ("63 04 00 91", "add x3, x3, #1"),
        ("7f 00 02 eb", "cmp x3, x2"),
        ("4b ff ff 54", "b.lt 4"),
        ("c0 03 5f d6", "ret"),
    ),
}
MACHINES = {"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}


class CpuSubject(Subject):
    """The CPU device."""

    def node(self, host: Host, facts: Facts, index: int) -> Found:
        return Found("no file is needed: the queue is memory, the hardware is threads of this process")

    def permission(self, host: Host, facts: Facts, index: int) -> Found:
        """A page of plain memory can be sealed as code."""
        va = host.mmap(0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        try:
            host.mprotect(va, PAGE_BYTES, PROT_READ | PROT_EXEC)
        except DriverError as error:
            raise Failure(
                f"memory cannot be made executable: {error}", _fix(facts, error.errno or 0)
            ) from None
        finally:
            host.munmap(va, PAGE_BYTES)
        return Found("memory can be made executable once it is no longer writable")

    def driver(self, port: Port, kernel: str) -> Found:
        machine = platform.machine()
        if platform.system() != "Linux" or machine not in MACHINES:
            known = " and ".join(MACHINES)
            raise Failure(
                f"the CPU device runs on Linux on {known}, and this is {platform.system()} on {machine}.",
                "run it in a Linux container or virtual machine",
            )
        return Found(f"command processor of this package on {kernel}, {machine}")

    def kernel(self, arch: str) -> Tiny | None:
        return Tiny(cpu_object(arch), 0) if arch in CPU_CODE else None


def _fix(facts: Facts, number: int) -> str:
    if facts.is_selinux_enforcing:
        return "sudo setsebool -P selinuxuser_execmod 1; sudo ausearch -m avc -ts recent | audit2why"
    if facts.is_filtered:
        return "a seccomp filter refuses mprotect: docker run --security-opt seccomp=unconfined IMAGE"
    if number == errno.ENOMEM:
        return "sudo sysctl vm.max_map_count=1048576"
    return (
        "systemctl edit UNIT, and under [Service]: MemoryDenyWriteExecute=no  # the service's policy refuses"
    )


def cpu_object(arch: str) -> bytes:
    """The machine code as a relocatable ELF object: a text section, a symbol, and the names of both."""
    code = b"".join(bytes.fromhex(words) for words, _ in CPU_CODE[arch])
    names = b"\0" + ENTRY.encode() + b"\0"
    # in section 1, at 0
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, elf.STB_GLOBAL << 4 | elf.STT_FUNC, 0, 1, 0, len(code))
    titles = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    executable = elf.SHF_ALLOC | elf.SHF_EXECINSTR
    sections = (  # title, type, flags, contents, link, info, alignment, entry size
        (b".text", elf.SHT_PROGBITS, executable, code, 0, 0, 16, 0),
        (b".symtab", elf.SHT_SYMTAB, 0, symbols, 3, 1, 8, 24),
        (b".strtab", elf.SHT_STRTAB, 0, names, 0, 0, 1, 0),
        (b".shstrtab", elf.SHT_STRTAB, 0, titles, 0, 0, 1, 0),
    )
    body, headers = bytearray(64), bytearray(64)  # the file's header comes last; section 0 is empty
    for title, type_, flags, content, link, info, alignment, entry_bytes in sections:
        body += bytes(-len(body) % alignment)
        at, name = len(body), titles.index(title)
        size = len(content)
        headers += struct.pack(
            "<IIQQQQIIQQ", name, type_, flags, 0, at, size, link, info, alignment, entry_bytes
        )
        body += content
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    counts = (64, 0, 0, 64, 1 + len(sections), len(sections))
    body[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, elf.ET_REL, MACHINES[arch], 1, 0, 0, len(body), 0, *counts
    )
    return bytes(body + headers)


DOCTOR = CpuSubject("CPU")
