"""Expressions over registers: conditions of breakpoints, and what `print` computes.

In       text such as "v3 > 10 and lane == 5", "f32(v2) * 2", "%r4 == 0"; a moment
Out      Expression: its value in a lane, or the first lane where it holds
Next     points.py (conditions), commands.py (print), dap.py (evaluate)

The grammar is Python's, of which names, numbers, comparisons, arithmetic, and calls of a few functions are allowed; it
is walked as a tree and never run as Python. Registers are unsigned, as wide as they are. `i32`, `u32`, `f32`, `f16`,
`i64`, `u64`, `f64` say what their bits mean; 64-bit ones take the next register, too, where registers have 32 bits.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import Any

import numpy as np

from hcq.debug.moment import Array, Moment
from hcq.errors import UsageError

REGISTER = re.compile(r"%[A-Za-z_$][\w$.]*")
MARK = "register__"
TYPES = {"i8": "<i1", "u8": "<u1", "i16": "<i2", "u16": "<u2", "f16": "<f2", "i32": "<i4", "u32": "<u4", "f32": "<f4",
         "i64": "<i8", "u64": "<u8", "f64": "<f8"}  # fmt: skip
BINARY: dict[type[ast.AST], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
COMPARISONS: dict[type[ast.AST], Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
PLACES = ("lane", "wave", "block", "thread")
MOST_SHIFT = 1 << 12


class Expression:
    """One, parsed. Raises UsageError for what is not allowed in it."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._names: dict[str, str] = {}

        def mark(found: re.Match[str]) -> str:
            name = f"{MARK}{len(self._names)}"
            self._names[name] = found[0]
            return name

        try:
            self.tree = ast.parse(REGISTER.sub(mark, self.text), mode="eval").body
        except (SyntaxError, ValueError):
            raise UsageError(
                f"{self.text!r} is no expression. Say for example: v3 == 10 and lane < 4"
            ) from None
        self._check(self.tree)

    def __str__(self) -> str:
        return self.text

    def _check(self, node: ast.AST) -> None:
        allowed = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.operator,
                   ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)  # fmt: skip
        for one in ast.walk(node):
            is_typed = isinstance(one, ast.Call) and (
                isinstance(one.func, ast.Name) and one.func.id in TYPES and len(one.args) == 1
            )
            if not isinstance(one, allowed) or (isinstance(one, ast.Call) and not is_typed):
                raise UsageError(
                    f"{self.text!r}: only registers, numbers, lane, wave, block, thread, arithmetic, comparisons and "
                    f"{', '.join(TYPES)} are allowed."
                )
            if isinstance(one, ast.Constant) and not isinstance(one.value, (int, float)):
                raise UsageError(f"{self.text!r}: {one.value!r} is no number.")

    def value(self, moment: Moment, wave: int, lane: int) -> Any:
        """In one lane. Raises UsageError for a register that is not there."""
        return self._value(self.tree, moment, wave, lane)

    def first(self, moment: Moment) -> tuple[int, int] | None:
        """The first (wave, lane) of those that execute where it holds."""
        for wave in moment.waves.tolist():
            for lane in np.flatnonzero(moment.on(wave)).tolist():
                if self.value(moment, wave, lane):
                    return wave, lane
        return None

    def _value(self, node: ast.AST, moment: Moment, wave: int, lane: int) -> Any:
        def of(one: ast.AST) -> Any:
            return self._value(one, moment, wave, lane)

        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id, moment, wave, lane)
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            return self._typed(node.func.id, node.args[0], moment, wave, lane)
        if isinstance(node, ast.BoolOp):
            truths = (of(one) for one in node.values)
            return all(truths) if isinstance(node.op, ast.And) else any(truths)
        if isinstance(node, ast.Compare):
            values = [of(node.left), *(of(one) for one in node.comparators)]
            return all(COMPARISONS[type(op)](a, b) for op, a, b in zip(node.ops, values, values[1:]))
        try:
            if isinstance(node, ast.UnaryOp):
                value = of(node.operand)
                return (
                    not value
                    if isinstance(node.op, ast.Not)
                    else -value
                    if isinstance(node.op, ast.USub)
                    else ~value
                )
            assert isinstance(node, ast.BinOp)
            left, right = of(node.left), of(node.right)
            if isinstance(node.op, (ast.LShift, ast.RShift)) and not 0 <= right <= MOST_SHIFT:
                raise UsageError(f"{self.text!r}: a shift by {right}.")
            return BINARY[type(node.op)](left, right)
        except (ZeroDivisionError, KeyError, TypeError, OverflowError) as error:
            raise UsageError(f"{self.text!r}: {error}.") from None

    def _name(self, name: str, moment: Moment, wave: int, lane: int) -> Any:
        if name in PLACES:
            per_block = moment.work.waves_per_block
            return {"lane": lane, "wave": wave, "block": wave // per_block,
                    "thread": wave % per_block * moment.work.lanes + lane}[name]  # fmt: skip
        return of_lane(moment.read(self._names.get(name, name), wave), lane).item()

    def _typed(self, kind: str, node: ast.AST, moment: Moment, wave: int, lane: int) -> Any:
        if isinstance(node, ast.Name) and node.id not in PLACES:
            return typed(moment, self._names.get(node.id, node.id), kind, wave)[
                lane if is_vector(moment, self._names.get(node.id, node.id), wave) else 0
            ].item()
        value = self._value(node, moment, wave, lane)
        size = np.dtype(TYPES[kind]).itemsize
        if isinstance(value, float) and kind.startswith("f"):
            return np.dtype(TYPES[kind]).type(value).item()
        return np.frombuffer((int(value) % (1 << 8 * size)).to_bytes(size, "little"), TYPES[kind])[0].item()


def of_lane(values: Array, lane: int) -> Any:
    """That of a lane, or the one that all share."""
    return values[lane] if len(values) > 1 else values[0]


def is_vector(moment: Moment, name: str, wave: int) -> bool:
    """Whether each lane has its own."""
    return len(moment.read(name, wave)) > 1


def typed(moment: Moment, name: str, kind: str, wave: int) -> Array:
    """(lanes,) or (1,) numbers of a type: the low bits of a register, or of it and the next one.

    Raises  UsageError for an unknown type or register
    """
    if kind not in TYPES:
        raise UsageError(f"{kind!r} is no type. Types: {', '.join(TYPES)}.")
    values = np.ascontiguousarray(moment.read(name, wave))
    dtype = np.dtype(TYPES[kind])
    if values.dtype.itemsize < dtype.itemsize:
        if (found := re.fullmatch(r"([a-z]+)(\d+)", name)) is None:
            values = values.astype(f"<u{dtype.itemsize}")
        else:
            high = moment.read(f"{found[1]}{int(found[2]) + 1}", wave)
            values = values.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)[:, : dtype.itemsize]
    found_values: Array = np.ascontiguousarray(rows).view(dtype)[:, 0]
    return found_values
