"""Transforms by which one instruction does the loops of a sum of products: matrix units, dot products of processors.

In       a nest whose innermost loops have the instruction's sizes
Out      the nest with those loops as threads and registers of the instruction, or as its words
Next     products.py (how; imported for the first kernel that has one), nest.py, loop_nest.py (all transforms)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.loops.nest import Nest, ScheduleError

if TYPE_CHECKING:
    from typing_extensions import Self


class Instructions(Nest):
    """matrix, chain, collect, dot."""

    def matrix(self, m: str, n: str, k: str, unit: str) -> Self:
        """Three loops, of two outputs and of a sum of products, become one instruction of a wave.

        Its threads are the first digits of a thread's number. Raises ScheduleError for an unknown unit, loops of other
        sizes, loops that are not the innermost of their ranges, and what is no sum of products of its operands.
        """
        from hcq.compiler.loops import products

        products.matrix(self, m, n, k, unit)
        return self

    def collect(self) -> Self:
        """What the matrix unit computed is put together in shared memory, and what is made of it stored by rows.

        Raises ScheduleError without a matrix unit, and for stores that read what others of the kernel write.
        """
        if self.unit is None:
            raise ScheduleError("collect: no matrix unit has results that would be put together")
        if self.reads_what_it_writes:
            raise ScheduleError("collect: the kernel reads what it writes")
        self.collects = True
        self.choices.append("collect")
        return self

    @property
    def reads_what_it_writes(self) -> bool:
        """Whether a store may change what another one reads."""
        written = {store.src[0] for store in self.stores}
        return len(self.stores) > 1 and any(load.src[0] in written for load in self.loads)

    def chain(self, name: str) -> Self:
        """The sums over one range of what `matrix` computes become products by the same unit.

        name  the loop of their other range, of as many steps as the unit has there. One factor is then made by the
              threads that hold the first product, which the unit takes as it lies (or after one exchange)

        Raises ScheduleError where no product was given to a unit, where its results lie otherwise than operands of a
        second one, and for sums that are no products of such a factor with a load in the unit's own format.
        """
        from hcq.compiler.loops import products

        products.chain(self, name)
        return self

    def dot(self, name: str, unit: str) -> Self:
        """The steps of the innermost loop of a sum of products are added up by one instruction in every lane.

        Its operands are words of neighbours along the loop: `stage` lays them out so. Raises ScheduleError for an
        unknown unit, a loop of other size than the unit's depth, and for what is no one sum of products in its formats.
        """
        from hcq.compiler.loops import products

        products.dot(self, name, unit)
        return self
