"""tinygrad's NVIDIA driver on the emulated kernel driver: it runs on hardware, so what it does is right here, too.

In       argv: a word of HCQ_EMULATE
Out      one line of JSON: what it computed, and the kernel's log
Changes  tinygrad's door to the operating system, in this process
Next     test_other_driver.py (who runs this in a process)

Its kernels are machine code, which is not emulated: each is replaced by the PTX of the same CUDA source.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from typing import Any

os.environ.update(DEV="NV", CACHELEVEL="0", CCACHE="0", PARALLEL="0", HCQDEV_WAIT_TIMEOUT_MS="60000")

import numpy as np
import tinygrad.device
import tinygrad.runtime.support.hcq as door

from hcq.emu.nv import launch
from hcq.emu.nv.rm import EmulatedRm
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.run import Kernel
from hcq.emu.nv.spec import parse_all
from hcq.emu.port import EmulatedPort
from hcq.nv.toolchain.nvrtc import compile_cuda

PORT = EmulatedPort([EmulatedRm(parse_all([sys.argv[1]]))])
SOURCES: dict[bytes, str] = {}  # by machine code
PROGRAMS: dict[int, str] = {}  # source, by program address


class File(door.FileIOInterface):  # type: ignore[misc]
    """An open file of the emulated machine."""

    def __init__(self, path: str = "", flags: int = 0, fd: int | None = None) -> None:
        self.path = path
        self.fd = fd or PORT.open(path, flags)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            PORT.close(self.fd)

    def ioctl(self, request: int, argument: Any) -> int:
        size = ctypes.sizeof(argument)
        memory = bytearray(ctypes.string_at(ctypes.addressof(argument), size))
        PORT.ioctl(self.fd, request, memory)
        ctypes.memmove(ctypes.addressof(argument), bytes(memory), size)
        return 0

    def mmap(self, start: int, size: int, prot: int, flags: int, offset: int) -> int:
        return PORT.mmap(start or 0, size, prot, flags, self.fd, offset)


door.FileIOInterface = File
import tinygrad.runtime.ops_nv as driver  # noqa: E402  it looks at the door when it is imported

driver.FileIOInterface = File
File.exists = staticmethod(lambda path: path.startswith("/dev/nvidia") or os.path.exists(path))

compile_cached, make_program = tinygrad.device.Compiler.compile_cached, driver.NVProgram.__init__


def compile_and_note(self: Any, source: str) -> bytes:
    made: bytes = compile_cached(self, source)
    SOURCES[made] = source
    return made


def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
    make_program(self, *args, **kwargs)
    names = ("program_address_lower", "program_address_upper")
    low, high = (self.qmd.read(name if self.qmd.ver == 3 else f"{name}_shifted4") for name in names)
    PROGRAMS[(low | high << 32) << (0 if self.qmd.ver == 3 else 4)] = SOURCES[bytes(self.lib)]


def load(view: Any, raw: bytes, program: int) -> launch.Code:
    """The PTX that the program's source means."""
    ptx = compile_cuda(PROGRAMS[program], f"compute_{sys.argv[1].split(':')[1].removeprefix('sm_')}").ptx
    found = re.search(r"\.entry (\w+)", ptx)
    assert found is not None
    return launch.Code(Kernel(parse(ptx), found[1], {}), ptx)


tinygrad.device.Compiler.compile_cached = compile_and_note
driver.NVProgram.__init__ = make_and_note
launch.load = load

from tinygrad import Tensor  # noqa: E402  after all that it is to use

if __name__ == "__main__":
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    large = np.arange(300_000, dtype=np.float32)
    x, y = Tensor(a), Tensor(b)
    errors = {
        "copies": np.abs(Tensor(large).to("NV").numpy() - large).max(),
        "add": np.abs((x + y).numpy() - (a + b)).max(),
        "matmul": np.abs((x @ y).numpy() - a @ b).max(),
        "sum": np.abs(x.sum(axis=0).numpy() - a.sum(axis=0)).max(),
        "softmax": np.abs(x.softmax().numpy().sum(axis=-1) - 1).max(),
    }
    print(
        json.dumps(
            {"errors": {name: float(value) for name, value in errors.items()}, "log": PORT.kernel_log()}
        )
    )
