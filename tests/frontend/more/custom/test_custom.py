"""Custom operations on the CPU device: what is computed, how often, and what is refused, in one sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.errors import UsageError

pytestmark = pytest.mark.own_devices  # kernels for the CPU

TWICE = """
define void @twice(ptr %out, ptr %x, ptr %group) {
  %i = load i64, ptr %group
  %px = getelementptr float, ptr %x, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %v = load float, ptr %px
  %sum = fadd float %v, %v
  store float %sum, ptr %po
  ret void
}
"""
NUMBERS = """
define void @numbers(ptr %out, ptr %nothing, i64 %whole, double %half, ptr %group) {
  %is_null = icmp eq ptr %nothing, null
  %null = zext i1 %is_null to i64
  %first = add i64 %whole, %null
  store i64 %first, ptr %out
  %place = getelementptr double, ptr %out, i64 1
  store double %half, ptr %place
  ret void
}
"""


def cpu(values, **more):
    return Tensor(np.array(values, np.float32), device="CPU", **more)


def twice(x, **more):
    """One group, which doubles one element."""
    return hcq.custom(TWICE, x, [x], **more)


def test_outputs_are_lazy_and_what_follows_reads_them():
    out = twice(cpu([3.0]) + 1) + 1
    assert out.node.op.name == "ADD"
    assert out.tolist() == [9.0]


def test_nothing_is_fused_into_the_program():
    out = twice(cpu([3.0]) + 1) + 1
    plan = hcq.frontend.run.realize.schedule_of([out])[0]
    assert [launch.name == "twice" for launch in plan.launches] == [False, True, False]


def test_numbers_and_null_pointers_are_passed_by_position():
    out = hcq.custom(NUMBERS, (2, "int64"), [None, -7, 0.3], device="CPU")
    raw = out.numpy().tobytes()
    assert np.frombuffer(raw[:8], np.int64)[0] == -6
    assert np.frombuffer(raw[8:], np.float64)[0] == 0.3


def test_a_number_may_follow_from_the_shapes():
    x = cpu(np.zeros((3, 5)))
    out = hcq.custom(NUMBERS, (2, "int64"), [x, lambda x: x[0] * x[1], float("inf")])
    raw = out.numpy().tobytes()
    assert np.frombuffer(raw[:8], np.int64)[0] == 15
    assert np.frombuffer(raw[8:], np.float64)[0] == np.inf


def test_an_ellipsis_stands_where_outputs_are_among_the_parameters():
    text = TWICE.replace("(ptr %out, ptr %x", "(ptr %x, ptr %out")
    x = cpu([4.0])
    assert hcq.custom(text, x, [x, ...]).tolist() == [8.0]


def test_equal_launches_are_one_node():
    x = cpu([1.0])
    assert twice(x).node is twice(x).node


def test_a_plan_from_disk_launches_the_same_program(monkeypatch):
    from hcq.frontend.run import plan

    x = cpu([5.0])
    assert twice(x + 2).tolist() == [14.0]
    plan._plans.clear()
    monkeypatch.setattr(plan, "_make", None)
    assert twice(x + 2).tolist() == [14.0]


def test_a_gradient_needs_backward():
    x = cpu([1.0], requires_grad=True)
    with pytest.raises(UsageError, match=r"^\[custom\] twice has no backward"):
        twice(x).sum().backward()


def test_backward_is_given_numbers_as_they_were_passed():
    x = cpu([1.0], requires_grad=True)
    text = TWICE.replace("ptr %x, ptr %group", "ptr %x, i64 %n, double %a, ptr %group")
    out = hcq.custom(text, x, [x, 4, 0.5], backward=lambda g, x, n, a: (g * n * a, None, None))
    out.sum().backward()
    assert x.grad.tolist() == [2.0]


def test_gradients_of_gradients_pass():
    def square(x):
        return hcq.custom(TWICE, x, [x * x], backward=lambda g, x: g * 2)

    x = cpu([3.0])
    first = hcq.func.grad(lambda x: square(x).sum())
    assert first(x).tolist() == [12.0]
    assert hcq.func.grad(lambda x: first(x).sum())(x).tolist() == [4.0]


def test_a_function_made_anew_in_each_call_is_recorded_once():
    step = hcq.jit(lambda x: twice(x, grid=lambda x: x[0], backward=lambda g, x: g * 2))
    for number in range(4):
        assert step(cpu([number, 1.0])).tolist() == [2.0 * number, 2.0]
    assert [len(one.known) for one in step._seen.values()] == [1]


SPLIT = ("CPU", "CPU:1")


def test_each_device_of_a_group_launches_its_part():
    x = cpu(np.arange(8)).shard(SPLIT, axis=0)
    out = twice(x, grid=lambda x: x[0], shard=0)
    assert out.device == "CPU,CPU:1"
    assert out.tolist() == [2.0 * n for n in range(8)]


def test_a_whole_input_is_launched_whole_on_every_device():
    x = cpu(np.arange(3)).shard(SPLIT)
    assert twice(x, grid=3).tolist() == [0.0, 2.0, 4.0]


def test_a_split_input_is_refused_without_an_axis_and_with_another():
    x = cpu(np.arange(8)).shard(SPLIT, axis=0)
    with pytest.raises(
        UsageError, match=r"^\[custom\] twice: input 0 of shape \(8,\) is split along axis 0: gather"
    ):
        twice(x, grid=lambda x: x[0]).tolist()
    with pytest.raises(UsageError, match=r"^\[custom\] twice: input 0 .* give the grid as a function"):
        twice(x, grid=8, shard=0).tolist()
    y = cpu(np.zeros((2, 4))).shard(SPLIT, axis=0)
    with pytest.raises(UsageError, match=r"^\[custom\] twice: input 0 .*shard=1: split it along that axis"):
        twice(y, grid=lambda x: x[0] * x[1], shard=1).tolist()


REFUSED = {
    "no list": (lambda x: hcq.custom(TWICE, x, x), "inputs="),
    "no device": (lambda x: hcq.custom(TWICE, ((1,), "float32"), []), "say device="),
    "no outputs": (lambda x: hcq.custom(TWICE, [], [x]), "outputs="),
    "a shape of no sizes": (lambda x: hcq.custom(TWICE, ((0,), "float32"), [x]), "output 0 has the shape"),
    "an unknown dtype": (lambda x: hcq.custom(TWICE, ((1,), "float31"), [x]), "output 0 has the dtype"),
    "a word": (lambda x: hcq.custom(TWICE, x, [x, "seven"]), "an input is 'seven'"),
    "a whole number that is too large": (lambda x: hcq.custom(TWICE, x, [x, 1 << 64]), "does not fit"),
    "too many dots": (lambda x: hcq.custom(TWICE, x, [..., ..., x]), "2 of the inputs are"),
    "an empty tensor": (lambda x: hcq.custom(TWICE, x, [x[:0]]), "has no elements"),
    "a complex tensor": (lambda x: hcq.custom(TWICE, x, [hcq.complex(x, x)]), "is complex"),
    "tensors of two devices": (lambda x: hcq.custom(TWICE, x, [x, x.to("CPU:1")]), "is on CPU:1"),
    "no grid": (lambda x: twice(x, grid=0), "grid=0"),
    "four sizes": (lambda x: twice(x, grid=(1, 1, 1, 1)), "grid=(1, 1, 1, 1)"),
    "a block on the CPU": (lambda x: twice(x, block=4), "block=(4, 1, 1)"),
    "a backward that is none": (lambda x: twice(x, backward=3), "backward=3"),
    "no program": (lambda x: hcq.custom(7, x, [x]), "program=7"),
    "no language": (lambda x: hcq.custom("hello", x, [x]), "in no language of"),
    "a text that does not compile": (lambda x: hcq.custom(TWICE.replace("fadd", "fad"), x, [x]), "twice: "),
    "two kernels": (
        lambda x: hcq.custom(TWICE + TWICE.replace("@twice", "@again"), x, [x]),
        "the LLVM IR has the kernels twice, again: say which with entry=",
    ),
    "a wrong entry": (lambda x: hcq.custom(TWICE, x, [x], entry="thrice"), "no function 'thrice'"),
    "an image without an entry": (lambda x: hcq.custom(b"\x7fELF", x, [x]), "say entry="),
    "an image that is none": (lambda x: hcq.custom(b"\x7fELF", x, [x], entry="k"), "k: "),
    "a shard of no axis": (lambda x: twice(x, shard="x"), "shard="),
    "shared memory of no size": (lambda x: twice(x, shared_bytes=-1), "shared_bytes=-1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused_in_a_sentence_of_custom(case: str):
    call, says = REFUSED[case]
    with pytest.raises(UsageError, match=r"^\[custom\] .*" + re.escape(says)):
        call(cpu([1.0]))


def test_vmap_is_refused():
    with pytest.raises(UsageError, match=r"twice is a program of one's own"):
        hcq.func.vmap(lambda x: twice(x))(cpu([[1.0], [2.0]])).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_image_is_refused_and_never_a_traceback_of_another_kind(seed: int):
    from hcq.frontend.more.custom.languages import code_of

    rng = np.random.default_rng(seed)
    image = bytearray(code_of(TWICE, hcq.open("CPU"), None).image)
    if seed % 2:
        del image[int(rng.integers(1, len(image))) :]
    else:
        image[int(rng.integers(16, 64))] ^= 1 << int(rng.integers(8))
    try:
        hcq.custom(bytes(image), ((1,), "float32"), [cpu([1.0])], entry="twice")
    except UsageError as error:
        assert str(error).startswith("[custom] ")
