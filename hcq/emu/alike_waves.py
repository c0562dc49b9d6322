"""Alike waves: threads at one place, as records of the waves that have the same ones of them on.

In       the workgroup and the number within it of each thread
Out      a record for each mask
Next     nv/shader/standing.py and metal/shader/standing.py (who ask), hcq/events/waves.py (the record)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.events.waves import Wave, active_text, groups_text

WIDTH = 32  # threads of a warp, and of a SIMD group


def alike(pattern: Wave, groups: NDArray[Any], threads: NDArray[Any]) -> Iterator[Wave]:
    """The pattern with how many, groups and active lanes of each kind, the most frequent first.

    pattern   `groups` says what the vendor calls a workgroup: "group", "block"
    groups    of each thread that is on: the number of its workgroup in the grid
    threads   its number in its workgroup
    """
    kinds: dict[int, list[int]] = defaultdict(list)
    pairs = np.stack([groups.astype(np.int64), threads.astype(np.int64) // WIDTH], axis=1)
    names, which = np.unique(pairs, axis=0, return_inverse=True)
    bits = np.zeros(len(names), np.uint32)
    np.bitwise_or.at(bits, which.reshape(-1), np.uint32(1) << (threads % WIDTH).astype(np.uint32))
    for group, mask in zip(names[:, 0].tolist(), bits.tolist()):
        kinds[mask].append(group)
    for mask, of in sorted(kinds.items(), key=lambda one: -len(one[1])):
        text = groups_text(of).replace("group", pattern.groups, 1)
        yield pattern._replace(many=len(of), groups=text, active=active_text(mask, WIDTH, "active"))
