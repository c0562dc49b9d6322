"""HCQ_SANITIZE=memory on emulated GPUs: every access that goes astray is found, and none in the twins that do not."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

import pytest

from hcq import Device, DeviceFault
from hcq.amd.device import AmdDevice
from hcq.config import Config
from hcq.emu.port import EmulatedPort, kernels_for, port_for
from hcq.metal.device import MetalDevice
from hcq.nv.device import NvDevice
from hcq.observe.sanitizer import Sanitizer
from hcq.rules.rule import Finding
from tests.hcq.gpu.kernels_in_llvm_ir import amd_kernel, amd_object
from tests.hcq.gpu.straying_kernels import BUFFER_BYTES, CASES, Case, image, ptx
from tests.hcq.gpu.straying_msl import CASES as MSL
from tests.hcq.gpu.straying_msl import msl
from tests.hcq.nv.test_own_packets import transfer

pytestmark = pytest.mark.own_devices
LOOKS = {**os.environ, "HCQ_VALIDATE": "0", "HCQ_SANITIZE": "memory", "HCQ_REPORT": "off"}
MACHINES = ["amd:gfx1100", "amd:gfx942", "nv:sm_90"]
THREADS = 64


def opened(word: str, environment: dict[str, str]) -> Device:
    """An emulated GPU; an AMD GPU of a machine of its own: a page fault evicts a process from it for good."""
    vendor = word.partition(":")[0]
    kind = {"amd": AmdDevice, "nv": NvDevice, "metal": MetalDevice}[vendor]
    port = EmulatedPort(kernels_for([word])) if vendor == "amd" else port_for([word])
    return kind(vendor.upper(), port, Config.read(environment))


def run(case: Case, is_wrong: bool, word: str) -> list[Finding] | None:
    """What is said of one of its kernels; None where there is no such."""
    text = image(case, is_wrong, word.partition(":")[2])
    if text is None:
        return None
    gpu = opened(word, LOOKS)
    before = len(Sanitizer.findings)
    code = amd_object(text, gpu.arch) if isinstance(text, str) else text
    kernel = gpu.load(code, "kernel")
    a, b = gpu.alloc(BUFFER_BYTES, "a"), gpu.alloc(BUFFER_BYTES, "b")
    vendor = case.amd if gpu.arch.startswith("gfx") else case.nv
    assert vendor is not None
    args = [a, b, case.n[0 if is_wrong else 1]]
    if is_wrong and vendor.stops:
        with pytest.raises(DeviceFault):
            gpu.run(kernel, args, block=(THREADS, 1, 1))
    else:
        gpu.run(kernel, args, block=(THREADS, 1, 1))
        gpu.close()
    return Sanitizer.findings[before:]


@pytest.mark.parametrize("word", MACHINES)
@pytest.mark.parametrize("name", CASES)
def test_each_stray_access_is_found_and_no_twin_has_one(name: str, word: str) -> None:
    found = run(CASES[name], True, word)
    if found is not None:
        assert [finding.rule for finding in found] == [CASES[name].rule]
        assert run(CASES[name], False, word) == []


@pytest.mark.parametrize("word", MACHINES)
def test_a_finding_names_the_buffer_the_byte_the_thread_and_the_instruction(word: str) -> None:
    found = run(CASES["a load behind the end"], True, word)
    assert found is not None
    (finding,) = found
    assert finding.buffer == "a" and "byte 400 of a, which has 400" in finding.what
    assert finding.level == "warning"
    assert re.search(r"\(63, 0, 0\).* reads it by '(ld\.global|global_load|flat_load)", finding.what)


@pytest.mark.parametrize("word", MACHINES)
def test_memory_of_a_freed_buffer_is_named_after_it(word: str) -> None:
    gpu = opened(word, LOOKS)
    before = len(Sanitizer.findings)
    code = (
        amd_object(
            amd_kernel("%v = load i32, ptr addrspace(1) %pa\n  store i32 %v, ptr addrspace(1) %pb"), gpu.arch
        )
        if gpu.arch.startswith("gfx")
        else ptx("ld.global.u32 %r2, [%a]; st.global.u32 [%b], %r2")
    )
    kernel, b = gpu.load(code, "kernel"), gpu.alloc(BUFFER_BYTES, "b")
    gone = gpu.alloc(BUFFER_BYTES, "gone")
    address = gone.address
    gpu.run(kernel, [gone, b, 0], block=(THREADS, 1, 1))
    assert Sanitizer.findings[before:] == []
    gone.free()
    gpu.run(kernel, [address, b, 0], block=(THREADS, 1, 1))
    (finding,) = Sanitizer.findings[before:]
    assert finding.rule == "use-after-free" and finding.buffer == "gone"
    assert "byte 0 of gone, which was freed" in finding.what
    gpu.alloc(BUFFER_BYTES, "next")  # has the same memory
    gpu.run(kernel, [address, b, 0], block=(THREADS, 1, 1))
    assert len(Sanitizer.findings[before:]) == 1
    gpu.close()


@pytest.mark.parametrize("word", MACHINES)
def test_a_buffer_may_be_freed_while_work_that_uses_it_is_under_way(word: str) -> None:
    gpu = opened(word, LOOKS)
    before = len(Sanitizer.findings)
    text = (
        amd_object(
            amd_kernel("%v = load i32, ptr addrspace(1) %pa\n  store i32 %v, ptr addrspace(1) %pb"), gpu.arch
        )
        if gpu.arch.startswith("gfx")
        else ptx("ld.global.u32 %r2, [%a]; st.global.u32 [%b], %r2")
    )
    kernel, b = gpu.load(text, "kernel"), gpu.alloc(BUFFER_BYTES, "b")
    for size in (400, 256, 300, 500, 260) * 4:
        a = gpu.alloc(size, "a")
        gpu.queue().dispatch(kernel, [a, b, 0], (1, 1, 1), (THREADS, 1, 1)).submit()
        a.free()
    gpu.synchronize()
    assert Sanitizer.findings[before:] == []
    gpu.close()


def test_what_both_switches_find_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    gpu: Device = opened("amd:gfx1100", {**LOOKS, "HCQ_VALIDATE": "1"})
    text = amd_kernel(
        "%q = getelementptr i32, ptr addrspace(1) %pa, i64 64\n  store i32 %t, ptr addrspace(1) %q\n"
        "  %s = getelementptr i8, ptr addrspace(3) @words, i32 1536\n  store volatile i32 %t, ptr addrspace(3) %s",
        "@words = internal addrspace(3) global [1024 x i8] poison, align 16",
    )
    kernel = gpu.load(amd_object(text, gpu.arch), "kernel")
    a, b = gpu.alloc(BUFFER_BYTES, "a"), gpu.alloc(BUFFER_BYTES, "b")
    gpu.run(kernel, [a, b, 0], block=(THREADS, 1, 1))
    gpu.close()
    told = capfd.readouterr().err
    assert sorted(re.findall(r"warning \[([\w-]+)\]", told)) == ["buffer-overrun", "shared-beyond"]


def on_metal(body: str) -> list[Finding]:
    """What is said of a kernel in MSL."""
    gpu = opened("metal:m3", LOOKS)
    before = len(Sanitizer.findings)
    kernel = gpu.load(msl(body), "kernel_")
    a, b = gpu.alloc(BUFFER_BYTES, "a"), gpu.alloc(BUFFER_BYTES, "b")
    with contextlib.suppress(DeviceFault):
        gpu.run(kernel, [a, b], block=(THREADS, 1, 1))
        gpu.close()
    return Sanitizer.findings[before:]


@pytest.mark.parametrize("name", MSL)
def test_metal_kernels_stay_inside_of_their_buffers_though_these_share_one_of_metals(name: str) -> None:
    assert [finding.rule for finding in on_metal(MSL[name].wrong)] == [MSL[name].rule]
    assert on_metal(MSL[name].right) == []


def test_a_finding_on_metal_names_the_buffer_and_the_line() -> None:
    (finding,) = on_metal(MSL["a load behind the end"].wrong)
    assert finding.buffer == "a" and "byte 400 of a, which has 400" in finding.what
    assert "reads it by 'b[t] = a[t + 37];' in line 5" in finding.what


def copied(gpu: Any, to: int, source: int, size: int) -> None:
    """A copy by packets of the program's own."""
    if isinstance(gpu, AmdDevice):
        made = gpu.chip.copies.copy(src_addr=source, dst_addr=to, count=size - 1)
        gpu.queue().packets(made, ring="copy").submit().wait()
    else:
        gpu.queue().packets(*transfer(gpu, to, source, size), ring="copy").submit().wait()


@pytest.mark.parametrize("word", ["amd:gfx1100", "nv:sm_90"])
def test_a_copy_of_packets_stays_inside_of_its_buffers(word: str) -> None:
    gpu = opened(word, {**LOOKS, "HCQ_VALIDATE": "0"})  # which refuses the submission
    before = len(Sanitizer.findings)
    a, b, gone = gpu.alloc(BUFFER_BYTES, "a"), gpu.alloc(BUFFER_BYTES, "b"), gpu.alloc(600, "gone")
    address = gone.address
    copied(gpu, a.address, b.address, BUFFER_BYTES)
    copied(gpu, a.address, address, BUFFER_BYTES)
    assert Sanitizer.findings[before:] == []
    copied(gpu, a.address + 8, b.address, BUFFER_BYTES)
    gone.free()
    copied(gpu, a.address, address, BUFFER_BYTES)
    found = Sanitizer.findings[before:]
    assert [(one.rule, one.buffer) for one in found] == [("buffer-overrun", "a"), ("use-after-free", "gone")]
    assert "byte 400 of a, which has 400" in found[0].what
    assert "byte 0 of gone, which was freed" in found[1].what
    assert "writes it by 'COPY_LINEAR'" in found[0].what or "writes it by 'LAUNCH_DMA'" in found[0].what
    gpu.close()


@pytest.mark.parametrize("word", MACHINES)
def test_copies_and_fills_of_the_queue_break_no_rule(word: str) -> None:
    gpu = opened(word, LOOKS)
    before = len(Sanitizer.findings)
    for size in (1, 3, 64, 65, 400, 5000, 70001):
        a, b = gpu.alloc(size), gpu.alloc(size)
        gpu.queue().fill(a, 7).copy(b, a).submit()
        assert b.read() == b"\7" * size
        a.write(bytes(size))
    assert Sanitizer.findings[before:] == []
    gpu.close()
