"""comgr as a second assembler: its objects compute what ours compute, and each of its refusals is a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.amd.chip import CHIPS
from hcq.amd.link import Linked
from hcq.compiler.assemble import comgr
from hcq.compiler.codegen import assemble_with
from hcq.compiler.target import amd_target, cpu_target

SCRIPT = Path(__file__).with_name("comgr_on_gpu.py")
ROOT = SCRIPT.parents[3]
RUNS_ON = {"gfx1100": "gfx1100", "gfx942": "gfx942", "gfx90a": "gfx942"}  # compiled for -> an emulated GPU

needs_comgr = pytest.mark.skipif(not comgr.available(), reason="needs AMD's comgr: apt install libamd-comgr2")


def known_arch() -> str:
    return next(arch for arch in RUNS_ON if arch in comgr.architectures())


@needs_comgr
@pytest.mark.deadline(100)
def test_kernels_assembled_by_comgr_compute_what_ours_compute():
    arch = known_arch()
    run = subprocess.run(
        [sys.executable, SCRIPT, arch, RUNS_ON[arch]],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert {name: what for name, what in found.items() if what} == {}
    assert len(found) == 13


@needs_comgr
def test_source_that_does_not_compile_is_told_with_its_line():
    with pytest.raises(
        comgr.ComgrError, match=r"(?s)wrong does not compile.*wrong\.hip:1:9: error: expected"
    ):
        comgr.compile_hip("int x = ;", known_arch(), "wrong")


@needs_comgr
def test_text_that_is_no_llvm_ir_is_told_with_the_log():
    with pytest.raises(comgr.ComgrError, match=r"(?s)kernel does not compile.*expected top-level entity"):
        comgr.compile_ir("nonsense", known_arch())


@needs_comgr
def test_copies_to_lds_that_would_end_the_process_are_refused(monkeypatch):
    text = "call void @llvm.amdgcn.global.load.lds("
    old = comgr.library()._replace(version=(2, 4))
    monkeypatch.setattr(comgr, "library", lambda: old)
    with pytest.raises(
        comgr.ComgrError, match=r"copied for gfx90a copies to LDS .*; pipeline with 2 tiles, or"
    ):
        comgr.assemble(text, amd_target("gfx90a"), "copied")


@needs_comgr
def test_what_is_no_object_does_not_link():
    with pytest.raises(comgr.ComgrError, match=r"(?s)kernel does not link.*\(1\).*lld: error"):
        comgr.link([b"abc"], known_arch())
    with pytest.raises(comgr.ComgrError, match="at least one"):
        comgr.link([], known_arch())


@needs_comgr
def test_an_architecture_it_does_not_know_is_refused_with_those_it_does():
    with pytest.raises(comgr.ComgrError, match=r"generates no code for gfx9999; it knows .*gfx90a"):
        comgr.compile_ir("", "gfx9999")
    with pytest.raises(comgr.ComgrError, match=r"'sm_90' is no architecture\. Write gfx90a"):
        comgr.compile_ir("", "sm_90")


@needs_comgr
def test_the_whole_isa_name_and_its_features_are_taken():
    text = "define amdgpu_kernel void @nothing() {\n  ret void\n}\n"
    image = comgr.compile_ir(text, "amdgcn-amd-amdhsa--gfx90a:xnack-")
    assert image[:4] == b"\x7fELF"
    assert image[49] & 3 == 2  # EF_AMDGPU_FEATURE_XNACK_V4: off
    assert comgr.compile_ir(text, "gfx90a")[49] & 3 == 1  # any


STORE_ONE = """define amdgpu_kernel void @store_one(ptr addrspace(1) %out) {
  store i32 1, ptr addrspace(1) %out
  ret void
}
"""


@needs_comgr
def test_our_layout_of_its_object_agrees_with_its_linkers():
    arch = "gfx90a"
    relocatable = comgr.compile_ir(STORE_ONE, arch)
    ours = Linked(relocatable, CHIPS[arch], "ours")
    theirs = Linked(comgr.link([relocatable], arch), CHIPS[arch], "theirs")
    first, second = ours.kernels["store_one"], theirs.kernels["store_one"]
    assert first.descriptor.kernarg_size == second.descriptor.kernarg_size == 8
    assert first.descriptor.compute_pgm_rsrc1 == second.descriptor.compute_pgm_rsrc1
    code = [
        linked.place(0)[kernel.entry_offset :][:32] for linked, kernel in ((ours, first), (theirs, second))
    ]
    assert code[0] == code[1] != bytes(32)


@needs_comgr
def test_version_2_disassembles_what_it_made():
    if comgr.library().version[0] != 2:
        with pytest.raises(comgr.ComgrError, match="llvm-objdump"):
            comgr.disassemble(b"", "gfx1030")
        return
    text = comgr.disassemble(comgr.compile_ir(STORE_ONE, "gfx1030"), "gfx1030")
    assert "store_one" in text
    assert "global_store_dword" in text
    with pytest.raises(comgr.ComgrError, match="kernel is no ELF object of an AMD GPU"):
        comgr.disassemble(b"\x7fELF" + bytes(60), "gfx1030")


@needs_comgr
def test_a_target_assembled_by_comgr_has_a_key_of_its_own_and_goes_back():
    plain = amd_target(known_arch())
    chosen = assemble_with(plain, "comgr")
    assert chosen.key.startswith(f"{plain.key}/comgr-")
    assert assemble_with(chosen, "comgr") is chosen
    assert assemble_with(chosen, "llvmlite") == plain


def test_an_assembler_that_a_target_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"assemble_with\(cpu .*'comgr'\): this target has .* llvmlite$"):
        assemble_with(cpu_target(threads=1), "comgr")
    with pytest.raises(ValueError, match=r"assemble_with\(amdgpu gfx90a, 'gcc'\): .* llvmlite, comgr$"):
        assemble_with(amd_target("gfx90a"), "gcc")


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(comgr, "_places", lambda: iter(["libno_such_comgr.so.2"]))
    with pytest.raises(comgr.ComgrError, match=r"libno_such_comgr.*apt install libamd-comgr2"):
        comgr.library.__wrapped__()


@pytest.mark.parametrize("form", ["load", "store"])
def test_masked_accesses_are_spelled_so_that_an_older_llvm_reads_them(form):
    lines = {
        "load": (
            "%v1 = call <4 x i8> @llvm.masked.load.v4i8.p1(ptr addrspace(1) align 2 %v0, <4 x i1> %m, <4 x i8> %z)",
            "%v1 = call <4 x i8> @llvm.masked.load.v4i8.p1(ptr addrspace(1) %v0, i32 2, <4 x i1> %m, <4 x i8> %z)",
            "declare <4 x i8> @llvm.masked.load.v4i8.p1(ptr addrspace(1), <4 x i1>, <4 x i8>)",
            "declare <4 x i8> @llvm.masked.load.v4i8.p1(ptr addrspace(1), i32, <4 x i1>, <4 x i8>)",
        ),
        "store": (
            "call void @llvm.masked.store.v1f32.p1(<1 x float> %v9, ptr addrspace(1) align 4 %v8, <1 x i1> %v0)",
            "call void @llvm.masked.store.v1f32.p1(<1 x float> %v9, ptr addrspace(1) %v8, i32 4, <1 x i1> %v0)",
            "declare void @llvm.masked.store.v1f32.p1(<1 x float>, ptr addrspace(1), <1 x i1>)",
            "declare void @llvm.masked.store.v1f32.p1(<1 x float>, ptr addrspace(1), i32, <1 x i1>)",
        ),
    }[form]
    assert [comgr._old_masks(lines[0]), comgr._old_masks(lines[2])] == [lines[1], lines[3]]
