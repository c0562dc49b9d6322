"""Operands: random programs of two to some hundred of them, against NumPy; their gradients against differences.

In       a case
Out      right, or Wrong with the program
Next     frontend/schedule/joins.py and split.py (what becomes of many operands), movement.py (what moves values)

A program is a nest of joins, sums, products and choices over some leaves, of which each may be there many times. It is
built twice by the same code, of tensors and of arrays. A gradient is compared along one random direction, with the
difference of the arrays' results.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
COUNTS = (2, 3, 8, 9, 20, 65, 130, 350, 350, 700)
MAX_ELEMENTS = 20_000
STEP = 1e-6

Build = Callable[["Maths", Sequence[Any]], Any]


class Maths:
    """What a program does with its operands: of tensors, or of arrays."""

    def __init__(self, is_numpy: bool):
        self.is_numpy = is_numpy

    def cat(self, parts: Sequence[Any], axis: int) -> Any:
        from hcq import Tensor

        return np.concatenate(parts, axis) if self.is_numpy else Tensor.cat(list(parts), axis)

    def stack(self, parts: Sequence[Any], axis: int) -> Any:
        from hcq import Tensor

        return np.stack(parts, axis) if self.is_numpy else Tensor.stack(list(parts), axis)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b) if self.is_numpy else condition.where(a, b)

    def memory(self, x: Any) -> Any:
        return x if self.is_numpy else x.contiguous()


class Program:
    """Leaves, what is built of them, and how it reads."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.dtype = rng.choice(DTYPES)
        self.is_float = self.dtype.startswith("float")
        self.leaves: list[np.ndarray] = []
        self.lines: list[str] = []
        shape = tuple([rng.randrange(1, 5) for _ in range(rng.randrange(1, 4))])
        self.build = self._nest(shape, rng.choice(COUNTS), 0)[0]

    def _leaf(self, shape: tuple[int, ...]) -> tuple[Build, tuple[int, ...]]:
        alike = [i for i, leaf in enumerate(self.leaves) if leaf.shape == shape]
        if alike and self.rng.random() < 0.1:
            number = self.rng.choice(alike)
        else:
            number = len(self.leaves)
            values = np.random.default_rng(self.rng.randrange(1 << 30))
            if self.is_float:
                leaf = values.uniform(0.9, 1.1, shape)
            else:
                leaf = values.integers(0, 2 if self.dtype == "bool" else 5, shape)
            self.leaves.append(leaf.astype(self.dtype))
        return lambda maths, given: given[number], shape

    def _nest(self, shape: tuple[int, ...], count: int, depth: int) -> tuple[Build, tuple[int, ...]]:
        """Something built of about `count` operands, of a shape that starts from `shape`."""
        rng = self.rng
        if count < 2 or depth == 4:
            return self._leaf(shape)
        how = rng.choice(("cat", "cat", "stack", "sum", "product", "where", "chain of joins"))
        groups = rng.choice((count, count, count, 2, 3, max(2, count // 8)))
        groups = min(groups, count)
        if how in ("cat", "chain of joins"):
            return self._join(how, shape, count, groups, depth)
        parts, made = self._alike(shape, count, groups, depth)
        self.lines.append(f"{'  ' * depth}{how} of {len(parts)}, each {made}")
        if how == "stack":
            axis = rng.randrange(len(made) + 1)
            if len(made) < 4 and np.prod(made) * len(parts) <= MAX_ELEMENTS:
                whole = (*made[:axis], len(parts), *made[axis:])
                return lambda maths, given: maths.stack([p(maths, given) for p in parts], axis), whole
        return self._folded(how, parts), made

    def _alike(
        self, shape: tuple[int, ...], count: int, groups: int, depth: int
    ) -> tuple[list[Build], tuple[int, ...]]:
        """Several of one shape: the first is built anew, the others are leaves or it again."""
        first, made = self._nest(shape, count // groups, depth + 1)
        parts = [first]
        for _ in range(groups - 1):
            parts.append(first if self.rng.random() < 0.1 else self._leaf(made)[0])
        return parts, made

    def _join(
        self, how: str, shape: tuple[int, ...], count: int, groups: int, depth: int
    ) -> tuple[Build, tuple[int, ...]]:
        first, made = self._nest(shape, count // groups, depth + 1)
        axis = self.rng.randrange(len(made))
        is_even = self.rng.random() < 0.5
        parts, total = [first], made[axis]
        for _ in range(groups - 1):
            size = made[axis] if is_even else self.rng.randrange(5)
            each = (*made[:axis], size, *made[axis + 1 :])
            if np.prod(made, dtype=int) // max(1, made[axis]) * (total + size) > MAX_ELEMENTS:
                break
            parts.append(self._leaf(each)[0])
            total += size
        whole = (*made[:axis], total, *made[axis + 1 :])
        self.lines.append(f"{'  ' * depth}{how} of {len(parts)} along {axis}: {whole}")
        if how == "cat":
            return lambda maths, given: maths.cat([p(maths, given) for p in parts], axis), whole

        def chain(maths: Maths, given: Sequence[Any]) -> Any:
            x = parts[0](maths, given)
            for part in parts[1:]:
                x = maths.cat([x, part(maths, given)], axis)
            return x

        return chain, whole

    def _folded(self, how: str, parts: list[Build]) -> Build:
        every = self.rng.choice((0, 0, 5))  # some values on the way go to memory

        def fold(maths: Maths, given: Sequence[Any]) -> Any:
            x = parts[0](maths, given)
            for number, part in enumerate(parts[1:]):
                y = part(maths, given)
                if how == "where" and self.dtype != "bool":
                    x = (
                        maths.where(given[0].reshape(-1)[:1] > 1, y, x)
                        if number % 2
                        else maths.where(y > 1, x, y)
                    )
                elif self.dtype == "bool":
                    x = (x & y) if how == "product" else (x | y)
                else:
                    x = x * y if how == "product" else x + y
                if every and number % every == 0:
                    x = maths.memory(x)
            return x

        return fold

    def __str__(self) -> str:
        return "\n".join([f"{self.dtype}, {len(self.leaves)} leaves", *self.lines])


def run(case: Case) -> Outcome:
    """One program, its values and, of floats, a gradient."""
    from hcq import Tensor

    program = Program(case.rng())
    with np.errstate(all="ignore"):
        expected = program.build(Maths(True), program.leaves)
    has_gradient = program.dtype == "float64" and case.rng().random() < 0.7
    tensors = [Tensor(leaf, requires_grad=has_gradient) for leaf in program.leaves]
    try:
        found = program.build(Maths(False), tensors)
        _compare(program, "values", found.numpy(), expected)
        if has_gradient:
            _check_gradient(program, found, tensors)
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}\n{program}") from error
    del found, tensors
    _forget()
    return Outcome.RIGHT


def _check_gradient(program: Program, found: Any, tensors: list[Any]) -> None:
    values = np.random.default_rng(7)
    weights = values.uniform(0.5, 1.5, found.shape)
    directions = [values.standard_normal(leaf.shape) for leaf in program.leaves]
    from hcq import Tensor

    (found * Tensor(weights)).sum().backward()
    graded = [(t.grad, d) for t, d in zip(tensors, directions) if t.grad is not None]
    if graded:
        graded[0][0].realize(*[grad for grad, _ in graded[1:]])
    slope = sum(float((grad.numpy() * d).sum()) for grad, d in graded)
    sides = []
    for sign in (1, -1):
        moved = [leaf + sign * STEP * d for leaf, d in zip(program.leaves, directions)]
        sides.append(float((program.build(Maths(True), moved) * weights).sum()))
    expected = (sides[0] - sides[1]) / (2 * STEP)
    scale = 1 + abs(sides[0]) + sum(float(np.abs(grad.numpy() * d).sum()) for grad, d in graded)
    if abs(slope - expected) > 1e-6 * scale:
        raise Wrong(f"gradient along a direction: {slope} instead of {expected}\n{program}")


def _compare(program: Program, what: str, found: np.ndarray, expected: np.ndarray) -> None:
    if found.shape != expected.shape:
        raise Wrong(f"{what}: shape {found.shape} instead of {expected.shape}\n{program}")
    tolerance = {"float32": 1e-4, "float64": 1e-10}.get(program.dtype, 0)
    if not np.allclose(found, expected, rtol=tolerance, atol=0):
        place = tuple(np.argwhere(~np.isclose(found, expected, rtol=tolerance, atol=0))[0])
        raise Wrong(f"{what} at {place}: {found[place]} instead of {expected[place]}\n{program}")


def _forget() -> None:
    """Leave no plan and no code behind: every case has kernels of its own."""
    from hcq.compiler import compile as compiler
    from hcq.frontend.core import device as devices
    from hcq.frontend.run import plan

    plan._plans.clear()
    plan._programs.clear()
    compiler.forget()
    device = devices.get(devices.default())
    device.synchronize()
    device.recent.clear()
    gc.collect()


CAMPAIGNS = (
    Campaign(
        "operands",
        "joins, sums, products and choices of 2 to 700 operands, some of them the same, with gradients",
        run,
        short=25,
    ),
)
