"""Debugged kernels: who runs the launches of emulated GPUs in their place, where a debugger is attached.

In       a debugger that attaches; shader cores, which ask once for each launch, and processors, once for each packet
Out      `debugger`, or None
Changes  which debugger is attached
Next     hcq/debug/session.py (the debugger), hcq/emu/amd/launch.py, hcq/emu/nv/launch.py and
         hcq/emu/metal/processor.py (who ask)
"""

from __future__ import annotations

from typing import Any, Protocol


class Debugger(Protocol):
    """Runs launches as a shader core's own function does, with the same arguments and results."""

    def run_amd(self, *arguments: Any, **options: Any) -> Any:
        """In the place of hcq.emu.amd.shader.run.run_dispatch."""

    def run_nv(self, *arguments: Any, **options: Any) -> Any:
        """In the place of hcq.emu.nv.shader.run.Kernel.run; the kernel, its address and the space come first."""

    def run_metal(self, *arguments: Any, **options: Any) -> Any:
        """In the place of hcq.emu.metal.shader.program.Program.interpret; the program comes first, its entry last."""

    def packet(self, vendor: str, packet: Any) -> None:
        """A processor of an emulated GPU is about to do this packet, for the first time."""


debugger: Debugger | None = None  # of this process


def attach(one: Debugger | None) -> None:
    """From now on launches are this debugger's; None: nobody's."""
    global debugger
    debugger = one
