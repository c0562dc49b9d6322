"""Matrix instructions as code of the host: elements become float64 in rows, rows are multiplied, sums become registers.

In       a Product: where the elements of A, B, C and D lie
Out      lines that call functions of the host's, and those functions
Changes  the Writer; text that the module holds beside its function
Next     matrix_ops.py and wmma_ops.py (what is computed, in which order), native_text.py (who asks)

Tables say where each element lies: one word for each, in bits from the wave's first register on. A float64 holds every
product of two elements exactly, so a fused sum has the bits of a product and a sum. Products of float64 are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.matrix_ops import ELEMENT_BITS, SMALL_FLOATS, Matrix, Product
from hcq.emu.amd.shader.symbolic_batch import SymbolicBatch
from hcq.emu.amd.shader.waves import EXEC
from hcq.emu.compiled.symbols import NotTraced

LANES = 16  # that a step of a loop takes
KEPT = 1 << 13  # numbers that A, B and D may have, each
V32, V64, VD = f"<{LANES} x i32>", f"<{LANES} x i64>", f"<{LANES} x double>"
VP, VF = f"<{LANES} x ptr>", f"<{LANES} x float>"
GATHER = f"declare {VD} @llvm.masked.gather.v{LANES}f64.v{LANES}p0({VP}, i32, <{LANES} x i1>, {VD})"
ON = f"<{LANES} x i1> splat (i1 true)"


class Loops:
    """A function of the host's, line by line, with loops that count."""

    def __init__(self, head: str) -> None:
        self.lines = [f"define internal void {head} noinline #0 {{", "entry:"]
        self.label, self.count = "entry", 0

    def name(self) -> str:
        """A new name."""
        self.count += 1
        return f"%n{self.count}"

    def say(self, text: str) -> str:
        """A line that computes something, and its name."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def times(self, number: str, size: int) -> str:
        """A multiple."""
        return self.say(f"mul i64 {number}, {size}")

    def cast(self, verb: str, old: str, value: str, new: str) -> str:
        """A value as another type."""
        return self.say(f"{verb} {old} {value} to {new}")

    def loop(
        self, limit: str, step: int, kinds: list[str], before: list[str], body: Callable[..., Any]
    ) -> list[str]:
        """Run the body for 0, step, ... below the limit. It gets the number and what it returned the time before."""
        self.count += 1
        tag, start = f"l{self.count}", self.label
        self.lines += [f"br label %{tag}", f"{tag}:"]
        self.label = tag
        at = len(self.lines)
        carried = [f"%{tag}c{number}" for number in range(len(kinds))]
        after = list(body(f"%{tag}i", *carried) or [])
        phis = [f"%{tag}i = phi i64 [0, %{start}], [%{tag}n, %{self.label}]"]
        for name, kind, first, last in zip(carried, kinds, before, after):
            phis.append(f"{name} = phi {kind} [{first}, %{start}], [{last}, %{self.label}]")
        self.lines[at:at] = phis
        self.lines += [
            f"%{tag}n = add i64 %{tag}i, {step}",
            f"%{tag}e = icmp ult i64 %{tag}n, {limit}",
            f"br i1 %{tag}e, label %{tag}, label %{tag}x",
            f"{tag}x:",
        ]
        self.label = f"{tag}x"
        return after

    def text(self) -> str:
        """The whole function."""
        return "\n".join([*self.lines, "ret void", "}"])


def _at(f: Loops, kind: str, base: str, *numbers: str) -> str:
    """The address of a number, of the sum of these places."""
    total = numbers[0]
    for number in numbers[1:]:
        total = f.say(f"add i64 {total}, {number}")
    return f.say(f"getelementptr {kind}, ptr {base}, i64 {total}")


def _gather(f: Loops, base: str, words: str, other: str = "zeroinitializer") -> str:
    """A word of each lane, counted from the base on."""
    where = f.say(f"getelementptr i32, ptr {base}, {V32} {words}")
    return f.say(
        f"call {V32} @llvm.masked.gather.v{LANES}i32.v{LANES}p0({VP} {where}, i32 4, {ON}, {V32} {other})"
    )


def _numbers(f: Loops, kind: str, signed: bool, word: str, places: str) -> str:
    """Words that hold elements as float64."""
    bits = ELEMENT_BITS[kind]
    if bits < 32:
        shift = f.say(f"and {V32} {places}, splat (i32 31)")
        word = f.say(f"lshr {V32} {word}, {shift}")
    if kind == "xf32":
        word = f.say(f"and {V32} {word}, splat (i32 {0xFFFFE000})")
    if kind in ("f32", "xf32"):
        return f.cast("fpext", VF, f.cast("bitcast", V32, word, VF), VD)
    if kind == "bf16":
        word = f.say(f"shl {V32} {word}, splat (i32 16)")
        return f.cast("fpext", VF, f.cast("bitcast", V32, word, VF), VD)
    if kind == "f16":
        low = f.cast("trunc", V32, word, f"<{LANES} x i16>")
        half = f.cast("bitcast", f"<{LANES} x i16>", low, f"<{LANES} x half>")
        return f.cast("fpext", f"<{LANES} x half>", half, VD)
    if kind in SMALL_FLOATS:
        code = f.say(f"and {V32} {word}, splat (i32 {(1 << bits) - 1})")
        found = _gather(f, f"@values_{kind}", code)
        return f.cast("fpext", VF, f.cast("bitcast", V32, found, VF), VD)
    if bits < 32:
        up = f.say(f"shl {V32} {word}, splat (i32 {32 - bits})")
        word = f.say(f"{'ashr' if signed else 'lshr'} {V32} {up}, splat (i32 {32 - bits})")
    return f.cast("sitofp" if signed else "uitofp", V32, word, VD)


def _unpacking(name: str, kind: str, signed: bool, is_row: bool) -> str:
    """Elements from the wave's registers to a row of float64. is_row: as many as a step takes are lane beside lane."""
    f = Loops(f"@{name}(ptr %own, ptr %table, i64 %count, ptr %to)")

    def body(number: str) -> None:
        if is_row:
            at = f.say(f"lshr i64 {number}, {LANES.bit_length() - 1}")
            place = f.say(f"load i32, ptr {_at(f, 'i32', '%table', at)}")
            start = f.say(f"getelementptr i32, ptr %own, i32 {f.say(f'lshr i32 {place}, 5')}")
            word = f.say(f"load {V32}, ptr {start}, align 4")
            one = f.say(f"insertelement {V32} poison, i32 {place}, i64 0")
            places = f.say(f"shufflevector {V32} {one}, {V32} poison, {V32} zeroinitializer")
        else:
            places = f.say(f"load {V32}, ptr {_at(f, 'i32', '%table', number)}, align 64")
            word = _gather(f, "%own", f.say(f"lshr {V32} {places}, splat (i32 5)"))
        numbers = _numbers(f, kind, signed, word, places)
        f.lines.append(f"store {VD} {numbers}, ptr {_at(f, 'double', '%to', number)}, align 64")

    f.loop("%count", LANES, [], [], body)
    return f.text()


def _filling(name: str) -> str:
    """One number in all places."""
    f = Loops(f"@{name}(double %x, i64 %count, ptr %to)")
    one = f.say(f"insertelement {VD} poison, double %x, i64 0")
    every = f.say(f"shufflevector {VD} {one}, {VD} poison, <{LANES} x i32> zeroinitializer")

    def body(number: str) -> None:
        f.lines.append(f"store {VD} {every}, ptr {_at(f, 'double', '%to', number)}, align 64")

    f.loop("%count", LANES, [], [], body)
    return f.text()


def _multiplying(name: str, blocks: int, m: int, n: int, k: int) -> str:
    """d += a * b for blocks, a column after column, the others row after row; products in the order of k."""
    wide = min(n, LANES)
    kind = f"<{wide} x double>"
    rows = 4
    f = Loops(f"@{name}(ptr %a, ptr %b, ptr %d)")

    def block(number: str) -> None:
        own = [f.times(number, size) for size in (k * m, k * n, m * n)]

        def some_rows(i: str) -> None:
            numbers = [f.say(f"add i64 {i}, {r}") for r in range(rows)]
            row_d = [f.say(f"add i64 {own[2]}, {f.times(one, n)}") for one in numbers]

            def some_columns(j: str) -> None:
                sums = [_at(f, "double", "%d", row, j) for row in row_d]
                before = [f.say(f"load {kind}, ptr {where}, align 32") for where in sums]

                def one_k(at: str, *total: str) -> list[str]:
                    place = _at(f, "double", "%b", own[1], f.times(at, n), j)
                    right = f.say(f"load {kind}, ptr {place}, align 32")
                    column, out = f.say(f"add i64 {own[0]}, {f.times(at, m)}"), []
                    for row, old in zip(numbers, total):
                        x = f.say(f"load double, ptr {_at(f, 'double', '%a', column, row)}, align 8")
                        one = f.say(f"insertelement {kind} poison, double {x}, i64 0")
                        left = f.say(
                            f"shufflevector {kind} {one}, {kind} poison, <{wide} x i32> zeroinitializer"
                        )
                        out.append(
                            f.say(
                                f"call {kind} @llvm.fma.v{wide}f64({kind} {left}, {kind} {right}, {kind} {old})"
                            )
                        )
                    return out

                after = f.loop(str(k), 1, [kind] * rows, before, one_k)
                for where, total in zip(sums, after):
                    f.lines.append(f"store {kind} {total}, ptr {where}, align 32")

            f.loop(str(n), wide, [], [], some_columns)

        f.loop(str(m), rows, [], [], some_rows)

    f.loop(str(blocks), 1, [], [], block)
    return f.text()


def _sums(f: Loops, is_row: bool, first: str, lane: str) -> str:
    """Those of some lanes of a register."""
    if is_row:
        at = f.say(f"lshr i64 {f.say(f'add i64 {first}, {lane}')}, {LANES.bit_length() - 1}")
        place = f.say(f"load i32, ptr {_at(f, 'i32', '%table', at)}")
        where = f.say(f"getelementptr double, ptr %from, i32 {place}")
        return f.say(f"load {VD}, ptr {where}, align 8")
    places = f.say(f"load {V32}, ptr {_at(f, 'i32', '%table', first, lane)}, align 64")
    where = f.say(f"getelementptr double, ptr %from, {V32} {places}")
    return f.say(
        f"call {VD} @llvm.masked.gather.v{LANES}f64.v{LANES}p0({VP} {where}, i32 8, {ON}, {VD} zeroinitializer)"
    )


def _in_rows(places: Any, step: int) -> Any:
    """Of each piece of as many places as a loop takes, the first; None where the others do not follow it."""
    rows = places.reshape(-1)
    if rows.size % LANES:
        return None
    rows = rows.reshape(-1, LANES)
    return rows[:, 0] if (rows == rows[:, :1] + step * np.arange(LANES)).all() else None


def _packing(name: str, kind: str, clamp: bool, lanes: int, is_row: bool) -> str:
    """Sums to registers, where lanes are on. is_row: as many as a step takes are beside each other."""
    f = Loops(f"@{name}(ptr %own, ptr %rows, ptr %table, i64 %count, ptr %from, i64 %on)")

    def register(number: str) -> None:
        row = f.say(f"load i64, ptr {_at(f, 'i64', '%rows', number)}")
        first = f.say(f"mul i64 {number}, {lanes}")
        start = f.say(f"mul i64 {row}, {lanes}")

        def some_lanes(lane: str) -> None:
            numbers = _sums(f, is_row, first, lane)
            if kind == "f32":
                bits = f.cast("bitcast", VF, f.cast("fptrunc", VD, numbers, VF), V32)
            else:
                if clamp:
                    for limit, test in ((-(2.0**31), "olt"), (2.0**31 - 1, "ogt")):
                        is_out = f.say(f"fcmp {test} {VD} {numbers}, splat (double {limit:.1f})")
                        numbers = f.say(
                            f"select <{LANES} x i1> {is_out}, {VD} splat (double {limit:.1f}), {VD} {numbers}"
                        )
                bits = f.cast("trunc", V64, f.cast("fptosi", VD, numbers, V64), V32)
            narrow = f.cast("trunc", "i64", f.say(f"lshr i64 %on, {lane}"), f"i{LANES}")
            is_on = f.cast("bitcast", f"i{LANES}", narrow, f"<{LANES} x i1>")
            there = _at(f, "i32", "%own", start, lane)
            stored = f"{V32} {bits}, ptr {there}, i32 64, <{LANES} x i1> {is_on}"
            f.lines.append(f"call void @llvm.masked.store.v{LANES}i32.p0({stored})")

        f.loop(str(lanes), LANES, [], [], some_lanes)

    f.loop("%count", 1, [], [], register)
    return f.text()


class MatrixText:
    """Writes matrix instructions; `module` is what their lines call and read, by its name."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.module: dict[str, str] = {}
        self.declared: set[str] = set()

    def write(self, b: SymbolicBatch, product: Product) -> None:
        """One instruction. Raises NotTraced for elements of other sizes, before anything is written."""
        a, right, c, d = product.a, product.b, product.c, product.d
        for one in (a, right, d):
            _check(one)
        a = Matrix(a.first, a.kind, a.lane.swapaxes(1, 2), a.element.swapaxes(1, 2), a.signed)
        blocks, k, m = a.lane.shape
        n = right.lane.shape[2]
        if d.kind not in ("f32", "i32") or m % 4 or n % 4 or max(x.lane.size for x in (a, right, d)) > KEPT:
            raise NotTraced("matrices of these numbers, or sizes")
        w = b.writer
        b.close()
        for one, name in ((a, "%ma"), (right, "%mb")):
            self._unpack(b, one, name)
        if isinstance(c, Matrix):
            self._unpack(b, c, "%md")
        else:
            dtype = np.dtype(np.float32 if d.kind == "f32" else np.int32)
            value = w.convert(w.as_symbol(c(b), dtype), np.dtype(np.float64))  # type: ignore[arg-type]
            fill = self._have("matrix_fill", _filling)
            w.scalar.append(f"call void @{fill}(double {value.text}, i64 {d.lane.size}, ptr %md)")
        multiply = self._have(
            f"matrix_multiply_{blocks}_{m}_{n}_{k}", lambda name: _multiplying(name, blocks, m, n, k)
        )
        kind = f"<{min(n, LANES)} x double>"
        self.declared |= {GATHER, f"declare {kind} @llvm.fma.v{min(n, LANES)}f64({kind}, {kind}, {kind})"}
        w.scalar.append(f"call void @{multiply}(ptr %ma, ptr %mb, ptr %md)")
        self._pack(b, d, product.clamp)

    def _have(self, name: str, make: Callable[[str], str]) -> str:
        if name not in self.module:
            self.module[name] = make(name)
        return name

    def _table(self, numbers: Any, kind: str = "i32") -> str:
        listed = ", ".join(f"{kind} {int(number)}" for number in numbers.reshape(-1))
        name = f"table_{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
        value = f"[{numbers.size} x {kind}] [{listed}]"
        return self._have(name, lambda name: f"@{name} = internal constant {value}, align 64")

    def _unpack(self, b: SymbolicBatch, one: Matrix, to: str) -> None:
        bits = ELEMENT_BITS[one.kind]
        if one.kind in SMALL_FLOATS:
            values = SMALL_FLOATS[one.kind].values.astype(np.float32).view(np.uint32)
            listed = ", ".join(f"i32 {int(x)}" for x in values)
            self._have(
                f"values_{one.kind}",
                lambda name: f"@{name} = internal constant [{len(values)} x i32] [{listed}], align 64",
            )
        place = one.element.astype(np.int64) * bits
        rows = np.array([b.row_of(one.first + number) for number in range(int(place.max()) // 32 + 1)])
        bits_at = (rows[place // 32] * self.lanes + one.lane) * 32 + place % 32
        in_rows = _in_rows(bits_at, 32)
        table = self._table(bits_at if in_rows is None else in_rows)
        way = f"{'signed' if one.signed else 'unsigned'}{'' if in_rows is None else '_rows'}"
        unpack = self._have(
            f"matrix_from_{one.kind}_{way}",
            lambda name: _unpacking(name, one.kind, one.signed, in_rows is not None),
        )
        b.writer.scalar.append(f"call void @{unpack}(ptr %own, ptr @{table}, i64 {one.lane.size}, ptr {to})")

    def _pack(self, b: SymbolicBatch, d: Matrix, clamp: bool) -> None:
        count = int(d.element.max()) + 1
        rows = [b.row_of(d.first + number) for number in range(count)]
        places = np.full((count, self.lanes), -1, np.int64)
        places[d.element, d.lane] = np.arange(d.lane.size).reshape(d.lane.shape)
        if (places < 0).any():
            raise NotTraced("a result that does not fill its registers")
        in_rows = _in_rows(places, 1)
        tables = [self._table(np.array(rows), "i64"), self._table(places if in_rows is None else in_rows)]
        pack = self._have(
            f"matrix_to_{d.kind}{'_clamped' if clamp else ''}{'' if in_rows is None else '_rows'}",
            lambda name: _packing(name, d.kind, clamp, self.lanes, in_rows is not None),
        )
        on = b.bits(EXEC).text
        b.writer.scalar.append(
            f"call void @{pack}(ptr %own, ptr @{tables[0]}, ptr @{tables[1]}, i64 {count}, ptr %md, i64 {on})"
        )


def _check(one: Matrix) -> None:
    if one.kind == "f64" or 32 % ELEMENT_BITS[one.kind]:
        raise NotTraced(f"matrices of {one.kind}")
