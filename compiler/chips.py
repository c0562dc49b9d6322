"""Chips: what heuristics know of the GPUs that kernels are tiled for.

In       an architecture
Out      `Chip`: how many cores it has at most, what one does in a clock; `chip_of(arch)`
Next     loops/heuristic_gpu.py, loops/heuristic_matrix.py (who weigh tiles by it), target.py (whose `cores` it says)
Source   hcq/performance/datasheets.py, which this floor does not import: tests/compiler/test_chips.py compares. Of
         architectures without a datasheet: the largest chip's cores, by its vendor's product page

An architecture is many chips, and code is made for the architecture: figures are those of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

PORT_BYTES = 64  # from L2 to a core, in a clock
SHARED_BYTES = 128  # of a core's shared memory, in a clock


@dataclass(frozen=True)
class Chip:
    """cores: SMs or CUs. matrix_flops: of 16-bit floats, a core's in a clock. l2_bytes: of all, in a clock.
    sector_bytes: what memory is asked for at once. issued: instructions that a core's waves begin in a clock.
    l2s: L2 caches, each of a die (XCC), to which blocks go in turn."""

    cores: int
    matrix_flops: int
    l2_bytes: int
    sector_bytes: int
    issued: int = 4
    l2s: int = 1


CHIPS = {
    "sm_80": Chip(108, 2048, 5120, 32),
    "sm_86": Chip(84, 512, 2048, 32),
    "sm_89": Chip(128, 512, 2048, 32),
    "sm_90": Chip(132, 4096, 5120, 32),
    "sm_100": Chip(148, 8192, 5120, 32),
    "sm_120": Chip(170, 512, 2048, 32),
    "gfx90a": Chip(104, 1024, 4096, 64),
    "gfx942": Chip(304, 2048, 16384, 128, l2s=8),
    "gfx950": Chip(256, 4096, 16384, 128, l2s=8),
    "gfx1030": Chip(80, 256, 2048, 128, 2),  # without matrix units: what its vectors do
    "gfx1100": Chip(96, 512, 3072, 128, 2),
    "gfx1201": Chip(64, 1024, 2048, 128, 2),
    # cores of the largest chips, M1 to M3 Ultra; the rest is a guess, for no datasheet says it
    "apple7": Chip(64, 256, 1024, 64),
    "apple8": Chip(76, 256, 1024, 64),
    "apple9": Chip(80, 256, 1024, 64),
}
NEAREST = {"gfx10": "gfx1030", "gfx11": "gfx1100", "gfx12": "gfx1201"}  # the rest of their generations


def chip_of(arch: str) -> Chip:
    """The figures of an architecture, or of the nearest one that has some."""
    return CHIPS.get(arch) or CHIPS[NEAREST.get(arch[:5], "sm_80")]


def spread(blocks: int, cores: int) -> float:
    """The share of the cores' time that is used, where blocks are all alike: the last round may be for a few."""
    return blocks / (cores * -(-blocks // cores)) if blocks else 1.0
