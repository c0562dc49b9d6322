"""Deadlines: what comes through a socket, until a moment by which a phase of the connection has to be over.

In       a socket; `begin`, with how many seconds the phase may take
Out      a raw stream to read from, which raises TimeoutError from that moment on
Changes  the socket's time-out, before each read
Next     local_server.py (who says what the phases are)

A time-out of a socket begins anew with every byte. Whoever sends one byte a second is never silent for long: only the
whole of a phase can be bounded.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any


class Deadlines(io.RawIOBase):
    """Reads from a socket. clock: seconds that only rise.

    >>> import socket
    >>> one, other = socket.socketpair()
    >>> line = Deadlines(other)
    >>> line.begin(10)
    >>> one.send(b"abc"), line.read(3)
    (3, b'abc')
    >>> one.close(), other.close()
    (None, None)
    """

    def __init__(self, connection: Any, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._connection, self._clock = connection, clock
        self._end = clock()

    def begin(self, seconds: float) -> None:
        """A phase begins that may take so long."""
        self._end = self._clock() + seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What has come. Raises TimeoutError once the phase has taken too long."""
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError("the phase took too long")
        self._connection.settimeout(left)
        return int(self._connection.recv_into(buffer))
