"""Attention on emulated GPUs: masked tiles of keys are skipped, and no sector is read or stored for nothing."""

from __future__ import annotations

import re

import pytest

import hcq
from hcq import Tensor
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, amd_target, nv_target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.grad.gradient import grad
from hcq.frontend.schedule import nested
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.building import check
from tests.compiler.emulated_gpus import machine_of, name_of
from tests.compiler.shared_memory import race

pytestmark = pytest.mark.own_devices

LENGTH, WIDTH, TILE, WARP = 256, 64, 64, 32
GPUS = {
    "AMD": ("amd:gfx942", amd_target("gfx942")),
    "AMD:1": ("amd:gfx1100", amd_target("gfx1100")),
    "NV": ("nv:sm_80", nv_target("sm_80")),
}

machine = machine_of(*[word for word, _ in GPUS.values()])
gpu = name_of({name: word for name, (word, _) in GPUS.items()}, thorough=("amd:gfx1100",))


@pytest.fixture(autouse=True)
def never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the scores of short sequences are made tile by tile."""
    monkeypatch.setattr(nested, "LARGE_SCORES", 1)


def operands(count: int) -> list[Tensor]:
    return [
        Tensor.zeros(1, 1, LENGTH, WIDTH, dtype=dtypes.float16).contiguous().realize() for _ in range(count)
    ]


def kernels(target: Target, roots: list[Node]) -> list[Node]:
    made = schedule(roots, structure_of(roots).storages, target.threads, [dtypes.float16])
    return [kernel.sink for kernel in made.kernels]


def counted(gpu: str, sink: Node) -> Counters:
    """What the kernel did; its result is the interpreter's."""
    made: list[Counters] = []
    end = counters.listen(lambda _, one: made.append(one))
    try:
        check(hcq.open(gpu), sink, target=GPUS[gpu][1])
    finally:
        end()
    (one,) = made
    return one


def forward(gpu: str, is_causal: bool) -> Counters:
    q, k, v = operands(3)
    (sink,) = kernels(GPUS[gpu][1], [q.scaled_dot_product_attention(k, v, is_causal=is_causal).node])
    return counted(gpu, sink)


def test_tiles_of_keys_that_are_masked_for_a_whole_block_are_skipped(gpu: str) -> None:
    """A block with the rows up to r multiplies with the keys up to there: half of all, and half of the diagonal."""
    plain, causal = forward(gpu, False), forward(gpu, True)
    whole = 4 * LENGTH * LENGTH * WIDTH
    assert plain.matrix_flops == {"f16": whole}
    assert causal.matrix_flops == {"f16": whole * (plain.blocks + 1) // (2 * plain.blocks)}
    for one in (plain, causal):
        assert one.sector_ratio <= 1.15 and one.bank_conflicts == one.local_sectors == 0


def test_gradients_of_causal_attention_skip_them_too(gpu: str) -> None:
    """That of queries ends early; those of keys and values, in one kernel, begin late. Nothing need have run before."""
    q, k, v, g = operands(4)
    y = q.scaled_dot_product_attention(k, v, is_causal=True)
    sinks = kernels(GPUS[gpu][1], [slope.node for slope in grad([y], [q, k, v], [g])])
    of_query, of_both = [sink for sink in sinks if sink.src[0].src[0].shape[-1] == WIDTH][-2:]
    product = 2 * LENGTH * LENGTH * WIDTH
    for sink, count in ((of_query, 3), (of_both, 4)):
        one = counted(gpu, sink)
        assert one.matrix_flops == {"f16": count * product * (one.blocks + 1) // (2 * one.blocks)}
        assert one.bank_conflicts == one.local_sectors == 0


@pytest.mark.parametrize("tiles", [4, *(pytest.param(tiles, marks=pytest.mark.thorough) for tiles in (3, 6))])
def test_blocks_with_fewer_steps_than_tiles_ahead_have_no_copies_under_way_when_they_store(
    machine: None, tiles: int
) -> None:
    """Causal attention: the first block has one tile of keys, and collects its rows where the others would go."""
    target = GPUS["NV"][1]
    q, k, v, g = operands(4)
    y = q.scaled_dot_product_attention(k, v, is_causal=True)
    roots = [slope.node for slope in grad([y], [q, k, v], [g])]
    collecting = 0
    for sink in kernels(target, [y.node]) + kernels(target, roots):
        text = choose(LoopNest(lower(sink, target)), target).choice
        deeper = re.sub(r"pipeline (\w+)", rf"pipeline \1 {tiles}", text)
        if "pipeline" not in text:
            continue
        program = linearize(LoopNest(lower(sink, target)).apply(deeper), "k", target.shared_bytes)
        for block in range(program.groups):
            assert race(program, WARP, block) == "", deeper
        if "collect" in text:
            collecting += 1
            check(hcq.open("NV"), sink, deeper, target=target)
    assert collecting >= 3


@pytest.mark.parametrize("is_causal", [False, True])
def test_tiles_of_keys_may_be_on_their_way_for_more_than_a_step(machine: None, is_causal: bool) -> None:
    """On gfx942 by global_load_lds, which no causal block begins for steps that it does not take."""
    name, target = "AMD", GPUS["AMD"][1]
    q, k, v = operands(3)
    (sink,) = kernels(target, [q.scaled_dot_product_attention(k, v, is_causal=is_causal).node])
    lowered = lower(sink, target)
    text = re.sub(r"pipeline (\S+?)(;|$)", r"pipeline \1 3\2", choose(LoopNest(lowered), target).choice)
    program = linearize(LoopNest(lowered).apply(text), "k", target.shared_bytes, target.wave_copy_bytes)
    assert any(it.op is Op.COPY_SHARED for it in program.instructions)
    for block in range(program.groups):
        assert race(program, 64, block) == "", block
    check(hcq.open(name), sink, text, target=target)
