"""Client: asks a process of this user that runs with HCQ_INSPECT=1 what its devices do.

In       its number, which views are wanted, a deadline
Out      what its hcq/observe/state.py says
Changes  removes sockets of processes that have ended
Next     command.py (the program), hcq/observe/inspector.py (who answers)

What comes back is of another program: it is bounded in size and time, and is parsed as JSON alone.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcq.errors import UsageError, WaitTimeout
from hcq.observe.inspector import FOLDER, REPLY_BYTES, address, peer, remove_left_over, socket_folder

BUSY_S = 0.01  # between two attempts
HINT = "Start the program with HCQ_INSPECT=1, as the same user and with the same HCQ_CACHE_DIR"


def processes(cache_dir: Path) -> list[int]:
    """The processes of this user that answer. Raises UsageError when the folder is not this user's alone."""
    try:
        folder = socket_folder(cache_dir)
    except OSError:
        return []
    try:
        names = [name.removesuffix(".sock") for name in remove_left_over(folder)]
    finally:
        os.close(folder)
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def ask(cache_dir: Path, pid: int, views: Sequence[str], deadline_s: float) -> dict[str, Any]:
    """What a process says about its devices.

    Raises  UsageError when nobody answers there, or another user does; WaitTimeout at the deadline
    """
    end = time.monotonic() + deadline_s
    try:
        folder = socket_folder(cache_dir)
    except OSError:
        raise UsageError(f"inspect {pid}: there is no folder {cache_dir / FOLDER}. {HINT}.") from None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                text = _exchange(connection, address(folder, f"{pid}.sock"), pid, views, end)
            except (ConnectionRefusedError, FileNotFoundError):
                remove_left_over(folder)
                raise UsageError(
                    f"inspect {pid}: no such process answers in {cache_dir / FOLDER}. {HINT}; "
                    "`python -m hcq inspect` lists those that answer."
                ) from None
            except TimeoutError:
                raise WaitTimeout(
                    f"inspect {pid}: no answer after {deadline_s:g} s. The process is stopped, or a call of C code "
                    "holds its interpreter. Give more time with --deadline."
                ) from None
            except OSError as error:
                raise UsageError(
                    f"inspect {pid}: the process ended the conversation ({error.strerror or error}). Try again."
                ) from None
    finally:
        os.close(folder)
    return _parsed(text, pid)


def _exchange(connection: socket.socket, where: str, pid: int, views: Sequence[str], end: float) -> bytes:
    while True:
        connection.settimeout(_left(end))
        try:
            connection.connect(where)
            break
        except BlockingIOError:  # so many ask that its queue is full
            time.sleep(BUSY_S)
    _, uid = peer(connection)
    if uid != os.geteuid():
        raise UsageError(
            f"inspect {pid}: another user (uid {uid}) listens there. Remove the socket, and see who made it."
        )
    connection.settimeout(_left(end))
    connection.sendall(json.dumps({"views": list(views)}).encode() + b"\n")
    found = bytearray()
    while True:
        connection.settimeout(_left(end))
        part = connection.recv(1 << 16)
        if not part:
            return bytes(found)
        found += part
        if len(found) > REPLY_BYTES:
            raise UsageError(
                f"inspect {pid}: the answer is longer than {REPLY_BYTES} bytes, so it is none of ours."
            )


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _parsed(text: bytes, pid: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"inspect {pid}: the answer is no JSON of ours. Is it another version of hcq?")
    if "error" in found:
        raise UsageError(f"inspect {pid}: {str(found['error'])[:1000]}")
    return found
