"""What tensors and dtypes say about themselves, modes of gradients, and tensors made like others."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
import hcq.nn.functional as F
from hcq import Tensor, UsageError, dtypes, nn, no_grad

VIEWS = [
    lambda x: x, lambda x: x[1], lambda x: x[:, 1:], lambda x: x[:, ::2], lambda x: x.reshape(4, 3), lambda x: x[None],
    lambda x: x[1:].reshape(-1), lambda x: x[:, :1],
]  # fmt: skip


def test_strides_and_beginnings_are_those_of_numpy():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = Tensor(array)
    for view in VIEWS:
        ours, theirs = view(x), view(array)
        sizes = zip(ours.stride(), theirs.strides, theirs.shape, strict=True)
        assert all(mine * 4 == other for mine, other, size in sizes if size > 1)
        assert ours.is_contiguous() == theirs.flags.c_contiguous
        assert ours.storage_offset() * 4 == theirs.ctypes.data - array.ctypes.data
        assert ours.data_ptr() - x.data_ptr() == theirs.ctypes.data - array.ctypes.data
    assert x.T.stride() == (1, 4) and x.stride(1) == 1 and not x.T.is_contiguous()
    assert x.flip(0).stride() == (4, 1) == (x + 1).stride() and x[1:].flip(0).storage_offset() == 0
    with pytest.raises(UsageError, match="a flip has no memory of its own"):
        x.flip(0).data_ptr()
    assert x.expand(2, 3, 4).stride() == (0, 4, 1) and Tensor.zeros(0, 3).data_ptr() == 0


def test_a_tensor_says_what_it_is():
    x = Tensor([[1.0, 2.0]], requires_grad=True)
    y = x * 2
    assert x.is_leaf and not y.is_leaf and y.detach().is_leaf and hcq.tensor([1]).is_leaf
    assert (x.ndimension(), x.nelement(), x.itemsize) == (2, 2, 4)
    assert x.is_signed() and not Tensor([1], dtype=dtypes.uint8).is_signed()
    assert hcq.is_nonzero(hcq.tensor([3])) and hcq.is_same_size(x, y) and not x.is_same_size(x.T)
    assert y.new_tensor([3]).dtype is dtypes.float32 and Tensor([1.9]).type_as(hcq.tensor([1])).tolist() == [
        1
    ]
    assert Tensor([1.0, 4.0]).apply_(math.sqrt).tolist() == [1.0, 2.0]
    z = Tensor([[1.0, 2.0], [3.0, 4.0]])
    z[1].map_(Tensor([10.0]), lambda a, b: a + b)
    assert z.tolist() == [[1.0, 2.0], [13.0, 14.0]]
    assert hcq.ger(Tensor([1.0, 2.0]), Tensor([3.0])).tolist() == [[3.0], [6.0]]


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
def test_limits_of_floats_are_those_of_numpy(name):
    ours, theirs = hcq.finfo(getattr(dtypes, name)), np.finfo(name)
    for what in ("bits", "eps", "max", "min", "tiny", "resolution"):
        assert getattr(ours, what) == pytest.approx(float(getattr(theirs, what)), rel=1e-3), what
    with pytest.raises(UsageError, match=r"\[finfo\] .*int64.*: give a float dtype"):
        hcq.finfo(dtypes.int64)


def test_limits_of_integers_and_what_dtypes_meet_in():
    assert (hcq.iinfo(dtypes.uint16).max, hcq.iinfo(dtypes.int64).min) == (65535, -(2**63))
    assert hcq.promote_types(dtypes.int8, dtypes.uint8) is dtypes.int16
    assert hcq.promote_types(dtypes.complex64, dtypes.float32) is dtypes.complex64
    assert hcq.result_type(hcq.tensor([1]), 1.5) is dtypes.float32 is hcq.result_type(1.5, hcq.tensor([1]))
    assert hcq.result_type(hcq.tensor([True]), hcq.tensor([True])) is dtypes.bool
    assert hcq.can_cast(dtypes.int64, dtypes.float16) and not hcq.can_cast(dtypes.float16, dtypes.int64)


def test_older_names_make_what_they_say():
    kinds = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
             "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool"}  # fmt: skip
    for kind, name in kinds.items():
        make = getattr(hcq, f"{kind}Tensor")
        assert make([1, 0]).dtype.name == name and make(2, 3).shape == (2, 3) and make().shape == (0,)
    with pytest.raises(UsageError, match="2 arguments: give sizes, or one list"):
        hcq.torch.FloatTensor([1], [2])
    assert isinstance(hcq.tensor([1]).shape, hcq.Size) and isinstance(hcq.float32, hcq.dtype)
    assert hcq.range(0, 6, 2).tolist() == [0.0, 2.0, 4.0, 6.0]
    x, y, z = (Tensor(np.random.default_rng(0).standard_normal(shape)) for shape in ((2, 5), (5, 3), (3, 4)))
    np.testing.assert_allclose(hcq.chain_matmul(x, y, z).numpy(), (x @ y @ z).numpy(), rtol=1e-6)
    image = Tensor(np.random.default_rng(1).standard_normal((1, 1, 4, 4)))
    for found in (F.max_pool2d_with_indices(image, 2), F.adaptive_max_pool2d_with_indices(image, 2)):
        assert image.flatten()[found[1].flatten()].tolist() == found[0].flatten().tolist()


def test_modes_of_gradients_nest():
    x = Tensor([1.0], requires_grad=True)
    with no_grad():
        assert not hcq.is_grad_enabled() and (x * 2).is_leaf
        with hcq.enable_grad():
            assert hcq.is_grad_enabled() and not (x * 2).is_leaf
        assert not hcq.is_grad_enabled()
    with hcq.set_grad_enabled(False):
        assert not hcq.is_grad_enabled()
    with hcq.inference_mode(), hcq.inference_mode(False):
        assert not hcq.is_grad_enabled()
    hcq.set_grad_enabled(False)
    assert (x * 2).is_leaf
    hcq.set_grad_enabled(True)
    assert hcq.is_grad_enabled() and not hcq.enable_grad()(lambda: x * 2)().is_leaf


def test_a_choice_of_gumbel_is_as_likely_as_its_logit_and_passes_a_gradient():
    Tensor.manual_seed(3)
    logits = Tensor([0.1, 0.2, 0.7]).log().expand(4000, 3)
    drawn = F.gumbel_softmax(logits, hard=True).numpy()
    np.testing.assert_allclose(drawn.mean(0), [0.1, 0.2, 0.7], atol=0.03)
    np.testing.assert_allclose(F.gumbel_softmax(logits, tau=2.0)[:9].sum(-1).numpy(), 1.0, rtol=1e-5)
    leaf = Tensor([0.0, 1.0], requires_grad=True)
    (F.gumbel_softmax(leaf, hard=True) * Tensor([1.0, 2.0])).sum().backward()
    assert abs(leaf.grad.sum().item()) < 1e-6 and leaf.grad[1].item() > 0


def test_rrelu_refuses_a_lower_bound_above_the_upper_one():
    for function in (F.rrelu, hcq.rrelu, lambda x, low, high: nn.RReLU(low, high)(x)):
        with pytest.raises(UsageError, match=r"\[rrelu\] lower=0\.5, upper=0\.25"):
            function(Tensor([-1.0]), 0.5, 0.25)


def test_slopes_of_rrelu_are_drawn_in_training_alone():
    x = Tensor.full((2000,), -1.0)
    slopes = -F.rrelu(x, 0.2, 0.4, training=True).numpy()
    assert slopes.min() >= 0.2 and slopes.max() <= 0.4 and abs(slopes.mean() - 0.3) < 0.01
    assert hcq.rrelu(x, 0.2, 0.4)[0].item() == pytest.approx(-0.3)
    y = Tensor([-1.0, 2.0])
    assert F.relu_(y) is y and y.tolist() == [0.0, 2.0]
