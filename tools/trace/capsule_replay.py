"""Replay of a capsule: the packets of somebody's hang on an emulated GPU, at the addresses that they had.

In       a Trace that `hcq-trace capsule` made
Out      Stand: at which packet the emulated GPU stands, whether that is the one of the dump, and what was assumed
Changes  nothing: the GPU is made for this, has no thread and no kernel driver, and no dump of it is written
Next     capsule.py (who made the trace), hcq/emu/amd/ (the packet processors), nv_capsule_replay.py (NVIDIA's),
         replay.py (traces with contents)

The rings lie where their words lay in them, and the indirect buffers at their addresses. Of all other memory the
contents are unknown: it reads as zeros until a packet writes it, but for the page of a recorded fault, which is not
mapped. Where the marked packet waits for such memory and zeros would end that, it gets a value that does not, and the
outcome says so. Packets before the marked one were done on the machine of the dump. Those of them that cannot be done
here (launches of kernels whose code is not there, waits for memory that is not, packets that are not emulated) are
passed over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.amd.abi.aql import AmdSignal
from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.amd.abi.page_fault import PAGE_BYTES
from hcq.amd.abi.pm4 import Function
from hcq.amd.chip import CHIPS
from hcq.emu.amd.aql_processor import AqlQueue
from hcq.emu.amd.engine import holds
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_topology import make_nodes
from hcq.emu.amd.pm4_processor import Pm4Queue
from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu, QueueStopped
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.emu.amd.shader.errors import PageFault, ShaderFault
from hcq.emu.amd.spec import ARCHITECTURES, parse
from hcq.emu.backing import DeviceMemory
from hcq.errors import UsageError
from hcq.tools.trace import metal_capsule, metal_capsule_replay, nv_capsule, nv_capsule_replay
from hcq.tools.trace.amd_words import Piece, pieces
from hcq.tools.trace.capsule_stand import Stand
from hcq.tools.trace.devcoredump.place import inner_form
from hcq.trace.file import Trace, TraceDevice
from hcq.trace.records import Kind

MAX_STEPS = 1 << 20
MAX_RING_WORDS = 1 << 23
CHUNK_BYTES, MAX_UNKNOWN_BYTES = 1 << 16, 1 << 28  # of memory whose contents are unknown
QUEUES: dict[str, type[EmulatedQueue]] = {"pm4": Pm4Queue, "sdma": SdmaQueue, "aql": AqlQueue}
MIN_RING_BYTES = 4096
WIDE = ("WaitRegMem64", "BarrierAnd", "BarrierOr")
OWN_BYTES = 1 << 16  # pointers, and where the processor notes events


def is_capsule(trace: Trace) -> bool:
    """Whether this is one."""
    return any("capsule" in device.facts for device in trace.devices)


def replay(trace: Trace, on: str = "") -> Stand:
    """Run the packets of a capsule. on: an emulated GPU, where it shall not be that of the trace.

    Raises UsageError for a GPU that none is emulated of, and for a trace that another program made or changed
    """
    try:
        forms = {ring["form"] for ring in _device(trace).facts["capsule"]["rings"]}
        if nv_capsule.FORM in forms:
            return nv_capsule_replay.replay(trace, _device(trace), on)
        if metal_capsule.FORM in forms:
            return metal_capsule_replay.replay(trace, _device(trace), on)
        return _Run(trace, on).run()
    except UsageError:  # is a ValueError, and says what to do
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        OverflowError,
        AttributeError,
        StopIteration,
    ) as error:
        raise UsageError(f"replay {trace.path}: this capsule cannot mean anything ({error!r}).") from None


def _device(trace: Trace) -> TraceDevice:
    return next(one for one in trace.devices if "capsule" in one.facts)


def _emulated(arch: str, on: str) -> str:
    wanted = on.lower().removeprefix("amd:") or arch
    if wanted in ARCHITECTURES:
        return wanted
    family = CHIPS[wanted].family if wanted in CHIPS else 0
    for one in ARCHITECTURES:
        if family and CHIPS[one].family == family:
            return one
    raise UsageError(
        f"replay: no GPU of the generation of {wanted} is emulated, so this capsule can be shown and linted only."
        f" Emulated are {', '.join(ARCHITECTURES)}."
    )


class _Lane:
    """A queue, and the packets of its submission. `halted` says why it goes on no more."""

    def __init__(
        self, queue: EmulatedQueue, form: str, start: int, words: tuple[int, ...], found: list[Piece]
    ) -> None:
        self.queue, self.form, self.start, self.size = queue, form, start, len(words)
        self.found = found
        self.halted = ""

    def place(self) -> tuple[int, int | None, int]:
        """The word of the submission, the buffer that runs and the word in it."""
        queue = self.queue
        word = queue.rptr * queue.unit_bytes // 4 - self.start
        if isinstance(queue, SdmaQueue):
            if queue.indirect_at < len(queue.indirect_words):
                return word, queue.indirect_va, queue.indirect_at
        elif isinstance(queue, (Pm4Queue, AqlQueue)):
            for frame in reversed(queue.engine.frames):
                if frame.at < len(frame.words):
                    return word, frame.va, frame.at
        return word, None, 0

    def skip(self, words: int) -> None:
        """Go on behind the packet that it stands at."""
        queue = self.queue
        if isinstance(queue, SdmaQueue) and queue.indirect_at < len(queue.indirect_words):
            queue.indirect_at += words
            return
        if isinstance(queue, (Pm4Queue, AqlQueue)):
            for frame in reversed(queue.engine.frames):
                if frame.at < len(frame.words):
                    frame.at += words
                    return
        queue.rptr += max(words * 4 // queue.unit_bytes, 1)


class _Run:
    def __init__(self, trace: Trace, on: str) -> None:
        self.trace = trace
        self.device = _device(trace)
        about = self.device.facts["capsule"]
        self.arch = _emulated(self.device.arch, on)
        self.chip = CHIPS[self.device.arch]
        page = about.get("fault_page")
        self.fault_page = page if isinstance(page, int) else None
        mark = next(one.fields for one in trace.faults if "submission" in one.fields)
        self.marked = int(mark["submission"])
        self.mark = int(mark["word"]), mark["block"], int(mark["block_word"])
        # a mark that is not sure: words of its packet, which may run a buffer that is not done
        self.mark_words = int(mark.get("inside", 0))
        memory = DeviceMemory("capsule")
        (node,) = make_nodes([parse(f"amd:{self.arch}")])
        gpu = EmulatedGpu(node, lambda line: None, memory)
        self.gpu = ProcessGpu(gpu, Events(lambda: None), memory)
        self.vm = self.gpu.vm
        self.unknown = self.done = 0
        self.passed: list[str] = []
        self.assumed = ""
        self.blocks: dict[int, tuple[int, ...]] = {}
        self.inside: dict[tuple[int, str], list[Piece]] = {}
        self._map_buffers()
        self.lanes = {
            one.value: self._lane(one.value, one.words, about["rings"][number])
            for number, one in enumerate(trace.submissions)
        }

    # ------------------------------------------------------------ memory

    def _map_buffers(self) -> None:
        """The indirect buffers, whole pages around them: what is beside them is unknown."""
        pages: dict[int, bytearray] = {}
        for record in self.trace.records:
            if record.kind != Kind.BLOCK:
                continue
            va = int(record.fields["va"])
            words = self.trace.block(self.device, va, len(self.trace.records)).words
            self.blocks[va] = tuple(words)
            data = b"".join(word.to_bytes(4, "little") for word in words)
            at = 0
            while at < len(data):
                page, offset = divmod(va + at, PAGE_BYTES)
                part = data[at : at + PAGE_BYTES - offset]
                pages.setdefault(page, bytearray(PAGE_BYTES))[offset : offset + len(part)] = part
                at += len(part)
        for first, data in _runs_of(pages):
            self.vm.map(first * PAGE_BYTES, np.frombuffer(data, np.uint8).copy())

    def _own(self, size_bytes: int) -> int:
        """Memory of the replay itself, where the trace names nothing."""
        memory = self.trace.memory_at(self.trace.records[-1])
        at = 1 << 20
        while self.vm.overlaps(at, size_bytes) or any(
            one.start < at + size_bytes and at < one.start + one.size_bytes for one in memory.ranges
        ):
            at += 1 << 30
        self.vm.map(at, np.zeros(size_bytes, np.uint8))
        return at

    def _map_unknown(self, va: int) -> bool:
        """Zeros around an address that nothing is known of; False where that is the page of the fault, or too much."""
        low = va & -CHUNK_BYTES
        while low < va and (self.vm.overlaps(low, va + 1 - low) or self._is_fault(low, va + 1)):
            low += PAGE_BYTES
        low = min(low, va & -PAGE_BYTES)
        high = low + CHUNK_BYTES
        while high > low + PAGE_BYTES and (self.vm.overlaps(low, high - low) or self._is_fault(low, high)):
            high -= PAGE_BYTES
        if (
            self._is_fault(low, high)
            or self.vm.overlaps(low, high - low)
            or low < PAGE_BYTES
            or high >= 1 << 48
        ):
            return False
        if self.unknown + high - low > MAX_UNKNOWN_BYTES:
            return False
        self.vm.map(low, np.zeros(high - low, np.uint8))
        self.unknown += high - low
        return True

    def _is_fault(self, low: int, high: int) -> bool:
        return self.fault_page is not None and low < self.fault_page + PAGE_BYTES and high > self.fault_page

    # ------------------------------------------------------------ queues

    def _lane(self, value: int, words: tuple[int, ...], about: dict[str, Any]) -> _Lane:
        form, place, size = str(about["form"]), int(about["place"]), int(about["size_words"])
        if (
            form not in QUEUES
            or size & size - 1
            or not 0 <= place < size <= MAX_RING_WORDS
            or len(words) > size
        ):
            raise ValueError(f"a ring of {size} words")
        kind = QUEUES[form]
        size_bytes = max(4 * size, MIN_RING_BYTES)
        ring, own = self._own(size_bytes), self._own(OWN_BYTES)
        args = CreateQueueArgs(
            ring_base_address=ring,
            ring_size=size_bytes,
            write_pointer_address=own + 0x2000,
            read_pointer_address=own + 0x3000,
            eop_buffer_address=own + 0x4000,
            queue_percentage=100,
        )
        queue = kind(self.gpu, value, len(self.gpu.queues), args)
        self.gpu.queues[value] = queue
        unit = queue.unit_bytes
        data = self.vm.bytes_at(ring, size_bytes, "write").view(np.uint32)
        at = (place + np.arange(len(words))) % (size_bytes // 4)
        data[at] = np.array(words, np.uint32)
        queue.rptr = place * 4 // unit
        end = (place + len(words)) * 4 // unit
        self.vm.store64(queue.wptr_va, end)
        self.gpu.doorbell_slots[queue.doorbell_index] = end - isinstance(queue, AqlQueue)
        return _Lane(queue, form, place, words, pieces(words, form, self.chip))

    # ------------------------------------------------------------ work

    def run(self) -> Stand:
        marked = self.lanes[self.marked]
        steps = 0
        is_moving = True
        while is_moving and steps < MAX_STEPS:
            is_moving = False
            for lane in self.lanes.values():
                while not lane.halted and steps < MAX_STEPS and self._step(lane, lane is marked):
                    steps += 1
                    is_moving = True
        word, block, block_word = marked.place()
        piece = self._piece(marked)
        why = marked.halted or ("it waits, and nothing here ends that" if piece else "everything was done")
        is_same = self._is_marked((word, block, block_word))
        text = "" if piece is None else piece.line()[:240]
        return Stand(
            word,
            block,
            block_word,
            text,
            is_same,
            why,
            self.done,
            self.passed,
            self.unknown,
            self.arch,
            self.assumed,
        )

    def _is_marked(self, found: tuple[int, int | None, int]) -> bool:
        word, block, block_word = self.mark
        if block is not None:
            return found[1:] == (block, block_word)
        return found == (word, None, 0) or bool(
            self.mark_words and found[0] in (word, word + self.mark_words)
        )

    def _is_before(self, lane: _Lane) -> bool:
        """Whether the marked ring has not come to its mark yet."""
        word, block, block_word = self.mark
        found = lane.place()
        if block is None:
            return found[0] < word
        return found[1] is None or (found[1] == block and found[2] < block_word) or (found[1] != block)

    def _piece(self, lane: _Lane) -> Piece | None:
        """The packet that a queue stands at."""
        word, block, at = lane.place()
        found = lane.found
        if block is not None:
            form = inner_form(lane.form)
            key = block, form
            if key not in self.inside:
                self.inside[key] = pieces(self.blocks.get(block, ()), form, self.chip)
            found, word = self.inside[key], at
        return next((one for one in found if one.at <= word < one.at + len(one.words) * one.times), None)

    def _step(self, lane: _Lane, is_marked: bool) -> bool:
        """One packet. False: the queue has nothing to do, waits, or goes on no more."""
        piece = self._piece(lane)
        is_before = is_marked and self._is_before(lane)
        if piece is not None and "Dispatch" in piece.name:
            why = "it launches a kernel, whose code is not in the dump"
            return self._pass(lane, piece, why) if is_before else self._halt(lane, why)
        self.gpu.running = lane.queue
        if is_marked and piece is not None and self._is_marked(lane.place()):
            self._assume(piece)
        while True:
            try:
                before = lane.place()
                worked = lane.queue.step()
                self.done += worked
                if not worked and is_before and piece is not None and before == lane.place():
                    return self._pass(lane, piece, "it waits for memory that is not in the dump")
                return worked
            except PageFault as fault:
                if self._map_unknown(fault.address):
                    continue
                if self._is_fault(fault.address, fault.address + 1):
                    return self._halt(lane, f"{fault} The dump has a fault of the same page")
                why = str(fault)
            except QueueStopped as stop:
                why, lane.queue.stopped = str(stop), ""
            except ShaderFault as fault:
                why = str(fault)
            if is_before and piece is not None:
                return self._pass(lane, piece, why)
            return self._halt(lane, why)

    def _assume(self, piece: Piece) -> None:
        """Give memory that nothing is known of, and that a wait is for, a value with which it waits."""
        fields = piece.fields
        cells: list[tuple[int, list[int]]] = []
        if piece.name.startswith(("WaitRegMem", "PollRegmem")):
            reference, mask = int(fields.get("reference", fields.get("value", 0))), int(fields["mask"])
            function = str(fields.get("function", fields.get("func")))
            number = int(Function[function]) if function in Function.__members__ else 0
            tried = (0, mask, reference + 1, reference - 1)
            values = [one & mask for one in tried if not holds(number, one & mask, reference)]
            cells = [(int(fields["address"]), values)]
        elif piece.name in ("BarrierAnd", "BarrierOr"):
            signals = [int(fields.get(f"dep_signal_{number}") or 0) for number in range(5)]
            cells = [(one + AmdSignal.value.byte_offset, [1]) for one in signals if one]
        for va, values in cells:
            if not self.vm.overlaps(va, 8):
                self._map_unknown(va)
            if values and values[0] and self.vm.overlaps(va, 8) and not self.vm.load64(va & -8):
                (self.vm.store64 if piece.name in WIDE else self.vm.store32)(va, values[0])
                self.assumed = (
                    f"the memory at {va:#x} is not in the dump; zeros would end this wait, so it is taken to hold"
                    f" {values[0]:#x}"
                )

    def _halt(self, lane: _Lane, why: str) -> bool:
        lane.halted = why
        return False

    def _pass(self, lane: _Lane, piece: Piece, why: str) -> bool:
        """Go on behind a packet that was done on the machine of the dump."""
        self.passed.append(f"{piece.name}: {why}")
        lane.skip(len(piece.words) if piece.times == 1 else 1)
        return True


def _runs_of(pages: dict[int, bytearray]) -> list[tuple[int, bytes]]:
    """Pages that follow each other as one."""
    found: list[tuple[int, bytearray]] = []
    for page in sorted(pages):
        if found and found[-1][0] + len(found[-1][1]) // PAGE_BYTES == page:
            found[-1][1].extend(pages[page])
        else:
            found.append((page, bytearray(pages[page])))
    return [(page, bytes(data)) for page, data in found]
