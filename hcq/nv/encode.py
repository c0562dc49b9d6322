"""Encoding: commands to methods of a pushbuffer, and back.

In       a Command, and for a dispatch its packed arguments (launch.py)
Out      Pieces: whole runs of methods, and for a launch what it points to
Next     abi/methods.py (headers), abi/host_methods.py, abi/compute_methods.py, abi/copy_methods.py (every bit),
         pushbuffer.py
Source   clc56f.h, clc6c0.h, clc6b5.h and their successors; orders of methods as CUDA's driver was seen to send them

Every command is finished before the next one starts. A launch is followed by WFI, which holds the front end until the
engines are idle. A copy ends with a semaphore that the copy engine releases after its flush, and that the front end
waits for; it is then set back, so that the same words can run again.

Launch data (a QMD and its constant bank) stand in a piece behind the header of a NO_OPERATION, which a GPU that ran
through it would ignore. Where they are placed is known only later, so addresses in a piece count from its launch data.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from hcq import command
from hcq.errors import UsageError
from hcq.gpu.copies import split_overlapping
from hcq.layout import Packet
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi import copy_methods as copy
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.gpfifo import GpEntry
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import (
    COMPUTE_SUBCHANNEL,
    COPY_SUBCHANNEL,
    Push,
    immediate,
    incrementing,
    methods_of,
    non_incrementing,
    semaphore,
)
from hcq.nv.address import LOCAL_WINDOW, SHARED_WINDOW
from hcq.nv.chip import Chip

HOST_SUBCHANNEL = 0
COPY_BYTES = 1 << 30  # of one LAUNCH_DMA
STAMP_BYTES = 8
PAYLOAD_AT = 12  # in the words of a semaphore: behind the header and the address
NON_PIPELINED = copy.DataTransferType.NON_PIPELINED
PITCH = copy.SrcMemoryLayout.PITCH

# (byte in the piece, shift, one word or two): the address of the launch data, shifted, is added there
Patch = tuple[int, int, struct.Struct]
WORD, TWO_WORDS = struct.Struct("<I"), struct.Struct("<Q")


class Piece(bytes):
    """Words of a pushbuffer.

    data_bytes  how many of the first bytes are a header and the launch data behind it
    patches     where the address of the launch data goes
    entries     segments of a block, as GPFIFO entries: they run instead of the words
    is_free     they run on the copy channel, and wait by themselves for what must come before them on the other
    launches    how many kernels it starts
    is_alone    they need the whole GPU: nothing else may run meanwhile
    """

    data_bytes: int = 0
    launches: int = 0
    is_alone: bool = False
    is_free: bool = False
    patches: tuple[Patch, ...] = ()
    entries: tuple[int, ...] = ()


def join(packets: Sequence[Packet]) -> bytes:
    """Packets as the bytes that a pushbuffer holds."""
    return b"".join(packet.to_bytes() for packet in packets)


class Encoder:
    """Commands of one device. The cells are addresses in memory that host and GPU see.

    copy_fence_va  32 bits: goes up and down after copies
    stamp_va       16 bytes: where a timestamp lands before it is copied to its place
    """

    def __init__(self, chip: Chip, copy_fence_va: int, stamp_va: int) -> None:
        self.chip, self.copy_fence_va, self.stamp_va = chip, copy_fence_va, stamp_va
        self._addr_hi = _method(chip.engines.gpfifo, host.SemAddrHi)
        self._launch_dma = _method(chip.engines.copy, copy.LaunchDma)
        self._semaphore_a = _method(chip.engines.copy, copy.SetSemaphoreA)
        self._in_upper = _method(chip.engines.copy, copy.OffsetInUpper)
        self._out_upper = _method(chip.engines.copy, copy.OffsetOutUpper)
        self._signals: dict[int, tuple[bytes, bytes]] = {}  # cell -> the words before and behind the value
        self._copy_fence = self._host_copy_fence()
        self.new_code = Piece(self._invalidate())  # before the first launch of code that was just written

    # ------------------------------------------------------------ commands

    def encode(self, what: command.Command) -> Piece:
        """One command that is no dispatch."""
        if isinstance(what, command.Copy):
            return Piece(self._copy(what))
        if isinstance(what, command.Fill):
            return Piece(self._fill(what))
        if isinstance(what, command.Wait):
            return Piece(self._acquire(what.signal, what.value) + self._invalidate())
        if isinstance(what, command.Signal):
            return Piece(self._signal(what.signal, what.value))
        if isinstance(what, command.Timestamp):
            return Piece(self._timestamp(what.address))
        if isinstance(what, command.Barrier):
            return Piece(wait_for_idle() + self._invalidate())
        if isinstance(what, command.Packets):  # whatever engines they started are idle before anything else
            return Piece(what.words + wait_for_idle() + self._invalidate())
        if isinstance(what, command.Indirect):
            return note_block(what.address, what.size_words)
        raise UsageError(f"NVIDIA devices have no method for {what!r}.")

    def lane_wait(self, va: int, value: int) -> Piece:
        """`command.Wait` on a channel that only copies: there are no shader caches to invalidate."""
        return Piece(self._acquire(va, value))

    def store(self, va: int, value: int) -> bytes:
        """Eight bytes, which the front end sees in memory before it goes on."""
        there = host.SemExecute(operation=host.SemExecuteOperation.ACQUIRE, payload_size=1)
        release = host.SemExecute(operation=host.SemExecuteOperation.RELEASE, payload_size=1)
        return self._semaphore(va, value, release) + self._semaphore(va, value, there)

    def finish(self, timeline_va: int, value: int) -> Piece:
        """What ends a submission."""
        return Piece(self._signal(timeline_va, value))

    def setup(self) -> Piece:
        """State of a new channel, set first: classes of its subchannels, windows of local and shared memory."""
        shared, local = SHARED_WINDOW, LOCAL_WINDOW
        packets = [
            incrementing(COMPUTE_SUBCHANNEL, host.SetObject(nvclass=self.chip.engines.compute)),
            immediate(COMPUTE_SUBCHANNEL, compute.InvalidateSkedCaches()),
            incrementing(
                COMPUTE_SUBCHANNEL,
                compute.SetShaderSharedMemoryWindowA(base_address_upper=shared >> 32),
                compute.SetShaderSharedMemoryWindowB(base_address=shared & 0xFFFFFFFF),
            ),
            incrementing(
                COMPUTE_SUBCHANNEL,
                compute.SetShaderLocalMemoryWindowA(base_address_upper=local >> 32),
                compute.SetShaderLocalMemoryWindowB(base_address=local & 0xFFFFFFFF),
            ),
            incrementing(COPY_SUBCHANNEL, host.SetObject(nvclass=self.chip.engines.copy)),
        ]
        return Piece(join(packets))

    def setup_copies(self) -> Piece:
        """The same of a channel that only copies."""
        return Piece(incrementing(COPY_SUBCHANNEL, host.SetObject(nvclass=self.chip.engines.copy)).to_bytes())

    def local_memory(self, va: int, bytes_per_tpc: int, tpcs: int) -> Piece:
        """Memory for what kernels keep on their stacks; the channel is idle meanwhile.

        tpcs   of the design, with those that this part lacks: inferred, for units are numbered with their gaps
        """
        engine = self.chip.engines.compute
        address_a = _method(engine, compute.SetShaderLocalMemoryA)
        size_c = _method(engine, compute.SetShaderLocalMemoryNonThrottledC)
        packets = [
            incrementing(
                COMPUTE_SUBCHANNEL,
                address_a(address_upper=va >> 32),
                compute.SetShaderLocalMemoryB(address_lower=va & 0xFFFFFFFF),
            ),
            incrementing(
                COMPUTE_SUBCHANNEL,
                compute.SetShaderLocalMemoryNonThrottledA(size_upper=bytes_per_tpc >> 32),
                compute.SetShaderLocalMemoryNonThrottledB(size_lower=bytes_per_tpc & 0xFFFFFFFF),
                size_c(max_sm_count=min(tpcs, 0xFF)),
            ),
        ]
        return Piece(wait_for_idle() + join(packets))

    # ------------------------------------------------------------ the host's methods

    def _semaphore(self, va: int, value: int, execute: Method) -> bytes:
        return incrementing(HOST_SUBCHANNEL, *semaphore(va, value, execute, self._addr_hi)).to_bytes()

    def _acquire(self, va: int, value: int) -> bytes:
        """Go on once the cell has this value."""
        # inferred that each class has it: 580's trimmed clc86f.h names only ACQ_CIRC_GEQ, fuller headers both
        execute = host.SemExecute(
            operation=host.SemExecuteOperation.ACQ_STRICT_GEQ, acquire_switch_tsg=1, payload_size=1
        )
        return self._semaphore(va, value, execute)

    def _signal(self, va: int, value: int) -> bytes:
        """Value and time, once everything before is done. Every submission ends with one, so each cell's is kept."""
        made = self._signals.get(va)
        if made is None:
            release = host.SemExecute(
                operation=host.SemExecuteOperation.RELEASE, release_wfi=1, payload_size=1, release_timestamp=1
            )
            words = self._semaphore(va, 0, release)
            made = self._signals[va] = words[:PAYLOAD_AT], words[PAYLOAD_AT + 8 :]
        return made[0] + value.to_bytes(8, "little") + made[1]

    def _host_copy_fence(self) -> bytes:
        """Behind a copy: wait for its semaphore, and set it back."""
        wait = host.SemExecute(operation=host.SemExecuteOperation.ACQUIRE)
        back = host.SemExecute(operation=host.SemExecuteOperation.RELEASE)
        return (
            self._semaphore(self.copy_fence_va, 1, wait)
            + self._semaphore(self.copy_fence_va, 0, back)
            + self._semaphore(self.copy_fence_va, 0, wait)
        )

    def _invalidate(self) -> bytes:
        """Forget what the caches for code, constants and data hold: the host or another GPU may have written."""
        return immediate(
            COMPUTE_SUBCHANNEL, compute.InvalidateShaderCachesNoWfi(instruction=1, global_data=1, constant=1)
        ).to_bytes()

    def _timestamp(self, va: int) -> bytes:
        """A semaphore's time has a value before it, so it is written elsewhere and copied."""
        wait = host.SemExecute(operation=host.SemExecuteOperation.ACQUIRE)
        back = host.SemExecute(operation=host.SemExecuteOperation.RELEASE)
        return (
            self._signal(self.stamp_va, 1)
            + self._semaphore(self.stamp_va, 1, wait)
            + self._copies(va, self.stamp_va + 8, STAMP_BYTES)
            + self._copy_fence
            + self._semaphore(self.stamp_va, 0, back)
        )

    # ------------------------------------------------------------ the copy engine's

    def _copy(self, what: command.Copy) -> bytes:
        parts = [
            self._copies(part.dst, part.src, part.size_bytes) + self._copy_fence
            for part in split_overlapping(what)
        ]
        return b"".join(parts) or Push(sec_op=0).to_bytes()

    def _copies(self, dst: int, src: int, size_bytes: int) -> bytes:
        """A copy in parts that one launch can do; the last one releases the semaphore."""
        packets: list[Packet] = []
        for at in range(0, size_bytes, COPY_BYTES):
            size = min(COPY_BYTES, size_bytes - at)
            packets += [
                incrementing(COPY_SUBCHANNEL, *self._source(src + at), *self._target(dst + at)),
                self._length(size),
                *self._launch(at + size == size_bytes),
            ]
        return join(packets)

    def _fill(self, what: command.Fill) -> bytes:
        """Bytes up to a multiple of 4, then words or pairs of them, then what is left; one semaphore for all."""
        pattern = what.pattern.to_bytes(8, "little")
        if not what.size_bytes:
            return Push(sec_op=0).to_bytes()
        if len(set(pattern)) == 1:
            return self._remapped(what.dst, pattern, 1, what.size_bytes, True) + self._copy_fence
        head = min(-what.dst % 4, what.size_bytes)
        words = (what.size_bytes - head) // 4
        turned = (pattern + pattern)[head % 8 : head % 8 + 8]
        pairs = 0 if turned[:4] == turned[4:] else words // 2
        after = head + 8 * pairs
        singles = words - 2 * pairs
        tail = after + 4 * singles
        parts: list[tuple[int, bytes, int, int]] = []
        parts += [(what.dst + at, pattern[at % 8 :], 1, 1) for at in range(head)]
        parts += [(what.dst + head, turned, 8, pairs)] * bool(pairs)
        parts += [(what.dst + after, turned, 4, singles)] * bool(singles)
        parts += [(what.dst + at, pattern[at % 8 :], 1, 1) for at in range(tail, what.size_bytes)]
        filled = [self._remapped(*part, is_last=number == len(parts)) for number, part in enumerate(parts, 1)]
        return b"".join(filled) + self._copy_fence

    def _remapped(self, dst: int, pattern: bytes, element_bytes: int, count: int, is_last: bool) -> bytes:
        """Elements of one, four or eight bytes, made of constants instead of read."""
        words = pattern.ljust(8, b"\0")
        size, number = copy.ComponentSize, copy.DstX
        is_pair = element_bytes == 8
        packets: list[Packet] = [
            incrementing(
                COPY_SUBCHANNEL,
                copy.SetRemapConstA(v=int.from_bytes(words[: min(element_bytes, 4)], "little")),
                copy.SetRemapConstB(v=int.from_bytes(words[4:8], "little") if is_pair else 0),
                copy.SetRemapComponents(
                    dst_x=number.CONST_A,
                    dst_y=number.CONST_B if is_pair else number.NO_WRITE,
                    dst_z=number.NO_WRITE,
                    dst_w=number.NO_WRITE,
                    component_size=size.ONE if element_bytes == 1 else size.FOUR,
                    num_src_components=size.ONE,
                    num_dst_components=size.TWO if is_pair else size.ONE,
                ),
            )
        ]
        step = COPY_BYTES // element_bytes
        for at in range(0, count, step):
            part = min(step, count - at)
            packets += [
                incrementing(COPY_SUBCHANNEL, *self._target(dst + at * element_bytes)),
                self._length(part),
                *self._launch(is_last and at + part == count, is_remapped=True),
            ]
        return join(packets)

    def _source(self, va: int) -> tuple[Any, ...]:
        return self._in_upper(upper=va >> 32), copy.OffsetInLower(value=va & 0xFFFFFFFF)

    def _target(self, va: int) -> tuple[Any, ...]:
        return self._out_upper(upper=va >> 32), copy.OffsetOutLower(value=va & 0xFFFFFFFF)

    def _length(self, size: int) -> Push:
        return incrementing(COPY_SUBCHANNEL, copy.LineLengthIn(value=size), copy.LineCount(value=1))

    def _launch(self, is_last: bool, is_remapped: bool = False) -> list[Push]:
        """One LAUNCH_DMA; the last of a command flushes what it wrote and releases the order cell."""
        launch = self._launch_dma(
            data_transfer_type=NON_PIPELINED,
            src_memory_layout=PITCH,
            dst_memory_layout=PITCH,
            remap_enable=is_remapped,
            flush_enable=is_last,
            semaphore_type=copy.SemaphoreType.RELEASE_ONE_WORD_SEMAPHORE if is_last else 0,
        )
        if not is_last:
            return [incrementing(COPY_SUBCHANNEL, launch)]
        cell = incrementing(
            COPY_SUBCHANNEL,
            self._semaphore_a(upper=self.copy_fence_va >> 32),
            copy.SetSemaphoreB(lower=self.copy_fence_va & 0xFFFFFFFF),
            copy.SetSemaphorePayload(payload=1),
        )
        return [cell, incrementing(COPY_SUBCHANNEL, launch)]


def wait_for_idle() -> bytes:
    """The front end goes on when all engines of the channel are idle.

    Scope ALL, and that a launch needs one before the next that depends on it, are inferences: it is the safe side.
    """
    return immediate(HOST_SUBCHANNEL, host.Wfi(scope=host.Scope.ALL)).to_bytes()


def note_block(va: int, size_words: int, entries: tuple[int, ...] = (), is_free: bool = False) -> Piece:
    """Says in the words of a submission that a block runs here: a host NOP with the segment. The GPFIFO has it, too.

    is_free  it runs on the copy channel: a third word says so
    """
    low, high = GpEntry(get=va, length=size_words).words
    words = (low, high, 1) if is_free else (low, high)
    made = Piece(non_incrementing(HOST_SUBCHANNEL, host.Nop, words).to_bytes())
    made.entries = entries or (low | high << 32,)
    made.is_free = is_free
    return made


def _method(class_id: int, method: Any) -> Any:
    """A method as a class has it: fields differ in width between generations."""
    return methods_of(class_id)[method.at]
