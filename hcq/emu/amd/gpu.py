"""An emulated GPU: the thread that gives the queues of all processes their turns, and its counter.

In       queues of processes
Out      their packets executed, one turn after the other
Changes  nothing of its own
Next     process_gpu.py (a GPU as one process has it, and a queue), ../worker.py (the thread), ../nv/gpu.py (the sister)

A process that waits for an event makes the thread look at the doorbells at once. With a seed queues take turns in
random order, and work that nothing orders is done in random order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from hcq.emu.amd.kfd_topology import VRAM_BYTES, EmulatedNode
from hcq.emu.backing import NODE_BYTES, Backing, DeviceMemory
from hcq.emu.pages import HOST_BYTES
from hcq.emu.shader.schedule import Schedules
from hcq.emu.worker import Worker

CLOCK_HZ = 100_000_000
MMIO_BYTES = 4096


OnHang = Callable[[Any, Any, Any], None]


class Turns(Protocol):
    """A queue, as far as the GPU's thread knows one."""

    is_ending: bool

    @property
    def can_run(self) -> bool:
        """Whether it takes packets now."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether there are packets that it has not done, as far as its doorbell says so."""
        ...

    def turn(self) -> bool:
        """Its next packet; False when there is none, or when it has to wait."""
        ...


class EmulatedGpu(Worker[Turns]):
    """One GPU and its thread.

    memory      what the host maps through its render node
    mmio        the page of registers that a process may map, through /dev/kfd
    vram_used   bytes of its own memory that processes have
    host_used   bytes of the host's memory that they have through it
    on_hang     who hears that a queue goes on no more: of which process's GPU, which queue, by which page fault
    dump        makes the text of the newest devcoredump
    preemptions how often what runs was saved and restored, because the list of queues changed: execute_queues_cpsch
    """

    def __init__(self, node: EmulatedNode, log: Callable[[str], None], kfd_memory: DeviceMemory) -> None:
        seed = node.spec.seed
        super().__init__(node.spec.chip.arch, None if seed is None else Random(seed))
        self.schedules = Schedules(seed)
        self.node = node
        self.gpu_id = node.gpu_id
        self.chip = node.spec.chip
        self.began_ns, self.drift_ppm = time.monotonic_ns(), node.spec.drift_ppm
        self._write = log
        self.queues: list[Turns] = []
        self.memory = DeviceMemory(f"renderD{node.render_minor}", NODE_BYTES)
        self.mmio = Backing(MMIO_BYTES, kfd_memory)
        self.on_hang: OnHang = lambda gpu, queue, fault: None
        self.dump: Callable[[], bytes] | None = None
        self.vram_used = self.host_used = self.preemptions = 0
        self.vram_lock = threading.Lock()

    def add(self, queue: Turns) -> None:
        """Let a queue run."""
        self.preemptions += 1
        with self.visit():
            self.queues.append(queue)

    def remove(self, queue: Turns) -> None:
        """End a queue, in the middle of what it does."""
        queue.is_ending = True
        self.preemptions += 1
        with self.visit():
            while self.is_paused(queue) and self.go_on(queue):
                pass
            self.queues.remove(queue)
        self.kick()

    def take_vram(self, size_bytes: int) -> bool:
        """Whether there is so much of its own memory left; then it is taken."""
        with self.vram_lock:
            if size_bytes > VRAM_BYTES - self.vram_used:
                return False
            self.vram_used += size_bytes
            return True

    def give_vram(self, size_bytes: int) -> None:
        """So much of its own memory is free again."""
        with self.vram_lock:
            self.vram_used -= size_bytes

    def take_host(self, size_bytes: int) -> bool:
        """Whether the host has so much memory beside what is taken through this GPU; then it is taken."""
        with self.vram_lock:
            if size_bytes > HOST_BYTES - self.host_used:
                return False
            self.host_used += size_bytes
            return True

    def give_host(self, size_bytes: int) -> None:
        """So much of the host's memory is free again."""
        with self.vram_lock:
            self.host_used -= size_bytes

    def log(self, text: str) -> None:
        """One line of the kernel's log."""
        self._write(f"GPU {self.gpu_id:#x}: {text}")

    def clock(self) -> int:
        """The GPU's counter."""
        now = time.monotonic_ns()
        gained = (now - self.began_ns) * self.drift_ppm // 1_000_000
        return (now + gained) * CLOCK_HZ // 1_000_000_000

    # ------------------------------------------------------------ the thread

    def is_used(self) -> bool:
        return bool(self.queues)

    def ready(self) -> list[Turns]:
        return [queue for queue in self.queues if queue.can_run]

    def wants(self, one: Turns) -> bool:
        return one.has_work

    def is_held(self, one: Turns) -> bool:
        return not (one.can_run or one.is_ending)

    def step(self, one: Turns) -> bool:
        return one.can_run and one.turn()
