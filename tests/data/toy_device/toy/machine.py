"""What the toy's machine code runs on: memory by address, and arithmetic with the meaning that every target has.

In       addresses, formats by name, numbers
Out      numbers
Changes  memory
Next     codegen.py (the code), hcq/ir/meaning.py (what an operation computes)
"""

from __future__ import annotations

from hcq.ir.dtype import DType, Scalar, dtypes, from_bits, to_bits
from hcq.ir.meaning import apply
from hcq.ir.op import Op
from hcq.system import native


def load(name: str, va: int, index: int, is_on: bool = True) -> Scalar:
    """Element `index` of numbers of this format from an address on; 0 where it is masked off."""
    dtype = _format(name)
    data = native.read(va + index * dtype.itemsize, dtype.itemsize) if is_on else bytes(dtype.itemsize)
    return from_bits(int.from_bytes(data, "little"), dtype)


def store(name: str, va: int, index: int, value: Scalar, is_on: bool = True) -> None:
    """Write it, unless it is masked off."""
    dtype = _format(name)
    if is_on:
        data = to_bits(value, dtype).to_bytes(dtype.itemsize, "little")
        native.write(va + index * dtype.itemsize, data, dtype.itemsize)


def compute(op: str, name: str, source: str, *args: Scalar) -> Scalar:
    """What an operation makes of numbers of one format, in another."""
    return apply(Op[op], _format(name), args, _format(source))


def _format(name: str) -> DType:
    found: DType = getattr(dtypes, name)
    return found
