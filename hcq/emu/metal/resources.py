"""What a device makes: buffers, events, libraries, functions, pipelines.

In       messages
Out      their answers
Changes  memory of buffers, values of events
Next     device.py (who makes them), commands.py (who uses them), shader/ (MSL)
Source   MTLBuffer.h, MTLEvent.h, MTLLibrary.h, MTLComputePipeline.h; Apple's documentation of
         MTLSharedEvent.signaledValue: it changes for a larger value only
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from hcq.emu.metal.gpu import Gpu
from hcq.emu.metal.objects import String
from hcq.emu.metal.runtime import Object, answers
from hcq.emu.metal.shader.program import Program
from hcq.metal.abi import messages
from hcq.system import native
from hcq.system.port import MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, LinuxPort

PAGE_BYTES = 16 << 10  # of Apple's systems


class Buffer(Object):
    """MTLBuffer, whose memory host and GPU share. `data` is all of it."""

    kind = "MTLBuffer"

    def __init__(self, device: Gpu, length: int) -> None:
        self.port = LinuxPort()
        self.mapped_bytes = -(-length // PAGE_BYTES) * PAGE_BYTES
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        self.address = self.port.mmap(0, self.mapped_bytes, PROT_READ | PROT_WRITE, flags)
        super().__init__(device.runtime)
        self.device, self.size = device, length
        device.allocated_bytes += length
        self.data = np.frombuffer(native.view(self.address, length), np.uint8)

    def dealloc(self) -> None:
        self.device.allocated_bytes -= self.size
        del self.data
        self.port.munmap(self.address, self.mapped_bytes)

    @answers(messages.CONTENTS)
    def _contents(self) -> int:
        return self.address

    @answers(messages.LENGTH)
    def _length(self) -> int:
        return self.size


class SharedEvent(Object):
    """MTLSharedEvent: a value that all queues of a process and the host set and await. It only rises."""

    kind = "MTLSharedEvent"

    def __init__(self, device: Gpu) -> None:
        super().__init__(device.runtime)
        self.device = device
        self.value = 0

    def set(self, value: int) -> None:
        """Set it and wake whoever waits; a smaller value than there is has no effect, whoever sets it."""
        with self.device.changed:
            self.value = max(self.value, value)
            self.device.changed.notify_all()

    @answers(messages.SIGNALED_VALUE)
    def _signaled_value(self) -> int:
        return self.value

    @answers(messages.SET_SIGNALED_VALUE)
    def _set_signaled_value(self, value: int) -> None:
        self.set(value)
        for look in tuple(self.device.watches):
            look()

    @answers(messages.WAIT_SIGNALED)
    def _wait_until(self, value: int, timeout_ms: int) -> int:
        end = time.monotonic() + timeout_ms / 1000
        with self.device.changed:
            while self.value < value:
                left = end - time.monotonic()
                if left <= 0:
                    return 0
                self.device.changed.wait(left)
        return 1


class Library(Object):
    """MTLLibrary: MSL that was found to be right."""

    kind = "MTLLibrary"

    def __init__(self, device: Gpu, programs: Mapping[str, Program]) -> None:
        super().__init__(device.runtime)
        self.device = device
        self.programs = programs

    @answers(messages.NEW_FUNCTION, "NSString")
    def _new_function(self, name: String) -> Object | None:
        program = self.programs.get(name.text)
        return None if program is None else Function(self, program)


class Function(Object):
    """MTLFunction: a kernel of a library."""

    kind = "MTLFunction"

    def __init__(self, library: Library, program: Program) -> None:
        super().__init__(library.runtime)
        self.program = program


class Pipeline(Object):
    """MTLComputePipelineState."""

    kind = "MTLComputePipelineState"

    def __init__(self, device: Gpu, program: Program) -> None:
        super().__init__(device.runtime)
        self.program = program
        self.most = program.most_threads or device.spec.max_threads

    @answers(messages.MAX_THREADS)
    def _max_threads(self) -> int:
        return self.most

    @answers(messages.STATIC_MEMORY)
    def _static_memory(self) -> int:
        return self.program.shared_bytes
