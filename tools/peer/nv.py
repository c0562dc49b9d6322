"""tinygrad's NVIDIA driver on the emulated resource manager.

In       an EmulatedPort, or the emulated GPUs of `python -m hcq emulate`
Out      tinygrad's device NV
Changes  tinygrad's modules in this process
Next     door.py (its files), ../../hcq/emu/nv/rm.py (who answers), ../../hcq/emu/nv/code.py (who reads the PTX)

Its kernels are machine code, which is not emulated: the PTX of the same CUDA source is placed beside each of them, in
GPU memory that its driver allocates, as our own driver places it.
"""

from __future__ import annotations

import os
from typing import Any

from hcq.emu.port import EmulatedPort
from hcq.nv import ptx
from hcq.nv.abi.image import DESCRIPTOR_BYTES, KernelDescriptor, crc32
from hcq.nv.toolchain.nvrtc import compile_cuda
from hcq.tools.peer import door


def install(port: EmulatedPort | None) -> None:
    """Make this port's GPUs tinygrad's device NV; without one, those that the system shows. Before it is imported.

    Raises   UsageError, when a kernel is made, where nvrtc is not installed: its compiler and ours
    """
    os.environ["DEV"] = "NV"
    if port is not None:
        door.install(port)
    import tinygrad.device
    import tinygrad.runtime.ops_nv as driver

    sources: dict[bytes, str] = {}  # by machine code
    compile_cached, make_program = tinygrad.device.Compiler.compile_cached, driver.NVProgram.__init__

    def compile_and_note(self: Any, source: str) -> bytes:
        made: bytes = compile_cached(self, source)
        sources[made] = source
        return made

    def make_and_place(self: Any, device: Any, *args: Any, **kwargs: Any) -> None:
        make_program(self, device, *args, **kwargs)
        text = compile_cuda(sources[bytes(self.lib)], f"compute_{device.arch.removeprefix('sm_')}").ptx
        _place(self, text.encode())

    tinygrad.device.Compiler.compile_cached = compile_and_note
    driver.NVProgram.__init__ = make_and_place


def _place(program: Any, text: bytes) -> None:
    """PTX into memory of its own, and the descriptor that names it before the program's code."""
    from tinygrad.device import BufferSpec

    allocator, code = program.dev.allocator, program.lib_gpu
    name = program.name.encode() + b"\0"
    beside = allocator.alloc(len(text) + len(name), BufferSpec(nolru=True))
    allocator._copyin(beside, memoryview(bytearray(text + name)))
    descriptor = KernelDescriptor(
        ptx_address=beside.va_addr,
        ptx_bytes=len(text),
        entry_name_address=beside.va_addr + len(text),
        param_bytes=ptx.read_module(text.decode()).entries[program.name].param_bytes,
        ptx_crc32=crc32(text),
    ).to_bytes()
    # before it are sections that a GPU does not read, or a constant bank's template, of which the driver makes copies
    at = _address_of(program.qmd) - DESCRIPTOR_BYTES - code.va_addr
    if at < 0:
        raise RuntimeError(f"{program.name} begins with its memory: there is no place for the descriptor")
    allocator._copyin(code.offset(at, DESCRIPTOR_BYTES), memoryview(bytearray(descriptor)))
    program.dev.synchronize()


def _address_of(qmd: Any) -> int:
    """Where a launch description says that the code begins."""
    shift = 0 if qmd.ver == 3 else 4
    suffix = f"_shifted{shift}" if shift else ""
    low, high = (qmd.read(f"program_address_{half}{suffix}") for half in ("lower", "upper"))
    address: int = (low | high << 32) << shift
    return address
