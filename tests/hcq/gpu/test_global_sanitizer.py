"""HCQ_SANITIZE=race in global memory: every planted race is found, and none in the twins that have none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hcq import Device
from hcq.observe.sanitizer import Sanitizer
from tests.hcq.gpu.test_sanitizer import LOOKS, opened
from tests.hcq.gpu.unordered_kernels import CASES, OF_NVIDIA, THREADS, TWINS, llvm_ir, ptx

pytestmark = pytest.mark.own_devices


@pytest.fixture(params=["nv:sm_90", "amd:gfx90a", "amd:gfx942", "amd:gfx1100", "amd:gfx1201"])
def gpu(request: pytest.FixtureRequest) -> Iterator[Device]:
    made = opened(request.param, LOOKS)
    yield made
    made.close()


def image(gpu: Device, body: str) -> bytes:
    """The kernel of a body for a GPU."""
    if not gpu.arch.startswith("gfx"):
        return ptx(body)
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=gpu.arch)
    made: bytes = target.emit_object(llvm.parse_assembly(llvm_ir(body)))
    return made


def found_in(gpu: Device, body: str) -> set[str]:
    """The rules that are broken by a kernel with this body."""
    before, kernel = len(Sanitizer.findings), gpu.load(image(gpu, body), "kernel")
    buffers = [gpu.alloc(8 * THREADS, name=name) for name in ("data", "flag", "out")]
    for buffer in buffers:
        buffer.write(bytes(8 * THREADS))
    gpu.run(kernel, buffers, grid=(2, 1, 1), block=(THREADS, 1, 1))
    # other tests' emulated systems may have devices with a kernel at the same address
    found = [one for one in Sanitizer.findings[before:] if one.kernel == "kernel"]
    assert all("data" in one.buffer or "flag" in one.buffer for one in found)
    return {one.rule for one in found}


ONE_WAVE = {"no barrier between the warps of a block", "a place is written again before all have read it"}
NOT_FOUND = {  # what an instruction set does not tell apart: docs/sanitizers.md
    "gfx90a": ONE_WAVE | {"zeroed while others count"},
    "gfx942": ONE_WAVE,
    "gfx1100": {"zeroed while others count", "a message with a fence of the block"},
    "gfx1201": {"a message with a fence of the block"},
}


def test_each_planted_race_is_found_and_no_twin_has_one(gpu: Device) -> None:
    for name, case in CASES.items():
        if name not in NOT_FOUND.get(gpu.arch, set()):
            assert found_in(gpu, case.wrong) == case.rules, name
        assert found_in(gpu, case.right) == set(), name


def test_what_one_warp_fences_another_may_pass_on(gpu: Device) -> None:
    for name, body in TWINS.items():
        assert found_in(gpu, body) == set(), name


IN_PLACE = """
import hcq
for size in (1, 45, 129, 5000):
    numbers = [number % 2 for number in range(size)]
    for dtype in (hcq.float32, hcq.float16):
        made = hcq.tensor(numbers, dtype=dtype).realize()
        assert made.assign(made + 1).tolist() == [one + 1 for one in numbers]
    made = hcq.tensor(numbers, dtype=hcq.bool).realize()
    assert made.assign(~made).tolist() == [not one for one in numbers]
net = hcq.nn.Linear(5, 3)
step = hcq.optim.Adam(net.parameters())
(net(hcq.ones(7, 5)) ** 2).sum().backward()
step.step()  # sums over threads, whose results change parameters in place
assert all(one.numpy().size for one in net.parameters())
"""


@pytest.mark.parametrize("chip", ("nv:sm_90", "amd:gfx90a", "amd:gfx1100", "metal:m3"))
def test_a_tensor_that_is_changed_in_place_is_read_by_none_who_does_not_change_it(chip: str) -> None:
    choice = {
        "HCQ_EMULATE": chip,
        "HCQ_DEVICE": chip.partition(":")[0].upper(),
        "HCQ_SANITIZE": "memory,race",
    }
    done = subprocess.run(
        [sys.executable, "-c", IN_PLACE], env=os.environ | choice, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_scopes_and_threads_of_a_warp_on_nvidia() -> None:
    gpu = opened("nv:sm_90", LOOKS)
    for name, case in OF_NVIDIA.items():
        assert found_in(gpu, case.wrong) == case.rules, name
        assert found_in(gpu, case.right) == set(), name
    gpu.close()
