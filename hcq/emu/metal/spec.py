"""What an emulated Apple GPU is: what HCQ_EMULATE says of it, and the figures of each family.

In       a word such as "metal:m3"
Out      Spec
Next     device.py (who answers with these figures)
Source   Metal Feature Set Tables: families, threads and memory of a threadgroup. Memory is as
         large as the smallest Mac of each; recommendedMaxWorkingSetSize is two thirds of it, and maxBufferLength half
         of it, as such Macs say

    metal:m3    one GPU of that generation; the same word twice makes two
    metal:m3:kernels=interpreted    by NumPy alone; "compiled" by machine code wherever it can be done; else by cost
    metal:m3:unlisted               MTLCopyAllDevices lists no GPU, and MTLCreateSystemDefaultDevice gives this one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hcq.emu.emulation_options import flag, parse_word
from hcq.emu.metal.shader.program import WAYS
from hcq.metal.abi.messages import Family


@dataclass(frozen=True)
class Spec:
    """One GPU."""

    name: str
    family: Family
    memory_bytes: int
    max_threads: int = 1024  # of a threadgroup
    shared_bytes: int = 32 << 10
    simd_width: int = 32
    is_unlisted: bool = False  # MTLCopyAllDevices has none, and MTLCreateSystemDefaultDevice has it
    kernels: str = ""  # how all of them are run: one of WAYS; "" by cost

    @property
    def working_set_bytes(self) -> int:
        """What it asks programs to stay below."""
        return self.memory_bytes * 2 // 3

    @property
    def max_buffer_bytes(self) -> int:
        """The longest buffer."""
        return self.memory_bytes // 2


CHIPS = {
    "m1": Spec("Apple M1 (emulated)", Family.APPLE7, 8 << 30),
    "m2": Spec("Apple M2 (emulated)", Family.APPLE8, 8 << 30),
    "m3": Spec("Apple M3 (emulated)", Family.APPLE9, 8 << 30),
}


def parse_all(words: Sequence[str]) -> list[Spec]:
    """The GPUs of these words. Raises UsageError naming what is wrong with one."""
    return [_parse(word) for word in words]


def _parse(word: str) -> Spec:
    help_ = "kernels=interpreted (by NumPy), kernels=compiled (to machine code; by default by cost), unlisted"
    chip, options = parse_word(word, CHIPS, {"kernels": _way, "unlisted": flag}, help_)
    return replace(chip, kernels=options.get("kernels", ""), is_unlisted="unlisted" in options)


def _way(text: str) -> str | None:
    return text if text in WAYS else None
