"""PBDMA, the front end of a channel: it fetches ring entries and pushbuffer segments and hands methods to engines.

In       GP_PUT in USERD, the ring, segments: all read as the GPU sees them
Out      methods written to engines, in the channel's order; GP_GET advanced as entries are fetched
Changes  what the methods change
Next     channel.py (the channel), host_processor.py (methods below 0x100), copy_processor.py, compute_processor.py,
         gpu.py (whose thread this is)
Source   clc56f.h, clc86f.h: GP_ENTRY, DMA_*
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum

from hcq.emu.nv.channel import Channel
from hcq.emu.nv.engine import Engine
from hcq.emu.nv.errors import ClassError, HostError
from hcq.emu.nv.host_processor import HostProcessor
from hcq.emu.nv.watch import ChannelWatch
from hcq.nv.abi.classes import COMPUTE, COPY
from hcq.nv.abi.gpfifo import USERD_GP_GET, USERD_GP_PUT, GpControl, GpEntry, GpOpcode, decode_entry
from hcq.nv.abi.methods import COPY_SUBCHANNEL, HOST_END, Push, SecOp

UNIT = "HOST5 HUBCLIENT_HOST"
SET_OBJECT_AT = 0


class State(Enum):
    """What a step of a channel came to."""

    IDLE = 0  # nothing to fetch
    BLOCKED = 1  # it waits for a semaphore
    WORKED = 2


class Pbdma:
    """The front end of one channel.

    make_engine   what gives a channel its own engine of a class
    watch         who is notified of entries, or nobody
    get           the entry that is fetched next
    finished      all before this one are done but for what engines do on their own
    """

    def __init__(
        self, channel: Channel, make_engine: Callable[[Channel, int], Engine], watch: ChannelWatch
    ) -> None:
        self.channel, self.make_engine, self.watch = channel, make_engine, watch
        self.host = HostProcessor(channel)
        self.bound: dict[int, Engine] = {}  # by subchannel
        self.engines: dict[int, Engine] = {}  # by class: an engine keeps its state when it is bound again
        self.get = self.finished = 0
        self.extended_base = 0  # bits 56:40 of the next segment's address
        self.work = self._work()

    def step(self) -> State:
        """Do the next piece of the channel's work."""
        return next(self.work)

    def go_on(self) -> None:
        """Behind the segment that stopped it, or whose wait is given up."""
        self.host.acquire = None
        self.work = self._work()

    def _work(self) -> Iterator[State]:
        while True:
            put = int(self.channel.userd[USERD_GP_PUT // 4])
            if put >= self.channel.entries:
                raise HostError(f"GP_PUT is {put}, and the ring has {self.channel.entries} entries")
            self.finished = self.get
            if self.watch.observers:
                self.watch.before(put)
            if self.get == put:
                self._write_get()
                self.channel.is_rung = False
                yield State.IDLE
                continue
            entry = decode_entry(*self.channel.view.words(self.channel.ring + 8 * self.get, 2, UNIT))
            self.get = (self.get + 1) % self.channel.entries
            if self.channel.card.random is None or self.channel.card.random.random() < 0.5:
                self._write_get()
            if isinstance(entry, GpControl):
                self._control(entry)
                continue
            yield from self._segment(entry)

    def _write_get(self) -> None:
        """GP_GET for the host; with a seed it is late, but it arrives before the channel is idle."""
        if not self.channel.card.spec.is_get_late:
            self.save()

    def save(self) -> None:
        """What is written back when the channel is taken off the GPU."""
        self.channel.userd[USERD_GP_GET // 4] = self.get

    def _control(self, entry: GpControl) -> None:
        if entry.unclaimed:
            raise HostError(f"ring entry {entry!r} has a length of 0 and bits without meaning")
        if (
            entry.opcode == GpOpcode.SET_PB_SEGMENT_EXTENDED_BASE
            and self.channel.card.chip.host_address_bits > 40
        ):
            self.extended_base = (entry.operand >> 8 & 0x1FFFF) << 40
        elif entry.opcode not in (GpOpcode.NOP, GpOpcode.GP_CRC, GpOpcode.PB_CRC):
            raise HostError(f"ring entry {entry!r} is illegal here")

    def _segment(self, entry: GpEntry) -> Iterator[State]:
        words = self.channel.view.words(self.extended_base | entry.get, entry.length, UNIT)
        at = 0
        while at < len(words):
            how, subchannel, address, count = _header(words[at])
            here = at
            at += 1
            if how is SecOp.IMMD_DATA_METHOD:
                yield from self._method(subchannel, address, count)
                continue
            if how is SecOp.END_PB_SEGMENT:
                return
            if how is SecOp.GRP0_USE_TERT and not words[here]:
                continue
            if how not in (SecOp.INC_METHOD, SecOp.NON_INC_METHOD, SecOp.ONE_INC):
                raise HostError(
                    f"word {here} of the segment at {entry.get:#x}, {words[here]:#010x}, is no header"
                )
            if at + count > len(words):
                raise HostError(
                    f"word {here} of the segment at {entry.get:#x}, {words[here]:#010x}, promises {count} words; "
                    f"{len(words) - at} are left"
                )
            engine = self.bound.get(subchannel) if address >= HOST_END else None
            for number in range(count):
                step = number if how is SecOp.INC_METHOD else min(number, how is SecOp.ONE_INC)
                if engine is None:
                    yield from self._method(subchannel, address + 4 * step, words[at + number])
                else:
                    self.channel.last_engine = engine
                    engine.write(address + 4 * step, words[at + number])
            at += count
            yield State.WORKED

    def _method(self, subchannel: int, address: int, word: int) -> Iterator[State]:
        if address >= HOST_END:
            engine = self.bound.get(subchannel)
            if engine is None:
                raise HostError(f"method {address:#06x} on subchannel {subchannel}, where no class is bound")
            self.channel.last_engine = engine
            engine.write(address, word)
        elif address == SET_OBJECT_AT:
            self._bind(subchannel, word)
        else:
            self.host.write(address, word)
            while not self.host.is_satisfied():
                self._write_get()
                yield State.BLOCKED

    def _bind(self, subchannel: int, word: int) -> None:
        class_id = word & 0xFFFF
        if class_id not in self.channel.classes:
            objects = ", ".join(f"{each:#x}" for each in sorted(self.channel.classes)) or "none"
            raise ClassError(f"SET_OBJECT {class_id:#x}: the channel has no such object; it has {objects}")
        if class_id in COPY and subchannel != COPY_SUBCHANNEL:
            raise HostError(
                f"SET_OBJECT {class_id:#x} on subchannel {subchannel}: a copy class belongs on {COPY_SUBCHANNEL}"
            )
        if class_id in COMPUTE and subchannel == COPY_SUBCHANNEL:
            raise HostError(
                f"SET_OBJECT {class_id:#x} on subchannel {subchannel}: only a copy class belongs there"
            )
        if class_id not in self.engines:
            self.engines[class_id] = self.make_engine(self.channel, class_id)
        self.bound[subchannel] = self.engines[class_id]


@functools.lru_cache(1 << 14)
def _header(word: int) -> tuple[SecOp | None, int, int, int]:
    """What a header says: what to do with the words behind it, subchannel, address, count."""
    header = Push.decode([word])
    how = header.sec_op
    return how if isinstance(how, SecOp) else None, header.subchannel, header.method_address, header.count
