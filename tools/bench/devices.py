"""What several devices of a machine tell each other: routes, collectives beside the cost model, a training step.

In       the devices (default CPU:0 and CPU:1); how many rounds (--rounds), sizes of collectives in bytes (--sizes)
Out      tables: the route of every pair; each collective's time by ring and by tree beside the model's; a data-parallel
         step with the bytes it moves: as it comes, recorded, and with collectives that nothing runs beside
Next     frontend/devices/collectives/cost.py (the model, whose numbers these tables give), docs/devices.md

    python tools/bench/devices.py CPU:0 CPU:1
    HCQ_EMULATE=amd:gfx1100,amd:gfx1100 python tools/bench/devices.py AMD:0 AMD:1 --sizes 4096

Emulated GPUs say nothing of a real one's time: there the tables show rounds, bytes and order.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from hcq import Tensor, dtypes, jit
from hcq.frontend import nn
from hcq.frontend.core import device as devices
from hcq.frontend.devices.collectives import cost, links
from hcq.frontend.devices.collectives.perform import Collective, tally
from hcq.ir.op import Op
from hcq.signal import Completion
from hcq.work.peers import companion, join


def everything_done(names: Sequence[str]) -> None:
    """Wait for the devices and their companions."""
    for name in names:
        device = devices.get(name)
        device.synchronize()
        companion(device).synchronize()


def median_ms(names: Sequence[str], act: Callable[[], object], rounds: int) -> tuple[float, float]:
    """How long the host submits, and until all is done."""
    host, whole = [], []
    for _ in range(rounds + 1):
        everything_done(names)
        start = time.perf_counter()
        act()
        host.append(1e3 * (time.perf_counter() - start))
        everything_done(names)
        whole.append(1e3 * (time.perf_counter() - start))
    return statistics.median(host[1:]), statistics.median(whole[1:])


def collectives(names: Sequence[str], sizes: Sequence[int], rounds: int) -> None:
    """A row for each collective, size and way."""
    opened, n = [devices.get(name) for name in names], len(names)
    link = links.slowest(opened)
    print(
        f"\n{'collective':16}{'bytes':>12}  {'way':6}{'rounds':>7}{'sent':>14}{'model us':>10}{'us':>10}  model takes"
    )
    for kind in cost.KINDS:
        for size in sizes:
            each = size // 4 // n // 64 * 64 or 64
            total = n * each
            counts = [[total if kind in ("all-reduce", "broadcast") else each] * n] * n
            for way in cost.WAYS:
                made = Collective(names, kind, Op.ADD, dtypes.float32, counts, way)
                before = tally.peer_bytes + tally.staged_bytes
                _, whole = median_ms(names, prepared(made, opened, 4 * total), rounds)
                sent = (tally.peer_bytes + tally.staged_bytes - before) // (rounds + 1)
                best = cost.way(kind, n, 4 * total, link)
                print(
                    f"{kind:16}{4 * total:12,}  {way:6}{len(made.rounds):7}{sent:14,}{1e6 * made.seconds:10.0f}"
                    f"{1e3 * whole:10.0f}  {best if best == way else ''}"
                )


def prepared(made: Collective, opened: Sequence[Any], size_bytes: int) -> Callable[[], object]:
    """A collective with memory of its own, to be run again and again."""
    sources = [device.alloc(size_bytes, "source") for device in opened]
    results = [device.alloc(size_bytes, "result") for device in opened]
    for source in sources:
        source.write(bytes(size_bytes))

    def act() -> None:
        after = [Completion(device, device.timeline.submitted) for device in opened]
        done, held = made.run(sources, results, after)
        for device in opened:
            others = {one.device: one.value for one in done if one.device is not device}
            join(device, others, [*held, *sources, *results])

    return act


class Trainer:
    """A network of three layers on a group, and its step."""

    def __init__(self, group: str, width: int) -> None:
        self.net = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        ).shard(group)
        self.optimizer = nn.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        loss = ((self.net(x) - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach().realize()


def training(names: Sequence[str], width: int, batch: int, rounds: int) -> None:
    """A data-parallel step: as it comes, recorded, and one thing after the other."""
    group = devices.group(list(names))
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((batch, width)).astype(np.float32)).shard(group, 0).realize()
    y = Tensor(rng.standard_normal((batch, 10)).astype(np.float32)).shard(group, 0).realize()
    trainer = Trainer(group, width)
    recorded: Any = jit(trainer.step)
    # about a bucket for each layer
    limit, cost.bucket_bytes = (cost.bucket_bytes, lambda *_: 2 * width * width)
    kind: Any = Collective
    run = kind.run

    def alone(what: Collective, sources: Any, results: Any, after: Any) -> Any:
        everything_done(names)
        found = run(what, sources, results, after)
        everything_done(names)
        return found

    try:
        for _ in range(3):
            recorded(x, y)
        rows = [("recorded", median_ms(names, lambda: recorded(x, y), rounds))]
        before = tally.peer_bytes + tally.staged_bytes, tally.added_bytes
        rows.append(("as it comes", median_ms(names, lambda: trainer.step(x, y), rounds)))
        moved = (tally.peer_bytes + tally.staged_bytes - before[0]) // (rounds + 1)
        added = (tally.added_bytes - before[1]) // (rounds + 1)
        kind.run = alone
        rows.append(("one after the other", median_ms(names, lambda: trainer.step(x, y), rounds)))
    finally:
        kind.run = run
        cost.bucket_bytes = limit
    print(
        f"\na step of {batch} rows through three layers of width {width} on {group}: "
        f"{moved:,} B moved, {added:,} B added"
    )
    for what, (host, whole) in rows:
        print(f"  {what:20} host {host:9.2f} ms, until all is done {whole:9.2f} ms")
    hidden = rows[2][1][1] - rows[1][1][1]
    print(f"  hidden by running beside each other: {hidden:.2f} ms")


def main() -> None:
    """All tables, for the devices of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("devices", nargs="*", default=["CPU:0", "CPU:1"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1 << 10, 1 << 16, 1 << 22])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    names = [devices.canonical(name) for name in given.devices]
    for pair, way in links.facts([devices.get(name) for name in names]).items():
        print(f"{pair:24} {way}")
    collectives(names, given.sizes, given.rounds)
    training(names, given.width, given.batch, given.rounds)
    print(f"\n{tally}")


if __name__ == "__main__":
    main()
