"""Checked places: indices and labels are looked at where they are given, if HCQ_CHECK_INDICES asks for it.

In       a tensor of indices, and which numbers it may hold
Out      nothing; OutOfRange names the first that it may not
Changes  the indices are computed and read back, so that a program waits at each such call
Next     indexing.py, scattering.py, loss.py (who ask), docs/semantics.md ("Indices that are
         data")

Without the switch an index beyond its axis reads zero and writes nothing, and a label that is no class makes the loss
NaN. Inside a recording, a function transform, and where a size is known only when the work runs, nothing can be read
back, and nothing is checked.
"""

from __future__ import annotations

from typing import Any

from hcq import config
from hcq.frontend.core.base import transforms, watcher
from hcq.frontend.core.errors import OutOfRange
from hcq.frontend.core.sizes import has_counts
from hcq.ir.dtype import dtypes


def check(call: str, what: str, given: Any, low: int, count: int, besides: int | None = None) -> None:
    """Refuse a number of `given` that is not low to count - 1, nor `besides`. what: "index" or "label"."""
    if not config.current().check_indices or not given.node.dtype.is_integer or not given.numel():
        return
    if watcher() is not None or transforms() or has_counts(given.node):
        return
    numbers = given.detach()
    wide = numbers if numbers.node.dtype is dtypes.uint64 else numbers.cast(dtypes.int64)
    is_wrong = (wide < low) | (wide >= count)
    if besides is not None:
        is_wrong = is_wrong & (wide != besides)
    if not is_wrong.any().item():
        return
    place = int(is_wrong.flatten().argmax().item())
    number = wide.flatten()[place].item()
    allowed = f"{low} to {count - 1}" if count else "none, for the axis is empty"
    also = "" if besides is None else f", or {besides}, which counts for nothing"
    raise OutOfRange(
        f"[{call}] {what} {number}, element {place} of a tensor of shape {given.shape}: out of range; "
        f"use {allowed}{also}."
    )
