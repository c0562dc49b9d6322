"""The linear program: a kernel as a list of instructions, each at its place, ready to be spelled.

In       (made by linearize.py)
Out      `Instruction`, `Program`; `str(program)` reads like code
Next     linearize.py (who writes it), ../render/llvm.py (who spells it)

| op          | src                          | arg                      | means
| CONST       |                              | number                   | that number
| PARAM       |                              | Param                    | the address of a buffer
| SCRATCH     |                              | byte offset              | an address in this worker's scratch
| SPECIAL     |                              | "first", "last"          | the groups to run: first .. last-1
| SPECIAL     |                              | "thread"                 | the thread's number in its group
| LOOP        | low, high                    | LoopFacts                | counts low .. high-1; its value: the count
| ENDLOOP     | loop                         |                          |
| ACCUMULATOR | initial                      |                          | a variable; as a source: its value there
| UPDATE      | accumulator, value           |                          | assigns it
| LOAD        | address[, base[, mask]]      | offset in elements       | `dtype` at address + base + offset; masked: 0
| STORE       | address, base, value[, mask] | offset in elements       | base may be None
| BROADCAST   | scalar                       |                          | every lane is the scalar
| VECTOR      | lane values                  |                          | lanes from scalars
| LANE        | vector[, second vector]      | lanes: tuple of ints     | some lanes in that order; one gives a scalar
| ACROSS      | value                        | op, digits               | `op` over threads that differ in these
| BEFORE      | value                        | op, digits               | `op` over those of them with lesser numbers
| SHUFFLE     | value                        | mask                     | the value that thread number ^ mask has
| SHARED      |                              | byte offset              | an address in the memory that a group shares
| BARRIER     |                              | "", UNITS_READ, BUFFERS  | all threads of the group have come here; what
|             |                              |                          | they wrote is then seen by matrix units; what
|             |                              |                          | they wrote to buffers, by all of them
| MATRIX      | a, b, d[, exponents of a, b] | a MatrixUnit's name      | a @ b + d; each thread holds fragments, and of
|             |                              |                          | each operand the exponent of a block's scale
| LOAD_ROWS   | address, base                | offset, is turned        | fragments of squares of 8 rows of 16 bytes;
|             |                              |                          | turned bytes: of two squares each, sorted
| ROUND_TF32  | floats                       |                          | with 10 bits of fraction, as units take them
| COPY_SHARED | shared, base, address, base, | offsets, shared and not  | begins a copy of `dtype` there: zeros
|             | mask, guard                  |                          | where the mask is off, nothing for the guard
| COMMIT      |                              | copies of every wave     | the copies begun since the last are one batch
| WAIT        | [whether n more were begun]  | n                        | all batches of this thread but n are there
| DOT         | a, b, d                      | a DotUnit's name         | d + a's numbers * b's, narrow ones in words
| MBARRIERS   | shared, who                  | what each expects        | makes them; who: the condition for the thread
| EXPECT_…    | shared, number, who          | bytes                    | …TILES: so many come in the phase that begins
| COPY_TILE   | shared, base, shared, number,| offset in elements       | begins a copy of a box, a tensor map's, that
|             | who, map, its coordinates    |                          | tells the mbarrier when it is there
| WAIT_TILES  | shared, number, parity       |                          | the phase of this parity is over
| FREE_TILES  | shared, number, who          |                          | one arrival: who has read them
| PRODUCER    | who                          | "begin", "end"           | what stands between is done by `who` alone of
|             |                              |                          | the producers' threads, and nothing else
| DESCRIPTOR  | shared, base                 | offset, bytes leading,   | a swizzled matrix in shared memory; offset in
|             |                              | stride                   | elements
| WARPGROUP_… |                              |                          | four warps, whose matrix unit works by itself:
| …HELD       | value                        |                          | it is in registers before a fence that follows
| …FENCE      |                              |                          | it sees registers that were written before
| …MATRIX     | a, b: descriptors, or a held;| shape, type, which of    | begins a @ b + d, or a @ b; d's registers stay
|             | d or none                    | the descriptors turned   | with it, and a's
| …WAIT       |                              | n                        | what was begun is a batch; all but n are done
| …RESULT     | d                            |                          | all are done: the value of d
| TENSOR_…    |                              |                          | a matrix unit with a memory of its own:
| …MEMORY     | shared, warp 0, thread 0,    | columns, columns of a    | so many columns of it, all zero: an address;
|             | thread's warp                | tile                     | in shared memory an mbarrier and a word for it
| …HELD       | address, thread's warp,      | column                   | rows of a factor lie from there on, those of
|             | values                       |                          | all threads
| …MATRIX     | a, b: descriptors; address,  | column, kind, sizes, if  | begins a @ b + what is from that column on, or
|             | who. No a: it was held       | it adds; a's column, or  | a @ b
|             |                              | what turned              |
| …COMMIT     | shared, who                  |                          | what was begun arrives at the mbarrier at last
| …RESULT     | address, thread's warp       | column                   | the rows of this thread, from there on
| …FREE       | address, warp 0              | columns                  | all threads have read; gives it back
| arithmetic  | as in the graph              | as in the graph          | lane by lane
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from hcq.ir.dtype import DType, Scalar
from hcq.ir.node import Param
from hcq.ir.op import Op

BUFFERS = "buffers"  # argument of a BARRIER: what threads wrote to buffers is read behind it
UNITS_READ = "units read"  # argument of a BARRIER: matrix units that read shared memory come behind it
OF_NUMBERS = "of numbers"  # argument of MAX: where a source is a NaN, the other may be the result
NOT_NEGATIVE = "not negative"  # argument of a division whose dividend is known to be none: it needs no floor


class Instruction:
    """One step. Unlike a Node it has a place: two equal loads at two places are two instructions."""

    __slots__ = ("op", "dtype", "src", "arg", "depth")

    def __init__(self, op: Op, dtype: DType, src: tuple[Instruction | None, ...], arg: Any, depth: int):
        self.op = op
        self.dtype = dtype
        self.src = src
        self.arg = arg
        self.depth = depth  # how many loops are open where it stands

    def source(self, place: int) -> Instruction:
        """A source that this op always has."""
        found = self.src[place]
        assert found is not None, f"{self.op.name} without source {place}"
        return found

    @property
    def number(self) -> Scalar | None:
        """The number that its value is in every lane, None where that is not known."""
        it = self.src[0] if self.op is Op.BROADCAST else self
        return it.arg if it is not None and it.op is Op.CONST else None


@dataclass
class LoopFacts:
    """What a LOOP carries besides its bounds."""

    name: str
    runs: bool  # known to run at least once
    carried: list[Instruction] = field(default_factory=list)  # accumulators updated inside


@dataclass
class Program:
    """A kernel ready to be rendered."""

    name: str
    params: list[tuple[Param, DType]]
    instructions: list[Instruction]
    scratch_bytes: int
    groups: int
    digits: tuple[
        int, ...
    ] = ()  # of a thread's number, the fastest first: their product is the group's threads
    shared_bytes: int = 0
    shared_align: int = 16
    tensor_maps: dict[int, str] = field(
        default_factory=dict
    )  # by parameter: as TensorMaps of loops/tensors.py are written; it is one, not an address
    producers: int = 0  # threads behind the others, which bring tiles
    dynamic_shared_bytes: int = 0  # those that the object does not declare: a launch asks for them

    def ask_for_shared(self, most_declared: int) -> bool:
        """Whether a launch has to ask for its shared memory, where an object can declare so many bytes at most."""
        self.dynamic_shared_bytes = self.shared_bytes if self.shared_bytes > most_declared else 0
        return self.dynamic_shared_bytes > 0

    @property
    def launched(self) -> int:
        """How many threads a group is launched with."""
        return self.threads + self.producers

    @property
    def threads(self) -> int:
        """How many threads of a group compute."""
        return prod(self.digits)

    def __str__(self) -> str:
        names: dict[Instruction | None, str] = {None: "-"}
        lines = []
        indent = 0
        for number, it in enumerate(self.instructions):
            names[it] = f"%{number}"
            if it.op is Op.ENDLOOP:
                indent -= 1
            sources = " ".join(names[s] for s in it.src)
            arg = it.arg.name if isinstance(it.arg, LoopFacts) else "" if it.arg is None else it.arg
            lines.append(
                f"{number:5} {'  ' * indent}{it.op.name.lower()} {it.dtype.name} {sources} {arg}".rstrip()
            )
            if it.op is Op.LOOP:
                indent += 1
        return "\n".join(lines)
