"""Coredumps of CUDA of our own making: the public layout, with as many sections as a test asks for."""

from __future__ import annotations

import struct

from hcq.tools.trace.cuda.core_file import EM_CUDA, ET_CORE, ROWS, TYPES

NUMBERS = {"devices": 9, "contexts": 10, "SMs": 11, "grids": 12, "blocks": 13, "warps": 14, "lanes": 15, "modules": 16,
           "relocated ELF image": 7, "meta data": 22, "registers": 5, "shared memory": 4}  # fmt: skip
FULL = {"devices": 88, "grids": 136, "SMs": 40, "blocks": 56, "warps": 64, "lanes": 48, "contexts": 40, "modules": 8,
        "meta data": 32}  # fmt: skip
HANDLE, ENTRY = 0xABC000, 0x7F0000001000


class Strings:
    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def row(kind: str, size: int | None = None, **values: int) -> bytes:
    """A row of a table, cut to `size` bytes as an older driver writes it."""
    data = b""
    for text in ROWS[kind].split():
        name, _, wide = text.partition(":")
        data += struct.pack("<Q" if wide else "<I", values.pop(name, 0))
    assert not values, values
    return data[: size or FULL[kind]]


def elf(sections: list[tuple[str, int, bytes, int, int, int]], machine: int, kind: int) -> bytes:
    """An ELF file of sections: name, type, content, link, info, size of an entry."""
    names, body, rows = Strings(), bytearray(), [bytes(64)]
    for name, type_, content, link, info, entry in sections:
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ",
                names.add(name),
                type_,
                0,
                0x1000,
                64 + len(body),
                len(content),
                link,
                info,
                1,
                entry,
            )
        )
        body += content
    own = names.add(".shstrtab")
    rows.append(struct.pack("<IIQQQQIIQQ", own, 3, 0, 0, 64 + len(body), len(names.data), 0, 0, 1, 0))
    body += names.data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident,
        kind,
        machine,
        1,
        0,
        0,
        64 + len(body),
        0,
        64,
        0,
        0,
        64,
        len(rows),
        len(rows) - 1,
    )
    return head + bytes(body) + b"".join(rows)


def image(name: str, at: int = ENTRY, size: int = 0x400) -> bytes:
    """A relocated module with one kernel."""
    strings = Strings()
    symbol = struct.pack("<IBBHQQ", strings.add(name), 0x12, 0, 1, at, size)
    return elf(
        [(f".text.{name}", 1, bytes(16), 0, 0, 0), (".symtab", 2, bytes(24) + symbol, 3, 1, 24),
         (".strtab", 3, bytes(strings.data), 0, 0, 0)],
        EM_CUDA,
        2,
    )  # fmt: skip


def core(
    exception: int = 14, is_old: bool = False, warps: int = 3, more: tuple[tuple[str, int, bytes], ...] = ()
) -> bytes:
    """A coredump of one kernel on two SMs; warp 1 of SM 7 has an exception. is_old: as drivers before r525 write it."""
    strings = Strings()
    sizes = {"devices": 80, "grids": 104, "SMs": 8, "blocks": 24, "warps": 32} if is_old else {}
    device = row("devices", sizes.get("devices"), devName=strings.add("NVIDIA H100"), devType=strings.add("gpu"),
                 smType=strings.add("sm_90"), pciBusId=0x19, numSMs=132, numWarpsPerSM=64)  # fmt: skip
    grid = row("grids", sizes.get("grids"), gridId64=5, functionEntry=ENTRY, moduleHandle=HANDLE, gridDimX=8,

               gridDimY=1, gridDimZ=1, blockDimX=64, blockDimY=1, blockDimZ=1)  # fmt: skip
    sections: list[tuple[str, int, bytes, int, int, int]] = []

    def add(kind: str, name: str, content: bytes, link: int = 0, info: int = 0, entry: int = 0) -> int:
        sections.append((name, TYPES + NUMBERS[kind], content, link, info, entry))
        return len(sections)

    devices = add("devices", ".cudbg.devtbl", device, entry=len(device))
    contexts = add("contexts", ".cudbg.ctxtbl.dev0", row("contexts", contextId=1), devices, 0, 40)
    modules = add("modules", ".cudbg.modtbl.dev0.ctx0", row("modules", moduleHandle=HANDLE), contexts, 0, 8)
    add("relocated ELF image", ".cudbg.relfimg.dev0.ctx0", image("saxpy"), modules, 0)
    add("grids", ".cudbg.gridtbl.dev0", grid, devices, 0, len(grid))
    rows = [row("SMs", sizes.get("SMs"), smId=number) for number in (3, 7)]
    sms = add("SMs", ".cudbg.smtbl.dev0", b"".join(rows), devices, 0, len(rows[0]))
    for at, sm in enumerate((3, 7)):
        block = row("blocks", sizes.get("blocks"), gridId64=5, blockIdxX=at)
        blocks = add("blocks", f".cudbg.ctatbl.dev0.sm{sm}", block, sms, at, len(block))
        made = []
        for warp in range(warps):
            bad = exception and sm == 7 and warp == 1
            made.append(row("warps", sizes.get("warps"), warpId=warp, validLanesMask=0xFFFFFFFF, activeLanesMask=0xF0,
                            errorPC=ENTRY + 0x130 if bad else 0, errorPCValid=int(bad)))  # fmt: skip
        table = add("warps", f".cudbg.wptbl.dev0.sm{sm}.cta0", b"".join(made), blocks, 0, len(made[0]))
        for warp in range(warps):
            lanes = [
                row(
                    "lanes",
                    virtualPC=ENTRY + 0x200,
                    ln=lane,
                    threadIdxX=32 * warp + lane,
                    exception=exception if sm == 7 and warp == 1 and lane == 5 else 0,
                )
                for lane in range(32)
            ]
            lane_table = add(
                "lanes", f".cudbg.lntbl.dev0.sm{sm}.cta0.wp{warp}", b"".join(lanes), table, warp, 48
            )
            add("registers", f".cudbg.regs.dev0.sm{sm}.cta0.wp{warp}.ln0", bytes(160), lane_table, 0, 4)
    if not is_old:
        meta = row("meta data", generatorName=strings.add("cuda-gdb"), driverVersionMajor=575, driverVersionMinor=51,
                   cudaDriverVersionMajor=12, cudaDriverVersionMinor=9, timestamp=1772878521)  # fmt: skip
        add("meta data", ".cudbg.meta", meta, entry=32)
    sections += [(name, type_, content, 0, 0, 0) for name, type_, content in more]
    sections.append((".strtab", 3, bytes(strings.data), 0, 0, 0))
    return elf(sections, EM_CUDA, ET_CORE)
