"""Shared memory that a launch asks for: it reaches the kernel, and every way that a launch can go keeps its size."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import hcq
from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.gpu.program import GpuProgram
from hcq.graph import Symbol
from hcq.rules.effects import Launch
from hcq.rules.examine import model_of
from hcq.trace.file import Trace
from tests.hcq.amd.kernels import compile_ir
from tests.hcq.gpu.conftest import Open
from tests.hcq.gpu.vendors import AMD, Vendor
from tests.hcq.nv.kernels import image as nv_image

AMD_KERNELS = r"""
target triple = "amdgcn-amd-amdhsa"
@dynamic = external addrspace(3) global [0 x i32]
@own = internal addrspace(3) global [64 x i32] poison
declare i32 @llvm.amdgcn.workitem.id.x()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare void @llvm.amdgcn.s.barrier()

; a group of any size reverses its part through dynamic LDS
define amdgpu_kernel void @reverse_dynamic(ptr addrspace(1) %out, ptr addrspace(1) %a) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %hidden = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %sp = getelementptr i8, ptr addrspace(4) %hidden, i32 12
  %size = load i16, ptr addrspace(4) %sp
  %wide = zext i16 %size to i32
  %ap = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %v = load i32, ptr addrspace(1) %ap
  %lp = getelementptr i32, ptr addrspace(3) @dynamic, i32 %t
  store i32 %v, ptr addrspace(3) %lp
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %last = sub i32 %wide, 1
  %other = sub i32 %last, %t
  %rp = getelementptr i32, ptr addrspace(3) @dynamic, i32 %other
  %w = load i32, ptr addrspace(3) %rp
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %w, ptr addrspace(1) %op
  ret void
}

; what it is told of its dynamic LDS, and a word of it behind the kernel's own 256 bytes
define amdgpu_kernel void @told(ptr addrspace(1) %out, i32 %i) {
  %hidden = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %sp = getelementptr i8, ptr addrspace(4) %hidden, i32 120
  %size = load i32, ptr addrspace(4) %sp
  store i32 %size, ptr addrspace(1) %out
  %mine = getelementptr [64 x i32], ptr addrspace(3) @own, i32 0, i32 %i
  store volatile i32 5, ptr addrspace(3) %mine
  %lp = getelementptr i32, ptr addrspace(3) @dynamic, i32 %i
  store volatile i32 9, ptr addrspace(3) %lp
  %v = load volatile i32, ptr addrspace(3) %lp
  %w = load volatile i32, ptr addrspace(3) %mine
  %sum = add i32 %v, %w
  %o1 = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %sum, ptr addrspace(1) %o1
  ret void
}
"""


def kernels(gpu: GpuDevice) -> bytes:
    return compile_ir(AMD_KERNELS, gpu.arch) if gpu.arch.startswith("gfx") else nv_image(gpu.arch)


def reverse(gpu: GpuDevice) -> GpuProgram:
    return gpu.load(kernels(gpu), "reverse_dynamic")  # type: ignore[return-value]


def numbers(count: int) -> bytes:
    return struct.pack(f"<{count}I", *range(count))


def is_reversed(data: bytes) -> bool:
    count = len(data) // 4
    return struct.unpack(f"<{count}I", data) == tuple(reversed(range(count)))


def test_a_launch_has_the_shared_memory_that_it_asks_for(gpu: GpuDevice) -> None:
    out, a = gpu.alloc(4096), gpu.alloc(4096)
    a.write(numbers(1024))
    program = reverse(gpu)
    assert program.dynamic_shared_bytes == 0  # type: ignore[attr-defined]
    for threads in (256, 64, 1024, 64):
        program.dynamic_shared_bytes = 4 * threads  # type: ignore[attr-defined]
        gpu.run(program, [out, a], block=(threads, 1, 1))
        assert is_reversed(out.read(0, 4 * threads))


def test_more_than_a_group_can_have_is_refused_when_it_is_set(gpu: GpuDevice) -> None:
    program = reverse(gpu)
    most = program.most_shared_bytes - program.own_shared_bytes  # type: ignore[attr-defined]
    program.dynamic_shared_bytes = most  # type: ignore[attr-defined]
    for size in (most + 1, 10**9):
        with pytest.raises(
            UsageError, match=rf"dynamic_shared_bytes={size}: .* bytes of shared memory on {gpu.arch}"
        ):
            program.dynamic_shared_bytes = size  # type: ignore[attr-defined]
    for wrong in (-1, 1.5, None, "256", True):
        with pytest.raises(UsageError, match=r"dynamic_shared_bytes=.*; takes a whole number"):
            program.dynamic_shared_bytes = wrong  # type: ignore[attr-defined]
    assert program.dynamic_shared_bytes == most  # type: ignore[attr-defined]


def test_a_graph_keeps_the_size_that_each_launch_was_recorded_with(gpu: GpuDevice) -> None:
    """One program with two sizes; setting a third afterwards changes neither."""
    a, small, large = gpu.alloc(1024), gpu.alloc(256), gpu.alloc(1024)
    a.write(numbers(256))
    program, graph = reverse(gpu), gpu.graph()
    for out, threads in ((large, 256), (small, 64)):
        program.dynamic_shared_bytes = 4 * threads  # type: ignore[attr-defined]
        graph.dispatch(program, [out, Symbol("a")], block=(threads, 1, 1))
    program.dynamic_shared_bytes = 0  # type: ignore[attr-defined]
    for _ in range(3):
        small.write(bytes(256))
        large.write(bytes(1024))
        graph.replay({"a": a}).wait()
        assert is_reversed(small.read())
        assert is_reversed(large.read())
    assert [what.dynamic_shared_bytes for what in graph.commands] == [1024, 256]  # type: ignore[union-attr]


@pytest.mark.parametrize("queue", ["pm4", "aql"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_amd_kernels_are_told_the_size_and_find_it_behind_their_own(
    open_amd: Open, arch: str, queue: str
) -> None:
    amd = open_amd(arch, queue=queue)
    told: GpuProgram = amd.load(kernels(amd), "told")  # type: ignore[assignment]
    out = amd.alloc(8)
    for size in (512, 4, 1000):
        told.dynamic_shared_bytes = size  # type: ignore[attr-defined]
        amd.run(told, [out, 0])
        assert struct.unpack("<2I", out.read()) == (size, 14)


@pytest.mark.parametrize(("queue", "size"), [("aql", 1256), ("pm4", 1536)])
def test_the_packets_of_amd_count_it(open_amd: Open, queue: str, size: int) -> None:
    """AQL's group_segment_size as it is; RSRC2's LDS_SIZE in units of 512 bytes."""
    amd = open_amd(queue=queue)
    told = amd.load(kernels(amd), "told")
    told.dynamic_shared_bytes = 1000  # type: ignore[attr-defined]
    words, _ = amd.encode_dispatch(told, [amd.alloc(8), 0], (1, 1, 1), (1, 1, 1), 0)
    steps = model_of("AMD", "gfx1100", amd.facts(), amd.decode).steps(words, "", {})
    (launch,) = [effect for step in steps for effect in step.effects if isinstance(effect, Launch)]
    assert launch.shared_bytes == size


PROGRAM = """
import struct, sys
import hcq
gpu = hcq.open(sys.argv[1])
program = gpu.load(open(sys.argv[2], "rb").read(), "reverse_dynamic")
a = gpu.alloc(1024, "a")
a.write(struct.pack("<256I", *range(256)))
for threads in (256, 64):
    out = gpu.alloc(4 * threads, f"out {threads}")
    program.dynamic_shared_bytes = 4 * threads
    gpu.run(program, [out, a], block=(threads, 1, 1))
    out.read()
"""


@pytest.mark.own_devices
def test_a_trace_has_the_size_of_every_launch_and_replays_with_it(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, path = tmp_path / "image", tmp_path / "trace"
    image.write_bytes(compile_ir(AMD_KERNELS, vendor.arch) if vendor is AMD else nv_image(vendor.arch))
    emulated = f"{vendor.name.lower()}:{vendor.arch}"
    environment = {**os.environ, "HCQ_EMULATE": emulated, "HCQ_TRACE": f"{path},data"}
    command = [sys.executable, "-c", PROGRAM, vendor.name, str(image)]
    subprocess.run(command, check=True, env=environment, timeout=60)
    trace = Trace.read(path)
    sizes = [
        command["dynamic_shared_bytes"]
        for submission in trace.submissions
        for command in submission.all_commands()
        if command["verb"] == "dispatch"
    ]
    assert sizes == [1024, 256]
    again = [sys.executable, "-m", "hcq.tools.hcq_trace", "replay", str(path), "--json"]
    done = subprocess.run(again, capture_output=True, env={**os.environ, "HCQ_EMULATE": emulated}, timeout=60)
    assert json.loads(done.stdout)["same"] is True, done


@pytest.mark.parametrize("kind", ["CPU", "AMD", "NV"])
def test_an_attribute_that_a_program_does_not_have_is_refused(
    kind: str, open_amd: Open, open_nv: Open, llvm_object: bytes
) -> None:
    """It says what there is: a misspelt size would otherwise be kept, and the kernel would run without it."""
    if kind == "CPU":
        program = hcq.open("CPU").load(llvm_object, "functions")
    else:
        program = reverse(open_amd() if kind == "AMD" else open_nv())
    has = {"CPU": "", "AMD": "dynamic_shared_bytes, ", "NV": "cooperative, dynamic_shared_bytes, "}[kind]
    for name in ("dynamic_shared_byte", "shared", "cooperativ"):
        with pytest.raises(UsageError, match=rf"\.{name} = 256: a program of {kind} has no such attribute. What can be "
                                             rf"set: {has}set_access\(\)"):  # fmt: skip
            setattr(program, name, 256)
        assert not hasattr(program, name)
    if kind == "CPU":
        with pytest.raises(UsageError, match=r"\.dynamic_shared_bytes = 256: a program of CPU has no such"):
            program.dynamic_shared_bytes = 256  # type: ignore[attr-defined]
