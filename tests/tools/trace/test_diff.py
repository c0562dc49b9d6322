"""diff: same work is same work, wherever it lies in memory; anything else is said."""

from __future__ import annotations

import json

import pytest

from hcq.command import Signal, Wait
from hcq.tools.trace.diff import compare
from hcq.trace.file import Trace
from hcq.trace.records import Kind
from tests.tools.trace.making import CELL, PROGRAM, Maker, record


def made(shift: int = 0, values: tuple[int, ...] = (1, 2, 3), size: int = 16, device: str = "CPU") -> Trace:
    """Signals in order, at addresses of one's choice."""
    maker = Maker()
    maker.device(device)
    maker.alloc(CELL + shift, size, name="x")
    for value in values:
        maker.submit(Signal(CELL + shift, value))
    return Trace.parse(maker.content)


def test_a_second_run_does_the_same_work(trace, capsule, kernels, tmp_path):
    again = record(PROGRAM, tmp_path / "again", str(kernels), options="")
    done = trace("diff", capsule, again)
    assert done.status == 0
    assert done.out == "same work: 4 submissions, 9 commands, 2 kernels\n"


def test_a_profiled_run_does_the_same_work(trace, capsule, kernels, tmp_path):
    again = record(PROGRAM, tmp_path / "again", str(kernels), options="", environment=["HCQ_PROFILE=1"])
    done = trace("diff", capsule, again)
    assert done.status == 0, done.out
    assert "only the second has timestamps; they were left out" in done.out


def test_addresses_do_not_count():
    assert compare(made(), made(shift=0x40000)).is_same


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"values": (1, 2, 4)}, "command 0, signal: value is 3 and 4"),
        ({"values": (1, 2)}, "only in the first: signal"),
        ({"values": (1, 2, 3, 4)}, "only in the second: signal"),
        ({"size": 64}, "signal is x in both, of 16 and 64 bytes"),
        ({"device": "CPU:1"}, "only in the"),
    ],
)
def test_other_work_is_named(change, what):
    result = compare(made(), made(**change))
    assert not result.is_same
    assert what in result.differences[0].what


def test_another_argument_of_a_kernel_is_named(trace, capsule, kernels, tmp_path):
    other = record(PROGRAM.replace("[out, -3]", "[out, -4]"), tmp_path / "other", str(kernels), options="")
    done = trace("diff", capsule, other, "--json")
    assert done.status == 1
    found = json.loads(done.out)
    assert [one["what"] for one in found["differences"]] == ["command 1, one step: argument 1 is -3 and -4"]
    assert found["differences"][0]["a"] == found["differences"][0]["b"] == 1


def test_other_code_under_the_same_name_is_named(capsule):
    content = capsule.read_bytes()
    first, second = Trace.parse(content), Trace.parse(content)
    for code in second.code:
        code.image = code.image[:-1] + b"?"
    assert any("its code differs" in one.what for one in compare(first, second).differences)


def test_a_swapped_buffer_is_found_although_sizes_agree():
    def swapped(order: tuple[int, ...]) -> Trace:
        maker = Maker()
        maker.device()
        cells = [CELL, CELL + 16]
        for number, va in enumerate(cells):
            maker.alloc(va, name=f"cell {number}")
        for value, which in enumerate(order, 1):
            maker.submit(Signal(cells[which], value))
        return Trace.parse(maker.content)

    assert compare(
        swapped((0, 1, 0)), swapped((1, 0, 1))
    ).is_same  # the same, with the names the other way round
    result = compare(swapped((0, 1, 0)), swapped((0, 1, 1)))
    assert [one.what for one in result.differences] == ["command 0, signal: signal is cell 0 and cell 1"]


def test_a_buffer_at_a_used_again_address_is_another_buffer():
    def again(is_freed: bool) -> Trace:
        maker = Maker()
        maker.device()
        maker.alloc(CELL).submit(Signal(CELL, 1))
        if is_freed:
            maker.free(CELL)
            maker.alloc(CELL)
        maker.submit(Signal(CELL, 2))
        return Trace.parse(maker.content)

    assert compare(again(True), again(True)).is_same
    assert "not the same buffer as before" in compare(again(True), again(False)).differences[0].what


def test_an_extra_submission_does_not_hide_what_follows():
    values = tuple(range(1, 30))
    with_more = values[:10] + (100,) + values[10:]
    result = compare(made(values=values), made(values=with_more))
    assert len(result.differences) <= 2 * len(values)
    maker_a, maker_b = Maker(), Maker()
    for maker, has_more in ((maker_a, False), (maker_b, True)):
        maker.device()
        maker.alloc(CELL, 16).alloc(CELL + 64, 64)
        for value in range(1, 6):
            if has_more and value == 3:
                maker.submit(Wait(CELL + 64, 0))
            maker.submit(Signal(CELL, value))
    result = compare(Trace.parse(maker_a.content), Trace.parse(maker_b.content))
    assert [(one.what, one.a, one.b) for one in result.differences] == [("only in the second: wait", None, 3)]


def test_the_same_commands_in_other_submissions_are_told_apart_from_other_work():
    one, two = Maker(), Maker()
    for maker in (one, two):
        maker.device()
        maker.alloc(CELL)
    one.submit(Signal(CELL, 1), Signal(CELL, 2))
    two.submit(Signal(CELL, 1))
    two.submit(Signal(CELL, 2))
    result = compare(Trace.parse(one.content), Trace.parse(two.content))
    assert [d.what for d in result.differences] == ["the same commands, in 1 submissions here and 2 there"]


def test_work_that_did_not_reach_the_device_does_not_count():
    maker = Maker()
    maker.device()
    maker.alloc(CELL, name="x")
    for value in (1, 2, 3):
        maker.submit(Signal(CELL, value))
    maker.submit(Signal(CELL, 9))
    maker.text(Kind.DROPPED, {"device": 0, "value": 4, "why": "no room"})
    assert compare(made(), Trace.parse(maker.content)).is_same
