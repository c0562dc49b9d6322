"""Programs: a library made of MSL text, a pipeline, and where a kernel's arguments go.

In       the text of a kernel and its name
Out      a MetalProgram whose entry is its MTLComputePipelineState
Changes  a library and a pipeline, which go when the program is dropped
Next     hcq/gpu/program.py (how arguments are checked and packed), commands.py (who sets them)
Source   Metal Shading Language Specification, "Address Spaces", "Locating Buffer, Texture, and Sampler
         Arguments"

An image is the text itself, as Metal's own compiler takes it. Its parameters are read from the head of the kernel:
`device` pointers are buffers, `constant T &` is a number of that type, and what has another attribute than
[[buffer(n)]] is not passed.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Protocol

from hcq import checks
from hcq.base import Grid
from hcq.errors import UsageError
from hcq.gpu.program import GpuLoader, GpuProgram
from hcq.metal import packets
from hcq.metal.abi import messages
from hcq.metal.abi.messages import MAX_BUFFERS
from hcq.metal.objc import Objc

MAX_GRID = 2**32 - 1  # a threadgroup's position is a uint
_PARAMETER = re.compile(
    r"(?P<space>device|constant)\s+(?:const\s+)?(?P<type>\w+)\s*(?P<sign>[*&])\s*(?P<name>\w+)\s*\[\[buffer\((?P<index>\d+)\)\]\]"
)
_SIZES = {
    "char": 1,
    "uchar": 1,
    "bool": 1,
    "short": 2,
    "ushort": 2,
    "half": 2,
    "int": 4,
    "uint": 4,
    "float": 4,
    "long": 8,
    "ulong": 8,
}


class Parameter(NamedTuple):
    """One entry of the buffer argument table."""

    place: int  # its index
    is_buffer: bool
    kind: str  # "buffer", "int" or "float"
    size_bytes: int


def parameters_of(source: str, entry: str, name: str) -> tuple[Parameter, ...]:
    """What a kernel is passed, in order. Raises UsageError when the text has no such kernel, or one that takes more."""
    head = re.search(rf"\bkernel\s+void\s+{re.escape(entry)}\s*\(", source)
    if head is None:
        known = ", ".join(re.findall(r"\bkernel\s+void\s+(\w+)", source)) or "none"
        raise UsageError(f"load({name!r}): no kernel {entry!r} in the text. Its kernels: {known}.")
    end = source.find("{", head.end())
    found = []
    for match in _PARAMETER.finditer(source, head.end(), end if end >= 0 else len(source)):
        is_buffer = match["sign"] == "*"
        size = 8 if is_buffer else _SIZES.get(match["type"], 0)
        if not size:
            raise UsageError(f"load({name!r}): {match[0]}: a number is one of {', '.join(_SIZES)}.")
        kind = "buffer" if is_buffer else "float" if match["type"] in ("float", "half") else "int"
        found.append(Parameter(int(match["index"]), is_buffer, kind, size))
    found.sort()
    if len({one.place for one in found}) < len(found) or any(one.place >= MAX_BUFFERS for one in found):
        raise UsageError(
            f"load({name!r}): {len(found)} parameters; Metal's table has {MAX_BUFFERS} entries, each for one. "
            "Compute it in several kernels."
        )
    return tuple(found)


class MetalLoader(GpuLoader, Protocol):
    """The device, as far as its programs need it."""

    @property
    def objc(self) -> Objc:
        """The runtime."""
        ...

    def retire(self, pipeline: int) -> None:
        """A program was dropped. Called by destructors."""


class MetalProgram(GpuProgram):
    """A pipeline with its parameters."""

    def __init__(
        self,
        device: MetalLoader,
        name: str,
        args: tuple[str, ...] | None,
        parameters: tuple[Parameter, ...],
        pipeline: int,
    ) -> None:
        self.parameters = parameters
        offsets, at = [], 0
        for one in parameters:
            offsets.append((at, one.size_bytes))
            at += -(-one.size_bytes // 4) * 4
        self._placed = list(zip(parameters, offsets))
        self.max_threads = int(device.objc.send(pipeline, messages.MAX_THREADS))
        weakly = weakref.ref(device)

        def release() -> None:
            owner = weakly()
            if owner is not None:
                owner.retire(pipeline)

        super().__init__(device, name, pipeline, args, 0, release)
        kinds = tuple(one.kind for one in parameters)
        if args is not None and len(args) != len(kinds):
            raise UsageError(
                f"load({name!r}): args={args}; the kernel takes {len(kinds)}: {', '.join(kinds)}."
            )

    def placed(self) -> list[tuple[Parameter, tuple[int, int]]]:
        """Each parameter with (offset, size in bytes) of it among the packed ones."""
        return self._placed

    @property
    def params_at(self) -> int:
        return 4 * packets.DispatchThreadgroups.length_words

    def places(self, args: Sequence[object]) -> list[tuple[int, int]]:
        if len(args) != len(self.parameters):
            kinds = ", ".join(one.kind for one in self.parameters)
            raise UsageError(
                f"dispatch {self.name}: takes {len(self.parameters)} arguments ({kinds}), got {len(args)}."
            )
        return [place for _, place in self._placed]

    def declared_kind(self, number: int) -> str:
        return self.parameters[number].kind

    def check_launch(self, grid: Grid, block: Grid) -> tuple[Grid, Grid]:
        call = f"dispatch {self.name}"
        grid = checks.sizes(call, "grid", grid, (MAX_GRID, MAX_GRID, MAX_GRID))
        block = checks.sizes(call, "block", block, (self.max_threads,) * 3)
        if prod(block) > self.max_threads:
            raise UsageError(
                f"{call}: block={block!r} has {prod(block)} threads, and this kernel's groups have "
                f"{self.max_threads} at "
                "most. Launch smaller groups."
            )
        return grid, block

    def dispatch(
        self, args: Sequence[object], grid: Grid, block: Grid
    ) -> tuple[bytes, tuple[int | float, ...]]:
        grid, block = self.launch_sizes(grid, block)
        values = self.values(args)
        packed = self.pack_args(args, values)
        packed += bytes(-len(packed) % 4)
        head = packets.DispatchThreadgroups(
            length=packets.DispatchThreadgroups.length_words + len(packed) // 4,
            pipeline=self.entry,
            grid_x=grid[0],
            grid_y=grid[1],
            grid_z=grid[2],
            block_x=block[0],
            block_y=block[1],
            block_z=block[2],
        )
        return head.to_bytes() + packed, tuple(values)
