"""Real machine code for the tests: LLVM IR to an AMDGPU object, laid out in an emulated address space.

In       LLVM IR text with an amdgpu_kernel function
Out      Loaded: a machine with the code mapped, and run() that passes arguments
Changes  nothing outside its own arrays
Next     test_machine.py, test_differential.py (who use it)
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from hcq.amd.abi.descriptor import KernelDescriptor
from hcq.amd.abi.registers import ScratchResource, ScratchResourceGfx10
from hcq.emu.amd.shader.architectures import ISAS as EVERY_ISA
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.run import Report, ShaderCore, run_dispatch
from hcq.emu.amd.shader.wave_start import Launch, user_sgprs

TRIPLE = "amdgcn-amd-amdhsa"
ISAS = {
    arch: EVERY_ISA[arch]
    for arch in ("gfx1030", "gfx1100", "gfx1151", "gfx1201", "gfx90a", "gfx942", "gfx950")
}
CODE_BASE, ARGUMENT_BASE, SCRATCH_BASE, DATA_BASE = 0x100000, 0x7000_0000, 0x6000_0000_0000, 0x7F00_0000_0000

PRELOAD_PROLOGUE_BYTES = 256  # code that loads what newer firmware has preloaded

R_ABS64, R_REL32, R_REL64, R_GOTPCREL32_LO, R_GOTPCREL32_HI, R_REL32_LO, R_REL32_HI = 3, 4, 5, 8, 9, 10, 11


@cache
def assemble(ir: str, arch: str, features: str = "", opt: int = 2) -> tuple[bytes, str]:
    """(object, assembly text)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, features=features, opt=opt)

    def module() -> llvm.ModuleRef:  # code generation changes its module: one for each output
        parsed = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n' + ir)
        parsed.data_layout = str(machine.target_data)
        parsed.verify()
        return parsed

    return machine.emit_object(module()), machine.emit_assembly(module())


def sections(image: bytes) -> list[tuple[int, ...]]:
    (offset,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", image, offset + size * i) for i in range(count)]


class Scratch(NamedTuple):
    """Scratch memory for kernels that ask where it is (gfx90a, gfx1030): room for `waves`, each lane `lane_bytes`."""

    va: int = 0
    size_bytes: int = 0
    lane_bytes: int = 0
    waves: int = 0


def halves(address: int) -> list[int]:
    return [address & 0xFFFFFFFF, address >> 32]


class Loaded:
    """An object in memory, ready to run."""

    def __init__(self, ir: str, arch: str, features: str = "", opt: int = 2) -> None:
        self.arch = arch
        self.image, self.assembly = assemble(ir, arch, features, opt)
        self.memory = AddressSpace()
        self.core = ShaderCore(ISAS[arch], self.memory)
        self.symbols: dict[str, int] = {}
        self.place()
        self.report = Report()

    def place(self) -> None:
        image, table = self.image, sections(self.image)
        at, starts = 0, {}
        for index, (_, kind, flags, _, _, size, _, _, align, _) in enumerate(table):
            if flags & 2 and size and kind in (1, 8):
                at = -(-at // max(align, 1)) * max(align, 1)
                starts[index] = at
                at += size
        got = -(-at // 8) * 8
        code = bytearray(got + 8 * 64)
        for index, start in starts.items():
            _, kind, _, _, offset, size, *_ = table[index]
            if kind == 1:
                code[start : start + size] = image[offset : offset + size]
        symbols: list[int] = []
        for _, kind, _, _, offset, size, link, _, _, entry in table:
            if kind != 2:
                continue
            names = table[link][4]
            for i in range(size // entry):
                name, _, _, shndx, value, _ = struct.unpack_from("<IBBHQQ", image, offset + entry * i)
                address = CODE_BASE + starts[shndx] + value if shndx in starts else value
                text = image[names + name : image.index(b"\0", names + name)].decode()
                self.symbols[text] = address
                symbols.append(address)
        slots: dict[int, int] = {}
        for _, kind, _, _, offset, size, _, info, _, entry in table:
            if kind != 4 or info not in starts:
                continue
            for i in range(size // entry):
                where, meta, addend = struct.unpack_from("<QQq", image, offset + entry * i)
                symbol, how = meta >> 32, meta & 0xFFFFFFFF
                target, place = symbols[symbol], CODE_BASE + starts[info] + where
                if how in (R_GOTPCREL32_LO, R_GOTPCREL32_HI):
                    slot = slots.setdefault(symbol, got + 8 * len(slots))
                    struct.pack_into("<Q", code, slot, target)
                    target = CODE_BASE + slot
                value = target + addend if how == R_ABS64 else target + addend - place
                if how in (R_REL64, R_ABS64):
                    struct.pack_into("<Q", code, starts[info] + where, value & 2**64 - 1)
                else:
                    shift = 32 if how in (R_GOTPCREL32_HI, R_REL32_HI) else 0
                    struct.pack_into("<I", code, starts[info] + where, value >> shift & 2**32 - 1)
        self.code = bytes(code)
        self.memory.map(CODE_BASE, code, writable=False, name="code")

    def replace(self, va: int, words: tuple[int, ...]) -> None:
        """Other instructions in the place of some; the code is another program from then on."""
        code = bytearray(self.code)
        struct.pack_into(f"<{len(words)}I", code, va - CODE_BASE, *words)
        self.memory.unmap(CODE_BASE)
        self.memory.map(CODE_BASE, code, writable=False, name="code")

    def words(self, va: int, count: int) -> list[int]:
        return list(struct.unpack(f"<{count}I", self.memory.read(va, 4 * count)))

    def launch(self, name: str, kernarg: int, dynamic_lds_bytes: int = 0) -> Launch:
        """What an AQL packet would start."""
        kd = self.symbols[name + ".kd"]
        descriptor = KernelDescriptor.decode(self.words(kd, 16))
        scratch = self.scratch(descriptor) if ISAS[self.arch].flat_scratch else Scratch()
        values = {
            "private_segment_buffer": self.resource(scratch, bool(descriptor.enable_wavefront_size32)),
            "kernarg_segment_ptr": halves(kernarg),
            "flat_scratch_init": halves(scratch.va),
            "private_segment_size": [descriptor.private_segment_fixed_size],
            **{name: halves(0) for name in ("dispatch_ptr", "queue_ptr", "dispatch_id")},
        }
        words = user_sgprs(descriptor, values)
        entry = kd + descriptor.entry_offset
        if preloaded := descriptor.kernarg_preload_spec_length:
            words += self.words(kernarg + 4 * descriptor.kernarg_preload_spec_offset, preloaded)
            entry += PRELOAD_PROLOGUE_BYTES
        return Launch.from_registers(
            self.arch,
            entry,
            descriptor.compute_pgm_rsrc1,
            descriptor.compute_pgm_rsrc2,
            descriptor.compute_pgm_rsrc3,
            tuple(words),
            wave32=bool(descriptor.enable_wavefront_size32),
            lds_bytes=descriptor.group_segment_fixed_size + dynamic_lds_bytes,
            scratch_bytes=scratch.lane_bytes or descriptor.private_segment_fixed_size,
            scratch_waves=scratch.waves,
        )

    def resource(self, scratch: Scratch, has_waves_of_32: bool) -> tuple[int, ...]:
        """The descriptor through which kernels of gfx90a and gfx1030 reach it."""
        if self.arch != "gfx1030":
            return ScratchResource.of(scratch.va, scratch.size_bytes).words
        made = ScratchResourceGfx10.of(scratch.va, scratch.size_bytes)
        return ScratchResourceGfx10(**{**made.values, "index_stride": 2 if has_waves_of_32 else 3}).words

    def scratch(self, descriptor: KernelDescriptor) -> Scratch:
        """Scratch memory where kernels of gfx90a and gfx1030 look for it: room for 32 waves."""
        lane_bytes = max(64, descriptor.private_segment_fixed_size)
        size = 32 * 64 * lane_bytes
        if self.memory.find(SCRATCH_BASE) is not None:
            self.memory.unmap(SCRATCH_BASE)
        self.memory.map(SCRATCH_BASE, bytearray(size), name="scratch")
        return Scratch(SCRATCH_BASE, size, lane_bytes, 32)

    def run(
        self,
        name: str,
        arguments: list[Any],
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (64, 1, 1),
        **options: Any,
    ) -> list[np.ndarray[Any, Any]]:
        """Run with arrays (passed by address, changed in place), and integers or floats as NumPy scalars."""
        kernarg = bytearray(4096)
        at, mapped = 0, []
        for index, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                address = DATA_BASE + index * 0x1000_0000
                self.memory.map(address, argument, name=f"argument {index}")
                mapped.append(address)
                data = struct.pack("<Q", address)
            else:
                data = argument.tobytes()
            at = -(-at // len(data)) * len(data)
            kernarg[at : at + len(data)] = data
            at += len(data)
        implicit = -(-at // 8) * 8
        struct.pack_into("<3I3H", kernarg, implicit, *grid, *block)
        self.memory.map(ARGUMENT_BASE, kernarg, name="kernarg")
        try:
            dynamic = options.pop("dynamic_lds_bytes", 0)
            launch = self.launch(name, ARGUMENT_BASE, dynamic)
            self.report = run_dispatch(self.core, launch, grid, block, **options)
        finally:
            for address in (*mapped, ARGUMENT_BASE):
                self.memory.unmap(address)
        return [argument for argument in arguments if isinstance(argument, np.ndarray)]
