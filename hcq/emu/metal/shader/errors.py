"""What stops MSL: text that is refused, and kernels that do what hardware would not survive.

In       nothing
Out      MslError, KernelFault, NotCompiled
Next     parser.py, typed.py (who refuse), machine.py, compiled.py (who find faults)
"""

from __future__ import annotations


class MslError(Exception):
    """The text is no MSL of the subset; the message names the line."""


class KernelFault(Exception):
    """A thread did what it must not: left its buffer, raced, parted at a barrier.

    line     of the MSL, 0 where that is not known
    access   "load" or "store", of `size_bytes` at `address`, when it left its buffer
    shared_byte    where it was, when it left threadgroup memory
    own_byte       the same, of an array of the thread's own
    is_misaligned  its address is no multiple of what it must be
    """

    line = 0
    access = ""
    address = 0
    size_bytes = 0
    shared_byte = -1
    own_byte = -1
    is_misaligned = False


class NotCompiled(Exception):
    """The text is right, and has what is interpreted only; the message says what."""
