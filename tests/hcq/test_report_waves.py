"""Reports about kernels: waves, warps and SIMD groups by place, source lines, arguments, packets around get."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq import config
from hcq.errors import DeviceFault, WaitTimeout
from hcq.events import waves
from hcq.observe import report, report_waves
from hcq.observe.report import STDERR_LINES, Section, short
from tests.hcq.amd import kernels as amd_kernels
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.metal.conftest import open_metal as open_metal
from tests.hcq.nv import kernels as nv_kernels
from tests.hcq.nv.conftest import open_nv as open_nv

pytestmark = pytest.mark.own_devices

ROOT = Path(__file__).parents[2]

IR = """
target triple = "@TRIPLE@"
declare i32 @@TID@()
declare void @@BARRIER@
declare void @llvm.trap()

define @CC@ void @spin(ptr addrspace(1) %flag) {
  br label %again
again:
  %v = load atomic i32, ptr addrspace(1) %flag@SCOPE@ monotonic, align 4
  %c = icmp eq i32 %v, 0
  br i1 %c, label %again, label %end
end:
  ret void
}

define @CC@ void @far(ptr addrspace(1) %out, i64 %n) {
  %p = getelementptr i8, ptr addrspace(1) %out, i64 %n
  store i32 1, ptr addrspace(1) %p
  ret void
}

define @CC@ void @half(ptr addrspace(1) %flag) @BLOCK@ {
  %t = call i32 @@TID@()
  %in = icmp slt i32 %t, 32
  br i1 %in, label %again, label %meet
again:
  %v = load atomic i32, ptr addrspace(1) %flag@SCOPE@ monotonic, align 4
  %c = icmp eq i32 %v, 0
  br i1 %c, label %again, label %meet
meet:
  call void @@BARRIER_CALL@
  store i32 1, ptr addrspace(1) %flag
  ret void
}

define @CC@ void @gives_up(ptr addrspace(1) %flag) {
  %t = call i32 @@TID@()
  %in = icmp slt i32 %t, 5
  br i1 %in, label %wrong, label %end
wrong:
  call void @llvm.trap()
  unreachable
end:
  store i32 1, ptr addrspace(1) %flag
  ret void
}
"""
WORDS = {
    "AMD": {
        "TRIPLE": "amdgcn-amd-amdhsa",
        "CC": "amdgpu_kernel",
        "TID": "llvm.amdgcn.workitem.id.x",
        "BARRIER": "llvm.amdgcn.s.barrier()",
        "BARRIER_CALL": "llvm.amdgcn.s.barrier()",
        "SCOPE": ' syncscope("agent")',
        "BLOCK": '"amdgpu-flat-work-group-size"="128,128"',
    },
    "NV": {
        "TRIPLE": "nvptx64-nvidia-cuda",
        "CC": "ptx_kernel",
        "TID": "llvm.nvvm.read.ptx.sreg.tid.x",
        "BARRIER": "llvm.nvvm.barrier.cta.sync.aligned.all(i32)",
        "BARRIER_CALL": "llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
        "SCOPE": "",
        "BLOCK": "",
    },
}
MSL = b"""#include <metal_stdlib>
using namespace metal;
kernel void spin(device int *flag [[buffer(0)]]) {
    for (int i = 0; flag[0] == 0; ++i) {
        int x = i;
    }
}
kernel void far(device int *out [[buffer(0)]], constant int &n [[buffer(1)]]) {
    out[n >> 2] = 1;
}
"""
DEBUG_IR = """
target triple = "amdgcn-amd-amdhsa"

define amdgpu_kernel void @other(ptr addrspace(1) %out) {
  store i32 7, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @spin(ptr addrspace(1) %flag) !dbg !5 {
  br label %again, !dbg !8
again:
  %v = load atomic i32, ptr addrspace(1) %flag syncscope("agent") monotonic, align 4, !dbg !8
  %c = icmp eq i32 %v, 0, !dbg !8
  br i1 %c, label %again, label %end, !dbg !8
end:
  ret void, !dbg !9
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3, !4}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, producer: "us", emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "waiting.hip", directory: "/src")
!2 = !{}
!3 = !{i32 7, !"Dwarf Version", i32 @VERSION@}
!4 = !{i32 2, !"Debug Info Version", i32 3}
!5 = distinct !DISubprogram(name: "spin", scope: !1, file: !1, type: !6, unit: !0, spFlags: DISPFlagDefinition)
!6 = !DISubroutineType(types: !2)
!8 = !DILocation(line: 42, column: 3, scope: !5)
!9 = !DILocation(line: 44, column: 1, scope: !5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where reports of this test go."""
    before = config.current()
    config.use(dataclasses.replace(before, report_dir=tmp_path / "reports", validate=False))
    yield tmp_path / "reports"
    config.use(before)


@pytest.fixture
def open_one(
    folder: Path, open_amd: Callable[..., Any], open_nv: Callable[..., Any], open_metal: Callable[..., Any]
) -> Callable[[str], Any]:
    """open_one("AMD"): a device of a vendor's, and its kernels."""
    opens = {"AMD": open_amd, "NV": open_nv, "METAL": open_metal}
    return lambda vendor: opens[vendor](timeout_ms=500, validate=False)


def image(vendor: str, arch: str) -> bytes:
    if vendor == "METAL":
        return MSL
    text = IR
    for word, meaning in WORDS[vendor].items():
        text = text.replace(f"@{word}@", meaning)
    kernels = amd_kernels if vendor == "AMD" else nv_kernels
    return kernels.compile_ir(text, arch)


def begun(count: int = 1) -> None:
    """Wait until so many kernels run on emulated GPUs of this process."""
    end = time.monotonic() + 50
    while len(waves._running) < count and time.monotonic() < end:
        time.sleep(0.01)


def met(count: int) -> None:
    """Wait until so many waves of this process wait at barriers."""
    end = time.monotonic() + 50
    while time.monotonic() < end:
        kernels = waves.look(os.getpid(), lambda entry, name: True)
        if sum(wave.many for one in kernels for wave in one.waves if "barrier" in wave.waits_for) >= count:
            return
        time.sleep(0.01)


@contextlib.contextmanager
def hung(device: Any, name: str, vendor: str, grid: int = 16) -> Iterator[Any]:
    """A kernel that never ends waits for `flag`; then it ends after all."""
    program = device.load(image(vendor, device.arch), name, args=("buffer",), name=f"my {name}")
    flag = device.alloc(64, "flag")
    flag.write(bytes(64))
    done = device.queue().dispatch(program, [flag], grid=(grid, 1, 1), block=(128, 1, 1)).submit()
    begun()
    time.sleep(0.1)
    yield done
    if vendor == "METAL":
        flag.host[0] = 1
        done.wait(50_000)
    else:
        device.reset()


def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """(the file, the lines on stderr) of the only report."""
    (path,) = folder.glob("*.txt")
    printed = [line for line in capsys.readouterr().err.splitlines() if line]
    start = next(at for at, line in enumerate(printed) if line.startswith("---- hcq report"))
    assert printed[-1] == f"saved as {path}"
    return path.read_text(), printed[start:]


PLACES = {
    "AMD": r"waves     64 waves of groups 0-15: kernel my spin\+0x",
    "NV": "waves     64 warps of blocks 0-15: kernel my spin [PTX line ",
    "METAL": "waves     64 SIMD groups of groups 0-15: kernel my spin [MSL line 4]: for (int i = 0; flag[0] == 0",
}


@pytest.mark.parametrize("vendor", ["AMD", "NV", "METAL"])
def test_a_kernel_that_never_ends_is_told_by_its_waves_its_line_and_what_it_reads(
    vendor: str, open_one: Callable[[str], Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_one(vendor)
    with hung(device, "spin", vendor) as done, pytest.raises(WaitTimeout):
        done.wait(timeout_ms=100)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    for lines in (text.splitlines(), printed):
        assert any(line.startswith(PLACES[vendor].replace("\\", "")) for line in lines)
        assert any(
            line.endswith("0xffffffff, 32 of 32 lanes; in a loop that stores nothing and reads flag")
            for line in lines
        )


FAR = {"AMD": 1 << 31, "NV": 1 << 31, "METAL": 1 << 21}
STOPPED = {
    "AMD": ("waves     1 wave of group 0: kernel writes far+0x", "global_store"),
    "NV": ("waves     1 warp of block 0: kernel writes far [PTX line ", "st.global.b32"),
    "METAL": ("waves     1 SIMD group of group 0: kernel writes far [MSL line 9]", "out[n >> 2] = 1;"),
}


@pytest.mark.parametrize("vendor", ["AMD", "NV", "METAL"])
def test_a_store_out_of_bounds_is_told_by_its_wave_its_line_and_its_argument(
    vendor: str, open_one: Callable[[str], Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_one(vendor)
    program = device.load(image(vendor, device.arch), "far", args=("buffer", "int"), name="writes far")
    small = device.alloc(16, "small")
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [small, FAR[vendor]]).submit().wait(50_000)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    far = "2 MiB" if vendor == "METAL" else "2 GiB"
    wave, instruction = STOPPED[vendor]
    for lines in (text.splitlines(), printed):
        assert f"argument  argument 0, `small`, is 16 bytes; the store is {far} past it" in lines
        found = next(line for line in lines if line.startswith(wave))
        assert instruction in found


def test_warps_at_a_barrier_that_never_opens_are_told_apart_from_those_that_keep_it_shut(
    open_one: Callable[[str], Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_one("NV")
    with hung(device, "half", "NV", grid=4) as done, pytest.raises(WaitTimeout):
        done.wait(timeout_ms=100)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    assert "waves     4 warps of blocks 0-3: kernel my half [PTX line " in text
    assert "in a loop that stores nothing and reads flag" in text
    assert "waves     12 warps of blocks 0-3: kernel my half [PTX line " in text
    assert "wait for barrier 0 of its block: 96 of 128 threads are there" in text


@pytest.mark.parametrize("vendor", ["AMD", "NV"])
def test_a_kernel_that_gives_up_is_told_by_the_lanes_that_did(
    vendor: str, open_one: Callable[[str], Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_one(vendor)
    program = device.load(image(vendor, device.arch), "gives_up", args=("buffer",))
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [device.alloc(64)], block=(32, 1, 1)).submit().wait(50_000)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    stopped = next(line for line in text.splitlines() if line.startswith("stopped "))
    assert "trap" in stopped
    assert "0x0000001f, 5 of 32 lanes" in text


def test_an_instruction_that_there_is_not_is_told_by_its_place(
    open_amd: Callable[..., Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_amd(timeout_ms=500, validate=False)
    program = device.load(image("AMD", device.arch), "far", args=("buffer", "int"), name="writes far")
    program.code.write(b"\xff" * 16, program.code_va - program.code.address)
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [device.alloc(16), 4]).submit().wait(50_000)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    assert "ffffffff ffffffff" in next(line for line in text.splitlines() if line.startswith("stopped "))


def test_an_access_to_freed_memory_names_what_it_was(
    open_one: Callable[[str], Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_one("NV")
    program = device.load(image("NV", device.arch), "far", args=("int", "int"))
    gone = device.alloc(64 << 20, "gone")
    kept = gone.address
    gone.free()
    late = device.queue().dispatch(program, [kept, 1 << 30]).submit()
    with pytest.raises(DeviceFault):
        late.wait(50_000)
    text, _ = told(folder, capsys)
    assert "argument 0, `gone`, was freed and had 67108864 bytes; the store is 960 MiB past it" in text


@pytest.mark.parametrize("version", [4, 5])
def test_a_line_table_names_the_line_of_the_source(
    version: int, open_amd: Callable[..., Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_amd(timeout_ms=500, validate=False)
    made = amd_kernels.compile_ir(DEBUG_IR.replace("@VERSION@", str(version)), device.arch)
    program = device.load(made, "spin", args=("buffer",))
    flag = device.alloc(64, "flag")
    flag.write(bytes(64))
    done = device.queue().dispatch(program, [flag]).submit()
    begun()
    with pytest.raises(WaitTimeout):
        done.wait(timeout_ms=100)
    text, _ = told(folder, capsys)
    assert "[/src/waiting.hip:42]: " in text
    device.reset()


@pytest.mark.parametrize("before", [0, 1, 2, 3, 7, 23])
@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_the_packets_around_get_are_those_that_were_written(
    queue: str, before: int, open_amd: Callable[..., Any], folder: Path
) -> None:
    device = open_amd(timeout_ms=500, validate=False, queue=queue)
    gate, out = device.signal("gate"), device.alloc(4096, "out")
    for ring in device.rings.values():
        ring.seen = []
    program = device.load(image("AMD", device.arch), "far", args=("buffer", "int"))
    for value in range(1, before + 1):
        device.queue().fill(out, value).dispatch(program, [out, 4 * value]).submit().wait(50_000)
    late = device.queue().wait(gate, 3).fill(out, 7).submit()
    time.sleep(0.2)
    for name, ring in device.rings.items():
        written = device.decode(memoryview(b"".join(ring.seen)).cast("I"))
        state = next(one for one in device.ring_states() if one.name.startswith(name))
        shown = [text for place, text in state.around if place < 0]
        if ring.kind == "AQL":  # the processor has made them invalid
            assert shown == []
            continue
        assert len(shown) == 3 or before < 2
        everything = [repr(packet) for packet in written]
        places = [at for at in range(len(everything)) if everything[at : at + len(shown)] == shown]
        after = [text for place, text in state.around if place >= 0]
        assert any(everything[at + len(shown) :][: len(after)] == after for at in places), (name, shown)
    gate.set(3)
    late.wait(50_000)


def test_a_packet_is_shown_with_the_names_of_its_addresses(
    open_amd: Callable[..., Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_amd(timeout_ms=500, validate=False, queue="pm4")
    gate = device.signal("gate")
    late = device.queue().wait(gate, 3).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    text, _ = told(folder, capsys)
    assert "at get: {gate} WaitRegMem" in text
    assert "waves     none: no kernel of this process runs on the emulated GPU" in text
    gate.set(3)
    late.wait(50_000)


@pytest.mark.parametrize("vendor", ["AMD", "NV", "METAL"])
def test_on_hardware_a_report_says_why_there_are_no_waves(
    vendor: str, open_one: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_one(vendor)
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    text = report.describe(device, "asked for")
    assert f"waves     not available on this hardware: {device.waves_missing}" in text


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_on_amd_hardware_a_report_has_the_waves_of_the_save_area_and_the_kernel_goes_on(
    arch: str,
    open_amd: Callable[..., Any],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = open_amd(arch, queue="pm4", timeout_ms=500, validate=False)
    flag = device.alloc(64, "flag")
    flag.write(bytes(64))
    program = device.load(image("AMD", arch), "half", args=("buffer",), name="my half")
    done = device.queue().dispatch(program, [flag], grid=(4, 1, 1), block=(128, 1, 1)).submit()
    waiting = 4 if arch == "gfx90a" else 12
    met(waiting)
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    with pytest.raises(WaitTimeout):
        done.wait(timeout_ms=100)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    groups = "groups that are not known" if arch == "gfx90a" else "groups 0-3"
    for lines in (text.splitlines(), printed):
        assert any(line.startswith(f"waves     4 waves of {groups}: kernel my half+0x") for line in lines)
        at = next(
            line
            for line in lines
            if line.startswith(f"waves     {waiting} waves of {groups}: ") and "barrier" in line
        )
        assert "lanes; wait for the barrier of its workgroup" in lines[lines.index(at) + 1]
    assert "registers vcc=0x" in text and "          v0 of lanes 0.. 0" in text
    monkeypatch.undo()
    flag.host[0] = 1
    done.wait(50_000)


HANGS = """
import hcq
from tests.hcq.test_report_waves import image

device = hcq.open("AMD")
program = device.load(image("AMD", device.arch), "spin", args=("buffer",), name="my spin")
flag = device.alloc(64, "flag")
flag.write(bytes(64))
done = device.queue().dispatch(program, [flag], grid=(4, 1, 1), block=(64, 1, 1)).submit()
try:
    done.wait(timeout_ms=1500)
except hcq.WaitTimeout:
    flag.host[0] = 1
    done.wait(50_000)
    print("ended")
"""


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_report_on_gpus_of_another_process_has_the_waves_too(arch: str) -> None:
    command = [sys.executable, "-m", "hcq", "emulate", f"amd:{arch}", "--", sys.executable, "-c", HANGS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=ROOT)
    assert run.stdout == "ended\n", run.stderr
    count = 4 if arch == "gfx942" else 8
    assert f"waves     {count} waves of groups 0-3: kernel my spin+0x" in run.stderr


def test_on_amd_hardware_a_report_of_a_fault_names_the_exception(
    open_amd: Callable[..., Any],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = open_amd(timeout_ms=500, validate=False)
    program = device.load(image("AMD", device.arch), "far", args=("buffer", "int"), name="writes far")
    small = device.alloc(16, "small")
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [small, FAR["AMD"]]).submit().wait(50_000)
    text, _ = told(folder, capsys)
    lines = text.splitlines()
    at = next(
        number
        for number, line in enumerate(lines)
        if line.startswith("waves     1 wave of group 0: kernel writes far+0x")
    )
    assert "global_store" in lines[at]
    assert lines[at + 1].endswith("exec 0x00000001, 1 of 32 lanes; stopped by memory violation")


WRONG = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @askew(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %late = icmp sge i32 %t, 64
  %skew = select i1 %late, i64 2, i64 0
  %p = getelementptr i8, ptr addrspace(1) %out, i64 %skew
  store i32 1, ptr addrspace(1) %p
  ret void
}
"""


def test_on_nvidia_hardware_a_report_has_the_warp_that_an_sm_stopped(
    open_nv: Callable[..., Any],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = open_nv(timeout_ms=500, validate=False)
    made = nv_kernels.compile_ir(WRONG, device.arch)
    program = device.load(made, "askew", args=("buffer",), name="my askew")
    out = device.alloc(16, "out")
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, [out], block=(128, 1, 1)).submit().wait(50_000)
    text, printed = told(folder, capsys)
    assert len(printed) <= STDERR_LINES
    for lines in (text.splitlines(), printed):
        at = lines.index(
            "waves     1 warp of SM 0 (its warp 2): kernel my askew+0x0: "
            "the instruction is not read: machine code of NVIDIA's"
        )
        access = f"of the access at {out.va + 2:#x}; stopped by misaligned address"
        assert lines[at + 1] == f"          warp ESR 0x2000f, global ESR 0x0, {access}"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gives_up", "warp ESR 0x0, global ESR 0x10; stopped by breakpoint or trap"),
        ("far", "waves     not available: NV: no SM has an error in its registers"),
    ],
)
def test_on_nvidia_hardware_a_report_says_what_sms_say_of_a_trap_and_of_a_page_fault(
    name: str, says: str, open_nv: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_nv(timeout_ms=500, validate=False)
    args = [device.alloc(64)] if name == "gives_up" else [device.alloc(64), FAR["NV"]]
    program = device.load(image("NV", device.arch), name, args=("buffer", "int")[: len(args)])
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    with pytest.raises(DeviceFault):
        device.queue().dispatch(program, args, block=(32, 1, 1)).submit().wait(50_000)
    (path,) = folder.glob("*.txt")
    assert says in path.read_text()


def test_a_queue_stays_on_the_gpu_where_its_user_wants_that(
    open_amd: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_amd(timeout_ms=500, validate=False)
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    monkeypatch.setattr(device, "config", dataclasses.replace(device.config, report=frozenset(["nowaves"])))
    calls = []
    monkeypatch.setattr("hcq.amd.waves_off.call", lambda *args, **fields: calls.append(args))
    assert "waves     not available on this hardware" in report.describe(device, "asked", device.timeline.va)
    assert not calls


@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_a_kernel_driver_that_refuses_is_quoted(
    queue: str, open_amd: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_amd(queue=queue, timeout_ms=500, validate=False)
    monkeypatch.setattr(report_waves, "is_emulated_here", lambda device: False)
    device.rings["compute"].queue_id, kept = 77, device.rings["compute"].queue_id
    text = report.describe(device, "a wait", device.timeline.va)
    assert "waves     not available: AMDKFD_IOC_GET_QUEUE_WAVE_STATE" in text and "EFAULT" in text
    device.rings["compute"].queue_id = kept
    text = report.describe(device, "a wait", device.timeline.va)
    assert ("waves     none: no wave" in text) == (queue == "pm4")
    assert ("HCQ_AMD_QUEUE=pm4 can be looked into" in text) == (queue == "aql")


def test_a_page_on_stderr_has_no_more_lines_than_promised_and_the_first_of_each_section() -> None:
    rng = random.Random(5)
    for _ in range(300):
        sections = [Section(3, [f"---- hcq report: {'x' * 300}", "b", "c"])]
        promised = 3
        for number in range(rng.randrange(1, 8)):
            shown = rng.randrange(0, 4)
            lines = [f"{number}.{line}" for line in range(rng.choice((0, 1, 2, 5, 20, 60)))]
            sections.append(Section(shown, lines))
            promised += shown
        total = sum(len(section.lines) for section in sections)
        page = short(sections).splitlines()
        assert len(page) <= STDERR_LINES - 1  # and the file's name
        if total <= STDERR_LINES - 1:
            assert len(page) == total
            continue
        assert page[-1] == f"---- {total - len(page) + 1} more lines in the file"
        assert page[0] == sections[0].lines[0]
        for section in sections:
            assert set(section.lines[: section.shown]) <= set(page)


def test_who_asks_gets_an_answer_from_every_kernel_that_runs_and_none_from_one_that_ended() -> None:
    stop = threading.Event()

    def core(number: int) -> None:
        with waves.running(-1, number) as one:
            while not stop.is_set():
                if one.is_asked:
                    one.answer([waves.Wave("wave", number, "group 0", 0, "", "", "")])
                time.sleep(0.001)

    threads = [threading.Thread(target=core, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    while len([one for one in waves._running if one.pid == -1]) < 4 and time.monotonic() < end:
        time.sleep(0.001)
    for _ in range(20):
        found = waves.look(-1, lambda entry, name: entry != 3)
        assert sorted((one.entry, one.waves[0].many) for one in found) == [(1, 1), (2, 2), (4, 4)]
    stop.set()
    for thread in threads:
        thread.join()
    assert waves.look(-1, lambda entry, name: True) == []


def test_a_kernel_that_does_not_answer_is_waited_for_no_longer_than_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waves, "PATIENCE_SECONDS", 0.05)
    with waves.running(-2, 1), waves.running(-2, 2):
        found = waves.look(-2, lambda entry, name: True)
    assert [one.waves for one in found] == [(), ()]
    assert all("no end of a block" in one.missing for one in found)


def test_groups_in_words_are_the_numbers_that_were_given() -> None:
    assert waves.groups_text([3]) == "group 3"
    assert waves.groups_text(range(16)) == "groups 0-15"
    rng = random.Random(1)
    for _ in range(200):
        numbers = {rng.randrange(12) for _ in range(rng.randrange(1, 12))}
        back = set()
        for part in waves.groups_text(numbers).partition(" ")[2].split(", "):
            low, _, high = part.partition("-")
            back |= set(range(int(low), int(high or low) + 1))
        assert back == numbers
    assert waves.groups_text(range(0, 100, 2)).endswith("10, ...")


def test_damaged_line_tables_name_no_line_and_raise_nothing() -> None:
    from hcq.code.lines import line_at

    made = amd_kernels.compile_ir(DEBUG_IR.replace("@VERSION@", "5"), "gfx1100")
    assert line_at(made, "spin", 0).startswith("/src/waiting.hip:")
    assert line_at(made, "no such kernel", 0) == ""
    rng = random.Random(3)
    for _ in range(150):
        damaged = bytearray(made)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        cut = bytes(damaged[: rng.randrange(len(damaged))] if rng.random() < 0.3 else damaged)
        assert isinstance(line_at(cut, "spin", 8), str)
