"""Numbers taken apart into smaller ones: what an array with a second axis is while an instruction is traced.

In       symbols: one for each column of such an array
Out      Parts, on which NumPy's functions work column by column; whole numbers again
Changes  the Writer
Next     symbols.py (one number for each lane), straight.py (who takes numbers apart)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from hcq.emu.compiled.symbols import NotTraced, Symbol


class Parts(NDArrayOperatorsMixin):
    """Columns, the first of which are the low bits of a whole number."""

    __array_priority__ = 2000.0

    def __init__(self, columns: list[Any]) -> None:
        self.columns = columns

    @property
    def dtype(self) -> Any:
        """Of each number."""
        return self.columns[0].dtype

    @property
    def itemsize(self) -> int:
        """Bytes of each number."""
        return int(self.dtype.itemsize)

    @property
    def shape(self) -> tuple[int, ...]:
        """As NumPy's array of some lanes has it."""
        return (-1, len(self.columns))

    @property
    def flags(self) -> Any:
        """Nothing has to be put in order."""
        return np.zeros(1).flags

    def _each(self, change: Callable[[Any], Any]) -> Parts:
        return Parts([change(one) for one in self.columns])

    def astype(self, dtype: Any, copy: bool = True) -> Parts:
        """Converted as NumPy converts."""
        return self._each(lambda one: one.astype(dtype))

    def copy(self) -> Parts:
        """Symbols do not change."""
        return self

    def reshape(self, *shape: Any) -> Any:
        """The rows as they are; or all numbers in a row, which is seen as whole numbers next."""
        if shape in ((-1,), (-1, len(self.columns))):
            return self.columns[0] if len(self.columns) == 1 else self
        raise NotTraced(f"numbers in rows of {shape}")

    def view(self, dtype: Any) -> Any:
        """The same bits: as other numbers of this size, or as whole ones."""
        to = np.dtype(dtype)
        if to.itemsize == self.itemsize:
            return self._each(lambda one: one.view(to))
        if to.itemsize != self.itemsize * len(self.columns) or to.kind not in "ui":
            raise NotTraced(f"a view of {len(self.columns)} {self.dtype} as {to}")
        whole, size = np.dtype(f"u{to.itemsize}"), 8 * self.itemsize
        found: Any = None
        for number, one in enumerate(self.columns):
            part = one.view(f"u{self.itemsize}").astype(whole) << whole.type(number * size)
            found = part if found is None else found | part
        return found.view(to)

    def any(self, axis: Any = None) -> bool:
        """Perhaps."""
        return True

    def all(self, axis: Any = None) -> bool:
        """Perhaps not."""
        return False

    def sum(self, axis: int) -> Any:
        """Of each row."""
        if axis != 1:
            raise NotTraced("sums of columns")
        found = self.columns[0]
        for one in self.columns[1:]:
            found = found + one
        return found

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and key[0] == slice(None):
            if isinstance(key[1], int):
                return self.columns[key[1]]
            if isinstance(key[1], slice):
                return Parts(self.columns[key[1]])
        raise NotTraced("some of the rows")

    def _refuse(self, *arguments: Any) -> Any:
        raise NotTraced("a value decides what is computed")

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = __array__ = _refuse

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if all(type(one) is Parts for one in options.get("out", ())):  # a new value in place of an old one
            options.pop("out", None)
        if method != "__call__" or set(options) - {"dtype"}:
            raise NotTraced(f"{function.__name__}.{method}")
        return _by_column(lambda *one: function(*one, **options), inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function is np.ascontiguousarray:
            return self
        if function is np.take_along_axis:
            return take_along_axis(None, *arguments, **options)
        if function is np.broadcast_arrays:
            return arguments
        if options:
            raise NotTraced(f"numpy.{function.__name__} of rows")
        return _by_column(function, arguments)


def _by_column(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Parts:
    count = next(len(one.columns) for one in inputs if isinstance(one, Parts))
    rows = [[_column(one, number, count) for one in inputs] for number in range(count)]
    return Parts([function(*row) for row in rows])


def _column(x: Any, number: int, count: int) -> Any:
    if isinstance(x, Parts):
        if len(x.columns) != count:
            raise NotTraced("rows of other lengths")
        return x.columns[number]
    if isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[1] == count:
        return x[:, number]
    return x


def apart(x: Symbol, dtype: Any) -> Parts:
    """The smaller numbers that a number consists of, the low ones first."""
    size, whole = 8 * dtype.itemsize, np.dtype(f"u{x.itemsize}")
    bits, small = x.view(whole), np.dtype(f"u{dtype.itemsize}")
    pieces = [bits >> whole.type(size * number) for number in range(x.itemsize // dtype.itemsize)]
    return Parts([piece.astype(small).view(dtype) for piece in pieces])


def stack(w: Any, columns: Any, axis: int = 0) -> Any:
    """Columns side by side; or rows of a new array."""
    return Parts(list(columns)) if axis == 1 else list(columns)


def take_along_axis(w: Any, x: Any, which: Any, axis: int) -> Parts:
    """Of each row the columns of these numbers."""
    if isinstance(x, Parts) and isinstance(which, np.ndarray) and which.shape[0] == 1 and axis == 1:
        return Parts([x.columns[int(number)] for number in which[0]])
    if not isinstance(x, Parts) or not isinstance(which, Parts) or axis != 1:
        raise NotTraced("other lanes of what is no register")

    def chosen(number: Any) -> Any:
        found = x.columns[0]
        for place, one in enumerate(x.columns[1:], 1):
            found = np.where(number == number.dtype.type(place), one, found)
        return found

    return Parts([chosen(number) for number in which.columns])
