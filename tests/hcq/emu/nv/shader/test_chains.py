"""What a warp waits for follows from the text: loads one after the other, many at once, those of the round before."""

from __future__ import annotations

import pytest

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.chains import Chain, chains_of
from hcq.emu.nv.shader.parser import parse
from tests.hcq.emu.nv.shader.running import HEADER


def chains(body: str) -> list[Chain]:
    """%rd1 is the parameter; registers %rd, %r, %f are there."""
    text = (
        HEADER + ".visible .entry k(.param .u64 p) { .reg .b64 %rd<70>; .reg .b32 %r<70>; .reg .f32 %f<70>; "
        f".reg .pred %p<4>; .shared .align 16 .b8 tile[4096]; ld.param.u64 %rd1, [p]; {body} ret; }}"
    )
    return chains_of(flow.blocks_of(parse(text).functions["k"]), {})


def waits(body: str, what: str) -> float:
    return sum(chain.waits.get(what, 0.0) for chain in chains(body))


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_a_chase_waits_for_each_load_but_the_last_which_nobody_reads(count: int) -> None:
    body = "".join(f"ld.global.u64 %rd{i + 2}, [%rd{i + 1}];" for i in range(count))
    assert waits(body + f"st.global.u64 [%rd1], %rd{count + 1};", "global") == pytest.approx(count)
    assert waits(body, "global") == pytest.approx(count - 1)


@pytest.mark.parametrize("count", [1, 4, 32])
def test_loads_that_do_not_need_each_other_are_waited_for_at_once(count: int) -> None:
    loads = "".join(f"ld.global.f32 %f{i + 1}, [%rd1+{4 * i}];" for i in range(count))
    adds = "".join(f"add.f32 %f0, %f0, %f{i + 1};" for i in range(count))
    assert waits(loads + adds + "st.global.f32 [%rd1], %f0;", "global") == pytest.approx(1)


def test_a_load_is_not_moved_before_a_store_to_the_same_space_unless_it_reads_constants() -> None:
    def pair(load: str) -> float:
        return waits(
            f"{load} %f1, [%rd1]; st.global.f32 [%rd1+64], %f1; {load} %f2, [%rd1+4]; st.global.f32 [%rd1+68], %f2;",
            "global",
        )

    assert pair("ld.global.f32") == pytest.approx(2)
    assert pair("ld.global.nc.f32") == pytest.approx(1)


def test_what_a_round_asks_for_and_the_next_one_reads_is_hidden_by_what_stands_between() -> None:
    def loop(work: int) -> float:
        spin = "fma.rn.f32 %f2, %f2, %f2, %f2;" * work
        body = f"L: add.f32 %f3, %f3, %f1; {spin} ld.global.nc.f32 %f1, [%rd1]; setp.ne.f32 %p1, %f3, %f2; @%p1 bra L;"
        return chains(body)[1].waits.get("global", 0.0)

    found = [loop(work) for work in (60, 100, 200)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.2 and found[-1] == 0


def test_sums_that_need_each_other_take_their_latency_and_others_do_not() -> None:
    one = "".join("add.f32 %f1, %f1, %f2;" for _ in range(40))
    four = "".join(f"add.f32 %f{1 + i % 4}, %f{1 + i % 4}, %f9;" for i in range(40))
    assert waits(one, "clocks") > 3 * waits(four, "clocks")


def test_a_wait_for_copies_waits_for_those_of_older_groups_alone() -> None:
    copy = "cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group;"
    assert waits(copy + "cp.async.wait_group 0;" + "bar.sync 0;", "copy") == pytest.approx(1, abs=0.1)
    assert waits(copy + "cp.async.wait_group 1;" + "bar.sync 0;", "copy") == 0


def test_instructions_are_issued_in_the_pipe_that_has_them() -> None:
    found: dict[str, int] = {}
    for chain in chains(
        "ld.global.f32 %f1, [%rd1]; fma.rn.f32 %f2, %f1, %f1, %f1; ex2.approx.ftz.f32 %f3, %f2; "
        "st.global.f32 [%rd1], %f3;"
    ):
        for pipe, count in chain.ops.items():
            found[pipe] = found.get(pipe, 0) + count
    assert found == {"memory": 2, "fma": 1, "special": 1, "control": 1}
