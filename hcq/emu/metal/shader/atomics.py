"""Atomic operations of many threads on memory, one after the other in the order of their numbers.

In       memory, the place of each thread in it, operands
Out      what each thread found
Changes  memory
Next     machine.py (who asks, and looks for races), hcq/emu/shader/contended_atomics.py (many threads at one place)
Source   Metal Shading Language Specification, "Atomic Functions"
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.shader.contended_atomics import Queues, accumulating, exchanging

Array = Any  # NumPy's own annotations do not describe arrays of unknown dtype
FUNCTIONS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}


def operate(view: Array, at: Array, operation: str, x: Array, y: Array) -> Array:
    """What each thread found. view: numbers of their type; x, y: operands, y that of compare and exchange."""
    kind = view.dtype
    bits = np.dtype(f"u{kind.itemsize}")
    queues, words = Queues(at), view.view(bits)
    places = at[queues.firsts]
    run: Any = exchanging
    if operation in FUNCTIONS:
        function = FUNCTIONS[operation]
        run = accumulating(function, kind)

        def turn(seen: Array, mine: Array, other: Array) -> Array:
            return function(seen.view(kind), mine.view(kind)).view(bits)

    elif operation == "compare_exchange_weak":
        run = None

        def turn(seen: Array, mine: Array, other: Array) -> Array:
            return np.where(seen == mine, other, seen)

    else:

        def turn(seen: Array, mine: Array, other: Array) -> Array:
            return mine

    found, current = queues.serve(words[places], x.view(bits), y.view(bits), turn, run)
    words[places] = current
    return found.view(kind)
