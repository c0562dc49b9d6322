"""Own programs on several devices: each launches the program on its part, where the user said along which axis.

In       a ROUTINE with an OwnProgram or an OwnOutput, over values of a group
Out      its value: split as its inputs are, or the same on every device
Changes  adds exchanges to the `Layouts`, where inputs are split along another axis
Next     rules.py (who asks), frontend/more/custom/parts.py (the launch of a part), ir/own_program.py (what is launched)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hcq.errors import UsageError
from hcq.frontend.devices.sharding.layouts import Value
from hcq.frontend.devices.sharding.placement import Split
from hcq.ir.node import Node, Shape
from hcq.ir.own_program import OwnOutput, OwnProgram

if TYPE_CHECKING:
    from hcq.frontend.devices.sharding.rules import Rules


def placed(rules: Rules, node: Node, sources: Sequence[Value]) -> Value:
    """The launch on every device, or another output of it."""
    arg = node.arg
    if isinstance(arg, OwnOutput):
        (first,) = sources
        split = first.layout
        if not isinstance(split, Split):
            return rules._made(node, split, sources)
        shape_of = split.shape
        return rules._made(node, split, sources, lambda rank: arg._replace(shape=shape_of(arg.shape, rank)))
    assert isinstance(arg, OwnProgram)
    summed = [rules.layouts.summed(source) for source in sources]
    parts = [number for number, source in enumerate(summed) if isinstance(source.layout, Split)]
    if not parts:
        whole = arg._replace(part=None)
        return rules._made(node, None, summed, lambda rank: whole)
    axis = _axis(arg, parts, summed)
    there = [n for n in parts if summed[n].layout.axis == axis]  # type: ignore[union-attr]
    if not there:
        raise UsageError(
            f"[custom] {arg.name}: input {parts[0]} of shape {summed[parts[0]].shape} is split along axis "
            f"{summed[parts[0]].layout.axis}, and shard={axis}: split it along that axis."  # type: ignore[union-attr]
        )
    split = summed[there[0]].layout
    assert isinstance(split, Split)
    placed = [rules.layouts.to(one, split) if n in parts else one for n, one in enumerate(summed)]
    for number, (shape, _) in enumerate(arg.outputs):
        if axis >= len(shape) or shape[axis] != sum(split.sizes):
            raise UsageError(
                f"[custom] {arg.name}: output {number} of shape {shape} has not {sum(split.sizes)} elements along axis "
                f"{axis}, as the inputs that are split: gather the inputs first."
            )

    def arg_of(rank: int) -> OwnProgram:
        shapes: list[Shape] = [
            split.shape(one.shape, rank) if isinstance(one.layout, Split) else one.shape for one in placed
        ]
        grid, block, words = arg.part.at(shapes)
        others = iter(words)
        given = [(kind, next(others, which) if kind == "number" else which) for kind, which in arg.parameters]
        outputs = tuple([(split.shape(shape, rank), dtype) for shape, dtype in arg.outputs])
        return arg._replace(grid=grid, block=block, parameters=tuple(given), outputs=outputs, part=None)

    return rules._made(node, split, placed, arg_of)


def _axis(arg: OwnProgram, parts: Sequence[int], sources: Sequence[Value]) -> int:
    """The axis along which the user lets it be split."""
    if arg.part is not None and arg.part.shard is not None and arg.part.follows_shapes:
        axis: int = arg.part.shard
        return axis if axis >= 0 else axis + len(sources[parts[0]].shape)
    split = sources[parts[0]].layout
    assert isinstance(split, Split)
    raise UsageError(
        f"[custom] {arg.name}: input {parts[0]} of shape {sources[parts[0]].shape} is split along axis {split.axis}: "
        f"gather it first, or say shard={split.axis} and give the grid as a function of shapes, if the program can "
        "compute each part alone."
    )
