"""A server of the Debug Adapter Protocol for one editor: on stdin and stdout, or at a port of this machine.

In       where it listens; a program, which an editor's `launch` can name instead
Out      the protocol; what the program prints, as events
Changes  this process: the program runs in it, with its output in a pipe
Next     dap.py (requests), command.py (who asks), docs/debugger.md (how editors are set up)
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from hcq.debug.arguments import number_of
from hcq.debug.dap import Editor
from hcq.debug.dap_protocol import Channel
from hcq.errors import HcqError, UsageError

PATIENCE_SECONDS = (
    2.0  # for the rest of the output, which a child may still hold open; for an editor to say goodbye
)


def serve(port: str | None, words: str, program: Sequence[str]) -> int:
    """Wait for an editor, then run what it launches. Returns the program's exit status.

    port   None: the editor is at the other end of stdin and stdout
    """
    if port is None:
        reads: BinaryIO = os.fdopen(os.dup(0), "rb")
        writes: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    else:
        reads, writes = _accept(number_of(port))
    editor = Editor(Channel(reads, writes))
    threading.Thread(target=editor.read, name="debug requests", daemon=True).start()
    editor.start.wait()
    forwarding = _redirect(editor)
    return _run(editor, words, list(program), forwarding)


def _accept(port: int) -> tuple[BinaryIO, BinaryIO]:
    if port > 65535:
        raise UsageError(f"debug --dap: {port} is no port. 0 takes a free one.")
    with socket.create_server(("127.0.0.1", port)) as listening:
        print(
            f"hcq debug: an editor can connect to 127.0.0.1:{listening.getsockname()[1]}",
            file=sys.stderr,
            flush=True,
        )
        connection, _ = listening.accept()
    return connection.makefile("rb"), connection.makefile("wb")


def _redirect(editor: Editor) -> list[threading.Thread]:
    """What the program prints becomes events. Returns the threads that see to it."""
    made = []
    for fd, category in ((1, "stdout"), (2, "stderr")):
        out, into = os.pipe()
        os.dup2(into, fd)
        os.close(into)
        thread = threading.Thread(target=_forward, args=(editor, out, category), name=f"debug {category}")
        thread.daemon = True
        thread.start()
        made.append(thread)
    return made


def _forward(editor: Editor, fd: int, category: str) -> None:
    with os.fdopen(fd, "rb", buffering=0) as pipe:
        while data := pipe.read(4096):
            editor.channel.event("output", {"category": category, "output": data.decode("utf-8", "replace")})


def _run(editor: Editor, words: str, program: list[str], forwarding: list[threading.Thread]) -> int:
    from hcq.debug.command import debug  # which imports this for --dap alone

    launch = editor.launch
    if "program" in launch:
        program = [str(launch["program"]), *map(str, launch.get("args") or [])]
    elif "module" in launch:
        program = ["-m", str(launch["module"]), *map(str, launch.get("args") or [])]
    status = 1
    try:
        if launch.get("cwd"):
            os.chdir(str(launch["cwd"]))
        for name, value in (launch.get("env") or {}).items():
            os.environ[str(name)] = str(value)
        if not program:
            raise UsageError("debug --dap: the launch names no `program`, and the command line none either.")
        status = debug(editor, str(launch.get("gpus") or words), program)
    except (HcqError, OSError) as error:
        editor.channel.event("output", {"category": "important", "output": f"{error}\n"})
    sys.stdout.flush()
    sys.stderr.flush()
    for fd in (1, 2):  # the other ends of the pipes see the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    for one in forwarding:
        one.join(PATIENCE_SECONDS)
    editor.has_ended = True
    editor.channel.event("exited", {"exitCode": status})
    editor.channel.event("terminated")
    editor.gone.wait(PATIENCE_SECONDS)
    return status
