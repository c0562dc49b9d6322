"""A client of the Debug Adapter Protocol, after the published specification: what an editor does."""

from __future__ import annotations

import json
import re
from typing import Any

Message = dict[str, Any]


class Client:
    """One editor. Messages are checked against the base protocol as they come."""

    def __init__(self, reads: Any, writes: Any) -> None:
        self.reads, self.writes, self.seq = reads, writes, 0
        self.events: list[Message] = []
        self.numbers = 0
        self.seen: list[Message] = []  # all that came

    def send(self, command: str, **arguments: Any) -> int:
        return self.send_any(command, arguments)

    def send_any(self, command: str, arguments: Any) -> int:
        """A request, whatever its arguments are."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(request).encode()
        self.writes.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.writes.flush()
        return self.seq

    def receive(self) -> Message:
        header = self.reads.readline()
        found = re.fullmatch(rb"Content-Length: (\d+)\r\n", header)
        assert found, [header, *self.seen[-5:]]
        assert self.reads.readline() == b"\r\n"
        message: Message = json.loads(self.reads.read(int(found[1])))
        self.numbers += 1
        assert message["seq"] == self.numbers
        assert message["type"] in ("response", "event")
        self.seen.append(message)
        return message

    def ask(self, command: str, **arguments: Any) -> Message:
        """The body of the response; events that come before it are kept."""
        response = self.response(self.send(command, **arguments))
        assert response["success"], response
        assert response["command"] == command
        body: Message = response.get("body", {})
        return body

    def response(self, seq: int) -> Message:
        while True:
            message = self.receive()
            if message["type"] == "response" and message["request_seq"] == seq:
                return message
            self.events.append(message)

    def event(self, name: str) -> Message:
        """The body of the next one of this name."""
        while True:
            for message in self.events:
                if message.get("event") == name:
                    self.events.remove(message)
                    found: Message = message.get("body", {})
                    return found
            self.events.append(self.receive())

    def stopped(self) -> Message:
        """The event, with the frames of its thread."""
        body = self.event("stopped")
        frames = self.ask("stackTrace", threadId=body["threadId"])["stackFrames"]
        return {**body, "frame": frames[0], "frames": frames}

    def variables(self, frame: int, scope: str) -> dict[str, Message]:
        scopes = self.ask("scopes", frameId=frame)["scopes"]
        number = next(one["variablesReference"] for one in scopes if one["name"] == scope)
        return {one["name"]: one for one in self.ask("variables", variablesReference=number)["variables"]}
