"""What a replay asks of every GPU, reviewed packet by packet: one block for one queue, and waits only between two.

Renew with --renew-golden, then read the diff.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hcq.command import Copy
from hcq.gpu.device import GpuDevice
from hcq.work.hardware_queues import COPIES, MAIN, assign
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.gpu.conftest import Open
from tests.hcq.gpu.kernels import image
from tests.hcq.gpu.replay_text import replay_text
from tests.hcq.nv.conftest import open_nv as open_nv

CASES = [("gfx1100", "pm4"), ("gfx942", "aql"), ("gfx90a", "pm4"), ("sm_90", ""), ("sm_120", "")]


@pytest.mark.parametrize(("arch", "queue"), CASES, ids=[f"{arch}{queue}" for arch, queue in CASES])
def test_the_packets_of_a_replay_are_the_reviewed_ones(
    arch: str, queue: str, open_amd: Open, open_nv: Open, golden: Callable[[str, str], None]
):
    """Three kernels on one queue, two of which nothing orders; and a copy beside them on another."""
    gpu = open_amd(arch, queue=queue) if queue else open_nv(arch)
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    lines = ["three kernels, of which the second needs nothing of the first", text(gpu, increment, False)]
    lines += ["the same, and a copy of what the last one makes", text(gpu, increment, True)]
    golden(f"{'amd' if queue else 'nv'}/replay_{arch}{'_' * bool(queue)}{queue}.txt", "\n".join(lines))


def text(gpu: GpuDevice, increment: Any, has_copy: bool) -> str:
    a, b, c = (gpu.alloc(256) for _ in range(3))
    for buffer in (a, b):
        buffer.write(bytes(256))
    graph = gpu.graph()
    for buffer in (a, b, a):
        graph.dispatch(increment, [buffer], block=(64, 1, 1))
    if has_copy:
        graph.copy(c, a)

        def split() -> Any:
            return assign(
                graph.dependences(), [COPIES if isinstance(what, Copy) else MAIN for what in graph.commands]
            )

        graph.split = split
    graph.replay().wait()
    return replay_text(gpu, graph)


DIGITS = """
from hcq.tools.bench import replay
replay.BATCH = 1
step, images, labels = replay.digits_step()
from hcq.frontend.core import device as devices
from tests.hcq.gpu.replay_text import replay_text
device = devices.get(devices.default())
before = device.stats()["submissions"]
step(images, labels)
device.synchronize()
print(device.stats()["submissions"] - before)
print(replay_text(device, step._last.graph, has_names=True), end="")
"""


@pytest.mark.thorough
@pytest.mark.own_devices
@pytest.mark.deadline(300)
@pytest.mark.parametrize("device", ["amd:gfx1100", "amd:gfx942", "nv:sm_90"])
def test_the_training_step_of_the_digits_is_the_reviewed_block_on_one_queue(
    device: str, golden: Callable[[str, str], None]
):
    """One doorbell runs it: one block with a launch for every kernel, and then the timeline's signal."""
    vendor, _, arch = device.partition(":")
    env = {**os.environ, "HCQ_EMULATE": device, "HCQ_DEVICE": vendor.upper(), "HCQ_TIMEOUT_MS": "300000"}
    ran = subprocess.run([sys.executable, "-c", DIGITS], env=env, capture_output=True, text=True, check=True)
    submissions, text = ran.stdout.split("\n", 1)
    assert submissions == "1"
    golden(
        f"{vendor}/replay_digits_{arch}.txt",
        f"the training step of examples/digits.py, a batch of one\n{text}",
    )
