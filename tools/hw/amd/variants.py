"""Variants of the AMD driver: what follows from inference, and what it could be instead.

In       nothing
Out      VARIANTS
Next     ../variants.py (tries them), ../variant.py (what they are made of), hcq/amd/rings.py (what most of them change)
Source   docs/bringup-amd.md says of each value whether the kernel's source, a header or an inference gives it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import AllocFlags, QueueType
from hcq.amd.ioctl import call
from hcq.amd.memory import Place
from hcq.tools.hw.variant import Edit, Variant, with_step


def _queues(kinds: tuple[int, ...], **fields: int) -> Edit:
    """CREATE_QUEUE of some kinds with other fields."""
    layout = kfd.CreateQueueArgs

    def edit(request: int, argument: bytearray) -> None:
        if request != kfd.CREATE_QUEUE.request:
            return
        made = layout.decode(memoryview(bytes(argument)).cast("I"))
        if made.queue_type in kinds:
            made.values.update(fields)
            argument[:] = made.to_bytes()

    return edit


def _memory(wanted: int, more: int, less: int = 0) -> Edit:
    """ALLOC_MEMORY_OF_GPU of a kind of memory with more flags, or fewer."""
    at = kfd.AllocMemoryOfGpuArgs.flags.byte_offset

    def edit(request: int, argument: bytearray) -> None:
        if request == kfd.ALLOC_MEMORY_OF_GPU.request:
            flags = int.from_bytes(argument[at : at + 4], "little")
            if flags & wanted:
                argument[at : at + 4] = ((flags | more) & ~less).to_bytes(4, "little")

    return edit


def in_host_memory() -> Mapping[str, Any]:
    """As on a GPU whose memory the host does not see."""
    from hcq.amd.device import AmdDevice

    def map_flush_register(self: Any) -> None:
        self._flush = None
        self._begin_access("a variant hides it", "leave that out")

    return with_step(AmdDevice, "map_flush_register", map_flush_register)


def enabling_runtime() -> Mapping[str, Any]:
    """RUNTIME_ENABLE before the queues are made, as some runtimes call it since interface 1.14."""
    from hcq.amd.device import AmdDevice

    def make_rings(self: Any) -> None:
        call(self.port, self.kfd_fd, kfd.RUNTIME_ENABLE, r_debug=0, mode_mask=0)
        AmdDevice.make_rings(self)

    return with_step(AmdDevice, "make_rings", make_rings)


def without_gcr() -> Mapping[str, Any]:
    """Copy engines are told of no caches, also where they have a packet for that."""
    from hcq.amd.device import AmdDevice

    def find_gpu(self: Any) -> None:
        AmdDevice.find_gpu(self)
        copies = self.chip.copies
        self.edited = int(copies.has_gcr)
        self.chip = replace(self.chip, copies=copies._replace(has_gcr=False))

    return with_step(AmdDevice, "find_gpu", find_gpu)


COMPUTE = (QueueType.COMPUTE, QueueType.COMPUTE_AQL)
VARIANTS = (
    Variant("plain", "nothing is otherwise: what the others are compared with"),
    Variant("pm4", "PM4 compute queues, also where AQL is preferred", environment={"HCQ_AMD_QUEUE": "pm4"}),
    Variant("aql", "AQL compute queues, also where PM4 is preferred", environment={"HCQ_AMD_QUEUE": "aql"}),
    Variant("host-memory", "all buffers in host memory, as without a large BAR", overriding=in_host_memory),
    Variant("priority-15", "compute queues of the highest priority", edit=_queues(COMPUTE, queue_priority=15)),
    Variant("cached", "host memory that the GPU may cache", edit=_memory(AllocFlags.GTT, 0, AllocFlags.UNCACHED)),
    Variant("not-coherent", "host memory without COHERENT", edit=_memory(AllocFlags.GTT, 0, AllocFlags.COHERENT)),
    Variant("runtime-enable", "RUNTIME_ENABLE with mode 0 before the queues are made", overriding=enabling_runtime),
    Variant("save-vram", "the context save area in the GPU's memory", constants={
        "hcq.amd.rings:SAVE_PLACE": Place.PUBLIC}),
    Variant("sdma-engine-0", "the copy queue on engine 0, named (interface 1.17 and later)", edit=_queues(
        (QueueType.SDMA,), queue_type=QueueType.SDMA_BY_ENG_ID, sdma_engine_id=0)),
    Variant("no-gcr", "copies without GCR_REQ before and after them: are results old then?", overriding=without_gcr),
    Variant("no-eop", "compute queues without an end-of-pipe buffer: what RELEASE_MEM does then", edit=_queues(
        COMPUTE, eop_buffer_address=0, eop_buffer_size=0), disturbs=True),
    Variant("aql-no-eop", "AQL queues without an end-of-pipe buffer", environment={"HCQ_AMD_QUEUE": "aql"},
            edit=_queues(COMPUTE, eop_buffer_address=0, eop_buffer_size=0), disturbs=True),
)  # fmt: skip
