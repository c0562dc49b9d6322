"""Parts of blocks: the fields of every block of a quantised tensor, as tensors.

In       the bytes of a tensor's blocks
Out      `Blocks`, whose parts are views: scales, codes, signs, of all blocks at once
Next     quantised.py (who makes one), dequantise.py (what the parts mean)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Blocks:
    """The blocks of a tensor as tensors of their bytes.

    bytes   uint8, (rows, blocks of a row, bytes of a block)
    halves  uint16 of the same memory, (rows, blocks of a row, half as many); None where blocks have an odd size
    """

    def __init__(self, bytes_: Tensor, halves: Tensor | None):
        self.bytes = bytes_
        self.halves = halves
        self.rows, self.count = bytes_.shape[:2]

    def part(self, begin: int, end: int, *shape: int) -> Tensor:
        """Bytes of each block, (rows, blocks, *shape); without a shape as a vector."""
        return self.bytes[..., begin:end].reshape(self.rows, self.count, *(shape or (end - begin,)))

    def words(self, begin: int, end: int, *shape: int) -> Tensor:
        """Two bytes each of each block as uint16, from an even byte on."""
        if self.halves is None:
            raise AssertionError("blocks of an odd size have no words")
        size = (end - begin) // 2
        return self.halves[..., begin // 2 : end // 2].reshape(self.rows, self.count, *(shape or (size,)))

    def float16(self, begin: int, axes: int = 1) -> Tensor:
        """The float16 at an even byte of each block as float32, (rows, blocks, 1, ...) with that many axes of 1."""
        return self.words(begin, begin + 2, *[1] * axes).bitcast(dtypes.float16).cast(dtypes.float32)


Meaning = Callable[[Blocks], Tensor]  # float32, of any shape with the elements in order
