"""Messages sent by hand: a program that is none of our driver, to an emulated runtime of its own.

In       a chip's word
Out      Raw: a device, a queue, and short names for what tests send
Changes  nothing that outlives the test
Next     test_runtime.py, test_shader.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcq.emu.metal.driver import emulate
from hcq.emu.metal.runtime import Runtime
from hcq.emu.port import EmulatedPort
from hcq.metal.abi import messages
from hcq.metal.objc import Objc
from hcq.system import native


class Raw(Objc):
    """One GPU and a queue."""

    def __init__(self, word: str = "metal:m3") -> None:
        self.runtime: Runtime = emulate([word])
        super().__init__(EmulatedPort([self.runtime]))
        self.pool_token = self.call(messages.PUSH_POOL)
        every = self.call(messages.COPY_ALL_DEVICES)
        self.gpu = self.send(every, messages.OBJECT_AT, 0)
        self.queue = self.make(self.gpu, messages.NEW_QUEUE, 16)

    def command_buffer(self) -> int:
        """A new one."""
        return self.make(self.queue, messages.COMMAND_BUFFER)

    def buffer(self, data: bytes) -> int:
        """One that holds this."""
        made = self.make(self.gpu, messages.NEW_BUFFER, len(data), messages.STORAGE_SHARED)
        native.write(self.send(made, messages.CONTENTS), data, len(data))
        return made

    def contents(self, buffer: int) -> bytes:
        """What is in it."""
        return native.read(self.send(buffer, messages.CONTENTS), self.send(buffer, messages.LENGTH))

    def pipeline(self, source: str, name: str = "k") -> int:
        """Of a kernel. Raises ValueError with the compiler's words."""
        options = self.make(self.class_named("MTLCompileOptions"), messages.NEW)
        self.send(options, messages.SET_FAST_MATH, False)
        library, why = self.make_or_explain(self.gpu, messages.NEW_LIBRARY, self.string(source), options)
        if not library:
            raise ValueError(why)
        function = self.make(library, messages.NEW_FUNCTION, self.string(name))
        found, why = self.make_or_explain(self.gpu, messages.NEW_PIPELINE, function)
        if not found:
            raise ValueError(why)
        return found

    def encoder(self, pipeline: int, *bound: Any) -> tuple[int, int]:
        """A command buffer and a compute encoder with this bound: buffers, or bytes."""
        command_buffer = self.command_buffer()
        encoder = self.make(command_buffer, messages.COMPUTE_ENCODER)
        self.send(encoder, messages.SET_PIPELINE, pipeline)
        for index, what in enumerate(bound):
            if isinstance(what, bytes):
                self.send(encoder, messages.SET_BYTES, what, len(what), index)
            else:
                self.send(encoder, messages.SET_BUFFER, what, 0, index)
        return command_buffer, encoder

    def run(self, source: str, bound: Sequence[Any], groups: int = 1, threads: int = 1) -> str:
        """Run kernel `k`; why it failed, or ""."""
        command_buffer, encoder = self.encoder(self.pipeline(source), *bound)
        self.send(encoder, messages.DISPATCH, (groups, 1, 1), (threads, 1, 1))
        self.send(encoder, messages.END_ENCODING)
        self.send(command_buffer, messages.COMMIT)
        self.send(command_buffer, messages.WAIT_UNTIL_COMPLETED)
        error = self.send(command_buffer, messages.ERROR)
        return self.explain(error) if error else ""


def numbers(data: bytes, kind: str) -> list[Any]:
    """Bytes as numbers of NumPy's kind."""
    found: list[Any] = np.frombuffer(data, kind).tolist()
    return found


def packed(*values: int) -> bytes:
    """Words of 32 bits."""
    return struct.pack(f"<{len(values)}I", *[value % 2**32 for value in values])
