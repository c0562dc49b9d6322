"""The AMD driver at work: what goes in comes out, on every architecture and with every kind of queue."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from hcq.amd.device import AmdDevice
from tests.hcq.amd.conftest import the_process
from tests.hcq.amd.kernels import image

Open = Callable[..., AmdDevice]


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


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


def test_closing_gives_back_what_opening_took(open_amd: Open):
    amd = open_amd()
    kernel = amd.port.kernels[0]
    amd.close()
    left = len(the_process(kernel).objects)
    for _ in range(3):
        again = open_amd(port=amd.port)
        again.run(again.load(image(again.arch), "scratch"), [again.alloc(400), 3], block=(100, 1, 1))
        again.close()
    # each leaves its signals, and the slab of a buffer that still lives
    assert len(the_process(kernel).objects) <= left + 3 * 2


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
