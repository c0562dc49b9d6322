"""Above: what rooms that stand on the core do for it. They are registered here; nothing here imports them.

In       functions, registered once by frontend/upper.py
Out      the same, for core/, schedule/, run/, tensor.py and nn/, which call them by these names
Changes  `register`: the names
Next     ../upper.py (the table of who does what), nodes.py, sizes.py, device.py, ../schedule/simplify.py,
         ../run/realize.py and ../run/plan.py (who call)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# several devices that act as one
group_plan: Callable[..., Any]  # (structure, roots, group of devices) -> a plan that runs on all of them
brought: Callable[..., Any]  # (storage, where, realized) -> a node that reads the same values there
stored: Callable[..., Any]  # (group, dtype, shape, bytes, name) -> memory of each of them

# schedules of kernels that a search found
schedules_for: Callable[..., Mapping[str, str]]  # (device, kernels, target) -> kernel's key -> its schedule
schedules_digest: Callable[[], str]  # of all of them

# numbers that are known later
sizes: Callable[..., Any]  # (node) -> what its sizes follow from those of its sources
bound_of: Callable[..., Any]  # (count) -> the number that it stands for
# (node, axis, low, high, value) -> a node whose elements lie as they say
padded_by_numbers: Callable[..., Any]
flipped_by_numbers: Callable[..., Any]  # (node, axis)
joined_by_numbers: Callable[..., Any]  # (nodes, axis)

# graphs of the same values that the compiler makes better kernels of
without_gaps: Callable[..., Any]  # (roots)
in_channels: Callable[..., Any]  # (roots, formats)
in_planes: Callable[..., Any]  # (roots)
reduction_in_steps: Callable[..., Any]  # (node, threads)
scan_in_steps: Callable[..., Any]  # (node, threads)
sorts_of: Callable[..., Any]  # (order of nodes) -> the last BUCKET of each sort -> the sort
sorted_in_one_piece: Callable[..., Any]  # (node, made, sort, threads, number) -> a node, or None
bucket: Callable[..., Any]  # (node, threads, number) -> it with its counters

# tensors for other libraries, and in files
shared_array: Callable[..., Any]  # (tensor) -> NumPy's array in its memory
dlpack_capsule: Callable[..., Any]  # (tensor, version, device, copy)
pickled: Callable[..., Any]  # (tensor, protocol) -> what __reduce_ex__ gives

# other processes
ranks_met: Callable[[], int]  # how many there are of this job: 1 before they have met

# PyTorch's words for devices
type_of_device: Callable[..., str]  # (name) -> "cuda"
device_spelled: Callable[..., Any]  # ("cuda:1") -> our name

ASKED_FOR = frozenset(__annotations__)


def register(**functions: Callable[..., Any]) -> None:
    """From now on these are called by these names. Raises NameError for one that nobody asks for."""
    unknown = functions.keys() - ASKED_FOR
    if unknown:
        raise NameError(f"register({', '.join(sorted(unknown))}): nothing below calls that")
    globals().update(functions)
