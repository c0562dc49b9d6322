"""serve --debug: a debugger behind the page of a trace: who may ask it, what it shows, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.errors import DriverError, UsageError
from hcq.tools.trace.serve import MOST_BODY_BYTES, PageServer
from tests.hcq.debug.rig import PTX
from tests.hcq.debug.test_dap import PROGRAM
from tests.tools.trace.conftest import Done

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="session")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product of matrices with a planted store, recorded with contents on an emulated GPU."""
    folder = tmp_path_factory.mktemp("matmul")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "matmul.ptx").write_text(PTX)
    path = folder / "matmul.hcqtrace"
    found = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    own = {"HCQ_CACHE_DIR": str(folder / "cache"), "HCQ_EMULATE": "nv:sm_90", "HCQ_TRACE": f"{path},data"}
    subprocess.run([sys.executable, "program.py", "matmul.ptx"], cwd=folder, env={**found, **own}, check=True)
    return path


@pytest.fixture
def server(matmul: Path) -> Iterator[PageServer]:
    made = PageServer(str(matmul), debugs=True)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def ask(
    server: PageServer,
    method: str,
    name: str,
    body: object = None,
    headers: dict[str, str] = JSON,
    secret: str = "",
) -> tuple[int, Any]:
    """What the server answers: (status, data)."""
    connection = http.client.HTTPConnection("127.0.0.1", int(server.server_address[1]), timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(
        method, f"/{secret or server.secret}/data/{name}", data, headers if method == "POST" else {}
    )
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    is_data = answer.headers["Content-Type"].startswith("application/json")
    return answer.status, json.loads(text) if is_data else text.decode()


def say(server: PageServer, line: str) -> str:
    status, found = ask(server, "POST", "debug/say", {"line": line})
    assert status == 200, found
    return str(found["answer"])


def until(server: PageServer, state: str) -> dict[str, Any]:
    """The state of the debugger, once it is this one."""
    found: dict[str, Any] = {"turn": -1}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = ask(server, "GET", f"debug?after={found['turn']}")[1]
        if found["state"] == state:
            return found
    raise AssertionError(found)


def stopped(server: PageServer, line: str) -> dict[str, Any]:
    """Where it stops after a line that moves."""
    turn = ask(server, "GET", "debug")[1]["turn"]
    say(server, line)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = ask(server, "GET", f"debug?after={turn}")[1]
        turn = found["turn"]
        if found["state"] == "stopped":
            seen: dict[str, Any] = ask(server, "GET", "debug/look")[1]
            return seen
    raise AssertionError(line)


def test_the_kernels_of_a_trace_are_stepped_in_both_directions(server: PageServer) -> None:
    assert ask(server, "POST", "debug/start", {"words": "race"})[0] == 200
    until(server, "stopped")
    say(server, "break finding")
    say(server, "break kernel matmul")
    first = stopped(server, "continue")
    assert (first["launch"], first["step"], first["past"]) == (1, 1, False)
    second = stopped(server, "step 3")
    assert second["step"] == 4
    assert second["text"] == next(one["text"] for one in second["code"] if one["here"])
    assert {one["name"] for one in second["registers"]} == {"%r1"}
    assert second["rows"][0]["lanes"] == "0-31"
    assert stopped(server, "reverse-step")["past"]
    found = stopped(server, "continue")
    while not found["reason"].startswith("finding"):
        found = stopped(server, "continue")
    assert found["thread"] == "block (3, 0, 0), thread (7, 0, 0)"
    assert found["points"][0]["text"].startswith("finding")
    assert "PTX line 47" in say(server, "origin C+20") or "PTX line 43" in say(server, "origin C+20")
    status, shown = ask(server, "GET", "debug/look?registers=%25f1,%25nothing&as=f32")
    assert status == 200
    assert "%f1" in [one["name"] for one in shown["registers"]]
    assert "%nothing" not in [one["name"] for one in shown["registers"]]


def test_what_a_trace_prints_and_how_it_ends_is_told(server: PageServer) -> None:
    ask(server, "POST", "debug/start", {"words": ""})
    until(server, "stopped")
    say(server, "continue")
    until(server, "stopped")  # behind its end, to go back from
    assert ask(server, "GET", "debug/look")[1]["reason"].startswith("the program has ended with status 0")
    say(server, "continue")
    ended = until(server, "ended")
    assert ended["status"] == 0
    assert "same results, bit for bit" in "".join(ask(server, "GET", "debug")[1]["output"])
    assert ask(server, "POST", "debug/say", {"line": "where"}) == (
        400,
        {"error": "debug: no debugger runs. Start it."},
    )
    ask(server, "POST", "debug/start", {"words": ""})  # and again
    until(server, "stopped")


def test_a_line_that_is_refused_is_a_sentence(server: PageServer) -> None:
    assert ask(server, "POST", "debug/say", {"line": "where"})[0] == 400
    assert ask(server, "GET", "debug/look")[0] == 400
    ask(server, "POST", "debug/start", {"words": ""})
    until(server, "stopped")
    for line in (
        "nonsense",
        "step",
        "break",
        "regs v0",
        "mem 0 99999999",
        "print __import__('os')",
        "x" * 3000,
        "a\nb",
    ):
        status, found = ask(server, "POST", "debug/say", {"line": line})
        assert status == 400, line
        assert found["error"]
    status, found = ask(server, "GET", "debug/look?as=f99")
    assert (status, "is no type" in found["error"]) == (400, True)


def test_a_word_that_is_none_is_refused_before_anything_starts(server: PageServer) -> None:
    status, found = ask(server, "POST", "debug/start", {"words": "race,everything"})
    assert status == 400
    assert "everything" in found["error"]
    assert ask(server, "GET", "debug")[1]["state"] == "none"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {**JSON, "Origin": "http://evil.example"},
        {**JSON, "Origin": "null"},
        {**JSON, "Host": "evil.example"},
    ],
)
def test_another_page_cannot_tell_the_debugger_anything(server: PageServer, headers: dict[str, str]) -> None:
    assert ask(server, "POST", "debug/start", {"words": ""}, headers)[0] == 403
    assert ask(server, "GET", "debug")[1]["state"] == "none"


def test_without_the_secret_nothing_is_told(server: PageServer) -> None:
    assert ask(server, "POST", "debug/start", {"words": ""}, secret="wrong")[0] == 404


@pytest.mark.parametrize("name", ["timeline", "debug", "debug/look", "debug/quit", "../data/debug/say"])
def test_only_what_a_debugger_is_told_is_taken(server: PageServer, name: str) -> None:
    assert ask(server, "POST", name, {})[0] == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"line": 3}', b"[" * 5000, b"\xff\xfe", b"null"])
def test_a_request_that_makes_no_sense_is_a_sentence(server: PageServer, body: bytes) -> None:
    status, found = ask(server, "POST", "debug/say", body)
    assert status == 400
    assert found["error"].startswith("debug: the request is no")


@pytest.mark.parametrize("length", ["", "x", "-1", str(MOST_BODY_BYTES + 1), "9" * 30])
def test_a_body_without_a_length_or_with_a_long_one_is_refused(server: PageServer, length: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(server.server_address[1]), timeout=30)
    connection.putrequest("POST", f"/{server.secret}/data/debug/say")
    connection.putheader("Content-Type", "application/json")
    if length:
        connection.putheader("Content-Length", length)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_without_the_option_there_is_no_debugger(matmul: Path) -> None:
    with PageServer(str(matmul)) as server:
        assert server.answer("data/debug", {}) == {"enabled": False}
        with pytest.raises(UsageError, match="serve --debug"):
            server.told("data/debug/start", {})


def test_the_debugger_ends_with_the_page(server: PageServer) -> None:
    ask(server, "POST", "debug/start", {"words": ""})
    until(server, "stopped")
    assert server.debugging is not None
    child = server.debugging._child
    assert child is not None
    assert child.poll() is None
    server.debugging.close()
    assert child.poll() is not None


def test_a_debugger_that_dies_is_told(server: PageServer) -> None:
    ask(server, "POST", "debug/start", {"words": ""})
    until(server, "stopped")
    assert server.debugging is not None
    assert server.debugging._child is not None
    server.debugging._child.kill()
    assert until(server, "ended")["status"] == -9
    with pytest.raises((UsageError, DriverError)):
        server.debugging.say("where")


def test_a_trace_without_contents_says_what_is_missing(tmp_path: Path, capsule: Path) -> None:
    made = PageServer(str(capsule), debugs=True)  # of a CPU device
    assert made.debugging is not None
    made.debugging.start("")
    deadline = time.monotonic() + 30
    while made.debugging.state != "ended" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "no device of it is a GPU that can be emulated here" in "".join(
        made.debugging.wait(-1, 1)["output"]
    )
    made.server_close()


def test_several_traces_are_refused(trace: Callable[..., Done], matmul: Path) -> None:
    done = trace("serve", "--debug", matmul, matmul)
    assert done.status == 2
    assert "takes one trace" in done.err
