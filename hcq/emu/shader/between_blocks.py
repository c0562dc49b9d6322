"""Between blocks: what the blocks of a launch read of the same data, and whose words they wait for.

In       loads and stores, with the number of the block of each
Out      bytes that each block of a sample loads; how many blocks read what another one has stored for them
Next     traffic.py (who asks), hcq/performance/counters.py (the record), hcq/performance/model/resources.py (what
         follows for the time)

A sample of blocks reads a table that all blocks read, too. Were its bytes taken for each block's own, a launch of a
thousand blocks would seem to read the table a hundred times from DRAM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEAST_BLOCKS, MOST_BLOCKS = 4, 256  # of a sample: fewer say nothing, and more need no guess
COMPACT_AT = 1 << 20


class CommonReads:
    """Sectors that every one of so many blocks loads.

    >>> found = CommonReads(4)
    >>> found.load(np.array([0, 1, 2, 3, 3]), np.array([7, 7, 7, 7, 8], np.uint64))
    >>> found.sectors()
    1
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks if LEAST_BLOCKS <= blocks <= MOST_BLOCKS else 0
        self.parts: list[Array] = []
        self.held = 0

    def load(self, blocks: Array, sectors: Array) -> None:
        """Loads of these blocks."""
        if not self.blocks:
            return
        self.parts.append(np.unique(sectors * np.uint64(MOST_BLOCKS) + blocks.astype(np.uint64)))
        self.held += len(self.parts[-1])
        if self.held > COMPACT_AT and len(self.parts) > 1:
            self.parts = [np.unique(np.concatenate(self.parts))]
            self.held = -len(self.parts[0])  # as much again comes before the next time

    def sectors(self) -> int:
        """How many each block has loaded."""
        if not self.parts:
            return 0
        pairs = np.unique(np.concatenate(self.parts))
        _, counts = np.unique(pairs // np.uint64(MOST_BLOCKS), return_counts=True)
        return int(np.count_nonzero(counts == self.blocks))


class Awaited:
    """Words that one block stores and others look at until they are there, as a scan in one launch does.

    Only accesses that may see what other blocks do at the same time are told (volatile, relaxed, acquire, release).
    Words that most blocks look at are a barrier of the whole grid, where nobody waits for a neighbour.

    >>> found = Awaited()
    >>> found.store(np.array([0]), np.array([64]))
    >>> found.load(np.array([0, 0]), np.array([1, 1]), np.array([64, 72]))
    >>> found.blocks(), found.window
    (1, 2)
    """

    def __init__(self) -> None:
        self.writers: dict[int, int] = {}
        self.readers: set[int] = set()
        self.words: set[int] = set()
        self.window = 0

    def store(self, blocks: Array, addresses: Array) -> None:
        """Words that blocks have stored."""
        self.writers.update(zip(addresses.tolist(), blocks.tolist()))

    def load(self, warps: Array, blocks: Array, addresses: Array) -> None:
        """Words that blocks look at. The most that a warp looks at together is the window."""
        if not self.writers:
            return
        for block, word in zip(blocks.tolist(), addresses.tolist()):
            if self.writers.get(word, block) != block:
                self.readers.add(block)
                self.words.add(word)
        if self.readers:
            self.window = max(self.window, int(np.unique(warps, return_counts=True)[1].max()))

    def blocks(self) -> int:
        """How many wait for neighbours."""
        return len(self.readers) if 2 * len(self.words) >= len(self.readers) else 0
