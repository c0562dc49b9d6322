"""Copies: splits a copy with overlapping ranges into parts that do not overlap, for copy engines.

In       a Copy
Out      parts that do not overlap, in the order to do them in, each finished before the next
Next     amd/encode.py, nv/encode.py (the packets)
"""

from __future__ import annotations

from hcq.command import Copy
from hcq.errors import UsageError

MAX_PARTS = 64


def split_overlapping(what: Copy) -> list[Copy]:
    """Parts no longer than the distance of the ranges, from the end that is not overwritten first.

    One that does not overlap is its own only part, one of nothing or onto itself has none.
    Raises  UsageError when there would be more than MAX_PARTS
    """
    step = abs(what.dst - what.src)
    if not what.size_bytes or not step:
        return []
    starts = list(range(0, what.size_bytes, step))
    if len(starts) > MAX_PARTS:
        raise UsageError(
            f"copy of {what.size_bytes} bytes over themselves, {step} bytes apart: the copy engine would need "
            f"{len(starts)} copies. Copy through another buffer."
        )
    if what.dst > what.src:
        starts.reverse()
    return [Copy(what.dst + at, what.src + at, min(step, what.size_bytes - at)) for at in starts]
