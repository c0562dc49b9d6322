"""Layouts: declared once; what is encoded decodes to itself, and nothing is masked away."""

from __future__ import annotations

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.cpu import packets
from hcq.errors import UsageError
from hcq.layout import Packet, bits

ALL_LAYOUTS = [*packets.PACKETS.values(), packets.Header, packets.Group, packets.Control, packets.WorkerStart]


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


@pytest.mark.parametrize("layout", [Sample, *ALL_LAYOUTS], ids=lambda layout: layout.__name__)
@given(data=st.data())
def test_every_packet_decodes_to_what_was_encoded(layout: type[Packet], data: st.DataObject) -> None:
    packet = data.draw(packet_of(layout))
    decoded = layout.decode(packet.words)
    assert decoded == packet
    assert decoded.values == packet.values
    assert not decoded.unclaimed


@pytest.mark.parametrize("layout", [Sample, *ALL_LAYOUTS], ids=lambda layout: layout.__name__)
@given(words=st.lists(st.integers(0, 2**32 - 1), max_size=160))
def test_decoding_never_raises_and_loses_no_bit(layout: type[Packet], words: list[int]) -> None:
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
