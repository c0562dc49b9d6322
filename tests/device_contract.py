"""The contract of a device: what hcq expects of every kind, as tests that any of them can run, in whatever package.

In       a subclass of DeviceContract, which says what the device is called
Out      a test for each promise, in the order in which a device is built; docs/adding-a-device.md tells of each
Changes  opens devices of that kind, and closes them; programs of tensors run in processes of their own
Next     test_device_contract.py (the devices of this tree), examples/custom_device/ (one of another package),
         device_contract_tensors.py (the program of tensors)

    from tests.device_contract import DeviceContract

    class TestMine(DeviceContract):
        name = "MINE"

It needs pytest, hcq and this folder. The device's package is installed, or on PYTHONPATH.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import random
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hcq import backends, config
from hcq.device import Steps
from hcq.doctor.kernels import ENTRY, expected
from hcq.errors import DeviceFault, DriverError, UsageError, WaitTimeout
from hcq.graph import Symbol
from hcq.observe.validator import Validator

PATIENCE_MS = 50_000  # of waits that must end
# what the program of tensors found on each kind, and its trace; under "CPU" what is right
RAN: dict[type | str, tuple[dict[str, Any], str]] = {}
TENSORS = Path(__file__).with_name("device_contract_tensors.py")


class DeviceContract:
    """What a kind of device promises.

    name             what `hcq.open` calls it
    switches         of the environment, for processes that use it: {"HCQ_EMULATE": "amd:gfx1100"}
    survives_faults  after a fault it works again, in the same process
    """

    name: ClassVar[str] = ""
    switches: ClassVar[dict[str, str]] = {}
    survives_faults: ClassVar[bool] = True
    __test__ = False

    def __init_subclass__(cls) -> None:
        cls.__test__ = bool(cls.name)

    # ------------------------------------------------------------ what a subclass may say

    def port(self) -> Any:
        """The operating system that a device opens on; None: this one."""
        return None

    def missing(self) -> str:
        """What this machine lacks for it, in a sentence: then all of this is skipped. "" when it has all."""
        return ""

    def submit_a_fault(self, device: Any) -> Any:
        """Work that makes the device stop, submitted: its Completion. None where no work surely does."""
        return None

    # ------------------------------------------------------------ what the tests use

    @property
    def backend(self) -> backends.Backend:
        return backends.of(self.name)

    def make(self, **fields: Any) -> Any:
        """A device of one's own; rules judge all that is submitted to it, unless validate=False says otherwise."""
        settings = dataclasses.replace(config.current(), **{"validate": True, "timeout_ms": 20_000, **fields})
        return backends.load(self.backend.device)(self.name, self.port(), settings)

    @pytest.fixture(autouse=True)
    def _is_here(self) -> None:
        if why := self.missing():
            pytest.skip(why)

    @pytest.fixture
    def device(self) -> Iterator[Any]:
        """An open device. Work that is right breaks no rule."""
        known = len(Validator.warnings)
        made = self.make()
        yield made
        made.close(timeout_ms=2000)
        assert Validator.warnings[known:] == []

    @pytest.fixture
    def careless(self) -> Iterator[Any]:
        """An open device without rules, for work that is wrong."""
        made = self.make(validate=False, report=frozenset({"off"}))
        yield made
        made.close(timeout_ms=2000)

    def kernel(self, device: Any) -> tuple[Any, Any]:
        """out[i] = 3 * a[i] + i on 32-bit words, loaded; and how it is launched."""
        if not self.backend.doctor:
            pytest.skip(f"{self.name}: its backend has no doctor, whose kernel this launches")
        tiny = backends.load(self.backend.doctor).kernel(device.arch)
        if tiny is None:
            pytest.skip(f"{self.name}: its doctor has no kernel for {device.arch}")
        count = len(tiny.launch(None, None, 1)["args"])
        kinds, access = ("buffer", "buffer", "int")[:count], ("write", "read", "")[:count]
        return device.load(tiny.image, ENTRY, kinds, access=access), tiny

    def process(self, *words: str, device: str = "", **switches: str) -> str:
        """What Python prints, in a process whose default device is this one."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
        cache = {"HCQ_CACHE_DIR": str(config.current().cache_dir), "HCQ_TIMEOUT_MS": "300000"}
        paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
        mine = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HCQ_DEVICE": device or self.name}
        switches = {**kept, **cache, **mine, **self.switches, **switches}
        done = subprocess.run(
            [sys.executable, *words], env=switches, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    # ------------------------------------------------------------ opening

    def test_an_open_device_says_what_it_is(self, device: Any) -> None:
        assert self.backend.name == self.name.partition(":")[0]
        facts = json.loads(json.dumps(device.facts()))
        assert device.name == self.name
        assert device.arch
        assert (facts["name"], facts["arch"]) == (device.name, device.arch)
        assert facts["model"]
        assert facts["timeline"] == device.timeline.va
        assert {"submissions", "dispatches"} <= set(device.stats())

    def test_half_an_opening_is_unwound_and_says_at_which_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(device: Any) -> None:
            raise DriverError("planted")

        kind = backends.load(self.backend.device)
        steps = kind.steps
        for number, (name, _) in enumerate(steps.steps):
            failing = [*steps.steps[:number], (name, refuse)]
            monkeypatch.setattr(kind, "steps", Steps(steps.title, *failing))
            with pytest.raises(DriverError, match=f"step {number + 1}/{number + 1} .*planted"):
                self.make()
        monkeypatch.undo()
        self.make().close()

    def test_two_devices_of_its_kind_do_not_disturb_each_other(self, device: Any) -> None:
        other = self.make()
        mine, theirs = device.alloc(256), other.alloc(256)
        device.queue().fill(mine, 1).submit()
        other.queue().fill(theirs, 2).submit().wait(PATIENCE_MS)
        other.close()
        assert mine.read() == b"\1" * 256

    # ------------------------------------------------------------ memory

    @pytest.mark.parametrize("size", [1, 8, 64, 65, 4096, 5000, 1 << 16, 1 << 20])
    def test_memory_keeps_what_the_host_writes(self, device: Any, size: int) -> None:
        data = random.Random(size).randbytes(size)
        buffer = device.alloc(size, "kept")
        buffer.write(data)
        assert buffer.read() == data
        buffer.write(b"x", size - 1)
        into = bytearray(size)
        buffer.read_into(into)
        assert into == data[:-1] + b"x"
        assert buffer.read(size // 2, size - size // 2) == into[size // 2 :]

    def test_buffers_are_aligned_and_apart(self, device: Any) -> None:
        sizes = random.Random(1).choices([1, 63, 64, 1000, 4096, 70_000], k=200)
        buffers = [device.alloc(size) for size in sizes]
        assert all(buffer.va % (4096 if buffer.size_bytes >= 1 << 16 else 64) == 0 for buffer in buffers)
        ranges = sorted((buffer.va, buffer.va + buffer.size_bytes) for buffer in buffers)
        assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:]))

    def test_memory_that_work_in_flight_uses_may_be_freed_and_is_not_written_too_early(
        self, device: Any
    ) -> None:
        gate = device.signal("gate")
        buffers = [device.alloc(256) for _ in range(20)]
        queue = device.queue().wait(gate, 1)
        for buffer in buffers:
            queue.fill(buffer, 1)
        queue.submit()
        for buffer in buffers:
            buffer.free()
        again = [device.alloc(256) for _ in buffers]
        opener = threading.Timer(0.05, gate.set, [1])
        opener.start()
        for buffer in again:
            buffer.write(b"\2" * 256)
        device.synchronize()
        opener.join()
        assert all(buffer.read() == b"\2" * 256 for buffer in again)

    # ------------------------------------------------------------ queues

    @pytest.mark.parametrize(
        ("offset", "count", "width"), [(0, 64, 8), (8, 3, 8), (5, 9, 1), (2, 7, 2), (12, 5, 4)]
    )
    def test_a_fill_writes_its_range_and_nothing_else(
        self, device: Any, offset: int, count: int, width: int
    ) -> None:
        buffer = device.alloc(1024)
        buffer.write(b"." * 1024)
        value = int.from_bytes(bytes(range(0x81, 0x81 + width)), "little")
        device.queue().fill(buffer, value, count * width, offset, width).submit().wait(PATIENCE_MS)
        filled = value.to_bytes(width, "little") * count
        assert buffer.read() == b"." * offset + filled + b"." * (1024 - offset - len(filled))

    @pytest.mark.parametrize(
        ("to", "source", "size"),
        [(0, 512, 256), (3, 517, 41), (700, 1, 300), (0, 100, 700), (101, 0, 700), (9, 400, 1)],
    )
    def test_a_copy_moves_its_range_whatever_its_alignment_and_overlap(
        self, device: Any, to: int, source: int, size: int
    ) -> None:
        data = random.Random(size).randbytes(1024)
        buffer = device.alloc(1024)
        buffer.write(data)
        device.queue().copy(buffer, buffer, size, to, source).submit().wait(PATIENCE_MS)
        assert buffer.read() == data[:to] + data[source : source + size] + data[to + size :]

    @pytest.mark.parametrize(("to", "source"), [(0, 1), (1, 0)])
    def test_a_copy_over_itself_a_byte_further_is_right_or_refused(
        self, device: Any, to: int, source: int
    ) -> None:
        data = random.Random(to).randbytes(600)
        buffer = device.alloc(600)
        buffer.write(data)
        try:
            device.queue().copy(buffer, buffer, 500, to, source).submit().wait(PATIENCE_MS)
        except UsageError as refusal:
            assert "500" in str(refusal)
            assert buffer.read() == data
        else:
            assert buffer.read() == data[:to] + data[source : source + 500] + data[to + 500 :]

    def test_commands_and_submissions_are_done_in_order(self, device: Any) -> None:
        word, seen = device.alloc(8), device.alloc(8 * 60)
        for number in range(60):
            queue = device.queue().fill(word, number + 1, value_bytes=8)
            if number % 3:
                queue.submit()
                queue = device.queue()
            queue.copy(seen, word, 8, dst_offset=8 * number).submit()
        assert struct.unpack("<60Q", seen.read()) == tuple(range(1, 61))

    def test_a_queue_may_be_long_and_submissions_many(self, device: Any) -> None:
        word, longest = device.alloc(8), device.queue()
        for number in range(1500):
            longest.fill(word, number, value_bytes=8)
        longest.submit()
        for _ in range(300):
            last = device.queue().barrier().submit()
        last.wait(PATIENCE_MS)
        assert struct.unpack("<Q", word.read()) == (1499,)
        assert device.timeline.value == device.timeline.submitted == last.value
        assert device.stats()["submissions"] >= 301

    def test_threads_submit_at_the_same_time(self, device: Any) -> None:
        buffers = [device.alloc(8 * 20) for _ in range(4)]

        def fill(buffer: Any) -> None:
            for number in range(20):
                device.queue().fill(buffer, number, 8, 8 * number, 8).submit()

        threads = [threading.Thread(target=fill, args=[buffer]) for buffer in buffers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(struct.unpack("<20Q", buffer.read()) == tuple(range(20)) for buffer in buffers)
        assert device.timeline.submitted == 80

    @pytest.mark.parametrize("is_sent", [False, True])
    def test_a_submission_that_is_interrupted_happened_whole_or_not_at_all(
        self, device: Any, is_sent: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        word, send = device.alloc(8), device.send
        device.queue().fill(word, 1).submit().wait(PATIENCE_MS)

        def interrupted(*arguments: Any) -> None:
            if is_sent:
                send(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(device, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            device.queue().fill(word, 2).submit()
        monkeypatch.undo()
        assert word.read() == (b"\2" if is_sent else b"\1") * 8
        device.queue().fill(word, 3).submit().wait(PATIENCE_MS)
        assert word.read() == b"\3" * 8

    def test_its_packets_decode_to_the_words_they_were_made_of(self, device: Any) -> None:
        a, b, signal = device.alloc(64), device.alloc(64), device.signal()
        queue = device.queue().fill(a, 1).copy(b, a).barrier().signal(signal, 1).wait(signal, 1).timestamp(a)
        words = memoryview(queue.words).cast("I")
        shown = device.decode(words)
        assert [word for packet in shown for word in packet.words] == list(words)
        assert all(str(packet) for packet in shown)
        queue.submit().wait(PATIENCE_MS)

    def test_whatever_words_it_is_given_to_decode_it_does_not_raise(self, device: Any) -> None:
        draw, decode = random.Random(7), self.backend.decode
        for length in range(40):
            words = [draw.choice([draw.getrandbits(32), draw.getrandbits(8), 0]) for _ in range(length)]
            assert all(isinstance(str(packet), str) for packet in device.decode(words))
            assert all(isinstance(str(packet), str) for packet in decode(words, device.arch))

    # ------------------------------------------------------------ signals

    def test_host_and_device_wake_each_other(self, device: Any) -> None:
        ping, pong = device.signal("ping"), device.signal("pong")
        for turn in range(1, 6):
            done = device.queue().wait(ping, turn).signal(pong, turn).submit()
            with pytest.raises(WaitTimeout):
                pong.wait(turn, timeout_ms=5)
            assert not done.is_done
            ping.set(turn)
            pong.wait(turn, PATIENCE_MS)
            assert pong.value == turn
            done.wait(PATIENCE_MS)
            assert done.is_done

    def test_a_queue_can_set_a_signal_to_less(self, careless: Any) -> None:
        """A mistake more often than not, of which a rule tells; without rules it is done, and alike everywhere."""
        signal = careless.signal()
        for value in (5, 3, 4, 2):
            careless.queue().signal(signal, value).submit().wait(PATIENCE_MS)
            assert signal.value == value
        signal.set(7)
        careless.queue().signal(signal, 6).wait(signal, 6).signal(signal, 1).wait(signal, 1).submit().wait(
            PATIENCE_MS
        )
        assert signal.value == 1

    def test_a_wait_goes_on_at_a_greater_value_and_at_one_that_is_there_already(self, device: Any) -> None:
        signal = device.signal()
        signal.set(7)
        device.queue().wait(signal, 7).wait(signal, 3).submit().wait(PATIENCE_MS)
        signal.wait(5, 0)

    def test_a_deadline_that_passes_says_what_was_awaited_and_changes_nothing(self, device: Any) -> None:
        gate = device.signal("the gate")
        done = device.queue().wait(gate, 1).submit()
        with pytest.raises(WaitTimeout, match="the gate"):
            gate.wait(1, timeout_ms=5)
        with pytest.raises(WaitTimeout, match="waited"):
            done.wait(timeout_ms=5)
        gate.set(1)
        done.wait(PATIENCE_MS)

    def test_its_clock_rises_and_is_the_hosts(self, device: Any) -> None:
        stamps, signal = device.alloc(16), device.signal()
        before = time.monotonic_ns()
        device.queue().timestamp(stamps).timestamp(stamps, 8).signal(signal, 1).submit().wait(PATIENCE_MS)
        after = time.monotonic_ns()
        first, second = (device.moment_ns(ticks) for ticks in struct.unpack("<2Q", stamps.read()))
        slack = 5_000_000  # two clocks are compared by reading one after the other
        assert before - slack <= first <= second <= signal.timestamp_ns + slack <= after + 2 * slack

    # ------------------------------------------------------------ programs

    def test_a_kernel_computes(self, device: Any) -> None:
        program, tiny = self.kernel(device)
        for count in (256, 4096):
            values = [random.Random(count + i).getrandbits(32) for i in range(count)]
            out, a = device.alloc(4 * count, "out"), device.alloc(4 * count, "a")
            a.write(struct.pack(f"<{count}I", *values))
            device.run(program, **tiny.launch(out, a, count))
            assert struct.unpack(f"<{count}I", out.read()) == tuple(expected(values))
        assert device.stats()["dispatches"] >= 2

    def test_launches_are_ordered_with_copies_and_fills(self, device: Any) -> None:
        program, tiny = self.kernel(device)
        a, b = device.alloc(1024), device.alloc(1024)
        queue = device.queue().fill(a, 5, value_bytes=4)
        for _ in range(4):
            queue.dispatch(program, **tiny.launch(b, a, 256)).copy(a, b)
        queue.submit().wait(PATIENCE_MS)
        values = [5] * 256
        for _ in range(4):
            values = expected(values)
        assert struct.unpack("<256I", a.read()) == tuple(values)

    def test_a_program_may_be_dropped_while_its_launch_is_in_flight(self, device: Any) -> None:
        program, tiny = self.kernel(device)
        gate, out, a = device.signal("gate"), device.alloc(1024), device.alloc(1024)
        a.write(bytes(1024))
        device.queue().wait(gate, 1).dispatch(program, **tiny.launch(out, a, 256)).submit()
        del program
        gc.collect()
        gate.set(1)
        assert struct.unpack("<256I", out.read()) == tuple(range(256))

    def test_what_is_no_code_is_refused(self, device: Any) -> None:
        _, tiny = self.kernel(device)
        for image, entry in ((b"no code at all", ENTRY), (b"", ENTRY), (tiny.image, "no_such_kernel")):
            with pytest.raises(UsageError):
                device.load(image, entry)

    def test_a_launch_that_cannot_be_right_is_refused_before_the_doorbell(self, device: Any) -> None:
        program, tiny = self.kernel(device)
        out, a, freed = device.alloc(1024), device.alloc(1024), device.alloc(1024)
        launch = tiny.launch(out, a, 256)
        right = launch["args"]
        stranger = self.make()
        theirs = stranger.alloc(1024)
        freed.free()
        for change in (
            {"args": ["text", *right[1:]]},
            {"args": [freed, *right[1:]]},
            {"args": [[1, 2], *right[1:]]},
            {"grid": (0, 1, 1)},
            {"grid": (1, -1, 1)},
            {"grid": (1 << 40, 1, 1)},
            {"block": (1 << 20, 1, 1)},
            *([] if device.can_reach(theirs) else [{"args": [theirs, *right[1:]]}]),
        ):
            with pytest.raises(UsageError):
                device.queue().dispatch(program, **{**launch, **change})
        with pytest.raises(UsageError):
            stranger.queue().dispatch(program, **launch)
        stranger.close()
        assert device.timeline.submitted == 0

    # ------------------------------------------------------------ graphs

    def test_a_graph_does_on_every_replay_what_was_recorded(self, device: Any) -> None:
        program, tiny = self.kernel(device)
        a, b = device.alloc(1024), device.alloc(1024)
        a.write(bytes(1024))
        graph = device.graph("again").dispatch(program, **tiny.launch(b, a, 256)).copy(a, b)
        values = [0] * 256
        for _ in range(5):
            graph.replay()
            values = expected(values)
        assert struct.unpack("<256I", a.read()) == tuple(values)

    def test_a_graph_of_branches_leaves_what_the_same_commands_leave_one_after_the_other(
        self, device: Any
    ) -> None:
        """Whichever hardware queues it uses: copies beside a chain of kernels, views that overlap, and a join."""
        program, tiny = self.kernel(device)
        size = 1 << 20  # so large that a copy is worth a queue of its own
        a, b, c, joined = (device.alloc(1024) for _ in range(4))
        large, other = device.alloc(size), device.alloc(size)
        for buffer in (a, b, c, joined):
            buffer.write(bytes(1024))
        large.write(bytes(range(256)) * (size // 256))
        graph = device.graph("branches").fill(other, 7).copy(other, large, size // 2, dst_offset=size // 2)
        graph.dispatch(program, **tiny.launch(b, a, 256)).dispatch(program, **tiny.launch(c, b, 256))
        graph.copy(large.view(256, size // 4), other.view(0, size // 4))
        graph.copy(joined, c, 512).copy(joined, large, 512, dst_offset=512).copy(a, c)
        content, values = bytearray(large.read()), [0] * 256
        for _ in range(3):
            graph.replay()
            filled = bytes([7]) * (size // 2) + content[: size // 2]
            values = expected(expected(values))
            content[256 : 256 + size // 4] = filled[: size // 4]
        device.synchronize(PATIENCE_MS)
        assert other.read() == filled
        assert large.read() == bytes(content)
        assert struct.unpack("<128I", joined.read(0, 512)) == tuple(values[:128])
        assert joined.read(512, 512) == bytes(content[:512])

    def test_a_replay_takes_its_own_arguments_though_others_are_in_flight(self, device: Any) -> None:
        program, tiny = self.kernel(device)
        ins, outs = ([device.alloc(1024) for _ in range(6)] for _ in range(2))
        for number, buffer in enumerate(ins):
            buffer.write(struct.pack("<256I", *[number] * 256))
        launch = tiny.launch(Symbol("out"), Symbol("a"), 256)
        graph = device.graph("bound").dispatch(program, **launch)
        for out, a in zip(outs, ins):
            last = graph.replay({"out": out, "a": a})
        last.wait(PATIENCE_MS)
        for number, out in enumerate(outs):
            assert struct.unpack("<256I", out.read()) == tuple(expected([number] * 256))

    # ------------------------------------------------------------ when something goes wrong

    def test_work_that_stops_the_device_fails_with_what_came_after_and_nothing_before(
        self, careless: Any
    ) -> None:
        good, bad = careless.alloc(64, "good"), careless.alloc(64, "bad")
        before = careless.queue().fill(good, 1).submit()
        before.wait(PATIENCE_MS)
        failed = self.submit_a_fault(careless)
        if failed is None:
            pytest.skip(f"{self.name}: no work is known that surely stops it (submit_a_fault)")
        behind = careless.queue().fill(bad, 2).submit()
        for completion in (failed, behind):
            with pytest.raises(DeviceFault, match=re.escape(careless.name)):
                completion.wait(PATIENCE_MS)
        before.wait(0)
        assert good.read() == b"\1" * 64
        with pytest.raises(DeviceFault, match="holds no result"):
            bad.read()
        if self.survives_faults:
            careless.queue().fill(bad, 3).submit().wait(PATIENCE_MS)
            assert bad.read() == b"\3" * 64
        else:
            with pytest.raises(UsageError, match="could not be rebuilt"):
                careless.queue()

    def test_a_reset_drops_work_that_hangs_and_the_device_goes_on(self, careless: Any) -> None:
        out = careless.alloc(64)
        stuck = careless.queue().wait(careless.signal("never"), 1).submit()
        behind = careless.queue().fill(out, 1).submit()
        careless.reset()
        for completion in (stuck, behind):
            with pytest.raises(DeviceFault):
                completion.wait(PATIENCE_MS)
        for value in (2, 3):
            careless.queue().fill(out, value).submit().wait(PATIENCE_MS)
            careless.reset()  # nothing is in flight: it changes nothing
            assert out.read() == bytes([value]) * 64

    # ------------------------------------------------------------ the end

    def test_closing_waits_for_work_and_keeps_what_completions_say(self, device: Any) -> None:
        gate = device.signal("gate")
        done = device.queue().wait(gate, 1).submit()
        opener = threading.Timer(0.05, gate.set, [1])
        opener.start()
        device.close(timeout_ms=PATIENCE_MS)
        opener.join()
        assert done.is_done
        for verb in (lambda: device.alloc(64), device.queue, device.reset, device.synchronize):
            with pytest.raises(UsageError, match="it was closed"):
                verb()
        device.close()

    def test_closing_a_device_whose_work_hangs_ends(
        self, careless: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        careless.queue().wait(careless.signal("never"), 1).submit()
        careless.close(timeout_ms=50)
        assert f"closing {careless.name}" in capsys.readouterr().err
        with pytest.raises(UsageError, match="it was closed"):
            careless.queue()

    # ------------------------------------------------------------ rules

    def test_rules_stop_a_submission_that_names_freed_memory(self, device: Any) -> None:
        if not self.backend.rules:
            pytest.skip(f"{self.name}: its backend declares no rules")
        device.alloc(1 << 20, "kept")
        freed = device.alloc(1 << 20, "the freed one")
        queue = device.queue().fill(freed, 1)
        words, commands = list(queue._words), queue.commands  # with what says to which ring they go
        freed.free()
        with pytest.raises(UsageError, match="the freed one"):
            device.submit(words, commands)
        assert device.timeline.submitted == 0

    # ------------------------------------------------------------ tensors, traces and tools

    @pytest.fixture
    def tensors(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
        """What a program of tensors found on the device, and its trace; it runs once."""
        if not self.backend.target:
            pytest.skip(f"{self.name}: its backend names no target, so no tensors")
        if type(self) not in RAN:
            trace = str(tmp_path_factory.mktemp("trace") / "tensors.hcqtrace")
            switches = {"HCQ_TRACE": f"{trace},data", "HCQ_VALIDATE": "1"}
            RAN[type(self)] = json.loads(self.process("-W", "error", str(TENSORS), **switches)), trace
        return RAN[type(self)]

    def test_tensors_are_what_they_are_on_the_cpu(self, tensors: tuple[dict[str, Any], str]) -> None:
        found = tensors[0]
        if "CPU" not in RAN:
            RAN["CPU"] = json.loads(self.process(str(TENSORS), device="CPU")), ""
        right = RAN["CPU"][0]
        assert found.keys() | {"double"} == right.keys()  # not where its target has no float64
        for name, value in ((name, right[name]) for name in found):
            assert numbers(found[name]) == pytest.approx(numbers(value), rel=1e-4, abs=1e-5), name

    def test_its_trace_shows_launches_by_name_and_nothing_unknown(
        self, tensors: tuple[dict[str, Any], str]
    ) -> None:
        shown = self.process("-m", "hcq.tools.hcq_trace", "show", tensors[1])
        assert self.name in shown
        assert "softmax" in shown or "max_" in shown
        assert "UNKNOWN" not in shown
        assert "unclaimed" not in shown

    def test_its_trace_breaks_no_rule(self, tensors: tuple[dict[str, Any], str]) -> None:
        if not self.backend.rules:
            pytest.skip(f"{self.name}: its backend declares no rules")
        assert "clean: " in self.process("-m", "hcq.tools.hcq_trace", "lint", tensors[1])

    def test_its_trace_replays_to_the_same_bits(self, tensors: tuple[dict[str, Any], str]) -> None:
        shown = self.process("-m", "hcq.tools.hcq_trace", "replay", tensors[1])
        assert "same results, bit for bit" in shown

    def test_its_code_is_disassembled(self, tensors: tuple[dict[str, Any], str]) -> None:
        if not self.backend.disassembler:
            pytest.skip(f"{self.name}: its backend names no disassembler")
        name = self.process("-m", "hcq.tools.hcq_trace", "disasm", tensors[1]).split("  ")[0]
        shown = self.process("-m", "hcq.tools.hcq_trace", "disasm", tensors[1], name)
        assert name in shown
        assert len(shown.splitlines()) > 3

    def test_the_doctor_finds_it_well(self) -> None:
        if not self.backend.doctor:
            pytest.skip(f"{self.name}: its backend has no doctor")
        found = json.loads(self.process("-m", "hcq", "doctor", "--device", self.name, "--json"))
        checks = {check["name"]: check["status"] for check in found["devices"][0]["checks"]}
        assert {"open", "memory", "queue", "kernel", "copy", "timestamp"} <= set(checks)
        assert set(checks.values()) <= {"ok", "skipped"}, found


def numbers(value: Any) -> list[float]:
    """All numbers of nested lists, in order."""
    return [one for part in value for one in numbers(part)] if isinstance(value, list) else [float(value)]
