"""Code object: a compiled kernel as plain data, which a cache keeps and a device loads.

In       what the stations of pipeline.py found out about a kernel; or the bytes that a cache kept
Out      `CodeObject`; its bytes
Next     compile.py (who keeps them), frontend/run/plan.py (who loads them)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class CodeObject:
    """A compiled kernel: what a device needs to load and launch it, and what people ask about it."""

    name: str
    arch: str
    image: bytes
    entry: str
    args: tuple[str, ...]  # kinds, in order: "buffer"
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch_bytes: int  # per worker
    dynamic_shared_bytes: int  # of a group, beyond what the object declares: a launch asks for them
    # of each argument: "", or that of the tensor map that is passed, not the address
    tensor_maps: tuple[str, ...]
    flops: int
    traffic_bytes: int
    choice: str  # the schedule, replayable

    def to_bytes(self) -> bytes:
        """One line of JSON, then the image."""
        facts = asdict(self)
        del facts["image"]
        return json.dumps(facts, sort_keys=True).encode() + b"\n" + self.image

    @classmethod
    def from_bytes(cls, data: bytes) -> CodeObject:
        """The inverse of `to_bytes`. Raises ValueError for anything else."""
        head, _, image = data.partition(b"\n")
        try:
            facts = json.loads(head)
            for name in ("args", "tensor_maps", "grid", "block"):
                facts[name] = tuple(facts[name])
            made = cls(image=image, **facts)
            made._check()
            return made
        except (KeyError, TypeError, ValueError, RecursionError) as problem:
            raise ValueError(f"not a stored code object: {problem}") from problem

    def _sizes(self) -> tuple[int, ...]:
        return self.scratch_bytes, self.dynamic_shared_bytes, self.flops, self.traffic_bytes

    def _check(self) -> None:
        """Raises TypeError when a field is not what its annotation says."""
        words = (self.name, self.arch, self.entry, self.choice, *self.args, *self.tensor_maps)
        numbers = (*self.grid, *self.block, *self._sizes())
        if not all(type(word) is str for word in words) or not all(type(number) is int for number in numbers):
            raise TypeError("a field of the wrong type")
        if len(self.tensor_maps) != len(self.args):
            raise TypeError("each argument has a tensor map, or none")
        if len(self.grid) != 3 or len(self.block) != 3:
            raise TypeError("a grid and a block have three sizes")
