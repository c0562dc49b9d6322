"""Replay of a capsule of an NVIDIA GPU: the methods of somebody's hang on the front end of an emulated channel.

In       a Trace that nv_capsule.py made
Out      Stand: at which packet the emulated channel stands, and whether that is the one of the report
Changes  nothing: the channels are made for this, and have no thread and no kernel driver
Next     capsule_replay.py (AMD's, and who calls), nv_capsule.py (who made the trace), hcq/emu/nv/pbdma.py (the front
         end), capsule_stand.py (the outcome)

Segments, QMDs, constant banks and code lie at their addresses, and the semaphores that are waited for hold what they
held. Of all other memory that packets and launches name the contents are unknown: it reads as zeros until something
writes it. Each packet goes to the front end as a segment of its own, so that it is known which one does not end. Before
them go the windows and the local memory, as hcq sets them: earlier segments did that. Packets before the marked one
that cannot be done here are passed over: launches whose code is not there or is machine code, kernels that do not end
in their budget of instructions, and waits for memory that is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.kernel import OwnProcess
from hcq.emu.nv.card import Card
from hcq.emu.nv.channel import Channel, Group, Setup
from hcq.emu.nv.compute_processor import ComputeProcessor
from hcq.emu.nv.copy_processor import CopyProcessor
from hcq.emu.nv.engine import Engine
from hcq.emu.nv.errors import ChannelError, LaunchError
from hcq.emu.nv.host_processor import Acquire as Semaphore
from hcq.emu.nv.launch import Shader, Windows
from hcq.emu.nv.launch_limits import local_memory_bytes
from hcq.emu.nv.launch_plans import Split
from hcq.emu.nv.memory import PAGE, PageTable, View
from hcq.emu.nv.pbdma import Pbdma, State
from hcq.emu.nv.shader.memory import Mapping
from hcq.emu.nv.spec import CHIPS, ENGINE_GR0, Spec
from hcq.emu.nv.watch import ChannelWatch
from hcq.errors import UsageError
from hcq.nv.abi.gpfifo import USERD_BYTES, USERD_GP_PUT, GpEntry, decode_entry
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, Push
from hcq.nv.abi.qmd import qmd_for
from hcq.nv.chip import CHIPS as DRIVEN
from hcq.nv.decode import decoder
from hcq.nv.encode import Encoder
from hcq.nv.rings import segment
from hcq.nv.waits_and_launches import Acquire, acquires
from hcq.tools.trace.capsule_records import UNKNOWN, pages_of, without
from hcq.tools.trace.capsule_stand import Stand
from hcq.trace.file import Trace, TraceDevice

ENTRIES = 64  # of the ring through which packets go
RING_BYTES = 8 * ENTRIES
FIRST_CHANNEL = 8
MAX_UNKNOWN_BYTES = 1 << 28
NO_CODE = "it launches a kernel, whose code is not in the report"
MOST_LOCAL_BYTES = 1 << 14  # of a thread
STEPS = 1 << 17  # instructions of all kernels of a launch


def replay(trace: Trace, device: TraceDevice, on: str) -> Stand:
    """Run the packets of a capsule. on: an emulated GPU. Raises UsageError for one that is not."""
    arch = on.lower().removeprefix("nv:") or device.arch
    if arch not in CHIPS:
        raise UsageError(
            f"replay: no {arch} is emulated, so this capsule can be shown and linted only. Emulated are "
            f"{', '.join(CHIPS)}."
        )
    return _Run(trace, device, arch).run()


class _Shader(Shader):
    """Shader cores that run the kernels whose code is there. known: where code is, (start, end)."""

    def __init__(self, spec: Spec, known: list[tuple[int, int]]) -> None:
        super().__init__(spec)
        self.known = known

    def run(
        self, read: Split, view: View, windows: Windows, interrupted: Callable[[], bool], pid: int = 0
    ) -> None:
        program = read.qmd.value("program_address")
        if not any(low <= program < high for low, high in self.known):
            raise LaunchError(NO_CODE)
        super().run(read, view, windows, interrupted, pid)


class _Piece:
    """A packet of a submission: its first word there, its address, the packet. A segment that is not there has none."""

    def __init__(self, at: int, va: int, packet: Any, why: str = "") -> None:
        self.at, self.va, self.packet, self.why = at, va, packet, why


class _Lane:
    """A channel and the packets of its submission; `next` is the one at which it stands."""

    def __init__(self, front: Pbdma, ring: int, pieces: list[_Piece], waits: dict[int, Acquire]) -> None:
        self.front, self.ring, self.pieces, self.waits = front, ring, pieces, waits
        self.next = 0
        self.is_given = False  # the front end has it
        self.halted = ""

    @property
    def piece(self) -> _Piece | None:
        """The packet at which it stands."""
        return self.pieces[self.next] if self.next < len(self.pieces) else None

    def give(self, piece: _Piece) -> None:
        """Put a packet into the ring."""
        userd, view = self.front.channel.userd, self.front.channel.view
        put = int(userd[USERD_GP_PUT // 4])
        view.store_number(self.ring + 8 * put, segment(piece.va, len(piece.packet.words)), 8, "a replay")
        userd[USERD_GP_PUT // 4] = (put + 1) % ENTRIES
        self.is_given = True

    def go_on(self) -> None:
        """To the next packet."""
        self.next += 1
        self.is_given = False


class _Run:
    def __init__(self, trace: Trace, device: TraceDevice, arch: str) -> None:
        self.arch, self.trace = arch, trace
        self.chip = CHIPS[arch]
        self.decode = decoder(arch)
        mark = next(one.fields for one in trace.faults if "submission" in one.fields)
        self.marked, self.mark = int(mark["submission"]), int(mark["word"])
        self.card = Card(Spec(self.chip, step_limit=STEPS), 0, 0)
        self.table = PageTable()
        self.unknown_bytes = self.done = 0
        self.passed: list[str] = []
        self.assumed = ""
        about = device.facts["capsule"]
        self.memory = {int(va): [int(one) for one in words] for va, words in about["memory"]}
        self.pages: dict[int, bytearray] = {}
        self.highest = PAGE
        work = list(zip(trace.submissions, about["rings"]))
        for submission, ring in work:
            for low, high, at in ring["entries"]:
                entry = decode_entry(low, high)
                if at is not None and isinstance(entry, GpEntry):
                    self._fill(entry.get, submission.words[at : at + entry.length])
        code = {int(va): [int(one) for one in words] for va, words in about.get("code", ())}
        self.shader = _Shader(self.card.spec, [(va, va + 4 * len(words)) for va, words in code.items()])
        for va, words in {**self.memory, **code}.items():
            self._fill(va, words)
        self._map()
        self.lanes = {
            submission.value: self._lane(number, submission.words, ring)
            for number, (submission, ring) in enumerate(work)
        }

    # ------------------------------------------------------------ memory

    def _fill(self, va: int, words: Any) -> None:
        """Known words, on pages of zeros."""
        data = b"".join(int(word).to_bytes(4, "little") for word in words)
        at = 0
        while at < len(data):
            page, offset = divmod(va + at, PAGE)
            part = data[at : at + PAGE - offset]
            self.pages.setdefault(page, bytearray(PAGE))[offset : offset + len(part)] = part
            at += len(part)

    def _map(self) -> None:
        """What is known, and zeros for what the trace calls unknown."""
        spans = [(page * PAGE, (page + 1) * PAGE) for page in self.pages]
        for start, end in pages_of(spans):
            data = b"".join(bytes(self.pages[page]) for page in range(start // PAGE, end // PAGE))
            self._add(start, np.frombuffer(data, np.uint8).copy())
        named = [
            (one.start, one.start + one.size_bytes)
            for one in self.trace.memory_at(self.trace.records[-1]).ranges
            if one.name.startswith(UNKNOWN)
        ]
        for start, end in without(pages_of(named), pages_of(spans)):
            if self.unknown_bytes + end - start <= MAX_UNKNOWN_BYTES:
                self._add(start, np.zeros(end - start, np.uint8))
                self.unknown_bytes += end - start

    def _add(self, va: int, data: Any) -> None:
        self.table.map(Mapping(va, data, True, f"memory at {va:#x}"))
        self.highest = max(self.highest, va + len(data))

    # ------------------------------------------------------------ channels

    def _lane(self, number: int, words: tuple[int, ...], about: dict[str, Any]) -> _Lane:
        ring = -(-self.highest // PAGE) * PAGE
        self._add(ring, np.zeros(PAGE, np.uint8))
        engines = self.chip.engines
        userd = np.zeros(USERD_BYTES, np.uint8)
        setup = Setup(lambda: self.table, ring, ENTRIES, userd, None, OwnProcess(0, {}))
        channel = Channel(self.card, Group(ENGINE_GR0, False), FIRST_CHANNEL + number, engines.gpfifo, setup)
        channel.classes = {int(engines.compute), int(engines.copy)}
        front = Pbdma(channel, self._engine, ChannelWatch([], setup.process, channel))
        # earlier segments have bound them
        for subchannel, class_id in ((COMPUTE_SUBCHANNEL, engines.compute), (COPY_SUBCHANNEL, engines.copy)):
            front.bound[subchannel] = front.engines[class_id] = self._engine(channel, int(class_id))
        self._set_up(front, ring)
        pieces: list[_Piece] = []
        for low, high, at in about["entries"]:
            entry = decode_entry(low, high)
            if not isinstance(entry, GpEntry):
                continue
            if at is None:
                why = f"the segment at {entry.get:#x} is not in the report"
                pieces.append(_Piece(pieces[-1].at if pieces else 0, entry.get, None, why))
                continue
            offset = 0
            for packet in self.decode(words[at : at + entry.length]):
                if isinstance(packet, Push):  # what stands behind the end of a segment is not read
                    pieces.append(_Piece(at + offset, entry.get + 4 * offset, packet))
                offset += len(packet.words)
        known = [(piece.at, piece.packet) for piece in pieces if piece.packet is not None]
        waits = {wait.at: wait for wait in acquires(known)}
        return _Lane(front, ring, pieces, waits)

    def _engine(self, channel: Channel, class_id: int) -> Engine:
        if class_id == self.chip.engines.copy:
            return CopyProcessor(channel, class_id)
        return ComputeProcessor(channel, class_id, self.shader)

    def _set_up(self, front: Pbdma, ring: int) -> None:
        """What earlier segments have set: windows, and local memory for as much as the launches here ask for."""
        encoder = Encoder(DRIVEN[self.arch], 0, 0)
        words = list(memoryview(bytes(encoder.setup())).cast("I"))
        if need := self._local_bytes():
            at = -(-self.highest // PAGE) * PAGE
            self._add(at, np.zeros(need * self.chip.tpcs, np.uint8))
            words += list(memoryview(bytes(encoder.local_memory(at, need, self.chip.tpcs))).cast("I"))
        at = ring + RING_BYTES
        front.channel.view.write(at, struct.pack(f"<{len(words)}I", *words), "a replay")
        lane = _Lane(front, ring, [], {})
        for packet in self.decode(words):
            lane.give(_Piece(0, at, packet))
            while front.step() is State.WORKED:
                pass
            at += 4 * len(packet.words)

    def _local_bytes(self) -> int:
        """Local memory for each TPC, as the launch that needs the most of those here does."""
        layout = qmd_for(self.chip.engines.compute)
        needs = [
            qmd.value("shader_local_memory_low_size") + qmd.value("shader_local_memory_high_size")
            for words in self.memory.values()
            if len(words) == layout.length_words and (qmd := layout.decode(words)).value("qmd_major_version")
        ]
        most = max(needs, default=0)
        return local_memory_bytes(min(most, MOST_LOCAL_BYTES), self.chip.warps_per_sm) if most else 0

    # ------------------------------------------------------------ work

    def run(self) -> Stand:
        """All channels by turns, until none goes on."""
        marked = self.lanes[self.marked]
        is_moving = True
        while is_moving:
            is_moving = False
            for lane in self.lanes.values():
                while self._step(lane, lane is marked):
                    is_moving = True
        piece = marked.piece
        if piece is None:
            why = "everything was done"
        else:
            why = marked.halted or "it waits, and nothing here ends that"
        return Stand(
            word=sum(len(one.packet.words) for one in marked.pieces if one.packet is not None)
            if piece is None
            else piece.at,
            block=None,
            block_word=0,
            packet="" if piece is None or piece.packet is None else repr(piece.packet)[:240],
            is_same=piece is not None and piece.packet is not None and piece.at == self.mark,
            why=why,
            done=self.done,
            passed=self.passed,
            unknown_bytes=self.unknown_bytes,
            arch=self.arch,
            assumed=self.assumed,
        )

    def _step(self, lane: _Lane, is_marked: bool) -> bool:
        """One packet. False: the channel has nothing to do, waits, or goes on no more."""
        piece = lane.piece
        if piece is None or lane.halted:
            return False
        is_before = is_marked and piece.at < self.mark
        if piece.packet is None:
            return self._refuse(lane, piece, piece.why, is_before)
        if is_marked and piece.at == self.mark and not lane.is_given:
            self._assume(lane.waits.get(piece.at))
        try:
            if not lane.is_given:
                lane.give(piece)
            while (state := lane.front.step()) is State.WORKED:
                pass
        except ChannelError as error:
            lane.front.go_on()
            return self._refuse(lane, piece, str(error), is_before)
        if state is State.BLOCKED:
            if not is_before:
                return False
            lane.front.go_on()
            return self._refuse(lane, piece, "it waits for memory that is not in the report", is_before)
        lane.go_on()
        self.done += 1
        return True

    def _refuse(self, lane: _Lane, piece: _Piece, why: str, is_before: bool) -> bool:
        """Pass over a packet that was done on the machine of the report; stop at any other."""
        if not is_before:
            lane.halted = why
            return False
        name = "a segment" if piece.packet is None else repr(piece.packet)[:80]
        self.passed.append(f"{name}: {why}")
        lane.go_on()
        return True

    def _assume(self, wait: Acquire | None) -> None:
        """Give a semaphore of which nothing is known, and for which the marked packet waits, a value that waits."""
        if wait is None or wait.va in self.memory or wait.va % wait.size_bytes:
            return
        if not self.table.overlaps(wait.va, wait.size_bytes):
            return
        view = self.table.view
        semaphore = Semaphore(wait.va, wait.how, wait.payload, wait.size_bytes)
        most = (1 << 8 * wait.size_bytes) - 1
        if not semaphore.holds(view.load_number(wait.va, wait.size_bytes, "a replay")):
            return
        tried = (0, wait.payload - 1 & most, wait.payload + 1 & most, most)
        value = next((one for one in tried if not semaphore.holds(one)), None)
        if value is not None:
            view.store_number(wait.va, value, wait.size_bytes, "a replay")
            self.assumed = (
                f"the semaphore at {wait.va:#x} is not in the report; zeros would end this wait, so it is taken to "
                f"hold {value:#x}"
            )
