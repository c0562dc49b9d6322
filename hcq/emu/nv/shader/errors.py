"""What can be wrong with a kernel: its text, an access it makes, or that it never ends.

    PtxError (UsageError)         the text cannot be understood: unknown instruction, bad operand; names the line
    KernelFault (DeviceFault)     the running kernel did something illegal; names the line and the threads
    ├── PageFault                 no memory there, or not writable; has .address
    ├── MisalignedAccess          an address that is not a multiple of the access's size
    ├── NotInitialised            an mbarrier that expects nobody; has .address
    ├── Trap                      the kernel gave up by itself: trap, a failed assert
    ├── Deadlock                  threads wait for threads that can never come
    ├── StepLimit                 the budget of instructions is spent
    └── Interrupted               the kernel was stopped from outside

In       what happened, where
Out      exceptions
Next     hcq/errors.py (the four kinds)
"""

from __future__ import annotations

from typing import Any

from hcq.errors import DeviceFault, UsageError
from hcq.events.waves import Wave


class PtxError(UsageError):
    """PTX text that cannot be run."""

    def __init__(self, line: int, why: str, source: str = "") -> None:
        self.line, self.why, self.source = line, why, source
        shown = f" `{source}`" if source else ""
        super().__init__(f"PTX line {line}{shown}: {why}")


class KernelFault(DeviceFault):
    """A kernel that had to be stopped. `line` is the line of its PTX, `threads` ((block), (thread)) pairs.

    waves       where all of them were
    access      "store", "load", ... of `size_bytes`, when it was an access
    space       "shared", "local" or "parameters", where it left that one
    """

    waves: tuple[Wave, ...] = ()
    access = space = ""
    size_bytes = 0

    def __init__(self, message: str, line: int = 0, threads: Any = ()) -> None:
        super().__init__(message)
        self.line = line
        self.threads = list(threads)


class PageFault(KernelFault):
    """An access to an address where nothing is mapped, or that may not be written."""

    address: int = 0


class MisalignedAccess(KernelFault):
    """An access whose address is not a multiple of its size."""

    address: int = 0


class NotInitialised(KernelFault):
    """An arrival at an mbarrier of shared memory that nobody has initialised yet, or that all have dropped."""

    address: int = 0


class Trap(KernelFault):
    """A kernel that gave up by itself."""


class Deadlock(KernelFault):
    """Threads wait at a barrier or a warp instruction that cannot complete."""


class StepLimit(KernelFault):
    """The kernel ran for more instructions than it was given."""


class Interrupted(KernelFault):
    """The kernel was stopped from outside."""


class BadAccess(Exception):
    """Raised by memories: `index` is the position in the array of addresses of the first that is refused.

    The instruction that made the access turns it into a PageFault or MisalignedAccess that names line and threads.
    """

    def __init__(self, index: int, address: int, why: str, misaligned: bool = False, space: str = "") -> None:
        super().__init__(why)
        self.index = index
        self.address = address
        self.why = why
        self.misaligned = misaligned
        self.space = space  # that it left; "" for global memory
