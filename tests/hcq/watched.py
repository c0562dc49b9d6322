"""A device of ours, and a session that watches it from below as if it were a stranger's: both write a trace.

`meant`, `words` and `work` are what two traces of the same work are compared by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hcq import config
from hcq.observe.foreign.session import Session
from hcq.trace.file import Submission, Trace


class WatchedDevice:
    """What every vendor's has in common; `device` is for the vendor to open, with `above` as its trace."""

    device: Any

    def __init__(self, folder: Path, port: Any, **settings: Any) -> None:
        self.below, self.above = folder / "below.hcqtrace", folder / "above.hcqtrace"
        self.said: list[str] = []
        switches = {"trace": str(self.below), "validate": True, "report_dir": folder, **settings}
        self.session = Session(dataclasses.replace(config.current(), **switches), self.said.append)
        for kernel in port.kernels:
            kernel.observe(self.session)

    def do_everything(self, image: bytes) -> None:
        """Fills, copies, a wait for a signal, a graph that is replayed; five launches of the image's `scale`."""
        device = self.device
        a, b = device.alloc(1024, "a"), device.alloc(1024, "b")
        program = device.load(image, "scale", args=("buffer", "buffer", "int", "float", "float"))
        gate = device.signal("gate")
        device.queue().fill(a, 0x3F800000, value_bytes=4).copy(b, a).signal(gate, 1).submit().wait()
        device.run(program, [b, a, 200, 3.0, 0.5], grid=(4, 1, 1), block=(64, 1, 1))
        device.queue().wait(gate, 1).dispatch(program, [a, b, 7, 1.0, 0.0], block=(64, 1, 1)).submit().wait()
        graph = device.graph("twice").dispatch(program, [a, b, 9, 2.0, 0.0], block=(64, 1, 1)).copy(b, a)
        for _ in range(3):
            graph.replay().wait()

    def close(self) -> tuple[Trace, Trace]:
        """What the driver wrote down, and what was seen below it."""
        self.device.close()
        self.session.close()
        return Trace.read(str(self.above)), Trace.read(str(self.below))


def meant(submissions: Sequence[Submission]) -> Iterator[tuple[Any, ...]]:
    """What submissions launch, copy and fill, in order."""
    for made in submissions:
        for command in made.all_commands():
            if command["verb"] == "dispatch":
                yield command["kernel"], tuple(command["grid"]), tuple(command["block"])
            elif command["verb"] in ("copy", "fill"):
                yield tuple(command[name] for name in command if name != "text")


def words(submissions: Sequence[Submission]) -> list[tuple[str, int]]:
    """All that the queues were given, in order."""
    return [(made.queue, word) for made in submissions for word in made.words]


def work(submissions: Sequence[Submission]) -> list[str]:
    """What was launched, copied and filled, with arguments, and on which queue."""
    return [repr((made.queue, command)) for made in submissions for command in made.all_commands()]
