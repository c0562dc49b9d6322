"""Shadows of new buffers: what is unwritten until somebody writes it."""

from __future__ import annotations

import random

import numpy as np

from hcq.events.unwritten_memory import MOST_BYTES, UnwrittenMemory

VA = 0x7F00_0000_0000


def shadows(memory: UnwrittenMemory, address: int, size: int) -> list[int]:
    """Of so many bytes from an address on: 1 where nobody wrote."""
    found = memory.load(np.array([address], np.uint64), size)
    return [0] * size if found is None else (found[0] // 255).tolist()


def test_a_new_buffer_is_unwritten_and_memory_around_it_is_not() -> None:
    memory = UnwrittenMemory()
    memory.fresh(VA, 4)
    assert shadows(memory, VA - 2, 8) == [0, 0, 1, 1, 1, 1, 0, 0]
    memory.written(VA + 1, 2)
    assert shadows(memory, VA - 2, 8) == [0, 0, 1, 0, 0, 1, 0, 0]
    memory.drop(VA)
    assert shadows(memory, VA, 4) == [0] * 4


def test_a_store_passes_its_shadow_on_across_buffers() -> None:
    memory = UnwrittenMemory()
    memory.fresh(VA, 4)
    memory.fresh(VA + 4, 4)
    memory.store(np.array([VA + 2], np.uint64), np.array([[0, 255, 0, 255]], np.uint8), 4)
    assert shadows(memory, VA, 8) == [1, 1, 0, 1, 0, 1, 1, 1]


def test_any_row_of_writes_leaves_what_a_list_of_bytes_says() -> None:
    rng, memory = random.Random(3), UnwrittenMemory()
    bases = [VA, VA + 40, VA + 64]
    kept = dict.fromkeys((base + n for base in bases for n in range(24)), 1)
    for base in bases:
        memory.fresh(base, 24)
    for _ in range(200):
        at, size = VA - 8 + rng.randrange(110), rng.choice((1, 2, 4, 8, 16))
        if rng.random() < 0.5:
            memory.written(at, size)
            kept.update((place, 0) for place in range(at, at + size) if place in kept)
        else:
            bits = [rng.randrange(2) for _ in range(size)]
            memory.store(np.array([at], np.uint64), np.array([bits], np.uint8) * 255, size)
            kept.update((at + n, bit) for n, bit in enumerate(bits) if at + n in kept)
        assert shadows(memory, at - 4, size + 8) == [kept.get(at - 4 + n, 0) for n in range(size + 8)]


def test_shadows_are_bounded_and_what_is_beyond_counts_as_written() -> None:
    memory = UnwrittenMemory()
    memory.fresh(VA, MOST_BYTES + 1)
    assert shadows(memory, VA, 4) == [0] * 4
