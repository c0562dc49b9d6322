"""Inspect: a process tells another one of the same user what its devices do, also while it hangs, and nobody else."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hcq import __main__ as program
from hcq import config
from hcq.errors import UsageError, WaitTimeout
from hcq.inspect import client, text
from hcq.observe import inspector
from hcq.observe.inspector import Server

HANGS = """
import sys, hcq
device = hcq.open(sys.argv[1])
never = device.signal("never")
weights = device.alloc(4096, "weights")
device.queue().fill(weights, 3).submit().wait()
late = device.queue().wait(never, 1).fill(weights, 7).submit()
print("hangs", flush=True)
late.wait(60_000)
"""

SPINS = """
import hcq
device = hcq.open("NV")
ptx = ".version 7.8\\n.target sm_90\\n.address_size 64\\n.visible .entry spin() { L: bra L; }\\n"
spin = device.load(ptx.encode(), "spin", args=())
late = device.launch(spin, [], (2, 1, 1), (32, 1, 1))
print("spins", flush=True)
late.wait(60_000)
"""

FAULTS = """
import sys, hcq
device = hcq.open("NV")
ptx = ".version 7.8\\n.target sm_90\\n.address_size 64\\n.visible .entry stray() {\\n.reg .b64 %a;\\n"
ptx += "mov.b64 %a, 4096;\\nst.global.u32 [%a], 1;\\nret;\\n}\\n"
stray = device.load(ptx.encode(), "stray", args=())
try:
    device.launch(stray, [], (1, 1, 1), (32, 1, 1)).wait(60_000)
except hcq.DeviceFault as fault:
    print("fault", flush=True)
sys.stdin.readline()
device.close()
print("closed", flush=True)
sys.stdin.readline()
"""

REOPENS = """
import hcq
print("begins", flush=True)
while True:
    device = hcq.open("AMD")
    buffer = device.alloc(256, "buffer")
    for _ in range(3):
        device.queue().fill(buffer, 1).submit().wait()
    del buffer
    device.close()
"""

FORKS = """
import os, sys, hcq
device = hcq.open("CPU")
child = os.fork()
if child == 0:
    hcq.open("CPU").queue().submit().wait()
print(os.getpid(), flush=True)
sys.stdin.read()
if child:
    os.waitpid(child, 0)
"""


@contextmanager
def running(script: str, cache: Path, *words: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A process with HCQ_INSPECT=1, which has printed its first line."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    found |= {
        "HCQ_INSPECT": "1",
        "HCQ_CACHE_DIR": str(cache),
        "HCQ_REPORT": "off",
        "HCQ_THREADS": "2",
        **environ,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        env=found,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.first_line = process.stdout.readline().strip()  # type: ignore[attr-defined]
        assert process.first_line, "the program ended"  # type: ignore[attr-defined]
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """The folder of a test, as HCQ_CACHE_DIR of this process, too."""
    before = config.current()
    folder = tmp_path / "cache"
    config.use(config.Config.read({"HCQ_CACHE_DIR": str(folder)}))
    yield folder
    config.use(before)


@contextmanager
def serving(cache: Path, answer: Any = lambda asked: {"asked": asked}) -> Iterator[Server]:
    server = Server(cache, answer)
    try:
        yield server
    finally:
        server.close()
        server.thread.join(10)


def connect(cache: Path, pid: int | None = None) -> socket.socket:
    folder = inspector.socket_folder(cache)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(20)
    try:
        connection.connect(inspector.address(folder, f"{pid or os.getpid()}.sock"))
    finally:
        os.close(folder)
    return connection


# ------------------------------------------------------------ a process that hangs


@pytest.mark.parametrize(
    "name, emulate, queue",
    [
        ("CPU", "", ""),
        ("AMD", "amd:gfx1100", "pm4"),
        ("AMD", "amd:gfx942", "aql"),
        ("NV", "nv:sm_90", ""),
        pytest.param("AMD", "amd:gfx1201", "aql", marks=pytest.mark.thorough),
        pytest.param("METAL", "metal:m3", "", marks=pytest.mark.thorough),
    ],
)
def test_a_process_that_hangs_says_what_waits_for_what(
    name: str, emulate: str, queue: str, cache: Path
) -> None:
    with running(HANGS, cache, name, HCQ_EMULATE=emulate, HCQ_AMD_QUEUE=queue) as process:
        assert client.processes(cache) == [process.pid]
        state = client.ask(cache, process.pid, ["rings", "queues"], 30)
        (device,) = state["devices"]
        assert state["pid"] == process.pid
        assert device["timeline"] == {"done": 1, "submitted": 2}
        now = device["work"]["now"]
        assert now["value"] == 2
        assert now["commands"] == ["wait for never >= 1", "fill 4096 bytes at weights"]
        assert now["awaits"] == [{"signal": f"never of {name}", "value": 1, "is": 0, "set_by": []}]
        assert now["at_most_s"] >= 0
        assert [entry["value"] for entry in device["work"]["finished"]] == [1]
        deadline = time.monotonic() + 20
        while not device["waiting"] and time.monotonic() < deadline:  # it printed before it waited
            (device,) = client.ask(cache, process.pid, [], 30)["devices"]
        assert device["waiting"][0]["signal"] == "timeline"
        assert {"name": "weights", "buffers": 1, "bytes": 4096} in device["memory"]["by_name"]
        assert {"never": 0}.items() <= {one["name"]: one["value"] for one in device["signals"]}.items()
        page = "\n".join(text.page(state))
        assert "waits for never" in page and "NOT reached" in page and "weights" in page


def test_a_kernel_that_never_ends_is_named_while_it_runs(cache: Path) -> None:
    with running(SPINS, cache, HCQ_EMULATE="nv:sm_90") as process:
        (device,) = client.ask(cache, process.pid, ["rings", "queues"], 60)["devices"]
        assert device["timeline"] == {"done": 0, "submitted": 1}
        assert device["work"]["now"]["commands"] == ["kernel spin() grid=(2, 1, 1) block=(32, 1, 1)"]
        assert device["work"]["now"]["at_most_s"] is None  # nothing finished before it
        end = time.monotonic() + 30
        while not isinstance(found := device.get("waves"), list) and time.monotonic() < end:
            (device,) = client.ask(cache, process.pid, ["waves"], 60)["devices"]
        (wave,) = found
        assert (wave["many"], wave["unit"], wave["places"]) == (2, "warp", ["blocks 0-1"])
        assert wave["kernel"].startswith("spin PTX line ") and wave["instruction"].startswith("bra")
        page = "\n".join(text.page({"devices": [device]}))
        assert "waves     2 warps of blocks 0-1: kernel spin PTX line " in page


def test_where_there_are_no_waves_a_process_says_so(cache: Path) -> None:
    for name, emulate, says in (
        ("CPU", "", "there are none"),
        ("AMD", "amd:gfx1100", "none: no kernel of this process runs"),
    ):
        with running(HANGS, cache, name, HCQ_EMULATE=emulate) as process:
            (device,) = client.ask(cache, process.pid, ["waves"], 60)["devices"]
            assert device["waves"].startswith(says)
            assert f"waves     {says}" in "\n".join(text.page({"devices": [device]}))


@pytest.mark.parametrize(
    "emulate, queue, waits",
    [("amd:gfx1100", "pm4", "WaitRegMem"), ("amd:gfx90a", "aql", "Pm4Ib"), ("", "", "Wait(")],
)
def test_the_packet_at_get_is_the_one_that_waits(emulate: str, queue: str, waits: str, cache: Path) -> None:
    name = "AMD" if emulate else "CPU"
    with running(HANGS, cache, name, HCQ_EMULATE=emulate, HCQ_AMD_QUEUE=queue) as process:
        deadline = time.monotonic() + 20
        while True:
            (device,) = client.ask(cache, process.pid, ["rings"], 30)["devices"]
            packets = device["rings"][0]["packets"]
            marked = [one["packet"] for one in packets if one["is_at_get"]]
            if (marked and waits in marked[0]) or time.monotonic() > deadline:
                break
        assert len(marked) == 1 and waits in marked[0]
        ring = device["rings"][0]
        assert ring["get"] < ring["put"]
        # packets follow each other: each begins where the one before it ends
        for one, after in zip(packets, packets[1:]):
            assert one["at"] + one["word_count"] == after["at"]


def test_the_methods_of_the_segment_that_waits_are_shown(cache: Path) -> None:
    with running(HANGS, cache, "NV", HCQ_EMULATE="nv:sm_90") as process:
        (device,) = client.ask(cache, process.pid, ["rings", "queues"], 30)["devices"]
        shown = [one["packet"].strip() for one in device["rings"][0]["packets"]]
        assert any(one.startswith("GpEntry") for one in shown)
        assert any("SEM_EXECUTE" in one for one in shown)
        assert device["queues"][0]["fields"]["gpfifo_entries"] == device["rings"][0]["size"]


def test_mqds_of_an_emulated_gpu_are_those_of_its_rings(cache: Path) -> None:
    with running(HANGS, cache, "AMD", HCQ_EMULATE="amd:gfx1100", HCQ_AMD_QUEUE="pm4") as process:
        (device,) = client.ask(cache, process.pid, ["rings", "queues"], 30)["devices"]
        compute, copy = device["rings"]
        by_kind = {one["kind"]: one for one in device["queues"]}
        assert by_kind["Compute"]["fields"]["cp_hqd_pq_base"] == compute["address"]
        assert by_kind["Compute"]["fields"]["cp_hqd_pq_wptr"] == compute["put"]
        assert by_kind["SDMA"]["fields"]["sdmax_rlcx_rb_base"] == copy["address"]
        assert by_kind["Compute"]["pid"] == process.pid


def test_the_hardware_queue_of_a_process_that_hangs_is_shown_with_the_gpu_busy(cache: Path) -> None:
    with running(HANGS, cache, "AMD", HCQ_EMULATE="amd:gfx1100", HCQ_AMD_QUEUE="pm4") as process:
        (device,) = client.ask(cache, process.pid, ["registers"], 30)["devices"]
        (queue,) = device["registers"]["hardware_queues"]
        assert queue["fields"]["cp_hqd_pq_base"] == device["rings"][0]["address"]
        page = "\n".join(text.page({"devices": [device]}))
        assert "GUI_ACTIVE" in page and "hardware queue me 1, pipe 0, queue 0" in page


def test_devices_without_registers_say_so(cache: Path) -> None:
    with running(HANGS, cache, "CPU") as process:
        (device,) = client.ask(cache, process.pid, ["registers"], 30)["devices"]
        assert "shows no registers" in device["registers"]


def test_faults_and_devices_that_are_closed_stay_visible(cache: Path) -> None:
    with running(FAULTS, cache, HCQ_EMULATE="nv:sm_90") as process:
        assert process.first_line == "fault"  # type: ignore[attr-defined]
        (device,) = client.ask(cache, process.pid, ["rings"], 30)["devices"]
        assert len(device["faults"]) == 1 and "stray" in device["faults"][0]
        assert any("Xid" in line for line in device["kernel_log"])
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"
        state = client.ask(cache, process.pid, ["rings"], 30)
        assert state["devices"] == []
        (closed,) = state["closed"]
        assert closed["name"] == "NV" and "stray" in closed["why"]
        assert "closed    NV" in "\n".join(text.page(state))


def test_a_device_that_opens_and_closes_all_the_time_is_inspected_without_harm(cache: Path) -> None:
    """Rings are unmapped while they are looked at: that is told, and ends neither the program nor the answer."""
    with running(REOPENS, cache, HCQ_EMULATE="amd:gfx1100") as process:
        end = time.monotonic() + 30
        while not client.processes(cache) and time.monotonic() < end:
            time.sleep(0.01)
        for _ in range(40):
            state = client.ask(cache, process.pid, ["rings", "queues"], 30)
            assert list(text.page(state))
        assert process.poll() is None


def test_several_inspectors_are_answered_while_the_program_hangs(cache: Path) -> None:
    with running(HANGS, cache, "CPU") as process:
        found: list[dict[str, Any]] = []
        threads = [
            threading.Thread(target=lambda: found.append(client.ask(cache, process.pid, ["rings"], 60)))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert len(found) == 12
        assert {state["pid"] for state in found} == {process.pid}


# ------------------------------------------------------------ the end of a process, and fork


def test_the_socket_of_a_dead_process_is_removed(cache: Path) -> None:
    with running(HANGS, cache, "CPU") as process:
        place = cache / "inspect" / f"{process.pid}.sock"
        assert stat.S_ISSOCK(place.stat().st_mode)
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        process.kill()
        process.wait()
        assert place.exists()
        with pytest.raises(UsageError, match="no such process answers"):
            client.ask(cache, process.pid, [], 10)
        assert not place.exists()
        assert client.processes(cache) == []


def test_a_process_that_ends_takes_its_socket_with_it(cache: Path) -> None:
    with running(FORKS.replace("os.fork()", "1"), cache) as process:
        assert client.processes(cache) == [process.pid]
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        process.wait(30)
        assert list((cache / "inspect").iterdir()) == []


def test_a_child_of_fork_leaves_the_socket_to_its_parent(cache: Path) -> None:
    with running(FORKS, cache) as process:
        assert process.stdout is not None
        pids = {int(process.first_line), int(process.stdout.readline())}  # type: ignore[attr-defined]
        assert process.pid in pids
        for pid in client.processes(cache):
            assert client.ask(cache, pid, [], 30)["pid"] == pid
        assert process.pid in client.processes(cache)
        (child,) = pids - {process.pid}
        os.kill(child, signal.SIGKILL)
        assert client.ask(cache, process.pid, [], 30)["pid"] == process.pid


# ------------------------------------------------------------ hostile clients


def test_silent_clients_keep_nobody_out_for_longer_than_the_deadline(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "DEADLINE_S", 0.3)
    with serving(cache):
        silent = [connect(cache) for _ in range(inspector.CLIENTS)]
        assert client.ask(cache, os.getpid(), ["rings"], 30) == {"asked": {"views": ["rings"]}}
        assert all(one.recv(1) == b"" for one in silent)  # they were hung up on
        for one in silent:
            one.close()


def test_a_client_that_does_not_read_holds_nobody_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "DEADLINE_S", 0.3)
    with serving(cache, lambda asked: {"much": "x" * (3 << 20)}) as server:
        slow = connect(cache)
        slow.sendall(b"{}\n")
        assert len(client.ask(cache, os.getpid(), [], 30)["much"]) == 3 << 20
        end = time.monotonic() + 20
        while server.clients and time.monotonic() < end:
            time.sleep(0.01)
        assert not server.clients
        slow.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\n",
        b"[]\n",
        b"nonsense\n",
        b'{"views": 3}\n',
        b"\xff\xfe\n",
        b"[" * 4000 + b"\n",
        b'{"views": ["keys"]}\n',
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_words(cache: Path, sent: bytes) -> None:
    with serving(cache, inspector.state.answer):
        with connect(cache) as connection:
            connection.sendall(sent)
            found = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert list(json.loads(found)) == ["error"]
        assert client.ask(cache, os.getpid(), [], 30)["pid"] == os.getpid()


def test_a_request_without_end_is_cut_off(cache: Path) -> None:
    with serving(cache) as server:
        with connect(cache) as connection:
            try:
                for _ in range(64):
                    connection.sendall(b"x" * 4096)
                assert connection.recv(1) == b""
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert client.ask(cache, os.getpid(), [], 30)
        assert all(len(one.request) <= 2 * inspector.REQUEST_BYTES for one in server.clients.values())


def test_noise_from_many_clients_ends_nothing(cache: Path) -> None:
    random_bytes = random.Random(4)
    with serving(cache, inspector.state.answer) as server:
        for _ in range(60):
            with connect(cache) as connection:
                try:
                    connection.sendall(random_bytes.randbytes(random_bytes.randrange(200)) + b"\n")
                    if random_bytes.random() < 0.5:
                        connection.recv(100)
                except OSError:
                    pass
        assert server.thread.is_alive()
        assert client.ask(cache, os.getpid(), [], 30)["pid"] == os.getpid()


def test_another_user_gets_no_answer(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(cache):
        monkeypatch.setattr(inspector, "peer", lambda connection: (1, os.geteuid() + 1))
        with connect(cache) as connection:
            try:
                connection.sendall(b"{}\n")
                assert connection.recv(100) == b""
            except (BrokenPipeError, ConnectionResetError):
                pass


def test_a_socket_of_another_user_is_not_believed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(cache):
        monkeypatch.setattr(client, "peer", lambda connection: (1, os.geteuid() + 1))
        with pytest.raises(UsageError, match="another user"):
            client.ask(cache, os.getpid(), [], 10)


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="other users can write"):
        Server(tmp_path, lambda asked: {})
    with pytest.raises(UsageError, match="other users can write"):
        client.processes(tmp_path)


# ------------------------------------------------------------ hostile answers


@pytest.mark.parametrize(
    "answer, what",
    [
        (b"", "no JSON of ours"),
        (b"[1]", "no JSON of ours"),
        (b'{"error": "no"}', "no"),
        (b"{", "no JSON of ours"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_in_words(
    cache: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, what: str
) -> None:
    monkeypatch.setattr(inspector, "reply_to", lambda request, ask: answer or b" ")
    with serving(cache):
        with pytest.raises(UsageError, match=what):
            client.ask(cache, os.getpid(), [], 10)


def test_an_answer_that_does_not_come_is_a_timeout(cache: Path) -> None:
    go_on = threading.Event()
    with serving(cache, lambda asked: {"ready": go_on.wait(30)}):
        with pytest.raises(WaitTimeout, match="--deadline"):
            client.ask(cache, os.getpid(), [], 0.2)
        go_on.set()


def test_the_page_of_a_damaged_answer_has_no_traceback() -> None:
    """Whatever another process says, of any kind in any place, the page leaves out what it cannot show."""
    draw = random.Random(7)
    state: dict[str, Any] = {
        "pid": 1,
        "program": "x",
        "devices": [
            {
                "name": "AMD",
                "timeline": {"done": 1, "submitted": 2},
                "rings": [
                    {
                        "name": "r",
                        "get": 1,
                        "put": 2,
                        "size": 3,
                        "packets": [{"at": 1, "words": [1], "packet": "p"}],
                    }
                ],
                "waiting": [{"thread": "t", "since_s": 1.5, "line": "l"}],
                "work": {
                    "now": {"value": 1, "commands": ["a"], "at_most_s": 1, "awaits": [{"is": 1, "value": 2}]}
                },
                "memory": {"by_name": [{"name": "n", "bytes": 1, "buffers": 2}]},
                "queues": [{"name": "q", "notes": ["n"], "fields": {"a": 1}}],
                "faults": ["f"],
            }
        ],
        "closed": [{"name": "NV", "why": "closed"}],
    }

    def damaged(value: Any) -> Any:
        if draw.random() < 0.12:
            return draw.choice([None, 3, -1.5, "text", [], {}, [3], {"a": []}, True, [[]]])
        if isinstance(value, dict):
            return {key: damaged(inner) for key, inner in value.items() if draw.random() > 0.05}
        return [damaged(inner) for inner in value] if isinstance(value, list) else value

    assert "AMD" in "\n".join(text.page(state))
    for _ in range(500):
        broken = {key: damaged(value) for key, value in state.items()}
        assert list(text.page(broken)) and text.short(broken)


# ------------------------------------------------------------ the command


def test_the_command_lists_shows_and_refuses(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["inspect"]) == 0
    assert "HCQ_INSPECT=1" in capsys.readouterr().out
    with running(HANGS, cache, "CPU") as process:
        assert program.main(["inspect"]) == 0
        assert f"{process.pid}  CPU" in capsys.readouterr().out
        assert program.main(["inspect", str(process.pid), "--rings"]) == 0
        assert "words of  main" in capsys.readouterr().out
        assert program.main(["inspect", str(process.pid), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["format"] == 1
    for words in (
        ["12", "--gpu", "0"],
        ["x"],
        ["--rings"],
        ["1", "--deadline", "0"],
        ["--chip", "gfx1100"],
        ["99999999"],
    ):
        assert program.main(["inspect", *words]) == 2
        assert capsys.readouterr().err.startswith("hcq inspect: ")


def test_a_process_that_is_stopped_is_listed_with_the_reason(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(HANGS, cache, "CPU") as process:
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert program.main(["inspect", "--deadline", "0.3"]) == 0
            assert "no answer after 0.3 s" in capsys.readouterr().out
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert client.ask(cache, process.pid, [], 30)["pid"] == process.pid


def test_watching_shows_the_page_again_and_again(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    with running(HANGS, cache, "CPU") as process:
        monkeypatch.setattr("hcq.inspect.command.time.sleep", sleep)
        assert program.main(["inspect", str(process.pid), "--watch", "2"]) == 0
    assert rounds == [2.0] * 3
    assert capsys.readouterr().out.count("process   ") == 3
