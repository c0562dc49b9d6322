"""The bench: the device that an item works on, opened when it is first asked for, and what becomes of it.

In       the device's name, the folder, the item
Out      the device; buffers and programs; evidence of what it was doing when something failed
Changes  opens a device of this process's own
Next     checks.py, ladder.py, variants.py (who use it), evidence.py (what is kept)
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hcq import backends, config
from hcq.doctor.examine import advise, subject
from hcq.doctor.host import LinuxHost, facts_of
from hcq.system.port import LinuxPort, Port, root_of
from hcq.tools.hw import kernels
from hcq.tools.hw.plan import Item

REPORT_IT = "send the archive (docs/hardware.md)"


@dataclass(frozen=True)
class Sizes:
    """How much of each. An emulated device is thousands of times slower, and its figures mean nothing."""

    launches: int
    batch: int
    round_trips: int
    copies: tuple[int, ...]
    rate_bytes: int
    repeats: int
    replays: int
    hang_ms: int
    reloads: int
    elements: int
    ring_rounds: int
    patience: int  # steps of a kernel that the host ends, if it does not


HARDWARE = Sizes(
    launches=10_000, batch=50, round_trips=2_000, copies=(1, 3, 4095, 65_537, 1 << 20, 64 << 20, 256 << 20),
    rate_bytes=256 << 20, repeats=10, replays=500, hang_ms=2_000, reloads=1_000, elements=1 << 16, ring_rounds=3,
    patience=1 << 24,
)  # fmt: skip
EMULATED = Sizes(
    launches=200, batch=20, round_trips=10, copies=(1, 3, 4095, 65_537, 1 << 20),
    rate_bytes=1 << 20, repeats=2, replays=5, hang_ms=500, reloads=10, elements=2048, ring_rounds=1,
    patience=1 << 12,
)  # fmt: skip


class Bench:
    """What an item needs. `evidence` is the file that says what the device was doing, once there is one."""

    def __init__(self, name: str, folder: Path, item: Item) -> None:
        self.name, self.folder, self.item = name, folder, item
        self.kind, _, number = name.upper().partition(":")
        self.number = int(number) if number.isdecimal() else 0  # which of the GPUs of this kind
        self.open_s = 0.0
        self.evidence = ""
        self.opened: list[Any] = []  # every device, also those that did not open

    @cached_property
    def port(self) -> Port:
        """The operating system: the real one, or an emulated one."""
        words = config.current().emulate
        is_emulated = bool(words) and self.kind in backends.emulated(words)
        return backends.emulated_port(words) if is_emulated else LinuxPort()

    @cached_property
    def device(self) -> Any:
        """The device as the driver makes it."""
        return self.open()

    def open(self, port: Port | None = None, **overriding: Any) -> Any:
        """A device of this process's own.

        overriding  attributes of the device's class that are others here: a variant's methods, fewer steps
        """
        bench = self
        base = backends.load(backends.of(self.name).device)

        class Watched(base):  # type: ignore[misc, valid-type]
            """A device that leaves evidence when it does not open."""

            def observe(self, while_opening: bool) -> None:
                if while_opening:
                    bench.opened.append(self)
                super().observe(while_opening)

            def unwind(self) -> None:
                bench.keep_evidence()
                super().unwind()

        made = type(base.__name__, (Watched,), overriding)
        start = time.perf_counter()
        device = made(self.name, port or self.port, config.current())
        self.open_s = time.perf_counter() - start
        return device

    @cached_property
    def is_emulated(self) -> bool:
        """Whether there is no hardware behind it."""
        return not isinstance(root_of(self.port), LinuxPort)

    @property
    def sizes(self) -> Sizes:
        """How much work the checks do there."""
        return EMULATED if self.is_emulated else HARDWARE

    def advise(self, check: str, error: Exception) -> str:
        """The doctor's fix for an error that a check ended with."""
        return advise(facts_of(LinuxHost()), subject(self.name), check, error)

    def programs(self, *names: str) -> Any:
        """Kernels of kernels.py, loaded; one alone for one name. Raises Skip for an architecture that has none."""
        found = kernels.programs(self.device, names)
        return found[names[0]] if len(names) == 1 else [found[name] for name in names]

    def buffer(self, size_bytes: int, data: bytes | None = None, name: str = "hw_check") -> Any:
        """A buffer with these bytes, or zeros."""
        made = self.device.alloc(size_bytes, name)
        made.write(bytes(size_bytes) if data is None else data)
        return made

    def write(self, name: str, data: Any) -> Path:
        """A file of the folder: text, bytes, or anything as JSON."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, bytes):
            path.write_bytes(data)
        else:
            path.write_text(data if isinstance(data, str) else json.dumps(data, indent=1, default=str) + "\n")
        return path

    def keep_evidence(self) -> None:
        """Write down what the newest device is doing, once. Never raises: it must not hide what it is about."""
        if self.evidence or not self.opened:
            return
        from hcq.tools.hw.evidence import evidence_of

        with contextlib.suppress(Exception):
            found = evidence_of(self.opened[-1], self.kind)
            self.evidence = f"evidence/{self.item.name}.json"
            self.write(self.evidence, found)
