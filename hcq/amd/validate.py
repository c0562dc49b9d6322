"""AMD GPUs for the rules: what their packets do, and what they promise.

In       pieces as encode.py makes them, or the words of a trace; the device's arch and facts
Out      AmdModel
Next     hcq/rules/effects.py (what a model declares), hcq/rules/ (the rules), hcq/rules/examine.py (who runs them)

A dispatch's meaning is spread over the registers that packets before it set, so a piece is read from its start. The
block of PM4 that an AQL packet runs lies beside the packet until it is submitted: it counts as part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.abi.registers import NumThread, Register, Rsrc2
from hcq.amd.chip import CHIPS
from hcq.amd.decode import queue_decoder, ring_decoder
from hcq.amd.encode import COPY, Piece, piece
from hcq.layout import Packet
from hcq.rules.effects import (
    Access,
    Argument,
    Barrier,
    Copy,
    Effect,
    Fill,
    Launch,
    Limits,
    Model,
    Programs,
    Run,
    Signal,
    Step,
    Wait,
    declared_accesses,
)
from hcq.signal import CELL_BYTES

HEADERS = (pm4.Header, sdma.Header, aql.Header)
COPIES = (sdma.CopyLinear, sdma.CopyLinearV4, sdma.CopyLinearV7)
FILLS = (sdma.ConstFill, sdma.ConstFillV4, sdma.ConstFillV7)
WRITES = (sdma.WriteLinear, sdma.WriteLinearV4, sdma.WriteLinearV7)
FENCES = (sdma.Fence, sdma.FenceV4, sdma.FenceV7)
CLOCKS = (pm4.DataSel.SEND_GPU_CLOCK_COUNTER, pm4.DataSel.SEND_SYSTEM_CLOCK_COUNTER)
CLOCK_BYTES = 8

RINGS = ((pm4.Header, "compute", "PM4"), (aql.Header, "compute", "AQL"), (sdma.Header, "copy", "SDMA"))
WINDOWS = (sdma.CopyWindow, sdma.CopyWindowV7)
HSA_SIGNAL_BYTES = 4 * aql.AmdSignal.length_words

POLLS = (sdma.PollRegmem, sdma.PollRegmemV4, sdma.PollRegmemV7)
COPY_FENCE_BEHIND = 64  # the ring fence: where device.py has it
COPY_QUEUE = "copy"

Registers = dict[int, int]


class AmdModel(Model):
    """All rings see the same memory. Dispatches may overlap until a flush or an AQL packet that waits for those before.

    Copies of a queue that RingSync orders are each finished before the next command; in a lane of a graph a copy fence
    has to stand between two.
    """

    signal_bytes = CELL_BYTES
    signal_alignment = CELL_BYTES
    stored_bytes = 4  # a fence is one word, and the time has a packet of its own

    def __init__(self, arch: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(arch, facts)
        chip = CHIPS[arch]
        most = int(self.facts.get("max_grid", 2**31 - 1))
        side = chip.max_block
        self.limits = Limits(
            grid=(most, most, most),
            block=(side, side, side),
            threads=chip.max_block,
            shared_bytes=chip.lds_bytes,
        )
        # what another program's queues wait for is said in ways that no rule follows: signals that count down, the host
        self.knows_order = not self.facts.get("foreign")
        fence = self.facts.get("ring_fence", self.facts.get("relay"))  # "relay": in older traces
        # cells between the device's own rings, and between copies
        self._ring_fence = fence
        self._own_cells = frozenset(() if fence is None else (fence, fence + COPY_FENCE_BEHIND))
        self._event_slot = self.facts.get("event_slot")
        # what is about to be submitted says by itself which ring it goes to; in a trace all rings are one blob
        self.is_live = bool(self.facts.get("is_live"))
        self._compute_language = str(self.facts.get("queue", "pm4")).upper()

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return queue_decoder(self.arch, queue)(words)

    def _with_barriers(self, packet: Any, does: list[Effect], queue: str) -> list[Effect]:
        """What one packet does, between what it waits for and what waits for it without saying so."""
        if isinstance(packet, (aql.KernelDispatch, aql.Pm4Ib)):
            return [Barrier(), *does] if packet.barrier else does
        if isinstance(packet, (pm4.ReleaseMem, pm4.ReleaseMemGfx9)):
            return [Barrier(), *does] if any(isinstance(one, Access) for one in does) else does
        if isinstance(packet, (*COPIES, *FILLS, *WRITES)) and queue != COPY_QUEUE:
            return [Barrier(), *does, Barrier()]
        if isinstance(packet, POLLS) and packet.address in self._own_cells:
            return [*does, Barrier()]
        return does

    def lanes(self, words: Sequence[bytes]) -> Sequence[tuple[str, Sequence[tuple[int, bytes]]]]:
        """Packets of the copy ring are a queue of their own in a graph that is split; RingSync orders all others.

        Their pieces are marked. In a trace, where one blob has all, the packets show it: see `_is_split`.
        """
        if len(words) == 1 and not isinstance(words[0], Piece) and self.knows_order and not self.is_live:
            return self._lanes_of_blob(words[0])
        found: dict[str, list[tuple[int, bytes]]] = {"": []}
        at = 0
        for blob in words:
            if self.is_live and not isinstance(blob, Piece):
                blob = Piece(blob)  # words without a ring's name go into the compute ring
            queue = COPY_QUEUE if isinstance(blob, Piece) and blob.is_free else ""
            found.setdefault(queue, []).append((at, blob))
            at += len(blob) // 4
        return list(found.items())

    def _lanes_of_blob(self, words: bytes) -> Sequence[tuple[str, Sequence[tuple[int, bytes]]]]:
        found: dict[str, list[tuple[int, bytes]]] = {"": []}
        packets: list[Any] = self.decode(memoryview(bytes(words)).cast("I"), "")
        is_split = self._is_split([packet for packet in packets if isinstance(packet, sdma.Sdma)])
        at = 0
        for packet in packets:
            is_copy = isinstance(packet, sdma.Sdma)
            end = at + len(packet.words)
            runs = found.setdefault(COPY_QUEUE if is_copy else "", [])
            if runs and runs[-1][0] + len(runs[-1][1]) // 4 == at:
                runs[-1] = runs[-1][0], runs[-1][1] + words[4 * at : 4 * end]
            else:
                runs.append((at, words[4 * at : 4 * end]))
            at = end
        return list(found.items()) if is_split else [("", [(0, words)])]

    def _is_split(self, copying: list[Any]) -> bool:
        """Whether what the copy ring got is a lane of a graph: it sets or polls cells that are not the driver's.

        So may a program's own packets; but then RingSync has it wait for the compute ring, or end the submission, or
        let the compute ring go on behind them.
        """
        last = -1  # fence of RingSync
        for index, packet in enumerate(copying):
            if isinstance(packet, sdma.Trap) or (
                isinstance(packet, POLLS) and packet.address == self._ring_fence
            ):
                return False
            if isinstance(packet, FENCES) and packet.address == self._ring_fence:
                last = index
        return any(
            isinstance(packet, (*POLLS, *FENCES)) and packet.address not in self._own_cells
            for packet in copying[last + 1 :]
        )

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if not isinstance(packet, HEADERS):
            return None
        if isinstance(packet, (sdma.Header, aql.Header)) and pm4.is_header(packet.words[0]):
            ring = "copy ring reads SDMA" if isinstance(packet, sdma.Header) else "compute ring reads AQL"
            return (
                "packet-unknown",
                f"{packet.words[0]:#010x} starts a packet of PM4, and this device's {ring}",
            )
        if self.is_live:
            ring, language = next(one for kind, *one in RINGS if isinstance(packet, kind))
            start = f"{packet.words[0]:#010x} starts no packet of {language}"
            return (
                "packet-unknown",
                f"{start} of {self.arch}, which the {ring} ring reads, or one that is cut off",
            )
        return "packet-unknown", f"{packet!r} starts no packet of {self.arch}, or one that is cut off"

    def own_steps(self, words: bytes, ring: str) -> list[Step]:
        """A compute ring of AQL packets runs a block of PM4, too: the first word says which of the two it is."""
        if ring != COPY and pm4.is_header(int.from_bytes(words[:4], "little")):
            return self.steps(words, "PM4", {})
        return self.steps(piece(words, ring), "", {})

    def own_fault(self, packet: Packet, ring: str) -> str:
        if isinstance(packet, pm4.Header) and pm4.is_header(packet.words[0]):
            size, known = pm4.length_words(packet.words[0]), CHIPS[self.arch].packets.get(packet.opcode)
            if known is not None:
                return (
                    f"its header counts {size} words, which are not there, or no length of {known.__name__}"
                )
        return super().own_fault(packet, ring)

    def _read(self, words: bytes, queue: str) -> list[Packet]:
        """The packets of a piece, in the language of its ring; a block that packets run may be in another one."""
        if not self.is_live or not isinstance(words, Piece):
            return self.decode(memoryview(bytes(words)).cast("I"), queue)
        language = "SDMA" if words.ring == COPY else self._compute_language
        return ring_decoder(self.arch, language)(memoryview(bytes(words)).cast("I"))

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        return [*_effects(packet, {}), *self._memory(packet, b"")]

    def _memory(self, packet: Any, words: bytes) -> Iterator[Effect]:
        """Every other address that packets name. A piece's own patches are addresses that nobody knows yet."""
        if isinstance(packet, (pm4.ReleaseMem, pm4.ReleaseMemGfx9)):
            is_wake = bool(packet.int_sel) and self._event_slot in (None, packet.address)
            if packet.data_sel == pm4.DataSel.SEND_32_BIT_LOW and not is_wake:
                if packet.address not in self._own_cells:
                    yield _in_turn(packet.address, 4, True, "destination", alignment=4)
        elif isinstance(packet, aql.KernelDispatch):
            if self.is_live and packet.kernarg_address and not getattr(words, "patches", ()):
                yield _in_turn(packet.kernarg_address, 1, False, "kernel arguments")
            yield from _hsa_signals(packet, ("completion_signal",), ())
        elif isinstance(packet, (aql.BarrierAnd, aql.BarrierOr)):
            yield from _hsa_signals(packet, ("completion_signal",), [f"dep_signal_{n}" for n in range(5)])
        elif isinstance(packet, aql.BarrierValue):
            yield from _hsa_signals(packet, ("completion_signal",), ("signal",))
        elif isinstance(packet, aql.Pm4Ib):
            yield from _hsa_signals(packet, ("completion_signal",), ())
        else:
            yield from _plain_accesses(packet)
            yield from declared_accesses(packet)

    def steps(self, words: bytes, queue: str, programs: Programs) -> list[Step]:
        found: list[Step] = []
        state: Registers = {}
        at = 0
        for packet in self._read(words, queue):
            does = [*_effects(packet, state), *self._memory(packet, words)]
            if isinstance(packet, aql.Pm4Ib) and isinstance(words, Piece) and words.upload:
                inside = self.decode(memoryview(words.upload).cast("I"), queue)
                does = [
                    effect
                    for each in inside
                    for effect in (*_effects(each, state), *self._memory(each, words))
                ]
            does = [one for one in does if not (isinstance(one, Wait) and one.cell in self._own_cells)]
            does = self._with_barriers(packet, does, queue)
            if not self.knows_order:
                does = [one for one in does if not isinstance(one, (Wait, Signal))]
            if isinstance(words, Piece) and words.buffers:
                does = [_with_buffers(effect, words.buffers) for effect in does]
            found.append(Step(at, packet, does))
            at += len(packet.words)
        if not self.knows_order:
            return found
        return _set_by_one_fence(_signals_at_their_interrupts(_without_stamps(found)), self._own_cells)


def _with_buffers(effect: Effect, buffers: tuple[tuple[int, int], ...]) -> Effect:
    """A launch with the buffers that its arguments, uploaded beside the packets, name."""
    if not isinstance(effect, Launch):
        return effect
    return effect._replace(arguments=tuple(Argument(number, "buffer", va) for number, va in buffers))


def _without_stamps(steps: list[Step]) -> list[Step]:
    """The time in a signal's second half is part of the signal, not a write to another cell."""
    cells = {effect.cell for step in steps for effect in step.effects if isinstance(effect, Signal)}
    fences: list[Any] = [step.packet for step in steps if isinstance(step.packet, FENCES)]
    cells |= {fence.address for fence in fences}
    found = []
    for step in steps:
        kept = [
            effect
            for effect in step.effects
            if not (isinstance(effect, Access) and effect.va - CLOCK_BYTES in cells)
        ]
        found.append(step._replace(effects=kept))
    return found


def _signals_at_their_interrupts(steps: list[Step]) -> list[Step]:
    """A signal is three packets: time, value, interrupt. It counts as set by the last of them."""
    found = list(steps)
    for index in range(1, len(found)):
        packet: Any = found[index].packet
        before = found[index - 1]
        if isinstance(packet, sdma.Trap):
            found[index] = found[index]._replace(effects=_set_by_fences(found[max(index - 3, 0) : index]))
        is_interrupt = isinstance(packet, (pm4.ReleaseMem, pm4.ReleaseMemGfx9)) and packet.int_sel
        if is_interrupt and any(isinstance(effect, Signal) for effect in before.effects):
            found[index] = found[index]._replace(effects=[*before.effects, *found[index].effects])
            found[index - 1] = before._replace(effects=[])
    return found


def _set_by_fences(before: Sequence[Step]) -> list[Effect]:
    """On the copy ring a signal is two fences, the low half first, before the fence and the trap of the interrupt."""
    fences: list[Any] = [step.packet for step in before if isinstance(step.packet, FENCES)]
    if len(fences) != 3 or fences[1].address != fences[0].address + 4:
        return []
    return [Signal(fences[0].address, fences[1].data << 32 | fences[0].data)]


def _set_by_one_fence(steps: list[Step], own_cells: frozenset[int]) -> list[Step]:
    """Between queues, a signal of the copy ring is a fence that is none of those three."""
    found = list(steps)
    for index, step in enumerate(steps):
        packet: Any = step.packet
        if isinstance(packet, FENCES) and packet.address not in own_cells:
            if not any(isinstance(later.packet, sdma.Trap) for later in steps[index + 1 : index + 4]):
                found[index] = step._replace(effects=[*step.effects, Signal(packet.address, packet.data)])
    return found


def _effects(packet: Any, state: Registers) -> Iterator[Effect]:
    """What one packet does. `state` holds the compute registers that were set before it."""
    if isinstance(packet, COPIES):
        yield Copy(packet.dst_addr, packet.src_addr, packet.count + 1)
    elif isinstance(packet, FILLS):
        size = packet.count + 1 if packet.fillsize != sdma.FillSize.WORD else (packet.count & ~3) + 4
        yield Fill(packet.dst_addr, size)
    elif isinstance(packet, WRITES):
        yield Fill(packet.dst_addr, 4 * len(packet.tail_words), alignment=4)
    elif isinstance(packet, (pm4.ReleaseMem, pm4.ReleaseMemGfx9)):
        if packet.data_sel == pm4.DataSel.SEND_64_BIT_DATA:
            yield Signal(packet.address, packet.data)
        elif packet.data_sel in CLOCKS:
            yield Access(packet.address, CLOCK_BYTES, True, "timestamp", alignment=CLOCK_BYTES)
    elif isinstance(packet, (pm4.WaitRegMem, pm4.WaitRegMem64)):
        yield Wait(packet.address, packet.reference)
    elif isinstance(packet, POLLS) and packet.mem_poll:
        yield Wait(packet.address, packet.value)
    elif isinstance(packet, pm4.SetShReg):
        state.update((packet.reg_offset + index, word) for index, word in enumerate(packet.tail_words))
    elif isinstance(packet, pm4.DispatchDirect):
        yield _launch(packet, state)
    elif isinstance(packet, pm4.EventWrite):
        yield Barrier()
    elif isinstance(packet, aql.KernelDispatch):
        yield _launch_aql(packet)
    elif isinstance(packet, (pm4.IndirectBuffer, aql.Pm4Ib, sdma.Indirect)) and packet.ib_base:
        yield Run(packet.ib_base, packet.ib_size)


def _in_turn(va: int, size_bytes: int, is_write: bool, what: str, alignment: int = 1) -> Access:
    return Access(va, size_bytes, is_write, what, alignment=alignment, in_turn=True)


def _plain_accesses(packet: Any) -> Iterator[Effect]:
    """Reads and writes of packets that are no signals, copies or fills of ours."""
    if isinstance(packet, pm4.WriteData) and packet.dst_sel in (pm4.WriteDst.MEMORY, pm4.WriteDst.TC_L2):
        size = 4 if packet.addr_incr else 4 * len(packet.tail_words)
        yield _in_turn(packet.address, size, True, "destination", alignment=4)
    elif isinstance(packet, pm4.CopyData):
        size = 8 if packet.count_sel else 4
        if packet.src_sel == pm4.CopySrc.TC_L2:
            yield _in_turn(packet.source, size, False, "source", alignment=4)
        if packet.dst_sel in (pm4.CopyDst.MEM, pm4.CopyDst.TC_L2):
            yield _in_turn(packet.destination, size, True, "destination", alignment=4)
    elif isinstance(packet, pm4.DmaData):
        if packet.src_sel in (pm4.DmaSrc.MEMORY, pm4.DmaSrc.TC_L2) and not packet.sas:
            yield _in_turn(packet.source, 1 if packet.saic else packet.byte_count, False, "source")
        if packet.dst_sel in (pm4.DmaDst.MEMORY, pm4.DmaDst.TC_L2) and not packet.das:
            yield _in_turn(packet.destination, 1 if packet.daic else packet.byte_count, True, "destination")
    elif isinstance(packet, sdma.Atomic):
        yield _in_turn(packet.address, 8, True, "number", alignment=8)
    elif isinstance(packet, sdma.Timestamp):
        yield _in_turn(packet.address, CLOCK_BYTES, True, "timestamp", alignment=CLOCK_BYTES)
    elif isinstance(packet, WINDOWS):
        element = 1 << packet.elementsize
        for end, what, is_write in (("src", "source", False), ("dst", "destination", True)):
            yield _window(packet, end, element, what, is_write)


def _window(packet: Any, end: str, element: int, what: str, is_write: bool) -> Access:
    """From the first element of a box to its last, as it lies in memory."""
    values = packet.values
    pitch, slice_pitch = values[f"{end}_pitch"] + 1, values[f"{end}_slice_pitch"] + 1
    first = values[f"{end}_x"] + pitch * values[f"{end}_y"] + slice_pitch * values[f"{end}_z"]
    length = values["rect_x"] + pitch * values["rect_y"] + slice_pitch * values["rect_z"] + 1
    return _in_turn(
        values[f"{end}_addr"] + element * first, element * length, is_write, what, alignment=element
    )


def _hsa_signals(packet: Any, written: Sequence[str], read: Sequence[str]) -> Iterator[Effect]:
    """The signals of the runtime's that an AQL packet names; 0 is none."""
    for names, is_write in ((written, True), (read, False)):
        for name in names:
            if va := packet.values[name]:
                yield _in_turn(
                    va, HSA_SIGNAL_BYTES, is_write, name.replace("_", " "), alignment=HSA_SIGNAL_BYTES
                )


def _launch(packet: pm4.DispatchDirect, state: Registers) -> Launch:
    block = [
        NumThread.decode([state.get(Register.COMPUTE_NUM_THREAD_X + axis, 0)]).num_thread_full
        for axis in range(3)
    ]
    return Launch(
        entry=(state.get(Register.COMPUTE_PGM_LO, 0) | state.get(Register.COMPUTE_PGM_HI, 0) << 32) << 8,
        grid=(packet.dim_x, packet.dim_y, packet.dim_z),
        block=(block[0], block[1], block[2]),
        shared_bytes=Rsrc2.decode([state.get(Register.COMPUTE_PGM_RSRC2, 0)]).lds_size,
    )


def _launch_aql(packet: aql.KernelDispatch) -> Launch:
    block = (packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z)
    items = (packet.grid_size_x, packet.grid_size_y, packet.grid_size_z)
    return Launch(
        entry=packet.kernel_object,
        grid=(  # the last groups may be partial
            -(-items[0] // max(block[0], 1)),
            -(-items[1] // max(block[1], 1)),
            -(-items[2] // max(block[2], 1)),
        ),
        block=block,
        shared_bytes=packet.group_segment_size,
        scratch_bytes=packet.private_segment_size,
    )
