"""HCQ_SANITIZE=race on an emulated Metal device: races in device memory, each beside a kernel that has none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hcq import Device
from hcq.config import Config
from hcq.memory import Buffer
from hcq.metal.device import MetalDevice
from hcq.observe.sanitizer import Sanitizer
from tests.hcq.gpu.test_sanitizer import LOOKS
from tests.hcq.metal.conftest import fresh_metal

pytestmark = pytest.mark.own_devices
HEAD = """#include <metal_stdlib>
using namespace metal;
kernel void k(device int *data [[buffer(0)]], device int *out [[buffer(1)]],
              uint g [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_device);"
NOT_DEVICE = "threadgroup_barrier(mem_flags::mem_threadgroup);"
CASES = {
    "no barrier before another thread's element": (
        "global-race",
        "if (g == 0) { data[t] = (int)t; } out[64 * g + t] = g == 0 ? data[63 - t] : 0;",
        f"if (g == 0) {{ data[t] = (int)t; }} {BARRIER} out[64 * g + t] = g == 0 ? data[63 - t] : 0;",
    ),
    "a barrier that does not order device memory": (
        "global-race",
        f"data[64 * g + t] = (int)t; {NOT_DEVICE} out[64 * g + t] = data[64 * g + 63 - t];",
        f"data[64 * g + t] = (int)t; {BARRIER} out[64 * g + t] = data[64 * g + 63 - t];",
    ),
    "two groups write one place": (
        "global-race",
        "if (t == 0) { data[0] = (int)g; }",
        "if (t == 0) { data[g] = 1; }",
    ),
    "another thread of the same SIMD group": (
        "lane-race",
        "data[64 * g + t] = (int)t; out[64 * g + t] = data[64 * g + (t ^ 1)];",
        f"data[64 * g + t] = (int)t; {BARRIER} out[64 * g + t] = data[64 * g + (t ^ 1)];",
    ),
    "all threads read what one writes": (
        "lane-race",
        "int v = data[g]; if (t == 0) { data[g] = v + 1; } out[64 * g + t] = v;",
        f"int v = data[g]; {BARRIER} if (t == 0) {{ data[g] = v + 1; }} out[64 * g + t] = v;",
    ),
}


@pytest.fixture
def gpu() -> Iterator[Device]:
    made = MetalDevice("METAL", fresh_metal("metal:m3"), Config.read(LOOKS))
    yield made
    made.close()


def found_in(gpu: Device, body: str) -> list[str]:
    before, kernel = len(Sanitizer.findings), gpu.load((HEAD + body + "\n}").encode(), "k")
    gpu.run(
        kernel, [gpu.alloc(512, name="data"), gpu.alloc(512, name="out")], grid=(2, 1, 1), block=(64, 1, 1)
    )
    # other tests' emulated systems may have devices with a kernel at the same address
    found = [one for one in Sanitizer.findings[before:] if one.kernel == "k"]
    assert all("data" in one.buffer and "in line" in one.what for one in found), found
    return sorted({one.rule for one in found})


@pytest.mark.parametrize("name", CASES)
def test_each_planted_race_is_found_and_no_twin_has_one(gpu: Device, name: str) -> None:
    rule, wrong, right = CASES[name]
    found = found_in(gpu, wrong)
    assert rule in found and set(found) <= {"global-race", "lane-race"}
    assert found_in(gpu, right) == []


def test_a_device_whose_kernels_are_looked_at_is_rebuilt_while_work_waits() -> None:
    gpu = MetalDevice("METAL", fresh_metal("metal:m3"), Config.read({**LOOKS, "HCQ_SANITIZE": "memory,race"}))
    kernel = gpu.load(f"{HEAD} out[t] = data[t] + 1;\n}}".encode(), "k", args=("buffer", "buffer"))

    def buffers() -> list[Buffer]:
        made = [gpu.alloc(1024), gpu.alloc(1024)]
        for buffer in made:
            buffer.write(bytes(1024))
        return made

    gate = gpu.signal("gate")
    gpu.queue().wait(gate, 1).dispatch(kernel, buffers(), block=(64, 1, 1)).submit()
    gpu.reset()
    again = buffers()
    gpu.run(kernel, again, grid=(1, 1, 1), block=(64, 1, 1))
    assert again[1].read()[:8] == bytes([1, 0, 0, 0] * 2)
    gpu.close()
