"""Pickled: tensors as Python's pickle takes and makes them, as for another process.

In       a tensor
Out      `reduced`: the function that makes it again, and its numbers, shape, dtype and device
Changes  computes the tensor, if it is lazy
Next     tensor.py (`__reduce_ex__`), pickles.py (how files that others wrote are read, running nothing)

Nothing here reads a pickle: whoever calls `pickle.loads` trusts what is in it. A tensor comes back in memory of its own
on the same device; views of one another come back apart, and one tensor that is there twice is one again.
"""

from __future__ import annotations

from math import prod
from pickle import PickleBuffer
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core import sizes
from hcq.frontend.core.base import Core, watcher
from hcq.frontend.run import timed_out_work
from hcq.ir.dtype import NAMED
from hcq.ir.op import Op


def reduced(tensor: Any, protocol: int) -> tuple[Any, ...]:
    """What `__reduce_ex__` gives: with protocol 5 the numbers can travel beside the pickle, uncopied."""
    state = getattr(tensor, "__dict__", None) or None
    if tensor.is_complex():
        return complex_again, tuple([part.detach() for part in tensor.parts]) + (tensor.requires_grad,), state
    watching = watcher()
    if watching is not None:
        watching.forbids(
            "pickle", "values are not known while a recording is made. Return the tensor and pickle it after"
        )
    raw = _numbers(tensor)
    if protocol >= 5:
        raw = PickleBuffer(raw)
    axis = None
    if devices.is_group(tensor.device):
        tensor.realize()
        split = getattr(getattr(tensor.node, "arg", None), "split", None)
        axis = None if split is None else split.axis
    shape = tensor._shape_now()
    return (
        again,
        (type(tensor), [raw], shape, tensor.dtype.name, str(tensor.device), axis, tensor.requires_grad),
        state,
    )


def _numbers(tensor: Any) -> Any:
    """The bytes of its elements, copied once."""
    node = tensor.node
    if node.op is Op.CONST or not prod(node.shape) or sizes.has_counts(node):
        return tensor._bytes("pickle")
    raw = bytearray(prod(node.shape) * node.dtype.itemsize)
    timed_out_work.read(tensor._buffer("pickle"), raw)
    return raw


def again(
    kind: type,
    held: list[Any],
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    axis: int | None,
    requires_grad: bool,
) -> Any:
    """The tensor of `reduced`. The numbers are taken out of what holds them: who unpickles keeps that to the end."""
    raw = held.pop()
    home = devices.members(device)[0] if devices.is_group(device) else device
    made: Any = Core._kind(False, device=home)
    made = made._of(made._upload(shape, NAMED[dtype], memoryview(raw)), home)
    if home != device:
        made = made.shard(devices.members(device), axis).clone().realize()
    if kind is not Core._kind:  # a parameter
        return kind(made, requires_grad)
    return made.requires_grad_() if requires_grad else made


def complex_again(real: Any, imag: Any, requires_grad: bool) -> Any:
    """A complex tensor of its parts."""
    made = Core._kind.complex(real, imag)
    return made.requires_grad_() if requires_grad else made
