"""Code without loops over lanes: all lanes of a warp are one vector, and numbers can be taken apart into smaller ones.

In       operations on symbols, as writer.py's
Out      lines of one stream
Changes  itself
Next     writer.py (operations), parts.py (numbers taken apart), hcq/emu/nv/shader/native_text.py (who writes with it)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from hcq.emu.compiled import parts
from hcq.emu.compiled.operations import FUNCTIONS, same
from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.compiled.writer import Writer

U32, I64 = np.dtype(np.uint32), np.dtype(np.int64)


def _bits(w: Any, mask: Any, axis: Any = None, bitorder: str = "big") -> Symbol:
    """Booleans of lanes as the bits of one number."""
    if bitorder != "little" or not isinstance(mask, Symbol) or mask.dtype != np.bool_:
        raise NotTraced("bits of what is no mask")
    return Symbol(w, w.mask_bits(mask), U32, False)


class StraightWriter(Writer):
    """Writes code whose vectors have all lanes."""

    functions: ClassVar[dict[str, Any]] = {
        **FUNCTIONS,
        "packbits": _bits,
        "repeat": same,
        "stack": parts.stack,
        "take_along_axis": parts.take_along_axis,
    }

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes)
        self.width = lanes
        self.lines: list[str] = []
        self.scalar = self.vector = self.lines

    def begin(self) -> None:
        """Lines of a new block: nothing that was computed before is known."""
        self.lines = self.scalar = self.vector = []
        self.splats = {}

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """What is written here is gone when it is not traced to its end."""
        length, splats = len(self.lines), dict(self.splats)
        try:
            yield
        except Exception:
            del self.lines[length:]
            self.splats = splats
            raise

    def mask_bits(self, mask: Symbol) -> str:
        """The name of an i32 with the bits of booleans of 32 lanes."""
        if not mask.is_vector:
            return self.say(f"select i1 {mask.text}, i32 -1, i32 0", False)
        return self.say(f"bitcast <{self.width} x i1> {mask.text} to i{self.width}", False)

    def mask_from(self, bits: str) -> Symbol:
        """Booleans of lanes from the bits of an i32."""
        key = f"mask {bits}"
        if key not in self.splats:
            self.splats[key] = self.say(f"bitcast i{self.width} {bits} to <{self.width} x i1>", True)
        return Symbol(self, self.splats[key], np.bool_, True)

    def apart(self, x: Symbol, dtype: Any) -> Any:
        """Smaller numbers side by side."""
        if "b" in (x.dtype.kind, dtype.kind) or x.itemsize % dtype.itemsize:
            raise NotTraced(f"a view of {x.dtype} as {dtype}")
        return parts.apart(x, dtype)

    def picked(self, x: Symbol, index: Symbol) -> Symbol:
        """For each lane the number of another lane."""
        if index.dtype.kind not in "iu" or x.dtype.kind not in "iu" or x.itemsize != 4:
            raise NotTraced("some of the lanes")
        if not x.is_vector:
            return x
        n = self.width
        self.lines.append(f"store <{n} x i32> {x.text}, ptr %pick, align 64")
        at = self.wide(self.convert(index, I64))
        where = self.say(f"getelementptr i32, ptr %pick, <{n} x i64> {at}", True)
        found = self.say(
            f"call <{n} x i32> @llvm.masked.gather.v{n}i32.v{n}p0(<{n} x ptr> {where}, i32 4, "
            f"<{n} x i1> splat (i1 true), <{n} x i32> poison)",
            True,
        )
        return Symbol(self, found, x.dtype, True)
