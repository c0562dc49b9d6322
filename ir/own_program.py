"""Programs of one's own: what a ROUTINE says whose code is not made here, but given by whoever writes the graph.

In       an image, its entry, how it is launched, and what each of its parameters is
Out      `OwnProgram`, the argument of the ROUTINE that stands for the launch, and for its output where it has one;
         `OwnOutput`, that of a ROUTINE for one of several outputs, whose only source is the launch
Next     frontend/more/custom/__init__.py (who makes them), frontend/run/own_programs.py (who launches them)

Equal programs are one node. The text of a node is the same in every process, and names the image by its digest.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from hcq.ir.dtype import DType
from hcq.ir.shape import Shape


class OwnProgram(NamedTuple):
    """A launch.

    name, entry    what traces call it; the kernel's symbol in the image
    outputs        shape and number format of each
    parameters     of each parameter of the kernel, in order: ("output", which), ("input", which source) or
                   ("number", a word of hcq/code/fixed_numbers.py)
    grid, block    workgroups, threads of each
    shared_bytes   shared memory that a launch asks for, beyond what the image declares
    scratch_bytes  private memory of each worker, where the device is told it
    part           how a part of it is launched on each device of a group: frontend/more/custom/parts.py; else None
    """

    name: str
    entry: str
    image: bytes
    outputs: tuple[tuple[Shape, DType], ...]
    parameters: tuple[tuple[str, Any], ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    scratch_bytes: int = 0
    part: Any = None

    @property
    def shape(self) -> Shape:
        """Of its first output."""
        return self.outputs[0][0]

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a kernel's name ends in."""
        return self.shape

    @property
    def flops(self) -> int:
        """Nobody knows."""
        return 0

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.image).hexdigest()
        outputs = [(shape, dtype.name) for shape, dtype in self.outputs]
        rest = self.parameters, self.grid, self.block, self.shared_bytes, self.scratch_bytes
        return f"OwnProgram({self.name}, {self.entry}, {digest}, {outputs}, {rest})"


class OwnOutput(NamedTuple):
    """One of several outputs of a launch: which, and its shape."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    shape: Shape
    name: str = "output"

    @property
    def numbers(self) -> tuple[int, ...]:
        """As of an OwnProgram."""
        return self.shape

    @property
    def flops(self) -> int:
        """As of an OwnProgram."""
        return 0
