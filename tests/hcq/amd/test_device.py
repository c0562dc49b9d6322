"""The AMD driver at work: what goes in comes out, on every architecture and with every kind of queue."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from hcq.amd.device import AmdDevice
from hcq.errors import UsageError
from tests.hcq.amd.kernels import image

Open = Callable[..., AmdDevice]


def floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def test_workgroups_share_lds_across_a_barrier(amd: AmdDevice):
    out, a = amd.alloc(4096), amd.alloc(4096)
    a.write(struct.pack("<1024I", *range(1024)))
    amd.run(amd.load(image(amd.arch), "reverse"), [out, a], grid=(4, 1, 1), block=(256, 1, 1))
    assert words(out.read()) == tuple(g * 256 + 255 - t for g in range(4) for t in range(256))


def test_work_items_have_scratch_memory_of_their_own(amd: AmdDevice):
    out = amd.alloc(400)
    amd.run(amd.load(image(amd.arch), "scratch"), [out, 37], block=(100, 1, 1))
    assert words(out.read()) == tuple(37 * t for t in range(100))


def test_kernels_see_the_grid_in_hidden_arguments_and_in_their_dispatch_packet(amd: AmdDevice):
    out = amd.alloc(12)
    amd.run(amd.load(image(amd.arch), "sizes"), [out], grid=(5, 1, 1), block=(48, 1, 1))
    assert words(out.read()) == (5, 48, 240)


def test_constants_of_an_object_are_where_its_code_looks_for_them(amd: AmdDevice):
    out = amd.alloc(4)
    program = amd.load(image(amd.arch), "lookup")
    for index, value in enumerate((10, 20, 30, 40)):
        amd.run(program, [out, index])
        assert words(out.read()) == (value,)


def test_commands_of_both_rings_run_in_the_order_they_were_recorded(amd: AmdDevice):
    increment = amd.load(image(amd.arch), "increment")
    a, b = amd.alloc(256), amd.alloc(256)
    q = amd.queue().fill(a, 10, value_bytes=4)
    for _ in range(3):
        q.dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).dispatch(
            increment, [b], block=(64, 1, 1)
        ).copy(a, b)
    q.submit().wait()
    assert words(a.read()) == (16,) * 64


def test_arguments_in_flight_are_never_overwritten(open_amd: Open):
    """More arguments than the arena holds, while the GPU waits: later submissions wait for room."""
    amd = open_amd(timeout_ms=50_000)
    increment = amd.load(image(amd.arch), "increment")
    a = amd.alloc(256)
    a.write(bytes(256))
    amd.arena.size_bytes = 64 * 8
    for _ in range(100):
        amd.queue().dispatch(increment, [a], block=(64, 1, 1)).submit()
    amd.synchronize()
    assert words(a.read()) == (100,) * 64


@pytest.mark.usefixtures("small_rings")
def test_rings_wrap_many_times(open_amd: Open):
    for queue in ("pm4", "aql"):
        amd = open_amd(queue=queue)
        increment = amd.load(image(amd.arch), "increment")
        a, b = amd.alloc(256), amd.alloc(256)
        a.write(bytes(256))
        for _ in range(100):
            amd.queue().dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).copy(a, b).submit()
        amd.synchronize()
        assert words(a.read()) == (100,) * 64


def test_two_gpus_work_side_by_side_and_see_each_other(open_amd: Open):
    from tests.hcq.amd.conftest import fresh_port

    port = fresh_port("amd:gfx1100", "amd:gfx942")
    one, two = open_amd(port=port), open_amd(port=port, name="AMD:1")
    assert (one.arch, two.arch) == ("gfx1100", "gfx942")
    a = one.alloc(256)
    a.write(bytes(256))
    one.run(one.load(image("gfx1100"), "increment"), [a], block=(64, 1, 1))
    two.run(two.load(image("gfx942"), "increment"), [a], block=(64, 1, 1))
    assert words(a.read()) == (2,) * 64


def test_a_gpu_whose_memory_the_host_cannot_see_works_from_host_memory(open_amd: Open):
    amd = open_amd(options=":private")
    assert amd.facts()["memory"] == "staging"
    a, b = amd.alloc(5000), amd.alloc(5000)
    a.write(b"abcde" * 1000)
    amd.queue().copy(b, a).submit().wait()
    assert b.read() == b"abcde" * 1000


@pytest.mark.parametrize("arch", ["gfx1101", "gfx1102", "gfx1200"])
def test_sisters_of_the_emulated_gpus_run_kernels_and_copy(open_amd: Open, arch: str):
    amd = open_amd(arch)
    program, words = amd.load(image(arch), "increment"), amd.alloc(256)
    words.write(bytes(256))
    amd.run(program, [words], block=(64, 1, 1))
    assert struct.unpack("<64I", words.read()) == (1,) * 64
    a, b = amd.alloc(1000), amd.alloc(1000)
    a.write(b"0123456789" * 100)
    amd.queue().copy(b, a).fill(a, 3).submit().wait()
    assert b.read() == b"0123456789" * 100
    assert a.read() == b"\x03" * 1000


@pytest.mark.parametrize(
    ("args", "grid", "block", "says"),
    [
        ([], (1, 1, 1), (64, 1, 1), "takes 1 arguments"),
        ([5.0], (1, 1, 1), (64, 1, 1), "argument 0 is a buffer"),
        (["x"], (1, 1, 1), (64, 1, 1), "An argument is a Buffer"),
        ([None], (0, 1, 1), (64, 1, 1), "grid=(0, 1, 1)"),
        ([None], (1, 1, 1), (2000, 1, 1), "at most 1024"),
        ([None], (1 << 30, 1, 1), (64, 1, 1), "along one axis"),
    ],
)
def test_a_launch_that_cannot_be_right_says_why(
    amd: AmdDevice, args: list, grid: tuple, block: tuple, says: str
):
    program = amd.load(image(amd.arch), "increment")
    buffer = amd.alloc(256)
    with pytest.raises(UsageError) as error:
        amd.queue().dispatch(program, [buffer if arg is None else arg for arg in args], grid, block)
    assert says in str(error.value)
    assert "increment" in str(error.value)


def test_an_object_for_another_gpu_is_refused_by_name(open_amd: Open):
    amd = open_amd("gfx1100")
    with pytest.raises(UsageError, match="it is for gfx942, and this device is a gfx1100"):
        amd.load(image("gfx942"), "scale")


def test_a_peer_copy_moves_bytes_from_one_gpu_to_the_other(open_amd: Open):
    from tests.hcq.amd.conftest import fresh_port

    port = fresh_port("amd:gfx1100", "amd:gfx1100")
    one, two = open_amd(port=port), open_amd(port=port, name="AMD:1")
    a, b = one.alloc(5000), two.alloc(5000)
    for round_ in range(3):
        data = bytes((i * 7 + round_) % 256 for i in range(5000))
        a.write(data)
        two.queue().copy(b, a).submit()
        assert b.read() == data
        b.write(data[::-1])
        two.queue().copy(a, b).submit()
        assert a.read() == data[::-1]


def test_a_device_of_another_system_cannot_be_reached(open_amd: Open):
    one, two = open_amd(), open_amd(name="AMD")
    with pytest.raises(UsageError, match="cannot reach its memory"):
        two.queue().copy(two.alloc(64), one.alloc(64))


def test_closing_gives_back_what_opening_took(open_amd: Open):
    amd = open_amd()
    kernel = amd.port.kernels[0]
    amd.close()
    left = len(kernel.objects)
    for _ in range(3):
        again = open_amd(port=amd.port)
        again.run(again.load(image(again.arch), "scratch"), [again.alloc(400), 3], block=(100, 1, 1))
        again.close()
    # each leaves its signals, and the slab of a buffer that still lives
    assert len(kernel.objects) <= left + 3 * 2


def test_long_reads_come_through_the_copy_engine(amd: AmdDevice):
    data = bytes(i * 31 % 256 for i in range(5 << 20))
    buffer = amd.alloc(len(data))
    buffer.write(data)
    before = amd.stats()["copy_read"]
    assert buffer.read() == data
    assert buffer.read(100, 20_000) == data[100:20_100]
    target = bytearray(1 << 20)
    buffer.read_into(target, offset=4096)
    assert target == data[4096 : 4096 + (1 << 20)]
    assert amd.stats()["copy_read"] > before


def test_push_shows_every_word_of_both_rings(open_amd: Open, capsys: pytest.CaptureFixture[str]):
    for queue in ("pm4", "aql"):
        amd = open_amd(queue=queue, debug=frozenset({"push"}))
        a, b = amd.alloc(256), amd.alloc(256)
        increment = amd.load(image(amd.arch), "increment")
        capsys.readouterr()
        amd.queue().dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).submit().wait()
        said = capsys.readouterr().err
        for part in (
            f"{queue.upper()} ring",
            "SDMA ring",
            "PollRegmem(func=GREATER_THAN_OR_EQUAL",
            "CopyLinear",
            "Trap",
        ):
            assert part in said
        assert "DispatchDirect" in said or "KernelDispatch" in said
        assert "unclaimed" not in said
        assert "Header(" not in said


def test_launches_are_counted_in_queues_and_in_graphs(amd: AmdDevice):
    program, a = amd.load(image(amd.arch), "increment"), amd.alloc(256)
    a.write(bytes(256))
    before = amd.stats()["dispatches"]
    q = amd.queue()
    for _ in range(3):
        q.dispatch(program, [a], block=(64, 1, 1))
    q.fill(a, 0).submit().wait()
    assert amd.stats()["dispatches"] == before + 3
    graph = (
        amd.graph("pair").dispatch(program, [a], block=(64, 1, 1)).dispatch(program, [a], block=(64, 1, 1))
    )
    graph.fill(a, 1).dispatch(program, [a], block=(64, 1, 1))
    for _ in range(2):
        graph.replay().wait()
    assert amd.stats()["dispatches"] == before + 9
    assert amd.stats()["packets"] > amd.stats()["submissions"]
