"""Packets around a place of a ring: those before it are found backwards, those behind it follow, also over its end."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable

import pytest

from hcq.amd.decode import ring_decoder
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.inspection import around, read_own

DECODE = ring_decoder("gfx1100", "PM4")
NOP = 0xFFFF1000


def reader(words: list[int]) -> Callable[[int, int], list[int]]:
    return lambda first, count: words[first : first + count]


def test_every_word_belongs_to_one_packet_in_order() -> None:
    draw = random.Random(3)
    for _ in range(100):
        size = 256
        lengths = [draw.randrange(2, 7) for _ in range(30)]
        words = [NOP] * size
        at = start = draw.randrange(size)
        places = []
        for length in lengths:
            places.append(at)
            packet = [0xC0001000 | (length - 2) << 16, *(draw.randrange(1000) for _ in range(length - 1))]
            for word in packet:
                words[at % size] = word
                at += 1
        assert at - start <= size
        which = draw.randrange(5, 25)
        get = places[which]
        shown = around(reader(words), size, get % size, at - get, get - start, DECODE)
        assert [one["at"] for one in shown if one["is_at_get"]] == [get % size]
        behind = [one["at"] for one in shown if not one["is_read"]]
        assert behind == [place % size for place in places[which : which + len(behind)]]
        # all but the first of those before it, which may begin in the middle of another one
        before = [one["at"] for one in shown if one["is_read"]][1:]
        assert before == [place % size for place in places[which - len(before) : which]]


def test_a_ring_that_was_read_to_its_end_has_nothing_at_get() -> None:
    words = [NOP] * 16
    shown = around(reader(words), 16, 4, 0, 4, DECODE)
    assert shown and all(one["is_read"] and not one["is_at_get"] for one in shown)


def test_any_words_are_shown() -> None:
    draw = random.Random(5)
    for _ in range(300):
        words = [draw.getrandbits(32) for _ in range(64)]
        get, ahead = draw.randrange(200), draw.randrange(100)
        shown = around(reader(words), 64, get, ahead, draw.randrange(100), DECODE)
        assert len(shown) <= 12
        assert sum(one["is_at_get"] for one in shown) == (ahead > 0)


def test_memory_that_is_unmapped_is_refused_in_words() -> None:
    libc = native.libc()
    va = native.address(libc.mmap(native.pointer(0), 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0))
    native.view(va, 8)[:] = b"mapped!!"
    assert read_own(va, 8) == b"mapped!!"
    libc.munmap(native.pointer(va), 4096)
    with pytest.raises(DriverError, match="unmapped"):
        read_own(va, 8)
    with pytest.raises(DriverError, match="cannot be read"):
        read_own(2**64 - 8, 64)
