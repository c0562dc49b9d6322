"""Save areas: where a queue's is, and how much of it is used.

In       what CREATE_QUEUE was called with
Out      Area, Saved
Next     save_area.py (who fills it), process_gpu.py (whose they are), kfd_calls.py (who tells it)
"""

from typing import NamedTuple


class Area(NamedTuple):
    """A queue's save area. Bytes, of each XCC; the slices of XCCs lie one behind the other."""

    va: int
    ctl_stack_bytes: int
    save_bytes: int


class Saved(NamedTuple):
    """How much of one XCC's slice is used: bytes of the control stack, and of waves."""

    stack_bytes: int = 0
    wave_bytes: int = 0
