"""Code objects: laid out and relocated by hand, and refused with a sentence when a number in them cannot be."""

from __future__ import annotations

import random
import struct

import pytest

from hcq.amd.chip import CHIPS
from hcq.amd.link import Linked
from hcq.code import elf
from hcq.errors import UsageError
from tests.hcq.amd.kernels import compile_ir, image
from tests.hcq.amd.linker import linked, stripped

ARCHES = ["gfx1030", "gfx1100", "gfx942", "gfx90a", "gfx1201"]
CALLS = r"""
target triple = "amdgcn-amd-amdhsa"
@shared = addrspace(1) global i64 77
@hidden = internal addrspace(1) global i64 5
@pointers = addrspace(1) constant [2 x ptr addrspace(1)] [ptr addrspace(1) @shared, ptr addrspace(1) @hidden]
define i64 @twice(i64 %x) noinline { %r = add i64 %x, %x  ret i64 %r }
define amdgpu_kernel void @calls(ptr addrspace(1) %out) {
  %v = load i64, ptr addrspace(1) @shared
  %w = call i64 @twice(i64 %v)
  %h = load i64, ptr addrspace(1) @hidden
  %s = add i64 %w, %h
  store i64 %s, ptr addrspace(1) %out
  ret void
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_every_kernel_of_an_object_is_found_with_its_code_and_its_arguments(arch: str):
    found = Linked(image(arch), CHIPS[arch], "object")
    assert set(found.kernels) == {
        "scale", "reverse", "triangle", "scratch", "sizes", "lookup", "store_at", "forever", "hungry", "increment",
    }  # fmt: skip
    scale = found.kernels["scale"]
    assert scale.entry_offset % 256 == 0
    assert scale.metadata is not None
    explicit = [arg for arg in scale.metadata.args if not arg.value_kind.startswith("hidden_")]
    assert [(arg.name, arg.offset, arg.size_bytes) for arg in explicit] == [
        ("out", 0, 8), ("a", 8, 8), ("n", 16, 4), ("factor", 20, 4), ("add", 24, 8),
    ]  # fmt: skip
    assert found.kernels["reverse"].descriptor.group_segment_fixed_size == 1024
    assert found.kernels["scratch"].descriptor.private_segment_fixed_size >= 256


@pytest.mark.parametrize("arch", ARCHES)
def test_a_descriptors_entry_is_relocated_to_the_kernels_code(arch: str):
    found = Linked(image(arch), CHIPS[arch], "object")
    memory = found.place(0x10000000)
    for kernel in found.kernels.values():
        raw = memory[kernel.descriptor_offset + 16 : kernel.descriptor_offset + 24]
        assert kernel.descriptor_offset + struct.unpack("<q", raw)[0] == kernel.entry_offset


@pytest.mark.parametrize("arch", ARCHES)
def test_our_layout_agrees_with_the_linkers(arch: str):
    """The code is the same as in what ld.lld makes of the object, but where it names a table: that lies elsewhere."""
    ours = Linked(image(arch), CHIPS[arch], "ours")
    theirs = Linked(linked(image(arch)), CHIPS[arch], "theirs")
    assert set(ours.kernels) == set(theirs.kernels)
    for name, kernel in ours.kernels.items():
        other = theirs.kernels[name]
        assert kernel.descriptor.compute_pgm_rsrc1 == other.descriptor.compute_pgm_rsrc1
        if name == "lookup":
            continue
        size = 64
        a, b = ours.place(0), theirs.place(0)
        assert (
            a[kernel.entry_offset : kernel.entry_offset + size]
            == b[other.entry_offset : other.entry_offset + size]
        )


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_globals_calls_and_pointer_tables_are_relocated(arch: str):
    found = Linked(compile_ir(CALLS, arch), CHIPS[arch], "calls")
    types = {relocation.type for _, _, relocation, _ in found._relocations}
    assert {3, 5} <= types
    assert types & {8, 9, 10, 11}
    base = 0x7F0000001000
    memory = found.place(base)
    table = next(s for s in found._symbols if s.name == "pointers")
    at = found._symbol_address(table, 0)
    first, second = struct.unpack_from("<2Q", memory, at)
    assert struct.unpack_from("<Q", memory, first - base)[0] == 77
    assert struct.unpack_from("<Q", memory, second - base)[0] == 5


@pytest.mark.parametrize("is_stripped", [False, True], ids=["with sections", "stripped"])
@pytest.mark.parametrize(
    "flags", [(), ("--pack-dyn-relocs=relr",), ("-z", "rel"), ("--hash-style=gnu",), ("--hash-style=sysv",)]
)
def test_every_form_of_relocations_and_symbols_that_a_linker_writes_is_read(
    flags: tuple[str, ...], is_stripped: bool
):
    whole = linked(compile_ir(CALLS, "gfx1100"), *flags)
    theirs = Linked(stripped(whole) if is_stripped else whole, CHIPS["gfx1100"], "linked")
    assert set(theirs.kernels) == {"calls"}
    assert theirs.kernels["calls"].metadata is not None
    memory, base = theirs.place(0x7000_0000), 0x7000_0000
    first, second = struct.unpack_from("<2Q", memory, theirs.variables["pointers"].offset)
    assert first - base == theirs.variables["shared"].offset
    assert struct.unpack_from("<Q", memory, first - base)[0] == 77
    assert struct.unpack_from("<Q", memory, second - base)[0] == 5


def test_a_relocatable_object_with_relocations_of_another_form_is_refused():
    changed = bytearray(compile_ir(CALLS, "gfx1100"))
    table = next(one for one in elf.Object(bytes(changed)).sections if one.type == elf.SHT_RELA and one.info)
    at = struct.unpack_from("<Q", changed, 40)[0]
    number = elf.Object(bytes(changed)).sections.index(table)
    struct.pack_into("<I", changed, at + 64 * number + 4, 0x40000014)
    with pytest.raises(UsageError, match="of the form SHT_CREL; AMDGPU objects have SHT_RELA"):
        Linked(bytes(changed), CHIPS["gfx1100"], "object")


@pytest.mark.parametrize("is_stripped", [False, True], ids=["with sections", "stripped"])
def test_a_damaged_linked_object_is_refused_or_loads_but_never_crashes(is_stripped: bool):
    draw = random.Random(11)
    whole = linked(compile_ir(CALLS, "gfx1100"), "--pack-dyn-relocs=relr")
    whole = stripped(whole) if is_stripped else whole
    dynamic = next(one for one in elf.Object(whole).segments if one.type == 2)
    refused = 0
    for number in range(600):
        damaged = bytearray(whole)
        low, high = (dynamic.offset, dynamic.offset + dynamic.file_bytes) if number % 2 else (0, len(whole))
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(low, high)] ^= 1 << draw.randrange(8)
        try:
            Linked(bytes(damaged), CHIPS["gfx1100"], "object").place(0x1000)
        except UsageError as error:
            assert str(error).startswith("load('object'): ")
            refused += 1
    assert refused > 50


def test_truncated_objects_are_refused_with_a_sentence():
    whole = image("gfx1100")
    for size in (*range(0, 200, 7), *range(200, len(whole), 97)):
        with pytest.raises(UsageError, match=r"^load\('object'\): .*\.$"):
            Linked(whole[:size], CHIPS["gfx1100"], "object")


def test_damaged_objects_are_refused_or_load_but_never_crash():
    draw = random.Random(7)
    whole = image("gfx1100")
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        try:
            Linked(bytes(damaged), CHIPS["gfx1100"], "object").place(0x1000)
        except UsageError as error:
            assert str(error).startswith("load('object'): ")
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (7, 0, "its OS ABI is 0"),
        (8, 9, "version 9"),
        (18, elf.EM_X86_64, "it is for x86_64"),
        (48, 0x4C, "it is for gfx942"),
        (48, 0x54 | 0, "it is for version 0 of gfx11-generic, and gfx1100 is in it from version 1 on"),
        (48, 0x53, "it is for gfx10-3-generic, and this device is a gfx1100"),
        (48, 0x30, "it is for gfx908"),
        (48, 0xEE, "it is for machine 0xee, which is newer than this driver"),
    ],
)
def test_a_header_that_does_not_fit_this_gpu_is_refused(offset: int, value: int, says: str):
    damaged = bytearray(image("gfx1100"))
    damaged[offset] = value
    with pytest.raises(UsageError, match=says):
        Linked(bytes(damaged), CHIPS["gfx1100"], "object")


@pytest.mark.parametrize(
    ("abi", "flags", "has_sramecc", "says"),
    [
        (1, 0x000, False, ""),  # version 3: one bit each
        (1, 0x200, True, ""),
        (1, 0x100, False, "needs XNACK"),
        (1, 0x200, False, "compiled for SRAM ECC on, and this GPU's is off"),
        (1, 0x000, True, "compiled for SRAM ECC off, and this GPU's is on"),
        (2, 0x500, True, ""),  # version 4: either
        (2, 0x500, False, ""),
        (3, 0x200, True, ""),  # off
        (4, 0x300, True, "needs XNACK"),
        (4, 0x900, True, "compiled for SRAM ECC off, and this GPU's is on"),
        (4, 0xD00, False, "compiled for SRAM ECC on, and this GPU's is off"),
        (4, 0xD00, True, ""),
    ],
)
def test_what_an_object_wants_of_xnack_and_sram_ecc_is_read_as_its_version_has_it(
    abi: int, flags: int, has_sramecc: bool, says: str
):
    changed = bytearray(image("gfx90a"))
    changed[8] = abi
    struct.pack_into("<I", changed, 48, 0x3F | flags)
    if not says:
        assert Linked(bytes(changed), CHIPS["gfx90a"], "object", has_sramecc).kernels
        return
    with pytest.raises(UsageError, match=says) as refused:
        Linked(bytes(changed), CHIPS["gfx90a"], "object", has_sramecc)
    assert "whole ELF" not in str(refused.value)


@pytest.mark.parametrize(
    ("arch", "mach"),
    [("gfx942", 0x5F), ("gfx1030", 0x53), ("gfx1100", 0x54), ("gfx1151", 0x54), ("gfx1201", 0x59)],
)
def test_an_object_for_a_generic_target_loads_where_amds_runtime_loads_it(arch: str, mach: int):
    changed = bytearray(image(arch))
    flags = struct.unpack_from("<I", changed, 48)[0]
    struct.pack_into("<I", changed, 48, flags & 0xFFFF00 | mach | 1 << 24)
    changed[8] = 4
    assert Linked(bytes(changed), CHIPS[arch], "object").kernels


def test_an_undefined_symbol_is_named():
    text = """
    target triple = "amdgcn-amd-amdhsa"
    @elsewhere = external addrspace(1) global i64
    define amdgpu_kernel void @k(ptr addrspace(1) %out) {
      %v = load i64, ptr addrspace(1) @elsewhere
      store i64 %v, ptr addrspace(1) %out
      ret void
    }
    """
    with pytest.raises(UsageError, match="symbol 'elsewhere' is not defined in it"):
        Linked(compile_ir(text, "gfx1100"), CHIPS["gfx1100"], "k")
