"""Page: docs/model.md, what the model predicts for kernels of the ladders beside what was measured.

In       ladders.CASES, counted.json; the model
Out      docs/model.md
Changes  that page
Next     count.py (what was counted), hcq/performance/model (the model), docs/counters.md (what is counted)

    python -m tools.bench.model.page [--show]     --show: print the ladders, write nothing
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, "") or __package__.startswith("tools"):  # from a checkout
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from hcq.performance import datasheets
from hcq.performance.counters import Counters
from hcq.performance.model.time import Estimate, estimate
from hcq.performance.roofline import roof
from hcq.tools.bench.model import count
from hcq.tools.bench.model.ladders import CASES, Case

DOCS = Path(__file__).resolve().parents[3] / "docs"
NEAR, FAR, GOOD_ORDER = 1.5, 3.0, 0.9
LEAST_RANKED = 3  # rows that a ladder needs for an order
ALIKE = 0.05  # apart: two measurements of one thing differ by 3 to 8 %, which was so before any order was looked at


class Row(NamedTuple):
    """A case, and what the model says of it: of its longest launch, and of all of them. floor: at peak rates."""

    case: Case
    found: Estimate
    seconds: float
    floor: float

    @property
    def microseconds(self) -> float:
        """Predicted."""
        return max(self.seconds, self.floor) * 1e6

    @property
    def ratio(self) -> float:
        """Predicted to measured."""
        return self.microseconds / self.case.microseconds

    @property
    def off(self) -> float:
        """How far it is from 1, either way."""
        return max(self.ratio, 1 / self.ratio)


def rows(known: dict[str, Counters] | None = None) -> list[Row]:
    """Every case that was counted."""
    known = count.load() if known is None else known
    return [
        predict(case, [known[count.key_of(launch)] for launch in case.launches])
        for case in CASES
        if all(count.key_of(launch) in known for launch in case.launches)
    ]


def predict(case: Case, counted: Sequence[Counters]) -> Row:
    """One case. counted: of each launch."""
    found = [_predict(case, one) for one in counted]
    longest = max(found, key=lambda one: one[0].seconds)
    return Row(case, longest[0], sum(one.seconds for one, _ in found), sum(floor for _, floor in found))


def _predict(case: Case, counted: Counters) -> tuple[Estimate, float]:
    """Of one launch: the estimate, and seconds at peak rates."""
    chip = datasheets.chip(case.chip)
    whole = counted.whole()
    whole = whole if case.times == 1 else scaled(whole, case.times)
    found = estimate(whole, chip, is_warm=case.is_warm, launched_by=case.launched_by)
    return found, 0.0 if case.is_warm else roof(whole, chip).seconds


def scaled(counted: Counters, times: int) -> Counters:
    """As if all blocks had done what they did so many times, one time after the other."""
    total = Counters(launches=0)
    for _ in range(times):
        total.add(counted)
    total.launches, total.blocks, total.grid_blocks, total.warps = (
        counted.launches,
        counted.blocks,
        counted.grid_blocks,
        counted.warps,
    )
    return total


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's: of the places that values have in two orders. Equal values share a place.

    >>> rank_correlation([1, 2, 3], [10, 20, 40]), rank_correlation([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    first, second = _places(left), _places(right)
    mean = (len(left) + 1) / 2
    both = sum((a - mean) * (b - mean) for a, b in zip(first, second))
    alone = [sum((place - mean) ** 2 for place in each) for each in (first, second)]
    return both / (alone[0] * alone[1]) ** 0.5 if all(alone) else 1.0


def _places(values: Sequence[float]) -> list[float]:
    return [
        1 + sum(other < one for other in values) + (sum(other == one for other in values) - 1) / 2
        for one in values
    ]


def ladders(found: Sequence[Row]) -> dict[str, list[Row]]:
    """By name, in order of the cases."""
    made: dict[str, list[Row]] = {}
    for row in found:
        made.setdefault(row.case.ladder, []).append(row)
    return made


def order(ladder: Sequence[Row], alike_within: float = ALIKE) -> float | None:
    """Rank correlation of a ladder; None for one too short.

    alike_within    figures that were measured so close to each other are in no order, and are taken in that of the
                    predictions. 0: in the order of what was published, digit by digit
    """
    if len(ladder) < LEAST_RANKED:
        return None
    measured, predicted = [row.case.microseconds for row in ladder], [row.microseconds for row in ladder]
    return rank_correlation(resolved(measured, predicted, alike_within), predicted)


def resolved(measured: Sequence[float], predicted: Sequence[float], alike_within: float) -> list[float]:
    """Places in the order of measurement, of those that are alike in that of the predictions.

    >>> resolved([100, 104, 90], [8, 7, 9], 0.05), resolved([100, 104, 90], [8, 7, 9], 0.0)
    ([2, 1, 0], [1, 2, 0])
    """
    pairs = list(zip(alike(measured, alike_within), predicted))
    places = {pair: place for place, pair in enumerate(sorted(set(pairs)))}
    return [places[pair] for pair in pairs]


def alike(values: Sequence[float], within: float = ALIKE) -> list[float]:
    """Of each value the least that it is alike with, from the least of all on.

    >>> alike([100, 104, 106, 90])
    [100, 100, 106, 90]
    """
    least: dict[float, float] = {}
    known = 0.0
    for value in sorted(values):
        if not known or value > known * (1 + within):
            known = value
        least[value] = known
    return [least[value] for value in values]


def show(found: Sequence[Row]) -> Iterator[str]:
    """The ladders as text."""
    for name, ladder in ladders(found).items():
        ranked = order(ladder)
        yield f"{name}  rank {'-' if ranked is None else f'{ranked:.2f}'}"
        for row in ladder:
            parts = ", ".join(f"{what} {1e6 * seconds:.4g}" for what, seconds in row.found.parts[:5])
            yield (
                f"  {row.case.row:<26} {row.case.microseconds:10.4g} us  predicted {row.microseconds:10.4g}  "
                f"{row.ratio:5.2f}  [{parts}]"
            )
    for title, some in (("developed", False), ("held out", True)):
        mine = [row for row in found if row.case.is_held_out is some]
        near, far = sum(row.off <= NEAR for row in mine), sum(row.off > FAR for row in mine)
        yield f"{title}: {len(mine)} kernels, {near} within {NEAR}, {far} beyond {FAR}"


# ------------------------------------------------------------ the page

HEAD = """# The model beside measurements

`hcq-trace roofline` and a search on an emulated GPU say how long a kernel takes on a chip. This page compares
that with what others measured on real GPUs. The kernels are written anew after the descriptions of those who
measured, they run on emulated GPUs (some blocks of each launch; the rest is taken to do the same), and the
model predicts from what was counted.

Nothing is fitted to a kernel: constants come from micro-benchmarks, each with its source, in
`hcq/performance/model/rates_*.py`. A third of the ladders was held out, which [decision
0015](decisions/0015-a-model-beside-the-floor.md) named before anything was compared. Nobody ran these kernels
on a real GPU here. What was measured elsewhere is one machine and one run of one author each.

The figures of those had been read before, and nothing was predicted for them until the model stood.
After that comparison two things were changed. One for a law: more bytes of L2 made a kernel faster. The other
because of what was seen: `transpose-mi210` was three times too fast, and channels of L2 were added, as AMD's
documentation has them; it is no independent check of those any more. After a look at all orders these were added,
each from a micro-benchmark or a document: blocks begin one after the other; a block that waits at barriers is not
hidden by itself; floats of 16 bits are widened by a sum (HADD2.F32), not by a conversion; of a sample, a block has its
share of L1, and what all blocks read comes from DRAM once; a scan in one launch waits for its neighbours, two ways to
L2 and back for each 32; reads alone are slower than writes on an MI300X. No ladder is held out from these any more.
Kernels of three ladders were mended to be what was measured: blocks of those transposes are 32 x 32,
`softmax-4070tis` loads 16 bytes at once, and v3 of
`sgemm-4070tis` keeps its results in an array that a loop goes through. Later v5 of that ladder got the tiles, the
checks of bounds and the single words that were measured, and the loops of `reduce-3050m` the size of the block as a
variable, so that remainders are divisions. A row with a star is no independent check,
for a constant comes from it.

Of a ladder's order two figures are given, Spearman's rank correlation both. The first takes figures that were measured
within 5 % of each other as if they were in no order, which two measurements of one thing do not exceed often (3 to
8 %): the predictions put them in theirs. The second takes what was published, digit by digit. Predictions are never
rounded. The rule is one for all ladders. An earlier version of this page let predictions within 5 % share a place as
well; the last column says what that gives.

Written by `python -m hcq.tools.bench.model.page` from `tools/bench/model/counted.json`, which `python -m
hcq.tools.bench.model.count` makes anew (a quarter of an hour; nvrtc for NVIDIA's kernels, clang for AMD's).
"""
MISSES = """
## Where it misses, and why

A ratio is the predicted time over the measured one. Of those further off than 1.5 this is the likely cause,
which nobody has measured.
"""
HOW = """
## How the time is made

A unit (SM or CU) runs as many blocks at once as it has room for. Three things are computed for a launch, and
put together (`hcq/performance/model/time.py`):

- **What the parts of a unit work**: each pipe by its lanes, instruction issue, the path of loads and stores
  through the first-level cache and shared memory, matrix units at the rate that products sustain, the port to
  L2 (`resources.py`). On NVIDIA an access to global memory takes what its banks take, as in shared memory, or
  0.85 + 0.24 clocks for each line of 128 bytes; on AMD another rule holds (`l1_path.py`). What `cp.async`
  copies, or a bulk copy, passes that path once, as it is stored to shared memory.
- **What the whole chip works**: the begin of one block after another, L2, the cache behind it, DRAM at the share of
  its rate that programs get, atomics by how many of them change one line. On an MI200, L2 has 32 channels, each for
  every 32nd piece of 256 bytes. What blocks ask for meets in one of them only if a block does so in its whole time,
  and so do blocks that run together.
- **What a warp waits**: chains of instructions of which each needs the one before, seen from the text of the
  kernel (PTX scheduled as ptxas does it; AMD's own waits). Loads wait for the level that answers the slowest of
  those that are waited for together (`waiting.py`). A unit hides this only as far as it has warps: Little's
  law.

A block whose warps meet at barriers has its own work in its way, too: what others do can fill its waiting alone
(`time.py`). Blocks that look for words which others store (scans by look-back) wait for them one after the other, as
many at once as a warp looks at: a store and a load of L2 each.

Then there is what a launch costs, and the last round of blocks, which may be for a few units only. Emulators
count what is needed for this in the same steps as before, and nothing when nobody listens.

What PTX hides is weighed by what ptxas makes of it (`hcq/emu/nv/shader/sass_weights.py`, `merged_loads.py`),
and tests compare that with nvdisasm.

Registers are those of the machine code where a kernel has some. Of PTX alone they are estimated
(`register_estimate.py`), as of the kernels of tensor programs. Beside ptxas 13, of 78 such kernels (all of
`kernels_golden/sm_80` and `sm_90`) 68 are within a factor of 1.25 and 73 within 1.5, fewer than 32 counted as 32,
which every warp may have; the worst is said to need 40 and needs 90, for ptxas unrolls its loop. Of the 77
kernels of this page in CUDA C, compiled for sm_86, 73 are within 1.25 and all within 1.5. Tests keep both.

## What is not here

Of the published ladders that were found these have no kernel of ours: libraries alone, whose kernels nobody described
(CUB's and rocPRIM's sorts, cuBLASLt's and hipBLASLt's products by size, FlashAttention 2 and 3, CUB's transforms); what
needs copies and products of whole tiles by Hopper's and Blackwell's engines (wgmma-h100, tcgen05-b200,
transpose-tma-h100); steps in assembly (sgemm-7900xtx, 6 to 8); chips without a row (MI300A). Pointer chases, streams of
an A100 and caches by size give constants, and check none. Of M1 to M4, RX 9070 XT and MI355X no ladder was found as
text; their rates are those that others measured on a relative, or inferred, and `rates_*.py` says which.

## What it does not know

- Caches drop what came first, whatever its address: their sets are not modelled, nor which blocks share an L1
  where only a sample of them ran. AMD says that a hash spreads addresses over channels, and not which; the model
  has none. Channels of memory, and the buffers that translate addresses, are not modelled.
- Clocks under load: rates of matrix units and of float32 on GA102 are those that libraries sustain; other
  clocks are the boost clock.
- Warps that wait for each other at mbarriers of a pipeline are taken as if they came in time.
- Of PTX, a warp's chain is cut at each `mma.sync`: a load that stands behind one is taken to be asked for after it,
  which ptxas need not do. It costs kernels that read operands straight from memory, with a short `k`, up to a third.
- The latency of an asynchronous bulk copy is taken to be hidden.
"""
# (ladder, row) -> why the model is off
ROWS_APART = (
    "AMD's profiler shows for this kernel an L1 that never hits, an L2 that hits 93 % and a request of 64 bytes for "
    "each 11 clocks of a CU (rocprof-compute/4-StridedAccess of the same source). The model's never hits either. "
    "Waves that go through rows of one channel in step keep most channels waiting, or the buffers that translate "
    "addresses do, and neither is published"
)
ONE_WAVE = (
    "one wave of a CU, whose 64 rows are a power of two apart: the time is that of a load of DRAM for each step, as if "
    "L1 kept none of 64 lines, and the model's keeps them; its sets are not published"
)
OWN_BANKS = (
    "theirs has tiles of 128 x 64 x 64, checks bounds and loads single words; so does ours, but how theirs lies in "
    "shared memory is not said: ours reads four words of one bank at once"
)
LINES_OF_ATOMICS = (
    "16,000 atomics on 64 words: how soon those of other words of a line follow was measured on an H100 alone"
)
PARTS_OF_LINES = "a store of a part of a line is taken to keep a channel as long as one of all of it"
TWENTY_MORE = (
    "rows of half the length were measured at more than half the time, by some 20 us in all cases, which no "
    "launch costs"
)
# rows that a constant comes from
GIVE_CONSTANTS = {
    ("intensity-a100-40", "48 steps"),  # time.BOUND_TOGETHER
    ("histogram-h100", "global atomics"),  # line_words
    ("small-a100-graph", "60482 elements"),  # begin_clocks
    ("small-a100", "60482 elements"),  # the same
    ("copy-width-h100", "uint8_t"),  # warp_clocks
    ("small-a100", "4096 elements"),  # launch_s
    ("small-a100-graph", "4096 elements"),  # graph_s
    ("small-mi210", "4096 elements"),  # launch_s
    ("small-mi210-graph", "4096 elements"),  # graph_s
    ("mma-4090", "3.1 larger tiles"),  # matrix_share: as fast as the library that it comes from
}
# ladder -> why its order is not the measured one
WHY_ORDER = {
    "mma-a100-40": "v5 is measured slower than v4, which its author does not understand either, and v3 and v5 as slow "
    "as each other; predicted are v3 to v6 within 4 %, for matrix units bound all of them"
}
WHY: dict[tuple[str, str], str] = {
    ("yax-mi210", "4 blocks of 64"): ONE_WAVE,
    ("yax-mi210", "2048 blocks of 64"): ROWS_APART,
    ("transpose-mi210", "read contiguous"): PARTS_OF_LINES,
    ("sgemm-4070tis", "v5 warp tiles"): OWN_BANKS,
    ("rowsum-4070tis", "v2 tree"): LINES_OF_ATOMICS,
    ("reduce-3050m", "sequential"): "the size of its blocks is not known, nor the laptop's clock",
    ("layernorm-a100", "plain, rows of 4096"): TWENTY_MORE,
}


def page(found: Sequence[Row]) -> str:
    """docs/model.md."""
    parts = [HEAD, "\n".join(_summary(found)), "\n## The ladders\n"]
    for held in (False, True):
        parts.append("\n### Held out\n" if held else "\n### Looked at while the model was written\n")
        for name, ladder in ladders(found).items():
            if ladder[0].case.is_held_out is held:
                parts.append("\n".join(_table(name, ladder)))
    parts += [MISSES, "\n".join(_misses(found)), "\n", HOW]
    return "".join(parts)


def _summary(found: Sequence[Row]) -> Iterator[str]:
    yield (
        "\n| | kernels | within 1.5 | beyond 3 | ladders with a rank correlation of at least 0.9 | digit by digit "
        "| ties of both |"
    )
    yield "|---|---|---|---|---|---|---|"
    for title, some in (("looked at", [False]), ("held out", [True]), ("all", [False, True])):
        mine = [row for row in found if row.case.is_held_out in some]
        near, far = sum(row.off <= NEAR for row in mine), sum(row.off > FAR for row in mine)
        good, exact, ties, count = _ordered(mine)
        part = f"{near} ({near / max(1, len(mine)):.0%})"
        yield f"| {title} | {len(mine)} | {part} | {far} | {good} of {count} | {exact} of {count} | {ties} of {count} |"
    yield ""


def _ordered(found: Sequence[Row]) -> tuple[int, int, int, int]:
    """Ladders in good order; digit by digit; where predictions that are alike share a place, too; all with an order."""
    good = exact = ties = count = 0
    for one in ladders(found).values():
        ranked, by_digit = order(one), order(one, 0.0)
        if ranked is None or by_digit is None:
            continue
        both = [alike([row.case.microseconds for row in one]), alike([row.microseconds for row in one])]
        good, exact, count = good + (ranked >= GOOD_ORDER), exact + (by_digit >= GOOD_ORDER), count + 1
        ties += rank_correlation(*both) >= GOOD_ORDER
    return good, exact, ties, count


def _table(name: str, ladder: Sequence[Row]) -> Iterator[str]:
    ranked = order(ladder)
    chips = ", ".join(dict.fromkeys(datasheets.chip(row.case.chip).title for row in ladder))
    exact = order(ladder, 0.0)
    orders = (
        ""
        if ranked is None or exact is None
        else f"; rank correlation {ranked:.2f}, digit by digit {exact:.2f}"
    )
    yield f"\n**{name}** on {chips}{orders}."
    sources = ", ".join(dict.fromkeys(row.case.source for row in ladder))
    notes = "; ".join(dict.fromkeys(row.case.note for row in ladder if row.case.note))
    yield f"Source: {sources}." + (f" Assumed: {notes}." if notes else "") + "\n"
    yield "| kernel | measured, us | predicted, us | ratio | floor, us | bound by |"
    yield "|---|---|---|---|---|---|"
    for row in ladder:
        yield (
            f"| {_starred(row.case)} | {row.case.microseconds:.4g} | {row.microseconds:.4g} | {row.ratio:.2f} | "
            f"{1e6 * row.floor:.4g} | {row.found.bound_by} |"
        )
    yield ""


def _starred(case: Case) -> str:
    return case.row + ("\\*" if (case.ladder, case.row) in GIVE_CONSTANTS else "")


def _misses(found: Sequence[Row]) -> Iterator[str]:
    for name, ladder in ladders(found).items():
        ranked = order(ladder)
        if ranked is not None and ranked < GOOD_ORDER:
            yield f"- The order of `{name}` ({ranked:.2f}): {WHY_ORDER.get(name, 'not explained yet')}."
    for row in found:
        if row.off > NEAR:
            why = WHY.get((row.case.ladder, row.case.row), "not explained yet")
            yield f"- `{row.case.ladder}`, {row.case.row} ({row.ratio:.2f}): {why}."


def main() -> None:
    """See the head."""
    parser = argparse.ArgumentParser(description="The model beside measurements.")
    parser.add_argument("--show", action="store_true", help="print the ladders, write nothing")
    parser.add_argument("--held-out", action="store_true", help="with --show: also those that were held out")
    asked = parser.parse_args()
    found = rows()
    if asked.show:
        print("\n".join(show([row for row in found if asked.held_out or not row.case.is_held_out])))
    else:
        (DOCS / "model.md").write_text(page(found))


if __name__ == "__main__":
    main()
