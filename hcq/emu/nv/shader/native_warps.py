"""Reductions over a warp in compiled PTX: `redux.sync` of integers.

In       a `redux`, registers in symbols; all threads that its mask names are here
Out      lines that carry it out
Changes  the writer
Next     warp_ops.py (what the interpreter does), native_text.py (who asks)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.lane_numbers import WARP
from hcq.emu.nv.shader.native_memory import Access
from hcq.emu.nv.shader.syntax import Immediate

WHOLE = 0xFFFFFFFF
# what changes nothing
NEUTRAL = {
    "add": 0, "or": 0, "xor": 0, "and": WHOLE, "umin": WHOLE, "umax": 0, "smin": 0x7FFFFFFF, "smax": 0x80000000
}  # fmt: skip


def redux(code: Code, access: Access) -> None:
    """`redux.sync` of a whole warp. Raises NotTraced for floats, and for parts of warps."""
    code.flag("sync")
    what = code.take("add", "min", "max", "and", "or", "xor")
    type_ = code.type("u32", "s32", "b32", "f32")
    members = code.operands[2]
    if not what or type_.is_float or not isinstance(members, Immediate) or members.value & WHOLE != WHOLE:
        raise NotTraced("a reduction of floats, or of a part of a warp")
    if what in ("min", "max"):
        what = ("s" if type_.kind == "s" else "u") + what
    w, registers, words = access.w, access.registers, np.dtype(np.uint32)
    data = w.as_symbol(registers[code.source(1, type_)].view(words), words)
    chosen = w.select(w.mask_from(registers.mask), data, w.as_symbol(NEUTRAL[what], words))
    row = f"<{WARP} x i32>"
    found = w.say(f"call i32 @llvm.vector.reduce.{what}.v{WARP}i32({row} {w.wide(chosen)})", False)
    slot = code.destination(code.operands[0], type_)
    registers[slot] = Symbol(w, found, words, False).view(code.lowering.decoded.first[slot].dtype)


DECLARED = [f"declare i32 @llvm.vector.reduce.{what}.v{WARP}i32(<{WARP} x i32>)" for what in NEUTRAL]
