"""Rates: what a chip reaches, where a datasheet says only what its vendor promises.

In       nothing
Out      Rates: latencies, shares of peaks that programs get, lanes of each pipe, what launches cost; each with its
         source
Next     rates_nvidia.py, rates_amd.py, rates_apple.py (the rows), chips.py (who finds one), ../datasheets.py (peaks),
         time.py (who computes with them)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Of one chip. Clocks are those of its units.

    l1, l2, last, dram    clocks until a load is answered there; last: the cache behind L2, 0 where there is none
    shared, atomic        the same of a load of shared memory; of an atomic whose result is read
    read_share, mix_loss  of DRAM's peak: what reads alone get; what of it is lost where half of the traffic is writes,
                          less than nothing where writes are faster
    l2_share              of L2's rate
    matrix_share          of the peak of matrix units: what a product gets at the clocks that power allows
    lanes                 pipe -> threads whose instruction a unit begins in a clock
    block_clocks, warp_clocks    from the end of a block to the first instruction of the next in its place; for each
                                 warp
    begin_clocks          of the chip, from the begin of a block of a launch to that of the next one
    launch_s, graph_s     what a launch behind another costs beside its own work: from a queue, as a node of a graph
    line_words            of a line of global memory that atomics change: words in a clock, however many units ask
    sources               name of a rate -> where it comes from
    """

    l1: float
    l2: float
    dram: float
    shared: float
    atomic: float
    read_share: float
    mix_loss: float
    l2_share: float
    matrix_share: float
    lanes: dict[str, float]
    block_clocks: float
    warp_clocks: float
    begin_clocks: float
    launch_s: float
    graph_s: float
    line_words: float
    sources: dict[str, str]
    last: float = 0.0


NAMES = (
    "l1", "l2", "dram", "shared", "atomic", "read_share", "mix_loss", "l2_share", "matrix_share", "lanes",
    "block_clocks", "warp_clocks", "begin_clocks", "launch_s", "graph_s", "line_words",
)  # fmt: skip
