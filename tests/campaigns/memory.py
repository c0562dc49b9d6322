"""Memory: programs that run out of it, at any allocation, on any kind of device.

In       a case
Out      the right numbers, or one DriverError that says out of memory; then, with memory back, the right numbers;
         nothing is lost of what was there before, and nothing is kept
Changes  the device's map_memory while a case runs
Next     hcq/memory.py (what gives way before memory is out), faults.py (any other call that fails)

The system refuses memory once, by chance, from some allocation on, or beyond some number of bytes. Blocks that the pool
keeps must have gone back before anything is refused.
"""

from __future__ import annotations

import errno
import gc
import platform
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hcq.errors import DriverError, HcqError
from hcq.system.port import refused
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

SIZES = (300, 9_000, 40_000, 130_000)  # elements: parts of a slab, and mappings of their own
SCRATCH_BYTES = 16 << 10  # that a program asks for beyond what others had
Refuses = Callable[[int], bool]


class Model:
    """Some state that steps change in place, and what it should be."""

    def __init__(self, rng: random.Random, size: int, how: str):
        from hcq import Tensor, jit

        self.how = how
        self.x = np.array([rng.randrange(-8, 9) for _ in range(50)], np.float32).repeat(-(-size // 50))[:size]
        self.w = np.arange(size, dtype=np.float32) % 7
        self.tensor = Tensor(self.w).realize()
        self.jitted = jit(self.compute)

    def compute(self, x: Any) -> Any:
        from hcq import Tensor

        if self.how == "join":
            y = Tensor.cat([x + i for i in range(12)])[: x.shape[0]].contiguous()
        elif self.how == "sort":
            y = x.sort()[0]
        elif self.how == "running":
            y = x.cumsum(0)
        elif self.how == "scatter":
            y = x.clone()
            y[Tensor.arange(x.shape[0]).flip(0)] = x
        else:
            y = ((x * 2).contiguous() + x.flip(0)).contiguous() * 1.0
        z = (y + self.tensor).realize()
        self.tensor.assign(self.tensor + 1).realize()
        return z

    def expected(self) -> np.ndarray:
        x = self.x
        made = {
            "join": lambda: x,
            "sort": lambda: np.sort(x),
            "running": lambda: np.cumsum(x, dtype=np.float64).astype(np.float32),
            "scatter": lambda: x[::-1],
            "steps": lambda: x * 2 + x[::-1],
        }
        return made[self.how]() + self.w

    def step(self, is_jitted: bool) -> None:
        """One step on the device; the state may have changed once this returns or raises."""
        from hcq import Tensor

        x = Tensor(self.x)
        found = (self.jitted if is_jitted else self.compute)(x).numpy()
        if not np.array_equal(found, self.expected()):
            raise Wrong(f"{self.how} of {self.x.size}: wrong numbers")
        self.w = self.w + 1

    def settle(self) -> None:
        """After a refusal: the state is that of before the step or of after it, all of it."""
        state = self.tensor.numpy()
        if np.array_equal(state, self.w + 1):
            self.w = self.w + 1
        elif not np.array_equal(state, self.w):
            raise Wrong(f"{self.how} of {self.x.size}: a step that was refused left half of its state")


@contextmanager
def refusing(device: Any, refuses: Refuses) -> Iterator[list[int]]:
    """The device's system refuses memory where `refuses` says so, of a size.

    Gives    for each refusal, what the pool kept at that moment for later use
    """
    given = type(device).map_memory
    kept: list[int] = []

    def map_memory(size_bytes: int) -> int:
        if refuses(size_bytes):
            kept.append(device.memory.free_large_bytes)
            raise refused(f"mmap(size_bytes={size_bytes})", errno.ENOMEM)
        return int(given(device, size_bytes))

    device.map_memory = map_memory
    try:
        yield kept
    finally:
        del device.map_memory


def _plan(rng: random.Random, device: Any) -> Refuses:
    """When memory is refused."""
    kind = rng.choice(("once", "chance", "from", "limit"))
    count = 0
    first, chance = rng.randrange(1, 5), rng.choice((0.2, 0.5, 0.8))
    most = device.memory.mapped_bytes + rng.choice((0, 1 << 16, 1 << 18, 1 << 20, 3 << 20))

    def refuses(size_bytes: int) -> bool:
        nonlocal count
        count += 1
        if kind == "once":
            return count == first
        if kind == "chance":
            return rng.random() < chance
        if kind == "from":
            return count >= first
        return bool(device.memory.mapped_bytes + size_bytes > most)

    return refuses


def run(case: Case) -> Outcome:
    """A model's steps while memory is short, and after."""
    from hcq.frontend.core import device as devices

    rng = case.rng()
    device = devices.get(devices.default())
    before = _kept(device)
    size, how = rng.choice(SIZES), rng.choice(("join", "sort", "running", "scatter", "steps"))
    if device.arch != platform.machine():  # where every instruction is emulated
        size, how = rng.choice(((100, how), (18_000, "steps")))
    model = Model(rng, size, how)
    is_jitted = rng.random() < 0.4
    for _ in range(rng.randrange(4)):
        model.step(is_jitted)
    device.memory.trim(0, wait=True)
    spare = [device.alloc(rng.choice((70_000, 500_000, 3_000_000)), "spare") for _ in range(rng.randrange(4))]
    del spare  # what the pool keeps of them must not be what is missing
    was_refused = False
    refuses = _plan(rng, device)
    with refusing(device, refuses) as kept:
        try:
            if rng.random() < 0.2:
                _load_with_scratch(device)
            for _ in range(rng.randrange(1, 4)):
                model.step(is_jitted)
        except HcqError as error:
            was_refused = True
            _judge(error, kept)
    model.settle()
    for _ in range(2):
        model.step(is_jitted)
    del model
    after = _kept(device)
    if after[0] > before[0] or after[1] > before[1] + (4 << 20):
        raise Wrong(
            f"{after[0] - before[0]} buffers and {after[1] - before[1]} bytes more than before the case"
        )
    return Outcome.REFUSED if was_refused else Outcome.RIGHT


def _load_with_scratch(device: Any) -> None:
    """A program whose private memory is more than any before it had: memory that is not the pool's."""
    from hcq import Tensor

    (plan,) = Tensor([1.0, 2.0]).realize().exp().schedule()
    (launch,) = plan.launches
    has_workers = device.arch == platform.machine()  # which get their private memory when a program is loaded
    scratch_bytes = device._scratch_stride + SCRATCH_BYTES if has_workers else 0
    device.load(launch.image, launch.entry, scratch_bytes=scratch_bytes)


def _judge(error: HcqError, kept: list[int]) -> None:
    """A refusal is one clear error, and the pool had given back what it kept before it was final."""
    if type(error) is not DriverError or "ENOMEM" not in str(error) or not kept:
        raise Wrong(f"{type(error).__name__}: {error}") from error
    error.__traceback__ = None  # its frames hold tensors
    error.__context__ = error.__cause__ = None
    if kept[-1]:
        raise Wrong(f"refused while the pool kept {kept[-1]} bytes: {error}")


def _kept(device: Any) -> tuple[int, int]:
    """Buffers, and bytes that are mapped when nothing is kept for later."""
    from hcq.frontend.run import plan

    gc.collect()
    device.synchronize()
    if device.arch != platform.machine():  # code lies in buffers
        plan._plans.clear()
        plan._programs.clear()
    device.recent.clear()  # which holds the buffers of the last submissions
    gc.collect()
    device.memory.trim(0, wait=True)
    return len(device.memory.owners()), device.memory.mapped_bytes


def _on(kind: str) -> dict[str, str]:
    name = {"amd": "AMD", "nv": "NV"}[kind[: kind.index(":")]]
    return {"HCQ_EMULATE": kind, "HCQ_DEVICE": name, "HCQ_TIMEOUT_MS": "120000"}


INJECTS = "memory that the system refuses once, by chance, from some allocation on, or beyond a limit"
CAMPAIGNS = (
    Campaign("memory", INJECTS, run, short=30),
    Campaign(
        "memory-amd", f"{INJECTS}, on an emulated AMD GPU", run, short=2, environment=_on("amd:gfx1100")
    ),
    Campaign("memory-nv", f"{INJECTS}, on an emulated NVIDIA GPU", run, short=2, environment=_on("nv:sm_90")),
)
