"""Hostcalls: what waves ask the host for while they run. printf's text is printed, and the rest is refused by name."""

from __future__ import annotations

import ctypes
import glob
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcq.amd import hidden
from hcq.amd.chip import CHIPS
from hcq.amd.device import AmdDevice
from hcq.amd.link import Linked
from hcq.amd.printf import text_of
from hcq.errors import DeviceFault, UsageError
from tests.hcq.amd.kernels import compile_ir

# one packet for each row of a message, as ROCm's device library sends them; %desc and %service are the test's
IR = """
target triple = "amdgcn-amd-amdhsa"
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.sleep(i32)
define internal i64 @ask(ptr addrspace(1) %buffer, i32 %service, i64 %d, i64 %a, i64 %b, i64 %c) alwaysinline {
entry:
  %headers = load ptr addrspace(1), ptr addrspace(1) %buffer
  %payloads.at = getelementptr i64, ptr addrspace(1) %buffer, i64 1
  %payloads = load ptr addrspace(1), ptr addrspace(1) %payloads.at
  %free = getelementptr i64, ptr addrspace(1) %buffer, i64 3
  %ready = getelementptr i64, ptr addrspace(1) %buffer, i64 4
  %mask.at = getelementptr i64, ptr addrspace(1) %buffer, i64 5
  %mask = load i64, ptr addrspace(1) %mask.at
  br label %pop
pop:
  %top = load atomic i64, ptr addrspace(1) %free acquire, align 8
  %index = and i64 %top, %mask
  %header = getelementptr [24 x i8], ptr addrspace(1) %headers, i64 %index
  %next = load atomic i64, ptr addrspace(1) %header monotonic, align 8
  %popped = cmpxchg ptr addrspace(1) %free, i64 %top, i64 %next acq_rel monotonic
  %did = extractvalue { i64, i1 } %popped, 1
  br i1 %did, label %fill, label %pop
fill:
  %row = getelementptr [4096 x i8], ptr addrspace(1) %payloads, i64 %index
  store i64 %d, ptr addrspace(1) %row
  %r1 = getelementptr i64, ptr addrspace(1) %row, i64 1
  store i64 %a, ptr addrspace(1) %r1
  %r2 = getelementptr i64, ptr addrspace(1) %row, i64 2
  store i64 %b, ptr addrspace(1) %r2
  %r3 = getelementptr i64, ptr addrspace(1) %row, i64 3
  store i64 %c, ptr addrspace(1) %r3
  %active = getelementptr i8, ptr addrspace(1) %header, i64 8
  store i64 1, ptr addrspace(1) %active
  %what = getelementptr i8, ptr addrspace(1) %header, i64 16
  store i32 %service, ptr addrspace(1) %what
  %control = getelementptr i8, ptr addrspace(1) %header, i64 20
  store i32 1, ptr addrspace(1) %control
  br label %push
push:
  %first = load atomic i64, ptr addrspace(1) %ready monotonic, align 8
  store i64 %first, ptr addrspace(1) %header
  %pushed = cmpxchg ptr addrspace(1) %ready, i64 %first, i64 %top acq_rel monotonic
  %done = extractvalue { i64, i1 } %pushed, 1
  br i1 %done, label %wait, label %push
wait:
  call void @llvm.amdgcn.s.sleep(i32 1)
  %state = load atomic i32, ptr addrspace(1) %control acquire, align 4
  %busy = and i32 %state, 1
  %is.busy = icmp ne i32 %busy, 0
  br i1 %is.busy, label %wait, label %answered
answered:
  %answer = load i64, ptr addrspace(1) %row
  %size = add i64 %mask, 1
  %again = add i64 %top, %size
  br label %back
back:
  %head = load atomic i64, ptr addrspace(1) %free monotonic, align 8
  store i64 %head, ptr addrspace(1) %header
  %given = cmpxchg ptr addrspace(1) %free, i64 %head, i64 %again acq_rel monotonic
  %ok = extractvalue { i64, i1 } %given, 1
  br i1 %ok, label %end, label %back
end:
  ret i64 %answer
}
define amdgpu_kernel void @say(i32 %service, i64 %control, i64 %f0, i64 %f1, ptr addrspace(1) %out) {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %at = getelementptr i64, ptr addrspace(4) %implicit, i64 10
  %buffer = load ptr addrspace(1), ptr addrspace(4) %at
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %number = zext i32 %group to i64
  %begun = call i64 @ask(ptr addrspace(1) %buffer, i32 %service, i64 33, i64 %control, i64 0, i64 0)
  %ended = or i64 %begun, 98
  %printed = call i64 @ask(ptr addrspace(1) %buffer, i32 %service, i64 %ended, i64 %f0, i64 %f1, i64 %number)
  %p = getelementptr i64, ptr addrspace(1) %out, i64 %number
  store i64 %printed, ptr addrspace(1) %p
  ret void
}
"""
FORMAT = struct.unpack("<2Q", b"group %03d\n".ljust(16, b"\0"))
GPUS = [("gfx1100", "pm4"), ("gfx942", "aql"), ("gfx1201", "pm4")]
BITCODE = "/usr/lib/*/amdgcn/bitcode"


@pytest.mark.parametrize(("arch", "queue"), GPUS)
def test_what_a_kernel_prints_is_on_stdout_when_it_has_ended(
    arch: str, queue: str, open_amd: Callable[..., AmdDevice], capsys: pytest.CaptureFixture[str]
):
    device = open_amd(arch, queue=queue)
    say, out = device.load(compile_ir(IR, arch), "say"), device.alloc(8 * 40)
    device.run(say, [2, 0, *FORMAT, out], grid=(40, 1, 1))
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == [f"group {number:03}" for number in range(40)]
    assert set(struct.unpack("<40Q", out.read())) == {10}  # printf returns how long the text is


def test_a_message_for_stderr_goes_there(
    open_amd: Callable[..., AmdDevice], capsys: pytest.CaptureFixture[str]
):
    device = open_amd()
    say = device.load(compile_ir(IR, device.arch), "say")
    device.run(say, [2, 1, *FORMAT, device.alloc(64)])
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "group 000\n")


def test_a_launch_that_nobody_waits_for_is_served_too(
    open_amd: Callable[..., AmdDevice], capsys: pytest.CaptureFixture[str]
):
    device = open_amd()
    say, out = device.load(compile_ir(IR, device.arch), "say"), device.alloc(64)
    graph = device.graph()
    graph.dispatch(say, [2, 0, *FORMAT, out])
    for _ in range(3):
        done = graph.replay()
        end = time.monotonic() + 30
        while not done.is_done and time.monotonic() < end:
            time.sleep(0.001)
        assert done.is_done
    assert capsys.readouterr().out == "group 000\n" * 3


def test_a_service_that_is_not_served_is_a_fault_that_names_it_and_the_device_goes_on(
    open_amd: Callable[..., AmdDevice], capsys: pytest.CaptureFixture[str]
):
    device = open_amd()
    say, out = device.load(compile_ir(IR, device.arch), "say"), device.alloc(64)
    with pytest.raises(DeviceFault, match=r"asked the host for service 3 \(DEVMEM\), which is not served"):
        device.run(say, [3, 0, *FORMAT, out])
    device.run(say, [2, 0, *FORMAT, device.alloc(64)])
    assert capsys.readouterr().out == "group 000\n"


READS = """
target triple = "amdgcn-amd-amdhsa"
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define internal i64 @far(i64 %i) noinline {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %at = getelementptr i64, ptr addrspace(4) %implicit, i64 WORD
  %v = load i64, ptr addrspace(4) %at
  %s = add i64 %v, %i
  ret i64 %s
}
define amdgpu_kernel void @inside(ptr addrspace(1) %out) {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %at = getelementptr i64, ptr addrspace(4) %implicit, i64 WORD
  %v = load i64, ptr addrspace(4) %at
  store i64 %v, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @called(ptr addrspace(1) %out) {
  %v = call i64 @far(i64 1)
  store i64 %v, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @neither(ptr addrspace(1) %out) {
  store i64 1, ptr addrspace(1) %out
  ret void
}
"""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(
    ("word", "kind"), [(9, None), (10, "hostcall_buffer"), (12, "heap_v1"), (13, "default_queue"), (16, None)]
)
def test_an_argument_counts_as_used_where_code_loads_it(arch: str, word: int, kind: str | None):
    linked = Linked(compile_ir(READS.replace("WORD", str(word)), arch), CHIPS[arch], "object")
    found = {name: hidden.used(linked, kernel) for name, kernel in linked.kernels.items()}
    expected = {kind} if kind else set()
    assert found["inside"] == expected
    assert found["called"] == expected | {"hostcall_buffer"}  # it calls a function: it is served in any case
    assert found["neither"] == set()


COPIED = """
target triple = "amdgcn-amd-amdhsa"
@table = internal addrspace(4) global [20 x i64] zeroinitializer, align 8
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
define internal i64 @leaf(i64 %i) noinline {
  %s = mul i64 %i, %i
  ret i64 %s
}
define internal i64 @late(i64 %i) noinline {
  %first = call i64 @leaf(i64 %i)
  %place = getelementptr i64, ptr addrspace(4) FROM, i64 WORD
  %v = load i64, ptr addrspace(4) %place
  %second = call i64 @leaf(i64 %v)
  %s = add i64 %first, %second
  ret i64 %s
}
define amdgpu_kernel void @called(ptr addrspace(1) %out) {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %v = call i64 @late(i64 1)
  store i64 %v, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @inside(ptr addrspace(1) %out) {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %place = getelementptr i64, ptr addrspace(4) FROM, i64 WORD
  %v = load i64, ptr addrspace(4) %place
  store i64 %v, ptr addrspace(1) %out
  ret void
}
"""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("optimisation", [0, 2])
@pytest.mark.parametrize(("word", "kind"), [(12, "heap_v1"), (14, "completion_action")])
def test_an_argument_is_told_from_a_tables_element_at_the_same_distance(
    arch: str, optimisation: int, word: int, kind: str
):
    text = COPIED.replace("WORD", str(word))
    of_table = compile_ir(text.replace("FROM", "@table"), arch, optimisation)
    inner = "  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n"
    text = text.replace("  %first =", f"{inner}  %first =")
    of_arguments = compile_ir(text.replace("FROM", "%implicit"), arch, optimisation)
    for image, expected in ((of_table, set()), (of_arguments, {kind})):
        linked = Linked(image, CHIPS[arch], "object")
        found = {name: set(hidden.used(linked, kernel)) for name, kernel in linked.kernels.items()}
        assert found["inside"] - {"hostcall_buffer"} == expected
        assert found["called"] - {"hostcall_buffer"} == expected


def test_a_kernel_that_needs_the_heap_is_refused_by_name_and_its_neighbours_load(
    open_amd: Callable[..., AmdDevice],
):
    device = open_amd()
    module = device.module(compile_ir(READS.replace("WORD", "12"), device.arch))
    for entry in ("inside", "called"):
        with pytest.raises(UsageError, match=rf"{entry} uses malloc or free.*hidden_heap_v1"):
            module.program(entry)
    out = device.alloc(64)
    device.run(module.program("neither"), [out])
    assert struct.unpack_from("Q", out.read())[0] == 1


# ------------------------------------------------------------ printf's text


def message(form: str, values: list[Any]) -> list[int]:
    """The words that a kernel sends."""
    data = bytes(8)
    for value in (form, *values):
        if isinstance(value, str):
            text = value.encode() + b"\0"
            data += text.ljust(-(-len(text) // 8) * 8, b"\0")
        else:
            data += struct.pack("<d" if isinstance(value, float) else "<q", value)
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


def test_a_text_is_as_cs_printf_makes_it():
    """Of the C library of this machine, for 4,000 random conversions."""
    draw = random.Random(5)
    snprintf = ctypes.CDLL(None).snprintf
    floats = [0.0, -0.0, 1.0, 1.5, -2.75, 1e300, 5e-324, float("inf"), float("-inf"), 1e22, 0.1]
    for _ in range(4000):
        kind = draw.choice("diuoxXscpeEfFgGaA")
        flags = "-" * draw.randrange(2) if kind in "scp" else "".join(draw.sample("-+ #0", draw.randrange(4)))
        wide = draw.choice(["", "5", "12", "*"])
        fine = "" if kind in "cp" else draw.choice(["", "", ".0", ".3", ".10", ".", ".*"])
        length = draw.choice(["", "l", "ll", "hh", "h"]) if kind in "diuoxX" else ""
        values: list[Any] = [draw.randrange(-3, 14) for word in (wide, fine) if "*" in word]
        if kind in "diuoxX":
            values.append(draw.choice([0, 1, -1, 42, draw.randrange(-(2**63), 2**63)]))
        elif kind == "s":
            values.append("longword"[: draw.randrange(9)])
        elif kind in "cp":
            values.append(draw.randrange(33, 120))
        else:
            values.append(draw.choice([*floats, draw.uniform(-10, 10), draw.random() * 1e-310]))
        form = f"<%{flags}{wide}{fine}{length}{kind}>"
        given = [
            value.encode()
            if isinstance(value, str)
            else ctypes.c_double(value)
            if isinstance(value, float)
            else ctypes.c_longlong(value)
            for value in values
        ]
        room = ctypes.create_string_buffer(8192)
        snprintf(room, len(room), form.encode(), *given)
        assert text_of(message(form, values))[1] == room.value.decode("latin1"), (form, values)


def test_a_damaged_message_is_text_all_the_same():
    draw = random.Random(6)
    for _ in range(2000):
        words = [draw.getrandbits(64) for _ in range(draw.randrange(12))]
        piece = message("%s %d %*.*f %9999999d %", ["a", 1, 7, 3, 2.5])[1 : draw.randrange(2, 9)]
        assert isinstance(text_of([0, *piece, *words])[1], str)


# ------------------------------------------------------------ what others compile

HIP = """
extern "C" __attribute__((device)) int printf(const char *, ...);
extern "C" __attribute__((global)) void k(int n, float f) {
  int t = __builtin_amdgcn_workitem_id_x();
  if (t < n)
    printf("item %d of %s: %.2f %c%%\\n", t, "a rather long word, of several packets, which takes rows", f, 'x');
}
"""


def hip(source: str, arch: str, folder: Path) -> bytes:
    """HIP with ROCm's device library, as clang links it; the test is skipped where one of them is missing."""
    clang = next(
        (found for version in range(23, 15, -1) if (found := shutil.which(f"clang-{version}"))), None
    )
    library = next(iter(glob.glob(BITCODE)), "")
    if clang is None or not library:
        pytest.skip("clang (16 or later) or ROCm's device libraries are not installed")
    text, made = folder / "k.hip", folder / "k.o"
    text.write_text(source)
    wide = "on" if arch.startswith("gfx9") else "off"
    names = ("ockl", "oclc_abi_version_500", f"oclc_wavefrontsize64_{wide}", "oclc_isa_version_1030")
    libraries = [
        word
        for name in names
        for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{library}/{name}.bc")
    ]
    flags = [
        "--cuda-device-only",
        f"--offload-arch={arch}",
        "-nogpuinc",
        "-nogpulib",
        "--no-gpu-bundle-output",
        "-mcode-object-version=5",  # as the library's constant says; clang 16 takes 4 by itself
    ]
    done = subprocess.run(
        [clang, *flags, "-O2", "-c", "-x", "hip", str(text), *libraries, "-o", str(made)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"this clang does not compile it: {done.stderr.strip()[:200]}")
    return made.read_bytes()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_hips_printf_prints(
    arch: str, open_amd: Callable[..., AmdDevice], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    device = open_amd(arch)
    device.run(device.load(hip(HIP, arch, tmp_path), "k"), [3, 2.5], block=(64, 1, 1))
    word = "a rather long word, of several packets, which takes rows"
    assert capsys.readouterr().out.splitlines() == [f"item {item} of {word}: 2.50 x%" for item in range(3)]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_tritons_device_print_prints(
    arch: str, open_amd: Callable[..., AmdDevice], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """What Triton compiles for HIP, which needs no GPU."""
    pytest.importorskip("triton", reason="Triton is not installed")
    source = tmp_path / "printing.py"
    source.write_text(TRITON)
    lanes = 64 if arch.startswith("gfx9") else 32
    done = subprocess.run(
        [sys.executable, str(source), arch, str(lanes), str(tmp_path / "k.o")],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )
    if done.returncode:
        pytest.skip(f"this Triton does not compile for {arch} here: {done.stderr.strip()[-200:]}")
    device = open_amd(arch)
    data = device.alloc(4 * 32)
    data.write(struct.pack("<32f", *range(32)))
    program = device.load((tmp_path / "k.o").read_bytes(), "k")
    scratch = device.alloc(64)  # two pointers that this kernel does not use
    args = [data, 32, scratch, scratch][: len(program.explicit)]
    device.run(program, args, block=(lanes, 1, 1))
    printed = capsys.readouterr().out.splitlines()
    assert {f"{number}.000000" for number in range(32)} == {line.rpartition(" ")[2] for line in printed}
    assert struct.unpack("<32f", data.read()) == tuple(float(number + 1) for number in range(32))


TRITON = """
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def k(x, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.device_print("v", v)
    tl.store(x + i, v + 1, mask=i < n)


arch, lanes, made = sys.argv[1], int(sys.argv[2]), sys.argv[3]
signature = {"x": "*fp32", "n": "i32", "SIZE": "constexpr"}
source = ASTSource(fn=k, signature=signature, constexprs={"SIZE": 32})
whole = triton.compile(source, target=GPUTarget("hip", arch, lanes), options={"num_warps": 1})
open(made, "wb").write(whole.asm["hsaco"])
"""
