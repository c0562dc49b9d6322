"""Graphs that are split over hardware queues do what the same commands do in order, and no wait in them is too many."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hcq.amd.rings import Ring
from hcq.command import Copy, Fill
from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.gpu.graph import GpuGraph
from hcq.graph import Symbol
from hcq.nv.rings import GpFifo
from hcq.observe.lint import lint
from hcq.observe.validator import Validator
from hcq.trace.file import Trace
from hcq.work.hardware_queues import COPIES, MAIN, Split, Wait, assign
from tests.hcq.gpu.conftest import ARCHS, QUEUES, Open
from tests.hcq.gpu.kernels import image
from tests.hcq.gpu.vendors import AMD, Vendor

WORDS = 64
BYTES = 4 * WORDS
SCALE = ("buffer", "buffer", "int", "float", "float")


def opened(vendor: Vendor, open_gpu: Open, number: int, **fields: Any) -> GpuDevice:
    """One of the vendor's architectures, with one of its queues."""
    arch, queue = QUEUES[number % len(QUEUES)] if vendor is AMD else (ARCHS[number % len(ARCHS)], "")
    return open_gpu(arch, **fields, **({"queue": queue} if queue else {}))


def always_split(graph: GpuGraph) -> GpuGraph:
    """Every copy and fill of the graph has a lane of its own, whether it pays or not."""

    def split() -> Split | None:
        lanes = [COPIES if isinstance(what, (Copy, Fill)) else MAIN for what in graph.commands]
        return assign(graph.dependences(), lanes) if COPIES in lanes else None

    graph.split = split  # type: ignore[method-assign]
    return graph


class Model:
    """Buffers as lists of their first word, and what commands do with them."""

    def __init__(self, count: int) -> None:
        self.words = [[100 * number] * WORDS for number in range(count)]

    def increment(self, i: int) -> None:
        self.words[i] = [word + 1 for word in self.words[i]]

    def copy(self, to: int, to_at: int, of: int, of_at: int, count: int) -> None:
        self.words[to][to_at : to_at + count] = self.words[of][of_at : of_at + count]

    def fill(self, i: int, at: int, count: int, value: int) -> None:
        self.words[i][at : at + count] = [value] * count


def record(
    draw: random.Random, queue: Any, program: Any, buffers: Sequence[Any]
) -> list[Callable[[Model], None]]:
    """Random commands, and what each does."""
    done: list[Callable[[Model], None]] = []
    for _ in range(draw.randrange(3, 10)):
        i, j = draw.sample(range(len(buffers)), 2)
        what = draw.choice(("kernel", "kernel", "copy", "copy", "fill"))
        if what == "kernel":
            queue.dispatch(program, [buffers[i]], block=(WORDS, 1, 1))
            done.append(lambda model, i=i: model.increment(i))
        elif what == "copy":
            count = draw.randrange(1, WORDS)
            to_at, of_at = draw.randrange(WORDS - count + 1), draw.randrange(WORDS - count + 1)
            queue.copy(buffers[j], buffers[i], 4 * count, dst_offset=4 * to_at, src_offset=4 * of_at)
            done.append(lambda model, a=(j, to_at, i, of_at, count): model.copy(*a))
        else:
            count, value = draw.randrange(1, WORDS), draw.randrange(1 << 30)
            at = draw.randrange(WORDS - count + 1)
            queue.fill(buffers[i], value, 4 * count, 4 * at, value_bytes=4)
            done.append(lambda model, a=(i, at, count, value): model.fill(*a))
    return done


@pytest.mark.parametrize(
    "seed", [*range(3), *[pytest.param(n, marks=pytest.mark.thorough) for n in range(3, 60)]]
)
def test_split_or_not_a_graph_does_what_its_commands_do_one_after_the_other(
    vendor: Vendor, open_gpu: Open, seed: int
):
    """The GPU delays and reorders what nothing orders, its caches keep what they can, the rules see every replay."""
    options = f":seed={seed}" + (":caches" if seed % 2 else "")
    gpu = opened(vendor, open_gpu, seed, options=options, validate=True)
    draw = random.Random(seed)
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    for _ in range(4):
        buffers = [gpu.alloc(BYTES, f"b{number}") for number in range(4)]
        model = Model(len(buffers))
        for buffer, words in zip(buffers, model.words):
            buffer.write(struct.pack(f"<{WORDS}I", *words))
        graph = always_split(gpu.graph("random"))
        done = record(draw, graph, increment, buffers)
        for _ in range(3):
            graph.replay()
            for act in done:
                act(model)
        gpu.synchronize()
        for buffer, words in zip(buffers, model.words):
            assert list(struct.unpack(f"<{WORDS}I", buffer.read())) == words


def between(gpu: GpuDevice, program: Any, buffers: Sequence[Any]) -> None:
    """Work on every buffer, before a replay and after it."""
    queue = gpu.queue()
    for buffer in buffers:
        queue.dispatch(program, [buffer], block=(WORDS, 1, 1))
    queue.submit()


@pytest.mark.parametrize("number", range(2))
@pytest.mark.fires_rules
def test_a_graph_without_one_of_its_waits_is_refused_and_with_all_of_them_is_not(
    vendor: Vendor, open_gpu: Open, number: int, monkeypatch: pytest.MonkeyPatch
):
    """The rules judge packets, so every wait of a split is seen in them, and none is there that nothing needs."""
    gpu = opened(vendor, open_gpu, number, validate=True)
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    draw = random.Random(number)
    # that the host sees work done puts what it submits then behind it: here all order is to be the packets' own
    monkeypatch.setattr(Validator, "host_saw", lambda *what: None)
    removed = 0
    while removed < 8:
        buffers = [gpu.alloc(BYTES, f"b{n}") for n in range(3)]
        for buffer in buffers:
            buffer.write(bytes(BYTES))
        state = draw.getstate()
        graph = always_split(gpu.graph("whole"))
        record(draw, graph, increment, buffers)
        split = graph.split()
        if split is None:
            continue
        for _ in range(2):
            between(gpu, increment, buffers)
            graph.replay()
        between(gpu, increment, buffers)
        gpu.synchronize()
        for at, step in enumerate(split.steps):
            for wait in step.waits:
                draw.setstate(state)
                broken = gpu.graph("without a wait")
                record(draw, broken, increment, buffers)
                broken.split = lambda split=split, at=at, wait=wait: without(split, at, wait)
                between(gpu, increment, buffers)
                with pytest.raises(UsageError, match=r"\[(unordered-access|missing-barrier)\]"):
                    broken.replay()
                    between(gpu, increment, buffers)
                removed += 1
                gpu.synchronize()


def without(split: Split, at: int, wait: Wait) -> Split:
    steps = list(split.steps)
    steps[at] = steps[at]._replace(waits=tuple(one for one in steps[at].waits if one != wait))
    return split._replace(steps=tuple(steps))


def test_a_gpu_that_delays_and_reorders_shows_a_missing_wait(vendor: Vendor, open_gpu: Open):
    """What a copy reads is not there yet, for some seed, when it does not wait for the kernel."""
    found = set()
    for seed in range(12):
        gpu = open_gpu(options=f":seed={seed}", validate=False)
        increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
        a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
        a.write(bytes(BYTES))
        graph = gpu.graph("pair").dispatch(increment, [a], block=(WORDS, 1, 1)).copy(b, a)
        split = assign(graph.dependences(), [MAIN, COPIES])
        (wait,) = split.steps[2].waits
        graph.split = lambda split=split, wait=wait: without(split, 2, wait)
        graph.replay().wait()
        found.add(struct.unpack(f"<{WORDS}I", b.read())[0])
        if found == {0, 1}:
            break
    assert found >= {0}


def test_symbols_are_taken_for_any_memory_unless_somebody_promises_that_they_are_apart(
    vendor: Vendor, open_gpu: Open
):
    gpu = open_gpu()
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
    for is_apart, needs in ((False, [(), (0,)]), (True, [(), ()])):
        graph = gpu.graph().dispatch(increment, [Symbol("x")], block=(WORDS, 1, 1)).copy(b, a)
        graph.is_apart = is_apart
        assert graph.dependences().needs == needs


def test_a_kernel_that_nobody_has_described_is_ordered_with_everything(vendor: Vendor, open_gpu: Open):
    gpu = open_gpu()
    unknown = gpu.load(image(gpu), "increment")
    a, b, c = (gpu.alloc(BYTES) for _ in range(3))
    graph = gpu.graph().copy(b, a).dispatch(unknown, [c], block=(WORDS, 1, 1)).fill(a, 1)
    assert graph.dependences().needs == [(), (0,), (1,)]


def test_views_of_one_buffer_depend_on_each_other_where_they_overlap(vendor: Vendor, open_gpu: Open):
    gpu = open_gpu()
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a = gpu.alloc(4 * BYTES)
    first, middle, last = (a.view(at, BYTES) for at in (0, BYTES // 2, BYTES))
    graph = gpu.graph()
    for view in (first, last, middle):
        graph.dispatch(increment, [view], block=(WORDS, 1, 1))
    assert graph.dependences().needs == [(), (), (0, 1)]


def test_large_copies_that_nothing_waits_for_leave_the_main_queue_and_small_ones_do_not(
    vendor: Vendor, open_gpu: Open
):
    """Nobody asks for a split: the model of costs decides."""
    gpu = open_gpu()
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b, c, d = gpu.alloc(BYTES), gpu.alloc(BYTES), gpu.alloc(8 << 20), gpu.alloc(8 << 20)
    beside = gpu.graph("beside")
    for _ in range(4):
        beside.dispatch(increment, [a], block=(WORDS, 1, 1))
        beside.copy(d, c)
    split = beside.split()
    assert split is not None
    assert [step.lane for step in split.steps[1:-1]] == [MAIN, COPIES] * 4
    assert split.waits == 2  # for the beginning, and for the end
    chain = gpu.graph("chain").dispatch(increment, [a], block=(WORDS, 1, 1)).copy(b, a)
    assert chain.dispatch(increment, [b], block=(WORDS, 1, 1)).split() is None


@pytest.mark.parametrize("number", range(2))
def test_a_trace_shows_the_lanes_and_what_is_wrong_without_one_of_the_waits(
    vendor: Vendor, open_gpu: Open, number: int, tmp_path: Path
):
    gpu = opened(vendor, open_gpu, number, validate=False, trace=str(tmp_path / "t"))
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b = gpu.alloc(BYTES, "a"), gpu.alloc(BYTES, "b")
    a.write(bytes(BYTES))
    graph = always_split(gpu.graph("right").dispatch(increment, [a], block=(WORDS, 1, 1)).copy(b, a))
    split = graph.split()
    assert split is not None
    for _ in range(3):
        graph.replay().wait()
    gpu.synchronize()
    assert lint(Trace.read(tmp_path / "t")) == []
    broken = gpu.graph("wrong").dispatch(increment, [a], block=(WORDS, 1, 1)).copy(b, a)
    (wait,) = split.steps[2].waits
    broken.split = lambda: without(split, 2, wait)
    broken.replay().wait()
    gpu.close()
    assert {finding.rule for finding in lint(Trace.read(tmp_path / "t"))} == {"unordered-access"}


@pytest.mark.deadline(120)
def test_a_split_graph_works_again_after_the_device_has_stopped(vendor: Vendor, open_gpu: Open):
    """New queues for both lanes, and signals that start from 0."""
    gpu = open_gpu(validate=False)
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
    a.write(bytes(BYTES))
    graph = always_split(gpu.graph().dispatch(increment, [a], block=(WORDS, 1, 1)).copy(b, a))
    for _ in range(3):
        graph.replay().wait()
    go = gpu.signal("never")
    gpu.queue().wait(go, 1).submit()
    graph.replay()
    gpu.reset()
    for buffer in (a, b):
        buffer.write(bytes(BYTES))
    for _ in range(3):
        graph.replay().wait()
    assert struct.unpack(f"<{WORDS}I", b.read()) == (3,) * WORDS


def count_doorbells(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the rings whose doorbells are rung from now on."""
    rung: list[str] = []
    for kind in (Ring, GpFifo):

        def commit(self: Any, before: Any = kind.commit) -> None:
            if self.put != self.rung:
                rung.append(self.kind)
            before(self)

        monkeypatch.setattr(kind, "commit", commit)
    return rung


def test_a_replay_rings_the_doorbell_of_each_queue_that_it_uses_once(
    vendor: Vendor, open_gpu: Open, monkeypatch: pytest.MonkeyPatch
):
    gpu = open_gpu(validate=False)
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
    one = gpu.graph("one queue")
    for _ in range(5):
        one.dispatch(increment, [a], block=(WORDS, 1, 1))
    two = always_split(gpu.graph("two").dispatch(increment, [a], block=(WORDS, 1, 1)).copy(b, a))
    for graph, doorbells in ((one, 1), (two, 2)):
        graph.replay().wait()
        rung = count_doorbells(monkeypatch)
        graph.replay().wait()
        assert len(rung) == doorbells
        monkeypatch.undo()


def test_kernels_that_nothing_orders_run_side_by_side_on_one_queue_and_others_wait(
    vendor: Vendor, open_gpu: Open
):
    gpu = open_gpu()
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b, c = (gpu.alloc(BYTES) for _ in range(3))
    graph = gpu.graph()
    for buffer in (a, b, c, a, b):
        graph.dispatch(increment, [buffer], block=(WORDS, 1, 1))
    assert graph.overlaps(None) == {1: 0, 2: 1, 4: 3}
    unknown = gpu.load(image(gpu), "increment")
    graph = gpu.graph()
    for buffer in (a, b, c):
        graph.dispatch(unknown, [buffer], block=(WORDS, 1, 1))
    assert graph.overlaps(None) == {}


@pytest.mark.parametrize("number", range(2))
@pytest.mark.fires_rules
def test_a_kernel_that_does_not_wait_for_what_it_needs_is_refused(
    vendor: Vendor, open_gpu: Open, number: int
):
    gpu = opened(vendor, open_gpu, number, validate=True)
    increment = gpu.load(image(gpu), "increment", args=("buffer",), access=("both",))
    a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
    for overlaps, is_right in (({1: 0}, True), ({1: 0, 2: 1}, False)):
        graph = gpu.graph()
        for buffer in (a, b, a):
            graph.dispatch(increment, [buffer], block=(WORDS, 1, 1))
        graph.overlaps = lambda split, overlaps=overlaps: overlaps
        if is_right:
            graph.replay().wait()
        else:
            with pytest.raises(UsageError, match="missing-barrier"):
                graph.replay()


def test_a_gpu_that_reorders_shows_a_kernel_that_does_not_wait(open_gpu: Open, vendor: Vendor):
    """Seen with PM4 and on NVIDIA; the emulated AQL processor gives more order than it must."""
    found = set()
    for seed in range(30):
        gpu = open_gpu(options=f":seed={seed}", validate=False)
        scale = gpu.load(image(gpu), "scale", args=SCALE, access=("write", "read", "", "", ""))
        a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
        a.write(struct.pack(f"<{WORDS}f", *[1.0] * WORDS))
        b.write(bytes(BYTES))
        graph = gpu.graph().dispatch(scale, [b, a, WORDS, 2.0, 0.0], block=(WORDS, 1, 1))
        graph.dispatch(scale, [a, b, WORDS, 1.0, 5.0], block=(WORDS, 1, 1))
        graph.overlaps = lambda split: {1: 0}
        graph.replay().wait()
        found.add(struct.unpack("<f", a.read(0, 4))[0])
        if len(found) == 2:
            break
    assert found == {7.0, 5.0}
