"""disasm: machine code as text, with labels, symbols and source lines."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from hcq.errors import DriverError, UsageError
from hcq.tools.disassembly import amd, host, nv
from hcq.tools.trace import disasm
from hcq.trace.records import Kind
from tests.hcq.conftest import assemble
from tests.tools.trace.making import Maker

LOOP = """
declare float @sinf(float)
define void @loop(ptr %out, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %p = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %p
  %y = call float @sinf(float %x)
  store float %y, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %head, label %end
end:
  ret void
}
"""


def test_a_kernel_of_a_trace_is_disassembled(trace, capsule):
    done = trace("disasm", capsule, "one step")
    assert done.status == 0
    assert done.out.startswith("one step(buffer, int) ")
    assert "step:" in done.out
    assert "ret" in done.out.splitlines()[-1]
    with_bytes = trace("disasm", capsule, "one step", "--bytes").out
    assert len(with_bytes) > len(done.out)
    rows = json.loads(trace("disasm", capsule, "one step", "--json").out)["instructions"]
    assert rows[0]["label"] == "step"
    assert sum(len(row["raw"]) // 2 for row in rows) > rows[-1]["offset"]


def test_without_a_name_the_kernels_are_listed(trace, capsule):
    lines = trace("disasm", capsule).out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["one step", "mixed"]
    assert "5 launches" in lines[0]


def test_a_part_of_a_name_is_enough_when_it_is_clear(trace, capsule):
    assert trace("disasm", capsule, "mix").out.startswith("mixed")
    done = trace("disasm", capsule, "e")
    assert done.status == 2
    assert "'e' could be any of these: mixed, one step." in done.err
    assert "no kernel 'nothing'; there are: mixed, one step." in trace("disasm", capsule, "nothing").err


@pytest.mark.parametrize(
    ("triple", "arch", "jump"),
    [("x86_64-unknown-linux-gnu", "x86_64", "j"), ("aarch64-unknown-linux-gnu", "aarch64", "b.")],
)
def test_jumps_have_labels_and_calls_have_names(triple, arch, jump):
    found = host.disassemble(assemble(LOOP, triple), arch, "loop", "loop")
    assert found[0].label == "loop"
    labels = [line.label for line in found[1:] if line.label]
    assert labels
    assert all(label.startswith(".L") for label in labels)
    assert any(line.text.startswith(jump) and line.text.endswith(labels[0]) for line in found)
    assert any("sinf" in line.target for line in found)


def test_an_object_with_line_tables_shows_its_source(compile_c):
    source = "void twice(int *x) {\n  *x += 1;\n  *x *= 3;\n}\n"
    found = host.disassemble(compile_c(source, "-c", "-g", "-O1"), "x86_64", "twice", "twice")
    assert {"kernel.c:2", "kernel.c:3"} <= {line.source for line in found}


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942"])
def test_amd_code_is_read_by_our_own_tables(arch):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    ir = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @add(ptr addrspace(1) %out) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %first = icmp eq i32 %id, 0
  br i1 %first, label %write, label %end
write:
  store float 1.5, ptr addrspace(1) %out
  br label %end
end:
  ret void
}
"""
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=arch, opt=2, reloc="pic")
    image = bytes(machine.emit_object(llvm.parse_assembly(ir)))
    found = amd.disassemble(image, arch, "add", "add")
    texts = [line.text for line in found]
    assert any(line.text.startswith("s_cbranch_execz .L1") for line in found)
    assert [line.label for line in found if line.label] == ["add", ".L1"]
    assert any("global_store" in text for text in texts)
    assert any("s_endpgm" in text for text in texts)
    assert not any(
        ".long" in text for text in texts[: texts.index(next(t for t in texts if "s_endpgm" in t))]
    )


def test_ptx_is_text_already():
    lines = nv.disassemble(b".version 8.0\n.entry add()\n{\nret;\n}\n\0", "sm_90", "add", "add")
    assert lines[1].text == ".entry add()"


def test_machine_code_with_ptx_beside_it_is_read_by_the_vendors_tool_or_as_ptx(monkeypatch):
    from hcq.nv.bundle import Bundle
    from tests.hcq.nv.test_cubin import tool

    cubin = (Path(__file__).parents[2] / "data" / "nv" / "scale_sm_80_ptxas_12.8.cubin").read_bytes()
    image = Bundle(cubin, b".version 8.0\n.entry scale()\n{\nret;\n}\n").pack()
    with monkeypatch.context() as without:
        without.setattr(nv, "nv_tool", lambda name: None)
        assert nv.disassemble(image, "sm_80", "scale", "scale")[1].text == ".entry scale()"
    tool("nvdisasm")
    texts = [line.text for line in nv.disassemble(image, "sm_80", "scale", "scale")]
    assert ".text.scale" in texts[0]
    assert any("BAR.SYNC" in text for text in texts)


@pytest.mark.parametrize(
    ("reader", "arch", "tool"),
    [(nv, "sm_90", "nvdisasm"), (amd, "gfx803", "llvm-objdump")],
    ids=["nv", "amd"],
)
def test_a_tool_that_is_missing_is_named_with_how_to_get_it(monkeypatch, reader, arch, tool):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DriverError, match=rf"{tool}, .*Install it|{tool} is not on PATH. Install it"):
        reader.disassemble(assemble(LOOP), arch, "loop", "loop")


@pytest.mark.parametrize(
    ("image", "arch", "why"),
    [
        (b"", "x86_64", "fewer than an ELF header"),
        (b"\x7fELF" + bytes(60), "x86_64", "not a 64-bit"),
        (b"", "rv64", "there is no disassembler for 'rv64'"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(image, arch, why):
    with pytest.raises(UsageError, match=why):
        host.disassemble(image, arch, "loop", "loop")


def test_a_kind_of_device_without_a_disassembler_is_named():
    code = SimpleNamespace(name="loop", device=SimpleNamespace(kind="XYZ"), image=b"code")
    with pytest.raises(UsageError, match="disasm loop: there is no disassembler for XYZ devices"):
        disasm.disassemble(code)


@pytest.mark.parametrize(
    ("device", "arch", "facts", "why"),
    [
        ("NV", "sm_90", {"found": False}, r"kernel at 0x100: neither GPU memory nor .* cuobjdump -sass"),
        (
            "AMD",
            "gfx942",
            {"object_bytes": 1 << 23, "left_out": True},
            "8388608 bytes was too large.* roc-obj -d",
        ),
        ("CPU", "x86_64", {}, "the trace has no object of it"),
    ],
)
def test_a_kernel_without_an_object_is_told_with_what_else_shows_its_code(
    trace, tmp_path, device, arch, facts, why
):
    maker = Maker()
    number = maker.device(device, arch)
    name = "kernel at 0x100"
    maker.text(Kind.CODE, {"device": number, "name": name, "entry": name, "va": 0x100, "args": None,
                           "scratch_bytes": 0, "facts": facts})  # fmt: skip
    path = maker.write(tmp_path / "run.hcqtrace")
    done = trace("disasm", path, name)
    assert done.status == 2
    assert re.search(why, done.err), done.err
    assert f"{name}  {arch}, no object, 0 launches" in trace("disasm", path).out


def test_a_function_that_is_not_there_is_a_sentence_with_those_that_are():
    with pytest.raises(UsageError, match=r"no function 'lop' in its object. Its functions: loop"):
        host.disassemble(assemble(LOOP), "x86_64", "lop", "lop")


def test_bytes_that_are_no_code_are_shown_as_bytes():
    image = bytearray(assemble(LOOP, "x86_64-unknown-linux-gnu"))
    code = bytes(image)
    at = code.index(struct.pack("<I", 0), 64)
    for start in range(at, len(image) - 4, 97):
        damaged = bytes(image[:start]) + b"\xff\xff\xff" + bytes(image[start + 3 :])
        try:
            host.disassemble(damaged, "x86_64", "loop", "loop")
        except UsageError as error:
            assert "\n" not in str(error)
