"""Layouts: declared once; what is encoded decodes to itself, and nothing is masked away."""

from __future__ import annotations

import importlib
import random
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcq
from hcq import backends
from hcq.amd.abi import sdma
from hcq.cpu import packets
from hcq.errors import UsageError
from hcq.layout import Ioctl, Packet, bits, declared_in, decode_stream, placed, repeated

FOLDER = Path(hcq.__file__).parent


def all_layouts() -> list[type[Packet]]:
    """Every layout that the drivers declare, found by walking their modules; those that are data are made first."""
    for backend in backends.every():
        list(backend.packets())
    for path in sorted([*FOLDER.glob("*.py"), *(p for d in DRIVERS for p in (FOLDER / d).glob("*.py"))]):
        if path.stem not in ("__init__", "__main__"):
            importlib.import_module(".".join(("hcq", *path.relative_to(FOLDER).with_suffix("").parts)))
    found: list[type[Packet]] = []
    pending: list[type[Packet]] = [Packet]
    while pending:
        for layout in pending.pop().__subclasses__():
            pending.append(layout)
            is_packet = layout.fields and not layout.__name__.startswith("_")  # else what packets share
            if is_packet and layout.__module__.startswith("hcq."):
                found.append(layout)
    return sorted(found, key=lambda layout: (layout.__module__, layout.__qualname__))


DRIVERS = ("cpu", "amd", "nv", "metal")
ALL_LAYOUTS = all_layouts()
EXAMPLES = 30  # random packets of each layout, besides those at its fields' limits


class Color(IntEnum):
    RED = 1
    BLUE = 2


class Sample(Packet, words=3):
    address = bits(39, 2, unit=4)
    flag = bits(41)
    color = bits(47, 44, enum=Color)
    size = bits(95, 64)


@st.composite
def packet_of(draw: st.DrawFn, layout: type[Packet]) -> Packet:
    values = {
        name: field.unit * draw(st.integers(0, (1 << field.width) - 1))
        for name, field in layout.fields.items()
    }
    if layout.tail is not None:
        values[layout.tail] = tuple(draw(st.lists(st.integers(0, 2**32 - 1), max_size=6)))
    return layout(**values)


def test_the_walk_finds_what_the_kinds_declare() -> None:
    declared = {layout for backend in backends.every() for layout in backend.packets() if layout.fields}
    assert declared <= set(ALL_LAYOUTS)
    assert {packets.Dispatch, packets.Control} <= set(ALL_LAYOUTS)


def packets_of(layout: type[Packet]) -> Iterator[Packet]:
    """Packets of a layout: every field at its least, every one at its most, each alone at its most, and random ones."""
    most = {name: field.unit * ((1 << field.width) - 1) for name, field in layout.fields.items()}
    tails: list[dict[str, tuple[int, ...]]] = [{}]
    if layout.tail is not None:
        tails = [{layout.tail: tail} for tail in ((), (0,), (2**32 - 1, 0, 7, 1 << 31, 5, 6))]
    least = dict.fromkeys(most, 0)
    for values in (least, most, *(least | {name: value} for name, value in most.items())):
        yield layout(**values, **tails[-1])
    numbers = random.Random(layout.__qualname__)
    for turn in range(EXAMPLES):
        drawn = {name: field.unit * numbers.getrandbits(field.width) for name, field in layout.fields.items()}
        yield layout(**drawn, **tails[turn % len(tails)])


@pytest.mark.parametrize("layout", [Sample, *ALL_LAYOUTS], ids=lambda layout: layout.__name__)
def test_every_packet_decodes_to_what_was_encoded(layout: type[Packet]) -> None:
    for packet in packets_of(layout):
        decoded = layout.decode(packet.words)
        assert decoded == packet
        assert decoded.values == packet.values
        assert not decoded.unclaimed


@pytest.mark.parametrize("layout", [Sample, *ALL_LAYOUTS], ids=lambda layout: layout.__name__)
def test_decoding_never_raises_and_loses_no_bit(layout: type[Packet]) -> None:
    numbers = random.Random(layout.__qualname__)
    longer = layout.length_words + 9
    for length in (0, 1, layout.length_words, *(numbers.randint(0, longer) for _ in range(EXAMPLES))):
        words = [numbers.choice((0, 2**32 - 1, numbers.getrandbits(32))) for _ in range(length)]
        packet = layout.decode(words)
        assert repr(packet)
        expected = (words + [0] * layout.length_words)[: layout.length_words]
        assert list(packet.words[: layout.length_words]) == expected


@pytest.mark.parametrize(
    "layout", [packets.Copy, packets.Signal, packets.Wait, packets.Dispatch, packets.Fill]
)
@given(data=st.data())
def test_the_struct_of_a_layout_packs_the_same_words(layout: type[Packet], data: st.DataObject) -> None:
    packet = data.draw(packet_of(layout))
    packer, names = layout.struct()
    assert (
        packer.pack(*(packet.values[name] for name in names)) == packet.to_bytes()[: 4 * layout.length_words]
    )


def test_two_fields_cannot_share_a_bit() -> None:
    with pytest.raises(UsageError, match=r"Wrong.second: bit 7 already belongs to first"):

        class Wrong(Packet, words=1):
            first = bits(7, 0)
            second = bits(9, 7)


def test_a_later_generation_is_the_older_one_with_what_is_new_what_moved_and_what_is_gone() -> None:
    class Later(Sample, words=4, without=("flag",)):
        size = bits(127, 96)
        kind = bits(43, 42)

    assert list(Later.fields) == ["address", "kind", "color", "size"]  # in the order of their bits
    assert list(Sample.fields) == ["address", "flag", "color", "size"]
    assert Later(address=4, kind=1, size=9).words == (4, 1 << 10, 0, 9)
    assert Later.decode((0, 1 << 9)).unclaimed == {1: 1 << 9}
    with pytest.raises(UsageError, match=r"Later has no field 'flag'"):
        Later(flag=1)
    with pytest.raises(AttributeError, match=r"Later has no field 'flag'"):
        _ = Later().flag


def test_a_moved_field_cannot_share_a_bit_with_an_inherited_one() -> None:
    with pytest.raises(UsageError, match=r"Later.flag: bit 41 already belongs to size"):

        class Later(Sample):
            size = bits(41, 40)


def test_an_array_of_fields_is_declared_once() -> None:
    entry = {"address_{i}": bits(7, 2, unit=4, doc="bytes"), "valid_{i}": bits(31)}

    class Table(Packet, words=3):
        entries = repeated(range(0, 64, 32), entry)
        head = placed(64, {"count": bits(3, 0, default=2)})

    assert list(Table.fields) == ["address_0", "valid_0", "address_1", "valid_1", "count"]
    assert Table(address_1=8, valid_1=1).words == (0, 1 << 31 | 8, 2)
    assert Table.decode((4,)).address_0 == 4
    assert "| 39..34 | address_1 | in units of 4; bytes |" in Table.table()


def test_the_layouts_of_a_module_are_its_own_and_not_what_they_share() -> None:
    names = [layout.__name__ for layout in declared_in(vars(sdma), Packet)]
    assert names.index("CopyLinearV4") < names.index("CopyLinearV7")
    assert not {"Packet", "SparsePacket", "_CopyLinear"} & set(names)


def test_a_field_cannot_lie_beyond_the_packet() -> None:
    with pytest.raises(UsageError, match=r"Wrong.field: bit 32 is beyond its 1 words"):

        class Wrong(Packet, words=1):
            field = bits(32, 30)


def test_a_value_that_does_not_fit_raises_and_is_not_masked() -> None:
    with pytest.raises(UsageError, match=r"Sample.flag=0x2: does not fit 1 bits"):
        Sample(flag=2)
    with pytest.raises(UsageError, match=r"Sample.size=-0x1: does not fit"):
        Sample(size=-1)


def test_a_value_that_is_no_multiple_of_its_unit_raises() -> None:
    with pytest.raises(UsageError, match=r"Sample.address=6: not a multiple of 4"):
        Sample(address=6)


def test_an_unknown_field_raises_and_lists_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"Sample has no field 'colour'. Its fields: address, flag, color, size"
    ):
        Sample(colour=1)


def test_a_packet_prints_names_and_shows_bits_nobody_claims() -> None:
    text = repr(Sample.decode([0x1000, 1 << 12 | 1 << 10, 7]))
    assert text == "Sample(address=0x1000, flag=0, color=RED, size=7, unclaimed_word_1=0x00000400)"
    assert "color=9" in repr(Sample(color=9))


def test_a_packet_does_not_change() -> None:
    with pytest.raises(AttributeError, match="packets do not change"):
        Sample().flag = 1


class Ask(Packet, words=2):
    size = bits(31, 0, doc="bytes")
    handle = bits(63, 32)


ASK = Ioctl(0xC0084801, "ASK", Ask, show=("size",))


def test_an_ioctl_prints_what_was_given_and_what_came_back() -> None:
    before, after = Ask(size=64).to_bytes(), Ask(size=64, handle=7).to_bytes()
    assert ASK.line(before, after, 0) == "ASK(size=64) -> 0: handle=7"
    assert ASK.line(before, before, "EINVAL") == "ASK(size=64) -> EINVAL"
    assert Ioctl(1, "RESET").line(b"", b"", 0) == "RESET() -> 0"
    assert (
        Ioctl(2, "ASK_ALL", Ask).line(Ask(handle=3).to_bytes(), Ask(handle=3).to_bytes(), 0)
        == "ASK_ALL(handle=3) -> 0"
    )
    with pytest.raises(UsageError, match="show names 'sise', which is no field of its argument"):
        Ioctl(1, "ASK", Ask, show=("sise",))


@given(argument=st.binary(max_size=20))
def test_an_ioctls_argument_decodes_from_any_bytes(argument: bytes) -> None:
    packet = ASK.decode(argument)
    assert packet is not None
    whole = (argument + bytes(8))[:8]
    assert tuple(packet.values.values()) == struct.unpack("<2I", whole)


def test_tables_print_units_enums_and_notes() -> None:
    class Noted(Packet, words=1):
        address = bits(7, 0, unit=4, doc="bytes")
        color = bits(11, 8, enum=Color, doc="of the flag")

    assert "| 7..0 | address | in units of 4; bytes |" in Noted.table()
    assert "| 11..8 | color | 1 RED, 2 BLUE; of the flag |" in Noted.table()
    with pytest.raises(UsageError, match="a unit is 1 or more"):
        bits(3, 0, unit=0)


class First(Packet, words=1):
    """What begins every packet of a stream."""

    opcode = bits(7, 0)
    length = bits(31, 8)


class Pair(Packet, words=2, tail="more"):
    """One packet of it."""

    opcode = bits(7, 0, default=5)
    length = bits(31, 8, default=2)
    value = bits(63, 32)


def test_a_stream_ends_at_the_header_that_makes_no_sense() -> None:
    pair, longer = Pair(value=7), Pair(length=4, value=8)
    words = [*pair.words, *longer.words, 1, 2]
    known = {5: Pair}
    first, second = decode_stream(words, First, known)
    assert (first, second.tail_words) == (pair, (1, 2))
    for wrong in ([6 | 2 << 8, 0], [5 | 1 << 8, 0], [5 | 0 << 8, 0], [5 | 3 << 8, 0]):
        found = decode_stream([*pair.words, *wrong], First, known)
        assert found == [pair, First.decode(wrong[:1])]
