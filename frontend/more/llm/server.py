"""Server: answers in the form of OpenAI's API, and a page to talk to the model, for programs on this machine alone.

In       requests of HTTP on 127.0.0.1
Out      JSON, or pieces of it as they are written (server-sent events)
Changes  nothing beside the engine's batch
Next     io/local_server.py (how it is reached), questions.py (what is asked for), engine.py (who answers),
         answers.py (what is sent), page.html (who asks)

Only this machine connects. Pages of other origins are refused, by name and by origin, as a browser would carry
their requests here. Whoever hangs up, or takes too long for what it says or takes, frees the slot.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
import traceback
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.local_server import HOST, BadAddress, LocalHandler, LocalServer
from hcq.frontend.more.llm.answers import Answer, hashed
from hcq.frontend.more.llm.engine import Engine, Failed, Full
from hcq.frontend.more.llm.questions import Reader, Refused

PAGE = Path(__file__).parent / "page.html"
MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0  # for its body
STOP_SECONDS = 3.0  # for answers that are written to say that they end here
JSON, STREAM, HTML = "application/json", "text/event-stream", "text/html; charset=utf-8"
HEADERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Connection": "close",
}
QUESTIONS = {"/v1/chat/completions": True, "/v1/completions": False}


class Server(LocalServer):
    """Answers for one model. `url` is where; serve_forever() answers, `stop` ends.

    seconds  that an answer may take
    """

    engine: Engine  # set once the port is had, and before anything is answered

    def __init__(self, reader: Reader, port: int = 0, seconds: float = 600.0):
        self.reader, self.seconds = reader, seconds
        self.began = int(time.time())
        advice = "Give another --port; 0 takes a free one."
        super().__init__(_Handler, port, "[llm]", advice)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{HOST}:{self.server_address[1]}/"

    @cached_property
    def page(self) -> tuple[bytes, str]:
        """The page, and what its browser may do for it: run and show what is in it, and ask us."""
        text = PAGE.read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src {hashed(text, 'script')}; style-src {hashed(text, 'style')}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return text.encode(), policy

    def crowded(self) -> bytes:
        """One connection too many is told in the form of all other errors."""
        body = json.dumps(Refused("there are too many connections.", None, 503).body).encode()
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n"
        return f"{head}Connection: close\r\n\r\n".encode() + body

    def stop(self) -> None:
        """Stop answering: what is being written ends, and says so."""
        self.engine.stop()
        deadline = time.monotonic() + STOP_SECONDS
        while self._open and time.monotonic() < deadline:
            time.sleep(0.01)
        self.server_close()


class _Handler(LocalHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "hcq-llm"

    def do_GET(self) -> None:
        self._guarded(self._get)

    def do_POST(self) -> None:
        self._guarded(self._post)

    def _other(self) -> None:
        self._guarded(self._refuse_method)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = _other

    def _guarded(self, act: Any) -> None:
        try:
            self._check_origin()
            act(self.address().path)
        except Refused as refused:
            self._send(refused.status, refused.body)
        except BadAddress as error:
            self._send(400, Refused(str(error)).body)
        except UsageError as error:  # as of a tokenizer that has no token for a letter
            self._send(400, Refused(str(error)).body)
        except (ConnectionError, TimeoutError):
            pass  # nobody listens any more
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._send(500, Refused(f"[llm] {type(error).__name__}: {error}", None, 500).body)
        self.close_connection = True

    def _check_origin(self) -> None:
        host = self.headers.get("Host", "").lower()
        origin = self.headers.get("Origin", "").lower()
        if not self.is_called():
            raise Refused("this server answers to 127.0.0.1 and localhost only.", None, 403)
        if origin and origin != f"http://{host}":
            raise Refused(f"pages of {origin[:80]} may not ask here.", None, 403)

    def _get(self, path: str) -> None:
        model = {
            "id": self.server.reader.model,
            "object": "model",
            "created": self.server.began,
            "owned_by": "hcq",
        }
        if path == "/":
            content, policy = self.server.page
            self._send_bytes(200, HTML, content, {"Content-Security-Policy": policy})
        elif path == "/v1/models":
            self._send(200, {"object": "list", "data": [model]})
        elif path.startswith("/v1/models/"):
            if unquote(path.removeprefix("/v1/models/")) != model["id"]:
                raise Refused(f"there is one model, {model['id']!r}.", "model", 404, "model_not_found")
            self._send(200, model)
        elif path == "/health":
            writing, waiting = self.server.engine.load
            self._send(200, {"status": "ok", "writing": writing, "waiting": waiting})
        else:
            self._refuse_path(path)

    def _refuse_path(self, path: str) -> None:
        known = ["/", "/health", "/v1/models", *QUESTIONS]
        if path in QUESTIONS:
            raise Refused(f"{path} takes POST.", None, 405)
        raise Refused(f"there is no {path[:80]} here; there are {', '.join(known)}.", None, 404)

    def _refuse_method(self, path: str) -> None:
        raise Refused(f"{self.command} {path[:80]}: use GET, or POST to ask a question.", None, 405)

    def _post(self, path: str) -> None:
        if path not in QUESTIONS:
            self._refuse_path(path)
        question = self.server.reader.question(self._body(), QUESTIONS[path])
        engine = self.server.engine
        if len(question.samplers) > engine.most:
            raise Refused(
                f"n says {len(question.samplers)}; there is room for {engine.most} answers, those that wait included.",
                "n",
            )
        try:
            asked = engine.submit(
                question.prompt, question.samplers, question.most, question.ends, question.likeliest
            )
        except Full as error:
            raise Refused(str(error), None, 429, "overloaded") from None
        except Failed as error:
            raise Refused(str(error), None, error.status) from None
        answer = Answer(question, asked, self.server.reader, self.server.seconds, self._is_listening)
        try:
            if question.is_stream:
                self._stream(answer)
            else:
                self._send(200, answer.whole())
        except Failed as error:
            raise Refused(str(error), None, error.status) from None
        finally:
            asked.give_up()

    def _stream(self, answer: Answer) -> None:
        parts = answer.parts()
        first = next(parts, None)  # what fails before is told by its status
        if first is None:
            return  # nobody listens any more
        self._head(200, STREAM, {})
        try:
            self._event(first)
            for part in parts:
                self._event(part)
        except Failed as error:
            self._event(Refused(str(error), None, error.status).body)
            return
        if answer.is_complete:
            self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, part: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(part).encode() + b"\n\n")

    def _is_listening(self) -> bool:
        """Whether the client is there still: one that hangs up can be read to its end."""
        try:
            poll = select.poll()
            poll.register(self.connection, select.POLLIN)
            return not poll.poll(0) or self.connection.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):
            return False

    def _body(self) -> bytes:
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise Refused(
                f"the body is {kind[:80] or 'of no kind'}; Content-Type has to be {JSON}.", None, 415
            )
        if self.headers.get("Transfer-Encoding"):
            raise Refused("bodies in chunks are not taken: send Content-Length.", None, 411)
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise Refused("Content-Length has to say how many bytes the body has.", None, 411)
        if int(text) > MAX_BODY_BYTES:
            raise Refused(f"the body has {text} bytes; {MAX_BODY_BYTES} are taken.", None, 413)
        size, parts = int(text), list[bytes]()
        self.line.begin(BODY_SECONDS)
        while size:
            try:
                part = self.rfile.read1(size)
            except TimeoutError:
                part = b""
            if not part:
                raise Refused(
                    f"the body ended, or took longer than {BODY_SECONDS:g} s, {size} bytes before its end.",
                    None,
                    408,
                )
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _send(self, status: int, found: dict[str, Any]) -> None:
        more = {"Retry-After": "1"} if status in (429, 503) else {}
        self._send_bytes(status, JSON, json.dumps(found).encode() + b"\n", more)

    def _send_bytes(self, status: int, kind: str, content: bytes, more: dict[str, str]) -> None:
        try:
            self._head(status, kind, {"Content-Length": str(len(content))} | more)
            if self.command != "HEAD":
                self.wfile.write(content)
        except (ConnectionError, TimeoutError):
            pass

    def _head(self, status: int, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind} | HEADERS | more).items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself, such as lines too long, in the form of all other errors."""
        self.command = self.command or ""
        self._send(code, Refused(message or self.responses.get(code, ("",))[0], None, code).body)
        self.close_connection = True


def serve(server: Server) -> None:
    """Answer until Ctrl-C, and stop cleanly."""
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        server.stop()
