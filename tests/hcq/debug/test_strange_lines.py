"""Nothing that a person says at the prompt ends the program, or the debugger: it is done, or refused in a sentence."""

from __future__ import annotations

import random

import pytest

from hcq.debug.commands import Commands
from hcq.debug.plans import CONTINUE
from hcq.debug.session import Go, Order, Session
from tests.hcq.debug.rig import Bench, Scripted

VENDORS = pytest.mark.parametrize("vendor", ("amd", "nv", "metal"))
LINES = 120
WORDS = (
    "0 1 -1 99999999999999999999 0x 0x10 1e3 nan '' \" ' C C+20 C+0xffffffffffffffff A+4096 + v0 v99 s0 s[0:1] v[2:1] "
    "v[0:99999] %r1 %p1 %f1 %rd1 %nope acc t row exec vcc as all lds shared if in * mat* kernel line x.c:7 : pc text [ "
    "packet a=b a=1 submission finding barrier block present wave ٣ ² # f32(lane) lane.__class__ 9**9**9 1<<4000 ~lane "
    "1/0 f32(1.5) i64(2**70) f64(%f1) f64(v0) if(lane==3) lane==3 v0>9 v0>'x' f99 f32 65536 65537 18446744073709551615"
).split()


class Talker(Scripted):
    """Says what it draws; whatever moves is followed."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self.random, self.left = random.Random(seed), LINES

    def ask(self, session: Session) -> Order:
        commands = Commands(session, self.said.append)
        verbs = [one for one in commands.names() if one not in ("quit", "detach", "origin")]
        while self.left > 0:
            self.left -= 1
            words = self.random.choices(WORDS, k=self.random.choice((0, 1, 1, 2, 3)))
            order = commands.run(" ".join([self.random.choice(verbs), *words]))
            if order is not None:
                return order
        session.points.all.clear()
        return Go(CONTINUE)


@VENDORS
@pytest.mark.parametrize("seed", range(3))
def test_strange_lines_are_done_or_refused(vendor: str, seed: int) -> None:
    bench = Bench(vendor, [])
    bench.session.face = talker = Talker(seed)
    while talker.left:
        bench.session.points.all.clear()
        bench.session.points.add("kernel", "*")
        assert bench.launch() is None
        bench.session.between("the end")
    assert any(line.startswith("! ") for line in talker.said)


@VENDORS
@pytest.mark.parametrize(
    "line",
    [
        "watch 0x10 18446744073709551615",
        "rwatch 18446744073709551615 18446744073709551615",
        "watch lds 0 18446744073709551615",
        "rwatch lds 18446744073709551615",
    ],
)
def test_a_watch_of_any_range_is_made_and_the_launch_ends(vendor: str, line: str) -> None:
    bench = Bench(vendor, [line, "delete 1", *["continue"] * 3, "delete all"])
    bench.session.points.add("kernel", "*")
    assert bench.launch() is None
    assert bench.face.after(line).startswith("point 2: watch")


@VENDORS
@pytest.mark.parametrize(
    "condition", ["nothing == 3", "f32(nothing) > 1", "lane / 0 == 1", "i64(1 / (lane - lane))"]
)
def test_a_condition_that_cannot_be_computed_stops_and_is_off(vendor: str, condition: str) -> None:
    bench = Bench(vendor, [f"break if {condition}", "continue", "points", "continue"])
    bench.session.points.add("kernel", "*")
    assert bench.launch() is None
    assert "point 2 is off now, for its condition cannot be computed here" in bench.face.stops[1][0]
    assert "off)" in bench.face.after("points")
    assert len(bench.face.stops) == 2


@pytest.mark.parametrize(
    "line", ["watch C 0", "watch C+0xffffffffffffffff", "origin C 0", "origin C+0xffffffffffffffff"]
)
def test_a_range_that_is_none_is_refused(line: str) -> None:
    bench = Bench("nv", [line])
    bench.session.points.add("kernel", "*")
    bench.launch()
    assert bench.face.after(line).startswith("! ")
