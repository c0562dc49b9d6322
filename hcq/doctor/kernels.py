"""The doctor's kernel: out[i] = 3 * a[i] + i on 32-bit words, in the machine code of each device, with no compiler.

In       a device's kind and architecture
Out      a Tiny: a code object, and how to launch it
Changes  nothing
Next     checks.py (runs it), amd_kernels.py and nv_kernels.py (the GPUs' objects), hcq/elf.py (what reads the object)
Source   System V ABI, chapters 4 and 5; x86-64 and aarch64 calling conventions
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from hcq import elf

ENTRY = "triple_plus_index"

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


@dataclass(frozen=True)
class Tiny:
    """group: elements each group does, one for each of its threads; 0: one group does all, and is told how many."""

    image: bytes
    group: int

    def launch(self, out: Any, a: Any, count: int) -> dict[str, Any]:
        """args, grid and block for `count` elements."""
        if not self.group:
            return {"args": [out, a, count]}
        return {"args": [out, a], "grid": (count // self.group, 1, 1), "block": (self.group, 1, 1)}


def tiny(kind: str, arch: str) -> Tiny | None:
    """The kernel for a device; None when nobody has written it down for that architecture."""
    if kind == "CPU" and arch in CPU_CODE:
        return Tiny(cpu_object(arch), 0)
    if kind == "AMD":
        from hcq.doctor import amd_kernels

        image = amd_kernels.image(arch)
        return Tiny(image, amd_kernels.GROUP) if image else None
    if kind == "NV":
        from hcq.doctor import nv_kernels

        image = nv_kernels.image(arch)
        return Tiny(image, nv_kernels.GROUP) if image else None
    return None


def expected(values: list[int]) -> list[int]:
    """What the kernel makes of them."""
    return [(3 * value + index) % 2**32 for index, value in enumerate(values)]


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
