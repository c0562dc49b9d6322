"""Loops: what a range of a kernel has become, and who runs the steps of each loop.

In       nothing: loop_nest.py makes them
Out      `Loop`, `Axis`
Next     loop_nest.py (the transforms), ../linear/ (who writes them down)

| kind   | who runs its steps
| serial | a loop, one after the other
| group  | groups: tasks of a CPU's threads, blocks of a GPU
| thread | the threads of one group, at the same time (GPUs)
| unroll | nobody: they are written out
| vector | the lanes of a vector
| dot    | one instruction that adds up the products of all of them (CPUs)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.ir.node import Node


@dataclass(eq=False)
class Loop:
    """One digit of a range: counts 0 .. size-1, each step worth `stride` values of the range."""

    name: str
    axis: Axis
    size: int
    stride: int
    kind: str = "serial"  # serial | group | thread | unroll | vector | dot
    digit: int = -1  # which digit of a thread's number counts it; kind thread
    is_held: bool = (
        False  # counted by the registers of a matrix unit's fragment: written out, but no copy of a body
    )

    @property
    def is_written_out(self) -> bool:
        """Whether it is no loop when the program runs: its steps are written out, or lanes."""
        return self.kind in ("unroll", "vector", "dot")


@dataclass(eq=False)
class Axis:
    """A range of the kernel and the loops it has become, outermost first."""

    range: Node
    name: str
    size: int
    is_reduce: bool
    is_ordered: bool
    bit: int
    loops: list[Loop] = field(default_factory=list)
    splits: int = 0
    # ordered, and all that a turn takes over from the one before are values of SCANs
    is_scanned: bool = False

    @property
    def counted(self) -> list[Loop]:
        """The loops that are loops when the program runs."""
        return [loop for loop in self.loops if loop.kind in ("serial", "group")]

    @property
    def threads(self) -> list[Loop]:
        """The loops whose steps are threads."""
        return [loop for loop in self.loops if loop.kind == "thread"]

    def may_scan(self, loop: Loop) -> bool:
        """Whether a loop of a scanned range may be threads: those in the order of their numbers, side by side."""
        at = self.loops.index(loop)
        inside = [other.kind == "thread" for other in self.loops[at + 1 :]]
        return inside == sorted(inside, reverse=True) and not any(o.kind == "thread" for o in self.loops[:at])

    @property
    def written_out(self) -> list[Loop]:
        """The loops that are none when the program runs."""
        return [loop for loop in self.loops if loop.is_written_out]

    @property
    def tile(self) -> int:
        """Values of the range covered by one step of the innermost counted loop; the size where all is written out."""
        counted = self.counted
        return counted[-1].stride if counted else self.size
