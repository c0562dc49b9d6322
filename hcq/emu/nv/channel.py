"""A channel of the emulated GPU: it fetches ring entries and pushbuffer segments and hands methods to its engines.

In       GP_PUT in USERD, the ring, segments: all read as the GPU sees them
Out      work done, in the channel's order; GP_GET advanced as entries are fetched
Changes  what the methods change; on an error the notifier is written and the whole group stops
Next     host_processor.py (methods below 0x100), copy_processor.py, compute_processor.py, gpu.py (whose thread this is)
Source   clc56f.h, clc86f.h: GP_ENTRY, DMA_*; nvos.h: NvNotification

With a seed, launches and copies do not happen where their method stands: they wait until something orders them, and
what nothing orders happens in random order, as on a GPU that has room for all of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from hcq.emu.backing import Backing
from hcq.emu.nv.errors import ChannelError, ClassError, HostError
from hcq.emu.nv.memory import Bytes, PageTable, View
from hcq.nv.abi.classes import COMPUTE, COPY
from hcq.nv.abi.control_structs import Notification
from hcq.nv.abi.gpfifo import USERD_GP_GET, USERD_GP_PUT, GpControl, GpEntry, GpOpcode, decode_entry
from hcq.nv.abi.methods import COPY_SUBCHANNEL, HOST_END, Push, SecOp

if TYPE_CHECKING:
    from hcq.emu.nv.engine import Engine
    from hcq.emu.nv.gpu import EmulatedGpu
    from hcq.emu.nv.host_processor import HostProcessor

UNIT = "HOST5 HUBCLIENT_HOST"
ERROR_IS_SET = 0xFFFF
EMPTY = PageTable()
SET_OBJECT_AT = 0
NO_OBJECT = 0


class State(Enum):
    """What a step of a channel came to."""

    IDLE = 0  # nothing to fetch
    BLOCKED = 1  # it waits for a semaphore
    WORKED = 2


class Group:
    """Channels that are scheduled, and that die, together."""

    def __init__(self, engine_type: int, is_implicit: bool) -> None:
        self.engine_type, self.is_implicit = engine_type, is_implicit
        self.channels: list[Channel] = []
        self.is_scheduled = False
        self.error: ChannelError | None = None


class Pending:
    """A launch or a copy that has not happened. An ordered one waits for all that its engine was given before."""

    def __init__(self, engine: Engine, act: Callable[[], None], is_ordered: bool) -> None:
        self.engine, self.act, self.is_ordered = engine, act, is_ordered


class Channel:
    """One channel. `step` does the next piece of its work."""

    def __init__(
        self,
        gpu: EmulatedGpu,
        group: Group,
        number: int,
        class_id: int,
        table: Callable[[], PageTable | None],
        ring: int,
        entries: int,
        userd: Bytes,
        notifier: Backing | None,
    ) -> None:
        self.gpu, self.group, self.number, self.class_id = gpu, group, number, class_id
        self.table, self.ring, self.entries, self.notifier = table, ring, entries, notifier
        self.userd = userd.view("<u4")
        self.token = gpu.token_of(number, group.engine_type)
        self.classes: set[int] = set()  # of the engine objects allocated on it
        self.bound: dict[int, Engine] = {}  # by subchannel
        self.engines: dict[int, Engine] = {}  # by class: an engine keeps its state when it is bound again
        self.userd[:] = 0  # whatever was in the memory: a new channel's ring is empty
        self.get = 0
        self.extended_base = 0  # bits 56:40 of the next segment's address
        self.pending: list[Pending] = []
        self.is_rung = False
        self.is_ending = False
        self.host: HostProcessor = gpu.host_processor(self)
        self.work = self._work()

    @property
    def view(self) -> View:
        """The address space as it is now."""
        return (self.table() or EMPTY).view

    def step(self) -> State:
        return next(self.work)

    # ------------------------------------------------------------ fetching

    def _work(self) -> Iterator[State]:
        while True:
            put = int(self.userd[USERD_GP_PUT // 4])
            if put >= self.entries:
                raise HostError(f"GP_PUT is {put}, and the ring has {self.entries} entries")
            if self.get == put:
                self._write_get()
                self.is_rung = False
                yield State.IDLE
                continue
            entry = decode_entry(*self.view.words(self.ring + 8 * self.get, 2, UNIT))
            self.get = (self.get + 1) % self.entries
            if self.gpu.random is None or self.gpu.random.random() < 0.5:
                self._write_get()
            if isinstance(entry, GpControl):
                self._control(entry)
                continue
            yield from self._segment(entry)

    def _write_get(self) -> None:
        """GP_GET for the host; with a seed it is late, but it arrives before the channel stands still."""
        self.userd[USERD_GP_GET // 4] = self.get

    def _control(self, entry: GpControl) -> None:
        if entry.unclaimed:
            raise HostError(f"ring entry {entry!r} has a length of 0 and bits without meaning")
        if entry.opcode == GpOpcode.SET_PB_SEGMENT_EXTENDED_BASE and self.gpu.chip.host_address_bits > 40:
            self.extended_base = (entry.operand >> 8 & 0x1FFFF) << 40
        elif entry.opcode not in (GpOpcode.NOP, GpOpcode.GP_CRC, GpOpcode.PB_CRC):
            raise HostError(f"ring entry {entry!r} is illegal here")

    def _segment(self, entry: GpEntry) -> Iterator[State]:
        words = self.view.words(self.extended_base | entry.get, entry.length, UNIT)
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
            for number in range(count):
                step = number if how is SecOp.INC_METHOD else min(number, how is SecOp.ONE_INC)
                yield from self._method(subchannel, address + 4 * step, words[at + number])
            at += count
            yield State.WORKED

    def _method(self, subchannel: int, address: int, word: int) -> Iterator[State]:
        if address >= HOST_END:
            engine = self.bound.get(subchannel)
            if engine is None:
                raise HostError(f"method {address:#06x} on subchannel {subchannel}, where no class is bound")
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
        if class_id not in self.classes:
            objects = ", ".join(f"{each:#x}" for each in sorted(self.classes)) or "none"
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
            self.engines[class_id] = self.gpu.engine(self, class_id)
        self.bound[subchannel] = self.engines[class_id]

    # ------------------------------------------------------------ work that engines do on their own

    def begin(self, engine: Engine, act: Callable[[], None], is_ordered: bool) -> None:
        """Do it now; with a seed, some time before something that waits for it."""
        if self.gpu.random is None:
            act()
        else:
            self.pending.append(Pending(engine, act, is_ordered))

    def finish_one(self) -> bool:
        """Do one piece of pending work that may be done. False when there is none."""
        if not self.pending or self.gpu.random is None:
            return False
        ready = [
            one
            for at, one in enumerate(self.pending)
            if not (one.is_ordered and any(before.engine is one.engine for before in self.pending[:at]))
        ]
        one = self.gpu.random.choice(ready)
        self.pending.remove(one)
        one.act()
        return True

    def finish(self, engine: Engine | None = None) -> None:
        """Until an engine, or all of them, have nothing left to do."""
        while any(engine is None or one.engine is engine for one in self.pending):
            self.finish_one()

    # ------------------------------------------------------------ the end

    def notify(self, error: ChannelError) -> None:
        """The error notifier says what stopped the channel; its status is stored last."""
        self.pending.clear()
        if self.notifier is None:
            return
        note = Notification(
            timestamp=self.gpu.time_ns(), info32=error.xid, info16=self.group.engine_type, status=ERROR_IS_SET
        ).to_bytes()
        self.notifier.data[:14] = memoryview(note)[:14]
        self.notifier.data[14:16].view("<u2")[0] = ERROR_IS_SET


@functools.lru_cache(1 << 14)
def _header(word: int) -> tuple[SecOp | None, int, int, int]:
    """What a header says: what to do with the words behind it, subchannel, address, count."""
    header = Push.decode([word])
    how = header.sec_op
    return how if isinstance(how, SecOp) else None, header.subchannel, header.method_address, header.count
