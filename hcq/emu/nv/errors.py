"""What stops an emulated channel, with the number that the real driver puts into its error notifier.

    ChannelError           a channel that has to be torn down
    ├── HostError          32: a malformed pushbuffer, an unbound subchannel, a ring entry that makes no sense
    ├── ClassError         69: a method that the class has not, or a value that the method does not take
    ├── CopyError          39: the copy engine refuses what its methods ask for
    ├── LaunchError        13: a launch description that the scheduler refuses
    ├── KernelError        13: an instruction did something illegal; has .address
    ├── HungKernel        109: a kernel did not end in its budget of instructions
    ├── Removal            45: UVM stopped the channel, as it does with every one that is unregistered
    └── MmuFault           31: nothing is mapped there, or it may not be written; has .address

In       what happened, where
Out      exceptions with .xid
Next     gpu.py (who catches them)
Source   nverror.h: ROBUST_CHANNEL_*; the fault types of dev_fault.h
"""

from __future__ import annotations

from enum import IntEnum

# errors of HWW_WARP_ESR: an instruction that is none, an address outside of a window, or with a wrong alignment, or in
# a space that the instruction does not reach
ILLEGAL, OUT_OF_RANGE, MISALIGNED, WRONG_SPACE = 0x09, 0x0E, 0x0F, 0x10


class FaultType(IntEnum):
    """Why the MMU refused."""

    PDE = 0
    PTE = 2
    RO_VIOLATION = 6
    ATOMIC_VIOLATION = 15


class Access(IntEnum):
    """What was tried when a page was not there, numbered as fault reports do."""

    READ = 0
    WRITE = 1
    ATOMIC = 2


class ChannelError(Exception):
    """Something that stops a channel. program: where the kernel is whose grid did it; 0 when it was none."""

    xid = 0
    program = 0


class HostError(ChannelError):
    xid = 32


class ClassError(ChannelError):
    xid = 69


class CopyError(ChannelError):
    xid = 39


class LaunchError(ChannelError):
    xid = 13


class KernelError(ChannelError):
    """warp_error, warp: what the SM's error registers have, as hcq/nv/abi/sm_errors.py numbers it; is_trap: a trap, or
    a breakpoint, and no error of a warp."""

    xid = 13

    def __init__(
        self, message: str, address: int = 0, warp_error: int = ILLEGAL, warp: int = 0, is_trap: bool = False
    ) -> None:
        super().__init__(message)
        self.address, self.warp_error, self.warp, self.is_trap = address, warp_error, warp, is_trap


class HungKernel(ChannelError):
    xid = 109


class Removal(ChannelError):
    """Nothing went wrong: UVM took the channel off the runlist before it was freed."""

    xid = 45


class MmuFault(ChannelError):
    """An access that the page tables do not allow. `unit` is who made it, as the kernel's log names it."""

    xid = 31

    def __init__(
        self, address: int, access: Access, unit: str, why: str, kind: FaultType = FaultType.PDE
    ) -> None:
        super().__init__(
            f"MMU Fault: ENGINE {unit} faulted @ {address >> 32:#x}_{address & 0xFFFFFFFF:08x}. "
            f"Fault is of type FAULT_{kind.name} ACCESS_TYPE_VIRT_{access.name} ({why})"
        )
        self.address, self.access, self.kind = address, access, kind
