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

`waitUntilCompleted` has no deadline, so a command buffer sets an event at its end, and the host waits for it in steps.
"""

from __future__ import annotations

import queue
import struct
import threading
import time

from hcq.metal.abi import messages
from hcq.metal.abi.messages import Status
from hcq.metal.event import EventCell
from hcq.metal.objc import Objc
from hcq.system import native

STEP_MS = 100  # a command buffer that failed sets no event, and a device may be closed: both are looked for this often
PAUSE_SECONDS = 0.0001  # between the event at the end of a command buffer and its status


class Stamps:
    """Writes stamps in the order they are asked for."""

    def __init__(self, objc: Objc, device: int) -> None:
        self.objc = objc
        self.ended = EventCell(objc, device)  # set by command buffers at whose end a stamp is
        self.event = EventCell(objc, device)  # set by the host, once it is stored
        self._asked = 0
        self._is_closing = False
        self._requests: queue.SimpleQueue[tuple[int, int, int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def next(self) -> int:
        """The number of the next stamp: a command buffer sets `ended` to it last of all."""
        return self._asked + 1

    def after(self, command_buffer: int, address: int) -> int:
        """Store when a command buffer ended, which sets `ended` to `next()`.

        The command buffer is retained. Returns the value of `event` that says that the stamp is there.
        """
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
                if self._ends(command_buffer, value):
                    seconds = self.objc.send(command_buffer, messages.GPU_END_TIME)
                    now = int(seconds * 1e9) or time.monotonic_ns()  # one without work may have none
                    native.write(address, struct.pack("<Q", now), 8)
                self.objc.release(command_buffer)
                self.event[0] = value

    def _ends(self, command_buffer: int, value: int) -> bool:
        """Wait until it has ended, well or not. False when the device is closed before it has."""
        while self.objc.send(command_buffer, messages.STATUS) < Status.COMPLETED:
            if self._is_closing:
                return False
            if self.ended[0] >= value:
                time.sleep(PAUSE_SECONDS)
            else:
                self.ended.wait(value, STEP_MS)
        return True

    def close(self, timeout_ms: float) -> bool:
        """End the thread, which no longer waits for what has not ended; False when it does not end in time."""
        if self._thread is not None:
            self._is_closing = True
            self._requests.put(None)
            self._thread.join(timeout_ms / 1000)
            if self._thread.is_alive():
                return False
        self.event.close()
        self.ended.close()
        return True
