"""A server of HTTP for this machine alone, whose connections, heads and waits are bounded.

In       a port; a handler of requests
Out      LocalServer, LocalHandler: what every server of ours has in common
Next     more/llm/server.py (answers of a language model), tools/trace/serve.py (a trace as a page), deadlines.py

Only this machine connects. A browser may carry requests of other pages here, which call it by other names: `is_called`
tells. Whoever takes too long for the head of a request, or for a piece of an answer, loses the connection.
"""

from __future__ import annotations

import io
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from hcq.errors import DriverError
from hcq.frontend.io.deadlines import Deadlines

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")  # how a browser may call us, also through `ssh -L`
SEND_BUFFER_BYTES = 1 << 16  # that wait in the kernel for who reads slowly


class BadAddress(Exception):
    """The address of a request is none: the answer is 400."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path[:80]!r} is no address.")


class LocalServer(ThreadingHTTPServer):
    """Answers requests, each connection in a thread. serve_forever() answers, shutdown() ends.

    most_connections   at once; one more is closed, and told why where `crowded` says something
    head_seconds       for the line and the headers of a request, all together
    write_seconds      to take a piece of an answer
    name, advice       how errors begin and end
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128  # that wait to be taken, or closed
    most_connections = 64
    head_seconds, write_seconds = 10.0, 30.0

    def __init__(self, handler: type[LocalHandler], port: int, name: str, advice: str) -> None:
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        try:
            super().__init__((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise DriverError(f"{name} cannot listen on {HOST}:{port} ({error}). {advice}") from None

    def crowded(self) -> bytes:
        """What one connection too many is told: an answer, or nothing. A browser asks again by itself."""
        return b""

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, unless there are too many."""
        with self._lock:
            is_taken = len(self._open) < self.most_connections
            if is_taken:
                self._open.add(request)
        if is_taken:
            super().process_request(request, client_address)
            return
        try:
            request.settimeout(1.0)
            request.sendall(self.crowded())
        except OSError:
            pass  # who does not listen either
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """A connection ends."""
        super().shutdown_request(request)
        with self._lock:
            self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; anything else is, and is printed."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class LocalHandler(BaseHTTPRequestHandler):
    """One connection. `line` is what its reads come through, with the deadline of the phase it is in."""

    server: LocalServer
    sys_version = ""

    def setup(self) -> None:
        """Reads have deadlines."""
        super().setup()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.line = Deadlines(self.connection)
        self.rfile.close()
        self.rfile = io.BufferedReader(self.line)

    def handle_one_request(self) -> None:
        """One request, whose head has to be here in time."""
        self.line.begin(self.server.head_seconds)
        super().handle_one_request()

    def send_response(self, code: int, message: str | None = None) -> None:
        """The first line of an answer; from here on each piece has its time."""
        self.connection.settimeout(self.server.write_seconds)
        super().send_response(code, message)

    def is_called(self) -> bool:
        """Whether the request calls this machine by a name of its own."""
        host = self.headers.get("Host", "").lower()
        return host.rpartition(":")[0] in NAMES or host in NAMES

    def address(self) -> SplitResult:
        """The address that is asked for. Raises BadAddress."""
        try:
            return urlsplit(self.path)
        except ValueError:
            raise BadAddress(self.path) from None

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal shows the address and stays quiet."""
