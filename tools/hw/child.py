"""The child: one item in this process; the last line of standard output is what it found, as JSON.

In       the item's name, the device's name, the folder, its deadline
Out      a Check; evidence in the folder when it failed
Changes  whatever the item does
Next     runner.py (who starts this), bench.py (what an item is given), plan.py (the items)
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

from hcq.doctor.check import Check, Status, answer
from hcq.doctor.report import scrub
from hcq.tools.hw import plan
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.trace.color import clean

LAST_WORDS_S = 2.0  # before the deadline every thread's stack goes to stderr


def main(argv: list[str]) -> int:
    """Run an item."""
    name, device, folder, deadline = argv
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(float(deadline) - LAST_WORDS_S, 0.01))
    item = next(one for one in plan.items(kind_of(device)) if one.name == name)
    bench = Bench(device, Path(folder), item)
    print(json.dumps(asdict(run(item, bench))), flush=True)
    # threads of the runtime may be in a hook, and must not come back to an ended interpreter
    if item.name == plan.WATCH:
        os._exit(0)
    return 0


def kind_of(device: str) -> str:
    """NV of "NV:1"."""
    return device.partition(":")[0].upper()


def run(item: plan.Item, bench: Bench) -> Check:
    """What it found. A failure brings what is known of the device at that moment."""
    result = answer(item.name, lambda: plan.function_at(item.place)(bench), bench.advise, REPORT_IT)
    if result.status == Status.FAILED:
        bench.keep_evidence()
    if bench.evidence:
        result = replace(result, figures={**result.figures, "evidence": bench.evidence})
    return replace(result, text=scrub(clean(result.text)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
