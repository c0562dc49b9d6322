"""Reports: what hangs or stops is named, with its arguments and its line, and the process goes on."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hcq
from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import DeviceFault, DriverError, UsageError, WaitTimeout
from hcq.graph import Symbol
from hcq.observe import report
from hcq.system import call_site
from hcq.system.port import LinuxPort


@pytest.fixture
def device(tmp_path: Path) -> Iterator[CpuDevice]:
    """A device that checks nothing, whose reports go to a folder of the test."""
    settings = dataclasses.replace(
        config.current(), threads=2, validate=False, report_dir=tmp_path / "reports"
    )
    before = config.current()
    config.use(settings)
    device = CpuDevice("CPU:report", config=settings)
    yield device
    device.close()
    config.use(before)


def read_reports() -> list[str]:
    return [path.read_text() for path in sorted(config.current().report_dir.glob("*.txt"))]


def works(device: CpuDevice, image: bytes) -> None:
    """The device still computes."""
    out = device.alloc(16, "after")
    out.write(bytes(16))
    step = device.load(image, "step", args=("buffer", "int"))
    device.queue().dispatch(step, [out, 5]).dispatch(step, [out, 2]).submit().wait(50_000)
    assert int.from_bytes(out.read(0, 8), "little") == 17


def test_a_kernel_that_never_ends_is_named_and_left_behind(
    device: CpuDevice, llvm_object: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    spin = device.load(llvm_object, "spin", args=("buffer",), name="spin for ever")
    word = device.alloc(8, "word")
    word.write(bytes(8))
    host = word.host
    late = device.queue().dispatch(spin, [word]).submit()  # the culprit's line
    behind = device.queue().fill(device.alloc(8), 1).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=100)
    (text,) = read_reports()
    assert "timeline  0 done, 2 submitted" in text
    assert re.search(r"at get: Dispatch\(opcode=DISPATCH", text)
    assert "-> kernel spin for ever(word) grid=(1, 1, 1)" in text
    assert re.search(r"#1, submitted at .*test_report.py:\d+ in .*: late = .*# the culprit's line", text)
    assert re.search(r"waiting   MainThread for timeline >= 1 since 0\.\d+ s, at .*: late.wait", text)
    assert text.strip() in capsys.readouterr().err
    device.reset()
    for completion in (late, behind):
        with pytest.raises(DeviceFault, match=r"did not stop.*submitted at .*test_report.py"):
            completion.wait()
    works(device, llvm_object)
    # nobody is handed memory that the kernel left behind may still write
    assert word.va is not None
    old = word.va
    word.free()
    assert all(device.alloc(8).va != old for _ in range(100))
    host[0] = 1  # it ends with the test


def test_inside_a_graph_the_current_command_is_shown_with_its_bound_arguments(
    device: CpuDevice, llvm_object: bytes
) -> None:
    step = device.load(llvm_object, "step", args=("buffer", "int"), name="a step")
    spin = device.load(llvm_object, "spin", args=("buffer",), name="spin")
    out, word = device.alloc(8, "out"), device.alloc(8, "word")
    out.write(bytes(8))
    word.write(bytes(8))
    graph = device.graph("three").dispatch(step, [out, 1])
    graph.dispatch(spin, [Symbol("where")]).dispatch(step, [out, Symbol("k", "int")])
    late = graph.replay({"where": word, "k": 7})
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=50)
    (text,) = read_reports()
    at = text.index("next to finish")
    shown = re.findall(r"(->|  ) kernel (.*) grid", text[at:])
    assert shown[:3] == [("  ", "a step(out, 1)"), ("->", "spin(word)"), ("  ", "a step(out, 7)")]
    word.host[0] = 1  # the kernel ends after all
    late.wait(50_000)
    works(device, llvm_object)


def test_work_left_behind_does_nothing_more_when_it_wakes_up(device: CpuDevice, llvm_object: bytes) -> None:
    spin = device.load(llvm_object, "spin", args=("buffer",))
    word, out = device.alloc(8, "word"), device.alloc(8, "out")
    word.write(bytes(8))
    out.write(bytes(8))
    host = word.host
    device.graph().dispatch(spin, [word]).fill(out, 0x77).replay()
    device.queue().fill(out, 0x66).submit()
    device.reset()
    out.write(bytes(8))
    works(device, llvm_object)
    done = device.timeline.value
    host[0] = 1
    time.sleep(0.1)
    assert bytes(out.host) == bytes(8)
    assert device.timeline.value == done
    works(device, llvm_object)


def test_a_wait_that_nobody_signals_is_named(device: CpuDevice, llvm_object: bytes) -> None:
    gate = device.signal("gate")
    step = device.load(llvm_object, "step", args=("buffer", "int"))
    out = device.alloc(8, "out")
    late = device.queue().wait(gate, 3).dispatch(step, [out, -4]).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=50)
    (text,) = read_reports()
    assert "at get: Wait(opcode=WAIT" in text
    assert "-> wait for gate >= 3" in text
    assert "kernel step(out, -4)" in text
    assert "signal    gate is 0, and no submission that is remembered sets it" in text
    device.reset()
    works(device, llvm_object)


def test_a_signal_written_backwards_is_named(device: CpuDevice, llvm_object: bytes) -> None:
    gate = device.signal("gate")
    device.queue().signal(gate, 7).submit()
    device.queue().signal(gate, 3).submit().wait()  # the culprit
    late = device.queue().wait(gate, 5).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=50)
    (text,) = read_reports()
    assert re.search(r"gate is 3: CPU:report #2 sets it to 3 BACKWARDS from 7  \[.*test_report.py:\d+", text)
    device.reset()
    works(device, llvm_object)


def test_a_buffer_freed_before_its_work_is_submitted_is_refused_and_reported(
    device: CpuDevice, llvm_object: bytes
) -> None:
    step = device.load(llvm_object, "step", args=("buffer", "int"), name="a step")
    out = device.alloc(8, "out")
    queue = device.queue().dispatch(step, [out, 3])
    out.free()
    with pytest.raises(
        UsageError, match=r"'out' freed, 8 bytes\) was freed after it was recorded in: dispatch a step"
    ):
        queue.submit()
    other = device.alloc(8, "kept")
    graph = device.graph("twice").fill(other, 1)
    graph.replay().wait()
    other.free()
    with pytest.raises(
        UsageError, match=r"replay of 'twice'.*buffer kept of 8 bytes, which it uses, was freed"
    ):
        graph.replay()
    first, second = read_reports()
    assert "a step" in first and "'out' freed" in first
    assert "fill 8 bytes" in second
    works(device, llvm_object)


def test_addresses_are_named_by_what_is_there_was_there_or_is_near(device: CpuDevice) -> None:
    first, second = device.alloc(100, "first"), device.alloc(64, "second")
    va = first.address
    names = report._Names(device)
    assert names.name(va) == "first"
    assert names.name(va + 12) == "first+0xc"
    assert names.name(device.timeline.va) == "timeline"
    assert "not mapped" in names.name(64)
    assert re.search(r"\(freed or never handed out; 20 bytes after the end of first", names.name(va + 120))
    first.free()
    assert "(freed: first+0x4" in report._Names(device).name(va + 4)
    assert second.va is not None


def test_a_fault_is_reported_with_its_packet(device: CpuDevice, llvm_object: bytes) -> None:
    bad = device.submit([bytes.fromhex("ff000600") + bytes(20)], [])
    with pytest.raises(DeviceFault):
        bad.wait()
    (text,) = read_reports()
    assert "UNKNOWN_OPCODE at Header" in text.splitlines()[0]
    assert "at get: Header(opcode=255" in text
    works(device, llvm_object)


def test_polls_and_repeated_timeouts_are_not_reported_again(device: CpuDevice) -> None:
    gate = device.signal("gate")
    late = device.queue().wait(gate, 1).submit()
    for timeout_ms in (0, 1, 50, 50, 50):
        with pytest.raises(WaitTimeout):
            late.wait(timeout_ms)
    assert len(read_reports()) == 1
    gate.set(1)
    late.wait(50_000)


def test_only_the_newest_reports_are_kept(device: CpuDevice) -> None:
    paths = [report.save(f"report {index}") for index in range(report.KEPT + 5)]
    kept = read_reports()
    assert len(kept) == report.KEPT
    assert kept[-1] == f"report {report.KEPT + 4}\n"
    assert paths[0] is not None and not paths[0].exists()


def test_a_report_that_cannot_be_saved_is_printed_and_says_so(
    device: CpuDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    config.use(dataclasses.replace(config.current(), report_dir=blocked / "below"))
    report.publish(device, "nothing wrong", ("test", time.monotonic_ns()))
    said = capsys.readouterr().err
    assert "could not be saved in" in said
    assert "---- hcq report: nothing wrong" in said


def test_reports_are_their_owners_alone(
    device: CpuDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = report.save("a report")
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.parent.chmod(0o777)
    assert report.save("another") is None
    said = capsys.readouterr().err
    assert said.startswith(f"hcq: the report could not be saved: other users can write to {path.parent}. ")


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, **environment},
    )


def test_sigusr1_reports_when_asked_for_and_the_wait_goes_on() -> None:
    script = """
import hcq, os, signal, threading, time
dev = hcq.open("CPU")
gate = dev.signal("gate")
done = dev.queue().wait(gate, 1).submit()
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
threading.Timer(0.6, lambda: gate.set(1)).start()
done.wait(20000)
print("went on")
"""
    done = run_python(script, HCQ_REPORT="signal")
    assert done.stdout == "went on\n"
    assert "---- hcq report: signal SIGUSR1" in done.stderr
    assert "waiting   MainThread for timeline >= 1" in done.stderr
    assert "done.wait(20000)" not in done.stderr  # -c has no source file to quote
    assert run_python(script).returncode == -signal.SIGUSR1


def test_a_users_own_handler_is_never_replaced_silently() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
    try:
        with pytest.raises(UsageError, match=r"handles this signal already. Pass chain=True"):
            report.install()
        uninstall = report.install(chain=True)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert called == [signal.SIGUSR1]
        uninstall()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(called) == 2
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(UsageError, match="in the main thread only"):
        in_thread(report.install)


def in_thread(what: object) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            what()  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_a_program_that_ends_with_an_error_while_work_hangs_is_reported() -> None:
    script = """
import hcq
dev = hcq.open("CPU")
dev.queue().wait(dev.signal("never"), 1).submit()
raise RuntimeError("mine")
"""
    done = run_python(script, HCQ_TIMEOUT_MS="200")
    assert done.returncode == 1
    assert "RuntimeError: mine" in done.stderr
    assert "hcq report: the program ended with RuntimeError while CPU had work" in done.stderr
    assert re.search(r"-> wait for 0x[0-9a-f]+ \(freed: never.*>= 1", done.stderr)
    quiet = run_python(script, HCQ_TIMEOUT_MS="200", HCQ_REPORT="off")
    assert "hcq report" not in quiet.stderr


def test_control_c_in_a_wait_leaves_the_device_usable() -> None:
    script = """
import hcq, os, signal, threading
dev = hcq.open("CPU")
gate = dev.signal("gate")
out = dev.alloc(8)
done = dev.queue().wait(gate, 1).fill(out, 5).submit()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    done.wait(20000)
except KeyboardInterrupt:
    print("interrupted", dev.waits)
gate.set(1)
done.wait(20_000)
dev.queue().fill(out, 6).submit().wait()
print(out.read())
"""
    assert run_python(script).stdout == "interrupted {}\n" + repr(b"\6" * 8) + "\n"


def test_two_threads_hang_and_each_is_named_with_its_line(device: CpuDevice) -> None:
    gate = device.signal("gate")
    device.queue().wait(gate, 1).submit()
    started = threading.Barrier(2)

    def other() -> None:
        started.wait()
        gate.wait(1, timeout_ms=50_000)

    thread = threading.Thread(target=other, name="the other")
    thread.start()
    started.wait()
    time.sleep(0.05)
    with pytest.raises(WaitTimeout):
        device.synchronize(timeout_ms=50)
    (text,) = read_reports()
    assert re.search(r"waiting   the other for gate >= 1 since .* in other: gate.wait\(1", text)
    assert re.search(r"waiting   MainThread for timeline >= 1", text)
    gate.set(1)
    thread.join()
    device.synchronize(50_000)


def test_more_memory_than_the_machine_has_lists_the_owners(device: CpuDevice) -> None:
    kept = device.alloc(1 << 20, "the big one")
    with pytest.raises(DriverError, match=r"alloc\(35184372088832\).*the big one 1048576 bytes.*ENOMEM"):
        device.alloc(1 << 45)
    assert kept.va is not None


def test_a_thread_that_waits_in_pythons_library_is_at_the_users_line() -> None:
    found: list[call_site.Site] = []
    barrier, over = threading.Event(), threading.Event()

    def waits() -> None:
        barrier.set()
        over.wait(10)

    thread = threading.Thread(target=waits)
    thread.start()
    barrier.wait(10)
    time.sleep(0.05)
    found.append(call_site.site_of(sys._current_frames()[thread.ident or 0]))
    over.set()
    thread.join()
    assert found[0] is not None
    assert found[0][0].co_name == "waits"


def test_sites_are_the_innermost_line_of_the_user(device: CpuDevice) -> None:
    device.queue().fill(device.alloc(8)).submit()
    _, _, site = device.recent[-1]
    assert re.fullmatch(r".*test_report.py:\d+ in test_sites_are_.*", call_site.where(site))
    assert call_site.source_line(site) == "device.queue().fill(device.alloc(8)).submit()"
    assert call_site.where(None) == ""


def test_memory_limits_of_containers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from hcq.cpu.device import memory_bytes

    class Small(LinuxPort):
        def read_file(self, path: str) -> bytes:
            if path == "/sys/fs/cgroup/memory.max":
                return b"4096000\n"
            return super().read_file(path)

    assert memory_bytes(Small()) == 4096000
    assert memory_bytes(LinuxPort()) > 1 << 20
    assert hcq.open("CPU").facts()["name"] == "CPU"


def test_a_submission_is_told_with_the_buffers_it_had_whoever_owns_their_memory_now(
    device: CpuDevice,
) -> None:
    first = device.alloc(4096, "first")
    va = first.va
    device.queue().fill(first, 1).submit().wait()  # 1
    first.free()
    unnamed = device.alloc(4096)
    device.queue().fill(unnamed, 2).submit().wait()  # 2
    unnamed.free()
    second = device.alloc(4096, "second")
    device.queue().fill(second, 3).submit().wait()  # 3
    second.free()
    third = device.alloc(4096, "third")
    assert third.va == va
    device.queue().fill(third, 4).submit().wait()  # 4
    told = report.describe(device, "asked for")
    lines = {
        number: line
        for line in told.splitlines()
        if (number := line.partition(" fill")[0].strip())[:1] == "#"
    }
    assert f"bytes at {va:#x} (freed: first)" in lines["#1"]
    assert f"bytes at {va:#x} (freed or never handed out" in lines["#2"]
    assert f"bytes at {va:#x} (freed: second)" in lines["#3"]
    assert "bytes at third " in lines["#4"]


def test_a_signal_in_the_memory_of_another_one_is_told_by_its_own_name(device: CpuDevice) -> None:
    old = device.signal("old")
    va = old.va
    device.queue().signal(old, 1).submit().wait()
    del old
    new = device.signal("new")
    assert new.va == va
    device.queue().signal(new, 1).submit().wait()
    told = report.describe(device, "asked for")
    assert re.search(rf"#1 signal {va:#x} \(freed: old\) = 1", told)
    assert "#2 signal new = 1" in told
