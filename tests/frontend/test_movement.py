"""Movement against NumPy: each method, and chains of them made by hypothesis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hcq
from hcq.frontend.core.device import Device
from hcq.frontend.tensor import Tensor
from tests.campaigns._guard_pages import guarded


def numbers(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def same(actual: Tensor, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.numpy(), expected)


CASES = {
    "reshape": (lambda x: x.reshape(4, 6), lambda x: x.reshape(4, 6)),
    "reshape -1": (lambda x: x.reshape((3, -1)), lambda x: x.reshape(3, -1)),
    "view": (lambda x: x.view(24), lambda x: x.reshape(24)),
    "flatten": (lambda x: x.flatten(1), lambda x: x.reshape(2, 12)),
    "unflatten": (lambda x: x.unflatten(-1, (2, -1)), lambda x: x.reshape(2, 3, 2, 2)),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda x: x[..., None]),
    "squeeze": (lambda x: x.unsqueeze(0).squeeze(), lambda x: x),
    "squeeze one": (lambda x: x.unsqueeze(0).unsqueeze(0).squeeze(0), lambda x: x[None]),
    "permute": (lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.swapaxes(0, -1)),
    "movedim": (lambda x: x.movedim(0, 2), lambda x: np.moveaxis(x, 0, 2)),
    "T": (lambda x: x.T, lambda x: x.T),
    "mT": (lambda x: x.mT, lambda x: x.swapaxes(-1, -2)),
    "t": (lambda x: x[0].t(), lambda x: x[0].T),
    "expand": (lambda x: x.expand(5, -1, 3, 4), lambda x: np.broadcast_to(x, (5, 2, 3, 4))),
    "repeat": (lambda x: x.repeat(2, 1, 3), lambda x: np.tile(x, (2, 1, 3))),
    "repeat more": (lambda x: x.repeat(2, 1, 1, 2), lambda x: np.tile(x, (2, 1, 1, 2))),
    "tile": (lambda x: x.tile(2), lambda x: np.tile(x, 2)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), lambda x: np.repeat(x, 3, 1)),
    "repeat_interleave flat": (lambda x: x.repeat_interleave(2), lambda x: np.repeat(x, 2)),
    "shrink": (lambda x: x.shrink([None, (1, 3), (0, 2)]), lambda x: x[:, 1:3, 0:2]),
    "narrow": (lambda x: x.narrow(2, 1, 2), lambda x: x[:, :, 1:3]),
    "flip": (lambda x: x.flip(0, 2), lambda x: np.flip(x, (0, 2))),
    "roll": (lambda x: x.roll(1, 2), lambda x: np.roll(x, 1, 2)),
    "roll back": (lambda x: x.roll((-2, 5), (1, 2)), lambda x: np.roll(x, (-2, 5), (1, 2))),
    "roll flat": (lambda x: x.roll(5), lambda x: np.roll(x, 5)),
    "pad": (lambda x: x.pad((1, 2)), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)))),
    "pad value": (
        lambda x: x.pad((1, 2, 0, 3), value=-1.5),
        lambda x: np.pad(x, ((0, 0), (0, 3), (1, 2)), constant_values=-1.5),
    ),
    "pad crop": (lambda x: x.pad((-1, 2)), lambda x: np.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 2)))),
    "reflect": (lambda x: x.pad((2, 1), "reflect"), lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "reflect")),
    "replicate": (
        lambda x: x.pad((2, 1), "replicate"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "edge"),
    ),
    "circular": (lambda x: x.pad((2, 1), "circular"), lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "wrap")),
    "unfold": (lambda x: x.unfold(2, 2, 1), lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 2)),
    "unfold step": (lambda x: x.unfold(1, 2, 1), lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_movement_is_numpys(name):
    ours, theirs = CASES[name]
    x = numbers(2, 3, 4)
    same(ours(Tensor(x)), theirs(x))


def test_parts_of_an_axis_come_apart_and_join_again():
    x = numbers(5, 4)
    t = Tensor(x)
    for ours, theirs in zip(t.split(2), np.split(x, [2, 4])):
        same(ours, theirs)
    for ours, theirs in zip(t.split([1, 3], 1), np.split(x, [1], 1)):
        same(ours, theirs)
    assert [part.shape for part in t.chunk(3)] == [(2, 4), (2, 4), (1, 4)]
    same(Tensor.cat(t.chunk(3)), x)
    same(Tensor.cat([t, t[:, :1], t], 1), np.concatenate([x, x[:, :1], x], 1))
    same(Tensor.stack(list(t.unbind(1)), 1), x)
    same(Tensor.stack([t, t + 1], -1), np.stack([x, x + 1], -1))


def test_empty_parts_join_too():
    x = numbers(2, 3)
    same(Tensor.cat([Tensor(x)[:0], Tensor(x)]), x)
    assert Tensor.cat([Tensor(x)[:0], Tensor(x)[:0]]).shape == (0, 3)


def test_joined_tensors_meet_in_one_dtype():
    assert Tensor.cat([hcq.tensor([1]), Tensor([0.5])]).tolist() == [1.0, 0.5]
    assert Tensor.cat([hcq.tensor([True]), hcq.tensor([False])]).tolist() == [True, False]


def test_windows_may_have_gaps():
    x = numbers(8)
    same(Tensor(x).unfold(0, 3, 2, dilation=2), np.stack([x[0:5:2], x[2:7:2]]))


@st.composite
def chains(draw: st.DrawFn):
    """A shape, and steps (name, ours, theirs) that fit one after the other."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    now, steps = numbers(*shape), []
    for _ in range(draw(st.integers(1, 5))):
        rank = now.ndim
        kinds = ["reshape", "permute", "flip", "slice", "pad", "expand", "roll"]
        kind = draw(st.sampled_from(kinds)) if now.size and rank else "reshape"
        if kind == "reshape":
            size, new = now.size, []
            while size > 1 and len(new) < 3:
                new.append(draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])))
                size //= new[-1]
            shape_now = tuple(new) + ((size,) if size != 1 or not new else ())
            step = (lambda x, s=shape_now: x.reshape(s),) * 2
        elif kind == "permute":
            order = tuple(draw(st.permutations(range(rank))))
            step = (lambda x, o=order: x.permute(o), lambda x, o=order: x.transpose(o))
        elif kind == "flip":
            axes = tuple(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
            step = (lambda x, a=axes: x.flip(*a), lambda x, a=axes: np.flip(x, a))
        elif kind == "slice":
            bound = st.none() | st.integers(-5, 5)
            stride = st.sampled_from([None, 1, 2, 3, -1, -2])
            key = tuple(slice(draw(bound), draw(bound), draw(stride)) for _ in range(rank))
            step = (lambda x, k=key: x[k],) * 2
        elif kind == "pad":
            pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
            flat = [n for pair in reversed(pads) for n in pair]
            step = (lambda x, p=flat: x.pad(p), lambda x, p=pads: np.pad(x, p))
        elif kind == "roll":
            amount, axis = draw(st.integers(-3, 3)), draw(st.integers(0, rank - 1))
            step = (lambda x, n=amount, a=axis: x.roll(n, a), lambda x, n=amount, a=axis: np.roll(x, n, a))
        else:
            wide = (draw(st.integers(1, 3)), *now.shape)
            step = (lambda x, s=wide: x.expand(s), lambda x, s=wide: np.broadcast_to(x, s))
        now = step[1](now)
        if now.size > 2000 or now.ndim > 6:
            break
        steps.append((kind, *step))
    return shape, steps


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains())
def test_any_chain_of_movements_is_numpys(chain):
    shape, steps = chain
    expected = numbers(*shape) + 1
    actual = Tensor(expected)
    for _, ours, theirs in steps:
        actual, expected = ours(actual), theirs(expected)
    same(actual, expected)


def test_parts_read_backwards_touch_no_memory_around_their_buffer():
    """LLVM 22 reads for a permutation what the mask of a load under the same condition leaves out."""
    array = np.arange(45.0).reshape(3, 15)
    with guarded(Device["CPU"]) as pool:
        for pool.at_end in (True, False):
            rolled = Tensor(array, device="CPU").roll(1, 0).flip([0, 1])
            np.testing.assert_array_equal(rolled.numpy(), np.flip(np.roll(array, 1, 0)))
            del rolled


@pytest.mark.parametrize("mode", ["reflect", "edge"])
@pytest.mark.parametrize("low, high", [(-1, 2), (3, -3), (4, -5), (-4, 4), (-2, -1)])
def test_a_negative_pad_crops_what_is_padded_from_all_that_was_there(mode, low, high):
    line = numbers(1, 5)
    wide = np.pad(line, ((0, 0), (max(low, 0), max(high, 0))), mode)
    expected = wide[:, max(-low, 0) : wide.shape[1] - max(-high, 0)]
    same(Tensor(line).pad((low, high), {"reflect": "reflect", "edge": "replicate"}[mode]), expected)


def test_windows_of_no_elements_are_counted_and_one_shift_without_an_axis_is_of_the_flat_tensor():
    assert Tensor(numbers(3, 4)).unfold(1, 0, 3).shape == (3, 2, 0)
    same(Tensor(numbers(2, 3)).roll((1,)), np.roll(numbers(2, 3), 1))
