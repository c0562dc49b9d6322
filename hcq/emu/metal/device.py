"""MTLDevice: it says what it is, and makes everything else.

In       messages
Out      its figures; new objects, or nil and an error
Next     gpu.py (what it is to others), resources.py and commands.py (what it makes), shader/ (MSL), spec.py (the
         figures)
Source   MTLDevice.h
"""

from __future__ import annotations

from hcq.emu.metal.commands import Queue
from hcq.emu.metal.gpu import Gpu
from hcq.emu.metal.objects import CompileOptions, Error, String
from hcq.emu.metal.resources import Buffer, Function, Library, Pipeline, SharedEvent
from hcq.emu.metal.runtime import Object, answers
from hcq.emu.metal.shader.errors import MslError
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Program
from hcq.errors import DriverError
from hcq.metal.abi import messages

FIRST_FAMILY = 1001  # MTLGPUFamilyApple1; those of Apple's include the ones before them


class Device(Gpu):
    """One GPU."""

    @answers(messages.DEVICE_NAME)
    def _name(self) -> String:
        return String(self.runtime, self.spec.name)

    @answers(messages.SUPPORTS_FAMILY)
    def _supports_family(self, number: int) -> int:
        return int(FIRST_FAMILY <= number <= self.spec.family)

    @answers(messages.MAX_BUFFER_LENGTH)
    def _max_buffer_length(self) -> int:
        return self.spec.max_buffer_bytes

    @answers(messages.WORKING_SET)
    def _working_set(self) -> int:
        return self.spec.working_set_bytes

    @answers(messages.HAS_UNIFIED_MEMORY)
    def _has_unified_memory(self) -> int:
        return 1

    @answers(messages.MAX_THREADGROUP_MEMORY)
    def _max_threadgroup_memory(self) -> int:
        return self.spec.shared_bytes

    @answers(messages.NEW_QUEUE)
    def _new_queue(self, most: int) -> Object:
        if not most:
            raise self.refuse(f"{messages.NEW_QUEUE}: a queue has at least one command buffer.")
        return Queue(self, most)

    @answers(messages.NEW_BUFFER)
    def _new_buffer(self, length: int, options: int) -> Object | None:
        if not length:
            raise self.refuse(f"{messages.NEW_BUFFER}: a buffer has at least one byte.")
        if options != messages.STORAGE_SHARED:
            raise self.refuse(f"{messages.NEW_BUFFER}: options {options:#x}; only shared memory is emulated.")
        if length > self.spec.max_buffer_bytes or self.allocated_bytes + length > self.spec.memory_bytes:
            return None
        try:
            return Buffer(self, length)
        except DriverError:
            return None

    @answers(messages.NEW_SHARED_EVENT)
    def _new_shared_event(self) -> Object:
        return SharedEvent(self)

    @answers(messages.NEW_LIBRARY, "NSString", "MTLCompileOptions?")
    def _new_library(self, source: String, options: CompileOptions | None, error: bytearray) -> Object | None:
        if options is None or options.is_fast:
            self._fail(error, "fast math is not emulated: its results are nobody's in particular")
            return None
        try:
            read = parse(source.text)
            return Library(
                self, {name: Program(read, one, self.spec.kernels) for name, one in read.kernels.items()}
            )
        except MslError as problem:
            self._fail(error, str(problem))
            return None

    @answers(messages.NEW_PIPELINE, "MTLFunction")
    def _new_pipeline(self, function: Function, error: bytearray) -> Object | None:
        program = function.program
        if program.shared_bytes > self.spec.shared_bytes:
            self._fail(
                error,
                f"threadgroup memory of {program.shared_bytes} bytes exceeds the maximum of {self.spec.shared_bytes}",
            )
            return None
        if program.most_threads > self.spec.max_threads:
            self._fail(
                error,
                f"{program.most_threads} threads in a threadgroup; {self.spec.max_threads} is the maximum",
            )
            return None
        return Pipeline(self, program)

    def _fail(self, error: bytearray, why: str) -> None:
        """An NSError for the caller, which its pool releases."""
        made = Error(self.runtime, why)
        error[:8] = self.runtime.autorelease(made, "NSError").to_bytes(8, "little")
