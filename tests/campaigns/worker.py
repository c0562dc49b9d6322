"""The worker: runs cases of one campaign, one after the other, and says how each went.

In       module, campaign, seed, first case, how many, a descriptor to report to: arguments of the command line; or the
         first four alone, to explain that case
Out      lines of JSON: {"case": 7} when one starts, {"outcome": "right"} or {"wrong": text} when it ends, and what the
         process holds then
Changes  whatever the cases change; this process is theirs to ruin
Next     runner.py (reads the lines, and knows what silence means)
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import threading
import traceback
from pathlib import Path

from tests.campaigns.campaign import Case, Wrong, declared_in

SAMPLE_EVERY = 8  # cases


def held() -> dict[str, int]:
    """What this process holds: resident bytes, memory maps, descriptors, threads."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "maps": Path("/proc/self/maps").read_bytes().count(b"\n"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def main(module: str, name: str, seed: int, first: int, count: int, report: int) -> None:
    """Run cases `first` to `first + count - 1`."""
    faulthandler.enable()
    os.set_inheritable(report, False)
    campaign = declared_in(module)[name]
    with open(report, "w", buffering=1, encoding="utf-8") as out:
        for number in range(first, first + count):
            print(json.dumps({"case": number}), file=out)
            try:
                line = {"outcome": campaign.run(Case(name, seed, number)).value}
            except Wrong as wrong:
                line = {"wrong": str(wrong)}
            except Exception:
                line = {"wrong": traceback.format_exc()}
            if campaign.is_flat and number % SAMPLE_EVERY == 0:
                line["held"] = held()  # type: ignore[assignment]
            print(json.dumps(line), file=out)


def explain(module: str, name: str, seed: int, number: int) -> None:
    """Print what the campaign tells of a case that failed."""
    campaign = declared_in(module)[name]
    assert campaign.explain is not None
    print(campaign.explain(Case(name, seed, number)))


if __name__ == "__main__":
    job = main if len(sys.argv) > 5 else explain
    job(*sys.argv[1:3], *[int(word) for word in sys.argv[3:]])
