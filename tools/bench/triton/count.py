"""Count: both sides of a row on an emulated GPU, some blocks of each launch.

In       a Row, an architecture
Out      Side: the launches of ours or of the best of Triton's, and their time by the model
Changes  counted.json, by `save`
Next     rows.py (what is compared), launches.py (Triton's), ../../bench_gpu_model.py (the table), ../model/count.py
         (of the ladders)
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hcq
from hcq import config
from hcq.performance import counters, datasheets
from hcq.performance.counters import Counters
from hcq.performance.roofline import predict
from hcq.tools.bench.triton import launches
from hcq.tools.bench.triton.rows import Row

COUNTED = Path(__file__).with_name("counted.json")
LONGEST_MS = 600_000


@dataclass(frozen=True)
class Side:
    """What computes a row: its launches, in order, each a whole one; how it was launched, in words."""

    launches: tuple[Counters, ...]
    how: str = ""

    def seconds(self, arch: str) -> float:
        """By the model, each launch behind the one before."""
        return sum(predict(one, _chip(arch)).seconds for one in self.launches)

    def floor(self, arch: str) -> float:
        """At least so long."""
        return sum(predict(one, _chip(arch)).floor_seconds for one in self.launches)

    @property
    def instructions(self) -> int:
        """Of machine code, that warps issue: of PTX, what ptxas makes of it."""
        return sum(sum(one.ops.values()) or one.warp_instructions for one in self.launches)

    @property
    def registers(self) -> int:
        """Of the launch that takes most."""
        return max(one.registers for one in self.launches)

    def bound_by(self, arch: str) -> str:
        """Of the longest launch."""
        return max(
            (predict(one, _chip(arch)) for one in self.launches), key=lambda one: one.seconds
        ).estimate.bound_by


def _chip(arch: str) -> datasheets.Datasheet:
    chip = datasheets.for_arch(arch)
    if chip is None:
        raise hcq.errors.UsageError(f"{arch}: there is no datasheet of such a chip.")
    return chip


@contextmanager
def emulated(arch: str, inexact: str = "") -> Iterator[Any]:
    """An open emulated GPU, which tensors are on."""
    kind = "nv" if arch.startswith("sm_") else "amd"
    before = config.current()
    config.use(
        dataclasses.replace(
            before,
            emulate=(f"{kind}:{arch}",),
            device=kind.upper(),
            timeout_ms=LONGEST_MS,
            inexact=frozenset(inexact.split()),
        )
    )
    device = hcq.open(kind.upper())
    try:
        yield device
    finally:
        device.close()
        config.use(before)


def _whole(one: Counters, times: int) -> Counters:
    x, y, z = one.grid
    made = one.whole((x * times, y, z)) if times > 1 else one.whole()
    return dataclasses.replace(made, entry=0, launches=1)


def ours(device: Any, row: Row) -> Side:
    """Counts our kernels."""
    run = row.ours()
    device.synchronize()
    with counters.count(row.blocks) as found:
        run()
        device.synchronize()
    return Side(tuple(_whole(one, row.times) for one in found))


def theirs(device: Any, row: Row) -> Side | None:
    """Triton's best, None where it compiles none of them."""
    best: Side | None = None
    for option in row.theirs(_chip(device.arch)):
        try:
            counted = [launches.count(device, one, row.blocks, LONGEST_MS) for one in option]
        except Exception as error:  # whatever Triton raises: no room, no such type
            print(f"  {row.name}: {describe(option[-1])}: {str(error).strip()[-160:]!r}", file=sys.stderr)
            continue
        made = Side(tuple(_whole(one, row.times) for one in counted), describe(option[0]))
        if best is None or made.seconds(device.arch) < best.seconds(device.arch):
            best = made
    return best


def describe(launch: launches.Launch) -> str:
    """Its tile, warps and stages."""
    sizes = "x".join(str(value) for value in launch.constants.values() if type(value) is int)
    return f"{sizes}, {launch.warps} warps, {launch.stages} stages"


def load() -> dict[str, Side | None]:
    """Triton's best launches, as they were counted."""
    if not COUNTED.exists():
        return {}
    found: dict[str, Side | None] = {}
    for key, kept in json.loads(COUNTED.read_text()).items():
        found[key] = kept and Side(tuple(Counters.from_fields(one) for one in kept["launches"]), kept["how"])
    return found


def save(found: dict[str, Side | None]) -> None:
    """Keep them, one row a line."""
    empty = Counters().as_fields()
    lines = []
    for key, made in sorted(found.items()):
        kept = made and {
            "how": made.how,
            "launches": [
                {name: _short(value) for name, value in one.as_fields().items() if value != empty[name]}
                for one in made.launches
            ],
        }
        lines.append(f"{json.dumps(key)}: {json.dumps(kept)}")
    COUNTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return value
