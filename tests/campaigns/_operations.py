"""Operations of random programs: each one as a line of ours and a line of NumPy's.

In       numbers to draw from, the values that are there
Out      (our line, NumPy's line, dtype of the result), or None where the operation does not apply
Next     _programs.py (which draws them, and runs NumPy's lines)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Value(NamedTuple):
    """A value of a program: its name, what NumPy says it is, our dtype's name."""

    name: str
    array: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_stored_only(self) -> bool:
        return self.dtype.startswith("fp8")

    @property
    def is_signed(self) -> bool:
        return not self.dtype.startswith(("uint", "bool"))


class Dice:
    """Numbers of a step, handed out one by one; after the last comes the first again."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.at = 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        number = self.numbers[self.at % len(self.numbers)]
        self.at += 1
        return number % limit

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.below(len(choices))]

    def order(self, count: int) -> list[int]:
        """A permutation."""
        left = list(range(count))
        return [left.pop(self.below(len(left))) for _ in range(count)]


Line = tuple[str, str, str]


@dataclass(frozen=True)
class Operation:
    """weight   how often it is drawn"""

    weight: int
    write: Callable[[Dice, str, Value, Value], Line | None]


OPERATIONS: dict[str, Operation] = {}


def operation(weight: int) -> Callable[[Callable[[Dice, str, Value, Value], Line | None]], Any]:
    def add(function: Callable[[Dice, str, Value, Value], Line | None]) -> Any:
        OPERATIONS[function.__name__] = Operation(weight, function)
        return function

    return add


def _same(name: str, expression: str, dtype: str) -> Line:
    """A line that reads the same in both."""
    return f"{name} = {expression}", f"{name} = {expression}", dtype


# -- movement -------------------------------------------------------------------------------------------------------


@operation(20)
def pad(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape:
        return None
    pads = []
    # every axis, or only one: the last of them most often
    alone = dice.pick((-1, *range(len(x.shape)), len(x.shape) - 1, len(x.shape) - 1))
    for axis, size in enumerate(x.shape):
        low, high = [dice.pick((0, 0, 1, 1, 1, 2, 3, 5, 17)) for _ in range(2)]
        if dice.below(8) == 0:
            low = -dice.below(size // 2 + 1)
        pads.append((low, high) if alone in (axis, -1) else (0, 0))
    number = dice.pick((0, 0, 0, 1, 3, -2)) if x.is_signed else dice.pick((0, 0, 1))
    flat = [amount for pair in reversed(pads) for amount in pair]
    crop = ", ".join(f"{max(0, -low)}:" for low, _ in pads)
    grow = [(max(0, low), high) for low, high in pads]
    value = f", value={number}" if number else ""
    theirs = f"{name} = np.pad({x.name}[{crop}], {grow}, constant_values={number})"
    return f"{name} = {x.name}.pad({tuple(flat)}{value})", theirs, x.dtype


@operation(2)
def pad_from_inside(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape or 0 in x.shape:
        return None
    mode, theirs = dice.pick((("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")))
    pads = []
    for size in x.shape:
        most = size - 1 if mode == "reflect" else size
        pads.append((dice.below(min(most, 5) + 1), dice.below(min(most, 5) + 1)))
    flat = [amount for pair in reversed(pads) for amount in pair]
    ours = f"{name} = {x.name}.pad({tuple(flat)}, mode={mode!r})"
    return ours, f"{name} = np.pad({x.name}, {pads}, mode={theirs!r})", x.dtype


def _slices(dice: Dice, x: Value, keeps_axes: bool = False) -> str:
    parts = []
    for size in x.shape:
        kind = dice.below(8)
        step = dice.pick((1, 1, 2, 3, -1, -1, -2, -3))
        if kind < 2 or not size:
            parts.append(":")
        elif kind == 2 and not keeps_axes:
            parts.append(str(dice.below(2 * size) - size))
        else:
            start, stop = sorted((dice.below(size), dice.below(size) + 1))
            start, stop = min(start, stop - 1), max(stop, start + 1)
            if kind == 3:
                parts.append(f"::{step}")
            elif step > 0:
                parts.append(f"{start}:{stop}:{step}" if step > 1 else f"{start}:{stop}")
            else:
                parts.append(f"{stop - 1}:{start - 1 if start else ''}:{step}")
    return ", ".join(parts)


@operation(10)
def slices(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    return _same(name, f"{x.name}[{_slices(dice, x)}]", x.dtype) if x.shape else None


@operation(20)
def permute(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if len(x.shape) < 2:
        return None
    order = list(reversed(range(len(x.shape)))) if dice.below(2) else dice.order(len(x.shape))
    return f"{name} = {x.name}.permute({order})", f"{name} = np.transpose({x.name}, {order})", x.dtype


@operation(6)
def flip(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    axes = [axis for axis in range(len(x.shape)) if dice.below(2)]
    return (
        (f"{name} = {x.name}.flip({axes})", f"{name} = np.flip({x.name}, {axes})", x.dtype) if axes else None
    )


@operation(8)
def reshape(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    factors = []
    left = x.array.size
    if not left:
        return None
    for prime in (2, 3, 5, 7, 11, 13):
        while left % prime == 0:
            factors.append(prime)
            left //= prime
    shape = [1] * (1 + dice.below(4))
    for factor in [*factors, left]:
        shape[dice.below(len(shape))] *= factor
    return _same(name, f"{x.name}.reshape({tuple(shape)})", x.dtype)


@operation(6)
def expand(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape:
        return None
    shape = list(x.shape)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    times = dice.pick((2, 3, 5, 16))
    if ones and dice.below(2):
        axis = dice.pick(ones)
        shape[axis] = times
        ours = f"{name} = {x.name}.expand({tuple(shape)})"
        return ours, f"{name} = np.broadcast_to({x.name}, {tuple(shape)})", x.dtype
    axis = dice.below(len(shape) + 1)
    shape.insert(axis, times)
    ours = f"{name} = {x.name}.unsqueeze({axis}).expand({tuple(shape)})"
    return ours, f"{name} = np.broadcast_to(np.expand_dims({x.name}, {axis}), {tuple(shape)})", x.dtype


@operation(3)
def roll(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape:
        return None
    axis, by = dice.below(len(x.shape)), dice.below(40) - 20
    return f"{name} = {x.name}.roll({by}, {axis})", f"{name} = np.roll({x.name}, {by}, {axis})", x.dtype


@operation(3)
def repeat(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape:
        return None
    if dice.below(2):
        axis = dice.below(len(x.shape))
        ours = f"{name} = {x.name}.repeat_interleave(3, {axis})"
        return ours, f"{name} = np.repeat({x.name}, 3, {axis})", x.dtype
    times = tuple(dice.pick((1, 1, 2, 3)) for _ in x.shape)
    return f"{name} = {x.name}.repeat({times})", f"{name} = np.tile({x.name}, {times})", x.dtype


@operation(5)
def unfold(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape:
        return None
    axis = dice.below(len(x.shape))
    size, step, spread = 1 + dice.below(4), 1 + dice.below(3), 1 + dice.below(2)
    if spread * (size - 1) + 1 > x.shape[axis]:
        return None
    ours = f"{name} = {x.name}.unfold({axis}, {size}, {step}, {spread})"
    return ours, f"{name} = unfold({x.name}, {axis}, {size}, {step}, {spread})", x.dtype


def _variant(dice: Dice, x: Value, axis: int) -> str:
    """Something of x's shape but for that axis."""
    at = [":"] * len(x.shape)
    at[axis] = dice.pick((":", "::-1", "::2", "1:", ":3"))
    return f"{x.name}[{', '.join(at)}]"


@operation(8)
def cat(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape:
        return None
    axis = dice.below(len(x.shape))
    parts = [_variant(dice, x, axis) for _ in range(1 + dice.below(4))]
    fits = x.dtype == y.dtype and len(x.shape) == len(y.shape)
    if fits and all(a == b for i, (a, b) in enumerate(zip(x.shape, y.shape)) if i != axis):
        parts.insert(dice.below(len(parts) + 1), y.name)
    listed = ", ".join(parts)
    ours = f"{name} = Tensor.cat([{listed}], {axis})"
    return ours, f"{name} = np.concatenate([{listed}], {axis})", x.dtype


@operation(4)
def stack(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    whole = ", ".join([":"] * len(x.shape))
    back = ", ".join(["::-1"] * len(x.shape))
    parts = [f"{x.name}[{dice.pick((whole, back))}]" if x.shape else x.name for _ in range(1 + dice.below(4))]
    if x.shape == y.shape and x.dtype == y.dtype:
        parts.append(y.name)
    axis = dice.below(len(x.shape) + 1)
    listed = ", ".join(parts)
    return f"{name} = Tensor.stack([{listed}], {axis})", f"{name} = np.stack([{listed}], {axis})", x.dtype


@operation(4)
def take(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape or 0 in x.shape:
        return None
    axis = dice.below(len(x.shape))
    places = [dice.below(x.shape[axis]) for _ in range(1 + dice.below(9))]
    ours = f"{name} = {x.name}.index_select({axis}, Tensor({places}, dtype=dtypes.int64))"
    return ours, f"{name} = np.take({x.name}, {places}, {axis})", x.dtype


@operation(3)
def triangle(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if len(x.shape) < 2 or x.is_stored_only or x.dtype == "bool":
        return None
    how, by = dice.pick(("tril", "triu")), dice.below(7) - 3
    return f"{name} = {x.name}.{how}({by})", f"{name} = np.{how}({x.name}, {by})", x.dtype


@operation(3)
def put(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    """A copy with a part overwritten."""
    if not x.shape or 0 in x.shape or x.is_stored_only:
        return None
    where = _slices(dice, x, keeps_axes=True)
    number = dice.below(3)
    ours = f"{name} = {x.name}.clone().realize(); {name}[{where}] = {number}"
    return ours, f"{name} = {x.name}.copy(); {name}[{where}] = {number}", x.dtype


# -- what stands between movements ----------------------------------------------------------------------------------


@operation(10)
def contiguous(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    how = dice.pick((".contiguous()", ".contiguous()", ".realize()", ".contiguous().realize()"))
    return f"{name} = {x.name}{how}", f"{name} = {x.name}", x.dtype


@operation(5)
def unary(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if x.is_stored_only or x.dtype == "bool":
        return None
    forms = ["abs({0})", "{0} * 2", "{0} + 1", "{0} * {0}"] + ["-{0}"] * x.is_signed
    return _same(name, dice.pick(forms).format(x.name), x.dtype)


@operation(3)
def cast(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    to = dice.pick(
        ("float32", "int32", "uint8", "float64", "int64", "bool", "float16", "int8", "bfloat16", "fp8e5m2")
    )
    if x.array.size and to != "bool":
        low, high = float(x.array.min()), float(x.array.max())
        if low < (0 if to.startswith("u") else -8) or high > 8:
            return None
    numpy = {"bfloat16": "float32", "fp8e5m2": "float32"}.get(to, to)
    return f"{name} = {x.name}.cast(dtypes.{to})", f"{name} = {x.name}.astype({numpy!r})", to


@operation(7)
def binary(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    """With another value, or with this one turned: operands read in different orders."""
    if x.is_stored_only or x.dtype == "bool":
        return None
    other = y.name if y.dtype == x.dtype and y.shape == x.shape else ""
    if len(x.shape) == 2 and x.shape[0] == x.shape[1] and dice.below(2):
        other = f"{x.name}.T"
    if not other:
        other = f"{x.name}[{', '.join(['::-1'] * len(x.shape))}]" if x.shape else x.name
    return _same(name, f"{x.name} {dice.pick('+-*')} {other}", x.dtype)


@operation(3)
def choose(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if x.is_stored_only or x.dtype == "bool":
        return None
    other = y.name if y.dtype == x.dtype and y.shape == x.shape else f"({x.name} + 1)"
    ours = f"{name} = ({x.name} > 1).where({other}, {x.name})"
    return ours, f"{name} = np.where({x.name} > 1, {other}, {x.name})", x.dtype


def _sum_dtype(x: Value) -> str:
    return x.dtype if x.is_float or x.dtype == "uint64" else "int64"


@operation(8)
def reduce(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if not x.shape or x.is_stored_only or 0 in x.shape:
        return None
    axis = dice.below(len(x.shape))
    keeps = bool(dice.below(2))
    how, numpy = dice.pick((("sum", "sum"), ("sum", "sum"), ("amax", "max"), ("amin", "min")))
    if x.dtype == "bool" and how != "sum":
        return None
    dtype = _sum_dtype(x) if how == "sum" else x.dtype
    wide = f", dtype={'float64' if x.is_float else dtype!r}" if how == "sum" else ""
    ours = f"{name} = {x.name}.{how}({axis}, {keeps})"
    return ours, f"{name} = np.{numpy}({x.name}, {axis}, keepdims={keeps}{wide})", dtype


@operation(2)
def whole(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    """A sum of all, or what is the largest so far."""
    if not x.shape or x.is_stored_only or x.dtype == "bool" or 0 in x.shape:
        return None
    axis = dice.below(len(x.shape))
    if dice.below(2):
        return f"{name} = {x.name}.argmax({axis})", f"{name} = np.argmax({x.name}, {axis})", "int64"
    dtype = _sum_dtype(x)
    wide = "float64" if x.is_float else dtype
    return f"{name} = {x.name}.cumsum({axis})", f"{name} = np.cumsum({x.name}, {axis}, dtype={wide!r})", dtype


def _fits(x: Value, count: int) -> bool:
    """Whether sums of that many products are exact."""
    if not x.is_float:
        return x.dtype not in ("bool",) and not x.is_stored_only
    most = {"float64": 1e14, "float32": 1e6, "float16": 1e3, "bfloat16": 120}[x.dtype]
    high = float(np.abs(x.array).max(initial=0))
    return high * high * count <= most


@operation(10)
def product(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    """A matrix product of what is there, each side as a matrix and cut to fit."""
    y = y if y.dtype == x.dtype else x
    if len(x.shape) < 2 or len(y.shape) < 2 or 0 in (*x.shape, *y.shape):
        return None
    sides = []
    for value in (x, y):
        rows = int(np.prod(value.shape[:-1]))
        text = value.name if len(value.shape) == 2 else f"{value.name}.reshape({rows}, {value.shape[-1]})"
        shape = (rows, value.shape[-1])
        if dice.below(2):
            text, shape = f"{text}.T", shape[::-1]
        sides.append((text, shape))
    (a, left), (b, right) = sides
    inner = min(left[1], right[0])
    if inner * left[0] * right[1] > 30_000_000 or not (_fits(x, inner) and _fits(y, inner)):
        return None
    a = a if left[1] == inner else f"{a}[:, :{inner}]"
    b = b if right[0] == inner else f"{b}[{right[0] - inner}:]"
    return _same(name, f"{a} @ {b}", x.dtype)


@operation(12)
def convolution(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    """A convolution with a window cut from another value, or the transposed one."""
    y = y if y.dtype == x.dtype else x
    if len(x.shape) < 2 or 0 in x.shape or x.is_stored_only or x.dtype == "bool":
        return None
    height, width = x.shape[-2:]
    channels = x.shape[-3] if len(x.shape) > 2 and x.shape[-3] <= 20 else 1
    batch = x.array.size // (height * width * channels)
    size, out = 1 + dice.below(3), 1 + dice.below(6)
    stride, padding, spread = 1 + dice.below(3), dice.below(3), 1 + dice.below(2)
    needed = channels * out * size * size
    reach = spread * (size - 1) + 1
    if needed > y.array.size or not (_fits(x, channels * size * size) and _fits(y, channels * size * size)):
        return None
    flat = f"{y.name}.reshape({y.array.size})[:{needed}]"
    view = f"{x.name}.reshape({batch}, {channels}, {height}, {width})"
    if dice.below(3) == 0:
        padding = min(padding, spread * (size - 1))
        words = f"{view}, {flat}.reshape({channels}, {out}, {size}, {size}), {stride}, {padding}, {spread}"
        ours = f"{name} = Tensor.conv_transpose2d({words.rsplit(',', 1)[0]}, dilation={spread})"
        ours = ours.replace(f", {stride}, {padding},", f", None, {stride}, {padding},")
        if (height - 1) * stride + reach <= 2 * padding or (width - 1) * stride + reach <= 2 * padding:
            return None
        return ours, f"{name} = convolution_transposed({words})", x.dtype
    if min(height, width) + 2 * padding < reach:
        return None
    window = f"{flat}.reshape({out}, {channels}, {size}, {size})"
    ours = f"{name} = Tensor.conv2d({view}, {window}, None, {stride}, {padding}, {spread})"
    return ours, f"{name} = convolution({view}, {window}, {stride}, {padding}, {spread})", x.dtype


@operation(3)
def pooling(dice: Dice, name: str, x: Value, y: Value) -> Line | None:
    if len(x.shape) < 2 or 0 in x.shape or not x.is_float:
        return None
    size, step = 2 + dice.below(2), 1 + dice.below(3)
    padding = dice.below(size // 2 + 1)
    if min(x.shape[-2:]) + 2 * padding < size:
        return None
    view = f"{x.name}.reshape({int(np.prod(x.shape[:-2]))}, 1, {x.shape[-2]}, {x.shape[-1]})"
    ours = f"{name} = {view}.max_pool2d({size}, {step}, {padding})"
    return ours, f"{name} = pooled({view}, {size}, {step}, {padding})", x.dtype


# -- NumPy's side ---------------------------------------------------------------------------------------------------


def _unfold(x: np.ndarray, axis: int, size: int, step: int, spread: int) -> np.ndarray:
    count = (x.shape[axis] - spread * (size - 1) - 1) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size) * spread
    taken = np.take(x, places, axis)  # the window's number where the axis was, then the place in it
    return np.moveaxis(taken, axis + 1, -1)


def _convolution(x: np.ndarray, w: np.ndarray, stride: int, padding: int, spread: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = _unfold(_unfold(x, 2, w.shape[2], stride, spread), 3, w.shape[3], stride, spread)
    wide = np.float64 if w.dtype.kind == "f" else w.dtype
    return np.einsum("nchwpq,ocpq->nohw", windows.astype(wide), w.astype(wide), optimize=True)


def _convolution_transposed(
    x: np.ndarray, w: np.ndarray, stride: int, padding: int, spread: int
) -> np.ndarray:
    wide = np.float64 if w.dtype.kind == "f" else w.dtype
    n, _, height, width = x.shape
    out, size = w.shape[1], w.shape[2]
    reach = spread * (size - 1) + 1
    whole = np.zeros((n, out, (height - 1) * stride + reach, (width - 1) * stride + reach), wide)
    for p in range(size):
        for q in range(size):
            part = np.einsum("nchw,co->nohw", x.astype(wide), w[:, :, p, q].astype(wide))
            rows = slice(p * spread, p * spread + (height - 1) * stride + 1, stride)
            whole[:, :, rows, q * spread : q * spread + (width - 1) * stride + 1 : stride] += part
    return whole[:, :, padding : whole.shape[2] - padding, padding : whole.shape[3] - padding]


def _pooled(x: np.ndarray, size: int, step: int, padding: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=-np.inf)
    return _unfold(_unfold(x, 2, size, step, 1), 3, size, step, 1).max((4, 5))


def numpy_namespace() -> dict[str, Any]:
    """What NumPy's lines know besides the values."""
    return {
        "np": np,
        "unfold": _unfold,
        "convolution": _convolution,
        "convolution_transposed": _convolution_transposed,
        "pooled": _pooled,
    }
