"""The life of a device: closing, the end of the process, forks. On the CPU and on emulated GPUs."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hcq import UsageError
from hcq.amd.device import AmdDevice
from hcq.cpu.device import CpuDevice
from hcq.device import Device
from hcq.emu.port import port_for
from hcq.lifetime import open_devices
from hcq.nv.device import NvDevice
from hcq.trace.file import Trace

KINDS = {"CPU": "", "AMD": "amd:gfx1100", "NV": "nv:sm_90"}
SETUP = """
import os, signal, sys, threading, time
import hcq
dev = hcq.open(os.environ["HCQ_DEVICE"])
buffer = dev.alloc(64)
buffer.write(b"p" * 64)
"""


def environment(name: str, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HCQ_")}
    cache = {"HCQ_CACHE_DIR": os.environ["HCQ_CACHE_DIR"]} if "HCQ_CACHE_DIR" in os.environ else {}
    return {**kept, **cache, "HCQ_EMULATE": KINDS[name], "HCQ_DEVICE": name, "HCQ_REPORT": "off", **more}


def run(name: str, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, on one kind of device."""
    return subprocess.run(
        [sys.executable, "-c", SETUP + script],
        capture_output=True,
        text=True,
        timeout=55,
        env=environment(name, **more),
    )


def lines(name: str, script: str, **more: str) -> list[str]:
    """What such a program prints, when it ends as it should."""
    done = run(name, script, **more)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.splitlines()


def opened(name: str) -> Device:
    if name == "CPU":
        return CpuDevice("CPU:life")
    return (AmdDevice if name == "AMD" else NvDevice)(name, port_for((KINDS[name],)))


# ------------------------------------------------------------ closing


@pytest.mark.parametrize("name", KINDS)
def test_every_verb_of_a_closed_device_and_of_what_belongs_to_it_says_so(name: str) -> None:
    device = opened(name)
    buffer, other = device.alloc(64, "kept"), device.alloc(64)
    queue, graph, gate = device.queue().fill(buffer, 1), device.graph(), device.signal("gate")
    graph.fill(other, 2)
    played = device.graph()
    played.fill(other, 3)
    played.replay().wait()
    done = device.queue().fill(other, 4).submit()
    done.wait()
    device.close()
    for action in (
        lambda: device.alloc(64),
        lambda: device.alloc(1 << 20),
        device.queue,
        device.graph,
        device.signal,
        lambda: device.load(b"", "kernel"),
        device.synchronize,
        device.reset,
        lambda: device.encode_dispatch(None, (), (1, 1, 1), (1, 1, 1), 0),  # type: ignore[arg-type]
        lambda: buffer.write(b"x"),
        lambda: buffer.write(b""),
        buffer.read,
        lambda: buffer.read_into(bytearray(64)),
        lambda: buffer.host,
        queue.submit,
        lambda: queue.fill(buffer, 1),
        lambda: queue.copy(buffer, other),
        lambda: queue.wait(gate, 1),
        lambda: queue.signal(gate, 1),
        lambda: queue.timestamp(buffer),
        queue.barrier,
        graph.replay,
        graph.submit,
        played.replay,
        lambda: gate.set(1),
        lambda: gate.wait(1),
    ):
        with pytest.raises(UsageError, match=f"{re.escape(device.name)} cannot be used: it was closed"):
            action()
    assert done.is_done  # what it told before it ends, it still tells
    done.wait()
    assert gate.value == 0
    buffer.free()
    device.close()
    assert "closed" not in repr([device, other, queue, graph, gate, done])


@pytest.mark.parametrize("name", KINDS)
def test_a_device_that_was_closed_gives_everything_back(name: str) -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        open_devices.unmap_closed()
        maps = Path("/proc/self/maps").read_bytes().count(b"\n")
        return maps, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def use() -> None:
        device = opened(name)
        small, large, gate = device.alloc(100), device.alloc(1 << 20), device.signal()
        done = device.queue().fill(small, 1).fill(large, 2).signal(gate, 1).submit()
        done.wait()
        device.close()
        assert gate.value == 1

    use()
    use()
    before = held()
    for _ in range(8):
        use()
    assert [now - then for now, then in zip(held(), before)] <= [
        2,
        0,
        0,
    ]  # the C library's own maps come and go


def test_a_large_buffer_that_is_freed_after_its_device_was_closed_is_unmapped() -> None:
    device = opened("CPU")
    kept, large = device.alloc(64), device.alloc(1 << 20)
    va = large.address
    device.close()
    assert va in device.memory.regions
    large.free()
    assert va not in device.memory.regions
    kept.free()


@pytest.mark.parametrize("name", KINDS)
def test_threads_may_close_one_device_at_once_while_another_uses_it(name: str) -> None:
    script = """
def use():
    try:
        while True:
            dev.queue().fill(dev.alloc(4096), 1).submit().wait()
    except hcq.UsageError as error:
        told.append("it was closed" in str(error))
told = []
user = threading.Thread(target=use)
user.start()
time.sleep(0.1)
closers = [threading.Thread(target=dev.close) for _ in range(4)]
for each in closers: each.start()
for each in [*closers, user]: each.join()
print(told, hcq.open(dev.name).alloc(8).size_bytes)
"""
    assert lines(name, script) == ["[True] 8"]


# ------------------------------------------------------------ forks


def test_a_forked_child_has_a_copy_of_the_cpu_device() -> None:
    script = """
queue = dev.queue().fill(buffer, 1)
dev.queue().fill(dev.alloc(64)).submit().wait()
graph = dev.graph()
graph.fill(buffer, 9, 8)
graph.replay().wait()
pid = os.fork()
if pid == 0:
    print("child", buffer.read(0, 9), dev is hcq.open("CPU"))
    queue.submit().wait()
    graph.replay()
    buffer.write(b"c", 63)
    print("child", buffer.read(6, 3), buffer.read(63), dev.alloc(8).size_bytes, flush=True)
else:
    os.waitpid(pid, 0)
    print("parent", buffer.read(0, 9), buffer.read(63))
    queue.submit().wait()
    print("parent", buffer.read(0, 2))
"""
    assert lines("CPU", script) == [
        "child b'\\t\\t\\t\\t\\t\\t\\t\\tp' True",
        "child b'\\t\\t\\x01' b'c' 8",
        "parent b'\\t\\t\\t\\t\\t\\t\\t\\tp' b'p'",
        "parent b'\\x01\\x01'",
    ]


def test_a_fork_waits_for_work_in_flight_so_that_the_child_has_its_results() -> None:
    script = """
large = dev.alloc(1 << 24)
dev.queue().fill(large, 1).submit().wait()
for value in (2, 3, 4):
    dev.queue().fill(large, value).submit()
if os.fork() == 0:
    assert large.read() == bytes([4]) * (1 << 24)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert lines("CPU", script) == ["7"]


def test_work_that_does_not_end_before_a_fork_is_told_as_unfinished_in_the_child_and_goes_on_in_the_parent() -> (
    None
):
    script = """
hcq.lifetime.open_devices.FORK_MS = 100
gate = dev.signal("gate")
late, other = dev.alloc(64), dev.alloc(64)
other.write(b"o" * 64)
done = dev.queue().wait(gate, 1).fill(late, 1).submit()
if os.fork() == 0:
    for action in (late.read, done.wait):
        try:
            action()
        except hcq.DeviceFault as fault:
            print("finished by its parent alone" in str(fault))
    print(other.read(0, 1))
    dev.queue().fill(late, 5).submit().wait()
    print(late.read(0, 1), flush=True)
    os._exit(0)
os.wait()
gate.set(1)
done.wait()
print(late.read(0, 1))
"""
    assert lines("CPU", script) == ["True", "True", "b'o'", "b'\\x05'", "b'\\x01'"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["AMD", "NV"])
def test_in_a_forked_child_a_gpu_of_its_parent_is_an_error_and_one_of_its_own_works(name: str) -> None:
    script = """
gate = dev.signal("gate")
queue = dev.queue().fill(buffer, 1)
graph = dev.graph()
graph.fill(buffer, 2)
graph.replay().wait()
done = dev.queue().fill(dev.alloc(64)).submit()
done.wait()
large = dev.alloc(1 << 20)
pid = os.fork()
if pid == 0:
    for action in (
        buffer.read, lambda: buffer.write(b"x"), lambda: buffer.host, buffer.wait, queue.submit, graph.replay,
        done.wait, lambda: done.is_done, lambda: gate.value, lambda: gate.set(1), lambda: gate.wait(1), dev.synchronize,
        lambda: dev.alloc(64), dev.queue, dev.graph, dev.signal, lambda: dev.load(b"", "k"), dev.reset,
    ):
        try:
            action()
            print("no error")
        except hcq.UsageError as error:
            assert "is a fork of the one that opened it" in str(error) and "spawn" in str(error), error
    repr([dev, buffer, gate, done, queue, graph])
    large.free()
    del large, graph
    dev.close()
    fresh = hcq.open(dev.name)
    mine = fresh.alloc(8)
    fresh.queue().fill(mine, 7).submit().wait()
    print("child", mine.read(), flush=True)
else:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    queue.submit().wait()
    print("parent", buffer.read(0, 2))
"""
    assert lines(name, script) == [f"child {bytes([7] * 8)!r}", "0", "parent b'\\x01\\x01'"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KINDS)
def test_in_a_forked_child_no_verb_of_its_parents_device_ends_the_process(name: str) -> None:
    """Each verb of the device in a process of its own: an answer or an error, and no signal."""
    script = """
import inspect
dev.alloc(4096)
raw = {"read_memory", "read_memory_into", "write_memory", "peek_memory", "view_memory", "signal_set", "signal_wait"}
if os.fork() == 0:
    ended = []
    for verb in sorted(set(dir(type(dev))) - raw):
        if verb.startswith(("_", "make_")) or os.fork():  # those make what a device is opened with
            ended += [] if verb.startswith(("_", "make_")) else [(verb, os.waitstatus_to_exitcode(os.wait()[1]))]
            continue
        sys.stdout = sys.stderr = open(os.devnull, "w")
        try:
            member = getattr(dev, verb)
            wanted = inspect.signature(member).parameters.values() if callable(member) else ()
            if callable(member) and all(one.default is not one.empty or one.kind == one.VAR_KEYWORD for one in wanted):
                member()
        except Exception:
            pass
        os._exit(0)
    print([one for one in ended if one[1] < 0], len(ended) > 40, flush=True)
    os._exit(0)
os.wait()
"""
    assert lines(name, script) == ["[] True"]


ENDINGS = (
    "sys.exit()",
    "os._exit(3)",
    "os.kill(os.getpid(), 9)",
    "raise RuntimeError",
    "hcq.open(dev.name).close()",
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_however_its_children_end_a_parents_device_goes_on(name: str) -> None:
    script = f"""
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for number, ending in enumerate({ENDINGS}):
    pid = os.fork()
    if pid == 0:
        mine = hcq.open(dev.name)
        mine.queue().fill(mine.alloc(64), 1).submit()
        exec(ending)
        sys.exit()
    os.waitpid(pid, 0)
    dev.queue().fill(buffer, number).submit().wait()
    print(list(buffer.read(0, 2)), flush=True)
"""
    assert lines(name, script) == [f"[{number}, {number}]" for number in range(len(ENDINGS))]


def test_a_thread_that_submits_while_others_fork_hurts_neither() -> None:
    script = """
def work():
    mine = dev.alloc(4096)
    while not over:
        dev.queue().fill(mine, 3).submit().wait()
        dev.alloc(1 << 17)
over = []
threads = [threading.Thread(target=work) for _ in range(2)]
for each in threads: each.start()
for turn in range(20):
    pid = os.fork()
    if pid == 0:
        dev.queue().fill(buffer, turn).submit().wait()
        os._exit(buffer.read(5, 1)[0])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == turn
over.append(1)
for each in threads: each.join()
print("done")
"""
    assert lines("CPU", script) == ["done"]


def test_a_child_of_a_child_has_a_device_too() -> None:
    script = """
for level in range(3):
    dev.queue().fill(buffer, level).submit()
    if pid := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(buffer.read(0, 3), flush=True)
"""
    assert lines("CPU", script) == ["b'\\x02\\x02\\x02'"]


def test_a_traced_child_tells_what_it_inherited(tmp_path: Path) -> None:
    path = tmp_path / "fork.hcqtrace"
    script = """
dev.queue().fill(buffer, 1).submit().wait()
graph = dev.graph("graph")
graph.fill(buffer, 2)
if os.fork() == 0:
    dev.queue().fill(buffer, 3).submit().wait()
    graph.replay().wait()
    sys.exit()
os.wait()
dev.queue().fill(buffer, 4).submit().wait()
"""
    assert lines("CPU", script, HCQ_TRACE=f"{path},data", HCQ_VALIDATE="1") == []
    trace = Trace.read(str(path))
    parent, child = trace.devices
    assert parent.process != child.process
    found = [(one.device.process == child.process, one.value) for one in trace.submissions]
    assert found == [(False, 1), (True, 2), (True, 3), (False, 2)]
    checked = subprocess.run(
        [sys.executable, "-m", "hcq.tools.hcq_trace", "lint", str(path)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# ------------------------------------------------------------ the end of the process


ENDLESS = """
dev.queue().wait(dev.signal("never"), 1).submit()
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_the_exit_says_what_it_waits_for_and_leaves_it_soon(name: str) -> None:
    start = time.monotonic()
    done = run(name, ENDLESS)
    assert time.monotonic() - start < 25
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hcq: {name} has not finished submission #1: wait signal@")
    assert "2 s" in line and "Ctrl-C" in line


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_a_hang_that_a_wait_has_told_of_is_told_once_and_holds_no_exit_up(name: str, tmp_path: Path) -> None:
    script = (
        ENDLESS
        + """
try:
    dev.synchronize(timeout_ms=1000)
except hcq.WaitTimeout as error:
    raise RuntimeError("it hangs") from error
"""
    )
    start = time.monotonic()
    files = {"HCQ_TRACE": str(tmp_path / "t.hcqtrace"), "HCQ_REPORT_DIR": str(tmp_path), "HCQ_REPORT": ""}
    done = run(name, script, HCQ_TIMEOUT_MS="1000000", **files)
    assert time.monotonic() - start < 500  # by the default deadline of this process: 1,000 s
    assert done.stderr.count("hcq report") == 1 and "a wait of 1000 ms timed out" in done.stderr
    assert "has not finished submission" not in done.stderr


def test_a_shorter_deadline_is_kept_at_the_exit() -> None:
    done = run("CPU", ENDLESS, HCQ_TIMEOUT_MS="100")
    assert done.returncode == 0
    assert "0.1 s" in done.stderr


@pytest.mark.parametrize("name", KINDS)
def test_control_c_ends_a_wait_and_a_second_one_the_exit(name: str) -> None:
    script = """
done = dev.queue().wait(dev.signal("never"), 1).submit()
hcq.lifetime.open_devices.EXIT_MS = 1e6
try:
    print("waiting", flush=True)
    done.wait()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""
    process = subprocess.Popen(
        [sys.executable, "-c", SETUP + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(name, HCQ_TIMEOUT_MS="1000000"),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    while not (line := process.stderr.readline()).startswith("hcq:"):
        assert line, "the exit says nothing"
    assert "at once on Ctrl-C" in line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    assert rest == ""
    assert process.returncode in (-signal.SIGINT, 1, 130)


@pytest.mark.parametrize("name", KINDS)
def test_a_daemon_thread_that_still_works_at_the_exit_is_told_so(name: str) -> None:
    script = """
def work():
    try:
        while True:
            dev.queue().fill(dev.alloc(4096), 1).submit().wait()
    except hcq.UsageError as error:
        assert "this process is ending" in str(error), error
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
    done = run(name, script)
    assert done.returncode == 0
    assert all(line.startswith(f"hcq: {name} has not finished") for line in done.stderr.splitlines())


@pytest.mark.parametrize("name", KINDS)
def test_a_process_that_is_killed_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    script = """
dev.queue().fill(buffer, 1).submit().wait()
print(*os.listdir("/dev/shm"), flush=True)
os.kill(os.getpid(), 9)
"""
    before = set(os.listdir("/dev/shm"))
    done = run(name, script, TMPDIR=str(tmp_path))
    assert done.returncode == -9
    assert set(done.stdout.split()) <= before | set(os.listdir("/dev/shm"))
    assert list(tmp_path.iterdir()) == []
