"""The doctor's kernels: bytes kept in the package mean what is written beside them."""

from __future__ import annotations

import struct
from pathlib import Path

import capstone
import pytest

import hcq
from hcq.amd.chip import CHIPS
from hcq.amd.link import Linked
from hcq.code import elf
from hcq.cpu.device import CpuDevice
from hcq.cpu.doctor import CPU_CODE, cpu_object
from hcq.doctor.examine import subject
from hcq.doctor.kernels import ENTRY, Tiny, expected
from hcq.errors import UsageError
from hcq.nv.bundle import Bundle
from hcq.nv.chip import CHIPS as NV_CHIPS
from hcq.nv.link import Linked as NvLinked

AMD, NV = (Path(hcq.__file__).parent / vendor / "kernels" for vendor in ("amd", "nv"))
DISASSEMBLERS = {
    "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
}


def tiny(kind: str, arch: str) -> Tiny:
    found = subject(kind).kernel(arch)
    assert found is not None
    return found


@pytest.mark.parametrize("arch", CPU_CODE)
def test_the_machine_code_is_the_assembly_beside_it(arch: str) -> None:
    code = b"".join(bytes.fromhex(words) for words, _ in CPU_CODE[arch])
    shown = capstone.Cs(*DISASSEMBLERS[arch]).disasm(code, 0)
    said = [f"{one.mnemonic} {one.op_str}".strip().replace("#0x", "#").replace(" 0x", " ") for one in shown]
    assert said == [text.replace("b.lt 4", "b.lt #4") for _, text in CPU_CODE[arch]]


@pytest.mark.parametrize("arch", CPU_CODE)
def test_the_object_is_an_elf_file_with_one_function(arch: str) -> None:
    found = elf.Object(cpu_object(arch))
    assert (found.type, found.machine_name) == (elf.ET_REL, arch)
    assert [section.name for section in found.sections] == ["", ".text", ".symtab", ".strtab", ".shstrtab"]
    size = sum(len(bytes.fromhex(words)) for words, _ in CPU_CODE[arch])
    (symbol,) = [one for one in found.symbols(found.sections[2]) if one.name]
    assert (symbol.name, symbol.type, symbol.section, symbol.size_bytes) == (ENTRY, elf.STT_FUNC, 1, size)


def test_the_kernel_computes_on_the_cpu(cpu: CpuDevice) -> None:
    small = tiny("CPU", cpu.arch)
    values = [0, 1, 2**32 - 1, 7, 1 << 31]
    out, a = cpu.alloc(20), cpu.alloc(20)
    a.write(struct.pack("<5I", *values))
    cpu.run(cpu.load(small.image, ENTRY), **small.launch(out, a, 5))
    assert list(struct.unpack("<5I", out.read())) == expected(values)


@pytest.mark.parametrize("arch", CHIPS)
def test_every_amd_chip_of_the_driver_has_a_kernel_that_links(arch: str) -> None:
    linked = Linked(tiny("AMD", arch).image, CHIPS[arch], "doctor")
    assert [kernel.name for kernel in linked.kernels.values()] == [ENTRY]


@pytest.mark.parametrize("arch", CHIPS)
def test_amd_objects_are_what_llvm_makes_of_their_source(arch: str) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    if llvm.llvm_version_info[0] != 22:
        pytest.skip(f"the objects were made by LLVM 22, and this is {llvm.llvm_version_info[0]}")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=arch, opt=2)
    made = target.emit_object(llvm.parse_assembly((AMD / "triple_plus_index.ll").read_text()))
    assert tiny("AMD", arch).image == made


@pytest.mark.parametrize("arch", NV_CHIPS)
def test_every_nvidia_chip_of_the_driver_has_a_kernel_that_links(arch: str) -> None:
    bundle = Bundle.of(tiny("NV", arch).image)
    assert bundle.ptx == (NV / "triple_plus_index.ptx").read_bytes()
    kernel = NvLinked(bundle, ENTRY, NV_CHIPS[arch], "doctor").kernel
    assert [one.size_bytes for one in kernel.parameters] == [8, 8]
    assert kernel.stack_bytes == 0


@pytest.mark.parametrize("arch", NV_CHIPS)
def test_nvidias_objects_say_what_the_assembler_says_of_their_source(arch: str) -> None:
    from hcq.nv.cubin import Cubin
    from hcq.nv.toolchain import nvjitlink

    try:
        made = nvjitlink.link_ptx((NV / "triple_plus_index.ptx").read_text(), arch)
    except UsageError as error:
        pytest.skip(str(error))
    new, kept = Cubin(made).kernels[ENTRY], Cubin(Bundle.of(tiny("NV", arch).image).cubin).kernels[ENTRY]
    assert (kept.param_base, kept.param_bytes, kept.parameters) == (
        new.param_base,
        new.param_bytes,
        new.parameters,
    )
    assert kept.stack_bytes == new.stack_bytes


def test_there_is_no_kernel_for_an_architecture_that_nobody_wrote_down() -> None:
    for kind, arch in (("AMD", "gfx803"), ("CPU", "riscv64"), ("NV", "sm_70")):
        assert subject(kind).kernel(arch) is None
