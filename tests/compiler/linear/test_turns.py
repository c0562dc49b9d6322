"""Sums that take turns in the registers are the sums that they would be all at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.target import cpu_target, limited
from hcq.ir.op import Op
from tests.compiler.building import check
from tests.compiler.loops.test_loop_nest import attention, slope_of_keys

if TYPE_CHECKING:
    from hcq.device import Device

ROWS_AND_KEYS = "split r0 2; unroll r0.1; split r2 8; split r2.1 4; vectorize r2.2; unroll r2.1"
AT_ONCE = f"split r1 4; vectorize r1.1; unroll r1; {ROWS_AND_KEYS}"
IN_TURNS = AT_ONCE.replace(
    "split r1 4; vectorize r1.1", "split r1 8; split r1.1 4; vectorize r1.2; unroll r1.1"
)


@pytest.mark.parametrize("keys", [8, 13, 32])
@pytest.mark.parametrize("make", [attention, slope_of_keys], ids=lambda make: make.__name__)
def test_turns_change_nothing_of_the_result(device: Device, make: object, keys: int) -> None:
    sink = make(5, keys, 16)  # type: ignore[operator]
    check(device, sink, AT_ONCE)
    check(device, sink, IN_TURNS)


def test_a_loop_goes_through_the_parts_and_needs_fewer_accumulators() -> None:
    def program(text: str) -> list:  # type: ignore[type-arg]
        return linearize(
            LoopNest(lower(attention(8, 32, 16), cpu_target())).apply(text), "attention"
        ).instructions

    at_once, turns = program(AT_ONCE), program(IN_TURNS)
    assert any(it.op is Op.LOOP and it.arg.name == "turn" for it in turns)
    count = [sum(it.op is Op.ACCUMULATOR for it in each) for each in (at_once, turns)]
    assert count[0] - count[1] == 8  # two rows of four vectors


def test_attention_of_few_registers_takes_turns(device: Device) -> None:
    code = check(device, attention(8, 32, 64), target=limited(cpu_target(), "x86-64-v3"))
    if cpu_target().vector_registers == 16 or "avx512f" in cpu_target().flags:
        assert re.search(r"split r\d 16; split r\d\.1 8; vectorize r\d\.2", code.choice), code.choice
