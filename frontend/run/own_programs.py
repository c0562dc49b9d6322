"""Own programs: the launch of a kernel whose code a program gave, beside those that the compiler makes.

In       a kernel of a schedule that stores a ROUTINE with an OwnProgram
Out      the fields of plan.Launch, in the order of the program's own parameters
Changes  the schedule's values: an output that nobody reads gets temporary memory, for it is written all the same
Next     plan.py (who asks), ir/own_program.py (what is launched), frontend/more/custom/__init__.py (who made it)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.run import kernel_sources
from hcq.frontend.schedule.schedule import Kernel, Value
from hcq.ir.node import Node
from hcq.ir.op import MOVEMENT
from hcq.ir.own_program import OwnProgram
from hcq.system.cache import DiskCache


def launches(kernels: Sequence[Kernel], values: list[Value], disk: DiskCache) -> dict[Kernel, Any]:
    """The plan.Launch of each kernel. values: those of the schedule; outputs that nobody reads are added."""
    from hcq.frontend.run.plan import Launch

    found = {kernel: Launch(**_fields(kernel, values)) for kernel in kernels}
    for launch in found.values() if kernel_sources.wanted() else ():
        kernel_sources.keep(disk, launch.image, launch.entry, {})
    return found


def _fields(kernel: Kernel, values: list[Value]) -> dict[str, Any]:
    own: OwnProgram = kernel.sink.src[0].src[1].arg
    first, *others = kernel.sink.src
    outputs = {0: _value(first.src[0], kernel)}
    outputs |= {store.src[1].arg.index: _value(store.src[0], kernel) for store in others}
    for number, (shape, dtype) in enumerate(own.outputs):
        if number not in outputs:
            outputs[number] = len(values)
            values.append(Value("temporary", dtype, shape))
    sources = [_value(source, kernel) for source in first.src[1].src]
    return launch_fields(own, [outputs[number] for number in range(len(outputs))], sources, values)


def launch_fields(
    own: OwnProgram, outputs: Sequence[int], sources: Sequence[int], values: Sequence[Any]
) -> dict[str, Any]:
    """The same for given numbers of values. values: what says the size of each."""
    named = {"output": outputs, "input": sources}
    arguments = tuple([named[kind][which] for kind, which in own.parameters if kind in named])
    numbers = tuple([which if kind == "number" else "" for kind, which in own.parameters])
    return {
        "name": own.name,
        "arguments": arguments,
        "writes": tuple(sorted(outputs)),
        "entry": own.entry,
        "image": own.image,
        "grid": own.grid,
        "block": own.block,
        "scratch_bytes": own.scratch_bytes,
        "dynamic_shared_bytes": own.shared_bytes,
        "tensor_maps": ("",) * len(arguments),
        "flops": 0,
        "traffic_bytes": sum(values[number].size_bytes for number in {*outputs, *sources}),
        "choice": "",
        "numbers": numbers if any(numbers) else (),
    }


def _value(node: Node, kernel: Kernel) -> int:
    while node.op in MOVEMENT:
        node = node.src[0]
    return kernel.arguments[node.arg.index]
