"""Random tensor programs: movement of every kind, with a little arithmetic between, in our words and in NumPy's.

In       random numbers
Out      a Program; `write` makes of it lines of Python, and what NumPy says each value is
Next     _operations.py (what a step can be), movement.py (who runs them)

A step holds numbers, not shapes: what they mean is decided against the shapes that are there. So any part of a program
is a program, and a failing one can be made smaller by leaving parts out. Values are small whole numbers that every
format holds exactly: sums come out the same in any order, and right means equal.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.campaigns._operations import OPERATIONS, Dice, Value, numpy_namespace

DTYPES = {  # ours, and the format in which NumPy holds the same whole numbers
    "bool": "bool",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "uint16",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "float32",
    "fp8e4m3": "float32",
    "fp8e5m2": "float32",
}
USUAL = ("float32", "float32", "float32", "int32", "uint8", "float64", "float16")
PHRASES = (  # steps that are drawn together: what one leaves is what the other reads in another order
    ("pad", "permute"),
    ("pad", "permute"),
    ("pad", "permute", "reduce"),
    ("cat", "permute"),
    ("cat", "flip"),
    ("permute", "binary"),
    ("pad", "permute", "product"),
    ("take", "product"),
    ("convolution", "permute"),
)
TURNS = (*[("pad", "permute")] * 3, ("cat", "permute"), ("roll", "permute"), ("pad", "flip", "permute"))
SMALL = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9)
MIDDLE = (12, 13, 15, 16, 17, 20, 31, 32, 33, 47)
LARGE = (63, 64, 65, 100, 128, 129, 200, 257, 300)
MOST_LEAF = 40_000  # elements
MOST_VALUE = 150_000
RETURNED = 3  # values that are asked for


@dataclass(frozen=True)
class Leaf:
    """A source buffer."""

    shape: tuple[int, ...]
    dtype: str
    seed: int

    def array(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        is_unsigned = self.dtype.startswith(("uint", "bool"))
        low, high = (0, 2) if self.dtype == "bool" else (0, 6) if is_unsigned else (-4, 5)
        return rng.integers(low, high, self.shape).astype(DTYPES[self.dtype])

    def ours(self) -> str:
        is_unsigned = self.dtype.startswith(("uint", "bool"))
        low, high = (0, 2) if self.dtype == "bool" else (0, 6) if is_unsigned else (-4, 5)
        made = f"np.random.default_rng({self.seed}).integers({low}, {high}, {self.shape})"
        text = f"Tensor({made}.astype({DTYPES[self.dtype]!r}))"
        return text if DTYPES[self.dtype] == self.dtype else f"{text}.cast(dtypes.{self.dtype}).realize()"


@dataclass(frozen=True)
class Step:
    """One operation: its name and the numbers that it draws from."""

    operation: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]


@dataclass
class Written:
    """A program in words. `lines` makes its values from nothing; `results` names those that are asked for."""

    lines: list[str]
    results: list[Value]

    def __str__(self) -> str:
        returned = ", ".join(value.name for value in self.results)
        return "\n".join([*self.lines, f"# asked for: {returned}"])


def draw(rng: random.Random, most: int) -> Program:
    """A random program.

    most   elements of a leaf
    """
    dtype = rng.choice(USUAL) if rng.random() < 0.6 else rng.choice(list(DTYPES))
    # a small matrix that is turned: whether vectors stay inside is decided at its edges
    if rng.random() < 0.3:
        leaf = Leaf(tuple(rng.choice(SMALL + MIDDLE) for _ in range(2)), dtype, rng.randrange(1000))
        return Program((leaf,), _steps(rng, rng.choice(TURNS)))
    leaves = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = dtype if rng.random() < 0.8 else rng.choice(list(DTYPES))
        leaves.append(Leaf(_shape(rng, most), name, rng.randrange(1000)))
    names = list(OPERATIONS)
    weights = [OPERATIONS[name].weight for name in names]
    chosen: list[str] = []
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5, 6))):
        chosen += rng.choice(PHRASES) if rng.random() < 0.3 else rng.choices(names, weights)
    return Program(tuple(leaves), _steps(rng, chosen))


def _steps(rng: random.Random, names: Sequence[str]) -> tuple[Step, ...]:
    return tuple(Step(name, tuple(rng.randrange(1 << 16) for _ in range(24))) for name in names)


def _shape(rng: random.Random, most: int) -> tuple[int, ...]:
    if rng.random() < 0.02:
        return rng.choice(((0,), (3, 0), (0, 5), (2, 0, 4), ()))
    while True:
        sizes = rng.choice((SMALL, SMALL + MIDDLE, SMALL + MIDDLE, SMALL + MIDDLE + LARGE, LARGE))
        shape = tuple(rng.choice(sizes) for _ in range(rng.choice((1, 2, 2, 2, 3, 3, 4))))
        if np.prod(shape) <= most:
            return shape


def write(program: Program) -> Written:
    """The program in words, beside its values as NumPy makes them."""
    namespace = numpy_namespace()
    lines = []
    values: list[Value] = []
    used: set[str] = set()
    for leaf in program.leaves:
        name = f"t{len(values)}"
        values.append(Value(name, leaf.array(), leaf.dtype))
        namespace[name] = values[-1].array
        lines.append(f"{name} = {leaf.ours()}")
    for step in program.steps:
        dice = Dice(step.numbers)
        # the newest value more often than not, so that views meet views
        value = values[-1] if dice.below(4) else values[dice.below(len(values))]
        other = values[dice.below(len(values))]
        name = f"t{len(values)}"
        made = OPERATIONS[step.operation].write(dice, name, value, other)
        if made is None:
            continue
        ours, theirs, dtype = made
        with np.errstate(all="ignore"):
            exec(theirs, namespace)
        array = np.asarray(namespace[name])
        if array.size > MOST_VALUE or not _is_exact(array, dtype):
            continue
        array = namespace[name] = array.astype(DTYPES[dtype])
        used.update(v.name for v in (value, other) if v.name in ours)
        values.append(Value(name, array, dtype))
        lines.append(ours)
    made = values[len(program.leaves) :] or values
    loose = [value for value in reversed(made) if value.name not in used]
    return Written(lines, loose[:RETURNED])


def _is_exact(array: np.ndarray, dtype: str) -> bool:
    """Whether a format holds these whole numbers; integers wrap around, everywhere alike."""
    most = {
        "float64": 1 << 50,
        "float32": 1 << 22,
        "float16": 1 << 10,
        "bfloat16": 128,
        "fp8e4m3": 8,
        "fp8e5m2": 8,
    }
    if dtype not in most or not array.size:
        return True
    return bool(np.isfinite(array).all() and np.abs(array.astype(np.float64)).max() <= most[dtype])


# -- smaller programs -----------------------------------------------------------------------------------------------


def smallest(program: Program, fails: Callable[[Program], bool], seconds: float) -> Program:
    """A part of a failing program that fails as well; within the time, none of its parts does."""
    ends = time.monotonic() + seconds
    tried = {str(write(program))}
    again = True
    while again:
        again = False
        for candidate in _smaller(program):
            text = str(write(candidate))
            if text in tried:
                continue
            if time.monotonic() > ends:
                return program
            tried.add(text)
            if fails(candidate):
                program, again = candidate, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs a little smaller: the largest cuts first."""
    steps, leaves = program.steps, program.leaves
    for count in (4, 2, 1):
        for at in range(len(steps) - count + 1):
            yield replace(program, steps=steps[:at] + steps[at + count :])
    for at in range(len(leaves) - 1, -1, -1):
        if len(leaves) > 1:
            yield replace(program, leaves=leaves[:at] + leaves[at + 1 :])
    for at, leaf in enumerate(leaves):
        for changed in _smaller_leaves(leaf):
            yield replace(program, leaves=(*leaves[:at], changed, *leaves[at + 1 :]))
    for at, step in enumerate(steps):
        for place, number in enumerate(step.numbers):
            if number:
                numbers = (*step.numbers[:place], 0, *step.numbers[place + 1 :])
                yield replace(program, steps=(*steps[:at], Step(step.operation, numbers), *steps[at + 1 :]))


def _smaller_leaves(leaf: Leaf) -> Iterator[Leaf]:
    if leaf.dtype != "float32":
        yield replace(leaf, dtype="float32")
    for axis, size in enumerate(leaf.shape):
        if len(leaf.shape) > 1:
            yield replace(leaf, shape=leaf.shape[:axis] + leaf.shape[axis + 1 :])
        for smaller in sorted({1, size // 2, size - 1}):
            if 0 < smaller < size:
                yield replace(leaf, shape=(*leaf.shape[:axis], smaller, *leaf.shape[axis + 1 :]))


def differences(written: Written, ours: dict[str, Any]) -> str:
    """How the results differ from NumPy's, or "".

    ours   name -> (dtype's name, array)
    """
    told = []
    for value in written.results:
        dtype, array = ours[value.name]
        if dtype != value.dtype or array.shape != value.array.shape:
            told.append(
                f"{value.name} is {dtype}{list(array.shape)}, not {value.dtype}{list(value.array.shape)}"
            )
            continue
        wrong = np.argwhere(np.asarray(array != value.array))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            told.append(
                f"{value.name}: {len(wrong)} of {array.size} elements are wrong; the first, at {at}, is {array[at]} "
                f"and should be {value.array[at]}"
            )
    return "; ".join(told)
