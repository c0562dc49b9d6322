"""The debugger stops kernels where it is told, shows what is there, and goes back: AMD's machine code and PTX."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hcq.debug import timeline
from hcq.debug.expression import Expression
from hcq.debug.moment import Moment
from hcq.debug.plans import CONTINUE, Plan
from hcq.debug.session import Go, Goto, Order, Session
from hcq.debug.timeline import Place
from hcq.errors import UsageError
from tests.hcq.debug.rig import PLANTED, SIZE, WRONG, Bench, Scripted

VENDORS = ("amd", "nv")
EVERY = pytest.mark.parametrize("vendor", VENDORS)
AND_METAL = pytest.mark.parametrize("vendor", (*VENDORS, "metal"))


def seen(moment: Moment) -> tuple[Any, ...]:
    """All that there is to see of a moment in the first wave that it has."""
    wave = int(moment.waves[0])
    values = tuple(moment.read(name, wave).tobytes() for name in moment.names() if name != "m0")
    block = wave // moment.work.waves_per_block
    return (
        moment.site,
        moment.waves.tobytes(),
        moment.on(wave).tobytes(),
        values,
        moment.shared(block).tobytes(),
    )


@AND_METAL
def test_a_kernel_that_is_looked_at_computes_the_same(vendor: str) -> None:
    bench = Bench(vendor, ["break kernel *", "step 5", "barrier", "finish"])
    plain = bench.plain()
    bench.c[:] = 0
    bench.session.points.add("kernel", "*")
    assert bench.launch() is None
    np.testing.assert_array_equal(bench.c, plain)
    wrong = np.argwhere(~np.isclose(plain, bench.a @ bench.b, rtol=1e-4)).tolist()
    assert wrong == [[0, WRONG]]
    assert plain[0, WRONG] == PLANTED


@AND_METAL
def test_going_back_shows_what_was_there_before(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "FIRST_SPACING", 16)
    monkeypatch.setattr(timeline, "MOST_SNAPSHOTS", 6)
    monkeypatch.setattr(timeline, "CLOSEST", 4)
    forward: dict[Place, Any] = {}
    memory: dict[Place, bytes | None] = {}
    wanted: list[Place] = []

    class Walker(Scripted):
        def ask(self, session: Session) -> Order:
            stop = session.stop
            if stop.moment is None:
                return Go(CONTINUE)
            here = seen(stop.moment), stop.read(bench.at["C"], bench.c.nbytes)
            if not stop.is_past and not wanted:
                forward[stop.place], memory[stop.place] = here
                if stop.place.tick < 120:
                    return Go(Plan("", lambda moment: ""))
                wanted.extend([Place(1, tick) for tick in (119, 118, 20, 75, 1, 2, 33, 100, 99)])
            else:
                assert here == (forward[stop.place], memory[stop.place])
                assert stop.place == wanted.pop(0)
            if wanted:
                return Goto(wanted[0], "")
            done.append(True)
            return Go(CONTINUE)

    done: list[bool] = []
    bench = Bench(vendor, [])
    bench.session.face = Walker([])
    bench.session.points.add("kernel", "*")
    assert bench.launch() is None
    assert done
    assert 0 < len(bench.session.history.records[0].snapshots) <= 7


@AND_METAL
def test_going_forward_from_the_past_ends_at_the_present(vendor: str) -> None:
    bench = Bench(
        vendor,
        [
            "step 9",
            "reverse-step 4",
            "step",
            "goto 1 2",
            "goto present",
            "goto 1 3",
            "delete all",
            "continue",
        ],
    )
    bench.session.points.add("kernel", "*")
    bench.launch()
    assert [place for _, place in bench.face.stops] == [
        (1, 1),
        (1, 10),
        (1, 6),
        (1, 7),
        (1, 2),
        (1, 10),
        (1, 3),
    ]


@AND_METAL
def test_a_watch_stops_before_each_store_in_both_directions(vendor: str) -> None:
    lines = [
        "delete 1",
        "watch C+20",
        "continue",
        "continue",
        "reverse-continue",
        "mem C+20 4 as f32",
        "continue",
        "mem C+20 4 as f32",
    ]
    bench = Bench(vendor, lines)
    bench.session.points.add("kernel", "*")
    bench.launch()
    reasons = [reason for reason, _ in bench.face.stops]
    assert reasons[1].endswith("by wave 0, lane 5")
    assert reasons[2].endswith("by wave 3, lane 7")
    assert reasons[3] == reasons[1]
    assert reasons[4] == reasons[2]
    first, second = (n for n, text in enumerate(bench.face.said) if text == "> mem C+20 4 as f32")
    assert bench.face.said[first + 2].endswith(": 0")
    right = float((bench.a @ bench.b)[0, WRONG])
    assert float(bench.face.said[second + 2].rpartition(": ")[2]) == pytest.approx(right, rel=1e-5)


@AND_METAL
def test_origin_names_the_planted_store(vendor: str) -> None:
    bench = Bench(vendor, [])
    bench.launch()
    bench.face.lines = ["origin C+20"]
    bench.session.between("the end")
    text = bench.face.after("origin C+20")
    assert re.search("store|st.global|c.5u. =", text.splitlines()[0])
    assert "wave 3, lane 7" in re.sub("warp|SIMD group", "wave", text)
    assert re.search("0x42280000|1109917696|42.0f", text)
    assert "block (3, 0, 0), thread (7, 0, 0)" in text


@AND_METAL
def test_origin_follows_a_right_element_to_both_matrices(vendor: str) -> None:
    bench = Bench(vendor, [])
    bench.launch()
    bench.face.lines = ["origin C+0x88"]  # row 1, column 2
    bench.session.between("the end")
    text = bench.face.after("origin C+0x88")
    assert "block (1, 0, 0), thread (2, 0, 0)" in text
    assert "again and again in a loop" in text
    assert "shared memory of block 1, 0x7c" in text  # the last round's: lane 31 has put it there
    assert f"in A ({bench.at['A']:#x}, 4096 bytes) + 0xfc" in text  # row 1, column 31
    assert f"in B ({bench.at['B']:#x}, 4096 bytes) + 0xf88" in text  # row 31, column 2
    assert "what the host, a copy or an earlier launch left there" in text


@EVERY
def test_origin_reaches_into_an_earlier_launch(vendor: str) -> None:
    bench = Bench(vendor, [])
    bench.launch()
    bench.arguments = bench.arguments[8:16] + bench.arguments[:8] + bench.arguments[16:]  # a = c @ b
    if bench.loaded is not None:
        from tests.hcq.emu.amd.shader.kernels import ARGUMENT_BASE

        bench.space.find(ARGUMENT_BASE).data[: len(bench.arguments)] = np.frombuffer(
            bench.arguments, np.uint8
        )
    bench.launch()
    bench.face.lines = ["origin A+0x80"]  # row 1, column 0
    bench.session.between("the end")
    text = bench.face.after("origin A+0x80")
    assert "launch 2" in text
    assert "launch 1" in text
    assert f"in C ({bench.at['C']:#x}, 4096 bytes) + 0xfc" in text


@EVERY
def test_a_condition_stops_in_the_lane_where_it_holds(vendor: str) -> None:
    register = "v4" if vendor == "amd" else "%r1"
    bench = Bench(
        vendor, ["step 6", f"break if {register} == 9 and block == 2", "continue", f"print {register}", "why"]
    )
    bench.session.points.add("kernel", "*")
    bench.launch()
    assert "holds in wave 2, lane" in bench.face.stops[2][0]
    assert f"{register} = 9 (0x9)" in bench.face.text


@EVERY
def test_divergent_lanes_are_told_apart(vendor: str) -> None:
    text = "global_store" if vendor == "amd" else "st.global"
    bench = Bench(
        vendor,
        ["delete 1", f"break text {text} if wave == 3", "continue", "continue", "waves", "lanes", "why"],
    )
    bench.session.points.add("kernel", "*")
    bench.launch()
    assert "1 of 32 lanes are on" in bench.face.after("why")
    table = bench.face.after("lanes").splitlines()
    assert len(table) == 3
    assert sorted(line.split()[0] for line in table[1:]) == ["0-6,", "7"]


@EVERY
def test_a_fault_stops_where_it_happens_and_can_be_walked_back(vendor: str) -> None:
    bench = Bench(vendor, ["reverse-step", "where"])
    bench.space.unmap(bench.at["B"])
    fault = bench.launch()
    assert fault is not None
    assert bench.face.stops[0][0] == f"fault: {fault}"
    assert "load" in bench.face.after("reverse-step") or "ld.global" in bench.face.after("reverse-step")


@EVERY
def test_what_is_wrong_in_a_command_is_said(vendor: str) -> None:
    lines = [
        "frobnicate",
        "regs nothing",
        "mem 0x10",
        "lane 99",
        "wave 4000",
        "break",
        "break if v3 ==",
        "goto 7",
    ]
    lines += ["delete 9", "print __import__('os')", "help nothing", "step 0x", "re"]
    bench = Bench(vendor, lines)
    bench.session.points.add("kernel", "*")
    bench.launch()
    for line in lines:
        assert bench.face.after(line).startswith("! "), line


def test_expressions_compute_with_registers_as_numbers_of_any_type() -> None:
    bench = Bench("nv", [])
    values: list[Any] = []

    class Asking(Scripted):
        def ask(self, session: Session) -> Order:
            moment = session.stop.moment
            assert moment is not None
            for text in (
                "%r1 * 2 + 1",
                "f32(%f2)",
                "i32(%r1 - 4)",
                "lane",
                "wave",
                "block == 1 or thread < 9",
                "~%r1 & 0xff",
            ):
                values.append(Expression(text).value(moment, 0, 3))
            return Go(CONTINUE)

    bench.session.face = Asking([])
    bench.session.points.add("barrier", "", once=True)
    bench.launch()
    assert values == [7, float(bench.a[0, 3]), -1, 3, 0, True, 0xFC]


@pytest.mark.parametrize(
    "text", ["v1 if v2 else v3", "[v1]", "v1.x", "'a'", "f(v1)", "v1 +", "lambda: 1", "1 << 99999"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        bench = Bench("amd", [])
        Expression(text).value(bench.session.stop.moment, 0, 0)  # type: ignore[arg-type]


def test_launches_that_take_too_much_memory_are_dropped_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_BYTES", 40 << 10)
    bench = Bench("amd", [])
    for round_ in range(6):
        bench.a[:] = round_  # what is equal is kept once
        bench.launch()
    history = bench.session.history
    assert history.count == 6
    assert 1 <= len(history.records) < 6
    assert history.records[-1].number == 6
    assert history.record(1) is None
    assert SIZE
