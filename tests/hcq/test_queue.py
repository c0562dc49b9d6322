"""Queues: order, copies, fills, waits, signals, and what the checks before the doorbell say."""

from __future__ import annotations

import dataclasses
import os
import random
import struct
import subprocess
import sys
import threading
import time

import pytest

import hcq
from hcq import command, config
from hcq.cpu import packets
from hcq.cpu.device import RING_WORDS, CpuDevice
from hcq.errors import DeviceFault, UsageError, WaitTimeout


def test_work_runs_in_the_order_of_submission(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(8)
    out.write(struct.pack("<q", 0))
    step = cpu.load(llvm_object, "step", args=("buffer", "int"))
    expected = 0
    for k in range(300):
        cpu.queue().dispatch(step, [out, k % 5]).submit()
        expected = (expected * 3 + k % 5) % 2**64
    assert struct.unpack("<Q", out.read())[0] == expected


def test_the_ring_wraps_around_under_thousands_of_dispatches(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(8)
    out.write(bytes(8))
    step = cpu.load(llvm_object, "step", args=("buffer", "int"))
    rng = random.Random(1)
    expected = 0
    before = cpu._put
    queue = cpu.queue()
    for _ in range(30_000):
        k = rng.randrange(100)
        queue.dispatch(step, [out, k])
        expected = (expected * 3 + k) % 2**64
        if rng.random() < 0.3:
            queue.submit()
    queue.submit()
    assert struct.unpack("<Q", out.read())[0] == expected
    assert cpu._put - before > 2 * RING_WORDS


def test_a_submission_longer_than_the_ring_goes_in_pieces(cpu: CpuDevice, llvm_object: bytes) -> None:
    out = cpu.alloc(8)
    out.write(bytes(8))
    step = cpu.load(llvm_object, "step")
    queue = cpu.queue()
    for _ in range(RING_WORDS // 24 + 2000):
        queue.dispatch(step, [out, 1])
    assert len(queue.words) > 4 * RING_WORDS
    queue.submit().wait()
    expected = 0
    for _ in range(RING_WORDS // 24 + 2000):
        expected = (expected * 3 + 1) % 2**64
    assert struct.unpack("<Q", out.read())[0] == expected


def test_a_full_ring_is_waited_for_with_a_deadline_and_never_overrun() -> None:
    device = CpuDevice(
        "CPU:full", config=dataclasses.replace(config.current(), timeout_ms=100, validate=False)
    )
    buffer = device.alloc(8)
    gate = device.signal("gate")
    device.queue().wait(gate, 1).submit()
    queue = device.queue().fill(buffer, 3)
    words = queue.words
    device.submit([words] * (RING_WORDS // 8 - 3), [])
    with pytest.raises(
        WaitTimeout, match=r"submit on CPU:full: waited 100 ms for room in the ring. In flight: 2"
    ):
        for _ in range(10):
            device.queue().fill(buffer, 4).submit()
    assert device.timeline.value == 0
    gate.set(1)
    device.synchronize(timeout_ms=50_000)
    device.queue().fill(buffer, 5).submit()
    assert buffer.read() == b"\5" * 8
    device.close()


def test_copies_of_all_sizes_and_alignments_move_exactly_their_bytes(cpu: CpuDevice) -> None:
    source, target = cpu.alloc(512), cpu.alloc(512)
    pattern = bytes((7 * n) % 251 for n in range(512))
    source.write(pattern)
    for size in [*range(40), 63, 64, 65, 127, 200]:
        for shift in (0, 1, 3, 8):
            target.write(b"\xee" * 512)
            cpu.queue().copy(
                target, source, size, dst_offset=16 + shift, src_offset=2 * shift
            ).submit().wait()
            expected = bytearray(b"\xee" * 512)
            expected[16 + shift : 16 + shift + size] = pattern[2 * shift : 2 * shift + size]
            assert target.read() == expected


def test_a_copy_onto_itself_may_overlap(cpu: CpuDevice) -> None:
    buffer = cpu.alloc(1000)
    data = bytes(n % 256 for n in range(1000))
    buffer.write(data)
    cpu.queue().copy(buffer, buffer, 900, dst_offset=50, src_offset=0).submit().wait()
    assert buffer.read() == data[:50] + data[:900] + data[950:]


@pytest.mark.parametrize("value_bytes", [1, 2, 4, 8])
def test_fills_of_all_sizes_and_alignments_write_exactly_their_bytes(
    cpu: CpuDevice, value_bytes: int
) -> None:
    buffer = cpu.alloc(512)
    value = 0x1122334455667788 >> 8 * (8 - value_bytes)
    once = value.to_bytes(value_bytes, "little")
    for count in [*range(20), 33]:
        for offset in (0, 1, 5, 8):
            buffer.write(b"\xee" * 512)
            size = count * value_bytes
            cpu.queue().fill(buffer, value, size, offset, value_bytes).submit().wait()
            expected = bytearray(b"\xee" * 512)
            expected[offset : offset + size] = once * count
            assert buffer.read() == expected


def test_negative_fill_values_and_whole_buffers(cpu: CpuDevice) -> None:
    buffer = cpu.alloc(24)
    cpu.queue().fill(buffer, -2, value_bytes=4).submit().wait()
    assert struct.unpack("<6i", buffer.read()) == (-2,) * 6
    cpu.queue().fill(buffer).submit()
    assert buffer.read() == bytes(24)


def test_a_wait_packet_holds_the_queue_until_the_host_signals(cpu: CpuDevice) -> None:
    gate, reached = cpu.signal("gate"), cpu.signal("reached")
    buffer = cpu.alloc(8)
    buffer.write(bytes(8))
    done = cpu.queue().signal(reached, 1).wait(gate, 5).fill(buffer, 1).submit()
    reached.wait(1, timeout_ms=50_000)
    assert not done.is_done
    gate.set(4)
    time.sleep(0.02)
    assert not done.is_done
    gate.set(5)
    done.wait(50_000)
    assert buffer.read() == b"\1" * 8


def test_two_devices_wait_for_each_other(cpu: CpuDevice, four_threads: CpuDevice) -> None:
    ping, pong = cpu.signal("ping"), four_threads.signal("pong")
    for turn in range(1, 50):
        cpu.queue().signal(ping, turn).wait(pong, turn).submit()
        four_threads.queue().wait(ping, turn).signal(pong, turn).submit()
    cpu.synchronize()
    four_threads.synchronize()
    assert (ping.value, pong.value) == (49, 49)


def test_timestamps_rise_and_are_the_clock_of_the_host(cpu: CpuDevice) -> None:
    times = cpu.alloc(16)
    before = time.monotonic_ns()
    done = cpu.queue().timestamp(times).barrier().timestamp(times, 8).submit()
    done.wait()
    first, second = struct.unpack("<2q", times.read())
    assert before <= first <= second <= cpu.timeline.timestamp_ns <= time.monotonic_ns()


def test_a_wait_that_takes_too_long_names_what_it_waited_for(
    four_threads: CpuDevice, llvm_object: bytes
) -> None:
    device = four_threads
    gate = device.signal("gate")
    out = device.alloc(8)
    program = device.load(llvm_object, "functions", name="slow kernel")
    done = device.queue().wait(gate, 1).dispatch(program, [out, 7], grid=(1, 1, 1)).submit()
    with pytest.raises(WaitTimeout) as caught:
        done.wait(timeout_ms=30)
    text = str(caught.value)
    assert "signal timeline@0x" in text
    assert "waited 30 ms for 1, saw 0" in text
    assert (
        f"#1: wait signal@{gate.va:#x} >= 1; dispatch slow kernel({out.address:#x}, 7) grid=(1, 1, 1)" in text
    )
    with pytest.raises(WaitTimeout, match=r"signal gate@.*waited 10 ms for 9, saw 0"):
        gate.wait(9, timeout_ms=10)
    gate.set(1)
    done.wait(timeout_ms=50_000)
    with pytest.raises(WaitTimeout, match=r"Nothing is in flight on this device: nobody will set it"):
        gate.wait(9, timeout_ms=0)


def test_a_reset_after_somebody_overwrote_the_timeline_leaves_nothing_behind(
    four_threads: CpuDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    out = four_threads.alloc(64)
    for value in (1, 2):
        four_threads.queue().fill(out, value).submit().wait()
    mapped = four_threads.memory.mapped_bytes
    four_threads.timeline._cell[0] = 1
    four_threads.reset()
    assert "something overwrote its timeline" in capsys.readouterr().err
    four_threads.queue().fill(out, 3).submit().wait()
    assert out.read(0, 1) == b"\3"
    assert four_threads.memory.mapped_bytes == mapped


def test_a_device_that_waits_for_nobody_can_be_reset(four_threads: CpuDevice) -> None:
    device = four_threads
    gate = device.signal("gate")
    buffer = device.alloc(8)
    stuck = device.queue().wait(gate, 1).submit()
    behind = device.queue().fill(buffer, 9).submit()
    device.reset()
    for completion in (stuck, behind):
        with pytest.raises(DeviceFault, match=r"ABANDONED_WAIT at Wait\(.*in submission #1: wait signal@"):
            completion.wait()
    device.queue().fill(buffer, 3).submit().wait()
    assert buffer.read() == b"\3" * 8
    device.reset()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([0x0006_00FF] + [0] * 5, "UNKNOWN_OPCODE at Header"),
        ([0x0000_0002] + [0] * 7, "BAD_LENGTH at Copy"),
        ([0x0003_0000] + [0] * 2, "BAD_LENGTH at Nop"),
        ([0xFFFE_0000] + [0] * 5, "BAD_LENGTH at Nop"),
        (packets.Dispatch(length=14, groups=1, arguments=(0, 0)).words, "BAD_DISPATCH at Dispatch"),
        (
            packets.Dispatch(length=14, groups=1, entry=4096, group_slot=99, arguments=(0, 0)).words,
            "BAD_DISPATCH",
        ),
        (packets.Dispatch(length=14, groups=0, entry=4096, arguments=(0, 0)).words, "BAD_DISPATCH"),
    ],
)
def test_a_packet_that_makes_no_sense_is_a_device_fault_and_the_device_goes_on(
    words: list[int], why: str
) -> None:
    device = CpuDevice("CPU:faults", config=dataclasses.replace(config.current(), validate=False))
    buffer = device.alloc(8)
    good = device.queue().fill(buffer, 1).submit()
    gate = device.signal("gate")
    device.queue().wait(gate, 1).submit()
    bad = device.submit([struct.pack(f"<{len(words)}I", *words)], [])
    behind = device.queue().fill(buffer, 2).submit()
    gate.set(1)
    for completion in (bad, behind):
        with pytest.raises(
            DeviceFault, match=rf"{why}.*in submission #3: .*The 1 submissions after it were dropped"
        ):
            completion.wait(50_000)
    good.wait()
    device.queue().fill(buffer, 4).submit().wait()
    assert buffer.read() == b"\4" * 8
    device.close()


def test_only_what_depended_on_a_failed_submission_raises(llvm_object: bytes) -> None:
    device = CpuDevice("CPU:partial", config=dataclasses.replace(config.current(), validate=False))
    program = device.load(llvm_object, "functions")
    good, bad, fixed, other = (device.alloc(16, name) for name in ("good", "bad", "fixed", "other"))
    device.queue().dispatch(program, [good, 1]).submit()
    graph = device.graph().dispatch(program, [fixed, 2])
    graph.replay().wait()
    gate = device.signal("gate")
    device.queue().wait(gate, 1).submit()
    device.submit([struct.pack("<2I", 0xFF, 0)], [])
    device.queue().dispatch(program, [bad.view(0, 8), 3]).submit()
    graph.replay()
    gate.set(1)
    with pytest.raises(DeviceFault):
        device.synchronize()
    assert good.read()[0] == 4
    for action in (
        bad.read,
        bad.view(8, 8).read,
        fixed.read,
        fixed.wait,
        graph.replay,
        lambda: bad.write(b"x"),
        lambda: device.queue().dispatch(program, [bad, 1]),
        lambda: device.queue().copy(other, bad),
        lambda: device.queue().fill(bad, 1, 8),
    ):
        with pytest.raises(DeviceFault, match=r"holds no result. CPU:partial: .* Write or fill all of it"):
            action()
    device.queue().fill(bad, 7).submit()
    assert bad.read() == b"\7" * 16
    fixed.write(bytes(16))
    graph.replay()
    assert fixed.read()[0] == 8
    device.close()


def test_threads_may_submit_at_the_same_time(cpu: CpuDevice, llvm_object: bytes) -> None:
    cover = cpu.load(llvm_object, "cover", args=("buffer",))
    counts = cpu.alloc(4 * 8)
    counts.write(bytes(32))
    errors: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(500):
                cpu.queue().dispatch(cover, [counts], grid=(8, 1, 1)).submit().wait()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert struct.unpack("<8i", counts.read()) == (2000,) * 8


def test_a_buffer_dropped_between_recording_and_submitting_is_still_there(cpu: CpuDevice) -> None:
    queue = cpu.queue()
    source = cpu.alloc(64)
    source.write(b"s" * 64)
    target = cpu.alloc(64)
    queue.copy(target, source)
    del source
    other = cpu.alloc(64)
    other.write(b"o" * 64)
    queue.submit()
    assert target.read() == b"s" * 64


BAD_DISPATCHES = [
    (dict(args=[1, 2]), r"argument 0 is a buffer, got 1"),
    (dict(args=["out"]), r"takes 2 arguments \(buffer, int\), got 1"),
    (dict(args=["out", 1, 2]), r"takes 2 arguments \(buffer, int\), got 3"),
    (dict(args=["out", 1.5]), r"argument 1 is a int, got 1.5"),
    (dict(args=["out", "out"]), r"argument 1 is a int, got Buffer"),
    (dict(args=["out", None]), r"argument 1 is None. An argument is a Buffer, an int or a float"),
    (dict(args=["out", 2**64]), r"argument 1 is 18446744073709551616; it does not fit 64 bits"),
    (dict(args=["out", -(2**63) - 1]), r"argument 1 is -9223372036854775809; it does not fit 64 bits"),
    (dict(grid=(0, 1, 1)), r"grid=\(0, 1, 1\); takes three whole numbers from 1"),
    (dict(grid=(-1, -1, 1)), r"grid=\(-1, -1, 1\)"),
    (dict(grid=(1, 1)), r"grid=\(1, 1\)"),
    (dict(grid=(1, 1, 2**31)), r"grid=\(1, 1, 2147483648\)"),
    (dict(grid=(2**31 - 1,) * 3), r"groups, more than 2\*\*62"),
    (dict(grid=(1.0, 1, 1)), r"grid=\(1.0, 1, 1\)"),
    (dict(grid=4), r"grid=4; takes three"),
    (dict(block=(32, 1, 1)), r"block=\(32, 1, 1\); a group is one call on CPU, so block is \(1, 1, 1\)"),
    (dict(block=(0, 1, 1)), r"block=\(0, 1, 1\)"),
    (dict(groups_per_claim=-1), r"groups_per_claim=-1"),
]


@pytest.mark.parametrize(
    ("change", "message"), BAD_DISPATCHES, ids=[str(change) for change, _ in BAD_DISPATCHES]
)
def test_a_dispatch_that_cannot_be_right_is_refused_before_the_doorbell(
    cpu: CpuDevice, llvm_object: bytes, change: dict[str, object], message: str
) -> None:
    program = cpu.load(llvm_object, "functions", args=("buffer", "int"))
    out = cpu.alloc(8)
    arguments: dict[str, object] = {"args": [out, 1], **change}
    arguments["args"] = [out if arg == "out" else arg for arg in arguments["args"]]  # type: ignore[attr-defined]
    queue = cpu.queue()
    submitted = cpu.timeline.submitted
    with pytest.raises(UsageError, match=message):
        queue.dispatch(program, **arguments)  # type: ignore[arg-type]
    assert not queue.commands
    assert not queue.words
    assert cpu.timeline.submitted == submitted
    queue.dispatch(program, [out, 5]).submit().wait()
    assert out.read()[0] == 20


def test_numbers_of_numpy_are_numbers_and_its_arrays_are_not(cpu: CpuDevice, llvm_object: bytes) -> None:
    numpy = pytest.importorskip("numpy")
    program = cpu.load(llvm_object, "functions")
    math = cpu.load(llvm_object, "math")
    out = cpu.alloc(8)
    cpu.run(program, [out, numpy.int32(-3)])
    assert struct.unpack("<q", out.read()) == (-12,)
    cpu.run(math, [out, numpy.float32(0.5)])
    assert struct.unpack("<f", out.read(0, 4))[0] == pytest.approx(0.4794255)
    for array in (numpy.array(1), numpy.array(1.5), numpy.array([1]), [1], "1", b"1"):
        with pytest.raises(UsageError, match=r"argument 1 is .* An argument is a Buffer, an int or a float"):
            cpu.queue().dispatch(program, [out, array])


def test_too_many_arguments_are_refused(cpu: CpuDevice, llvm_object: bytes) -> None:
    program = cpu.load(llvm_object, "many_ints")
    out = cpu.alloc(32)
    cpu.run(program, [out, *range(9), *range(200)])
    with pytest.raises(UsageError, match="400 arguments are too many"):
        cpu.queue().dispatch(program, [out] * 400)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda q, b: q.copy(b, b, 17), "17 bytes from there do not lie in its 16"),
        (lambda q, b: q.copy(b, "x", 4), "copy: takes a Buffer, not 'x'"),
        (lambda q, b: q.fill(b, 256), "256 does not fit 1 bytes"),
        (lambda q, b: q.fill(b, 1, 7, value_bytes=2), "7 bytes are no whole number of 2-byte values"),
        (lambda q, b: q.fill(b, 1, value_bytes=3), "a value has 1, 2, 4 or 8 bytes"),
        (lambda q, b: q.timestamp(b, 9), "8 bytes from there"),
    ],
)
def test_copies_and_fills_outside_their_buffers_are_refused(
    cpu: CpuDevice, action: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        action(cpu.queue(), cpu.alloc(16))  # type: ignore[operator]


@pytest.mark.parametrize(
    "what",
    [
        command.Copy(0x1000, 0x2000, 77),
        command.Fill(0x1000, 2**64 - 1, 5),
        command.Wait(0x40, 2**63),
        command.Signal(0x40, 1),
        command.Timestamp(0x48),
        command.Barrier(),
        command.Indirect(0x1000, 24),
    ],
    ids=lambda what: type(what).__name__,
)
def test_every_command_decodes_to_its_own_packet(cpu: CpuDevice, what: command.Command) -> None:
    (packet,) = cpu.decode(memoryview(cpu.encode(what)).cast("I"))
    assert type(packet).__name__ == type(what).__name__
    for name, value in packet.values.items():
        if name not in ("opcode", "length"):
            assert value == getattr(what, name)


def test_a_dispatch_decodes_to_its_program_grid_and_arguments(cpu: CpuDevice, llvm_object: bytes) -> None:
    program = cpu.load(llvm_object, "mixed")
    out = cpu.alloc(32)
    queue = cpu.queue().dispatch(
        program, [out, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25], grid=(3, 2, 1), groups_per_claim=4
    )
    (packet,) = cpu.decode(memoryview(queue.words).cast("I"))
    assert isinstance(packet, packets.Dispatch)
    assert (packet.entry, packet.groups, packet.grid_x, packet.grid_y, packet.grid_z) == (
        program.entry,
        6,
        3,
        2,
        1,
    )
    assert packet.groups_per_claim == 4
    assert cpu.encode(queue.commands[0]) == queue.words
    slots = struct.unpack(
        f"<{len(packet.tail_words) // 2}q", struct.pack(f"<{len(packet.tail_words)}I", *packet.tail_words)
    )
    assert out.address in slots
    assert 88 in slots


def test_garbage_decodes_to_a_header_and_stops(cpu: CpuDevice) -> None:
    rng = random.Random(2)
    for _ in range(300):
        assert cpu.decode([rng.getrandbits(32) for _ in range(rng.randrange(1, 40))])


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "ending", ["pass", "raise SystemExit(3)", "import os; os._exit(3)", "dev.close(); dev.close()"]
)
def test_a_process_ends_cleanly_with_work_in_flight(ending: str) -> None:
    script = f"""
import hcq
dev = hcq.open("CPU")
buffers = [dev.alloc(1 << 22) for _ in range(4)]
queue = dev.queue().fill(buffers[1])
for _ in range(50):
    queue.copy(buffers[0], buffers[1])
queue.submit()
kept = dev.alloc(100).host
{ending}
"""
    done = run_python(script)
    assert done.stderr == ""
    assert done.returncode == (3 if "3" in ending else 0)


def test_control_c_interrupts_a_wait() -> None:
    script = """
import hcq, os, signal, threading
dev = hcq.open("CPU")
gate = dev.signal("gate")
done = dev.queue().wait(gate, 1).submit()
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    done.wait(20000)
except KeyboardInterrupt:
    print("interrupted")
gate.set(1)
done.wait(50_000)
"""
    assert run_python(script).stdout == "interrupted\n"


def test_memory_of_a_closed_device_stays_while_another_waits_for_a_signal_in_it() -> None:
    first, second = CpuDevice("CPU:closing"), CpuDevice("CPU:waiting")
    gate = first.signal("gate")
    done = second.queue().wait(gate, 1).submit()
    va = gate.va
    del gate
    first.close()
    assert any(start <= va < start + size for start, size in first.memory.regions.items())
    first.signal_set(va, 1)  # as whoever shares the memory may
    done.wait(50_000)
    second.close()
    assert first.memory.regions == {}


def test_an_unknown_device_is_refused_and_the_known_are_listed() -> None:
    for name in ("GPU", "CPU:x", "", "CPU:-1"):
        with pytest.raises(UsageError, match=r"unknown device. Known are CPU"):
            hcq.open(name)
    assert hcq.open("cpu") is hcq.open("CPU:0")
