"""Transforms that bring what a kernel reads near to where it is computed with: packed, shared, copied ahead.

In       a nest and the number of one of its loads
Out      the nest with a copy at a loop
Next     windows.py (what sliding windows share), ../linear/staging.py (a CPU's copies), ../linear/sharing.py (a GPU's)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.loops.binding import MAX_THREADS
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.compiler.loops.windows import Windows
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self

PRODUCERS = 128  # threads of a warpgroup
MAX_TILES = 8  # of an operand in shared memory


class Operands(Windows):
    """stage, box, pipeline."""

    def stage(self, load: int, at: str = "-", is_box: bool = False) -> Self:
        """Pack what load number `load` (in graph order) reads within one step of loop `at` into scratch.

        The copy runs when a step of `at` begins ("-": when a group begins); reading it afterwards is dense and needs no
        condition: what was invalid is zero. Raises ScheduleError where `never_staged` says why, and for a loop that is
        written out or that does not hold what differs by group.
        """
        verb = "box" if is_box else "stage"
        if not 0 <= load < len(self.loads):
            raise ScheduleError(
                f"{verb} {load} {at}: the kernel has {len(self.loads)} loads, numbered from 0"
            )
        node = self.loads[load]
        if refusal := self.never_staged(node):
            raise ScheduleError(f"{verb} {load} {at}: {refusal}")
        loop = None if at == "-" else self.loop(at)
        if loop is not None and loop not in self.order:
            raise ScheduleError(f"{verb} {load} {at}: {at} is written out; stage at a counted loop")
        if at == "-" and any(self.masks[node] & group.axis.bit for group in self.groups):
            raise ScheduleError(
                f"{verb} {load} {at}: it differs by group; name the group's loop instead of -"
            )
        if loop is not None and loop.axis.is_reduce and not self._is_read_in(node, loop.axis):
            raise ScheduleError(f"{verb} {load} {at}: it is not read in there alone")
        begins_with = any(node in toposort(scan.src[2:]) for scan in self.scans)
        if loop is not None and loop.axis.is_scanned and begins_with:
            raise ScheduleError(f"{verb} {load} {at}: a scan begins with it, before its loops")
        if is_box and not self.walks(node):
            raise ScheduleError(f"{verb} {load} {at}: no sliding window, no contiguous reduction; use stage")
        users = [user for user in self.masks if node in user.src]
        is_cast = (
            self.unit is None
            and len(users) == 1
            and users[0].op is Op.CAST
            and not self.affine.is_index(users[0])
        )
        kept = users[0] if is_cast else node
        for use in filter(None, (self.unit, *self.beside)):  # 8-bit floats that the unit takes as halves
            kept = next((f for f in (use.a, use.b) if f.op is Op.CAST and f.src[0] is node), kept)
        if self.dots is not None:
            from hcq.compiler.loops.dot_units import read_by

            for factor in (self.dots.a, self.dots.b):
                kept = factor if read_by(factor) is node else kept
        self.stages.append(Stage(node, kept, loop, is_box))
        self.choices.append(f"{verb} {load} {at}")
        return self

    def box(self, load: int, at: str = "-") -> Self:
        """`stage` in the order of memory: copied by vectors, and what sliding windows share is kept once."""
        return self.stage(load, at, is_box=True)

    def _is_read_in(self, load: Node, axis: Axis) -> bool:
        """Whether reductions over the axis read a load, and nothing else does."""
        over = {node for node in self.reduces if axis.range in node.src[1:]}
        outside, stack = set[Node](), [self.sink]
        while stack:
            node = stack.pop()
            if node not in outside and node not in over:
                outside.add(node)
                stack.extend(node.src)
        return load not in outside

    def never_staged(self, load: Node) -> str:
        """Why a load cannot be packed, wherever; "" when it can."""
        if load.src[0] in {store.src[0] for store in self.stores}:
            return "the kernel writes what it would copy"
        if any(self.affine.is_gather(atom) for atom in self.affine.of(load.src[1]).atoms()):
            return "its address is itself loaded"
        return ""

    def pipeline(self, name: str, tiles: int = 2, by: str = "") -> Self:
        """What is staged at a reduction's loop is copied for its next step while one computes.

        tiles   of each operand: with 1 and 2 the next step's is in registers meanwhile, and with 1 it takes this one's
                place; 3 and more need copies that the GPU does by itself, and are that many steps ahead but one
        by      "bulk": one thread has whole tiles copied by the GPU's tensor memory accelerator (sm_90); "producer":
                one of a further warpgroup does, which does nothing else, and no thread waits for all others

        Raises ScheduleError for a loop of an output, one at which nothing is staged, and a kernel without threads; for
        bulk copies of what is no tensor, and of what no matrix unit reads in shared memory.
        """
        loop = self.loop(name)
        if not 1 <= tiles <= MAX_TILES:
            raise ScheduleError(f"pipeline {name} {tiles}: 1 to {MAX_TILES} tiles, not {tiles}")
        if not self.digits or not loop.axis.is_reduce or loop not in self.order:
            raise ScheduleError(
                f"pipeline {name}: it is no counted loop of a reduction in a kernel with threads"
            )
        if not any(stage.at is loop for stage in self.stages):
            raise ScheduleError(f"pipeline {name}: nothing is staged there")
        if by:
            refusals = [self.never_in_bulk(stage.load) for stage in self.stages if stage.at is loop]
            if by not in ("bulk", "producer") or any(refusals):
                why = next(filter(None, refusals), f"there are bulk and producer, not {by!r}")
                raise ScheduleError(f"pipeline {name} {tiles} {by}: {why}")
            self.bulk.add(loop)
            if by == "producer":
                if self.threads + PRODUCERS > MAX_THREADS:
                    raise ScheduleError(
                        f"pipeline {name} {tiles} {by}: {self.threads} threads and {PRODUCERS} more"
                    )
                self.produced.add(loop)
        self.pipelined[loop] = tiles
        self.choices.append(
            f"pipeline {name}{f' {tiles}' if tiles != 2 or by else ''}{f' {by}' if by else ''}"
        )
        return self

    def never_in_bulk(self, load: Node) -> str:
        """Why a load cannot be copied in bulk; "" when it can."""
        from hcq.compiler.loops.tensors import tensor_of

        tensor = tensor_of(self, load)
        if not self.is_read_by_unit(load):
            return "a bulk copy is for a matrix unit that reads shared memory"
        if tensor is None:
            return "what is copied is no tensor with strides of 16 bytes, or the buffer is read elsewhere"
        uses = [use for use in (self.unit, *[link.use for link in self.chained]) if use is not None]
        ranges = [axis for use in uses if load in (use.a, use.b) for axis in (use.m, use.n, use.k)]
        return "" if tensor.axes[0] in ranges else "no row of a tile lies together in memory"
