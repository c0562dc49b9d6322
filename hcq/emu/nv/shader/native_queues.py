"""Queues of copies by threads, one for each warp, as compiled code fills and empties them.

In       a batch's copies that are under way, as the interpreter has them, or as entries of queues
Out      the other form
Changes  the queues; a batch's ThreadCopies
Next     native_copies.py (the code), thread_copies.py (what a copy is), native.py (who asks)

A queue is a ring: the numbers of its first entry and of the one behind its last, then the entries. An entry is one
instruction of a warp: which threads' copies are not done, how many bytes, and of each thread how many groups it had
ended, the host's address that the copy goes to, and what was read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.thread_copies import Issued

ENTRIES = 64  # a power of two; where more are under way, the interpreter has them
ENTRY = np.dtype(
    [
        ("mask", np.uint32),
        ("size", np.uint32),
        ("unused", np.uint64, 7),
        ("group", np.int64, WARP),
        ("goal", np.uint64, WARP),
        ("data", np.uint64, (2, WARP)),
    ]
)
QUEUE = np.dtype(
    [("head", np.int64), ("tail", np.int64), ("unused", np.uint64, 6), ("entries", ENTRY, ENTRIES)]
)
QUEUE_BYTES, ENTRY_BYTES = QUEUE.itemsize, ENTRY.itemsize
FIRST = 64  # bytes before the entries
GROUP, GOAL, DATA = (ENTRY.fields[name][1] for name in ("group", "goal", "data"))  # type: ignore[index]
SIZES = (4, 8, 16)


def forget(queues: Any) -> None:
    """No copy is under way."""
    queues["head"] = queues["tail"] = 0


def give(queues: Any, batch: Batch) -> None:
    """What is under way becomes the interpreter's."""
    waiting = queues["tail"] - queues["head"]
    if not waiting.any():
        return
    for number in range(int(waiting.max())):
        warps = np.flatnonzero(waiting > number)
        places = (queues["head"][warps] + number) % ENTRIES
        entries = queues["entries"][warps, places]
        masks = np.unpackbits(np.ascontiguousarray(entries["mask"]).view(np.uint8), bitorder="little")
        for size in SIZES:
            is_on = masks.reshape(-1, WARP).astype(bool) & (entries["size"] == size)[:, None]
            row, lane = np.nonzero(is_on)
            if not len(row):
                continue
            goal = (entries["goal"][row, lane] - np.uint64(batch.shared.ctypes.data)).astype(np.int64)
            if size == WARP // 8:
                data = entries["data"][row].view(np.uint32)[:, 0, :][np.arange(len(row)), lane][:, None]
            else:
                data = entries["data"][row, : size // 8, lane]
            memory = batch.shared[: len(batch.shared) // size * size].reshape(-1, size)
            octets = np.ascontiguousarray(data).view(np.uint8).reshape(-1, size)
            lanes = warps[row] * WARP + lane
            batch.thread_copies.add(Issued(lanes, entries["group"][row, lane], memory, goal // size, octets))
    forget(queues)


def take(queues: Any, batch: Batch) -> int | None:
    """What the interpreter has under way goes into the queues.

    Returns how many entries; None where there is no room, and nothing is changed
    """
    issued = batch.thread_copies.take_all()
    count, total = np.zeros(len(queues), np.int64), 0
    for one in issued:
        count[np.unique(one.lanes // WARP)] += 1
    if count.max(initial=0) > ENTRIES:
        for one in issued:
            batch.thread_copies.add(one)
        return None
    forget(queues)
    for one in issued:
        warp, lane = one.lanes // WARP, one.lanes % WARP
        here = np.unique(warp)
        place = queues["tail"][warp]
        size = one.data.shape[1]
        entries = queues["entries"]
        entries["mask"][here, queues["tail"][here]] = 0
        entries["size"][here, queues["tail"][here]] = size
        np.bitwise_or.at(entries["mask"], (warp, place), np.uint32(1) << lane.astype(np.uint32))
        entries["group"][warp, place, lane] = one.group
        goal = one.index * size + one.memory.ctypes.data
        entries["goal"][warp, place, lane] = goal.astype(np.uint64)
        if size == WARP // 8:
            words = entries["data"].view(np.uint32)  # (warps, entries, 2, 2 * WARP)
            words[warp, place, 0, lane] = np.ascontiguousarray(one.data).view(np.uint32)[:, 0]
        else:
            numbers = np.ascontiguousarray(one.data).view(np.uint64)
            for part in range(size // 8):
                entries["data"][warp, place, part, lane] = numbers[:, part]
        queues["tail"][here] += 1
        total += len(here)
    return total
