"""Ranges of addresses against a plain list that is walked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from hcq.emu.shader.ranges import Ranges
from hcq.errors import UsageError


class Piece(NamedTuple):
    start: int
    end: int
    name: str = ""


def test_addresses_are_found_as_by_walking_all_ranges_while_they_come_and_go() -> None:
    random = np.random.default_rng(0)
    table: Ranges[Piece] = Ranges()
    known: list[Piece] = []
    for _ in range(300):
        start = int(random.integers(0, 500))
        new = Piece(start, start + int(random.integers(1, 40)))
        if known and random.random() < 0.4:
            gone = known.pop(int(random.integers(len(known))))
            table.unmap(gone.start)
        elif any(one.start < new.end and new.start < one.end for one in known):
            with pytest.raises(UsageError, match="is mapped already"):
                table.insert(new)
        else:
            table.insert(new)
            known.append(new)
        at = int(random.integers(0, 550))
        size = int(random.integers(1, 9))
        assert list(table.ranges) == sorted(known)
        assert table.find(at) == next((one for one in known if one.start <= at < one.end), None)
        inside = [one for one in sorted(known) if one.start < at + size and at < one.end]
        assert table.within(at, at + size) == (inside[0] if inside else None)
        addresses = random.integers(at, at + 12, 3).astype(np.uint64)
        whole = [
            one for one in known if all(one.start <= a and a + size <= one.end for a in addresses.tolist())
        ]
        assert table.common(addresses, size) == (whole[0] if whole else None)


def test_no_addresses_are_in_no_range_and_what_is_not_there_is_said() -> None:
    table: Ranges[Piece] = Ranges()
    assert table.common(np.zeros(0, np.uint64), 4) is None
    assert table.near(5) == "nothing is mapped below it"
    table.insert(Piece(0x10, 0x20, "handle 0x7"))
    assert table.near(0x40) == "the nearest mapping below is handle 0x7 [0x10, 0x20)"
    with pytest.raises(UsageError, match=r"unmap\(0x11\): no mapping starts there"):
        table.unmap(0x11)
