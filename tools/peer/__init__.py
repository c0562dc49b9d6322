"""A peer's drivers, tinygrad's, on emulated hardware: they run on GPUs, so what they do is right here, too.

door.py  its files become those of an EmulatedPort
amd.py   its AMD driver, with the LLVM that llvmlite brings
nv.py    its NVIDIA driver, with PTX beside its machine code
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hcq.emu.port import EmulatedPort, port_for


def set_environment() -> None:
    """Every kernel is compiled here and now, and a GPU that the CPU plays has time for it. Before it is imported."""
    os.environ.update(CACHELEVEL="0", CCACHE="0", PARALLEL="0")
    os.environ.setdefault("HCQDEV_WAIT_TIMEOUT_MS", "60000")


def install(words: list[str]) -> EmulatedPort:
    """Give tinygrad the emulated GPUs that these words of HCQ_EMULATE describe. Before it is imported.

    words    such as "amd:gfx1100" or "nv:sm_89", all of one vendor
    Returns  their port
    """
    set_environment()
    if "CC" not in os.environ and shutil.which("clang") is None:  # for its device CPU
        paths = (Path(folder) for folder in os.environ["PATH"].split(":"))
        clangs = sorted(found.name for path in paths for found in path.glob("clang-[0-9]*"))
        os.environ["CC"] = clangs[-1] if clangs else "clang"
    port = port_for(words)
    vendor = words[0].split(":")[0]
    if vendor == "amd":
        from hcq.tools.peer import amd

        amd.install(port)
    else:
        from hcq.tools.peer import nv

        nv.install(port)
    return port
