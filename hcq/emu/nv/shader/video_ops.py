"""SIMD video instructions: four bytes or two halfwords of a register at a time.

In       Code such as vabsdiff4.u32.u32.u32.add
Out      steps
Changes  nothing
Next     integer_ops.py (dp4a)
Source   PTX ISA, "SIMD Video Instructions"; selectors and masks of lanes are refused
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader.compare_ops import ORDERED
from hcq.emu.nv.shader.decode import Code, Rules, Step
from hcq.emu.nv.shader.types import TYPES, Lanes

RULES = Rules()
OPERATIONS: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,  # rounded away from zero
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
PARTS = {"2": (np.uint16, np.int16), "4": (np.uint8, np.int8)}


@RULES.on(*(f"{name}{count}" for name in (*OPERATIONS, "vset") for count in PARTS))
def simd(code: Code) -> Step:
    """Each part of a with the same part of b; .add sums the parts onto c instead."""
    name, parts = code.instruction.opcode[:-1], PARTS[code.instruction.opcode[-1]]
    compare = code.take(*ORDERED) if name == "vset" else ""
    d_type = TYPES["u32"] if name == "vset" else code.type("u32", "s32")
    a_type, b_type = code.type("u32", "s32"), code.type("u32", "s32")
    saturates, adds = code.flag("sat"), code.flag("add")
    compute = ORDERED[compare] if name == "vset" and compare else OPERATIONS.get(name)
    if compute is None:
        raise code.refuse("vset needs a comparison")
    a_part, b_part, d_part = (parts[type_.kind == "s"] for type_ in (a_type, b_type, d_type))
    low, high = int(np.iinfo(d_part).min), int(np.iinfo(d_part).max)
    count = 4 // np.dtype(d_part).itemsize

    def whole(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        x = a.view(a_part).reshape(-1, count).astype(np.int64)
        y = b.view(b_part).reshape(-1, count).astype(np.int64)
        found = compute(x, y).astype(np.int64)
        if adds:
            return (found.sum(axis=1) + c.astype(np.int64)).astype(np.uint32)
        if saturates:
            found = np.clip(found, low, high)
        return np.ascontiguousarray(found.astype(parts[0])).view(np.uint32).reshape(-1)

    b32 = TYPES["b32"]
    return code.step(whole, b32, b32, b32, b32)
