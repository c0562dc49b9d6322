"""Tensors: loads that walk memory as a tensor with fixed strides, which a GPU's tensor memory accelerator can copy.

In       a load of a nest
Out      its `Tensor`: a buffer, and for each range how far it goes and how many bytes a step is; None for other loads
Next     operands.py (`pipeline ... bulk`), ../linear/bulk_copies.py (who copies), hcq/nv/tensor_map.py (maps)
Source   CUDA Driver API, "Tensor Map Object Management": strides and addresses are multiples of 16 bytes, 5 dimensions

What a load leaves out at the ends of ranges, such as what `pad` adds, is no condition for the accelerator: it reads as
zero what lies outside of the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.nest import Nest
from hcq.ir.node import Node
from hcq.ir.op import Op

MOST_RANGES = 5
STRIDE_BYTES = 16


@dataclass(frozen=True)
class Tensor:
    """What a load reads. Ranges in the order of their strides, the contiguous one first."""

    param: Node
    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, of all ranges but the first

    def map(self, box: dict[Axis, int]) -> str:
        """Its map as text, for copies of such boxes: type, sizes, strides, box, the contiguous range first."""
        parts = (self.sizes, self.strides, tuple(box.get(axis, 1) for axis in self.axes))
        return " ".join([self.param.dtype.name, *["x".join(map(str, part)) for part in parts]])


def tensor_of(nest: Nest, load: Node) -> Tensor | None:
    """The tensor that a load reads, where it is one and nothing else of the kernel uses the buffer."""
    param = load.src[0]
    if any(other is not load and other.src[0] is param for other in (*nest.loads, *nest.stores)):
        return None
    form = nest.affine.of(load.src[1])
    if form.constant or any(atom.op is not Op.RANGE for atom in form.atoms()):
        return None
    steps = sorted(
        [(coefficient, nest.axis_of[atom]) for atom, coefficient in form.terms], key=lambda s: s[0]
    )
    ends = _ends(load.src[2]) if len(load.src) > 2 else {}
    if ends is None or not 2 <= len(steps) <= MOST_RANGES or steps[0][0] != 1:
        return None
    axes = tuple(axis for _, axis in steps)
    if any(place not in {axis.range for axis in axes} for place in ends):
        return None
    size = param.dtype.itemsize
    strides = tuple(coefficient * size for coefficient, _ in steps[1:])
    if any(stride % STRIDE_BYTES for stride in strides):
        return None
    return Tensor(param, axes, tuple(ends.get(axis.range, axis.size) for axis in axes), strides)


def _ends(condition: Node) -> dict[Node, int] | None:
    """Where ranges end, if that is all that a condition says."""
    if condition.op is Op.AND:
        found: dict[Node, int] = {}
        for part in condition.src:
            more = _ends(part)
            if more is None:
                return None
            for place, end in more.items():
                found[place] = min(end, found.get(place, end))
        return found
    if (
        condition.op is not Op.CMPLT
        or condition.src[0].op is not Op.RANGE
        or condition.src[1].op is not Op.CONST
    ):
        return None
    return {condition.src[0]: int(condition.src[1].arg)}
