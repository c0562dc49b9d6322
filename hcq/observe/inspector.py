"""Inspector's thread: answers `python -m hcq inspect` of other processes of this user, also while the program hangs.

In       connections to a socket in a private folder; a request is one line of JSON, as {"views": ["rings"]}
Out      one JSON document for each request: what state.py says
Changes  a socket `PID.sock` in the folder `inspect` of HCQ_CACHE_DIR, gone when the process ends; a daemon thread
Next     state.py (what is answered), hcq/inspect/client.py (who asks), hcq/system/private_files.py (the folder)
Source   unix(7): SO_PEERCRED, and that a connection to a socket that nobody listens to is refused

The folder and the credentials of the peer keep other users out. Within that, a client may be slow or hostile: it has
DEADLINE_S for all of its conversation, REQUEST_BYTES for its request, and at most CLIENTS talk at a time; others wait
in the queue of the kernel. Nothing here takes a lock of a device.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcq.device import Device
from hcq.errors import HcqError, UsageError
from hcq.lifetime import open_devices
from hcq.observe import state
from hcq.system import private_files

FOLDER = "inspect"
DEADLINE_S = 2.0
REQUEST_BYTES = 4096
REPLY_BYTES = 4 << 20
CLIENTS = 8
PAUSE_S = 0.1
CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def socket_folder(cache_dir: Path, make: bool = False) -> int:
    """A descriptor of the folder of sockets, which no other user can enter.

    Raises  OSError when there is none; UsageError when it is not this user's alone
    """
    outer = private_files.open_folder(cache_dir, make)
    try:
        return private_files.open_inner(outer, FOLDER, make)
    finally:
        os.close(outer)


def address(folder: int, name: str) -> str:
    """The address of a socket in an open folder: short enough for every folder, and of no other one."""
    return f"/proc/self/fd/{folder}/{name}"


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel says."""
    text = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(text)
    return pid, uid


def remove_left_over(folder: int, besides: str = "") -> list[str]:
    """Remove the sockets of processes that have ended. Returns the names of those that somebody listens to."""
    alive = []
    for name in sorted(os.listdir(folder)):
        if name == besides or not name.endswith(".sock"):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(address(folder, name))
            except BlockingIOError:  # its queue is full: somebody is there
                pass
            except ConnectionRefusedError:
                private_files.remove(name, folder)
                continue
            except OSError:
                continue
        alive.append(name)
    return alive


class _Client:
    """One conversation: a request comes in, then an answer goes out."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.ends = time.monotonic() + DEADLINE_S
        self.request = bytearray()
        self.reply = memoryview(b"")

    def is_over(self, answer: Answer) -> bool:
        """Go on with it; whether it ended."""
        try:
            if not self.reply:
                got = self.connection.recv(REQUEST_BYTES)
                self.request += got
                if not got or len(self.request) > REQUEST_BYTES:
                    return True
                if not self.request.endswith(b"\n"):
                    return False
                self.reply = memoryview(reply_to(bytes(self.request), answer))
            self.reply = self.reply[self.connection.send(self.reply) :]
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not self.reply


def reply_to(request: bytes, answer: Answer) -> bytes:
    """The answer to the line of a request, and of whatever else somebody sent."""
    try:
        asked = json.loads(request)
        if not isinstance(asked, dict):
            raise UsageError("a request is an object of JSON.")
        text = json.dumps(answer(asked), default=str)
        if len(text) > REPLY_BYTES:
            raise UsageError(
                f"the answer has {len(text)} bytes, more than {REPLY_BYTES}. Ask for fewer views."
            )
    except (ValueError, RecursionError) as error:
        text = json.dumps({"error": f"not a line of JSON: {error}"[:200]})
    except Exception as error:  # whatever the program is in the middle of, the next question may be answered
        kind = "" if isinstance(error, HcqError) else f"{type(error).__name__}: "
        text = json.dumps({"error": f"{kind}{error}"[:1000]})
    return text.encode()


class Server:
    """The socket of this process and the thread that answers there."""

    def __init__(self, cache_dir: Path, answer: Answer) -> None:
        self.answer = answer
        self.name = f"{os.getpid()}.sock"
        self.folder = socket_folder(cache_dir, make=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        hidden = f".{self.name}"
        try:
            remove_left_over(self.folder, besides=self.name)
            private_files.remove(hidden, self.folder)
            self.listener.bind(address(self.folder, hidden))
            self.listener.listen(CLIENTS)
            # only now does it have its name: what cannot be connected to is what a process has left behind
            os.replace(hidden, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except BaseException:
            self.forget()
            raise
        self.clients: dict[int, _Client] = {}
        self.is_ending = False
        self.thread = threading.Thread(target=self._run, name="hcq inspector", daemon=True)
        self.thread.start()

    def forget(self) -> None:
        """Close what is ours of it. In a child of fork the parent goes on with the same socket."""
        self.listener.close()
        for client in list(getattr(self, "clients", {}).values()):
            client.connection.close()
        os.close(self.folder)

    def close(self) -> None:
        """The process ends, or nobody is to be answered any more."""
        private_files.remove(self.name, self.folder)
        self.is_ending = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        except OSError:
            pass

    def _run(self) -> None:
        while not self.is_ending:
            # not epoll: a child of fork has the same one, and what is done there would happen here
            waiting = select.poll()
            if len(self.clients) < CLIENTS:
                waiting.register(self.listener, select.POLLIN)
            for descriptor, client in self.clients.items():
                waiting.register(descriptor, select.POLLOUT if client.reply else select.POLLIN)
            now = time.monotonic()
            left_s = min((client.ends - now for client in self.clients.values()), default=60.0)
            ready = {descriptor for descriptor, _ in waiting.poll(max(0.0, left_s) * 1000)}
            if self.listener.fileno() in ready and not self.is_ending:
                self._accept()
            now = time.monotonic()
            for descriptor, client in list(self.clients.items()):
                is_over = now > client.ends
                if is_over or (descriptor in ready and client.is_over(self.answer)):
                    del self.clients[descriptor]
                    client.connection.close()
        self.forget()

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            # the process has no descriptor left, perhaps: it is asked again, but not at once
            time.sleep(PAUSE_S)
            return
        try:
            is_ours = peer(connection)[1] == os.geteuid()
        except OSError:
            is_ours = False
        if not is_ours:
            connection.close()
            return
        connection.setblocking(False)
        self.clients[connection.fileno()] = _Client(connection)


_server: Server | None = None
_starting = threading.Lock()


def serve(device: Device) -> None:
    """Answer from now on, about this device and all others; one socket for each process.

    Raises  UsageError where the system has no SO_PEERCRED, or the folder is not this user's alone
    """
    global _server
    cache_dir = device.config.cache_dir
    state.watch(device)
    with _starting:
        if _server is not None:
            return
        if not hasattr(socket, "SO_PEERCRED"):
            raise UsageError(
                "HCQ_INSPECT=1 needs Linux: only there a socket tells which user asks. Unset it."
            )
        try:
            _server = Server(cache_dir, state.answer)
        except OSError as error:
            raise UsageError(
                f"HCQ_INSPECT=1: no socket can be made in {cache_dir / FOLDER} ({error.strerror}). "
                "Set HCQ_CACHE_DIR to a folder of yours."
            ) from None


def stop() -> None:
    """Answer no more."""
    global _server
    server, _server = _server, None
    if server is not None:
        server.close()


def _in_child() -> None:
    """A child of fork leaves the socket to its parent. Its own devices get one of its own."""
    global _server, _starting
    _starting = threading.Lock()
    server, _server = _server, None
    if server is not None:
        server.forget()


open_devices.in_child.append(_in_child)
atexit.register(stop)
