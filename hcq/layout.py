"""Layouts: a bit layout (packet, registers, descriptor) is declared once as a class, which encodes, decodes, prints.

In       class X(Packet, words=n) with `field = bits(hi, lo)` lines, high bit first, numbered over the whole packet
Out      X(field=value).words, X.decode(words), X.field.byte_offset for native code, a readable line for traces
Next     cpu/packets.py (the CPU device's packets), observe/trace.py (prints what decode returns)

Words are 32 bits, little endian: bit 0 is bit 0 of word 0, bit 32 is bit 0 of word 1. A value that does not fit raises;
it is never masked. Decoding takes any words at all and never raises: bits that no field claims are kept in `unclaimed`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, TypeVar, overload

from hcq.errors import UsageError

P = TypeVar("P", bound="Packet")


class Bits:
    """One field: bits high..low of its packet. On the class it is itself; on a packet it is the field's value."""

    def __init__(
        self,
        high: int,
        low: int,
        unit: int,
        enum: type[IntEnum] | None,
        default: int,
        doc: str = "",
        address: str = "",
    ) -> None:
        self.high, self.low, self.unit, self.enum, self.default = high, low, unit, enum, default
        self.doc, self.address = doc, address
        self.width = high - low + 1  # bits
        self.mask = (1 << self.width) - 1 << low
        self.members = {member.value: member for member in enum or ()}
        self.name = ""
        self.owner = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.owner = name, owner.__name__

    @overload
    def __get__(self, packet: None, owner: type) -> Bits: ...
    @overload
    def __get__(self, packet: Packet, owner: type) -> int: ...
    def __get__(self, packet: Packet | None, owner: type) -> Bits | int:
        return self if packet is None else packet.values[self.name]

    def __set__(self, packet: Packet, value: int) -> None:
        raise AttributeError(f"{self.owner}.{self.name}: packets do not change; make a new one.")

    @property
    def byte_offset(self) -> int:
        """Where the field starts in its packet, in bytes, for code that reads it as a whole byte, half, word or double
        word.

        Raises  UsageError when it does not begin at a byte, or is not 8, 16, 32 or 64 bits wide
        """
        if self.low % 8 or self.width not in (8, 16, 32, 64):
            raise UsageError(f"{self.owner}.{self.name}: bits {self.high}..{self.low} are not whole bytes.")
        return self.low // 8

    def encode(self, value: int) -> int:
        """The field's bits in place. Raises UsageError when the value is no multiple of the unit or does not fit."""
        try:
            number = value.__index__()
        except (AttributeError, TypeError):
            raise UsageError(f"{self.owner}.{self.name}: takes an integer, not {value!r}.") from None
        if number % self.unit:
            raise UsageError(f"{self.owner}.{self.name}={number}: not a multiple of {self.unit}.")
        raw = number // self.unit
        if raw < 0 or raw >> self.width:
            top = ((1 << self.width) - 1) * self.unit
            raise UsageError(
                f"{self.owner}.{self.name}={number:#x}: does not fit {self.width} bits (0..{top:#x})."
            )
        return raw << self.low

    def decode(self, packet_bits: int) -> int:
        """The field's value in a packet's bits."""
        return self.named(((packet_bits & self.mask) >> self.low) * self.unit)

    def named(self, value: int) -> int:
        """A value as a member of the field's enum; itself where none has that value."""
        return self.members.get(value, value)

    def show(self, value: int) -> str:
        """A value of this field as text."""
        if isinstance(value, IntEnum):
            return value.name
        return f"{value:#x}" if self.width > 32 or self.unit > 1 else str(value)


def bits(
    high: int,
    low: int | None = None,
    *,
    unit: int = 1,
    enum: type[IntEnum] | None = None,
    default: int = 0,
    doc: str = "",
    address: str = "",
) -> Bits:
    """Declare a field: bits high..low (one bit when low is left out).

    unit     the field counts in these: an address in units of 4 is a multiple of 4, and its last two bits are not
             kept
    enum     names for its values
    default  what it is when the packet is made without it
    doc      what it means and in which physical unit, for the reference pages
    address  "read" or "write": it is an address, where the packet does that; rules and `Queue.packets` check it then
    Raises   UsageError when the low bit is given first, the unit is less than 1, or `address` is another word

    >>> class Header(Packet, words=1):
    ...     opcode = bits(7, 0)
    ...     address = bits(31, 8, unit=4)
    >>> Header(opcode=2, address=16).words
    (1026,)
    >>> Header.decode([1026])
    Header(opcode=2, address=0x10)
    """
    low = high if low is None else low
    if low < 0 or high < low:
        raise UsageError(f"bits({high}, {low}): give the high bit first, then the low one.")
    if unit < 1:
        raise UsageError(f"bits({high}, {low}, unit={unit}): a unit is 1 or more.")
    if address not in ("", "read", "write"):
        raise UsageError(f"bits({high}, {low}, address={address!r}): say what is done there, read or write.")
    return Bits(high, low, unit, enum, default, doc, address)


class Fields(dict[str, Bits]):
    """Fields of a packet that are declared together: as an attribute of the class, each is one of its own."""


def placed(start: int, fields: Mapping[str, Bits]) -> Fields:
    """Fields that were declared from bit 0 on, moved to where they stand in a packet."""
    return repeated((start,), fields)


def repeated(starts: Iterable[int], fields: Mapping[str, Bits]) -> Fields:
    """An array in a packet: the same fields from each of these bits on; {i} in a name is the entry's number.

    class Table(Packet, words=4):
        entries = repeated(range(0, 128, 32), {"address_{i}": bits(30, 0), "valid_{i}": bits(31)})
    """
    return Fields(
        (
            name.format(i=i),
            Bits(at.high + start, at.low + start, at.unit, at.enum, at.default, at.doc, at.address),
        )
        for i, start in enumerate(starts)
        for name, at in fields.items()
    )


class _Absent:
    """In a class that is declared `without` a field of its base: the field is none of its attributes either."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, packet: object, owner: type) -> None:
        raise AttributeError(f"{owner.__name__} has no field {self.name!r}.")


def _declared(cls: type) -> dict[str, Bits]:
    """The fields of a class's own body, groups of them taken apart."""
    found: dict[str, Bits] = {}
    for name, thing in vars(cls).items():
        if isinstance(thing, Bits):
            found[name] = thing
        elif isinstance(thing, Fields):
            found.update(thing)
    return found


class Packet:
    """Base of all layouts. A later generation's packet is a subclass with what is new, what moved, and what is gone.

    words    its length, in class X(Packet, words=2)
    tail     names the words after the declared ones, when a packet has any number of them
    without  fields of the base that it does not have
    """

    fields: ClassVar[dict[str, Bits]] = {}
    claimed: ClassVar[int] = 0  # the bits that fields have
    length_words: ClassVar[int] = 0
    _places: ClassVar[tuple[tuple[str, int, int, int, dict[int, IntEnum]], ...]] = ()
    tail: ClassVar[str | None] = None

    _packed = -1  # the bits of the fields, where they are known
    # of this class: its defaults, and their bits
    _blank: ClassVar[tuple[type | None, dict[str, int], int]] = None, {}, 0

    values: dict[str, int]
    tail_words: tuple[int, ...]
    unclaimed: dict[int, int]  # word index -> bits that no field claims

    def __init_subclass__(
        cls, words: int | None = None, tail: str | None = None, without: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.length_words = cls.length_words if words is None else words
        cls.tail = tail if tail is not None else cls.tail
        fields = {name: field for name, field in cls.fields.items() if name not in without}
        for name in without:
            setattr(cls, name, _Absent(name))
        for name, field in _declared(cls).items():
            if not field.name:
                field.__set_name__(cls, name)
                setattr(cls, name, field)
            fields[name] = field
        cls.fields = dict(sorted(fields.items(), key=lambda item: item[1].low))
        before: Bits | None = None
        for name, field in cls.fields.items():
            if field.high >= 32 * cls.length_words:
                raise UsageError(
                    f"{cls.__name__}.{name}: bit {field.high} is beyond its {cls.length_words} words."
                )
            if before is not None and field.low <= before.high:
                raise UsageError(f"{cls.__name__}.{name}: bit {field.low} already belongs to {before.name}.")
            before = field
        cls.claimed = sum(field.mask for field in cls.fields.values())
        cls._places = tuple(
            (name, field.mask, field.low, field.unit, field.members) for name, field in cls.fields.items()
        )

    def __init__(self, **values: Any) -> None:
        tail = values.pop(self.tail, ()) if self.tail is not None else ()
        for name in values:
            if name not in self.fields:
                raise UsageError(
                    f"{type(self).__name__} has no field {name!r}. Its fields: {', '.join(self.fields)}."
                )
        if type(self)._blank[0] is not type(self):
            type(self)._blank = type(self)._made_blank()
        _, known, packed = self._blank
        self.values = {**known, **values}
        for name, value in values.items():
            field = self.fields[name]
            packed = packed & ~field.mask | field.encode(value)
        self._packed = packed
        for word in tail:
            if not 0 <= word < 2**32:
                raise UsageError(f"{type(self).__name__}.{self.tail}: {word:#x} is not a 32-bit word.")
        self.tail_words = tuple(tail)
        self.unclaimed = {}

    @classmethod
    def _made_blank(cls) -> tuple[type, dict[str, int], int]:
        known = {name: field.default for name, field in cls.fields.items()}
        return cls, known, sum(field.encode(field.default) for field in cls.fields.values())

    @property
    def words(self) -> tuple[int, ...]:
        """All of its words, those behind the declared ones included."""
        packed = self._packed
        if packed < 0:
            packed = sum(field.encode(self.values[name]) for name, field in self.fields.items())
        for index, extra in self.unclaimed.items():
            packed |= extra << (32 * index)
        size = 4 * self.length_words
        return (*struct.unpack(f"<{self.length_words}I", packed.to_bytes(size, "little")), *self.tail_words)

    def to_bytes(self) -> bytes:
        """The same as bytes, little endian."""
        words = self.words
        return struct.pack(f"<{len(words)}I", *words)

    @classmethod
    def decode(cls: type[P], words: Sequence[int]) -> P:
        """Read any words; missing ones count as zero. Never raises."""
        size = cls.length_words
        if size == 1 and len(words):
            packed = words[0] & 0xFFFFFFFF
        else:
            own = [word & 0xFFFFFFFF for word in words[:size]]
            packed = int.from_bytes(struct.pack(f"<{len(own)}I", *own), "little")
        packet = cls.__new__(cls)
        packet.values = values = {}
        for name, mask, low, unit, members in cls._places:  # Bits.decode of each, without its calls
            value = ((packed & mask) >> low) * unit
            values[name] = members.get(value, value)
        packet.tail_words = tuple(words[size:]) if cls.tail is not None else ()
        rest = packed & ~cls.claimed
        words_left = [rest >> 32 * index & 0xFFFFFFFF for index in range(size)] if rest else ()
        packet.unclaimed = {index: word for index, word in enumerate(words_left) if word}
        return packet

    @classmethod
    def struct(cls) -> tuple[struct.Struct, tuple[str, ...]]:
        """The declared words as a struct.Struct and its field order; for layouts made of whole bytes only."""
        text, names, at = "<", [], 0
        for field in sorted(cls.fields.values(), key=lambda field: field.low):
            text += "x" * (field.byte_offset - at) + {8: "B", 16: "H", 32: "I", 64: "Q"}[field.width]
            names.append(field.name)
            at = field.byte_offset + field.width // 8
        text += "x" * (4 * cls.length_words - at)
        return struct.Struct(text), tuple(names)

    @classmethod
    def table(cls) -> str:
        """The layout as a Markdown table, for the documentation (a test compares the two)."""
        rows = ["| bits | field | note |", "| --- | --- | --- |"]
        for name, field in sorted(cls.fields.items(), key=lambda item: item[1].low):
            notes = [f"in units of {field.unit}"] if field.unit > 1 else []
            if field.enum is not None and name == "opcode" and cls.length_words > 1:
                notes.append(f"{field.default}: {field.enum(field.default).name}")
            elif field.enum is not None:
                notes.append(", ".join(f"{member.value} {member.name}" for member in field.enum))
            elif field.default:
                notes.append(f"{field.default}")
            if field.doc:
                notes.append(field.doc)
            rows.append(f"| {field.high}..{field.low} | {name} | {'; '.join(notes)} |")
        if cls.tail is not None:
            rows.append(f"| from {32 * cls.length_words} on | {cls.tail} | any number of words |")
        return "\n".join(rows)

    @property
    def description(self) -> str:
        """What it holds in words, for a packet whose meaning is not in its own fields; empty where it is."""
        return ""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Packet) and self.words == other.words

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.words))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.texts())})"

    def texts(self) -> list[str]:
        """What it holds, piece by piece, as repr shows it: fields, the words behind them, bits that no field claims."""
        unclaimed = [f"unclaimed_word_{index}={value:#010x}" for index, value in self.unclaimed.items()]
        return [*self.field_texts(), *self.tail_texts(), *unclaimed]

    def field_texts(self) -> list[str]:
        """Each field with its value."""
        return [f"{name}={self.fields[name].show(value)}" for name, value in self.values.items()]

    def tail_texts(self) -> list[str]:
        """The words behind the declared ones, as one piece or several."""
        if self.tail is None:
            return []
        return [f"{self.tail}=[{' '.join(f'{word:08x}' for word in self.tail_words)}]"]


def declared_in(module: Mapping[str, Any], base: type[P]) -> Iterator[type[P]]:
    """The layouts of one kind in a module's variables, in the order of its source.

    A name that begins with an underscore is what several packets share, and no packet itself. A module whose layouts
    are data has a function `declared_layouts` that makes them.
    """
    if "declared_layouts" in module:
        yield from module["declared_layouts"]()
        return
    for thing in module.values():
        is_own = isinstance(thing, type) and thing.__module__ == module["__name__"]
        if is_own and issubclass(thing, base) and not thing.__name__.startswith("_"):
            yield thing


def decode_stream(
    words: Sequence[int], header: type[Packet], layouts: Mapping[int, type[Packet]]
) -> list[Packet]:
    """Packets one behind the other, each with its opcode and its length, in words, in the first one.

    header   that word alone, with fields `opcode` and `length`
    layouts  of packets by their opcode

    Never raises: an opcode that is not known, and a length that is too short or leads beyond the words, end it as the
    header that says so.
    """
    found: list[Packet] = []
    at = 0
    while at < len(words):
        first: Any = header.decode(words[at : at + 1])
        layout = layouts.get(first.opcode)
        if layout is None or first.length < layout.length_words or at + first.length > len(words):
            return [*found, first]
        found.append(layout.decode(words[at : at + first.length]))
        at += first.length
    return found


class SparsePacket(Packet):
    """A packet that prints its non-zero fields: GPUs' have many, and few are ever set.

    hidden_fields  that follow from its class and are never printed
    """

    hidden_fields: ClassVar[frozenset[str]] = frozenset()

    def field_texts(self) -> list[str]:
        """Each field that is not zero and not hidden."""
        return [
            f"{name}={self.fields[name].show(value)}"
            for name, value in self.values.items()
            if value and name not in self.hidden_fields
        ]

    def tail_texts(self) -> list[str]:
        """The words behind the declared ones, if there are any."""
        return super().tail_texts() if self.tail_words else []


class Ioctl:
    """One call of a kernel driver: the driver makes it, the trace prints it, an emulated kernel answers it.

    request  the number that ioctl() takes
    name     as the kernel's header spells it
    layout   the argument; None when it takes no structure
    show     fields that a short line shows; empty means all that are not zero
    doc      what it is for, and where it is declared
    """

    def __init__(
        self,
        request: int,
        name: str,
        layout: type[Packet] | None = None,
        show: Sequence[str] = (),
        doc: str = "",
    ) -> None:
        for field in show:
            if layout is None or field not in layout.fields:
                raise UsageError(f"Ioctl({name}): show names {field!r}, which is no field of its argument.")
        self.request = request
        self.name = name
        self.layout = layout
        self.show = tuple(show)
        self.doc = doc

    def decode(self, argument: bytes) -> Packet | None:
        """The argument as a packet; short ones count as followed by zeros. Never raises."""
        if self.layout is None:
            return None
        whole = argument + bytes(-len(argument) % 4)
        return self.layout.decode(struct.unpack(f"<{len(whole) // 4}I", whole))

    def line(self, before: bytes, after: bytes, result: object) -> str:
        """The call in one line: what was given, what came back in fields that changed, and the result."""
        given, got = self.decode(before), self.decode(after)
        if given is None or got is None:
            return f"{self.name}() -> {result}"
        names = self.show or [name for name, value in given.values.items() if value]
        inputs = ", ".join(f"{name}={given.fields[name].show(given.values[name])}" for name in names)
        changed = [name for name, value in got.values.items() if value != given.values[name]]
        outputs = ", ".join(f"{name}={got.fields[name].show(got.values[name])}" for name in changed)
        return f"{self.name}({inputs}) -> {result}" + (f": {outputs}" if outputs else "")

    def __repr__(self) -> str:
        return f"Ioctl({self.name}, {self.request:#x})"
