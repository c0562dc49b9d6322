"""Memory: buffers are aligned, checked, reused, and never touched too early."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import errno
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import hcq
from hcq import backends, config
from hcq.cpu.device import CpuDevice
from hcq.errors import DriverError, UsageError
from hcq.memory import LARGE_BYTES
from hcq.system.port import FaultyPort, LinuxPort, refused


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096, 4097, 65535, 65536, 10**6, 5 * 10**6])
def test_buffers_are_aligned_and_hold_what_was_written(cpu: CpuDevice, size: int) -> None:
    buffer = cpu.alloc(size)
    assert buffer.va is not None
    assert buffer.va % (4096 if size >= LARGE_BYTES else 64) == 0
    data = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    buffer.write(data)
    assert buffer.read() == data
    assert bytes(buffer.host) == data


def test_live_buffers_never_overlap(cpu: CpuDevice) -> None:
    buffers = [cpu.alloc(size) for size in [1, 64, 100, 1000, 5000, 70_000, 5_000_000] * 20]
    spans = sorted((buffer.address, buffer.address + max(buffer.size_bytes, 1)) for buffer in buffers)
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:]))


def test_parts_of_a_buffer_are_written_and_read_at_offsets(cpu: CpuDevice) -> None:
    buffer = cpu.alloc(100)
    buffer.write(bytes(100))
    buffer.write(array.array("H", [0x1234]), offset=10)
    assert buffer.read(offset=9, size_bytes=4) == b"\0\x34\x12\0"
    part = buffer.view(10, 2)
    assert part.read() == b"\x34\x12"
    del buffer
    gc.collect()
    assert part.read() == b"\x34\x12"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda b: b.write(bytes(101)), r"write\(offset=0\): 101 bytes from there do not lie in its 100"),
        (lambda b: b.write(b"x", offset=100), r"write\(offset=100\): 1 bytes"),
        (lambda b: b.write(b"x", offset=-1), r"write\(offset=-1\): 1 bytes"),
        (lambda b: b.read(offset=90, size_bytes=11), r"read\(offset=90\): 11 bytes"),
        (lambda b: b.read(offset=101), r"read\(offset=101\): -1 bytes"),
        (lambda b: b.view(99, 2), r"view\(offset=99\): 2 bytes"),
        (lambda b: b.write(memoryview(bytes(10))[::2]), "the data is not contiguous"),
    ],
)
def test_what_does_not_lie_in_the_buffer_is_refused(cpu: CpuDevice, action: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        action(cpu.alloc(100))  # type: ignore[operator]


def test_a_freed_buffer_cannot_be_used(cpu: CpuDevice, llvm_object: bytes) -> None:
    buffer, other = cpu.alloc(64, name="weights"), cpu.alloc(64)
    part = buffer.view(0, 8)
    program = cpu.load(llvm_object, "functions")
    buffer.free()
    for action in (
        buffer.read,
        lambda: buffer.write(b"x"),
        lambda: buffer.host,
        buffer.free,
        lambda: cpu.queue().copy(buffer, other),
        lambda: cpu.queue().dispatch(program, [buffer, 1]),
    ):
        with pytest.raises(UsageError, match=r"Buffer\(CPU 'weights' freed, 64 bytes\).*freed"):
            action()
    del part


def test_a_dropped_buffer_goes_back_to_the_pool(four_threads: CpuDevice) -> None:
    buffer = four_threads.alloc(1000)
    address = buffer.address
    del buffer
    assert four_threads.alloc(1001).address == address


def test_a_host_view_keeps_its_buffer_alive(four_threads: CpuDevice) -> None:
    view = four_threads.alloc(5000).host
    view[:3] = b"abc"
    other = four_threads.alloc(5000)
    other.write(bytes(5000))
    assert bytes(view[:3]) == b"abc"


def test_the_host_waits_before_it_writes_memory_that_work_in_flight_still_reads(
    four_threads: CpuDevice, llvm_object: bytes
) -> None:
    device = four_threads
    gate = device.signal("gate")
    source, target = device.alloc(4096), device.alloc(4096)
    source.write(b"a" * 4096)
    device.queue().wait(gate, 1).copy(target, source).submit()
    address = source.address
    del source  # its memory returns to the pool while the copy has not run
    reused = device.alloc(4096)
    assert reused.address == address
    with pytest.raises(hcq.WaitTimeout):
        reused.wait(timeout_ms=20)
    gate.set(1)
    reused.write(b"b" * 4096)
    assert target.read() == b"a" * 4096


@pytest.mark.parametrize("size", [-1, 2**60, 2**70, 1.5, "10", None])
def test_a_size_that_cannot_be_is_refused(cpu: CpuDevice, size: object) -> None:
    with pytest.raises(UsageError, match="alloc"):
        cpu.alloc(size)


def test_out_of_memory_names_the_owners() -> None:
    port = FaultyPort(LinuxPort(), {"mmap": (6, errno.ENOMEM)})
    device = CpuDevice("CPU:small", port=port, config=dataclasses.replace(config.current(), threads=1))
    kept = []
    with pytest.raises(
        DriverError, match=r"out of memory. \d+ live buffers hold \d+ bytes; the largest: .*weights 1"
    ):
        for number in range(20):
            kept.append(device.alloc(100_000 + 20_000 * number, name=f"weights {number}"))
    assert 1 <= len(kept) < 20
    kept.clear()
    assert device.alloc(100_000).read(0, 0) == b""  # what was freed can be had again
    device.close()


def refuse_while_the_pool_keeps_blocks(device: CpuDevice) -> None:
    """The system has no memory left beyond what the pool keeps."""
    given = device.map_memory

    def map_memory(size_bytes: int) -> int:
        if device.memory.free_large_bytes:
            raise refused(f"mmap(size_bytes={size_bytes})", errno.ENOMEM)
        return given(size_bytes)

    device.map_memory = map_memory  # type: ignore[method-assign]


def test_free_blocks_give_way_to_other_blocks_and_to_a_programs_memory(llvm_object: bytes) -> None:
    with own_device() as device:
        refuse_while_the_pool_keeps_blocks(device)
        device.alloc(8 << 20).free()
        assert device.alloc(100_000).read(0, 0) == b""
        device.alloc(8 << 20).free()
        assert device.alloc(100).read(0, 0) == b""
        device.alloc(8 << 20).free()
        device.load(llvm_object, "functions", scratch_bytes=1 << 20)
        assert device.memory.free_large_bytes == 0


def test_out_of_memory_is_said_also_when_work_that_does_not_end_holds_the_free_blocks() -> None:
    with own_device(timeout_ms=50) as device:
        gate, buffer = device.signal("gate"), device.alloc(8 << 20)
        filled = device.queue().wait(gate, 1).fill(buffer).submit()
        buffer.free()
        refuse_while_the_pool_keeps_blocks(device)
        with pytest.raises(DriverError, match="out of memory"):
            device.alloc(100_000)
        gate.set(1)
        filled.wait(timeout_ms=60_000)  # on a busy machine longer than the device's deadline
        assert device.alloc(100_000).read(0, 0) == b""


@contextlib.contextmanager
def own_device(**switches: Any) -> Iterator[CpuDevice]:
    device = CpuDevice("CPU:own", config=dataclasses.replace(config.current(), threads=1, **switches))
    yield device
    device.close()


def test_a_full_pool_gives_memory_back_to_the_system(four_threads: CpuDevice) -> None:
    device = four_threads
    device.memory.limit_bytes = 10 << 20
    for _ in range(3):
        buffers = [device.alloc(1 << 20) for _ in range(16)]
        buffers.clear()
    assert device.memory.free_large_bytes <= 10 << 20
    assert device.memory.trim() > 0
    assert device.memory.free_large_bytes == 0
    buffer = device.alloc(1 << 20)
    buffer.write(b"x")
    assert buffer.read(0, 1) == b"x"


def test_a_buffer_of_another_device_is_refused(
    cpu: CpuDevice, four_threads: CpuDevice, llvm_object: bytes
) -> None:
    buffer = four_threads.alloc(64)
    program = cpu.load(llvm_object, "functions")
    with pytest.raises(UsageError, match=r"is not on CPU. Copy it there first"):
        cpu.queue().dispatch(program, [buffer, 1])
    with pytest.raises(UsageError, match=r"is not on CPU. Copy it there first"):
        cpu.queue().fill(buffer)
    with pytest.raises(UsageError, match="is loaded on CPU, not on CPU:four"):
        four_threads.queue().dispatch(program, [buffer, 1])


def test_bytes_are_read_straight_into_memory_of_the_host(device):
    buffer = device.alloc(64)
    buffer.write(bytes(range(64)))
    target = bytearray(16)
    buffer.read_into(target, offset=8)
    assert target == bytes(range(8, 24))
    with pytest.raises(UsageError, match="must be contiguous and writable"):
        buffer.read_into(bytes(8))
    with pytest.raises(UsageError):
        buffer.read_into(bytearray(65))


def test_memory_of_another_kind_is_used_again_for_such_buffers_alone(cpu: CpuDevice) -> None:
    mapped: list[int] = []

    def map_memory(size_bytes: int) -> int:
        mapped.append(cpu.map_memory(size_bytes))
        return mapped[-1]

    first, other = cpu.memory.alloc_apart(16, "first", map_memory), cpu.alloc(70_000)
    large = cpu.memory.alloc_apart(1 << 20, "large", map_memory)
    assert [first.va, large.va] == mapped
    first.free()
    large.free()
    plain = [cpu.alloc(size) for size in (16, 1 << 16, 1 << 20)]
    assert not {other.va, *(buffer.va for buffer in plain)} & set(mapped)
    free = cpu.memory.free_large_bytes
    again = [cpu.memory.alloc_apart(size, "again", map_memory) for size in (1, 1 << 20)]
    assert [buffer.va for buffer in again] == mapped
    assert cpu.memory.free_large_bytes == free - sum(buffer.capacity for buffer in again)


def test_memory_of_another_kind_is_given_back_when_the_device_closes() -> None:
    device = CpuDevice("CPU")
    kept = device.memory.alloc_apart(16, "kept", device.map_memory)
    device.memory.alloc_apart(16, "dropped", device.map_memory)
    assert len(device.memory.regions) == 2
    device.close()
    assert list(device.memory.regions) == [kept.va]


@pytest.mark.parametrize("word", ["amd:gfx1100", "nv:sm_90"])
def test_memory_of_a_device_that_was_given_back_is_not_given_back_again(word: str) -> None:
    """Destructors of a cycle run in any order: a buffer's, which asks for it, after the device's."""
    kind = word.partition(":")[0].upper()
    driver = backends.load(backends.find(kind).device)  # type: ignore[union-attr]
    device = driver(kind, backends.emulated_port((word,)))
    kept = device.alloc(64), device.alloc(1 << 23)
    device.close()
    device.give_back()
    device.memory.close(is_last=True)
    del kept
    device.memory.close()
    assert device.memory.regions == {}
