"""Encoding: commands to PM4, AQL and SDMA packets, and back.

In       a Command, and for a dispatch its packed arguments
Out      Pieces: the bytes of whole packets, the ring they go to, and what has to be uploaded beside them
Next     abi/pm4.py, abi/sdma.py, abi/aql.py (every bit), launch.py (dispatches), device.py (who puts pieces into rings)

Every command is finished before the next one starts. On the compute ring a dispatch waits for its waves; on the copy
ring a fence and a poll stand between two copies; between the rings stands an inter-ring fence: one ring signals a
cell, the other waits for it. On an AQL ring everything but a dispatch is a block of PM4, which runs on every XCC: what
must happen once is predicated to the first.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from hcq import command
from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.chip import Chip
from hcq.errors import UsageError
from hcq.gpu.copies import split_overlapping
from hcq.layout import Packet

COMPUTE, COPY = RINGS = "compute", "copy"
WRITE_BYTES = 64  # of a pattern, inline; the rest is copied from there
XCC_0 = 1  # a mask, as ROCr sends it
FILL_BYTES = 1 << 20  # in one packet: within the count of every generation
MAX_PACKET_WORDS = 0x4001


class Piece(bytes):
    """Whole packets for one ring. The 64-bit words at `patches` get the address of `upload`, plus an offset."""

    ring: str = COMPUTE
    upload: bytes = b""
    patches: tuple[tuple[int, int], ...] = ()  # (byte in the packets, offset in the upload)
    buffers: tuple[tuple[int, int], ...] = ()  # of a dispatch: (argument, address), for the rules
    dispatches: int = 0
    runs_upload: bool = False  # the upload is a block of PM4 that the packet runs
    is_free: bool = False  # it waits by itself for what must come before it on another ring

    @property
    def all_words(self) -> bytes:
        """The packets, and behind the packet that runs it the block of PM4 beside it."""
        return self + self.upload if self.runs_upload else self


def piece(packets: bytes, ring: str, upload: bytes = b"", patches: tuple[tuple[int, int], ...] = ()) -> Piece:
    """A Piece of packets for the ring of this name, with what is uploaded beside them and where its address goes.

    Raises  UsageError for a name that is no ring
    """
    if ring not in RINGS:
        raise UsageError(
            f"piece(ring={ring!r}): an AMD GPU has the rings {' and '.join(RINGS)}. Name one of them."
        )
    made = Piece(packets)
    made.ring, made.upload, made.patches = ring, upload, patches
    return made


def join(packets: Sequence[Packet]) -> bytes:
    """Packets as the bytes that a ring holds."""
    return b"".join(packet.to_bytes() for packet in packets)


class Encoder:
    """Commands of one device. The cells are addresses in shared memory.

    ring_fence_va  32 bits: how often one ring has signalled the other
    copy_fence_va  32 bits: goes up and down between copies
    slot_va        where writing raises the event `event_id`
    """

    def __init__(
        self,
        chip: Chip,
        is_aql: bool,
        xccs: int,
        ring_fence_va: int,
        copy_fence_va: int,
        slot_va: int,
        event_id: int,
    ) -> None:
        self.chip, self.is_aql, self.xccs = chip, is_aql, xccs
        self.ring_fence_va, self.copy_fence_va = ring_fence_va, copy_fence_va
        self.slot_va, self.event_id = slot_va, event_id
        self._copy_fence = self._make_copy_fence()
        self._acquire = piece(b"" if is_aql else chip.acquire().to_bytes(), COMPUTE)
        self._acquire_code = self.compute(chip.acquire_next().to_bytes()) if is_aql else piece(b"", COMPUTE)
        finish, at = self._signal(0, 0)
        self._finish_text, self._finish_at = finish, at

    # ------------------------------------------------------------ commands

    def encode(self, what: command.Command) -> Piece:
        """One command that is no dispatch."""
        if isinstance(what, command.Copy):
            return piece(self._copy(what), COPY)
        if isinstance(what, command.Fill):
            return piece(self._fill(what), COPY)
        if isinstance(what, command.Wait):
            return self.compute(self._wait(what) + self.chip.acquire().to_bytes())
        if isinstance(what, command.Signal):
            return self.compute(self._signal(what.signal, what.value)[0])
        if isinstance(what, command.Timestamp):
            clock = self.chip.release(data_sel=pm4.DataSel.SEND_GPU_CLOCK_COUNTER, address=what.address)
            return self.compute(self._once(clock.to_bytes()))
        if isinstance(what, command.Barrier):
            return self.compute(
                flush() + self._once(self.chip.release().to_bytes()) + self.chip.acquire().to_bytes()
            )
        if isinstance(what, command.Packets):
            return self._own(what)
        if isinstance(what, command.Indirect):
            return self.indirect(what.address, what.size_words)
        raise UsageError(f"AMD devices have no packet for {what!r}.")

    def _own(self, what: command.Packets) -> Piece:
        """A program's own packets. Behind those of PM4 all waves end: nothing else would wait for its dispatches.

        On an AQL ring PM4 is a block that one packet runs, on every XCC.
        """
        if what.ring == COPY:
            return piece(what.words, COPY)
        if pm4.is_header(int.from_bytes(what.words[:4], "little")):
            return self.compute(what.words + flush())
        return piece(what.words, COMPUTE)

    def indirect(self, address: int, size_words: int) -> Piece:
        """Run a block of PM4 that already is in memory."""
        if self.is_aql:
            return piece(aql.Pm4Ib(ib_base=address, ib_size=size_words).to_bytes(), COMPUTE)
        return piece(pm4.IndirectBuffer(ib_base=address, ib_size=size_words).to_bytes(), COMPUTE)

    def compute(self, packets: bytes) -> Piece:
        """PM4 for the compute ring, as it is or as a block that an AQL packet runs."""
        if not self.is_aql:
            return piece(packets, COMPUTE)
        made = piece(_run_block(len(packets) // 4), COMPUTE, packets, ((_BLOCK_AT, 0),))
        made.runs_upload = True
        return made

    def finish(self, timeline_va: int, value: int, ring: str) -> Piece:
        """The end of a submission: time, value and interrupt, once all before it is done and visible."""
        if ring == COPY:
            return piece(self._finish_copy(timeline_va, value), COPY)
        packets = bytearray(self._finish_text)
        for at, number in zip(self._finish_at, (timeline_va + 8, timeline_va, value)):
            struct.pack_into("<Q", packets, at, number)
        return self.compute(bytes(packets))

    # ------------------------------------------------------------ between the rings

    def ring_fence_signal(self, ring: str, number: int) -> Piece:
        """Say that everything on this ring so far is done and visible."""
        if ring == COPY:
            return piece(self._write_back() + self._fence(self.ring_fence_va, number), COPY)
        store = self.chip.release(
            data_sel=pm4.DataSel.SEND_32_BIT_LOW, address=self.ring_fence_va, data=number
        ).to_bytes()
        return self.compute(self._once(store))

    def ring_fence_wait(self, ring: str, number: int) -> Piece:
        """Go on once the other ring has signalled."""
        if ring == COPY:
            poll = self._poll(self.ring_fence_va, number, pm4.Function.GREATER_THAN_OR_EQUAL)
            return piece(poll + self._invalidate(), COPY)
        return self.compute(self._wait_32(self.ring_fence_va, number))

    # ------------------------------------------------------------ between the lanes of a graph

    def lane_signal(self, ring: str, va: int, value: int) -> Piece:
        """Everything on this ring so far is done and visible once the cell has this value."""
        if ring == COPY:
            return piece(self._write_back() + self._fence(va, value), COPY)
        store = self.chip.release(data_sel=pm4.DataSel.SEND_64_BIT_DATA, address=va, data=value)
        return self.compute(self._once(store.to_bytes()))

    def lane_wait(self, ring: str, va: int, value: int) -> Piece:
        """Go on once the cell has this value, and see what was written before."""
        if ring == COPY:
            return piece(self._poll(va, value, pm4.Function.GREATER_THAN_OR_EQUAL) + self._invalidate(), COPY)
        return self.compute(self._wait_32(va, value) + self.chip.acquire().to_bytes())

    @property
    def acquire(self) -> Piece:
        """What the host or the copy engine wrote is visible from here on. AQL dispatches do this by themselves."""
        return self._acquire

    @property
    def acquire_code(self) -> Piece:
        """Instruction caches forget what was at the addresses of new code. PM4 launches do so each by itself, an AQL
        packet's fence does not: ROCr sends such a block behind every code object that it loads."""
        return self._acquire_code

    @property
    def acquire_copies(self) -> Piece:
        """The same for the copy ring, where nothing was handed over to it."""
        return piece(self._invalidate(), COPY)

    @property
    def copy_fence(self) -> Piece:
        """Between two copies: the first is done before the second starts. That engines overlap them is inferred."""
        return piece(self._copy_fence, COPY)

    # ------------------------------------------------------------ PM4

    def _wait(self, what: command.Wait) -> bytes:
        fields = {
            "function": pm4.Function.GREATER_THAN_OR_EQUAL,
            "mem_space": pm4.MemSpace.MEMORY,
            "address": what.signal,
            "reference": what.value,
            "poll_interval": 4,
        }
        if self.chip.family > 9:
            # inferred that compute queues run it: AMD's definitions for them have it, no driver that we read sends it
            return pm4.WaitRegMem64(mask=2**64 - 1, **fields).to_bytes()
        if what.value >> 32:
            raise UsageError(
                f"wait for {what.value}: {self.chip.arch} compares 32 bits of a signal. Use values below 2**32."
            )
        return pm4.WaitRegMem(mask=0xFFFFFFFF, **fields).to_bytes()

    def _wait_32(self, va: int, value: int) -> bytes:
        """Go on once the 32 bits there are at least this value."""
        return pm4.WaitRegMem(
            function=pm4.Function.GREATER_THAN_OR_EQUAL,
            mem_space=pm4.MemSpace.MEMORY,
            address=va,
            reference=value,
            mask=0xFFFFFFFF,
            poll_interval=4,
        ).to_bytes()

    def _signal(self, va: int, value: int) -> tuple[bytes, tuple[int, int, int]]:
        """Time, value, interrupt; and where in it the two addresses and the value are."""
        clock = self.chip.release(data_sel=pm4.DataSel.SEND_GPU_CLOCK_COUNTER, address=va + 8)
        store = self.chip.release(data_sel=pm4.DataSel.SEND_64_BIT_DATA, address=va, data=value)
        wake = self.chip.store(
            data_sel=pm4.DataSel.SEND_32_BIT_LOW,
            int_sel=pm4.IntSel.SEND_INTERRUPT_AFTER_WRITE_CONFIRM,
            address=self.slot_va,
            data=self.event_id,
            int_ctxid=self.event_id,
        )
        packets = self._once(join((clock, store, wake)))
        start = len(packets) - 3 * 32
        address_at, data_at = 12, 20  # of RELEASE_MEM, in all generations
        return packets, (start + address_at, start + 32 + address_at, start + 32 + data_at)

    def _once(self, packets: bytes) -> bytes:
        """Predicate packets to the first XCC where a block runs on all of them."""
        if not self.is_aql or self.xccs == 1:
            return packets
        guard = pm4.PredExec(exec_count=len(packets) // 4, virtual_xcc_select=XCC_0)
        return guard.to_bytes() + packets

    # ------------------------------------------------------------ SDMA

    def _copy(self, what: command.Copy) -> bytes:
        parts = [self._copy_plain(part.dst, part.src, part.size_bytes) for part in split_overlapping(what)]
        return self._copy_fence.join(parts) or sdma.Nop().to_bytes()

    def _copy_plain(self, dst: int, src: int, size_bytes: int) -> bytes:
        packets = []
        for at in range(0, size_bytes, self.chip.copy_bytes):
            size = min(self.chip.copy_bytes, size_bytes - at)
            packets.append(self.chip.copies.copy(src_addr=src + at, dst_addr=dst + at, count=size - 1))
        return join(packets)

    def _fill(self, what: command.Fill) -> bytes:
        """Bytes up to a multiple of 4, then words, then the bytes that are left."""
        pattern = what.pattern.to_bytes(8, "little")
        head = min(-what.dst % 4, what.size_bytes)
        body = (what.size_bytes - head) // 4 * 4
        parts = [
            self._fill_bytes(what.dst + i, pattern[i % 8], 1)
            for i in (*range(head), *range(head + body, what.size_bytes))
        ]
        turned = (pattern + pattern)[head % 8 : head % 8 + 8]
        if body:
            parts.append(self._fill_body(what.dst + head, turned, body))
        return b"".join(parts) or sdma.Nop().to_bytes()

    def _fill_body(self, dst: int, pattern: bytes, size: int) -> bytes:
        if pattern[:4] == pattern[4:]:
            word = int.from_bytes(pattern[:4], "little")
            packets = []
            for at in range(0, size, FILL_BYTES):
                count = min(FILL_BYTES, size - at) - 4
                fill = self.chip.copies.fill
                packets.append(
                    fill(fillsize=sdma.FillSize.WORD, dst_addr=dst + at, src_data=word, count=count)
                )
            return join(packets)
        done = min(size, WRITE_BYTES)
        first = struct.unpack(f"<{done // 4}I", (pattern * (WRITE_BYTES // 8))[:done])
        parts = [self.chip.copies.write(dst_addr=dst, count=len(first) - 1, data=first).to_bytes()]
        while done < size:  # twice as much each time
            part = min(done, size - done)
            parts.append(self._copy_plain(dst + done, dst, part))
            done += part
        return self._copy_fence.join(parts)

    def _fill_bytes(self, dst: int, value: int, size: int) -> bytes:
        return self.chip.copies.fill(
            fillsize=sdma.FillSize.BYTE, dst_addr=dst, src_data=value, count=size - 1
        ).to_bytes()

    def _fence(self, va: int, value: int) -> bytes:
        return self.chip.copies.fence(address=va, data=value).to_bytes()

    def _poll(self, va: int, value: int, function: pm4.Function) -> bytes:
        return self.chip.copies.poll(
            func=function,
            address=va,
            value=value,
            mask=0xFFFFFFFF,
            interval=160,
            retry_count=sdma.RETRY_FOREVER,
        ).to_bytes()

    def _make_copy_fence(self) -> bytes:
        parts = []
        for level in (1, 0):
            parts += [
                self._fence(self.copy_fence_va, level),
                self._poll(self.copy_fence_va, level, pm4.Function.EQUAL),
            ]
        return b"".join(parts)

    def _finish_copy(self, timeline_va: int, value: int) -> bytes:
        """The low half first: a reader between the two sees too small a value, never one too large."""
        return b"".join(
            (
                self._write_back(),
                sdma.Timestamp(address=timeline_va + 8).to_bytes(),
                self._fence(timeline_va, value & 0xFFFFFFFF),
                self._fence(timeline_va + 4, value >> 32),
                self._fence(self.slot_va, self.event_id),
                sdma.Trap(int_context=self.event_id).to_bytes(),
            )
        )

    def _invalidate(self) -> bytes:
        """Before copies: what the engine's caches hold may be old."""
        if not self.chip.copies.has_gcr:
            return b""
        caches = {"glk_wb": 1, "glk_inv": 1, "glv_inv": 1, "gl1_inv": 1, "gl2_inv": 1, "gl2_wb": 1}
        if self.chip.family == 12:
            del caches["gl1_inv"]
        return sdma.GcrReq(**caches).to_bytes()

    def _write_back(self) -> bytes:
        """After copies: what the engine wrote is in memory."""
        if not self.chip.copies.has_gcr:
            return b""
        return sdma.GcrReq(glk_wb=1, gl2_wb=1).to_bytes()

    # ------------------------------------------------------------ and back

    def decode(self, words: Sequence[int]) -> list[Packet]:
        """The packets of a submission, whichever rings they went to. Never raises.

        A word shows by itself what it starts: PM4 packets are of type 3 with opcodes from 16 on, the sub-operation of
        an SDMA packet is below 16, and our AQL packets have their barrier and fence bits set.
        """
        found: list[Packet] = []
        at = 0
        while at < len(words):
            rest = words[at : at + MAX_PACKET_WORDS]
            if pm4.is_header(rest[0]):
                packet = pm4.decode_one(rest, self.chip.packets)
            elif rest[0] >> 8 & 0xFF < 0x10:
                packet = sdma.decode_one(rest, self.chip.copies)
            else:
                packet = aql.decode_one(rest)
            found.append(packet)
            if isinstance(packet, (pm4.Header, sdma.Header, aql.Header)):
                break
            at += len(packet.words)
        return found


_BLOCK_AT = aql.Pm4Ib.ib_base.low // 32 * 4


@functools.lru_cache(256)
def _run_block(size_words: int) -> bytes:
    """The AQL packet that runs a block of so many words; its address comes when the block has one."""
    return aql.Pm4Ib(ib_base=0, ib_size=size_words).to_bytes()


def flush() -> bytes:
    """Wait until all launched waves have ended."""
    return pm4.EventWrite(
        event_type=pm4.Event.CS_PARTIAL_FLUSH, event_index=pm4.EventIndex.CS_PARTIAL_FLUSH
    ).to_bytes()
