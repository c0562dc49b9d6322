"""Our kernels beside Triton's, by the performance model, as a table; no GPU is needed, and none is used.

In       names of architectures and of rows; Triton, where its side is to be counted anew
Out      a table: microseconds of ours and of Triton's, Triton's over ours, floors, instructions, registers
Changes  tools/bench/triton/counted.json, with --triton
Next     bench/triton/ (the rows, and how they are counted), docs/model.md (what the figures mean)

    python -m hcq.tools.bench_gpu_model --gpus sm_90 --rows attention softmax
    python -m hcq.tools.bench_gpu_model --triton      count Triton's side anew (pip install 'hcq[triton]')
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__" and __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.performance import datasheets
from hcq.tools.bench.triton import count
from hcq.tools.bench.triton.count import Side
from hcq.tools.bench.triton.rows import ROWS

ARCHS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "gfx1100")
HEAD = (
    "| GPU | operation | ours, us | Triton, us | Triton / ours | floors, us | instructions | registers | ours bound by "
    "| Triton's tile |\n|---|---|---|---|---|---|---|---|---|---|"
)


def line(arch: str, name: str, ours: Side, theirs: Side | None) -> str:
    """One row of the table."""
    mine = ours.seconds(arch)
    cells = [arch, name, f"{1e6 * mine:.4g}"]
    if theirs is None:
        cells += ["", "", f"{1e6 * ours.floor(arch):.4g}, none", f"{ours.instructions:.3g}, none"]
        cells += [f"{ours.registers}", ours.bound_by(arch), "does not compile it"]
    else:
        other = theirs.seconds(arch)
        cells += [f"{1e6 * other:.4g}", f"{other / mine:.2f}"]
        cells += [f"{1e6 * ours.floor(arch):.4g}, {1e6 * theirs.floor(arch):.4g}"]
        cells += [f"{ours.instructions:.3g}, {theirs.instructions:.3g}"]
        cells += [f"{ours.registers}, {theirs.registers}", ours.bound_by(arch), theirs.how]
    return "| " + " | ".join(cells) + " |"


def table(archs: Sequence[str], words: Sequence[str], with_triton: bool) -> list[float]:
    """Prints the rows whose names contain one of the words. Returns Triton's times over ours."""
    ratios = []
    names = [name for name in ROWS if any(word in name for word in words)]
    print(HEAD, flush=True)
    for arch in archs:
        assert datasheets.for_arch(arch) is not None
        for inexact in sorted({ROWS[name].inexact for name in names}):
            if inexact and not arch.startswith("sm_"):
                continue
            with count.emulated(arch, inexact) as device:
                for name in names:
                    if ROWS[name].inexact != inexact:
                        continue
                    key = f"{arch} {name}"
                    kept = count.load()
                    if with_triton or key not in kept:
                        found = count.theirs(device, ROWS[name])
                        kept = {**count.load(), key: found}
                        count.save(kept)
                    ours, theirs = count.ours(device, ROWS[name]), kept[key]
                    print(line(arch, name, ours, theirs), flush=True)
                    if theirs is not None:
                        ratios.append(theirs.seconds(arch) / ours.seconds(arch))
    return ratios


def main() -> int:
    """See the head."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", nargs="+", default=ARCHS, choices=ARCHS, metavar="GPU")
    parser.add_argument(
        "--rows", nargs="+", default=[""], metavar="TEXT", help="rows whose names contain one of these"
    )
    parser.add_argument("--triton", action="store_true", help="count Triton's side anew")
    options = parser.parse_args()
    ratios = table(options.gpus, options.rows, options.triton)
    if ratios:
        print(
            f"\n{sum(one >= 1 for one in ratios)} of {len(ratios)} rows at least level; worst {min(ratios):.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
