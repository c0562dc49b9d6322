"""What annotations do not take is refused before a node is made, with call, argument and value in the message."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable

import pytest

import hcq
from hcq import Tensor, UsageError, dtypes, jit, nn
from hcq.frontend.ops.arguments import checked

ITSELF: list[object] = []
ITSELF.append(ITSELF)


def x() -> Tensor:
    return Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "narrow": (lambda: x().narrow(0, Tensor(1.0), 2), r"^\[narrow\] start=Tensor\(.*\): takes an int, or an"),
    "narrow of a scalar": (lambda: Tensor(1.0).narrow(0, 0, 1), r"^\[narrow\] a tensor of shape \(\) has no axis"),
    "split of a scalar": (lambda: hcq.tensor(1).split(1), r"^\[split\] a tensor of shape \(\) has no axis"),
    "where of one": (lambda: (x() > 1).where(2.0), r"^\[where\] one value: give two, or the condition alone"),
    "bits of a number": (lambda: Tensor(1.0).bitcast(dtypes.int8), r"^\[bitcast\] float32 of shape \(\) to int8"),
    "bits of bool": (lambda: x().bitcast(dtypes.bool), r"^\[bitcast\] float32 to bool: not every byte is one"),
    "bits of three": (lambda: x().bitcast(dtypes.int64), r"^\[bitcast\] .* a multiple of 2, as many as make one"),
    "repeats of a table": (lambda: x().repeat_interleave(), r"^\[repeat_interleave\] shape \(2, 3\): give repeats"),
    "norms of rows": (lambda: hcq.tensor([0]).embedding(x(), max_norm=1.0), r"^\[embedding\] max_norm, scale_grad"),
    "padding row 2": (lambda: hcq.tensor([0]).embedding(x(), 2), r"^\[embedding\] padding_idx=2 of a table of 2 rows"),
    "a list that holds itself": (lambda: Tensor(ITSELF), r"^\[Tensor\] lists deeper than 64, or a list that holds"),
    "an index that holds itself": (lambda: x()[ITSELF], r"^\[index\] lists deeper than 64, or a list that holds"),
    "a jit argument that holds itself": (lambda: jit(lambda a: a)(ITSELF), r"deeper than 64, or holds itself"),
    "an axis too many": (lambda: x().sum(True), r"^\[sum\] axis True: an axis is an int"),
    "a size beyond all": (lambda: Tensor.zeros(2**40, 2**40), r"^\[full\] shape .* has more elements than any tensor"),
    "a size beyond 64 bits": (lambda: x().reshape(10**30), r"is more than any tensor has"),
    "shifting by a float": (lambda: hcq.tensor([1]) >> [1.5], r"^\[>>\] floating point has no bitwise operators"),
    "joining a list to nothing": (lambda: x().cat(), r"^\[cat\] takes a list of tensors: Tensor.cat\("),
    "joining an axis twice": (lambda: Tensor.cat([x(), x()], 1, dim=1), r"^\[cat\] dim=1 and 1: give one axis"),
    "joining a number": (lambda: x().cat(x(), x(), "rows"), r"^\[cat\] dim='rows': takes an int"),
    "a channel too many": (lambda: x().group_norm(1, weight=Tensor([1.0])), r"for the 3 channels of shape \(2, 3\)"),
    "a bias too long": (
        lambda: Tensor.ones(1, 1, 4, 4).conv2d(Tensor.ones(1, 1, 2, 2), bias=Tensor([1.0, 2.0])),
        r"^\[conv2d\] bias \(2,\), weight \(1, 1, 2, 2\): give a number for each of the 1 outputs",
    ),
    "a huge exponent": (lambda: x() ** 10**400, r"^\[\*\*\] exponent .* is beyond every float"),
    "keepdim": (lambda: x().sum(0, keepdim="yes"), r"^\[sum\] keepdim='yes': takes True or False\.$"),
    "a dtype by name": (lambda: x().cast("float32"), r"^\[cast\] dtype='float32': takes a dtype, such as"),
    "eps": (lambda: x().layer_norm(3, eps=None), r"^\[layer_norm\] eps=None: takes a number\.$"),
    "a weight": (lambda: x().linear([1.0]), r"^\[linear\] weight=\[1.0\]: takes a tensor\.$"),
    "a tensor elsewhere": (lambda: x().linear(x().to("CPU:1")), r"^\[linear\] one tensor is on \w+, another on CPU:1"),
    "a layer's size": (lambda: nn.Linear("3", 2), r"^\[Linear\] in_features='3': takes an int\.$"),
    "a module": (lambda: nn.ModuleList([1]), r"^\[ModuleList\] 1 is no module"),
    "a function of no tensor": (lambda: nn.functional.relu(5), r"^\[relu\] 5: takes a tensor first"),
    "a path that is a descriptor": (lambda: nn.load_file(1), r"^\[load_file\] path=1: takes a string, or a path\.$"),
    "a part": (lambda: nn.Sequential(nn.ReLU())[1.5], r"^\[Sequential\] 1.5: a part is named by an int"),
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_what_a_call_does_not_take_is_reported_with_the_call_and_the_argument(call: str) -> None:
    act, message = WRONG[call]
    with pytest.raises(UsageError, match=message):
        act()


def test_a_scalar_is_gathered_and_added_to_as_a_line_of_one() -> None:
    assert Tensor(1.5).gather(0, hcq.tensor(0)).item() == 1.5
    assert Tensor(1.5).scatter_add(0, hcq.tensor(0), Tensor(2.0)).item() == 3.5


def test_integers_and_numbers_of_other_libraries_are_taken() -> None:
    np = pytest.importorskip("numpy")
    assert x().narrow(np.int64(1), np.int32(0), np.uint8(2)).shape == (2, 2)
    assert x().sum(1, keepdim=np.bool_(True)).shape == (2, 1)
    assert x().leaky_relu(np.float32(0.5)).shape == (2, 3)


def test_a_checked_method_is_the_method_for_whoever_looks_at_it() -> None:
    signature = inspect.signature(Tensor.narrow)
    assert list(signature.parameters) == ["self", "dim", "start", "length"]
    assert Tensor.narrow.__doc__ is not None
    assert Tensor.narrow.__name__ == "narrow"
    x().narrow(0, 0, 1)
    assert inspect.signature(Tensor.narrow) == signature


def test_defaults_keywords_and_stars_reach_a_checked_function() -> None:
    @checked
    def join(a: int, *rest: int, by: str = "-", **others: str) -> str:
        return by.join(map(str, (a, *rest, *others.values())))

    assert join(1, 2, 3, by="+", end="x") == "1+2+3+x"
    assert join(a=1) == "1"
    with pytest.raises(UsageError, match=r"^\[join\] rest=\(2, 'x'\): takes an int each\.$"):
        join(1, 2, "x")
    with pytest.raises(TypeError, match="missing"):
        join()


def one(a: int) -> tuple[int, ...]:
    return (a,)


def two(code: int, guard: int = 2) -> tuple[int, ...]:  # names that the guard itself uses
    return (code, guard)


def three(function: int, check_a: int, c: int = 3) -> tuple[int, ...]:
    return (function, check_a, c)


def four(b: int, a: int, d: int = 3, c: int = 4) -> tuple[int, ...]:
    return (b, a, d, c)


def five(args: int, named: int, c: int = 3, d: int = 4, e: int = 5) -> tuple[int, ...]:
    return (args, named, c, d, e)


@pytest.mark.parametrize("function", (one, two, three, four, five))
def test_a_checked_function_binds_its_arguments_as_the_function_does(function: Callable[..., object]) -> None:
    made = checked(function)
    names = list(inspect.signature(function).parameters)
    for count in range(len(names) + 1):
        by_place, by_name = range(count), dict.fromkeys(names[count:], 7)
        assert made(*by_place, **by_name) == function(*by_place, **by_name)
        with pytest.raises(UsageError, match=rf"^\[{function.__name__}\] {names[-1]}='x': takes an int\.$"):
            made(*by_place[: len(names) - 1], **{**by_name, names[-1]: "x"})
    assert made(*range(len(names))) == function(*range(len(names)))
    for wrong in ((), range(len(names) + 1)):
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) "):
            made(*wrong)
    with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) .*'other'"):
        made(*range(len(names)), other=1)


def test_an_int_beyond_64_bits_is_refused_and_the_greatest_is_taken() -> None:
    assert checked(two)(2**63 - 1, -(2**63)) == (2**63 - 1, -(2**63))
    with pytest.raises(UsageError, match=r"^\[two\] guard=.*: takes an int\. It does not fit 64 bits\.$"):
        checked(two)(1, 2**63)


def test_what_has_nothing_to_check_stays_as_it_is() -> None:
    def plain(a, b=None):  # type: ignore[no-untyped-def]
        return a, b

    assert checked(plain) is plain


def test_paths_are_strings_or_path_objects(tmp_path: object) -> None:
    path = os.fspath(tmp_path) + "/w.safetensors"  # type: ignore[call-overload]
    nn.save_file({"w": x()}, path)
    assert nn.load_file(path)["w"].shape == (2, 3)
