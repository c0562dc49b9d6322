"""The Metal device on an emulated runtime: memory, queues, signals, programs, graphs, faults."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hcq import command
from hcq.errors import DeviceFault, DriverError, UsageError, WaitTimeout
from hcq.graph import Symbol
from hcq.metal import encode, packets
from hcq.metal.abi import messages
from hcq.metal.device import MetalDevice
from hcq.metal.program import parameters_of
from hcq.metal.stamps import Stamps
from hcq.trace.file import Trace
from tests.hcq.emu.metal.raw import Raw
from tests.hcq.metal.conftest import Open, runtime_of

TRIPLE = b"""
#include <metal_stdlib>
using namespace metal;
kernel void triple(device uint *out [[buffer(0)]], device const uint *a [[buffer(1)]],
                   constant uint &count [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (i < count) { out[i] = 3 * a[i] + i; }
}
"""
ENDLESS = b"""
kernel void endless(device uint *out [[buffer(0)]], constant uint &n [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  uint x = i;
  for (uint j = 0; j < n; ++j) {
    for (uint k = 0; k < n; ++k) { x = x * 5 + out[x & 63]; }
  }
  out[i] = x;
}
"""
ONE = (1, 1, 1)
OUTSIDE = b"""
kernel void outside(device uint *out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i + 90000000] = i; }
"""


def words(count: int) -> bytes:
    return struct.pack(f"<{count}I", *range(count))


@pytest.mark.parametrize(("chip", "family"), [("m1", "apple7"), ("m2", "apple8"), ("m3", "apple9")])
def test_a_device_opens_with_the_family_of_its_gpu(open_metal: Open, chip: str, family: str) -> None:
    device = open_metal(chip)
    assert device.arch == family
    assert chip.upper() in device.facts()["model"]


def test_a_gpu_that_is_not_there_is_a_driver_error_that_says_how_many_are(open_metal: Open) -> None:
    port = open_metal().port
    with pytest.raises(
        DriverError, match=r"step 1/3 .find the GPU. failed: .* has 1 GPUs, 0 is the first; asked for 4"
    ):
        MetalDevice("METAL:4", port)


def test_without_metal_the_error_says_that_it_is_emulated_elsewhere() -> None:
    with pytest.raises(DriverError, match="HCQ_EMULATE=metal:m3"):
        MetalDevice("METAL")


@pytest.mark.parametrize("size", [1, 4, 7, 64, 4099])
@pytest.mark.parametrize("to", [0, 1, 4])
@pytest.mark.parametrize("source", [0, 3, 8])
def test_a_copy_has_any_alignment_and_size(open_metal: Open, size: int, to: int, source: int) -> None:
    device = open_metal()
    a, b = device.alloc(5000, "a"), device.alloc(5000, "b")
    data = os.urandom(5000)
    a.write(data)
    b.write(bytes(5000))
    device.queue().copy(b, a, size, to, source).submit().wait()
    assert b.read() == bytes(to) + data[source : source + size] + bytes(5000 - to - size)


@pytest.mark.parametrize(("to", "source"), [(0, 96), (96, 0), (5, 100), (100, 5), (8, 8)])
def test_a_copy_over_itself_is_as_if_it_went_through_another_buffer(
    open_metal: Open, to: int, source: int
) -> None:
    device = open_metal()
    buffer, data = device.alloc(1000), bytearray(os.urandom(1000))
    buffer.write(data)
    device.queue().copy(buffer, buffer, 400, to, source).submit().wait()
    data[to : to + 400] = data[source : source + 400]
    assert buffer.read() == data


@pytest.mark.parametrize("value_bytes", [1, 2, 4, 8])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_a_fill_repeats_a_value_of_any_size_from_anywhere(
    open_metal: Open, value_bytes: int, offset: int
) -> None:
    device = open_metal()
    buffer = device.alloc(512)
    buffer.write(bytes(512))
    value = 0x1122334455667788 % (1 << 8 * value_bytes - 1)
    device.queue().fill(buffer, value, 320, offset, value_bytes).submit().wait()
    repeated = value.to_bytes(value_bytes, "little") * (320 // value_bytes)
    assert buffer.read() == bytes(offset) + repeated + bytes(512 - 320 - offset)


def test_commands_see_what_those_before_them_wrote(open_metal: Open) -> None:
    device = open_metal()
    program = device.load(TRIPLE, "triple")
    a, b, c = device.alloc(4096), device.alloc(4096), device.alloc(4096)
    queue = device.queue().fill(a, 2, value_bytes=4).dispatch(program, [b, a, 1024], (4, 1, 1), (256, 1, 1))
    queue.copy(c, b).dispatch(program, [a, c, 1000], (4, 1, 1), (256, 1, 1)).submit().wait()
    expected = [3 * (6 + i) + i if i < 1000 else 2 for i in range(1024)]
    assert list(struct.unpack("<1024I", a.read())) == expected


def test_a_queue_waits_for_what_the_host_sets_and_signals_what_the_host_awaits(open_metal: Open) -> None:
    device = open_metal()
    ready, done = device.signal("ready"), device.signal("done")
    completion = device.queue().wait(ready, 3).signal(done, 5).submit()
    ready.set(2)
    with pytest.raises(WaitTimeout, match="waited 20 ms for 5, saw 0"):
        done.wait(5, timeout_ms=20)
    before = time.monotonic_ns()
    ready.set(3)
    done.wait(5)
    completion.wait()
    assert (ready.value, done.value) == (3, 5)
    assert before <= ready.timestamp_ns <= done.timestamp_ns <= time.monotonic_ns()


def test_a_signal_that_nothing_in_flight_names_is_set_to_less(open_metal: Open) -> None:
    device = open_metal()
    signal = device.signal("again")
    for turn in range(3):
        completion = device.queue().wait(signal, 3).signal(signal, 4).submit()
        assert not completion.is_done
        signal.set(3)
        completion.wait()
        assert signal.value == 4
        signal.set(turn)
        assert signal.value == turn


def test_a_signal_that_work_in_flight_waits_for_is_not_set_to_less(open_metal: Open) -> None:
    device = open_metal()
    signal = device.signal("gate")
    signal.set(5)
    waiting = device.queue().wait(signal, 6).submit()
    with pytest.raises(UsageError, match=r"gate\.set\(2\): it is 5, and work in flight waits for it"):
        signal.set(2)
    assert signal.value == 5 and not waiting.is_done
    signal.set(6)
    waiting.wait()
    signal.set(2)
    assert signal.value == 2


def test_a_queue_sets_a_signal_to_less_and_to_0_once_nothing_in_flight_names_it(open_metal: Open) -> None:
    device = open_metal(validate=False)  # the rule signal-backwards stops it
    signal, gate = device.signal("down"), device.signal("gate")
    for value in (5, 3, 3, 0, 2):
        device.queue().signal(signal, value).submit().wait()
        assert signal.value == value
    waiting = device.queue().wait(gate, 1).wait(signal, 2).submit()
    with pytest.raises(UsageError, match=r"down is 2, and work in flight waits for it or signals it"):
        device.queue().signal(signal, 0).submit()  # with which every event begins
    falling = device.queue().signal(signal, 1).submit()
    assert signal.value == 2
    gate.set(1)
    waiting.wait()
    falling.wait()
    assert signal.value == 1


def test_two_gpus_have_queues_of_their_own_and_see_each_others_signals() -> None:
    from hcq.emu.metal.driver import emulate
    from hcq.emu.port import EmulatedPort

    port = EmulatedPort([emulate(["metal:m1", "metal:m2"])])
    first, second = MetalDevice("METAL", port), MetalDevice("METAL:1", port)
    try:
        signal = first.signal("of the first")
        waiting = second.queue().wait(signal, 1).submit()
        first.queue().fill(first.alloc(64), 1).submit().wait()
        assert not waiting.is_done
        first.queue().signal(signal, 1).submit()
        waiting.wait(timeout_ms=10_000)
        assert [first.arch, second.arch] == ["apple7", "apple8"]
    finally:
        first.close()
        second.close()


def test_a_timestamp_is_the_time_when_all_before_it_was_done(open_metal: Open) -> None:
    device = open_metal()
    stamps, copied = device.alloc(16), device.alloc(16)
    before = time.monotonic_ns()
    device.queue().timestamp(stamps).fill(copied, 1).timestamp(stamps, 8).copy(copied, stamps).submit().wait()
    first, second = (device.moment_ns(ticks) for ticks in struct.unpack("<QQ", copied.read()))
    assert before <= first <= second <= time.monotonic_ns()


def test_a_stamp_that_never_comes_holds_nobody_up() -> None:
    raw = Raw()
    stamps = Stamps(raw, raw.gpu)
    never = raw.command_buffer()
    memory = raw.buffer(bytes(8))
    stamps.after(never, raw.send(memory, messages.CONTENTS))
    assert stamps.close(5000)
    assert raw.contents(memory) == bytes(8)


def test_a_command_buffer_that_fails_has_its_stamp(open_metal: Open) -> None:
    device = open_metal()
    a, stamp = device.alloc(4096), device.alloc(8)
    queue = device.queue().dispatch(device.load(OUTSIDE, "outside"), [a], (1, 1, 1), (32, 1, 1))
    with pytest.raises(DeviceFault, match="writes out"):
        queue.timestamp(stamp).submit().wait()
    device.queue().fill(a, 1).submit().wait()
    assert a.read(0, 1) == b"\x01"


def test_a_gpu_that_is_not_listed_is_the_usual_one(open_metal: Open) -> None:
    device = open_metal("m2:unlisted")
    assert device.arch == "apple8"
    assert device.model == "Apple M2 (emulated)"
    with pytest.raises(DriverError, match="Metal has 1 GPUs, 0 is the first; asked for 1"):
        MetalDevice("METAL:1", device.port)


def test_a_graph_is_replayed_with_other_buffers_and_numbers(open_metal: Open) -> None:
    device = open_metal()
    program = device.load(TRIPLE, "triple")
    a = device.alloc(4096)
    a.write(words(1024))
    graph = device.graph("triples")
    graph.dispatch(program, [Symbol("out"), a, Symbol("count", "int")], (4, 1, 1), (256, 1, 1))
    outs = [device.alloc(4096) for _ in range(5)]
    for number, out in enumerate(outs):
        out.write(bytes(4096))
        graph.replay({"out": out, "count": 100 * number})
    for number, out in enumerate(outs):
        found = struct.unpack("<1024I", out.read())
        assert found == tuple(4 * i if i < 100 * number else 0 for i in range(1024))


@pytest.mark.parametrize(
    ("image", "entry", "message"),
    [
        (b"\xff\xfe", "k", "the image is no text"),
        (b"kernel void k() {", "other", r"no kernel 'other' in the text\. Its kernels: k"),
        (b"kernel void k(device float *p [[buffer(0)]]) { p[0] = q; }", "k", "undeclared identifier 'q'"),
        (b"kernel void k(device float *p [[buffer(31)]]) { }", "k", "table has 31 entries"),
        (b"kernel void k(constant float4 &p [[buffer(0)]]) { }", "k", "a number is one of"),
        (
            b"kernel void k(device float *p [[buffer(0)]]) { threadgroup float t[9000]; }",
            "k",
            "exceeds the maximum of 32768",
        ),
    ],
)
def test_what_is_no_kernel_is_refused_with_the_reason(
    open_metal: Open, image: bytes, entry: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_metal().load(image, entry)


def test_a_launch_that_cannot_be_right_is_refused_before_anything_is_submitted(open_metal: Open) -> None:
    device = open_metal()
    program = device.load(TRIPLE, "triple")
    a = device.alloc(4096)
    for args, block, message in [
        ([a, a], (1, 1, 1), r"takes 3 arguments \(buffer, buffer, int\), got 2"),
        ([a, a, 2**32], (1, 1, 1), "does not fit 32 bits"),
        ([a, 1.5, 3], (1, 1, 1), "argument 1 is a buffer, got 1.5"),
        ([a, a, 3], (1024, 2, 1), "2048 threads, and this kernel's groups have 1024 at most"),
    ]:
        with pytest.raises(UsageError, match=message):
            device.queue().dispatch(program, args, block=block)
    assert device.timeline.submitted == 0


@pytest.mark.fires_rules
def test_a_kernel_that_leaves_its_buffer_is_a_fault_and_the_device_goes_on(open_metal: Open) -> None:
    device = open_metal(report=())
    program, outside = device.load(TRIPLE, "triple"), device.load(OUTSIDE, "outside")
    a, b = device.alloc(4096), device.alloc(4096)
    a.write(words(1024))
    failed = device.queue().dispatch(outside, [b], (1, 1, 1), (32, 1, 1)).submit()
    with pytest.raises(DeviceFault, match=r"outside: writes out\[90000031\] of .* elements of uint32"):
        failed.wait()
    with pytest.raises(DeviceFault, match="holds no result"):
        b.read()
    device.queue().fill(b, 0).dispatch(program, [b, a, 1024], (4, 1, 1), (256, 1, 1)).submit().wait()
    assert struct.unpack("<1024I", b.read()) == tuple(4 * i for i in range(1024))


def test_reset_gives_up_a_wait_that_nobody_ends(open_metal: Open) -> None:
    device = open_metal()
    never, after = device.signal("never"), device.alloc(64)
    stuck = device.queue().wait(never, 1).fill(after, 1).submit()
    device.reset()
    with pytest.raises(DeviceFault, match="was abandoned"):
        stuck.wait()
    assert never.value == 0
    device.queue().fill(after, 2).submit().wait()
    assert after.read() == bytes([2] * 64)


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_reset_ends_a_kernel_that_does_not_end(open_metal: Open, way: str) -> None:
    device = open_metal(f"m3:kernels={way}")
    a, out = device.alloc(256, "a"), device.alloc(256, "out")
    endless, triple = device.load(ENDLESS, "endless"), device.load(TRIPLE, "triple")
    with pytest.raises(WaitTimeout):
        device.queue().dispatch(endless, [out, 2**31 - 1], ONE, (32, 1, 1)).submit().wait(timeout_ms=200)
    device.reset()
    a.write(words(64))
    out.write(bytes(256))
    device.queue().dispatch(triple, [out, a, 64], ONE, (64, 1, 1)).submit().wait()
    assert bytes(out.read()) == struct.pack("<64I", *(4 * i for i in range(64)))


def test_reset_ends_a_wait_for_a_signal_that_nobody_holds_any_more(open_metal: Open) -> None:
    device = open_metal()
    stuck = device.queue().wait(device.signal("dropped"), 1).submit()
    gc.collect()
    device.reset()
    with pytest.raises(DeviceFault, match="was abandoned"):
        stuck.wait()
    after = device.alloc(64)
    device.queue().fill(after, 2).submit().wait()
    assert after.read() == bytes([2] * 64)


def test_more_submissions_than_metal_has_command_buffers_wait_for_room(open_metal: Open) -> None:
    device = open_metal()
    counter, last = device.signal("counter"), None
    for number in range(1, 1500):
        last = device.queue().signal(counter, number).submit()
    assert last is not None
    last.wait()
    assert counter.value == 1499


def test_every_object_is_released_when_the_device_is_closed(open_metal: Open) -> None:
    device = open_metal()
    program = device.load(TRIPLE, "triple")
    a = device.alloc(1 << 20)
    device.run(program, [a, a, 5], block=(8, 1, 1))
    device.queue().copy(a, a, 33, 1, 100).signal(device.signal("s"), 1).timestamp(a).submit().wait()
    runtime = runtime_of(device)
    device.close()
    del program, a, device
    gc.collect()
    left = [
        kind for kind in runtime.alive() if kind != "MTLBuffer"
    ]  # the fixture holds the device, and so its timeline
    assert left in ([], ["MTLSharedEvent"])
    assert runtime.log() == []


def test_a_child_of_fork_is_told_that_the_gpu_is_its_parents(open_metal: Open) -> None:
    program = (
        "import gc, hcq, os\n"
        "device = hcq.open('METAL'); signal = device.signal('s'); buffer = device.alloc(64)\n"
        "if os.fork() == 0:\n"
        "    try: device.queue()\n"
        "    except hcq.UsageError as error: print(error, flush=True)\n"
        "    del signal, buffer; gc.collect(); os._exit(0)\n"
        "os.wait(); device.queue().fill(buffer, 1).submit().wait(); print(buffer.read(0, 1))\n"
    )
    environment = {**os.environ, "HCQ_EMULATE": "metal:m3"}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    child, parent = found.stdout.splitlines()
    assert child.startswith("METAL cannot be used: this process is a fork of the one that opened it")
    assert parent == r"b'\x01'"
    assert found.stderr == ""


def test_packets_decode_to_what_was_encoded() -> None:
    for what in (
        command.Copy(0x1000, 0x2000, 77),
        command.Fill(0x1000, 2**64 - 1, 8),
        command.Wait(0x40, 2**64 - 1),
        command.Signal(0x40, 3),
        command.Timestamp(0x80),
        command.Barrier(),
        command.Indirect(0x4000, 12),
    ):
        (found,) = encode.decode(memoryview(encode.encode(what)).cast("I"))
        assert found.to_bytes() == encode.encode(what)
        assert packets.PACKETS[int(found.values["opcode"])] is type(found)


def test_a_trace_of_metal_shows_what_its_command_buffers_held(open_metal: Open, tmp_path: Path) -> None:
    device = open_metal(trace=str(tmp_path / "metal.hcqtrace"))
    a, b = device.alloc(256, "a"), device.alloc(256, "b")
    device.run(device.load(TRIPLE, "triple"), [b, a, 4], block=(4, 1, 1))
    device.queue().fill(a, 1).copy(b, a).submit().wait()
    device.close()
    first, second = Trace.read(str(tmp_path / "metal.hcqtrace")).submissions
    launch, signal = first.packets()[0], first.packets()[-1]
    assert isinstance(launch, packets.DispatchThreadgroups) and (launch.block_x, launch.tail_words[-1]) == (
        4,
        4,
    )
    assert isinstance(signal, packets.EncodeSignalEvent) and signal.value == 1
    names = [type(one).__name__ for one in second.packets()]
    assert names[:2] == ["FillBuffer", "CopyFromBuffer"] and names[-1] == "EncodeSignalEvent"


def test_packets_are_counted_with_the_signal_that_ends_a_submission(open_metal: Open) -> None:
    device = open_metal()
    a, b = device.alloc(256, "a"), device.alloc(256, "b")
    device.queue().fill(a, 1).copy(b, a).submit().wait()
    assert device.stats()["packets"] == 3


def test_parameters_are_read_from_the_head_of_the_kernel() -> None:
    source = TRIPLE.decode()
    assert [(one.place, one.kind, one.size_bytes) for one in parameters_of(source, "triple", "triple")] == [
        (0, "buffer", 8),
        (1, "buffer", 8),
        (2, "int", 4),
    ]


def test_the_environment_makes_a_metal_device_appear() -> None:
    program = "import hcq; print(hcq.open('METAL'))"
    environment = {**os.environ, "HCQ_EMULATE": "metal:m2"}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout == "Device(METAL, apple8)\n"
