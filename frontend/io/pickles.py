"""Pickles: the plain data in a pickle, and nothing else: no name in it is imported, nothing in it is called.

In       the bytes of a pickle; what its names, and the references out of it, stand for here
Out      dicts, lists, tuples, numbers, strings, and what these stand for
Next     torch_file.py (which names state dicts use)
Source   Python's pickletools: the opcodes of protocols 0 to 5

A pickle is a program for a stack. This runs only the opcodes that build data. A name is looked up in a table that the
caller gives, and what is there is our own function: a name that is not there is refused, by name. What opcodes make is
charged to the file, by its size: an opcode of one byte can make an object of a hundred.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.mapped import Reader

Names = Mapping[str, Callable[..., Any]]
SHARE = 16  # of a file that is large, a pickle is this part at most
SMALL_BYTES = 1 << 20
MAX_NAME = 256
KEYS = (str, int, float, bool, type(None), bytes)
# bytes of an object, of an entry of a dict or the memo, of a place in a list, about
OBJECT, ENTRY, PLACE = (56, 80, 8)


class Name:
    """A name that a pickle mentions, "torch._utils._rebuild_tensor_v2"; it may be called if the table has it."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text


class _Mark:
    """A place on the stack."""


MARK = _Mark()


class Pickle:
    """One pickle of a file. `find` gives what a reference out of it, a persistent id, stands for."""

    def __init__(self, reader: Reader, names: Names, find: Callable[[Any], Any]):
        self.reader = reader
        self.names = names
        self.find = find
        self.most = reader.at + reader.file.size // SHARE + SMALL_BYTES
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self) -> Any:
        """The value. Raises UsageError for what is no plain data, and DamagedFile for what is no pickle."""
        try:
            while True:
                code = self.reader.whole(1)
                if code == 0x2E:  # STOP
                    return self.stack.pop()
                action = _ACTIONS.get(code)
                if action is None:
                    raise UsageError(
                        f"[{self.reader.file.call}] {self.reader.file.path}: the pickle in it has the opcode "
                        f"{chr(code)!r}, which builds objects of classes. Save a state dict."
                    )
                self.reader.file.charge(OBJECT if code in _MAKING else PLACE)
                action(self)
                if self.reader.at > self.most:
                    raise self.damaged("the pickle in it is larger than tensors of this size need")
        except (
            IndexError,
            KeyError,
            ValueError,
            TypeError,
            AttributeError,
            OverflowError,
            struct.error,
        ) as error:
            if isinstance(error, UsageError):
                raise
            raise self.damaged(f"the pickle in it stops making sense at byte {self.reader.at}") from None

    def damaged(self, why: str) -> UsageError:
        """The sentence for a pickle that is not one."""
        return self.reader.file.damaged(why)

    def refuse(self, text: str) -> UsageError:
        """The sentence for a name that is not of state dicts."""
        known = "tensors, OrderedDict and plain data"
        return UsageError(
            f"[{self.reader.file.call}] {self.reader.file.path}: the pickle in it names {shown(text)}, "
            f"which is not run; {known} are read. Save model.state_dict() instead, best as safetensors."
        )

    # -- what opcodes do --

    def line(self) -> str:
        """Text up to the end of a line."""
        found = bytearray()
        while (byte := self.reader.whole(1)) != 0x0A:
            found.append(byte)
        return found.decode("utf-8")

    def text(self, size: int) -> None:
        """Push a string of that many bytes."""
        self.push_text(str(self.reader.take(size), "utf-8", "surrogatepass"))

    def push_text(self, text: str) -> None:
        """Push a string, of which each character may take four bytes."""
        self.reader.file.charge(sys.getsizeof(text))
        self.stack.append(text)

    def raw(self, size: int) -> None:
        """Push bytes."""
        self.reader.file.charge(min(size, self.reader.left))
        self.stack.append(bytes(self.reader.take(size)))

    def old_text(self, size: int) -> None:
        """Push a string of Python 2."""
        self.push_text(str(self.reader.take(size), "latin-1"))

    def since_mark(self) -> list[Any]:
        """What is above the last mark, taken off with it."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is MARK:
                found = self.stack[at + 1 :]
                del self.stack[at:]
                return found
        raise IndexError

    def put(self, place: int) -> None:
        """Remember the top of the stack."""
        self.reader.file.charge(ENTRY)
        self.memo[place] = self.stack[-1]

    def tuple_of(self, count: int) -> None:
        """The last ones as a tuple."""
        found = self.stack[len(self.stack) - count :]
        if len(found) < count:
            raise IndexError
        del self.stack[len(self.stack) - count :]
        self.stack.append(tuple(found))

    def set_items(self, items: list[Any]) -> None:
        """Keys and values into the dict below them."""
        target = self.stack[-1]
        if type(target) is not dict:
            raise TypeError
        self.reader.file.charge(ENTRY * len(items) // 2)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[plain_key(key)] = value

    def dict_of(self, items: list[Any]) -> None:
        """A dict of keys and values."""
        self.stack.append({})
        self.set_items(items)

    def append(self, items: list[Any]) -> None:
        """Items onto the list below them."""
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError
        target.extend(items)

    def name(self, text: str) -> None:
        """Push a name."""
        if len(text) > MAX_NAME:
            raise self.refuse(text[:MAX_NAME])
        self.stack.append(Name(text))

    def global_name(self) -> None:
        """Push the name whose module and word are on the stack."""
        word, module = self.stack.pop(), self.stack.pop()
        if not isinstance(word, str) or not isinstance(module, str):
            raise TypeError
        word, module = word[:MAX_NAME], module[:MAX_NAME]
        self.name(f"{module}.{word}")

    def call(self) -> None:
        """What a name stands for here, of a tuple of arguments."""
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, Name) or type(arguments) is not tuple:
            raise TypeError
        function = self.names.get(name.text)
        if function is None:
            raise self.refuse(name.text)
        self.stack.append(function(*arguments))

    def build(self) -> None:
        """State of an object: that of an OrderedDict is ignored; of anything else it is refused."""
        self.stack.pop()
        if type(self.stack[-1]) is not dict:
            raise self.refuse(f"a state of a {type(self.stack[-1]).__name__}")

    def refer(self) -> None:
        """What a persistent id stands for."""
        self.stack.append(self.find(self.stack.pop()))


def plain_key(key: Any) -> Any:
    """A key of a dict: as it is where it is small and plain, else the text that stands for it. Raises TypeError."""
    if isinstance(key, int) and key.bit_length() > 64:
        return shown(key)
    if isinstance(key, KEYS):
        return key
    if not isinstance(key, (tuple, Name)):
        raise TypeError
    return key.text if isinstance(key, Name) else shown(key)


def _whole(p: Pickle, size: int, signed: bool = False) -> int:
    return p.reader.whole(size, signed)


def _number(text: str) -> Any:
    if len(text) > 1000:
        raise ValueError
    return {"00": False, "01": True}[text] if text in ("00", "01") else int(text)


_ACTIONS: dict[int, Callable[[Pickle], Any]] = {
    0x80: lambda p: p.reader.take(1),  # PROTO
    0x95: lambda p: p.reader.take(8),  # FRAME
    ord("("): lambda p: p.stack.append(MARK),
    ord("0"): lambda p: p.stack.pop(),
    ord("1"): lambda p: p.since_mark(),
    ord("2"): lambda p: p.stack.append(p.stack[-1]),
    ord("N"): lambda p: p.stack.append(None),
    0x88: lambda p: p.stack.append(True),
    0x89: lambda p: p.stack.append(False),
    ord("I"): lambda p: p.stack.append(_number(p.line())),
    ord("L"): lambda p: p.stack.append(_number(p.line().rstrip("L"))),
    ord("F"): lambda p: p.stack.append(float(p.line())),
    ord("J"): lambda p: p.stack.append(_whole(p, 4, True)),
    ord("K"): lambda p: p.stack.append(_whole(p, 1)),
    ord("M"): lambda p: p.stack.append(_whole(p, 2)),
    0x8A: lambda p: p.stack.append(_whole(p, _whole(p, 1), True)),  # LONG1
    0x8B: lambda p: p.stack.append(_whole(p, _whole(p, 4), True)),  # LONG4
    ord("G"): lambda p: p.stack.append(struct.unpack(">d", p.reader.take(8))[0]),
    ord("V"): lambda p: p.push_text(p.line()),
    ord("X"): lambda p: p.text(_whole(p, 4)),
    0x8C: lambda p: p.text(_whole(p, 1)),
    0x8D: lambda p: p.text(_whole(p, 8)),
    ord("U"): lambda p: p.old_text(_whole(p, 1)),
    ord("T"): lambda p: p.old_text(_whole(p, 4)),
    ord("C"): lambda p: p.raw(_whole(p, 1)),
    ord("B"): lambda p: p.raw(_whole(p, 4)),
    0x8E: lambda p: p.raw(_whole(p, 8)),
    ord("}"): lambda p: p.stack.append({}),
    ord("d"): lambda p: p.dict_of(p.since_mark()),
    ord("]"): lambda p: p.stack.append([]),
    ord("l"): lambda p: p.stack.append(p.since_mark()),
    ord(")"): lambda p: p.stack.append(()),
    ord("t"): lambda p: p.stack.append(tuple(p.since_mark())),
    0x85: lambda p: p.tuple_of(1),
    0x86: lambda p: p.tuple_of(2),
    0x87: lambda p: p.tuple_of(3),
    0x8F: lambda p: p.stack.append([]),  # EMPTY_SET: as a list
    0x90: lambda p: p.append(p.since_mark()),  # ADDITEMS
    ord("a"): lambda p: p.append([p.stack.pop()]),
    ord("e"): lambda p: p.append(p.since_mark()),
    ord("s"): lambda p: p.set_items([p.stack.pop(-2), p.stack.pop()]),
    ord("u"): lambda p: p.set_items(p.since_mark()),
    ord("q"): lambda p: p.put(_whole(p, 1)),
    ord("r"): lambda p: p.put(_whole(p, 4)),
    ord("p"): lambda p: p.put(int(p.line()[:20])),
    0x94: lambda p: p.put(len(p.memo)),
    ord("h"): lambda p: p.stack.append(p.memo[_whole(p, 1)]),
    ord("j"): lambda p: p.stack.append(p.memo[_whole(p, 4)]),
    ord("g"): lambda p: p.stack.append(p.memo[int(p.line()[:20])]),
    ord("c"): lambda p: p.name(f"{p.line()}.{p.line()}"),
    0x93: lambda p: p.global_name(),  # STACK_GLOBAL
    ord("R"): lambda p: p.call(),
    0x81: lambda p: p.call(),  # NEWOBJ
    ord("b"): lambda p: p.build(),
    ord("Q"): lambda p: p.refer(),
}

# the opcodes that make an object of their own; the others push what there is, or change it
_MAKING = frozenset(b"ILFJMGCB}]ltcdQR\x81\x85\x86\x87\x8a\x8b\x8e\x8f\x93")
