"""Stamps: the GPU's time in memory, between one command buffer and the next.

In       a command buffer that was committed, and where its GPUEndTime is to be stored
Out      the value of an event that the next command buffer waits for
Changes  memory; a thread, made when the first stamp is asked for
Next     commands.py (who ends a command buffer where the time is asked for)
Source   MTLCommandBuffer.h: GPUEndTime is the host's time in seconds, 0 until the host was told of the end; Apple's
         documentation: it is relative to mach time, which is time.monotonic's on macOS

Metal tells when a command buffer ended only once it has, and to the host. So the host stores it, and what comes after
is held back until it has: time that is measured this way has a gap at each stamp, as long as the host takes to hear of
the end and the GPU to hear of the event.
"""

from __future__ import annotations

import queue
import struct
import threading
import time

from hcq import native
from hcq.metal.abi import messages
from hcq.metal.event import EventCell
from hcq.metal.objc import Objc


class Stamps:
    """Writes stamps in the order they are asked for."""

    def __init__(self, objc: Objc, device: int) -> None:
        self.objc = objc
        self.event = EventCell(objc, device)
        self._asked = 0
        self._requests: queue.SimpleQueue[tuple[int, int, int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def after(self, command_buffer: int, address: int) -> int:
        """Store when a command buffer ended; the event's value says that it is there. The command buffer is
        retained."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="hcq metal stamps", daemon=True)
            self._thread.start()
        self._asked += 1
        self._requests.put((self.objc.retain(command_buffer), address, self._asked))
        return self._asked

    def _work(self) -> None:
        while (asked := self._requests.get()) is not None:
            command_buffer, address, value = asked
            with self.objc.pool():
                self.objc.send(command_buffer, messages.WAIT_UNTIL_COMPLETED)
                seconds = self.objc.send(command_buffer, messages.GPU_END_TIME)
                now = int(seconds * 1e9) or time.monotonic_ns()  # one without work may have none
                native.write(address, struct.pack("<Q", now), 8)
                self.objc.release(command_buffer)
                self.event[0] = value

    def close(self, timeout_ms: float) -> bool:
        """End the thread; False when it still waits for a command buffer."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join(timeout_ms / 1000)
            if self._thread.is_alive():
                return False
        self.event.close()
        return True
