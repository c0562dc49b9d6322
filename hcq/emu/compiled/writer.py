"""The writer: LLVM IR as text, in two streams: what is done once for a wave, and loops over its lanes.

In       operations on symbols; accesses of memory; where loops end
Out      lines of a function
Changes  itself
Next     symbols.py and operations.py (what is written), accesses.py (memory), assemble.py (text to machine code)

A segment is some scalar lines, and a loop that takes WIDTH lanes at a time through all vector lines since the last
loop. What a loop has computed stays in the host's registers for as long as it takes; when the segment ends, vector
registers that it changed are written to the wave's memory, and masks become bits of a scalar.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from hcq.emu.compiled.operations import FUNCTIONS, UFUNCS
from hcq.emu.compiled.symbols import NotTraced, Symbol, llvm_type

WIDTH = 16  # lanes that one step of a loop takes: a register of AVX-512 of 32-bit numbers, or two of AVX2


class Writer:
    """The text of one function, as far as it is written."""

    functions: ClassVar[dict[str, Any]] = FUNCTIONS
    width = WIDTH

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.done: list[str] = []  # whole segments
        self.scalar: list[str] = []  # of this segment: before its loop
        self.vector: list[str] = []  # its loop
        self.segment = 0
        self.count = 0
        self.label = "entry"  # where the scalar stream is
        self.splats: dict[str, str] = {}
        self.masks: list[tuple[str, str]] = []  # (name of the bits behind the loop, mask in it)
        self.stores: dict[int, str] = {}  # vector registers that the loop has changed, by their offset
        self.loads: dict[int, str] = {}  # and those whose value it knows
        self.temporaries = 0
        self.tables: dict[str, str] | None = (
            None  # constants of the module, by name; None: there is no room for any
        )

    # -- lines

    def fresh(self, stem: str = "t") -> str:
        """A new name."""
        self.count += 1
        return f"%{stem}{self.count}"

    def say(self, text: str, is_vector: bool, stem: str = "t") -> str:
        """A line that computes something, and its name."""
        name = self.fresh(stem)
        (self.vector if is_vector else self.scalar).append(f"{name} = {text}")
        return name

    def type_of(self, dtype: Any, is_vector: bool) -> str:
        """LLVM's name of a type of a value."""
        one = llvm_type(dtype)
        return f"<{self.width} x {one}>" if is_vector else one

    def symbol(self, text: str, dtype: Any, is_vector: bool) -> Symbol:
        """A line as a symbol."""
        return Symbol(self, self.say(text, is_vector), dtype, is_vector)

    def named(self, like: Symbol, text: str, dtype: Any) -> Symbol:
        """The same value, seen as another type of the same size."""
        found = Symbol(self, text, dtype, like.is_vector)
        found.segment = like.segment
        return found

    def symbol_of(self, text: str, dtype: Any) -> Symbol:
        """A scalar that has a name already."""
        return Symbol(self, text, dtype, False)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """What is written here is gone when it is not traced to its end."""
        before = {
            name: value.copy() if isinstance(value, (list, dict)) else value
            for name, value in vars(self).items()
        }
        try:
            yield
        except Exception:
            vars(self).update(before)
            raise

    # -- operands

    def constant(self, value: Any, dtype: Any) -> Symbol:
        """A number that is known now; or one of each lane, which the code has as a table."""
        array = np.asarray(value).astype(dtype).reshape(-1)
        if array.size > 1 and array.size == self.lanes and not (array == array[0]).all():
            return self._table(array)
        if not array.size or (array.size > 1 and array.size != self.lanes):
            raise NotTraced(f"{array.size} constants")
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return Symbol(self, "true" if array[0] else "false", kind, False)
        bits = array[:1].view(f"u{kind.itemsize}")[0]
        if kind.kind in "ui":
            return Symbol(self, str(int(bits)), kind, False)
        return self.symbol(f"bitcast i{8 * kind.itemsize} {int(bits)} to {llvm_type(kind)}", kind, False)

    def _table(self, array: Any) -> Symbol:
        if array.dtype.kind == "b":
            bits = int.from_bytes(np.packbits(array, bitorder="little").tobytes(), "little")
            return self.mask_of(str(bits))
        one = llvm_type(array.dtype)
        bits = array.view(f"u{array.dtype.itemsize}")
        numbers = ", ".join(f"i{8 * array.dtype.itemsize} {int(x)}" for x in bits)
        pieces = [numbers.split(", ")[at : at + self.width] for at in range(0, len(array), self.width)]
        found = ""
        for number, piece in enumerate(pieces):
            literal = f"<{', '.join(piece)}>"
            if not number:
                found = literal
                continue
            is_here = self.say(f"icmp eq i64 %c{self.segment}, {number}", True)
            kind = f"<{self.width} x i{8 * array.dtype.itemsize}>"
            found = self.say(f"select i1 {is_here}, {kind} {literal}, {kind} {found}", True)
        whole = np.dtype(f"u{array.dtype.itemsize}")
        named = Symbol(self, found, whole, True)
        return named.view(array.dtype) if one else named

    def as_symbol(self, value: Any, dtype: Any) -> Symbol:
        """An operand of a type."""
        if isinstance(value, Symbol):
            return self.convert(value, np.dtype(dtype))
        return self.constant(value, dtype)

    def wide(self, symbol: Symbol) -> str:
        """The text of a value for each lane."""
        if symbol.is_vector:
            return symbol.text
        key = f"{llvm_type(symbol.dtype)} {symbol.text}"
        if key not in self.splats:
            if symbol.dtype.kind in "uib" and not symbol.text.startswith("%"):
                self.splats[key] = f"splat ({key})"
            else:
                kind = self.type_of(symbol.dtype, True)
                one = self.say(f"insertelement {kind} poison, {key}, i64 0", False)
                self.splats[key] = self.say(
                    f"shufflevector {kind} {one}, {kind} poison, <{self.width} x i32> zeroinitializer", False
                )
        return self.splats[key]

    def _level(self, symbols: tuple[Symbol, ...]) -> tuple[bool, list[str]]:
        is_vector = any(one.is_vector for one in symbols)
        return is_vector, [self.wide(one) if is_vector else one.text for one in symbols]

    # -- operations

    def call(self, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
        """A ufunc. Raises NotTraced for one that is not known."""
        handler = UFUNCS.get(name)
        if handler is None:
            raise NotTraced(f"numpy.{name}")
        return handler(self, "divide" if name == "true_divide" else name, inputs, kind)

    def binary(self, operation: str, dtype: Any, x: Any, y: Any) -> Symbol:
        """An instruction of two operands of a type."""
        is_vector, (a, b) = self._level((self.as_symbol(x, dtype), self.as_symbol(y, dtype)))
        made = self.symbol(f"{operation} {self.type_of(dtype, is_vector)} {a}, {b}", dtype, is_vector)
        if operation == "fmul" and dtype == np.float64:
            made.factors = x, y
        return made

    def compare(self, test: str, x: Any, y: Any) -> Symbol:
        """A comparison of two operands of the first one's type."""
        dtype = x.dtype
        is_vector, (a, b) = self._level((self.as_symbol(x, dtype), self.as_symbol(y, dtype)))
        verb = "fcmp" if dtype.kind == "f" else "icmp"
        return self.symbol(f"{verb} {test} {self.type_of(dtype, is_vector)} {a}, {b}", np.bool_, is_vector)

    def select(self, condition: Symbol, x: Any, y: Any) -> Symbol:
        """One of two values of the first one's type.

        LLVM 22 makes one instruction (vpternlogd under a mask) of logic on bits and a selection of integers, and takes
        its operands in the wrong order where one is in memory. So lanes of integers are chosen as floats.
        """
        dtype = x.dtype if isinstance(x, Symbol) else y.dtype
        symbols = condition, self.as_symbol(x, dtype), self.as_symbol(y, dtype)
        if dtype.kind in "ui" and dtype.itemsize >= 4 and any(one.is_vector for one in symbols):
            size = dtype.itemsize
            _, (_, a, b) = self._level(symbols)
            bits = [Symbol(self, text, dtype, True).view(f"f{size}") for text in (a, b)]
            return self.select(Symbol(self, self.wide(condition), np.bool_, True), *bits).view(dtype)
        is_vector, (c, a, b) = self._level(symbols)
        kind = self.type_of(dtype, is_vector)
        of = f"<{self.width} x i1>" if is_vector else "i1"
        return self.symbol(f"select {of} {c}, {kind} {a}, {kind} {b}", dtype, is_vector)

    def convert(self, x: Symbol, dtype: Any) -> Symbol:
        """A cast, as C casts."""
        old = x.dtype
        if old == dtype:
            return x
        if old.kind in "ui" and dtype.kind in "ui" and old.itemsize == dtype.itemsize:
            return self.named(x, x.text, dtype)
        if dtype.kind == "b":
            return self.compare("une" if old.kind == "f" else "ne", x, np.zeros(1, old))
        single = np.dtype(np.float32)
        if (old.kind == "f") != (dtype.kind == "f") and np.dtype(np.float16) in (old, dtype):
            return self.convert(self.convert(x, single if old.kind == "f" else np.dtype(np.float64)), dtype)
        if old == np.float64 and dtype == np.float16:
            return self.convert(self._odd(x), dtype)
        if old == np.float16 and dtype == np.float64:
            return self.convert(self.convert(x, single), dtype)
        if old.kind in "uib" and dtype.kind in "ui":
            verb = "trunc" if old.itemsize > dtype.itemsize else "sext" if old.kind == "i" else "zext"
        elif old.kind in "uib":
            verb = "sitofp" if old.kind == "i" else "uitofp"
        elif dtype.kind == "f":
            verb = "fptrunc" if old.itemsize > dtype.itemsize else "fpext"
        else:
            verb = "fptosi" if dtype.kind == "i" else "fptoui"
        a, b = self.type_of(old, x.is_vector), self.type_of(dtype, x.is_vector)
        made = self.symbol(f"{verb} {a} {x.text} to {b}", dtype, x.is_vector)
        if verb == "fpext":
            made.narrow = x
        return made

    def _odd(self, x: Symbol) -> Symbol:
        """A double as a float32 that rounds to a float16 as the double does: rounded to odd."""
        near = self.convert(x, np.dtype(np.float32))
        back = self.convert(near, np.dtype(np.float64))
        one, signed = np.array([1], np.uint32), np.dtype(np.int32)
        bits = near.view(np.uint32)
        away = self.compare("ogt", self.call("absolute", (back,), None), self.call("absolute", (x,), None))
        toward = self.select(away, self.binary("sub", np.dtype(np.uint32), bits, one), bits)
        inexact = self.compare("one", back, x)
        odd = self.binary("or", np.dtype(np.uint32), toward, one)
        infinite = np.array([0x7F800000], signed)
        finite = self.compare("ne", self.binary("and", signed, bits, infinite), infinite)
        chosen = self.select(self.binary("and", np.dtype(bool), inexact, self._or(finite, away)), odd, bits)
        return chosen.view(np.float32)

    def _or(self, x: Symbol, y: Symbol) -> Symbol:
        return self.binary("or", np.dtype(bool), x, y)

    def _narrowed(self, x: Any) -> Symbol:
        """The float32 that a float64 was. Raises NotTraced for one that was none."""
        if isinstance(x, Symbol):
            if x.dtype == np.float32:
                return x
            if x.narrow is None:
                raise NotTraced("a fused sum of numbers that were no float32")
            return x.narrow
        single = np.asarray(x).astype(np.float32)
        if single.astype(np.float64).tobytes() != np.asarray(x, np.float64).tobytes():
            raise NotTraced("a fused sum of a constant that is no float32")
        return self.constant(single, np.float32)

    def fused(self, p: Any, c: Any) -> Symbol:
        """An exact product and a sum, rounded once to float32."""
        if not isinstance(p, Symbol) or p.factors is None:
            raise NotTraced("a fused sum of what is no product")
        return self.intrinsic("fma", *(self._narrowed(one) for one in (*p.factors, c)))

    def bitcast(self, x: Symbol, dtype: Any) -> Symbol:
        """The same bits as another type."""
        a, b = self.type_of(x.dtype, x.is_vector), self.type_of(dtype, x.is_vector)
        return self.symbol(f"bitcast {a} {x.text} to {b}", dtype, x.is_vector)

    def flip_sign(self, x: Symbol) -> Symbol:
        """A float negated, NaNs included."""
        return self.symbol(f"fneg {self.type_of(x.dtype, x.is_vector)} {x.text}", x.dtype, x.is_vector)

    def intrinsic(self, name: str, *operands: Symbol) -> Symbol:
        """One of LLVM's functions; all operands and the result are of one type."""
        dtype = operands[0].dtype
        is_vector, texts = self._level(operands)
        kind = self.type_of(dtype, is_vector)
        tail = llvm_type(dtype) if dtype.kind in "ui" else f"f{8 * dtype.itemsize}"
        full = f"llvm.{name}.v{self.width}{tail}" if is_vector else f"llvm.{name}.{tail}"
        listed = ", ".join(f"{kind} {text}" for text in texts)
        return self.symbol(f"call {kind} @{full}({listed})", dtype, is_vector)

    def unary_intrinsic(self, name: str, x: Symbol) -> Symbol:
        """One of LLVM's functions of one number."""
        return self.intrinsic(name, x)

    def apart(self, x: Symbol, dtype: Any) -> Any:
        """Numbers taken apart into smaller ones. Raises NotTraced."""
        raise NotTraced(f"a view of {x.dtype} as {dtype}")

    def picked(self, x: Symbol, index: Symbol) -> Symbol:
        """For each lane the number of another one. Raises NotTraced."""
        raise NotTraced("some of the lanes")

    def lookup(self, codes: Symbol, values: Any) -> Symbol:
        """For each lane the float32 that a table has at this place. Raises NotTraced."""
        if self.tables is None or values.dtype != np.float32 or len(values) & (len(values) - 1):
            raise NotTraced("numbers from a table")
        bits = values.view(np.uint32)
        name = f"@table{hashlib.sha256(bits.tobytes()).hexdigest()[:16]}"
        numbers = ", ".join(f"i32 {int(one)}" for one in bits)
        self.tables[name] = f"{name} = internal constant [{len(bits)} x i32] [{numbers}]"
        size, u64 = self.width, np.dtype(np.uint64)
        place = self.binary("and", u64, self.convert(codes, u64), np.array([len(bits) - 1], u64))
        at = self.say(f"getelementptr i32, ptr {name}, <{size} x i64> {self.wide(place)}", True)
        on, zero = f"<{size} x i1> splat (i1 true)", f"<{size} x i32> zeroinitializer"
        gather = f"@llvm.masked.gather.v{size}i32.v{size}p0(<{size} x ptr> {at}, i32 4, {on}, {zero})"
        return self.symbol(f"call <{size} x i32> {gather}", np.dtype(np.uint32), True).view(np.float32)

    # -- masks

    def mask_of(self, bits: str) -> Symbol:
        """Booleans of lanes, from the bits of an i64."""
        key = f"mask {bits}"
        if key not in self.splats:
            at = self.say(f"shl i64 %c{self.segment}, {self.width.bit_length() - 1}", True)
            moved = self.say(f"lshr i64 {bits}, {at}", True)
            narrow = self.say(f"trunc i64 {moved} to i{self.width}", True)
            self.splats[key] = self.say(f"bitcast i{self.width} {narrow} to <{self.width} x i1>", True)
        return Symbol(self, self.splats[key], np.bool_, True)

    def bits_of(self, mask: Symbol) -> str:
        """The bits of booleans of lanes: the name of an i64 that is there behind the loop."""
        text = self.wide(mask)
        if not mask.is_vector and not text.startswith("%"):
            text = self.say(
                f"select i1 true, <{self.width} x i1> {text}, <{self.width} x i1> zeroinitializer", True
            )
        name = self.fresh("bits")
        self.masks.append((name, text))
        return name

    # -- the wave's vector registers

    def register(self, offset: int) -> str:
        """The i32s of a vector register, which is so far into the wave's memory."""
        if offset not in self.loads:
            where = self.say(
                f"getelementptr [{self.lanes} x i32], ptr %own, i64 {offset}, i64 %l{self.segment}", True
            )
            self.loads[offset] = self.say(f"load <{self.width} x i32>, ptr {where}, align 64", True)
        return self.loads[offset]

    def set_register(self, offset: int, text: str) -> None:
        """A vector register has new i32s."""
        self.loads[offset] = self.stores[offset] = text

    # -- segments

    def close(self) -> None:
        """End the segment: its loop runs."""
        number = self.segment
        lines = self.done
        lines += self.scalar
        if self.vector or self.masks or self.stores:
            c, here = f"%c{number}", self.label
            lines.append(f"br label %loop{number}")
            lines.append(f"loop{number}:")
            lines.append(f"{c} = phi i64 [0, %{here}], [{c}n, %latch{number}]")
            for name, _ in self.masks:
                lines.append(f"{name}a = phi i64 [0, %{here}], [{name}, %latch{number}]")
            lines.append(f"%l{number} = shl i64 {c}, {self.width.bit_length() - 1}")
            lines += self.vector
            for offset, text in self.stores.items():
                where = self.fresh("w")
                lines.append(
                    f"{where} = getelementptr [{self.lanes} x i32], ptr %own, i64 {offset}, i64 %l{number}"
                )
                lines.append(f"store <{self.width} x i32> {text}, ptr {where}, align 64")
            for name, text in self.masks:
                lines.append(f"{name}b = bitcast <{self.width} x i1> {text} to i{self.width}")
                lines.append(f"{name}c = zext i{self.width} {name}b to i64")
                lines.append(f"{name}d = shl i64 {name}c, %l{number}")
                lines.append(f"{name} = or i64 {name}a, {name}d")
            lines.append(f"br label %latch{number}")
            lines.append(f"latch{number}:")
            lines.append(f"{c}n = add i64 {c}, 1")
            lines.append(f"{c}e = icmp eq i64 {c}n, {self.lanes // self.width}")
            lines.append(f"br i1 {c}e, label %next{number}, label %loop{number}")
            lines.append(f"next{number}:")
            self.label = f"next{number}"
        self.segment += 1
        self.scalar, self.vector = [], []
        self.splats, self.masks, self.stores, self.loads = {}, [], {}, {}

    def place(self, label: str) -> None:
        """A label in the scalar stream."""
        self.scalar.append(f"{label}:")
        self.label = label


def declarations(lines: list[str]) -> set[str]:
    """Declarations of LLVM's functions of numbers that lines call."""
    found = set()
    for line in lines:
        if "@llvm." not in line or "masked" in line or "cttz" in line or "vector.reduce" in line:
            continue
        head, _, tail = line.partition("call ")[2].partition("@")
        name, _, arguments = tail.partition("(")
        kinds = ", ".join(head.strip() for _ in range(arguments.count(f"{head.strip()} ")))
        found.add(f"declare {head.strip()} @{name}({kinds})")
    return found
