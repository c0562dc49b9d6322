"""Rules: each has a page whose example fires it and nothing else; each seeded bug fires the rule named beside it."""

from __future__ import annotations

import dataclasses
import itertools
import platform
import random
import re
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from hcq import config
from hcq.cpu import packets
from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.observe import observer
from hcq.observe.sanitizer import Sanitizer
from hcq.observe.validator import Validator
from hcq.rules.effects import Effect
from hcq.rules.examine import all_rules
from hcq.rules.example import (
    Access,
    Argument,
    Barrier,
    Copy,
    Do,
    Fill,
    Flush,
    Gpu,
    Invalidate,
    Launch,
    Run,
    Signal,
    Wait,
    read,
    write,
)
from hcq.rules.rule import RULES, rule
from tests.turns import seeds

PAGES = Path(__file__).parent.parent.parent / "docs" / "rules"
SECTIONS = ["What it means", "How it happens", "How to fix it", "An example that fires it"]

pytestmark = pytest.mark.fires_rules


@pytest.fixture
def kernel(cpu: CpuDevice, llvm_object: bytes) -> int:
    """The entry of a loaded program whose arguments nobody declared."""
    program = cpu.load(llvm_object, "static_data")
    cpu._kept_for_tests = program  # type: ignore[attr-defined]
    return program.entry


def fired(device: CpuDevice | Gpu, submit: Any) -> list[str]:
    """The rules that a submission fires."""
    findings = observer(device, Validator).findings if isinstance(device, CpuDevice) else device.findings
    findings.clear()
    try:
        submit()
    except UsageError:
        pass
    findings = observer(device, Validator).findings if isinstance(device, CpuDevice) else device.findings
    return sorted({finding.rule for finding in findings})


# ---------------------------------------------------------------- pages


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert sorted(all_rules()) == sorted(page.stem for page in PAGES.glob("*.md") if page.stem != "README")


def test_the_index_lists_every_rule_with_its_title() -> None:
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    listed = dict(
        re.findall(r"^\| \[([\w-]+)\]\([\w-]+\.md\) \| (.*?)(?: \(warning\))? \|$", index, re.MULTILINE)
    )
    assert listed == {id: found.title for id, found in all_rules().items()}


@pytest.mark.parametrize("id", sorted(all_rules()))
def test_a_page_says_what_the_rule_means_and_how_to_fix_it(id: str) -> None:
    text = (PAGES / f"{id}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {id}\n\n{all_rules()[id].title}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert ("Level: warning" in text) == (all_rules()[id].level == "warning")


@pytest.mark.parametrize("id", sorted(all_rules()))
def test_the_example_of_a_page_fires_its_rule_and_no_other(id: str, cpu: CpuDevice, kernel: int) -> None:
    text = (PAGES / f"{id}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    if "length=24" in code and not HAS_SIX_REGISTERS:
        pytest.skip("its words are laid out for the argument registers of x86-64")
    names: dict[str, Any] = {"entry": kernel}
    observer(cpu, Validator).findings = []
    if all_rules()[id].level == "warning":
        before = len(Validator.warnings), len(Sanitizer.findings)
        exec(code, names)
        found = [*Validator.warnings[before[0] :], *Sanitizer.findings[before[1] :]]
        assert [finding.rule for finding in found] == [id]
        return
    with pytest.raises(UsageError, match=rf"^\[{id}\] .*See docs/rules/{id}.md") as caught:
        exec(code, names)
    gpu = names.get("gpu")
    findings = observer(cpu, Validator).findings if gpu is None else gpu.findings
    assert {finding.rule for finding in findings} == {id}
    assert all_rules()[id].fix in str(caught.value)


def test_a_rule_is_declared_once() -> None:
    with pytest.raises(UsageError, match="'copy-overlap' is declared twice"):
        rule("copy-overlap", "", "")
    assert RULES["copy-overlap"].title


# ---------------------------------------------------------------- words of the CPU device, mutated


def words_of(packet: Packet) -> bytes:
    return packet.to_bytes()


def mutated(blob: bytes, bit: int, width: int, value: int) -> bytes:
    """The words with one field set to another value."""
    number = int.from_bytes(blob, "little") & ~((1 << width) - 1 << bit) | value << bit
    return number.to_bytes(len(blob), "little")


HAS_SIX_REGISTERS = platform.machine() == "x86_64"

CPU_MUTATIONS = [
    ("dispatch", "opcode", 0x77, "packet-unknown"),
    ("dispatch", "length", 23, "packet-length"),
    ("dispatch", "length", 10, "packet-length"),
    ("dispatch", "length", 26, "packet-length"),
    ("dispatch", "entry", 0x1230, "program-unknown"),
    ("dispatch", "groups", 2, "cpu-launch-groups"),
    ("dispatch", "groups", 0, "cpu-launch-groups"),
    ("dispatch", "grid_x", 5, "cpu-launch-groups"),
    ("dispatch", "grid_x", 0, "grid-limit"),
    ("dispatch", "stack_slots", 3, "cpu-launch-header"),
    ("dispatch", "group_slot", 1, "argument-count"),
    ("dispatch", "group_slot", 4, "argument-count"),
    ("dispatch", "has_floats", 1, "cpu-launch-header"),
    ("dispatch", "scratch_bytes", 1 << 40, "scratch-limit"),
    ("dispatch", "argument 0", 0x1230, "address-unmapped"),
    ("copy", "dst", 0x1230, "address-unmapped"),
    ("copy", "src", 2**47, "address-unmapped"),
    ("copy", "size_bytes", 65, "range-beyond-buffer"),
    ("copy", "length", 12, "packet-length"),
    ("fill", "dst", 8, "address-unmapped"),
    ("fill", "size_bytes", 1 << 40, "range-beyond-buffer"),
    ("fill", "opcode", 0xFE, "packet-unknown"),
    ("wait", "signal", 0x100, "address-unmapped"),
    ("signal", "signal", 0x100, "address-unmapped"),
    ("timestamp", "address", 0x100, "address-unmapped"),
    ("indirect", "address", 0x100, "block-out-of-bounds"),
    ("indirect", "size_words", 1 << 30, "block-out-of-bounds"),
    ("indirect", "size_words", 0, "block-out-of-bounds"),
    ("barrier", "length", 3, "packet-length"),
]


@pytest.mark.parametrize(
    ("kind", "field", "value", "expected"), CPU_MUTATIONS, ids=lambda item: str(item).replace(" ", "_")
)
def test_a_mutated_word_fires_the_named_rule(
    cpu: CpuDevice, llvm_object: bytes, kind: str, field: str, value: int, expected: str
) -> None:
    if (field, value) == ("length", 26) and not HAS_SIX_REGISTERS:
        pytest.skip("counts the argument registers of x86-64")
    program = cpu.load(llvm_object, "functions", args=("buffer", "int"))
    a, b, gate = cpu.alloc(64, "a"), cpu.alloc(64, "b"), cpu.signal("gate")
    a.write(bytes(64))
    b.write(bytes(64))
    made: dict[str, tuple[type[Packet], bytes]] = {
        "dispatch": (packets.Dispatch, cpu.queue().dispatch(program, [a, 3]).words),
        "copy": (packets.Copy, cpu.queue().copy(a, b).words),
        "fill": (packets.Fill, cpu.queue().fill(a).words),
        "wait": (packets.Wait, cpu.queue().wait(gate, 0).words),
        "signal": (packets.Signal, cpu.queue().signal(gate, 1).words),
        "timestamp": (packets.Timestamp, cpu.queue().timestamp(a).words),
        "barrier": (packets.Barrier, cpu.queue().barrier().words),
        "indirect": (packets.Indirect, words_of(packets.Indirect(address=a.address, size_words=2))),
    }
    layout, blob = made[kind]
    if field == "argument 0":
        blob = mutated(blob, 32 * layout.length_words, 64, value)
    else:
        blob = mutated(blob, layout.fields[field].low, layout.fields[field].width, value)
    submitted = cpu.timeline.submitted
    assert fired(cpu, lambda: cpu.submit([blob], [])) == [expected]
    assert cpu.timeline.submitted == submitted, "nothing of a refused submission reaches the device"
    cpu.queue().fill(a, 1).submit().wait()
    assert a.read() == b"\1" * 64


@pytest.mark.parametrize("kind", [packets.Copy, packets.Fill, packets.Wait, packets.Signal, packets.Barrier])
def test_every_bit_that_no_field_claims_is_found(cpu: CpuDevice, kind: type[Packet]) -> None:
    claimed = {bit for field in kind.fields.values() for bit in range(field.low, field.high + 1)}
    a = cpu.alloc(64)
    a.write(bytes(64))
    signal = cpu.signal()
    fields = {name: a.address for name in ("dst", "src") if name in kind.fields}
    if "signal" in kind.fields:
        fields["signal"] = signal.va
    blob = words_of(kind(**fields))
    free = [bit for bit in range(32 * kind.length_words) if bit not in claimed]
    assert free
    for bit in free:
        assert fired(cpu, lambda: cpu.submit([mutated(blob, bit, 1, 1)], [])) == ["bits-unclaimed"]  # noqa: B023


def test_hostile_sequences_on_the_cpu_fire_the_named_rule(cpu: CpuDevice, llvm_object: bytes) -> None:
    program = cpu.load(llvm_object, "functions", args=("buffer", "int"))
    out = cpu.alloc(64, "out")
    words = cpu.queue().dispatch(program, [out, 3]).words
    kept = out.address
    del out
    assert fired(cpu, lambda: cpu.submit([words], [])) == ["address-freed"]
    out = cpu.alloc(64, "out")
    assert out.address == kept
    entry = program.entry
    del program
    assert fired(cpu, lambda: cpu.submit([words], [])) == ["program-unloaded"]
    assert observer(cpu, Validator).state.unloaded[entry].name == "functions"


def test_a_finding_names_submission_line_kernel_and_buffer(cpu: CpuDevice, llvm_object: bytes) -> None:
    program = cpu.load(llvm_object, "functions", args=("buffer", "int"), name="quadruple")
    out = cpu.alloc(64, "results")
    blob = mutated(cpu.queue().dispatch(program, [out, 3]).words, packets.Dispatch.groups.low, 64, 7)
    next_value = cpu.timeline.submitted + 1
    with pytest.raises(UsageError) as caught:
        cpu.submit([blob], [])
    text = str(caught.value)
    assert text.startswith(f"[cpu-launch-groups] submission #{next_value} of CPU, from ")
    assert "test_rules.py:" in text
    assert "in test_a_finding_names_submission_line_kernel_and_buffer, kernel quadruple: " in text
    assert "Word 0: Dispatch(opcode=DISPATCH" in text
    blob = words_of(packets.Fill(dst=out.address + 60, size_bytes=8))
    with pytest.raises(UsageError, match=r"ends 4 bytes behind results \(64 bytes at 0x"):
        cpu.submit([cpu.queue().barrier().words, blob], [])
    (finding,) = observer(cpu, Validator).findings
    assert (finding.buffer, finding.word, finding.submission) == ("results", 2, next_value)


def test_the_words_of_a_graph_are_checked_as_patched(cpu: CpuDevice, llvm_object: bytes) -> None:
    from hcq.graph import Symbol

    program = cpu.load(llvm_object, "step", args=("buffer", "int"))
    graph = cpu.graph("steps").barrier().dispatch(program, [Symbol("out"), 1])
    out = cpu.alloc(8, "out")
    out.write(bytes(8))
    graph.replay({"out": out}).wait()
    other = graph._copies[1]  # was never patched
    assert fired(cpu, lambda: cpu.submit([*other.words], [other.meaning])) == ["patch-unbound"]
    (finding,) = observer(cpu, Validator).findings
    assert finding.packet.endswith(" of steps")
    assert (finding.word, finding.kernel) == (2, "step")
    graph.replay({"out": out}).wait()
    assert struct.unpack("<q", out.read()) == (4,)


def test_a_graph_block_changed_in_flight_is_found(cpu: CpuDevice) -> None:
    a, gate = cpu.alloc(64), cpu.signal("gate")
    block = cpu.alloc(64, "block")
    block.write(words_of(packets.Fill(dst=a.address, size_bytes=64)) + bytes(32))
    run = words_of(packets.Indirect(address=block.address, size_words=8))
    cpu.submit([cpu.queue().wait(gate, 1).words, run], [])
    block.host[:32] = words_of(packets.Fill(dst=a.address, size_bytes=32))
    assert fired(cpu, lambda: cpu.submit([run], [])) == ["block-modified"]
    gate.set(1)
    cpu.synchronize()
    cpu.submit([run], []).wait()


def test_a_driver_that_miscounts_its_room_is_stopped(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    a, gate = cpu.alloc(64), cpu.signal("gate")
    cpu.queue().wait(gate, 1).submit()
    nop = words_of(packets.Nop(length=0xFFFE, ignored=[0] * (0xFFFE - 2)))
    monkeypatch.setattr(cpu, "_wait_for_room", lambda size: None)
    put = cpu._put
    with pytest.raises(UsageError, match=r"^\[ring-overrun\] .* words are to be written to the ring at "):
        for _ in range(6):
            cpu.submit([nop], [])
    monkeypatch.undo()
    assert cpu._put > put
    gate.set(1)
    cpu.queue().fill(a, 3).submit().wait()
    assert a.read() == b"\3" * 64


def test_two_cpu_devices_without_a_wait_between_are_unordered(
    cpu: CpuDevice, four_threads: CpuDevice
) -> None:
    other = four_threads
    a, b = cpu.alloc(64, "a"), other.alloc(64, "b")
    gate = cpu.signal("gate")
    copy = words_of(packets.Copy(dst=b.address, src=a.address, size_bytes=64))
    cpu.queue().fill(a, 1).submit()
    assert fired(other, lambda: other.submit([copy], [])) == ["unordered-access"]
    done = cpu.queue().fill(a, 2).signal(gate, 1).submit()
    other.queue().wait(gate, 1).submit()
    other.submit([copy], []).wait()
    assert b.read() == b"\2" * 64
    done = cpu.queue().fill(a, 3).submit()
    other.queue().wait(cpu.timeline, done.value).submit()
    other.submit([copy], []).wait()
    cpu.queue().fill(a, 4).submit().wait()
    other.submit([copy], []).wait()
    assert b.read() == b"\4" * 64
    done = cpu.queue().fill(a, 5).submit()
    while not done.is_done:
        pass
    other.submit([copy], []).wait()
    assert b.read() == b"\5" * 64


def test_a_deadline_names_the_wait_that_nothing_will_end(four_threads: CpuDevice) -> None:
    from hcq.errors import WaitTimeout

    gate = four_threads.signal("gate")
    done = four_threads.queue().wait(gate, 3).submit()
    with pytest.raises(
        WaitTimeout, match=r"\[wait-never-signalled\] .* set signal gate@0x\w+ to 3; its last value is 0"
    ):
        done.wait(timeout_ms=20)
    gate.set(3)
    done.wait()


def test_a_deadline_names_a_circle_of_waits(cpu: CpuDevice, four_threads: CpuDevice) -> None:
    from hcq.errors import WaitTimeout

    ping, pong = cpu.signal("ping"), four_threads.signal("pong")
    first = cpu.queue().wait(pong, 1).signal(ping, 1).submit()
    second = four_threads.queue().wait(ping, 1).signal(pong, 1).submit()
    text = r"\[wait-cycle\] submission #\d+ of CPU, from .*test_a_deadline.*: signal pong@0x\w+ is only set to 1 by "
    with pytest.raises(WaitTimeout, match=text):
        second.wait(timeout_ms=20)
    pong.set(1)
    first.wait()
    second.wait()
    gate = cpu.signal("gate")
    done = cpu.queue().wait(gate, 1).submit()
    with pytest.raises(WaitTimeout) as caught:
        done.wait(timeout_ms=20)
    assert "wait-cycle" not in str(caught.value)
    gate.set(1)
    done.wait()


# ---------------------------------------------------------------- the made-up device: what fires


def unsynchronised() -> dict[str, tuple[Gpu, list[tuple[str, list[Effect]]], str]]:
    """name -> device, submissions as (queue, effects) of which only the last is wrong, and the rule that fires."""
    found: dict[str, tuple[Gpu, list[tuple[str, list[Effect]]], str]] = {}

    def case(name: str, expected: str, *submissions: tuple[str, list[Effect]], gpu: Gpu) -> None:
        found[name] = gpu, [*submissions], expected

    def launch(gpu: Gpu, *arguments: Argument, **more: Any) -> Launch:
        return Launch(gpu.program(), (8, 1, 1), arguments=arguments, domain="L2", **more)

    g = Gpu()
    a = g.buffer("a")
    case("write after write", "missing-barrier", ("copy", [Fill(a, 64), Fill(a + 32, 64)]), gpu=g)
    g = Gpu()
    a, b = g.buffer("a"), g.buffer("b")
    case("write after read", "missing-barrier", ("copy", [Copy(b, a, 64), Fill(a, 64)]), gpu=g)
    g = Gpu()
    a = g.buffer("a")
    case(
        "barrier in the wrong place",
        "missing-barrier",
        ("copy", [Barrier(), Fill(a, 64), Fill(a, 64)]),
        gpu=g,
    )
    g = Gpu()
    a, s = g.buffer("a"), g.signal()
    case(
        "signal before the write",
        "unordered-access",
        ("compute", [Signal(s, 1), Fill(a, 64)]),
        ("copy", [Wait(s, 1), Fill(a, 64)]),
        gpu=g,
    )
    g = Gpu()
    a, s = g.buffer("a"), g.signal()
    case(
        "wait for less",
        "unordered-access",
        ("compute", [Signal(s, 1), Fill(a, 64), Barrier(), Signal(s, 2)]),
        ("copy", [Wait(s, 1), Fill(a, 64)]),
        gpu=g,
    )
    g = Gpu()
    a, s = g.buffer("a"), g.signal()
    case(
        "flush before the write",
        "missing-flush",
        ("compute", [Flush("L2"), launch(g, write(0, a)), Barrier(), Signal(s, 1)]),
        ("copy", [Wait(s, 1), Copy(g.buffer("b"), a, 64)]),
        gpu=g,
    )
    g = Gpu()
    a, s = g.buffer("a"), g.signal()
    case(
        "invalidate before the wait",
        "missing-invalidate",
        ("copy", [Fill(a, 64), Signal(s, 1)]),
        ("compute", [Invalidate("L2"), Wait(s, 1), launch(g, read(0, a, 64))]),
        gpu=g,
    )
    g = Gpu()
    case("block of no threads", "block-limit", ("compute", [launch(g, block=(0, 1, 1))]), gpu=g)
    g = Gpu()
    case("block too wide", "block-limit", ("compute", [launch(g, block=(1, 1, 65))]), gpu=g)
    g = Gpu()
    case("too many threads", "block-limit", ("compute", [launch(g, block=(64, 32, 1))]), gpu=g)
    g = Gpu()
    entry = g.program(block=(64, 1, 1))
    case("another block", "block-limit", ("compute", [Launch(entry, (1, 1, 1), (32, 1, 1))]), gpu=g)
    g = Gpu()
    case("too much shared", "shared-limit", ("compute", [launch(g, shared_bytes=65537)]), gpu=g)
    g = Gpu()
    case("too many registers", "register-limit", ("compute", [launch(g, registers=256)]), gpu=g)
    g = Gpu()
    entry = g.program(scratch_bytes=512)
    case(
        "too little scratch",
        "scratch-limit",
        ("compute", [Launch(entry, (1, 1, 1), scratch_bytes=256)]),
        gpu=g,
    )
    g = Gpu()
    a = g.buffer("a", access="write")
    case("read of a write-only buffer", "address-direction", ("copy", [Copy(g.buffer("b"), a, 8)]), gpu=g)
    g = Gpu()
    a = g.buffer("a", 100)
    case("argument too large", "range-beyond-buffer", ("compute", [launch(g, read(0, a, 101))]), gpu=g)
    g = Gpu()
    a = g.buffer("a")
    case("odd copy", "address-unaligned", ("copy", [Copy(g.buffer("b"), a + 2, 8, alignment=4)]), gpu=g)
    g = Gpu()
    a, s = g.buffer("a"), g.signal()
    case("own wait first", "wait-cycle", ("copy", [Wait(s, 1), Signal(s, 1)]), gpu=g)
    g = Gpu()
    a, s = g.buffer("a"), g.signal()
    case("back inside one submission", "signal-backwards", ("copy", [Signal(s, 2), Signal(s, 1)]), gpu=g)
    g = Gpu()
    case(
        "a block inside a block",
        "block-nested",
        ("compute", [g.block(g.block(Fill(g.buffer("a"), 8)))]),
        gpu=g,
    )
    g = Gpu()
    case(
        "a launch in a copy queue's block",
        "queue-ability",
        ("compute", [g.block(Copy(1 << 28, 1 << 28, 0))]),
        gpu=g,
    )
    return found


@pytest.mark.parametrize("name", unsynchronised())
def test_a_hostile_sequence_fires_the_named_rule(name: str) -> None:
    gpu, submissions, expected = unsynchronised()[name]
    for queue, effects in submissions[:-1]:
        gpu.submit(*effects, queue=queue)
        assert gpu.findings == []
    queue, effects = submissions[-1]
    assert fired(gpu, lambda: gpu.submit(*effects, queue=queue)) == [expected]


def test_words_that_are_no_packet_of_the_device_are_found() -> None:
    gpu = Gpu()
    with pytest.raises(UsageError, match=r"\[packet-unknown\]"):
        gpu.submit_words(Do(number=9).to_bytes())


def test_a_refused_submission_leaves_nothing_behind() -> None:
    gpu = Gpu()
    a, b, s = gpu.buffer("a"), gpu.buffer("b"), gpu.signal()
    with pytest.raises(UsageError, match=r"\[address-unmapped\]"):
        gpu.submit(Fill(a, 64), Signal(s, 5), Wait(s, 9), Fill(64, 64), queue="copy")
    gpu.submit(Fill(a, 64), Barrier(), Signal(s, 1))
    gpu.submit(Wait(s, 1), Copy(b, a, 64), queue="copy")
    assert gpu.findings == []
    assert gpu.device.submitted == 2


# ---------------------------------------------------------------- what must not fire


def test_what_is_written_behind_a_wait_that_nobody_had_ended_holds_something_once_it_has() -> None:
    gpu = Gpu()
    other = Gpu("GPU:1", beside=gpu)
    a, b, gate, done = gpu.buffer("a", is_written=False), other.buffer("b"), gpu.signal(), gpu.signal()
    gpu.submit(Wait(gate, 1), Fill(a, 64), Barrier(), Flush("L2"), Signal(done, 1))
    gpu.set(gate, 1)
    other.submit(Wait(done, 1), Invalidate("L2"), Copy(b, a, 64), queue="copy")
    assert other.findings == []


def test_a_signal_is_gone_once_its_memory_is_part_of_another_buffer() -> None:
    gpu = Gpu()
    held = gpu.buffer("signals", 4096)
    signal = held + 64
    gpu.submit(Signal(signal, 1))
    with pytest.raises(UsageError, match=r"\[signal-overwritten\]"):
        gpu.submit(Fill(held, 4096))
    gpu.free(held)
    gpu.state.alloc(held - 4096, 8192, "larger", "GPU")
    gpu.submit(Fill(held - 4096, 8192))
    assert gpu.findings == []


def test_what_a_closed_device_waited_for_keeps_nothing_open() -> None:
    gpu = Gpu()
    a, gate = gpu.buffer("a"), gpu.signal()
    gpu.submit(Wait(gate, 1), Fill(a, 64))
    assert gpu.state.waiting and gpu.state.deferred
    gpu.state.close(gpu.device)
    assert not gpu.state.waiting and not gpu.state.deferred


def test_correct_order_by_every_means_fires_nothing() -> None:
    gpu = Gpu()
    kernel = gpu.program()
    a, b, s = gpu.buffer("a"), gpu.buffer("b"), gpu.signal()

    def produce(value: int) -> int:
        launch = Launch(kernel, (8, 1, 1), arguments=(write(0, a),), domain="L2")
        return gpu.submit(Invalidate("L2"), launch, Barrier(), Flush("L2"), Signal(s, value))

    for value in range(1, 6):
        done = produce(value)
        assert gpu.findings == []
        gpu.submit(Wait(s, value), Copy(b, a, 64), queue="copy")
        assert gpu.findings == []
        gpu.wait(gpu.device.submitted if value % 2 else done + 1)
    gpu.end()


def test_a_wait_may_be_submitted_before_its_signal() -> None:
    gpu = Gpu()
    a, b, s = gpu.buffer("a"), gpu.buffer("b"), gpu.signal()
    gpu.submit(Wait(s, 1), Copy(b, a, 64), queue="copy")
    gpu.submit(Fill(a, 64), Barrier(), Signal(s, 1))
    gpu.submit(Fill(b + 64, 64), queue="copy")
    gpu.end()
    assert gpu.findings == []


def test_a_host_that_sets_a_signal_back_starts_it_anew() -> None:
    gpu = Gpu()
    s = gpu.signal()
    for _ in range(3):
        gpu.wait(gpu.submit(Signal(s, 2)))
        assert gpu.findings == []
        gpu.set(s, 0)


def test_a_block_may_change_once_its_last_submission_is_done() -> None:
    gpu = Gpu()
    a = gpu.buffer("a")
    run = gpu.block(Fill(a, 64))
    gpu.wait(gpu.submit(run))
    gpu.block(Fill(a, 32), at=run.address)
    gpu.submit(Barrier(), Run(run.address, 1))
    assert gpu.findings == []


def test_memory_that_was_unmapped_and_mapped_again_has_no_signals_of_old_in_it() -> None:
    gpu = Gpu()
    slab = gpu.buffer("signals", 4096)
    gpu.submit(Signal(slab + 64, 1))
    gpu.state.unmap(slab, 4096)
    gpu.state.alloc(slab, 4096, "data", gpu.device.name)
    gpu.submit(Fill(slab, 4096))
    assert gpu.findings == []


def test_a_kernel_of_unknown_habits_is_not_judged() -> None:
    gpu = Gpu()
    kernel, a = gpu.program(), gpu.buffer("a")
    use = Launch(kernel, (8, 1, 1), arguments=(Argument(0, "buffer", a),), domain="L2")
    gpu.submit(use, use)
    gpu.submit(Fill(a, 64), queue="copy")
    assert gpu.findings == []


def test_disjoint_parts_of_a_buffer_need_no_order() -> None:
    gpu = Gpu()
    a = gpu.buffer("a")
    gpu.submit(Fill(a, 64), Fill(a + 64, 64), Access(a + 128, 8, True, "timestamp"))
    gpu.submit(Fill(a + 136, 8), queue="copy")
    assert gpu.findings == []


def test_many_devices_and_signals_are_forgotten_in_time() -> None:
    gpu = Gpu()
    s = gpu.signal()
    for value in range(1, 5001):
        gpu.submit(Signal(s, value))
    assert len(gpu.state.cells[s].promises) <= 2048
    assert len(gpu.state.cells[gpu.device.timeline].promises) <= 2048


# ---------------------------------------------------------------- a second opinion on order


class Oracle:
    """Happens-before as reachability in a graph of events, worked out anew for every pair."""

    def __init__(self) -> None:
        self.after: dict[int, set[int]] = {}  # event -> events directly before it
        self.last: dict[str, int] = {}
        self.count = 0

    def event(self, agent: str, *before: int) -> int:
        self.count += 1
        self.after[self.count] = {*before, *((self.last[agent],) if agent in self.last else ())}
        self.last[agent] = self.count
        return self.count

    def is_before(self, first: int, second: int) -> bool:
        pending, seen = [second], set()
        while pending:
            now = pending.pop()
            if now == first:
                return True
            if now not in seen:
                seen.add(now)
                pending += self.after[now]
        return False


@pytest.mark.parametrize("seed", seeds(20, of=60))
def test_order_by_clocks_is_order_by_reachability(seed: int) -> None:
    rng = random.Random(seed)
    first = Gpu("A")
    gpus = {"A": first, "B": Gpu("B", beside=first)}
    for gpu in gpus.values():
        gpu.model.finishes_packets = True
        gpu.model.write_back = gpu.model.stale = frozenset()
    buffers = [first.buffer(f"b{i}") for i in range(2)]
    signals = [first.signal() for _ in range(3)]
    promised: dict[int, list[int]] = {signal: [] for signal in signals}  # events that set 1, 2, 3, ...
    ends: dict[str, list[int]] = {"A": [], "B": []}
    oracle = Oracle()
    written: list[tuple[int, str, int]] = []  # event, agent, buffer
    for _ in range(40):
        name, queue = rng.choice("AB"), rng.choice(("compute", "copy"))
        agent = f"{name} {queue}"
        gpu = gpus[name]
        if rng.random() < 0.2 and ends[name]:
            value = rng.randrange(len(ends[name])) + 1
            gpu.wait(value)
            oracle.event("host", ends[name][value - 1])
            continue
        effects: list[Effect] = []
        last_before = dict(oracle.last)
        oracle.event(agent, *([oracle.last["host"]] if "host" in oracle.last else []))
        for _ in range(rng.randrange(1, 3)):
            signal = rng.choice(signals)
            if rng.random() < 0.5 and promised[signal]:
                value = rng.randrange(len(promised[signal])) + 1
                effects.append(Wait(signal, value))
                oracle.event(agent, promised[signal][value - 1])
        buffer = rng.choice(buffers)
        effects.append(Fill(buffer, 64))
        now = oracle.event(agent)
        racing = any(
            other != agent and at == buffer and not oracle.is_before(event, now)
            for event, other, at in written
        )
        signal = rng.choice(signals)
        last = promised[signal][-1] if promised[signal] else None
        signals_too = rng.random() < 0.6 and (last is None or oracle.is_before(last, now))
        if signals_too:
            effects.append(Signal(signal, len(promised[signal]) + 1))
        assert (fired(gpu, lambda: gpu.submit(*effects, queue=queue)) == ["unordered-access"]) == racing  # noqa: B023
        if racing:
            oracle.last = last_before  # it was refused: nobody comes after it
            continue
        written.append((now, agent, buffer))
        end = oracle.event(agent)
        if signals_too:
            promised[signal].append(end)
        ends[name].append(end)
    assert len(written) > 5


@pytest.mark.parametrize("orders", [*itertools.permutations(range(3))])
def test_a_circle_of_three_queues_is_found_in_any_order_of_submission(orders: tuple[int, ...]) -> None:
    first = Gpu("A")
    gpus = [first, Gpu("B", beside=first), first]
    queues = ["compute", "compute", "copy"]
    cells = [first.signal() for _ in range(3)]
    for i in orders:
        gpus[i].submit(Wait(cells[i], 1), Signal(cells[(i + 1) % 3], 1), queue=queues[i])
    first.submit(Wait(cells[0], 1), queue="copy")
    with pytest.raises(UsageError, match=r"\[wait-cycle\].*waits in turn: "):
        first.end()
    assert {finding.rule for finding in first.findings} == {"wait-cycle"}
    assert len(first.findings) == 3
    first.set(cells[0], 1)
    first.end()


@pytest.mark.parametrize("offset", [1, 4, 12])
def test_a_timestamp_at_an_odd_place_is_found(cpu: CpuDevice, offset: int) -> None:
    times = cpu.alloc(64, "times")
    queue = cpu.queue().timestamp(times, offset)
    assert fired(cpu, queue.submit) == ["address-unaligned"]
    cpu.queue().timestamp(times, 8).submit().wait()


def test_threads_may_allocate_free_and_submit_while_rules_look(
    cpu: CpuDevice, four_threads: CpuDevice
) -> None:
    errors: list[BaseException] = []

    def work(device: CpuDevice, seed: int) -> None:
        rng = random.Random(seed)
        kept = []
        try:
            for turn in range(150):
                buffer = device.alloc(rng.choice((64, 256, 70_000)), f"b{turn}")
                buffer.write(bytes(8))
                kept.append(buffer)
                source = rng.choice(kept)
                done = (
                    device.queue()
                    .copy(buffer.view(0, 32), source.view(8, 32))
                    .fill(source, turn % 256)
                    .submit()
                )
                if rng.random() < 0.3:
                    done.wait()
                    kept.clear()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=((cpu, four_threads)[i % 2], i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_validation_off_costs_nothing_but_a_branch(cpu: CpuDevice) -> None:
    device = CpuDevice("CPU:off", config=dataclasses.replace(config.current(), validate=False))
    assert not any(isinstance(each, Validator) for each in device.observers)
    assert device.observers == (), "every hot path asks one question"
    a = device.alloc(64)
    device.queue().fill(a, 9).submit().wait()
    b = cpu.alloc(64)
    words = words_of(packets.Copy(dst=b.address, src=a.address, size_bytes=64))
    cpu.submit([words], []).wait()  # memory of a device that does not validate counts as mapped
    device.close()


def test_a_launch_whose_loader_says_what_it_reads_is_judged(cpu: CpuDevice, llvm_object: bytes) -> None:
    program = cpu.load(
        llvm_object, "add_one", args=("buffer", "buffer", "int"), access=("write", "read", ""), name="add_one"
    )
    out, a = cpu.alloc(64, "out"), cpu.alloc(64, "uninitialised")
    before = len(Validator.warnings)
    cpu.run(program, [out, a, 4])
    (finding,) = Validator.warnings[before:]
    assert (finding.rule, finding.kernel, finding.buffer) == ("read-unwritten", "add_one", "uninitialised")
    cpu.run(program, [a, out, 4])
    cpu.run(program, [out, a, 4])
    assert len(Validator.warnings) == before + 1
    other = CpuDevice("CPU:5", config=config.current())
    b = other.alloc(64)
    copy = words_of(packets.Copy(dst=b.address, src=out.address, size_bytes=64))
    cpu.queue().dispatch(program, [out, a, 4]).submit()
    assert fired(other, lambda: other.submit([copy], [])) == ["unordered-access"]
    cpu.synchronize()
    other.submit([copy], []).wait()
    other.close()
    with pytest.raises(UsageError, match=r'access=.*takes "read", .* for each of the 3 arguments'):
        cpu.load(llvm_object, "add_one", args=("buffer", "buffer", "int"), access=("write",))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_words_are_findings_and_never_another_exception(
    cpu: CpuDevice, llvm_object: bytes, seed: int
) -> None:
    rng = random.Random(seed)
    program = cpu.load(llvm_object, "mixed", args=("buffer", "float", "int", "float", *["int"] * 5, "float"))
    a, b, gate = cpu.alloc(64), cpu.alloc(64), cpu.signal("gate")
    a.write(bytes(64))
    queue = cpu.queue().dispatch(program, [a, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25]).copy(b, a).fill(b, 1)
    whole = queue.wait(gate, 0).signal(gate, 1).timestamp(b).barrier().words
    validator = observer(cpu, Validator)
    refused = 0
    for turn in range(250):
        words = bytearray(whole if turn % 2 else rng.randbytes(len(whole)))
        for _ in range(rng.randrange(4)):
            words[rng.randrange(len(words))] ^= 1 << rng.randrange(8)
        del words[4 * rng.randrange(1, len(words) // 4) :]
        try:
            validator.submitting(cpu.timeline.submitted + 1, [bytes(words)], [], [], None)
        except UsageError as refusal:
            refused += 1
            assert re.match(r"\[[\w-]+\] submission #\d+ of CPU, from ", str(refusal))
        validator.dropped(cpu.timeline.submitted + 1, "a test")
    assert refused > 150
    queue.submit().wait()
