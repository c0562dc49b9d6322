"""Code objects: laid out and relocated by hand, and refused with a sentence when a number in them cannot be."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from hcq import elf
from hcq.amd.chip import CHIPS
from hcq.amd.link import Linked
from hcq.errors import UsageError
from tests.hcq.amd.kernels import compile_ir, image

ARCHES = ["gfx1100", "gfx942", "gfx90a", "gfx1201"]
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
    linked = Linked(image(arch), CHIPS[arch], "object")
    assert set(linked.kernels) == {
        "scale", "reverse", "triangle", "scratch", "sizes", "lookup", "store_at", "forever", "hungry", "increment",
    }  # fmt: skip
    scale = linked.kernels["scale"]
    assert scale.entry_offset % 256 == 0
    assert scale.metadata is not None
    explicit = [arg for arg in scale.metadata.args if not arg.value_kind.startswith("hidden_")]
    assert [(arg.name, arg.offset, arg.size_bytes) for arg in explicit] == [
        ("out", 0, 8), ("a", 8, 8), ("n", 16, 4), ("factor", 20, 4), ("add", 24, 8),
    ]  # fmt: skip
    assert linked.kernels["reverse"].descriptor.group_segment_fixed_size == 1024
    assert linked.kernels["scratch"].descriptor.private_segment_fixed_size >= 256


@pytest.mark.parametrize("arch", ARCHES)
def test_a_descriptors_entry_is_relocated_to_the_kernels_code(arch: str):
    linked = Linked(image(arch), CHIPS[arch], "object")
    memory = linked.place(0x10000000)
    for kernel in linked.kernels.values():
        raw = memory[kernel.descriptor_offset + 16 : kernel.descriptor_offset + 24]
        assert kernel.descriptor_offset + struct.unpack("<q", raw)[0] == kernel.entry_offset


@pytest.mark.parametrize("arch", ARCHES)
def test_our_layout_agrees_with_the_linkers(arch: str, tmp_path: Path):
    """Each relocated word says the same distance as in what ld.lld makes of the object."""
    linker = shutil.which("ld.lld") or shutil.which("lld")
    if linker is None:
        pytest.skip("ld.lld is not installed")
    source, linked_file = tmp_path / "k.o", tmp_path / "k.so"
    source.write_bytes(image(arch))
    subprocess.run([linker, "-flavor", "gnu", "-shared", str(source), "-o", str(linked_file)], check=True)
    ours = Linked(image(arch), CHIPS[arch], "ours")
    theirs = Linked(linked_file.read_bytes(), CHIPS[arch], "theirs")
    assert set(ours.kernels) == set(theirs.kernels)
    for name, kernel in ours.kernels.items():
        other = theirs.kernels[name]
        assert kernel.descriptor.compute_pgm_rsrc1 == other.descriptor.compute_pgm_rsrc1
        size = 64
        a, b = ours.place(0), theirs.place(0)
        assert (
            a[kernel.entry_offset : kernel.entry_offset + size]
            == b[other.entry_offset : other.entry_offset + size]
        )


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_globals_calls_and_pointer_tables_are_relocated(arch: str):
    linked = Linked(compile_ir(CALLS, arch), CHIPS[arch], "calls")
    types = {relocation.type for _, _, relocation, _ in linked._relocations}
    assert {3, 5} <= types
    assert types & {8, 9, 10, 11}
    base = 0x7F0000001000
    memory = linked.place(base)
    table = next(s for s in linked._symbols if s.name == "pointers")
    at = linked._symbol_address(table, 0)
    first, second = struct.unpack_from("<2Q", memory, at)
    assert struct.unpack_from("<Q", memory, first - base)[0] == 77
    assert struct.unpack_from("<Q", memory, second - base)[0] == 5


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
        (48 + 1, 3, "needs XNACK"),
    ],
)
def test_a_header_that_does_not_fit_this_gpu_is_refused(offset: int, value: int, says: str):
    damaged = bytearray(image("gfx1100"))
    damaged[offset] = value
    with pytest.raises(UsageError, match=says):
        Linked(bytes(damaged), CHIPS["gfx1100"], "object")


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
