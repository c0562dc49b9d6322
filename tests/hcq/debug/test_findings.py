"""What HCQ_SANITIZE finds stops a program under the debugger where it was found, in drawn orders of waves, too."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hcq.debug.session import Session
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Program
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.schedule import Schedule
from hcq.events.kernel_faults import KernelFault, Site
from tests.hcq.debug.rig import PLANTED, SIZE, WRONG, Bench
from tests.hcq.debug.test_command import run

EVERY = pytest.mark.parametrize("vendor", ("amd", "nv", "metal"))
ORDERED = pytest.mark.parametrize("vendor", ("amd", "nv"))  # emulated Metal devices have no seeds


class Checked(Bench):
    """A bench whose launches are looked at, perhaps in an order that is drawn from a seed."""

    seed: int | None = None
    words = frozenset({"race"})

    def launch(self, session: Any = None) -> None:
        of, grid = session or self.session, (SIZE, 1, 1)
        self.checks = Checks(self.words)
        options: dict[str, Any] = {"checks": self.checks}
        if self.seed is not None:
            options["schedule"] = Schedule(Random(self.seed))
        if self.loaded is not None:
            of.run_amd(self.loaded.core, self.start, grid, grid, **options)
        elif self.vendor == "metal":
            of.run_metal(self.program, grid, grid, self._bindings(), 0, **options)
        else:
            of.run_nv(self.kernel, 0, self.space, grid, grid, self.space, self.arguments, **options)
        self.checks.tell()


@EVERY
def test_a_race_stops_at_the_access_that_races_and_is_stepped_back_from(vendor: str) -> None:
    bench = Checked(vendor, ["where", "reverse-step", "mem C+20 4 as f32", "goto present", "points"])
    bench.session.points.add("finding", "")
    bench.launch()
    (reason, place), (_, before), (_, present) = bench.face.stops
    assert reason.startswith("finding: [global-race]")
    assert before < place < present
    where = bench.face.after("where")
    assert "block (3, 0, 0), thread (7, 0, 0)" in where
    assert "in the past" in where
    assert bench.face.after("points") == "1: finding (1 hits)"
    right = float((bench.a @ bench.b)[0, WRONG])
    shown = bench.face.after("mem C+20 4 as f32").rpartition(": ")[2]
    assert float(shown) == pytest.approx(right, rel=1e-5)  # the planted store has not been made yet
    assert bench.c[0, WRONG] == PLANTED


@EVERY
def test_a_launch_that_is_looked_at_finds_the_same_without_a_point(vendor: str) -> None:
    bench = Checked(vendor, [])
    bench.launch()
    assert bench.face.stops == []
    assert [fault.rule for fault in bench.checks.found.values()] == ["global-race"]


@ORDERED
@pytest.mark.parametrize("seed", (1, 2, 3))
def test_waves_in_a_drawn_order_are_run_again_in_the_same_order(vendor: str, seed: int) -> None:
    seen: dict[tuple[int, int], Any] = {}
    back: list[tuple[int, int]] = []

    class Walker(type(Checked(vendor, []).face)):  # type: ignore[misc]
        def ask(self, session: Session) -> Any:
            if session.stop.moment is not None:
                there = session.stop.moment.site, session.stop.moment.waves.tolist()
                place = tuple(session.stop.place)
                if session.stop.is_past:
                    assert there == seen[place]
                    back.append(place)
                else:
                    seen[place] = copy.deepcopy(there)
            return super().ask(session)

    lines = [
        "break if lane == 0",
        *["continue"] * 90,
        "delete all",
        *["reverse-step"] * 3,
        "goto 1 5",
        "goto 1 50",
        "goto 1 20",
    ]
    bench = Checked(vendor, [])
    bench.seed = seed
    bench.session.face = bench.face = Walker(lines)
    bench.session.points.add("kernel", "*")
    bench.launch()
    assert len(back) == 6
    assert bench.session.history.records[0].ticks > 90


@ORDERED
def test_an_order_that_is_drawn_is_the_one_without_the_debugger(vendor: str) -> None:
    bench = Checked(vendor, [])
    bench.seed, bench.words = 5, frozenset({"race"})
    bench.launch()
    fault = next(iter(bench.checks.found.values()))
    again = Checked(vendor, [])
    checks, schedule, grid = Checks(frozenset({"race"})), Schedule(Random(5)), (SIZE, 1, 1)
    if again.loaded is not None:
        from hcq.emu.amd.shader.run import run_dispatch

        run_dispatch(again.loaded.core, again.start, grid, grid, checks=checks, schedule=schedule)
    else:
        from hcq.emu.nv.shader.checks import additions_of
        from hcq.emu.nv.shader.run import Kernel
        from tests.hcq.debug.rig import PTX

        kernel = Kernel(PTX, "matmul", additions=additions_of(checks))
        kernel.run(grid, grid, again.space, again.arguments, checks=checks, schedule=schedule)
    assert next(iter(checks.found.values())).sites == fault.sites
    np.testing.assert_array_equal(again.c, bench.c)


@ORDERED
def test_what_is_told_when_a_launch_has_ended_is_found_in_it(vendor: str) -> None:
    bench = Checked(vendor, ["where", "reverse-step"])
    bench.words = frozenset()
    bench.session.points.add("finding", "")
    bench.launch()
    record = bench.session.history.records[0]
    planted = next(one for one in record.work.sites()[::-1] if one.kind == "store")
    site = Site("writes it", planted.text, planted.key, "thread (7, 0, 0) of block (3, 0, 0)")
    fault = KernelFault(
        "buffer-overrun", "an access outside of any buffer, at", "global", bench.at["C"], (site,)
    )
    bench.session.faulted(0, record.work.entry, fault)
    bench.session.faulted(0, record.work.entry, fault)  # said once
    (reason, place), (_, before) = bench.face.stops
    assert reason.startswith("finding: [buffer-overrun]")
    assert before < place
    assert planted.text in bench.face.after("where")
    assert "block (3, 0, 0), thread (7, 0, 0)" in bench.face.after("where")


def test_several_findings_of_the_last_instruction_stop_one_after_the_other() -> None:
    bench = Checked("metal", ["continue", "continue", "continue", "continue"])
    program = """kernel void shift(device float* c [[buffer(0)]], uint t [[thread_position_in_grid]]) {
  c[t] = float(t);
  c[t] = c[(t + 1) % 64] * 2.0f;
}
"""
    source = parse(program)
    bench.program = Program(source, source.kernels["shift"])
    bench._bindings = lambda: {0: bench.c.reshape(-1).view(np.uint8)}  # type: ignore[method-assign]
    bench.session.points.add("finding", "")
    bench.launch()
    rules = [reason.split("]")[0] for reason, _ in bench.face.stops]
    assert len(rules) == len(bench.checks.found) > 1
    assert {place for _, place in bench.face.stops} == {(1, 2)}


def test_a_finding_stops_a_program_and_says_the_seed_that_repeats_it(tmp_path: Path) -> None:
    script = """break finding
continue
expect lane == 7 and wave == 3 or lane == 5 and wave == 0
reverse-step
continue
"""
    words = "--sanitize", "race", "nv:sm_90:seed=4", "--", "program.py", "matmul.ptx"
    status, said = run(tmp_path, script, *words)
    again, same = run(tmp_path, script, *words)
    assert status == again == 0, said
    stops = [[line for line in text.splitlines() if line.startswith("launch ")] for text in (said, same)]
    assert stops[0] == stops[1]
    assert "-- finding: [global-race] kernel matmul: a race on" in said
    assert "nv:sm_90:seed=4 repeats it." in said


UNWRITTEN_MSL = """
kernel void matmul(device float* C [[buffer(0)]], device const float* A [[buffer(1)]],
                   device const float* B [[buffer(2)]], uint t [[thread_position_in_threadgroup]],
                   uint b [[threadgroup_position_in_grid]]) {
    threadgroup float tile[64];
    tile[t] = A[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float x = tile[t + 1];
    C[t] = x;
}
"""


def test_what_nobody_wrote_stops_a_metal_kernel_at_its_use() -> None:
    bench = Checked("metal", ["where", "reverse-step"])
    bench.words = frozenset({"init"})
    source = parse(UNWRITTEN_MSL)
    bench.program = Program(source, source.kernels["matmul"])
    bench.session.points.add("finding", "")
    bench.launch()
    reason = bench.face.stops[0][0]
    assert reason.startswith("finding: [uninitialised-read]")
    assert "C[t] = x;" in bench.face.after("where")
