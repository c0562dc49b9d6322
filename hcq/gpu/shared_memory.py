"""Dynamic shared memory of a launch: `extern __shared__` of CUDA and HIP, and all of Triton's.

In       what the kernel and the chip say of shared memory (AMD's LDS)
Out      SharingProgram: `dynamic_shared_bytes`, checked when it is set; launches are recorded with it
Next     ../amd/program.py, ../nv/program.py (whose launches ask for it), ../command.py (a dispatch keeps its size)
"""

from __future__ import annotations

from abc import abstractmethod

from hcq import checks
from hcq.errors import UsageError
from hcq.gpu.program import GpuProgram


class SharingProgram(GpuProgram):
    """A program whose launches may ask for more shared memory than its kernel declares.

    adds_shared  a launch has asked for some, or may have
    """

    adds_shared = False

    @property
    @abstractmethod
    def own_shared_bytes(self) -> int:
        """What the kernel declares."""

    @property
    @abstractmethod
    def most_shared_bytes(self) -> int:
        """What a workgroup can have on this chip."""

    @property
    def dynamic_shared_bytes(self) -> int:
        """Shared memory that each launch adds to the kernel's own; what is dispatched from then on has it."""
        return self._dynamic_shared

    @dynamic_shared_bytes.setter
    def dynamic_shared_bytes(self, size_bytes: int) -> None:
        size_bytes = checks.whole(self.name, "dynamic_shared_bytes", size_bytes)
        own, most = self.own_shared_bytes, self.most_shared_bytes
        if own + size_bytes > most:
            raise UsageError(
                f"{self.name}.dynamic_shared_bytes={size_bytes}: with the kernel's own {own}, a block has 0 to {most} "
                f"bytes of shared memory on {self.device.arch}."
            )
        self._dynamic_shared = size_bytes
        self.adds_shared |= size_bytes > 0
