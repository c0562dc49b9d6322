"""Collectives: how long what processes and devices told each other took, beside what the cost model says.

In       a Trace
Out      a row for each name, size and number of peers; as plain data, or as text
Next     overlap.py (what of it was hidden), frontend/devices/collectives/cost.py (the model), docs/devices.md

The model has formulae for collectives of the devices of one machine, and what a link costs: by guess, until that is
measured there. What takes longer than it says waited for somebody, or for a core.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from hcq.frontend.devices.collectives import cost
from hcq.tools.trace.color import Color
from hcq.tools.trace.stats import duration
from hcq.trace.file import Trace


def rows(trace: Trace) -> list[dict[str, Any]]:
    """Spans with peers, by name, size and peers, the longest in all first. Times are seconds."""
    found: dict[tuple[str, int, tuple[int | str, ...]], list[float]] = {}
    for seen in trace.spans:
        span = seen.span
        if span.peers:
            key = span.name, span.size_bytes, span.peers
            found.setdefault(key, []).append((span.ended_ns - span.started_ns) / 1e9)
    made = [
        {
            "name": name,
            "size_bytes": size,
            "peers": len(peers),
            "count": len(times),
            "total_s": sum(times),
            "median_s": statistics.median(times),
            "min_s": min(times),
            "model_s": model_seconds(name, size, peers),
        }
        for (name, size, peers), times in found.items()
    ]
    return sorted(made, key=lambda row: (-row["total_s"], row["name"], row["size_bytes"]))


def model_seconds(name: str, size_bytes: int, peers: Sequence[int | str]) -> float | None:
    """What the cost model says of a collective of devices, by the cheaper way; None of anything else."""
    if name not in cost.KINDS or not all(isinstance(peer, str) for peer in peers):
        return None
    kinds = {str(peer).partition(":")[0] for peer in peers}
    link = cost.STAGED if len(kinds) > 1 else cost.SHARED if kinds == {"CPU"} else cost.PEER
    way = cost.way(name, len(peers), size_bytes, link)
    return cost.seconds(name, way, len(peers), size_bytes, link)


def lines(found: Sequence[dict[str, Any]], color: Color) -> Iterator[str]:
    """The same as text; nothing without communication."""
    if not found:
        return
    width = max([len(row["name"]) for row in found] + [9])
    yield color(
        f"{'told others':<{width}}  {'bytes':>10}  {'peers':>5}  {'count':>6}  {'median':>10}  {'least':>10}  "
        f"{'GB/s':>7}  {'model':>10}",
        "heading",
    )
    for row in found:
        rate = row["size_bytes"] / row["median_s"] / 1e9 if row["median_s"] else 0.0
        times = "  ".join(f"{duration(row[key]):>10}" for key in ("median_s", "min_s"))
        yield (
            f"{color(row['name'].ljust(width), 'kernel')}  {row['size_bytes']:>10}  {row['peers']:>5}  "
            f"{row['count']:>6}  {times}  {rate:7.2f}  {duration(row['model_s']):>10}"
        )
