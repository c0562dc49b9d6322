"""The table of a driver's answers: which function answers which ioctl of the KFD.

In       functions of a process and the call's arguments
Out      Answers by number; `changed`, the arguments with some fields filled in
Next     kfd_calls.py and kfd_memory.py (the answers), kfd.py (who asks them), hcq/amd/abi/kfd.py (the calls)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.amd.abi.kfd import Ioctl
from hcq.emu.amd.kfd_process import KfdProcess
from hcq.layout import Packet

Answer = Callable[[KfdProcess, Any], Packet]


class Answers(dict[int, tuple[Ioctl[Any], Answer]]):
    """Number -> the call and its answer, which raises Refusal where the kernel returns an errno."""

    def to(self, call: Ioctl[Any]) -> Callable[[Answer], Answer]:
        """Make a function the answer to an ioctl."""

        def note(answer: Answer) -> Answer:
            self[call.number] = call, answer
            return answer

        return note


def changed(args: Packet, **fields: int) -> Packet:
    """The structure with some fields filled in."""
    return type(args)(**{**args.values, **fields})
