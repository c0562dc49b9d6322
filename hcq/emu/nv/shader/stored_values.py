"""What a store of PTX is about to write, beside what is there, for races that equal values are no part of.

In       the Code of a store
Out      `stored_of`: for the threads that execute it, a Stored
Next     race_steps.py (who asks), hcq/emu/shader/stored.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Code, Registers
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.memory_ops import of_lanes, space_of
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.shader.stored import Stored, bytes_of

StoredOf = Callable[[Registers, Batch, "Lanes | None", Lanes], "Stored | None"]


def stored_of(code: Code, space: str, count: int) -> StoredOf:
    """Of a store whose space and vector were taken from its words. It is asked with the addresses of the threads."""
    where, type_ = space_of(code, space, code.operands[0]), code.type(*TYPES)
    bits = type_.bits
    slots = [code.slot(part, type_, is_wide=True) for part in code.parts(code.operands[1], count)]

    def stored(registers: Registers, batch: Batch, lanes: Lanes | None, at: Lanes) -> Stored | None:
        values = [of_lanes(registers[slot], lanes, batch.count).astype(bits, copy=False) for slot in slots]
        plain = object.__new__(Batch)
        plain.__dict__.update(batch.__dict__)
        while hasattr(plain.memory, "memory"):  # who looks at it is not asked
            plain.memory = plain.memory.memory
        try:
            before = where.load(plain, lanes, at, bits, count)
        except BadAccess:  # the instruction itself says so
            return None
        return Stored(bytes_of(np.stack(values, axis=1)), bytes_of(before))

    return stored
