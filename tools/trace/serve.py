"""Serve: a trace as a page in the browser: timeline, packets, kernels, memory. Nothing leaves this machine.

In       trace files; a port
Out      http://127.0.0.1:PORT/SECRET/ until Ctrl-C. The address is a secret of whoever started it: other users of the
         machine, and other pages in the browser, cannot ask for what they cannot name
Changes  nothing; the files are read again when one has grown. With --debug a debugger runs beside it
Next     page_data.py (what is handed out), page/index.html (who asks), frontend/io/local_server.py (how it is reached)

The files that can be had are a fixed table: no path of a request ever reaches the file system.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import SplitResult, parse_qs

from hcq.errors import HcqError, UsageError
from hcq.frontend.io.local_server import HOST, BadAddress, LocalHandler, LocalServer
from hcq.tools.trace import serve_program, step_graph
from hcq.tools.trace.debug_view import Debugging
from hcq.tools.trace.page_data import Json, PageData, plain
from hcq.trace.file import Trace

PAGE = Path(__file__).parent / "page"
MOST_BODY_BYTES = 1 << 14
WAIT_SECONDS = 10.0  # for news of the debugger, before the page asks again
HTML, SCRIPT, STYLE, DATA = "text/html", "text/javascript", "text/css", "application/json"
FILES = {
    "": ("index.html", HTML),
    "page.css": ("page.css", STYLE),
    "page.js": ("page.js", SCRIPT),
    "kit.js": ("kit.js", SCRIPT),
    "view.js": ("view.js", SCRIPT),
    "timeline.js": ("timeline.js", SCRIPT),
    "timeline_tips.js": ("timeline_tips.js", SCRIPT),
    "overview.js": ("overview.js", SCRIPT),
    "time.js": ("time.js", SCRIPT),
    "findings.js": ("findings.js", SCRIPT),
    "buffer.js": ("buffer.js", SCRIPT),
    "memory.js": ("memory.js", SCRIPT),
    "submission.js": ("submission.js", SCRIPT),
    "kernel.js": ("kernel.js", SCRIPT),
    "counters.js": ("counters.js", SCRIPT),
    "list.js": ("list.js", SCRIPT),
    "search.js": ("search.js", SCRIPT),
    "compile.js": ("compile.js", SCRIPT),
    "compile.css": ("compile.css", STYLE),
    "debug.js": ("debug.js", SCRIPT),
    "debug.css": ("debug.css", STYLE),
    "step_graph.js": ("step_graph.js", SCRIPT),
    "step_graph.css": ("step_graph.css", STYLE),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class PageServer(LocalServer):
    """Answers for a trace in one file or several. `url` is where; serve_forever() answers, shutdown() ends."""

    def __init__(
        self,
        *paths: str,
        port: int = 0,
        offsets: Mapping[str, int] | None = None,
        compiles: bool = False,
        debugs: bool = False,
    ) -> None:
        self.paths = paths
        self.debugging = Debugging(paths[0]) if debugs else None
        self.compiles = compiles  # kernels again, where the page asks how
        self.offsets = offsets
        self.lock = threading.Lock()
        self.rules_lock = threading.Lock()
        self._sizes: list[int] = []
        self._data = self.data(read_again=True)
        self.secret = secrets.token_urlsafe(12)
        super().__init__(_Handler, port, "serve:", "Leave --port out to take a free one.")

    @property
    def url(self) -> str:
        """Where the page is, its secret included."""
        return f"http://{HOST}:{self.server_address[1]}/{self.secret}/"

    def data(self, read_again: bool = False) -> PageData:
        """The trace as it was when a page was last opened; read again when the file has grown since."""
        if read_again:
            sizes = [_size(path) for path in self.paths]
            if sizes != self._sizes:
                self._data = PageData(self._read())
                self._sizes = sizes
        return self._data

    def _read(self) -> Trace:
        return Trace.read_all(self.paths, self.offsets)

    def answer(self, name: str, query: dict[str, list[str]]) -> Json:
        """The data of one address. Raises KeyError for one that does not exist, UsageError for a bad number."""
        # the rules take their time: meanwhile the page goes on with a reader of its own
        if name == "data/findings":
            with self.rules_lock:
                return PageData(self._read()).findings
        if name == "data/compile" and self.compiles:
            from hcq.tools.trace import compile_view  # loads the compiler

            with self.rules_lock:
                return compile_view.answer(self.data().trace, query)
        if name in _DEBUG_ROUTES:
            return _DEBUG_ROUTES[name](self.debugging, query)
        with self.lock:
            return _ROUTES[name](self.data(read_again=name == "data/timeline"), query)

    def told(self, name: str, what: Mapping[str, str]) -> Json:
        """What the page tells the debugger. Raises UsageError for what makes no sense."""
        debugging = _there(self.debugging)
        if name == "data/debug/say":
            return {"answer": debugging.say(what.get("line", ""))}
        if name == "data/debug/start":
            debugging.start(what.get("words", ""))
        else:
            debugging.pause()
        return {}

    def server_close(self) -> None:
        """The debugger ends with the page."""
        super().server_close()
        if self.debugging is not None:
            self.debugging.close()


def _there(debugging: Debugging | None) -> Debugging:
    if debugging is None:
        raise UsageError("this page debugs nothing. Start it with: hcq-trace serve --debug FILE")
    return debugging


def _turn(debugging: Debugging | None, query: dict[str, list[str]]) -> Json:
    if debugging is None:
        return {"enabled": False}
    after = query.get("after", [""])[0]
    is_turn = after.isascii() and after.isdecimal() and len(after) < 16
    return {"enabled": True, **debugging.wait(int(after) if is_turn else -1, WAIT_SECONDS)}


def _look(debugging: Debugging | None, query: dict[str, list[str]]) -> Json:
    names = [name for name in query.get("registers", [""])[0][:2000].split(",") if name]
    return _there(debugging).look(names, query.get("as", [""])[0][:8])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None


def _number(query: dict[str, list[str]], name: str) -> int:
    text = query.get(name, [""])[0]
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise UsageError(f"{name}={text[:40]!r}: takes a whole number.")
    return int(text)


_ROUTES: dict[str, Callable[[PageData, dict[str, list[str]]], Json]] = {
    "data/timeline": lambda data, query: data.timeline,
    "data/submission": lambda data, query: data.submission(_number(query, "number")),
    "data/kernels": lambda data, query: data.kernels,
    "data/kernel": lambda data, query: data.kernel(_number(query, "number")),
    "data/counters": lambda data, query: data.counters(
        _number(query, "number"), query.get("chip", [""])[0][:40]
    ),
    "data/findings": lambda data, query: data.findings,
    "data/memory": lambda data, query: data.memory,
    "data/compile": lambda data, query: {"enabled": False, "kernels": []},
    "data/step": lambda data, query: step_graph.answer(data.trace, query),
    "data/users": lambda data, query: data.buffers.users(_number(query, "span")),
    "data/touches": lambda data, query: data.buffers.touches(_number(query, "span")),
    "data/where": lambda data, query: data.where_time_went,
    "data/search": lambda data, query: data.search(query.get("text", [""])[0][:200]),
}

_DEBUG_ROUTES: dict[str, Callable[[Debugging | None, dict[str, list[str]]], Json]] = {
    "data/debug": _turn,
    "data/debug/look": _look,
}
TOLD = ("data/debug/start", "data/debug/say", "data/debug/pause")


class _Handler(LocalHandler):
    server: PageServer
    server_version = "hcq-trace"

    def do_GET(self) -> None:
        asked = self._asked()
        if asked is None:
            return
        _, _, name = asked.path.removeprefix("/").partition("/")
        if name in FILES:
            file, kind = FILES[name]
            self._send(200, kind, (PAGE / file).read_bytes())
        elif name in _ROUTES or name in _DEBUG_ROUTES:
            self._answer(lambda: self.server.answer(name, parse_qs(asked.query)))
        else:
            self._send(404, "text/plain", b"There is no such page here.\n")

    def do_POST(self) -> None:
        self.close_connection = True  # what is not read of a body is no next request
        asked = self._asked()
        if asked is None:
            return
        _, _, name = asked.path.removeprefix("/").partition("/")
        length = self.headers.get("Content-Length", "")
        if name not in TOLD:
            self._send(404, "text/plain", b"There is no such page here.\n")
        elif not self._is_ours():
            self._send(403, "text/plain", b"Only the page itself may ask for this.\n")
        elif not (
            length.isascii() and length.isdecimal() and len(length) < 9 and int(length) <= MOST_BODY_BYTES
        ):
            self._send(413, "text/plain", b"The request has no length, or a long one.\n")
        else:
            body = self.rfile.read(int(length))  # in the time that the head of a request has
            self._answer(lambda: self.server.told(name, _told(body)))

    def _asked(self) -> SplitResult | None:
        """The address of a request that may be answered; None: it has been refused."""
        if not self.is_called():
            self._send(403, "text/plain", b"This page answers to 127.0.0.1 and localhost only.\n")
            return None
        try:
            asked = self.address()
        except BadAddress as error:
            self._send(400, "text/plain", f"{error}\n".encode())
            return None
        secret = asked.path.removeprefix("/").partition("/")[0]
        if (
            not secrets.compare_digest(secret.encode(), self.server.secret.encode())
            or not asked.path.count("/") > 1
        ):
            self._send(404, "text/plain", b"Open the whole address that hcq-trace serve printed.\n")
            return None
        return asked

    def _is_ours(self) -> bool:
        """Whether a page of this server asks, and no other: forms of other pages can send no JSON."""
        origin = self.headers.get("Origin", "").removeprefix("http://")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        return origin in ("", self.headers.get("Host", "")) and kind == DATA

    def _answer(self, make: Callable[[], Json]) -> None:
        try:
            status, found = 200, make()
        except HcqError as error:
            status, found = 400, {"error": str(error)}
        text = json.dumps(plain(found), separators=(",", ":"), allow_nan=False)
        self._send(status, DATA, text.encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            for header, value in HEADERS.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(content)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the page was closed or went on to something else


def _told(body: bytes) -> dict[str, str]:
    """The words of a request. Raises UsageError for what are none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("debug: the request is no JSON.") from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise UsageError("debug: the request is no object of texts.")
    return found


def run(paths: Sequence[str], offsets: Mapping[str, int], options: argparse.Namespace) -> int:
    """The verb: print the address, answer until Ctrl-C. Returns the exit status."""
    if options.debug and not paths[0].endswith(".py") and len(paths) > 1:
        raise UsageError("serve --debug takes one trace, or a program and its arguments.")
    if (options.compile or options.debug) and paths[0].endswith(".py"):
        with serve_program.recorded(paths, with_data=options.debug) as path:
            return _serve([path], {}, options)
    return _serve(paths, offsets, options)


def _serve(paths: Sequence[str], offsets: Mapping[str, int], options: argparse.Namespace) -> int:
    with PageServer(
        *paths, port=options.port, offsets=offsets, compiles=options.compile, debugs=options.debug
    ) as server:
        print(f"{', '.join(paths)} is at {server.url}", flush=True)
        print(
            "Ctrl-C ends. From another machine: ssh -L PORT:127.0.0.1:PORT, with the port above.",
            file=sys.stderr,
        )
        if options.open and not webbrowser.open(server.url):
            print("hcq-trace serve: no browser could be started; open the address above.", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0
