"""Symbols: what stands for an array while an instruction is traced; every operation on one writes a line of LLVM IR.

In       what the interpreter's own functions do with arrays: operators, NumPy's functions, casts and views
Out      the lines that compute the same bits, in a Writer; NotTraced for what has no such lines
Changes  the Writer
Next     writer.py (where lines go), operations.py (a line for each function of NumPy)

A symbol has a number for each lane, or one that all lanes have. Only bits decide: a question that code asks of values,
such as "is any of these a NaN?", gets the answer that takes no short cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

TYPES = {"b1": "i1", "f2": "half", "f4": "float", "f8": "double"}


class NotTraced(Exception):
    """An instruction does what has no compiled form: the interpreter runs it."""


def llvm_type(dtype: Any) -> str:
    """LLVM's name of the type of one lane. Raises NotTraced."""
    kind, size = dtype.kind, dtype.itemsize
    if kind in "ui":
        return f"i{8 * size}"
    found = TYPES.get(f"{kind}{size}")
    if found is None:
        raise NotTraced(f"numbers of type {dtype}")
    return found


class Symbol(NDArrayOperatorsMixin):
    """A value of the code that is being written."""

    __array_priority__ = 1000.0

    def __init__(self, writer: Any, text: str, dtype: Any, is_vector: bool) -> None:
        self.writer, self.dtype, self.is_vector = writer, np.dtype(dtype), is_vector
        self._text, self.segment = text, writer.segment
        self.narrow: Symbol | None = None  # the float32 that a float64 was
        self.factors: tuple[Any, Any] | None = None  # of an exact product of two such

    @property
    def text(self) -> str:
        """Its name in the IR. Raises NotTraced where the loop that computed it has ended."""
        if self.is_vector and self.segment != self.writer.segment:
            raise NotTraced("a value of a loop is used behind it")
        return self._text

    @property
    def shape(self) -> tuple[int, ...]:
        """As the interpreter's arrays of one wave have it."""
        return (1, self.writer.lanes) if self.is_vector else (1,)

    @property
    def flags(self) -> Any:
        """A symbol lies nowhere: nothing has to be put in order."""
        return np.zeros(1).flags

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return int(self.dtype.itemsize)

    @property
    def size(self) -> int:
        """Some."""
        return self.shape[-1]

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        """Converted as NumPy converts."""
        made: Symbol = self.writer.convert(self, np.dtype(dtype))
        return made

    def view(self, dtype: Any) -> Symbol:
        """The same bits. Raises NotTraced where numbers would be put together or taken apart."""
        to = np.dtype(dtype)
        if to == self.dtype:
            return self
        if to.itemsize != self.dtype.itemsize or "b" in (to.kind, self.dtype.kind):
            parts: Symbol = self.writer.apart(self, to)
            return parts
        if to.kind in "ui" and self.dtype.kind in "ui":
            made: Symbol = self.writer.named(self, self.text, to)
        else:
            made = self.writer.bitcast(self, to)
        return made

    def copy(self) -> Symbol:
        """Symbols do not change."""
        return self

    def reshape(self, *shape: Any) -> Symbol:
        """Lanes have one order only."""
        return self

    def fuse(self, p: Any, c: Any, kind: Any, rounding: int) -> Symbol:
        """p + c of an exact product p, rounded once to float32. Raises NotTraced for other types and roundings."""
        if rounding or np.dtype(kind) != np.float32:
            raise NotTraced("a fused sum that is no float32's, to nearest")
        made: Symbol = self.writer.fused(p, c)
        return made

    def fuse64(self, *operands: Any) -> Symbol:
        """a * b + c of doubles, rounded once."""
        made: Symbol = self.writer.intrinsic(
            "fma", *(self.writer.as_symbol(one, np.float64) for one in operands)
        )
        return made

    def lookup(self, values: Any) -> Symbol:
        """What a table of float32 has at this place. Raises NotTraced."""
        made: Symbol = self.writer.lookup(self, values)
        return made

    def any(self, axis: Any = None) -> bool:
        """Perhaps."""
        return True

    def all(self, axis: Any = None) -> bool:
        """Perhaps not."""
        return False

    def byteswap(self) -> Symbol:
        """Bytes in the reverse order."""
        made: Symbol = self.writer.unary_intrinsic("bswap", self)
        return made

    def __getitem__(self, key: Any) -> Any:
        """All lanes: `[:, None]`, `[...]`, `[lanes that are on]`. Raises NotTraced for some."""
        whole = slice(None)
        if isinstance(key, Symbol) and key.dtype == np.bool_ and key.is_vector == self.is_vector:
            return self
        if isinstance(key, Symbol):
            picked: Symbol = self.writer.picked(self, key)
            return picked
        if isinstance(key, np.ndarray) and key.dtype.kind in "iu" and key.size > 1:
            picked = self.writer.picked(self, self.writer.constant(key, key.dtype))
            return picked
        if key is Ellipsis or (not isinstance(key, np.ndarray) and key in ((whole, None), whole)):
            return self
        if isinstance(key, int) and not key and not self.is_vector:  # of the only wave
            return self
        raise NotTraced("some of the lanes")

    def _refuse(self, *arguments: Any) -> Any:
        raise NotTraced("a value decides what is computed")

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = __array__ = _refuse

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        target = options.pop("out", None)
        where = options.pop("where", True)
        kind = options.pop("dtype", None)
        if method != "__call__" or options or where is not True:
            raise NotTraced(f"{function.__name__}.{method}")
        if target is not None and type(target[0]) is not Symbol:
            raise NotTraced("a result put into a register")
        made: Symbol = self.writer.call(function.__name__, inputs, kind)
        return made

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        handler: Callable[..., Any] | None = self.writer.functions.get(function.__name__)
        if handler is None:
            raise NotTraced(f"numpy.{function.__name__}")
        return handler(self.writer, *arguments, **options)
