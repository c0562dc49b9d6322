"""A kernel: OpenCL C built for the device, and what its parameters take.

In       source, the kernel's name
Out      `Kernel`, ready to be launched; its arguments as 64-bit slots of a packet
Changes  OpenCL's program and kernel objects, released with it
Next     device.py (load, encode_dispatch), processor.py (who launches it)
Source   OpenCL 3.0 API specification: clGetKernelArgInfo, CL_KERNEL_ARG_*, CL_PROGRAM_BUILD_LOG
"""

from __future__ import annotations

import struct
from typing import Any

from hcq.device import Device
from hcq.errors import DriverError, UsageError
from hcq.memory import Buffer, kind_of
from hcq.program import Slot
from hcq_opencl.api import OpenCl

OPTIONS = b"-cl-std=CL1.2 -cl-kernel-arg-info"
BUILD_LOG, NUM_ARGS, ADDRESS, TYPE_NAME = 0x1183, 0x1191, 0x1196, 0x1198
GLOBAL = 0x119B  # CL_KERNEL_ARG_ADDRESS_GLOBAL
# of struct, by type
LETTERS = dict(zip("char uchar short ushort int uint long ulong float double".split(), "BBHHIIQQfd"))


class Kernel:
    """One kernel of a program. Raises UsageError, with the compiler's words, when the source or the name is wrong.

    slots  where each argument is behind a Launch packet, and its format
    kinds  "buffer", "int" or "float" for each
    """

    def __init__(self, cl: OpenCl, context: Any, device: Any, source: bytes, entry: str, name: str) -> None:
        self.cl, self.program, self.handle = cl, None, None
        self.kinds: list[str] = []
        self.slots: list[Slot] = []
        try:
            self._build(context, device, source, name)
            self._find(entry, name)
        except BaseException:
            self.release()
            raise

    def _build(self, context: Any, device: Any, source: bytes, name: str) -> None:
        cl, null = self.cl, self.cl.ffi.NULL
        text, size = cl.ffi.new("char[]", source), cl.ffi.new("size_t *", len(source))
        self.program = cl.create("clCreateProgramWithSource", context, 1, cl.ffi.new("char **", text), size)
        try:
            cl.call("clBuildProgram", self.program, 1, cl.ffi.new("void **", device), OPTIONS, null, null)
        except DriverError as error:
            log = cl.text("clGetProgramBuildInfo", self.program, device, BUILD_LOG)
            raise UsageError(f"load({name!r}): this is no OpenCL C. {error} Its compiler: {log}") from None

    def _find(self, entry: str, name: str) -> None:
        try:
            self.handle = self.cl.create("clCreateKernel", self.program, entry.encode())
        except DriverError as error:
            raise UsageError(f"load({name!r}): the source has no kernel {entry!r}. {error}") from None
        count = self.cl.number("clGetKernelInfo", self.handle, NUM_ARGS)
        for index in range(count):
            kind, letter = self._parameter(index, name)
            self.kinds.append(kind)
            self.slots.append(Slot(8 * index, struct.calcsize(letter), letter))

    def _parameter(self, index: int, name: str) -> tuple[str, str]:
        """(kind, letter of struct) of one."""
        where = self.cl.number("clGetKernelArgInfo", self.handle, index, ADDRESS)
        if where == GLOBAL:
            return "buffer", "Q"
        kind = self.cl.text("clGetKernelArgInfo", self.handle, index, TYPE_NAME)
        if kind not in LETTERS:
            raise UsageError(
                f"load({name!r}): parameter {index} is a {kind}. A kernel takes pointers to global memory and numbers."
            )
        return ("float" if LETTERS[kind] in "fd" else "int"), LETTERS[kind]

    def set_arguments(self, data: bytes) -> None:
        """Give OpenCL the arguments of a launch, as they stand in its packet."""
        cl = self.cl
        for index, (kind, slot) in enumerate(zip(self.kinds, self.slots)):
            value = data[slot.offset : slot.offset + slot.size_bytes]
            if kind == "buffer":
                va = cl.pointer(int.from_bytes(value, "little"))
                cl.call("clSetKernelArgSVMPointer", self.handle, index, va)
            else:
                cl.call("clSetKernelArg", self.handle, index, slot.size_bytes, cl.ffi.new("char[]", value))

    def release(self) -> None:
        """Give it back. A command that was enqueued keeps what it needs."""
        if self.handle is not None:
            self.cl.library.clReleaseKernel(self.handle)
        if self.program is not None:
            self.cl.library.clReleaseProgram(self.program)
        self.handle = self.program = None


def fitting(device: Device, call: str, arg: Any, kind: str, slot: Slot) -> Any:
    """An argument as a number that fits its slot.

    Raises  UsageError for what is no such argument, or not of this device; DeviceFault for memory without a result
    """
    given = kind_of(arg)
    if given != kind and (given, kind) != ("int", "float"):
        raise UsageError(f"{call}: {arg!r} is no {kind}.")
    if isinstance(arg, Buffer):
        if arg.device is not device:
            raise arg.elsewhere(call, device)
        arg.check_poison(call)
        return arg.address
    value = float(arg) if kind == "float" else arg.__index__()
    if not slot.holds(value):
        raise UsageError(f"{call}: {arg!r} does not fit {slot.size_bytes} bytes.")
    return value
