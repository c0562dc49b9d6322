"""Routines: kernels that walk over a matrix in order, written down as linear programs instead of being made of a graph.

In       (see writer.py)
Out      `program`: the linear program of a kernel that stores a ROUTINE
Next     writer.py (the words they are written in), then a file for each routine, of its name
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.program import Program
    from hcq.compiler.target import Target
    from hcq.ir.node import Node, Routine

NAMES = (
    *("cholesky", "ldl", "ldl_solve", "lu", "pivots", "triangular"),
    *("householder", "tridiagonal", "ql", "jacobi"),
    *("householder_pairs", "jacobi_pairs", "hessenberg", "schur", "eigenvectors"),
)


def routine_of(sink: Node) -> Routine | None:
    """The routine that a kernel runs; None for a kernel that is made of a graph."""
    if sink.src and len(sink.src[0].src) > 1 and sink.src[0].src[1].op is Op.ROUTINE:
        found: Routine = sink.src[0].src[1].arg
        return found
    return None


def program(sink: Node, name: str, target: Target) -> Program:
    """The program of a kernel that stores a ROUTINE. Raises ValueError for one that there is no file of."""
    from hcq.compiler.routines.writer import Writer

    store = sink.src[0]
    routine: Routine = store.src[1].arg
    if routine.name not in NAMES:
        raise ValueError(f"no routine {routine.name!r}; known: {', '.join(NAMES)}")
    params = [store.src[0], *store.src[1].src]
    for place, node in enumerate(params):
        while node.op is Op.RESHAPE:
            node = node.src[0]
        if node.op is not Op.PARAM:
            raise ValueError(f"routine {routine.name}: source {place} is a {node.op.name}, not in memory")
        params[place] = node
    module = importlib.import_module(f"hcq.compiler.routines.{routine.name}")
    groups, columns = module.layout(*routine.numbers)
    writer = Writer(params, target, groups, columns)
    module.write(writer, *routine.numbers)
    return writer.finish(name)
