"""The thread of a command queue: command buffers in the order of commit, each step finished before the next.

In       command buffers that were committed
Out      their work done, or the error they end with
Changes  memory, events, the status of command buffers
Next     commands.py (the steps), shader/program.py (what a launch runs)
Source   MTLCommandBuffer.h: after too many errors Metal ignores what it is given
         (MTLCommandBufferErrorAccessRevoked); here a queue does so after one. MTLCommandBufferErrorTimeout: a command
         buffer that takes too long is interrupted

macOS ends work of a GPU that takes some seconds. What is emulated takes as long as it takes, while anybody may wait for
it. Once the host itself has set all events that a command buffer would set, nobody can, and the buffer has a second.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING

from hcq.emu.metal.shader.errors import KernelFault
from hcq.emu.metal.shader.stopping import Stop, Stopped
from hcq.events import kernel_debug
from hcq.metal.abi.messages import Status

if TYPE_CHECKING:
    from hcq.emu.metal.commands import CommandBuffer
    from hcq.emu.metal.gpu import Gpu

PATIENCE_SECONDS = 1.0  # for a command buffer for which nobody can be waiting
TIMED_OUT = "Caused GPU Timeout Error (00000002:kIOAccelCommandBufferCallbackErrorTimeout)"
IGNORED = "Ignored (for causing prior/excessive GPU errors)"


class Processor:
    """One thread, started with the first command buffer."""

    def __init__(self, device: Gpu) -> None:
        self.device = device
        self._todo: deque[CommandBuffer] = deque()
        self._is_stopped = self._has_failed = False
        self._thread: threading.Thread | None = None
        self.stopping = Stop()  # of the command buffer that runs now
        self._now: CommandBuffer | None = None  # that one
        self._timer: threading.Timer | None = None

    def take(self, buffer: CommandBuffer) -> None:
        """It is committed."""
        buffer.retain()
        with self.device.changed:
            self._todo.append(buffer)
            if self._thread is None:
                self.device.watches.add(self.watch)
                self._thread = threading.Thread(target=self._work, name="emulated Metal queue", daemon=True)
                self._thread.start()
            self.device.changed.notify_all()

    def stop(self) -> None:
        """There is no queue any more, so nothing is left to do: command buffers keep their queue."""
        with self.device.changed:
            self._is_stopped = True
            self.device.changed.notify_all()

    def _work(self) -> None:
        while True:
            with self.device.changed:
                self.device.changed.wait_for(lambda: self._todo or self._is_stopped)
                if not self._todo:
                    self.device.watches.discard(self.watch)
                    return
                buffer = self._now = self._todo[0]
                buffer.status = Status.SCHEDULED
            self.watch()
            why = IGNORED if self._has_failed else self._run(buffer)
            now = time.monotonic_ns() / 1e9
            with self.device.changed:
                self._todo.popleft()
                self._has_failed = bool(why)
                self._now, self._timer = None, None
                self.stopping.clear()
            buffer.end(Status.ERROR if why else Status.COMPLETED, now, why)
            buffer.release()

    def watch(self) -> None:
        """The host has set events: what runs for nobody is to end soon."""
        with self.device.changed:
            if self._now is None or self._timer is not None or not self._now.is_given_up:
                return
            self._timer = threading.Timer(PATIENCE_SECONDS, self._end, (self._now,))
            self._timer.daemon = True
            self._timer.start()

    def _end(self, buffer: CommandBuffer) -> None:
        with self.device.changed:
            if self._now is buffer:
                self.stopping.ask()

    def _run(self, buffer: CommandBuffer) -> str:
        """Its steps; why it failed, or ""."""
        for step in buffer.steps:
            if kernel_debug.debugger is not None:
                kernel_debug.debugger.packet("metal", step.told)
            if step.event is not None:
                event, value = step.event, step.value
                with self.device.changed:
                    self.device.changed.wait_for(lambda: event.value >= value)  # noqa: B023
                continue
            try:
                step.do()
            except Stopped:
                return TIMED_OUT
            except KernelFault as fault:
                self.device.runtime.lines.append(str(fault))
                return str(fault)
            except (
                Exception
            ) as error:  # a mistake of the emulation's: said, instead of a wait that never ends
                self.device.runtime.lines.append(traceback.format_exc())
                return f"the emulation itself failed: {type(error).__name__}: {error}"
        return ""
