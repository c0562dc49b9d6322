"""A GPU whose memory the host sees none of (no Resizable BAR): small buffers are the host's, large ones are copied."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.graph import Symbol
from tests.hcq.gpu.conftest import Open
from tests.hcq.gpu.kernels import image
from tests.hcq.gpu.vendors import NV, Vendor


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def test_a_gpu_whose_memory_the_host_cannot_see_keeps_small_buffers_with_the_host(
    vendor: Vendor, open_gpu: Open
):
    gpu = open_gpu(options=":private")
    assert gpu.facts()["memory"] == "mixed"
    assert "turn on Resizable BAR" in gpu.facts()["why_host_memory"]
    a, b = gpu.alloc(5000), gpu.alloc(5000)
    a.write(b"abcde" * 1000)
    gpu.queue().copy(b, a).submit().wait()
    assert b.read() == b"abcde" * 1000
    assert bytes(b.host[:5]) == b"abcde"


def test_large_buffers_that_the_host_does_not_see_are_written_and_read_by_copies(
    vendor: Vendor, open_gpu: Open
):
    gpu = open_gpu(options=":private")
    data = bytes(i * 31 % 251 for i in range(9 << 20))
    a, b = gpu.alloc(len(data), "a"), gpu.alloc(len(data), "b")
    a.write(data)
    gpu.queue().copy(b, a).submit()
    assert b.read() == data
    b.write(b"middle", 5_000_000)
    assert b.read(4_999_990, 30) == data[4_999_990:5_000_000] + b"middle" + data[5_000_006:5_000_020]
    target = bytearray(1 << 20)
    b.view(1 << 20, 1 << 20).read_into(target)
    assert target == data[1 << 20 : 2 << 20]
    with pytest.raises(UsageError, match=r"the host does not see this memory .*Use read and write"):
        b.host[0]
    increment = gpu.load(image(gpu), "increment")
    a.write(bytes(len(data)))
    gpu.run(increment, [a], block=(64, 1, 1))
    assert words(a.read(0, 256)) == (1,) * 64
    a.free()
    b.free()
    gpu.memory.trim(0)
    assert gpu._hidden == []


def test_graphs_of_any_size_are_where_the_host_patches_them(vendor: Vendor, open_gpu: Open):
    gpu = open_gpu(options=":private")
    increment = gpu.load(image(gpu), "increment")
    a = gpu.alloc(256)
    a.write(bytes(256))
    graph = gpu.graph("long")
    for _ in range(1800):  # more than two megabytes of launches
        graph.dispatch(increment, [Symbol("a")], block=(64, 1, 1))
    graph.replay({"a": a}).wait()
    assert words(a.read()) == (1800,) * 64


def test_a_trace_with_data_keeps_all_buffers_where_it_sees_them(
    vendor: Vendor, open_gpu: Open, tmp_path: Path
):
    gpu = open_gpu(options=":private", trace=str(tmp_path / "t"), trace_data=True)
    assert gpu.facts()["memory"] == ("system" if vendor is NV else "staging")
    a = gpu.alloc(3 << 20)
    gpu.queue().fill(a, 7).submit().wait()
    assert bytes(a.host[:4]) == b"\7" * 4
