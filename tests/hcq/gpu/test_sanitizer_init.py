"""HCQ_SANITIZE=init on emulated GPUs: uses of what nobody wrote are found, and none in the twins that write it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hcq.observe.sanitizer import Sanitizer
from hcq.rules.rule import Finding
from tests.hcq.gpu.kernels_in_llvm_ir import amd_kernel, amd_object
from tests.hcq.gpu.straying_kernels import ptx
from tests.hcq.gpu.test_sanitizer_memory import opened
from tests.hcq.gpu.unwritten_kernels import CASES

pytestmark = pytest.mark.own_devices
LOOKS = {**os.environ, "HCQ_SANITIZE": "init"}
MACHINES = ["amd:gfx1100", "amd:gfx942", "nv:sm_90"]
THREADS, OFFSET = 64, 8
WORDS = """
@words = internal addrspace(3) global [1024 x i8] poison, align 16
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
"""


def run(name: str, is_wrong: bool, word: str) -> list[Finding]:
    """What is said of a kernel."""
    case = CASES[name]
    text = case.amd if word.startswith("amd") else case.nv
    if text is None:
        pytest.skip("this vendor has no such kernel")
    body = text.wrong if is_wrong else text.right
    gpu = opened(word, LOOKS)
    before = len(Sanitizer.findings)
    code = amd_object(amd_kernel(body, WORDS), gpu.arch) if word.startswith("amd") else ptx(body)
    kernel = gpu.load(code, "kernel")
    a, b = gpu.alloc(4 * THREADS, "a"), gpu.alloc(4 * THREADS, "b")
    gpu.run(kernel, [a, b, OFFSET], grid=(3, 1, 1), block=(THREADS, 1, 1))
    gpu.close()
    return Sanitizer.findings[before:]


@pytest.mark.parametrize("word", MACHINES)
@pytest.mark.parametrize("name", CASES)
def test_each_use_of_what_nobody_wrote_is_found_and_no_twin_has_one(name: str, word: str) -> None:
    found = run(name, True, word)
    assert {finding.rule for finding in found} == {"uninitialised-read"}
    assert all(CASES[name].use in finding.what for finding in found)
    assert run(name, False, word) == []


@pytest.mark.parametrize("word", MACHINES)
def test_a_finding_names_the_read_and_the_use(word: str) -> None:
    (finding,) = run("half of a tile was written", True, word)
    load, store = ("ds_", "global_store") if word.startswith("amd") else ("ld.shared", "st.global")
    assert "in byte 128 of shared memory" in finding.what and "(32, 0, 0)" in finding.what
    assert f"reads it by '{load}" in finding.what and f"uses it by '{store}" in finding.what


PROGRAM = """
from hcq import Tensor
from hcq.observe.sanitizer import Sanitizer
x = Tensor([[(7 * i * j) % 23 - 11.0 for i in range(150)] for j in range(70)])
for y in (x @ x.T, x.softmax(1), x.sort(1)[0], x.cumsum(1), x.sum(), x.argmax(1), x.half() @ x.T.half()):
    y.numpy()
print(len(Sanitizer.findings))
"""


@pytest.mark.parametrize("words", ["init", "memory"])
@pytest.mark.parametrize("word", ["amd:gfx1100", "nv:sm_90"])
def test_our_own_kernels_use_nothing_unwritten_and_stay_in_their_buffers(word: str, words: str) -> None:
    kind = word.partition(":")[0].upper()
    environment = {**os.environ, "HCQ_SANITIZE": words, "HCQ_EMULATE": word, "HCQ_DEVICE": kind}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")
