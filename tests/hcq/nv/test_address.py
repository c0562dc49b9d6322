"""Addresses of NVIDIA GPUs: never in a window, never twice, and whole again when they come back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hcq.errors import DriverError
from hcq.gpu.memory import GUARD_BYTES, HUGE_BYTES
from hcq.nv import address
from hcq.nv.address import (
    LOCAL_WINDOW,
    LOCAL_WINDOW_BYTES,
    POOL_END,
    POOL_START,
    REGION_BYTES,
    SHARED_WINDOW,
    SHARED_WINDOW_BYTES,
    AddressPool,
)
from hcq.system.port import MAP_FIXED, PAGE_BYTES


class Notes:
    """A port that maps nothing and remembers what it was asked."""

    def __init__(self, taken: tuple[tuple[int, int], ...] = ()) -> None:
        self.taken = taken
        self.calls: list[tuple[int, int, int]] = []

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        self.calls.append((va, size_bytes, flags))
        if not flags & MAP_FIXED and any(va < end and start < va + size_bytes for start, end in self.taken):
            raise DriverError("mmap -> EEXIST")
        return va


def take(pool: AddressPool, port: Any, size: int, alignment: int = 0) -> int:
    return pool.take(port, size, alignment)


def test_ranges_lie_outside_the_windows_and_below_40_bits():
    pool, port = AddressPool(), Notes()
    va = take(pool, port, 5 << 30)
    assert POOL_START <= va and va + (5 << 30) <= POOL_END
    assert va >= SHARED_WINDOW + SHARED_WINDOW_BYTES
    assert va >= LOCAL_WINDOW + LOCAL_WINDOW_BYTES
    assert (SHARED_WINDOW, SHARED_WINDOW_BYTES) in [(call[0], call[1]) for call in port.calls]


def test_large_ranges_are_aligned_for_large_pages_and_small_ones_to_pages():
    pool, port = AddressPool(), Notes()
    assert take(pool, port, 1) % PAGE_BYTES == 0
    assert take(pool, port, HUGE_BYTES) % HUGE_BYTES == 0
    assert take(pool, port, PAGE_BYTES, 64 << 10) % (64 << 10) == 0


def test_no_range_is_given_twice_and_all_come_back_whole():
    draw = random.Random(7)
    pool, port = AddressPool(), Notes()
    first = take(pool, port, PAGE_BYTES)
    pool.give_back(port, first, PAGE_BYTES)  # type: ignore[arg-type]
    assert pool.free == [(POOL_START, POOL_START + REGION_BYTES)]
    held: list[tuple[int, int]] = []
    for _ in range(500):
        if held and draw.random() < 0.45:
            va, size = held.pop(draw.randrange(len(held)))
            pool.give_back(port, va, size)  # type: ignore[arg-type]
            continue
        size = draw.choice((100, PAGE_BYTES, 300_000, HUGE_BYTES, 5 << 20))
        va = take(pool, port, size)
        for other, other_size in held:
            assert va + size + GUARD_BYTES <= other or other + other_size + GUARD_BYTES <= va
        held.append((va, size))
    for va, size in held:
        pool.give_back(port, va, size)  # type: ignore[arg-type]
    assert sum(end - start for start, end in pool.free) == pool.next - POOL_START
    assert len(pool.free) == 1


def test_places_that_are_taken_are_passed_over():
    pool, port = AddressPool(), Notes(((POOL_START + 4096, POOL_START + 8192),))
    assert take(pool, port, PAGE_BYTES) == POOL_START + REGION_BYTES


def test_running_out_of_addresses_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(address, "POOL_END", POOL_START + 2 * REGION_BYTES)
    pool, port = AddressPool(), Notes()
    take(pool, port, REGION_BYTES)
    with pytest.raises(DriverError, match=r"alloc\(\d+\): no addresses are left between 0x600000000"):
        take(pool, port, 2 * REGION_BYTES)


def test_a_kernel_that_takes_addresses_as_hints_is_not_trusted():
    class Elsewhere(Notes):
        def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
            return super().mmap(va, size_bytes, prot, flags) + PAGE_BYTES

        def munmap(self, va: int, size_bytes: int) -> None:
            self.calls.append((va, size_bytes, -1))

    port = Elsewhere()
    with pytest.raises(DriverError, match="something else of this process is there"):
        take(AddressPool(), port, PAGE_BYTES)
    assert port.calls[-1] == (SHARED_WINDOW + PAGE_BYTES, SHARED_WINDOW_BYTES, -1)
