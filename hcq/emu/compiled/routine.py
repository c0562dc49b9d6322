"""Routines: small functions in machine code that are written out here, statement by statement, and called on arrays.

In       statements: what is loaded from arrays, computed, compared, stored
Out      the text of a module with a function `run`, for assemble.py; `Routine.run` calls it
Changes  itself
Next     assemble.py (text to machine code), hcq/emu/shader/native_shared_races.py and
         hcq/emu/shader/native_global_races.py (who has some)

A routine takes one table of words of 64 bits, each a number or the address of an array, by its place. It computes with
numbers of 64 bits, which are signed; `>>` and `//` are for those that are not negative, and for addresses.

    r = Routine()
    count, numbers = r.field(0), r.array(1, "i32")
    sum = r.variable(0)
    with r.loop(count) as i:
        with r.when(numbers[i].gt(0)):
            sum.set(sum.get() + numbers[i])
    r.put(2, sum.get())
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

WORD = "i64"


class Value:
    """A number that a routine has computed, or a truth."""

    def __init__(self, routine: Routine, text: str, kind: str = WORD) -> None:
        self.routine, self.text, self.kind = routine, text, kind

    def _with(self, op: str, other: Value | int) -> Value:
        return Value(
            self.routine, self.routine.say(f"{op} {self.kind} {self.text}, {_text(other)}"), self.kind
        )

    def _is(self, test: str, other: Value | int) -> Value:
        return Value(self.routine, self._with(f"icmp {test}", other).text, "i1")

    def __add__(self, other: Value | int) -> Value:
        return self._with("add", other)

    def __sub__(self, other: Value | int) -> Value:
        return self._with("sub", other)

    def __mul__(self, other: Value | int) -> Value:
        return self._with("mul", other)

    def __floordiv__(self, other: Value | int) -> Value:
        """Of numbers that are not negative."""
        return self._with("udiv", other)

    def __and__(self, other: Value | int) -> Value:
        return self._with("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._with("or", other)

    def __rshift__(self, other: Value | int) -> Value:
        return self._with("lshr", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._with("shl", other)

    def eq(self, other: Value | int) -> Value:
        """Equal."""
        return self._is("eq", other)

    def ne(self, other: Value | int) -> Value:
        """Not equal."""
        return self._is("ne", other)

    def lt(self, other: Value | int) -> Value:
        """Less."""
        return self._is("slt", other)

    def ge(self, other: Value | int) -> Value:
        """Greater or equal."""
        return self._is("sge", other)

    def gt(self, other: Value | int) -> Value:
        """Greater."""
        return self._is("sgt", other)

    def no(self) -> Value:
        """Of a truth: the other one."""
        return Value(self.routine, self.routine.say(f"xor i1 {self.text}, true"), "i1")


class Variable:
    """A number that changes."""

    def __init__(self, routine: Routine, first: Value | int) -> None:
        self.routine, self.name = routine, routine.room()
        self.set(first)

    def get(self) -> Value:
        """What it is now."""
        return Value(self.routine, self.routine.say(f"load {WORD}, ptr {self.name}"))

    def set(self, value: Value | int) -> None:
        """What it is from now on."""
        self.routine.line(f"store {WORD} {_text(value)}, ptr {self.name}")


class Elements:
    """An array in memory, of signed integers. kind: LLVM's name of them."""

    def __init__(self, routine: Routine, pointer: str, kind: str) -> None:
        self.routine, self.pointer, self.kind = routine, pointer, kind

    def _at(self, index: Value | int) -> str:
        return self.routine.say(f"getelementptr {self.kind}, ptr {self.pointer}, {WORD} {_text(index)}")

    def __getitem__(self, index: Value | int) -> Value:
        found = self.routine.say(f"load {self.kind}, ptr {self._at(index)}")
        if self.kind != WORD:
            found = self.routine.say(f"sext {self.kind} {found} to {WORD}")
        return Value(self.routine, found)

    def __setitem__(self, index: Value | int, value: Value | int) -> None:
        at, text = self._at(index), _text(value)
        if self.kind != WORD and not isinstance(value, int):
            text = self.routine.say(f"trunc {WORD} {text} to {self.kind}")
        self.routine.line(f"store {self.kind} {text}, ptr {at}")


class Routine:
    """A function, as far as it is written."""

    def __init__(self) -> None:
        self._rooms: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._has_left = False  # whether what comes next is never reached

    def line(self, text: str) -> None:
        """One more line."""
        if not self._has_left:
            self._lines.append(f"  {text}")

    def say(self, text: str) -> str:
        """A line that computes something, and its name."""
        self._count += 1
        self.line(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def room(self) -> str:
        """For a variable."""
        self._count += 1
        self._rooms.append(f"  %v{self._count} = alloca {WORD}")
        return f"%v{self._count}"

    # -- what it takes

    def variable(self, first: Value | int) -> Variable:
        """One that changes, and what it is at first."""
        return Variable(self, first)

    def field(self, place: Value | int) -> Value:
        """A number of the table."""
        return Elements(self, "%table", WORD)[place]

    def put(self, place: int, value: Value | int) -> None:
        """Into the table."""
        Elements(self, "%table", WORD)[place] = value

    def array(self, place: Value | int, kind: str) -> Elements:
        """The array whose address the table has there. Its elements: kind."""
        return self.at(self.field(place), kind)

    def at(self, address: Value, kind: str) -> Elements:
        """The array at an address."""
        return Elements(self, self.say(f"inttoptr {WORD} {address.text} to ptr"), kind)

    # -- which way it takes

    def _to(self, label: str) -> None:
        self.line(f"br label %{label}")
        self._begin(label)

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._has_left = False

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """What is done where this holds."""
        self._count += 1
        inside, behind = f"when{self._count}", f"behind{self._count}"
        self.line(f"br i1 {condition.text}, label %{inside}, label %{behind}")
        self._begin(inside)
        yield
        self._to(behind)

    @contextlib.contextmanager
    def loop(self, count: Value, down: bool = False) -> Iterator[Value]:
        """What is done for each number below `count`, from 0 on; down: from the last one on."""
        number = self.variable(count - 1 if down else 0)
        self._count += 1
        head, inside, behind = (f"{word}{self._count}" for word in ("head", "body", "end"))
        self._to(head)
        now = number.get()
        goes_on = now.ge(0) if down else now.lt(count)
        self.line(f"br i1 {goes_on.text}, label %{inside}, label %{behind}")
        self._begin(inside)
        yield now
        number.set(now - 1 if down else now + 1)
        self.line(f"br label %{head}")
        self._begin(behind)

    @contextlib.contextmanager
    def once(self) -> Iterator[str]:
        """Statements from which `skip` leaves to what is behind them."""
        self._count += 1
        behind = f"done{self._count}"
        yield behind
        self._to(behind)

    def skip(self, behind: str) -> None:
        """Go on behind these statements of `once`."""
        self.line(f"br label %{behind}")
        self._has_left = True

    def leave(self, status: int) -> None:
        """The routine is done: `run` returns this."""
        self.put(0, status)
        self.line("ret i32 0")
        self._has_left = True

    def text(self) -> str:
        """Of the module."""
        rooms, lines = "\n".join(self._rooms), "\n".join(self._lines)
        return f"define i32 @run(ptr %table) {{\nstart:\n{rooms}\n{lines}\n  ret i32 0\n}}\n"


def _text(value: Value | int) -> str:
    return str(value) if isinstance(value, int) else value.text
