"""A training step of a small network on images as plain launches: what campaigns run on devices that they break.

In       a kind of device, opened by name once, on which the tensor layer makes the step
Out      Step: code objects, launches, and the bytes of all memory before and after; `check` runs it on any device
Changes  nothing outside the device that it is run on
Next     faults.py, interrupts.py (the campaigns), tests/hcq/gpu/training.py (the network, as tensors)

The tensor layer is asked once for each process. After that a step needs a device and nothing else, so that what a
campaign breaks is the driver, and a device can be opened, ruined and closed thousands of times.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hcq import command
from hcq.device import Device
from hcq.graph import Symbol
from hcq.memory import Buffer
from tests.campaigns.campaign import Wrong

TIMEOUT_MS = 60_000  # of waits that nothing delays on purpose: a busy machine is no fault


@dataclass
class Launch:
    """One kernel: which code, on which memory, in the order of its arguments."""

    program: int
    memory: tuple[int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass
class Step:
    """code: arguments of Device.load. before, after: what each piece of memory holds."""

    code: list[Mapping[str, Any]] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)

    def check(self, device: Device, replays: int = 2) -> None:
        """Load, run eagerly, replay as a graph, copy: the same bytes each time. Raises Wrong, or an error of ours."""
        memory = self.allocate(device)
        programs = self.load(device)
        self.eager(device, programs, memory)
        graph = self.record(device, programs, memory)
        for _ in range(replays):  # a graph has two copies of its block
            self.replay(graph, memory)
        copies = [device.alloc(len(what), "copy") for what in self.after]
        self.copy(device, memory, copies)

    def allocate(self, device: Device) -> list[Buffer]:
        return [device.alloc(len(what), f"memory {number}") for number, what in enumerate(self.before)]

    def load(self, device: Device) -> list[Any]:
        return [device.load(**each) for each in self.code]

    def restore(self, memory: Sequence[Buffer]) -> None:
        for buffer, what in zip(memory, self.before, strict=True):
            buffer.write(what)

    def eager(self, device: Device, programs: Sequence[Any], memory: Sequence[Buffer]) -> None:
        """Three submissions, none awaited before the next."""
        self.restore(memory)
        third = -(-len(self.launches) // 3)
        for start in range(0, len(self.launches), third):
            queue = device.queue()
            for one in self.launches[start : start + third]:
                queue.dispatch(programs[one.program], [memory[n] for n in one.memory], one.grid, one.block)
            queue.submit()
        self.compare(memory, "eager")

    def record(self, device: Device, programs: Sequence[Any], memory: Sequence[Buffer]) -> Any:
        """The step as a graph; the first launch's memory is named anew by every replay."""
        graph = device.graph("step")
        named = self.launches[0].memory[0]
        for one in self.launches:
            args = [Symbol("named") if n == named else memory[n] for n in one.memory]
            graph.dispatch(programs[one.program], args, one.grid, one.block)
        return graph

    def replay(self, graph: Any, memory: Sequence[Buffer]) -> None:
        self.restore(memory)
        graph.replay({"named": memory[self.launches[0].memory[0]]})
        self.compare(memory, "replay")

    def copy(self, device: Device, memory: Sequence[Buffer], copies: Sequence[Buffer]) -> None:
        """Through the copy engine, with a signal of the device's own between two submissions."""
        ready = device.signal("ready")
        device.queue().fill(copies[0], 0xA5).signal(ready, 1).submit()
        queue = device.queue().wait(ready, 1)
        for to, source in zip(copies, memory, strict=True):
            queue.copy(to, source)
        queue.submit().wait()
        self.compare(copies, "copy")

    def compare(self, memory: Sequence[Buffer], how: str) -> None:
        for number, (buffer, wanted) in enumerate(zip(memory, self.after, strict=True)):
            got = buffer.read(0, len(wanted))
            if got != wanted:
                at = next(at for at, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
                raise Wrong(
                    f"wrong numbers in silence: after the {how} run memory {number} of {len(wanted)} bytes "
                    f"differs from byte {at} on"
                )


@functools.cache
def step_of(kind: str) -> Step:
    """The step for a kind of device ("CPU", "AMD", "NV"), as HCQ_EMULATE says.

    It is made on the process's own device, which is closed then.
    """
    import numpy as np

    import hcq
    from hcq import Tensor, nn

    rng = np.random.default_rng(5)
    images = Tensor(rng.standard_normal((4, 1, 4, 4)).astype(np.float32), device=kind).realize()
    labels = Tensor(rng.integers(0, 3, 4), device=kind).realize()
    Tensor.manual_seed(3)
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, device=kind), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3, device=kind)
    )
    optimizer = nn.optim.SGD(net.parameters(), lr=1e-2)

    def train() -> Tensor:
        optimizer.zero_grad()
        loss = net(images).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    watch = _Watch(hcq.open(kind))
    with watch:
        train().item()  # what the optimizer makes for itself exists now
        watch.is_noting = True
        train().item()
    made = watch.step()
    watch.device.close()  # its threads are not those of the devices that a campaign opens
    return made


class _Watch:
    """Notes what is loaded and submitted on a device, and the memory as it was before its first use."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.is_noting = False  # submissions
        self.loaded: list[tuple[Any, Mapping[str, Any]]] = []
        self.programs: list[Any] = []
        self.launches: list[Launch] = []
        self.memory: dict[
            int, Buffer
        ] = {}  # address -> the buffer, held: its memory is nobody else's meanwhile
        self.before: list[bytes] = []

    def __enter__(self) -> None:
        own_load, own_submit = self.device.load, self.device.submit

        def load(image: bytes, entry: str, **how: Any) -> Any:
            program = own_load(image, entry, **how)
            self.loaded.append((program, {"image": image, "entry": entry, **how}))
            return program

        def submit(words: Any, commands: Any, held: Any = (), at: Any = None) -> Any:
            if self.is_noting:
                self.note(commands, [what for what in held if isinstance(what, Buffer)])
            return own_submit(words, commands, held, at)

        self.device.load, self.device.submit = load, submit  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        del self.device.load, self.device.submit

    def note(self, commands: Sequence[Any], buffers: list[Buffer]) -> None:
        held = iter(buffers)
        for what in commands:
            assert isinstance(what, command.Dispatch), f"a step is kernels alone, and this is {what}"
            places = []
            for va in what.args:
                buffer = next(held)
                assert buffer.va == va
                if buffer.address not in self.memory:
                    self.memory[buffer.address] = buffer
                    self.before.append(buffer.read())
                places.append(list(self.memory).index(buffer.address))
            if what.program not in self.programs:
                self.programs.append(what.program)
            number = self.programs.index(what.program)
            self.launches.append(Launch(number, tuple(places), what.grid, what.block))

    def step(self) -> Step:
        loaded = {id(program): how for program, how in self.loaded}
        code = [loaded[id(program)] for program in self.programs]
        return Step(code, self.launches, self.before, [buffer.read() for buffer in self.memory.values()])
