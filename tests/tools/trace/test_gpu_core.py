"""GPU core files of ROCm: made of an emulated queue, they say what its shader core says; damaged ones are safe."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcq.amd.abi import kfd
from hcq.amd.ioctl import call
from hcq.events import waves
from hcq.system import native
from hcq.tools.trace.color import Color
from hcq.tools.trace.rocm import gpu_core
from tests.hcq.amd import kernels
from tests.hcq.amd.conftest import open_amd as open_amd

pytestmark = pytest.mark.own_devices

SPIN = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @spin(ptr addrspace(1) %flag) {
  br label %again
again:
  %v = load atomic i32, ptr addrspace(1) %flag syncscope("agent") monotonic, align 4
  %c = icmp eq i32 %v, 0
  br i1 %c, label %again, label %end
end:
  ret void
}
"""


def note(agents: list[bytes], queues: list[bytes]) -> bytes:
    """AMDGPU's note: version, KFD, runtime info, agents, queues."""
    head = struct.pack("<QIIQ4I", 1, 1, 17, 16, len(agents), 120, len(queues), 64)
    body = head + bytes(16) + b"".join(agents) + b"".join(queues)
    return struct.pack("<3I", 7, len(body), 33) + b"AMDGPU\0\0" + body


def core(own: bytes, memory: dict[int, bytes]) -> bytes:
    """An ELF core file. p_align is a shift, as ROCr writes it."""
    count = 1 + len(memory)
    at = 64 + 56 * count
    rows, body = [struct.pack("<2I6Q", 4, 0, at, 0, 0, len(own), 0, 4)], own
    for va, data in memory.items():
        rows.append(struct.pack("<2I6Q", 1, 6, at + len(body), va, 0, len(data), len(data), 2))
        body += data
    ident = b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7)
    head = struct.pack("<2HI3QI6H", 4, 224, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
    return ident + head + b"".join(rows) + body


def agent(gpu_id: int, version: int, xccs: int) -> bytes:
    return struct.pack("<7Q16I", *[0] * 7, gpu_id, *[0] * 7, version, *[0] * 4, xccs, 0, 0)


def queue(status: int, va: int, gpu_id: int, size: int) -> bytes:
    return struct.pack("<5Q6I", status, 0x1000, 0, 0, va, 0, gpu_id, 1 << 20, 2, size, 0)


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    """Files that were made, by architecture."""
    return {}


@pytest.fixture
def dumped(open_amd: Callable[..., Any], made: dict[str, bytes]) -> Callable[[str], bytes]:
    """The core file of a kernel that spins on an emulated GPU."""

    def of(arch: str) -> bytes:
        if arch in made:
            return made[arch]
        device = open_amd(arch, queue="pm4", timeout_ms=50_000, validate=False)
        program = device.load(kernels.compile_ir(SPIN, arch), "spin", args=("buffer",))
        flag = device.alloc(64)
        flag.write(bytes(64))
        late = device.queue().dispatch(program, [flag], grid=(4, 1, 1), block=(64, 1, 1)).submit()
        end = time.monotonic() + 50
        while not waves._running and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        ring = device.rings["compute"]
        fields = {"ring_base_address": ring.ring.va, "ring_size": 1 << 20, "queue_priority": 7}
        call(
            device.port, device.kfd_fd, kfd.UPDATE_QUEUE, queue_id=ring.queue_id, queue_percentage=0, **fields
        )
        where = {"queue_id": ring.queue_id, "ctl_stack_address": ring.save_area.va}
        call(device.port, device.kfd_fd, kfd.GET_QUEUE_WAVE_STATE, **where)
        memory = {ring.save_area.va: bytearray()}
        for xcc in range(device.node.xccs):
            va = ring.save_area.va + xcc * ring.save_bytes
            header = kfd.ContextSaveAreaHeader.decode(memoryview(native.view(va, 40)).cast("I"))
            used = max(40, header.wave_state_offset)
            memory[va] = bytearray(
                bytes(native.view(va, used)).ljust(ring.save_bytes if xcc else used, b"\0")
            )
        memory[program.code_va] = bytearray(program.code.host[program.code_va - program.code.address :][:512])
        own = note(
            [agent(device.node.gpu_id, device.node.gfx_target_version, device.node.xccs)],
            [queue(1 << 4, ring.save_area.va, device.node.gpu_id, ring.save_bytes)],
        )
        made[arch] = core(own, {va: bytes(data) for va, data in memory.items()})
        call(
            device.port,
            device.kfd_fd,
            kfd.UPDATE_QUEUE,
            queue_id=ring.queue_id,
            queue_percentage=100,
            **fields,
        )
        flag.host[0] = 1
        late.wait(50_000)
        return made[arch]

    return of


@pytest.mark.parametrize(
    ("arch", "lanes"), [("gfx90a", 64), ("gfx942", 64), ("gfx1100", 32), ("gfx1201", 32)]
)
def test_a_core_file_names_queues_and_waves(
    arch: str, lanes: int, dumped: Callable[[str], bytes], tmp_path: Path, trace: Any
) -> None:
    path = tmp_path / "gpucore.4711"
    path.write_bytes(dumped(arch))
    done = trace("decode", path)
    assert done.status == 0
    count = 4 * 64 // lanes
    assert f"core file of GPUs of ROCm: {arch}, KFD 1.17" in done.out
    assert f"queue 0, compute (AQL), {count} waves: memory violation" in done.out
    assert f"{count} waves alike" in done.out
    assert "unknown instruction" not in done.out and "s_" in done.out
    found = json.loads(trace("decode", path, "--json").out)
    assert len(found["waves"]) == count
    assert {wave["lanes"] for wave in found["waves"]} == {lanes}


def test_a_note_in_the_core_file_of_a_whole_process_is_found(dumped: Callable[[str], bytes]) -> None:
    content = dumped("gfx1100")
    size = struct.unpack_from("<Q", content, 64 + 32)[0]
    offset = struct.unpack_from("<Q", content, 64 + 8)[0]
    own = content[offset : offset + size]
    other = struct.pack("<3I", 5, 4, 1) + b"CORE\0\0\0\0" + b"pids"
    mixed = bytearray(core(other + own, {}))
    mixed[18:20] = struct.pack("<H", 62)  # a program of x86-64
    assert gpu_core.is_core(bytes(mixed))
    read = gpu_core.read(bytes(mixed))
    assert len(read.queues) == 1 and "is not in the file" in read.notes[0]
    assert not gpu_core.is_core(core(other, {}))


def test_damaged_files_are_read_within_their_bounds(dumped: Callable[[str], bytes]) -> None:
    content = dumped("gfx1201")
    rng = random.Random(3)
    for _ in range(300):
        data = bytearray(content[: rng.randrange(64, 4096) if rng.random() < 0.5 else len(content)])
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(min(len(data), 1024))] = rng.randrange(256)
        if gpu_core.is_core(bytes(data)):
            list(gpu_core.lines(gpu_core.read(bytes(data)), Color(False)))


def test_exceptions_are_told_in_words() -> None:
    assert gpu_core.exceptions(1 << 3 | 1 << 29 | 1 << 62) == [
        "illegal instruction",
        "preemption error",
        "exception 63, which is not known",
    ]
