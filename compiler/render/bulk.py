"""The instructions of bulk copies, as both roads to PTX write them: tiles of tensor maps, and mbarriers.

In       how the text around names operands
Out      PTX for inline assembly
Next     nvptx_bulk.py (in LLVM IR), cuda_bulk.py (in CUDA C), ../linear/bulk_copies.py (who writes the program)
Source   PTX ISA, "cp.async.bulk.tensor", "mbarrier.init", "mbarrier.arrive", "mbarrier.try_wait"; CUDA C++ Programming
         Guide, "Asynchronous data copies using the Tensor Memory Accelerator", for the fence behind the initialisation
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.ir.op import Op

BULK = frozenset({Op.MBARRIERS, Op.EXPECT_TILES, Op.COPY_TILE, Op.WAIT_TILES, Op.FREE_TILES})
MAP_BYTES, MAP_ALIGN = 128, 64
MBARRIER_BYTES = 8
Slot = Callable[[int], str]


def _under(condition: str, lines: list[str]) -> str:
    """Instructions of the threads for which a number is not 0."""
    return " ".join(
        ["{ .reg .pred who; ", f"setp.ne.u32 who, {condition}, 0;", *[f"@who {line}" for line in lines], "}"]
    )


def others_meet(threads: int) -> str:
    """A barrier of the threads that compute, where producers have gone: one that says how many come to it."""
    return f"bar.sync 1, {threads};"


def free(slot: Slot) -> str:
    """FREE_TILES: operands are the mbarrier and who."""
    return _under(slot(1), [f"mbarrier.arrive.shared::cta.b64 _, [{slot(0)}];"])


def make(expected: tuple[int, ...], slot: Slot) -> str:
    """MBARRIERS: operands are the first one's place and who."""
    lines = [
        f"mbarrier.init.shared::cta.b64 [{slot(0)}+{MBARRIER_BYTES * number}], {count};"
        for number, count in enumerate(expected)
    ]
    return _under(slot(1), [*lines, "fence.proxy.async.shared::cta;"])


def expect(size_bytes: int, slot: Slot) -> str:
    """EXPECT_TILES: operands are the mbarrier and who."""
    return _under(slot(1), [f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{slot(0)}], {size_bytes};"])


def copy(rank: int, slot: Slot) -> str:
    """COPY_TILE: operands are the place, the mbarrier, who, the map's address, the coordinates."""
    where = ", ".join([slot(4 + i) for i in range(rank)])
    word = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    return _under(slot(2), [f"{word} [{slot(0)}], [{slot(3)}, {{{where}}}], [{slot(1)}];"])


def wait(slot: Slot) -> str:
    """WAIT_TILES: operands are the mbarrier and the parity."""
    look = f"mbarrier.try_wait.parity.shared::cta.b64 over, [{slot(0)}], {slot(1)};"
    return f"{{ .reg .pred over; LOOK: {look} @over bra GO; bra LOOK; GO: }}"
