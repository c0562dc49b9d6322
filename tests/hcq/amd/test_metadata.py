"""MessagePack is read back as it was written, and cut off or senseless bytes are an error, never a crash."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.amd.metadata import BadMessage, unpack
from tests.hcq.amd.edited import pack

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=30,
)


@given(VALUES)
def test_what_was_packed_is_unpacked(value: Any):
    assert unpack(pack(value)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x05", 5),
        (b"\xff", -1),
        (b"\xe0", -32),
        (b"\xcc\xc8", 200),
        (b"\xd0\x80", -128),
        (b"\xcd\x12\x34", 0x1234),
        (b"\xa3abc", "abc"),
        (b"\xd9\x02hi", "hi"),
        (b"\xc4\x01x", b"x"),
        (b"\x92\x01\x02", [1, 2]),
        (b"\x81\xa1a\x07", {"a": 7}),
        (b"\xde\x00\x01\xa1a\x90", {"a": []}),
        (b"\xca\x3f\x80\x00\x00", 1.0),
    ],
)
def test_short_forms_mean_what_the_specification_says(data: bytes, value: Any):
    assert unpack(data) == value


@given(VALUES, st.integers(0, 2**16))
def test_a_message_that_is_cut_off_is_an_error(value: Any, cut: int):
    data = pack(value)
    with pytest.raises(BadMessage):
        unpack(data[: cut % len(data)])


def test_lengths_that_lie_and_deep_nesting_are_errors():
    for data in (
        b"\xdd\xff\xff\xff\xff\x01",
        b"\xdf\x7f\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffabc",
        b"\x91" * 1000,
    ):
        with pytest.raises(BadMessage):
            unpack(data)
    draw = random.Random(3)
    for _ in range(500):
        data = bytes(draw.getrandbits(8) for _ in range(draw.randrange(1, 30)))
        try:
            unpack(data)
        except BadMessage:
            continue
