"""The registry of live tensors, and numbers that become constants."""

from __future__ import annotations

import gc
import math

import pytest

from hcq.errors import UsageError
from hcq.frontend.core.base import live
from hcq.frontend.core.nodes import constant
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op


def test_a_tensor_is_live_until_nobody_holds_it():
    x = Tensor([1.0])
    y = x + 1
    assert x in live and y in live
    known = [id(t) for t in live]
    assert known.index(id(x)) < known.index(id(y))
    count = len(live)
    del y
    gc.collect()
    assert len(live) == count - 1


def test_a_dropped_tensor_gives_its_memory_back():
    x = Tensor([1.0] * 100)
    storage = x.node.arg
    buffer = storage.buffer
    gone = buffer.va
    del x, storage, buffer
    gc.collect()
    assert Tensor([2.0] * 100).node.arg.buffer.va == gone


def test_a_constant_is_the_number_that_its_dtype_holds():
    assert constant("test", 0.1, dtypes.float32).arg == 0.10000000149011612
    assert constant("test", 1e6, dtypes.float16).arg == math.inf
    assert constant("test", 2.9, dtypes.int32).arg == 2
    assert constant("test", 5, dtypes.bool).arg is True
    assert constant("test", 1, dtypes.float32) is constant("test", True, dtypes.float32)


def test_zero_and_minus_zero_are_two_constants():
    assert math.copysign(1, constant("test", -0.0, dtypes.float32).arg) == -1
    assert math.copysign(1, constant("test", 0, dtypes.float32).arg) == 1
    assert (1 / (Tensor([1.0]) * -0.0)).item() == -math.inf


@pytest.mark.parametrize(
    "value, dtype", [(256, dtypes.uint8), (math.nan, dtypes.int32), (10**400, dtypes.float32)]
)
def test_a_number_without_a_place_in_the_format_is_refused(value, dtype):
    with pytest.raises(UsageError, match=r"^\[test\] .* does not fit in"):
        constant("test", value, dtype)


def test_one_operator_is_one_node_where_shapes_and_dtypes_agree():
    x = Tensor([[1.0, 2.0]])
    assert (x + x).node.src == (x.node, x.node)
    assert (x * 2).node.op is Op.MUL and (x * 2).node.src[0] is x.node
    assert x.reshape(1, 2).node is x.node
    assert x.permute(0, 1).node is x.node
    assert x.permute(1, 0).permute(1, 0).node is x.node
    assert x.reshape(2).reshape(2, 1).reshape(1, 2).node is x.node
