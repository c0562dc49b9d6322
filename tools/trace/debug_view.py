"""Debug view: a debugger in a process of its own, for the page of a trace: started, asked, and ended with the page.

In       a trace with contents; lines of the debugger's prompt, as the page sends them
Out      Debugging: what state it is in, all that there is to see of a stop, what a line answers
Changes  a child process, which runs the kernels of the trace on emulated GPUs
Next     serve.py (who asks), page/debug.js (who shows it), hcq/debug/dap_look.py (the other side)

The debugger is the one of the prompt, and speaks the Debug Adapter Protocol, as with an editor. The page can say what
the prompt can: look, move, break. It cannot name programs, files or requests of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from typing import IO, Any

from hcq.config import Config
from hcq.errors import DriverError, UsageError

ANSWER_SECONDS = 120.0  # an `origin` through a long launch takes its time
MOST_LINES = 2000  # of output that are kept
MOST_SAID_BYTES = 2000  # of a line of the prompt
MOST_NAMES = 64
Message = dict[str, Any]


class Debugging:
    """One debugger at a time. `state`: none, starts, runs, stopped or ended; `turn` rises whenever anything changes."""

    def __init__(self, trace: str) -> None:
        self.trace = trace
        self.state, self.turn, self.status = "none", 0, 0
        self.output: deque[tuple[int, str]] = deque(maxlen=MOST_LINES)
        self._changed = threading.Condition()
        self._child: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._answers: dict[int, Message | None] = {}
        self._asking = threading.Lock()

    # ------------------------------------------------------------ what the page asks

    def start(self, words: str) -> None:
        """Begin, or begin again. words: of HCQ_SANITIZE, to look for while it runs. Raises UsageError for others."""
        Config.read({"HCQ_SANITIZE": words})
        with self._asking:
            self._end()
            environment = {name: value for name, value in os.environ.items() if name != "HCQ_TRACE"}
            if words:
                environment["HCQ_SANITIZE"] = words
            command = [sys.executable, "-m", "hcq", "debug", "--dap", "--", self.trace]
            with self._changed:
                self.output.clear()
                self._set("starts")
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                )
            child = self._child
            threading.Thread(target=self._read, args=(child,), name="debugger's answers", daemon=True).start()
            threading.Thread(
                target=self._complain, args=(child,), name="debugger's stderr", daemon=True
            ).start()
            self._ask("initialize", adapterID="hcq-trace serve")
            launch = self._send("launch", stopOnEntry=True)
            self._ask("setExceptionBreakpoints", filters=["end"])
            self._ask("configurationDone")
            self._answer(launch)

    def say(self, line: str) -> str:
        """A line of the prompt. Returns what it answers. Raises UsageError for one that is refused."""
        if len(line.encode()) > MOST_SAID_BYTES or not line.isprintable():
            raise UsageError(f"debug: a line has up to {MOST_SAID_BYTES} bytes, all of which can be printed.")
        with self._asking:
            return str(self._ask("evaluate", expression=line, context="repl")["result"])

    def pause(self) -> None:
        """Stop the kernel that runs."""
        with self._asking:
            self._ask("pause", threadId=1)

    def look(self, names: list[str], kind: str) -> Message:
        """All that there is to see of a stop."""
        with self._asking:
            return self._ask("hcqLook", registers=names[:MOST_NAMES], **{"as": kind})

    def wait(self, after: int, seconds: float) -> Message:
        """The state, as soon as it is another than that of a turn, and what was printed since."""
        with self._changed:
            self._changed.wait_for(lambda: self.turn != after, seconds)
            lines = [text for turn, text in self.output if turn > after or after > self.turn]
            return {"turn": self.turn, "state": self.state, "status": self.status, "output": lines}

    def close(self) -> None:
        """The page is no more."""
        self._end()

    # ------------------------------------------------------------ the other process

    def _set(self, state: str) -> None:
        self.state = state
        self.turn += 1
        self._changed.notify_all()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _send(self, command: str, **arguments: Any) -> int:
        child = self._child
        if child is None or self.state in ("none", "ended"):
            raise UsageError("debug: no debugger runs. Start it.")
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(message).encode()
        with self._changed:
            self._answers[self._number] = None
        assert child.stdin is not None
        try:
            child.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
            child.stdin.flush()
        except OSError:
            raise DriverError("debug: the debugger has ended. Start it again.") from None
        return self._number

    def _ask(self, command: str, **arguments: Any) -> Message:
        return self._answer(self._send(command, **arguments))

    def _answer(self, number: int) -> Message:
        """The body of a response. Raises UsageError with the sentence of one that refuses."""
        child = self._child
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._answers[number] is not None or self._child is not child or self.state == "ended"
                ),
                ANSWER_SECONDS,
            )
            message = self._answers.pop(number)
        if message is None:
            raise DriverError("debug: the debugger does not answer. Start it again.")
        if not message.get("success"):
            raise UsageError(str(message.get("message", "it was refused")))
        body: Message = message.get("body") or {}
        return body

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        while (message := _message(child.stdout)) is not None:
            with self._changed:
                if child is self._child:
                    self._take(message)
        status = child.wait()
        with self._changed:
            if child is self._child:
                if self.state != "ended":
                    self.status = status
                self._set("ended")

    def _take(self, message: Message) -> None:
        if message.get("type") == "response":
            if message.get("request_seq") in self._answers:
                self._answers[message["request_seq"]] = message
                self._changed.notify_all()
            return
        body = message.get("body") or {}
        name = message.get("event")
        if name == "output":
            self._print(str(body.get("output", "")))
        elif name == "stopped":
            self._set("stopped")
        elif name == "continued":
            self._set("runs")
        elif name == "exited":
            self.status = int(body.get("exitCode", 0))
            self._set("ended")

    def _print(self, text: str) -> None:
        self.turn += 1
        self.output.append((self.turn, text))
        self._changed.notify_all()

    def _complain(self, child: subprocess.Popen[bytes]) -> None:
        """What it says before it is ready to be asked."""
        assert child.stderr is not None
        for line in child.stderr:
            with self._changed:
                if child is self._child:
                    self._print(line.decode("utf-8", "replace"))


def _message(stream: IO[bytes]) -> Message | None:
    """The next one; None at the end."""
    length = 0
    while line := stream.readline():
        if line == b"\r\n":
            data = stream.read(length)
            return json.loads(data) if len(data) == length else None
        length = int(line.partition(b":")[2])
    return None
