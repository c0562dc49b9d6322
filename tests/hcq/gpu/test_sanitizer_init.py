"""HCQ_SANITIZE=init on emulated GPUs: uses of what nobody wrote are found, and none in the twins that write it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hcq.observe.sanitizer import Sanitizer
from hcq.program import Program
from hcq.rules.rule import Finding
from tests.hcq.gpu.kernels_in_llvm_ir import amd_kernel, amd_object
from tests.hcq.gpu.straying_kernels import ptx
from tests.hcq.gpu.test_sanitizer_memory import opened
from tests.hcq.gpu.unwritten_kernels import CASES

pytestmark = pytest.mark.own_devices
LOOKS = {**os.environ, "HCQ_VALIDATE": "0", "HCQ_SANITIZE": "init"}
MACHINES = ["amd:gfx1100", "amd:gfx942", "nv:sm_90"]
THREADS, OFFSET = 64, 8
WORDS = """
@words = internal addrspace(3) global [1024 x i8] poison, align 16
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
"""


@pytest.fixture(scope="module", params=MACHINES)
def gpu(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = opened(request.param, LOOKS)
    yield made
    made.close()


def load(gpu: Any, body: str) -> Program:
    """A kernel of this body."""
    return gpu.load(
        amd_object(amd_kernel(body, WORDS), gpu.arch) if gpu.arch.startswith("gfx") else ptx(body), "kernel"
    )


def run(name: str, is_wrong: bool, gpu: Any) -> list[Finding]:
    """What is said of a kernel."""
    case = CASES[name]
    text = case.amd if gpu.arch.startswith("gfx") else case.nv
    if text is None:
        pytest.skip("this vendor has no such kernel")
    body = text.wrong if is_wrong else text.right
    before = len(Sanitizer.findings)
    kernel = load(gpu, body)
    a, b = gpu.alloc(4 * THREADS, "a"), gpu.alloc(4 * THREADS, "b")
    gpu.run(kernel, [a, b, OFFSET], grid=(3, 1, 1), block=(THREADS, 1, 1))
    return Sanitizer.findings[before:]


@pytest.mark.parametrize("name", CASES)
def test_each_use_of_what_nobody_wrote_is_found_and_no_twin_has_one(name: str, gpu: Any) -> None:
    found = run(name, True, gpu)
    assert {finding.rule for finding in found} == {"uninitialised-read"}
    assert all(CASES[name].use in finding.what for finding in found)
    assert run(name, False, gpu) == []


def test_a_finding_names_the_read_and_the_use(gpu: Any) -> None:
    (finding,) = run("half of a tile was written", True, gpu)
    load, store = ("ds_", "global_store") if gpu.arch.startswith("gfx") else ("ld.shared", "st.global")
    assert "in byte 128 of shared memory" in finding.what and "(32, 0, 0)" in finding.what
    assert f"reads it by '{load}" in finding.what and f"uses it by '{store}" in finding.what


PROGRAM = """
from hcq import Tensor
from hcq.observe.sanitizer import Sanitizer
x = Tensor([[(7 * i * j) % 23 - 11.0 for i in range(45)] for j in range(33)])
for y in (x @ x.T, x.softmax(1), x.sort(1)[0], x.half() @ x.T.half()):
    y.numpy()
print(len(Sanitizer.findings))
"""


@pytest.mark.parametrize("word", ["amd:gfx1100", "nv:sm_90"])
def test_our_own_kernels_use_nothing_unwritten_and_stay_in_their_buffers(word: str) -> None:
    kind = word.partition(":")[0].upper()
    environment = {**os.environ, "HCQ_SANITIZE": "memory,init", "HCQ_EMULATE": word, "HCQ_DEVICE": kind}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")


BRANCH_ON_B = {
    "nv": "ld.global.u32 %r2, [%b]; setp.lt.s32 %p1, %r2, 10; @%p1 bra DONE; st.global.u32 [%a], %r1; DONE: ",
    "amd": "%v = load i32, ptr addrspace(1) %pb\n  %c = icmp slt i32 %v, 10\n  br i1 %c, label %x, label %y\nx:\n"
    "  store i32 %t, ptr addrspace(1) %pa\n  br label %y\ny:",
}
COPY_TO_A = {
    "nv": "ld.global.u32 %r2, [%b]; st.global.u32 [%a], %r2",
    "amd": "%v = load i32, ptr addrspace(1) %pb\n  store i32 %v, ptr addrspace(1) %pa",
}


@pytest.mark.parametrize(
    "how", ["nobody", "a kernel that copies", "half", "host", "view", "fill", "copy", "kernel"]
)
def test_a_branch_on_a_new_buffer_is_found_until_somebody_writes_it(how: str, gpu: Any) -> None:
    vendor = "amd" if gpu.arch.startswith("gfx") else "nv"
    before = len(Sanitizer.findings)

    size = 4 * THREADS
    a, b, c = (gpu.alloc(size, name) for name in "abc")
    if how in ("kernel", "copy"):
        c.write(bytes(size))
    if how in ("kernel", "a kernel that copies"):
        gpu.run(load(gpu, COPY_TO_A[vendor]), [b, c, 0], block=(THREADS, 1, 1))
    if how in ("host", "half"):
        b.write(bytes(size // 2 if how == "half" else size))
    if how == "view":
        b.host[:] = bytes(size)
    if how in ("fill", "copy"):
        (gpu.queue().fill(b, 0) if how == "fill" else gpu.queue().copy(b, c)).submit().wait()
    assert Sanitizer.findings[before:] == []
    gpu.run(load(gpu, BRANCH_ON_B[vendor]), [a, b, 0], block=(THREADS, 1, 1))
    found = Sanitizer.findings[before:]
    if how in ("nobody", "half", "a kernel that copies"):
        (finding,) = found
        place = f"byte {size // 2 if how == 'half' else 0} of b"
        assert finding.buffer == "b" and f"a branch depends on what nobody wrote, in {place}" in finding.what
    else:
        assert found == []


def test_a_buffer_that_is_handed_out_again_is_new(gpu: Any) -> None:
    kernel = load(gpu, BRANCH_ON_B["amd" if gpu.arch.startswith("gfx") else "nv"])
    a = gpu.alloc(4 * THREADS, "a")
    first = gpu.alloc(4 * THREADS, "first")
    first.write(bytes(4 * THREADS))
    gpu.run(kernel, [a, first, 0], block=(THREADS, 1, 1))
    first.free()
    before = len(Sanitizer.findings)
    gpu.run(kernel, [a, gpu.alloc(4 * THREADS, "second"), 0], block=(THREADS, 1, 1))
    assert [finding.buffer for finding in Sanitizer.findings[before:]] == ["second"]
