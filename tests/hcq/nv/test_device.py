"""The NVIDIA driver at work: what goes in comes out, with every generation of launches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.gpu.memory import GUARD_BYTES
from hcq.graph import Symbol
from hcq.nv.address import POOL
from hcq.nv.device import CELLS_BYTES, NvDevice
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def test_kernels_see_the_sizes_of_their_launch(nv: NvDevice):
    out = nv.alloc(12)
    program = nv.load(image(nv.arch), "sizes")
    for grid, block in (((5, 2, 1), (48, 1, 1)), ((7, 3, 2), (32, 1, 1)), ((5, 2, 1), (64, 1, 1))):
        nv.run(program, [out], grid=grid, block=block)
        assert words(out.read()) == (grid[0], grid[1], block[0])


def test_a_launch_may_ask_for_shared_memory(nv: NvDevice):
    out, a = nv.alloc(1024), nv.alloc(1024)
    a.write(struct.pack("<256I", *range(256)))
    program = nv.load(image(nv.arch), "reverse_dynamic")
    for threads in (256, 64):
        program.dynamic_shared_bytes = 4 * threads
        nv.run(program, [out, a], block=(threads, 1, 1))
        assert words(out.read(0, 4 * threads)) == tuple(reversed(range(threads)))
    with pytest.raises(UsageError, match=r"dynamic_shared_bytes=300000.*bytes of shared memory on sm_"):
        program.dynamic_shared_bytes = 300_000


def test_a_gpu_whose_memory_the_host_cannot_see_keeps_small_buffers_with_the_host(open_nv: Open):
    nv = open_nv(options=":private")
    assert nv.facts()["memory"] == "mixed"
    assert "turn on Resizable BAR" in nv.facts()["why_host_memory"]
    a, b = nv.alloc(5000), nv.alloc(5000)
    a.write(b"abcde" * 1000)
    nv.queue().copy(b, a).submit().wait()
    assert b.read() == b"abcde" * 1000
    assert bytes(b.host[:5]) == b"abcde"


def test_large_buffers_that_the_host_does_not_see_are_written_and_read_by_copies(open_nv: Open):
    nv = open_nv(options=":private")
    data = bytes(i * 31 % 251 for i in range(9 << 20))
    a, b = nv.alloc(len(data), "a"), nv.alloc(len(data), "b")
    a.write(data)
    nv.queue().copy(b, a).submit()
    assert b.read() == data
    b.write(b"middle", 5_000_000)
    assert b.read(4_999_990, 30) == data[4_999_990:5_000_000] + b"middle" + data[5_000_006:5_000_020]
    target = bytearray(1 << 20)
    b.view(1 << 20, 1 << 20).read_into(target)
    assert target == data[1 << 20 : 2 << 20]
    with pytest.raises(UsageError, match=r"the host does not see this memory .*Use read and write"):
        b.host[0]
    increment = nv.load(image(nv.arch), "increment")
    a.write(bytes(len(data)))
    nv.run(increment, [a], block=(64, 1, 1))
    assert words(a.read(0, 256)) == (1,) * 64
    a.free()
    b.free()
    nv.memory.trim(0)
    assert nv._hidden == []


def test_graphs_of_any_size_are_where_the_host_patches_them(open_nv: Open):
    nv = open_nv(options=":private")
    increment = nv.load(image(nv.arch), "increment")
    a = nv.alloc(256)
    a.write(bytes(256))
    graph = nv.graph("long")
    for _ in range(1800):  # more than two megabytes of launches
        graph.dispatch(increment, [Symbol("a")], block=(64, 1, 1))
    graph.replay({"a": a}).wait()
    assert words(a.read()) == (1800,) * 64


def test_a_trace_with_data_keeps_all_buffers_where_it_sees_them(open_nv: Open, tmp_path: Path):
    nv = open_nv(options=":private", trace=str(tmp_path / "t"), trace_data=True)
    assert nv.facts()["memory"] == "system"
    a = nv.alloc(3 << 20)
    nv.queue().fill(a, 7).submit().wait()
    assert bytes(a.host[:4]) == b"\7" * 4


def test_closing_gives_back_what_opening_took(open_nv: Open):
    nv = open_nv()
    port = nv.port
    nv.close()
    free = sum(end - start for start, end in POOL.free)
    for _ in range(3):
        again = open_nv(port=port)
        again.run(again.load(image(again.arch), "local"), [again.alloc(400), 3], block=(100, 1, 1))
        again.close()
    left = free - sum(end - start for start, end in POOL.free)
    # each leaves its signals, and the slab of a buffer that still lives, with their guards
    assert left <= 3 * (CELLS_BYTES + (2 << 20) + 2 * GUARD_BYTES)


def test_push_shows_every_word_and_what_a_launch_points_to(
    nv: NvDevice, open_nv: Open, capsys: pytest.CaptureFixture[str]
):
    nv = open_nv(nv.arch, debug=frozenset({"push"}))
    a, b = nv.alloc(256), nv.alloc(256)
    increment = nv.load(image(nv.arch), "increment")
    a.write(bytes(256))
    nv.queue().barrier().submit().wait()
    capsys.readouterr()
    nv.queue().dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).submit().wait()
    said = capsys.readouterr().err
    for part in (
        f"LaunchData(QmdV{nv.chip.qmd.version}(",
        "cta_thread_dimension0=64",
        f"program_address={increment.entry:#x}",
        "constant_buffer_valid_0=1",
        "ntid_x=64",
        "stack_pointer=",
        "SEND_PCAS_A(",
        "SEND_SIGNALING_PCAS2_B(",
        "LAUNCH_DMA(",
        "SEM_EXECUTE(operation=RELEASE, release_wfi=EN, payload_size=SIZE_64BIT, release_timestamp=EN)",
    ):
        assert part in said, part
    assert "unclaimed" not in said
    assert "UNKNOWN" not in said


@pytest.mark.parametrize(
    "version", ["550.163.01", "570.211.01", "575.57.08", "580.65.06", "590.48.01", "595.45.04"]
)
def test_every_release_of_the_kernel_driver_is_spoken_to_in_its_own_layouts(open_nv: Open, version: str):
    nv = open_nv("sm_90", options=f":driver={version}")
    assert nv.facts()["driver"] == version
    a = nv.alloc(256)
    nv.queue().fill(a, 1, value_bytes=4).submit().wait()
    nv.run(nv.load(image("sm_90"), "increment"), [a], block=(64, 1, 1))
    assert words(a.read()) == (2,) * 64
    assert nv.stats()["dispatches"] == 1
    port = nv.port
    nv.close()
    open_nv(port=port).queue().barrier().submit().wait()


def test_an_unknown_newer_driver_is_asked_and_told_about(open_nv: Open, capsys: pytest.CaptureFixture[str]):
    nv = open_nv("sm_90", options=":driver=700.10")
    assert "700.10" in capsys.readouterr().err
    a = nv.alloc(64)
    nv.queue().fill(a, 5).submit().wait()
    assert a.read() == b"\5" * 64
