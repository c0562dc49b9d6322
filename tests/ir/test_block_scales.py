"""Scales of blocks: every exponent gives its power of two, and the exponents are found again in any stage's nodes."""

from __future__ import annotations

import numpy as np

from hcq.frontend.nn.functional_scaled import _powers
from hcq.frontend.tensor import Tensor
from hcq.ir.block_scales import exponents_of, scales
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, binary
from hcq.ir.op import Op


def bytes_of(count: int) -> Tensor:
    return Tensor(np.arange(count, dtype=np.uint8))


def test_every_exponent_is_its_power_of_two_and_the_last_is_nan() -> None:
    got = _powers(bytes_of(256)).numpy()
    wanted = 2.0 ** (np.arange(256) - 127.0)
    assert np.array_equal(got[:255], wanted[:255].astype(np.float32)) and np.isnan(got[255])


def test_tensors_write_the_nodes_of_the_formula() -> None:
    exponents = bytes_of(4)
    node = _powers(exponents).node
    assert exponents_of(node) is exponents.cast(dtypes.int32).node
    assert node is scales(exponents.cast(dtypes.int32).node)


def test_other_nodes_have_no_exponents() -> None:
    e = bytes_of(4).cast(dtypes.int32)
    shifted = (e << 23).bitcast(dtypes.float32).node
    wide = Tensor(np.arange(4, dtype=np.int32))
    of_words = _powers(wide).node
    number = Node(Op.BITCAST, dtypes.float32, (binary(Op.ADD, wide.node, wide.node),))
    assert [exponents_of(node) for node in (shifted, of_words, number, e.node)] == [None] * 4
