"""serve: what the page's server hands out, and to whom."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hcq.errors import DriverError, UsageError
from hcq.tools.trace.serve import FILES, PAGE, PageServer
from tests.tools.trace.making import CELL, Maker


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    made = Maker()
    made.device()
    made.alloc(CELL, 64, "a buffer")
    made.submit()
    server = PageServer(str(made.write(tmp_path / "t.hcqtrace")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def get(
    server: PageServer, path: str, host: str = "", inside: bool = True
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Ask for a path exactly as it stands, below the secret."""
    address, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(address), int(port), timeout=10)
    connection.putrequest("GET", f"/{server.secret}/{path}" if inside else path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


def test_only_this_machine_can_connect(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_of_the_page_is_there(server: PageServer, name: str) -> None:
    status, content, headers = get(server, name)
    assert status == 200
    assert content == (PAGE / FILES[name][0]).read_bytes()
    assert headers["Content-Type"].startswith(FILES[name][1])
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


def test_the_page_has_no_file_that_is_not_served() -> None:
    assert {path.name for path in PAGE.iterdir()} == {file for file, _ in FILES.values()}


@pytest.mark.parametrize(
    "path",
    [
        "../serve.py",
        "..%2fserve.py",
        "%2e%2e/serve.py",
        "page.css/../../serve.py",
        "/etc/passwd",
        "//etc/passwd",
        "..\\serve.py",
        "page.css%00",
        "index.html",
        "data",
        "data/",
        "data/../page.js",
    ],
)
def test_nothing_else_is_there(server: PageServer, path: str) -> None:
    assert get(server, path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/page.js", "/wrong/", "/wrong/data/timeline", "", "*"])
def test_without_the_secret_there_is_nothing(server: PageServer, path: str) -> None:
    status, content, _ = get(server, path, inside=False)
    assert status in (400, 404)
    assert b"a buffer" not in content


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil"]
)
def test_another_name_for_this_machine_is_refused(server: PageServer, host: str) -> None:
    assert get(server, "data/timeline", host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:8000", "[::1]:8000"])
def test_a_forwarded_port_is_accepted(server: PageServer, host: str) -> None:
    assert get(server, "data/timeline", host)[0] == 200


@pytest.mark.parametrize("number", ["", "x", "-1", "1e3", "9" * 30, "٣", "5"])
def test_a_bad_number_is_a_sentence(server: PageServer, number: str) -> None:
    status, content, _ = get(server, f"data/submission?number={urllib.request.quote(number)}")
    assert status == 400
    assert "takes a whole number" in json.loads(content)["error"] or "holds 1" in json.loads(content)["error"]


def test_reloading_the_page_shows_what_was_added_to_the_file(server: PageServer) -> None:
    def count() -> int:
        return len(json.loads(get(server, "data/timeline")[1])["submissions"]["value"])

    assert count() == 1
    more = Maker()
    more.device()
    more.alloc(CELL, 64, "a buffer")
    more.submit()
    more.submit()
    more.write(Path(server.paths[0]))
    assert count() == 2


def test_an_address_that_is_none_is_a_bad_request(
    server: PageServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in ("http://[x", "http://x]/"):
        status, content, _ = get(server, path, inside=False)
        assert (status, content) == (400, f"{path!r} is no address.\n".encode())
    assert capfd.readouterr().err == ""


def test_so_many_connections_are_open_at_once_and_their_heads_have_a_deadline(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageServer, "most_connections", 2)
    monkeypatch.setattr(PageServer, "head_seconds", 1000.0)
    address = server.server_address[:2]
    with socket.create_connection(address) as first, socket.create_connection(address) as second:
        for one in (first, second):
            one.sendall(b"GET /")
        with socket.create_connection(address, timeout=60) as third:
            assert third.recv(4096) == b""
    wait_until(lambda: not server._open)
    monkeypatch.setattr(PageServer, "head_seconds", 0.05)
    with socket.create_connection(address, timeout=60) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\n")
        assert silent.recv(4096) == b""
    assert get(server, "data/timeline")[0] == 200


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_connection_that_says_nothing_holds_nobody_up(server: PageServer) -> None:
    with socket.create_connection(server.server_address[:2]):
        assert get(server, "data/timeline")[0] == 200


def test_a_port_that_is_taken_is_one_sentence(server: PageServer) -> None:
    with pytest.raises(DriverError, match=r"cannot listen on 127\.0\.0\.1:.*Leave --port out"):
        PageServer(*server.paths, port=int(server.server_address[1]))


def test_a_port_that_cannot_exist_is_one_sentence(server: PageServer) -> None:
    with pytest.raises(DriverError, match="Leave --port out"):
        PageServer(*server.paths, port=99_999)


def test_a_file_that_is_no_trace_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "no").write_bytes(b"something else")
    with pytest.raises(UsageError, match="not a trace"):
        PageServer(str(tmp_path / "no"))
    with pytest.raises(UsageError, match="cannot be read"):
        PageServer(str(tmp_path / "missing"))


def test_the_verb_prints_an_address_that_answers_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    made = Maker()
    made.device()
    path = made.write(tmp_path / "t.hcqtrace")
    program = "import sys; from hcq.tools.hcq_trace import main; sys.exit(main(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", program, "serve", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        url = child.stdout.readline().split()[-1]
        with urllib.request.urlopen(url + "data/timeline", timeout=10) as answer:
            assert json.load(answer)["lanes"][0]["device"] == "CPU"
        child.send_signal(2)
        _, errors = child.communicate(timeout=20)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 0
    assert "Traceback" not in errors
