"""tinygrad's NVIDIA driver on the emulated resource manager.

In       an EmulatedPort
Out      tinygrad's device NV
Changes  tinygrad's modules in this process; how the emulation loads code
Next     door.py (its files), ../../hcq/emu/nv/rm.py (who answers), ../../hcq/emu/nv/launch.py (who loads code)

Its kernels are machine code, which is not emulated: each is replaced by the PTX of the same CUDA source.
"""

from __future__ import annotations

import os
import re
from typing import Any

from hcq.emu.nv import launch
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.run import Kernel
from hcq.emu.port import EmulatedPort
from hcq.nv.toolchain.nvrtc import compile_cuda
from hcq.tools.peer import door


def install(port: EmulatedPort, arch: str) -> None:
    """Make this port's GPUs, of this architecture, tinygrad's device NV. Before tinygrad is imported.

    Raises   UsageError where nvrtc is not installed: its compiler and ours
    """
    os.environ["DEV"] = "NV"
    door.install(port)
    import tinygrad.device
    import tinygrad.runtime.ops_nv as driver

    sources: dict[bytes, str] = {}  # by machine code
    programs: dict[int, str] = {}  # source, by program address
    compile_cached, make_program = tinygrad.device.Compiler.compile_cached, driver.NVProgram.__init__

    def compile_and_note(self: Any, source: str) -> bytes:
        made: bytes = compile_cached(self, source)
        sources[made] = source
        return made

    def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        make_program(self, *args, **kwargs)
        names = ("program_address_lower", "program_address_upper")
        low, high = (self.qmd.read(name if self.qmd.ver == 3 else f"{name}_shifted4") for name in names)
        programs[(low | high << 32) << (0 if self.qmd.ver == 3 else 4)] = sources[bytes(self.lib)]

    def load(view: Any, raw: bytes, program: int) -> launch.Code:
        """The PTX that the program's source means."""
        ptx = compile_cuda(programs[program], f"compute_{arch.removeprefix('sm_')}").ptx
        found = re.search(r"\.entry (\w+)", ptx)
        assert found is not None
        return launch.Code(Kernel(parse(ptx), found[1], {}), ptx)

    tinygrad.device.Compiler.compile_cached = compile_and_note
    driver.NVProgram.__init__ = make_and_note
    launch.load = load
