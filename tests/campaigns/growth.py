"""Programs that differ, one after the other, for ever: memory, maps, descriptors and threads stay as they are.

In       a case; its random numbers make programs that no other case has
Out      Outcome.RIGHT; Wrong when a number differs or when more is kept than the caches' limits say
Changes  limits of the caches in memory, so that hundreds of programs show what tens of thousands would
Next     frontend/run/plan.py and compiler/compile.py (what is kept), hcq/cpu/arena.py (code), runner.py (who measures)
"""

from __future__ import annotations

import collections
import gc
import random
from typing import Any

import numpy as np

from hcq import Tensor
from hcq.compiler import compile as compiling
from hcq.frontend.core import device as devices
from hcq.frontend.run import plan as plans
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

KEPT = 16  # plans, objects, and submissions that a device remembers

STEPS: list[tuple[str, Any, Any]] = [
    ("* {0}", lambda x, n: x * n, lambda a, n: a * n),
    ("+ {0}", lambda x, n: x + n, lambda a, n: a + n),
    ("- max", lambda x, n: x - x.max(), lambda a, n: a - a.max()),
    ("relu", lambda x, n: x.relu(), lambda a, n: np.maximum(a, 0)),
    ("flip", lambda x, n: x.flip(0), lambda a, n: a[::-1]),
    ("transposed", lambda x, n: x.T, lambda a, n: a.T),
    ("padded", lambda x, n: x.pad((n % 3, 1)), lambda a, n: np.pad(a, ((0, 0), (n % 3, 1)))),
]


def program(case: Case, rng: random.Random, number: int) -> None:
    """One program that no case but this has: its number is a constant in it."""
    rows, columns = rng.randint(1, 9), rng.randint(1, 9)
    a = np.array([[rng.randint(-4, 4) for _ in range(columns)] for _ in range(rows)], np.float32)
    unique = float(8 * case.number + number)
    x, said = Tensor(a) + unique, [f"{a.shape} + {unique}"]
    a = a + np.float32(unique)
    for _ in range(rng.randint(0, 3)):
        name, of_tensor, of_array = rng.choice(STEPS)
        n = rng.randint(1, 5)
        x, a = of_tensor(x, n), of_array(a, np.float32(n) if name[0] in "*+" else n)
        said.append(name.format(n))
    found = x.numpy()
    if not np.array_equal(found, a):
        raise Wrong(f"{', '.join(said)} is {found.tolist()}, not {a.tolist()}")


def run(case: Case) -> Outcome:
    limit()
    rng = case.rng()
    for number in range(2):
        program(case, rng, number)
    if case.number % 16 == 0:
        check()
    return Outcome.RIGHT


def limit() -> None:
    """Small caches from the first case on."""
    plans.MAX_PLANS = compiling.MAX_KEPT = KEPT
    device = devices.get(devices.default())
    if device.recent.maxlen != KEPT:
        device.recent = collections.deque(maxlen=KEPT)


def check() -> None:
    """No more is kept than the limits say."""
    gc.collect()
    kept = {"plans": len(plans._plans), "objects": len(compiling._memory), "programs": len(plans._programs)}
    for what, count in kept.items():
        if count > 4 * KEPT:
            raise Wrong(f"{count} {what} are kept, and {KEPT} plans")


def campaign(kind: str, short: int, **environment: str) -> Campaign:
    return Campaign(f"growth-{kind}", f"programs that differ, on {kind}", run, short, environment)


CAMPAIGNS = (
    campaign("cpu", 112),
    campaign("amd", 33, HCQ_EMULATE="amd:gfx1100", HCQ_DEVICE="AMD"),
    campaign("nv", 33, HCQ_EMULATE="nv:sm_90", HCQ_DEVICE="NV"),
)
