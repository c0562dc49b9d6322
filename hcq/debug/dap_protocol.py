"""Messages of the Debug Adapter Protocol: JSON behind a header that says how long it is, in both directions.

In       two streams of bytes
Out      Channel: requests that come, one after the other; responses and events that go, numbered
Changes  the streams
Next     dap.py (what requests mean), dap_server.py (where the streams come from)
Source   Debug Adapter Protocol, "Base Protocol": header fields, `Content-Length`, request, response, event
"""

from __future__ import annotations

import json
import threading
from typing import Any, BinaryIO

from hcq.errors import UsageError

MOST_BYTES = 1 << 26
MOST_HEADER_BYTES = 1 << 12


class Channel:
    """One editor."""

    def __init__(self, reads: BinaryIO, writes: BinaryIO) -> None:
        self._reads, self._writes = reads, writes
        self._number = 0
        self._lock = threading.Lock()

    def receive(self) -> dict[str, Any] | None:
        """The next request; None when the editor has gone. Raises UsageError for what is none."""
        length, seen = -1, 0
        while True:
            line = self._reads.readline(MOST_HEADER_BYTES)
            seen += len(line)
            if not line:
                return None
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
            if seen > MOST_HEADER_BYTES:
                raise UsageError("debug --dap: a header that does not end.")
        if not 0 <= length <= MOST_BYTES:
            raise UsageError(
                "debug --dap: a message without a Content-Length, or with one that is too large."
            )
        data = self._reads.read(length)
        if len(data) < length:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"debug --dap: a message that is no JSON: {error}.") from None
        if (
            not isinstance(found, dict)
            or found.get("type") != "request"
            or not isinstance(found.get("seq"), int)
        ):
            raise UsageError("debug --dap: a message that is no request with a seq.")
        return found

    def respond(self, request: dict[str, Any], body: dict[str, Any] | None = None, error: str = "") -> None:
        """Answer a request."""
        message: dict[str, Any] = {
            "type": "response",
            "request_seq": request["seq"],
            "success": not error,
            "command": str(request.get("command", "")),
        }
        if error:
            message["message"] = error
            message["body"] = {
                "error": {"id": 1, "format": error.replace("{", "(").replace("}", ")"), "showUser": True}
            }
        else:
            message["body"] = body or {}
        self._send(message)

    def event(self, name: str, body: dict[str, Any] | None = None) -> None:
        """Tell of something."""
        self._send({"type": "event", "event": name, "body": body or {}})  # some clients want a body always

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._number += 1
            data = json.dumps({"seq": self._number, **message}).encode()
            try:
                self._writes.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
                self._writes.flush()
            except (OSError, ValueError):  # the editor has gone
                pass
