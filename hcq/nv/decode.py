"""Decoding without a device: what turns the words of a trace into packets, chosen by architecture.

In       an architecture's name, as a trace keeps it
Out      decode(words) -> list[Packet]: pushes of methods, LaunchData where a launch's QMD and constants stand
Next     encode.py (whose inverse it is), abi/methods.py (pushes), abi/qmd.py, abi/bank0.py (launch data)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar

from hcq.layout import Packet
from hcq.nv.abi import methods
from hcq.nv.abi.bank0 import BANK0_OF_QMD, Bank0
from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.abi.compute_methods import NoOperation
from hcq.nv.abi.gpfifo import GpEntry
from hcq.nv.abi.host_methods import Nop
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, Push, SecOp
from hcq.nv.abi.qmd import Qmd, qmd_for


class LaunchData(Push, words=1, tail="data"):
    """A NO_OPERATION whose words are what a launch points to: the QMD, then its constant bank 0."""

    qmd_type: ClassVar[type[Qmd]] = Qmd

    @property
    def qmd(self) -> Qmd:
        """The launch description."""
        return self.qmd_type.decode(self.tail_words[: self.qmd_type.length_words])

    @property
    def constants(self) -> tuple[int, ...]:
        """The words of constant bank 0."""
        return self.tail_words[self.qmd_type.length_words :]

    @property
    def bank0(self) -> Bank0:
        """The driver's part of constant bank 0."""
        return BANK0_OF_QMD.get(self.qmd_type.version, Bank0).decode(self.constants)

    @property
    def parameters(self) -> tuple[int, ...]:
        """The words behind the launcher's part of the bank."""
        return self.constants[BANK0_OF_QMD.get(self.qmd_type.version, Bank0).length_words :]

    @property
    def description(self) -> str:
        params = " ".join(f"{word:08x}" for word in self.parameters)
        return f"{self.qmd!r}, {self.bank0!r}, parameters=[{params}]"

    def __repr__(self) -> str:
        return f"LaunchData({self.description})"


class RunBlock(Push, words=1, tail="data"):
    """A host NOP that says where a block of recorded work runs: its segment in the GPFIFO, and on which channel."""

    @property
    def is_free(self) -> bool:
        """Whether it runs on the copy channel."""
        return len(self.tail_words) > 2

    @property
    def entry(self) -> GpEntry:
        """The GPFIFO entry that makes the GPU read the block."""
        return GpEntry.decode(self.tail_words[:2])

    @property
    def description(self) -> str:
        channel = ", copy channel" if self.is_free else ""
        return f"get={self.entry.get:#x}, length={self.entry.length}{channel}"

    def __repr__(self) -> str:
        return f"RunBlock({self.description})"


@cache
def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of one architecture. Raises UsageError listing the known ones."""
    plain = methods.decoder(arch)
    qmd = qmd_for(ARCHITECTURES[arch].compute)
    launch_data = type("LaunchData", (LaunchData,), {"qmd_type": qmd}, words=1, tail="data")

    def decode(words: Sequence[int]) -> list[Packet]:
        return [_named(packet, launch_data) for packet in plain(words)]

    return decode


def _named(packet: Packet, launch_data: type[LaunchData]) -> Packet:
    if not isinstance(packet, Push) or packet.sec_op != SecOp.NON_INC_METHOD:
        return packet
    if packet.subchannel == COMPUTE_SUBCHANNEL and packet.method_address == NoOperation.at:
        if packet.count > launch_data.qmd_type.length_words and not packet.missing:
            return launch_data.decode(packet.words)
    elif packet.method_address == Nop.at and packet.count in (2, 3) and not packet.missing:
        return RunBlock.decode(packet.words)
    return packet
